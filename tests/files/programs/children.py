"""A writer that starts children while its files are open: each child's end closes their copies of the descriptors, and
nothing may be lost, cut off, or published half-written by that."""

import multiprocessing
import os
import subprocess
import sys

import mounted

mounted.enter()
PIECES = 60


def piece(n):
    return bytes([n % 251 + 1]) * 10_000


def end_of_fork():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


# Children that inherit the descriptor and only end.
with open("inherited", "wb", buffering=0) as file:
    os.set_inheritable(file.fileno(), True)
    for n in range(PIECES):
        file.write(piece(n))
        if n % 3 == 0:
            end_of_fork()
        elif n % 3 == 1:
            subprocess.run(["true"], close_fds=False, check=True)
        # Whoever opens it now sees all so far.
        assert os.path.getsize("inherited") == (n + 1) * 10_000
        with open("inherited", "rb") as other:
            assert len(other.read()) == (n + 1) * 10_000
assert open("inherited", "rb").read() == b"".join(piece(n) for n in range(PIECES))

# Children that write through it: one description, one position.
with open("shared", "wb", buffering=0) as file:
    os.set_inheritable(file.fileno(), True)
    for n in range(PIECES):
        writer = f"import os; os.write({file.fileno()}, bytes([{n % 251 + 1}]) * 10000)"
        if n % 2:
            subprocess.run([sys.executable, "-c", writer], close_fds=False, check=True)
        else:
            file.write(piece(n))
assert open("shared", "rb").read() == b"".join(piece(n) for n in range(PIECES))

# A child that outlives the parent's close and writes then.
with open("late", "wb", buffering=0) as file:
    file.write(b"parent")
    os.set_inheritable(file.fileno(), True)
    writer = f"import os, time; time.sleep(0.3); os.write({file.fileno()}, b' and child')"
    child = subprocess.Popen([sys.executable, "-c", writer], close_fds=False)
assert child.wait() == 0
assert open("late", "rb").read() == b"parent and child"

# An overwrite in pieces while children end: the old version is there until the new one is, or a mixture of neither.
open("version", "wb").write(b"old" * 1000)
with open("version", "wb", buffering=0) as file:
    file.write(b"n" * 5000)
    end_of_fork()
    file.write(b"e" * 5000)
assert open("version", "rb").read() == b"n" * 5000 + b"e" * 5000


def pool_task(n):
    with open(f"task-{n}", "wb") as file:
        file.write(piece(n))
    return os.path.getsize(f"task-{n}")


# A pool, as data loaders have one, while a file is open.
if __name__ == "__main__":
    with open("pool", "wb") as file:
        file.write(b"before ")
        file.flush()
        with multiprocessing.get_context("fork").Pool(4) as pool:
            assert pool.map(pool_task, range(40)) == [10_000] * 40
        file.write(b"after")
    assert open("pool", "rb").read() == b"before after"
    assert all(open(f"task-{n}", "rb").read() == piece(n) for n in range(40))
