"""SQLite: both journal modes, transactions of four processes at once, a reader meanwhile, the integrity check."""

# deadline: 120
import os
import sqlite3
import subprocess
import sys

import mounted

PROCESSES = 4
TRANSACTIONS = 40


def connect(path):
    connection = sqlite3.connect(path, timeout=50, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def write(path, number):
    connection = connect(path)
    for n in range(TRANSACTIONS):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", (number, n, os.urandom(300)))
        connection.execute("UPDATE total SET n = n + 1")
        connection.execute("ROLLBACK" if n % 10 == 9 else "COMMIT")
    connection.close()


def check(path, mode):
    connection = connect(path)
    assert connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0] == mode, f"{mode} is refused"
    connection.execute("CREATE TABLE t (process, n, bytes)")
    connection.execute("CREATE TABLE total (n)")
    connection.execute("INSERT INTO total VALUES (0)")
    children = [subprocess.Popen([sys.executable, __file__, path, str(n)]) for n in range(PROCESSES)]
    while any(child.poll() is None for child in children):
        count, total = connection.execute("SELECT (SELECT count(*) FROM t), (SELECT n FROM total)").fetchone()
        assert count == total, f"{mode}: a reader saw half a transaction: {count} rows, total {total}"
    assert [child.wait() for child in children] == [0] * PROCESSES
    expected = PROCESSES * (TRANSACTIONS - TRANSACTIONS // 10)
    assert connection.execute("SELECT n FROM total").fetchone()[0] == expected
    assert connection.execute("SELECT count(*) FROM t").fetchone()[0] == expected
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.execute("VACUUM")
    connection.close()
    connection = connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("SELECT count(*) FROM t").fetchone()[0] == expected
    connection.execute("PRAGMA mmap_size=1048576")
    assert connection.execute("SELECT sum(length(bytes)) FROM t").fetchone()[0] == expected * 300
    connection.close()
    print(mode, "ok")


if len(sys.argv) == 3:
    write(sys.argv[1], int(sys.argv[2]))
else:
    here = mounted.enter()
    for mode in ("delete", "truncate", "persist", "wal"):
        check(f"{here}/{mode}.db", mode)
