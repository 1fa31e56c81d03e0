"""Opens that meet closes: the same file again and again by one process and by several, many readers of one file, what has
lost its name. In a volume an open that races with the end of a version may be ESTALE: seldom, and not twice running."""

import builtins
import errno
import os
import time

import mounted

mounted.enter()
# Most of a hundred opens that a process may have to repeat: none on a local file system.
SELDOM = 2 if mounted.is_volume() else 0
opens, stale = 0, 0


def repeated(open_once):
    def opened(*arguments, **options):
        global opens, stale
        opens += 1
        try:
            return open_once(*arguments, **options)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            stale += 1
            assert stale <= 3 + opens * SELDOM // 100 and SELDOM, f"{stale} of {opens} opens are ESTALE"
            return open_once(*arguments, **options)

    return opened


os.open, open = repeated(os.open), repeated(builtins.open)


def by_processes(count, work):
    """Runs work(number) in processes of their own; fails where one fails."""
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            try:
                work(number)
            except BaseException as error:
                print(f"process {number}: {error!r}", flush=True)
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert all([os.waitpid(pid, 0)[1] == 0 for pid in children])


# Opened for writing, written or not, closed, and at once again: close(2) returns before the file is sealed.
for size in (0, 100, 100_000):
    for how in ("nothing", "read", "write", "sync", "truncate"):
        descriptor = os.open("again", os.O_RDWR | os.O_CREAT)
        os.ftruncate(descriptor, size)
        for n in range(150):
            if how == "read":
                os.pread(descriptor, 1000, 0)
            elif how in ("write", "sync"):
                os.pwrite(descriptor, b"x", 0)
            elif how == "truncate":
                os.ftruncate(descriptor, size + n)
            if how == "sync":
                os.fsync(descriptor)
            os.close(descriptor)
            try:
                descriptor = os.open("again", os.O_RDWR)
            except OSError as error:
                raise AssertionError(f"open number {n} of {size} bytes after {how}: {error}") from None
        os.close(descriptor)
        os.unlink("again")


def append(number):
    for n in range(200):
        descriptor = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, f"{number} {n}\n".encode())
        os.close(descriptor)


by_processes(4, append)
lines = open("log").read().splitlines()
assert len(lines) == len(set(lines)) == 800, f"{len(lines)} lines, {len(set(lines))} different ones, of 800"


def overwrite_or_read(number):
    for _ in range(200):
        if number < 2:
            with open("over", "wb") as file:
                file.write(bytes([65 + number]) * 2000)
        else:
            content = open("over", "rb").read()
            assert len(set(content)) < 2 or len(content) == 2000, f"{len(content)} bytes of both writers"


open("over", "wb").close()
by_processes(4, overwrite_or_read)


def replace_or_read(number):
    for n in range(200):
        if number < 2:
            with open(f"beside-{number}", "wb") as file:
                file.write(bytes([65 + number]) * 5000)
            os.rename(f"beside-{number}", "name")
        else:
            content = open("name", "rb").read()
            assert len(content) == 5000 and len(set(content)) == 1, f"{len(content)} bytes of {len(set(content))} kinds"
            os.stat("name")


open("name", "wb").write(b"." * 5000)
by_processes(4, replace_or_read)

# Many readers of one file, from before it is sealed to after.
for size in (1000, 65_536, 65_537, 1 << 20):
    with open("read", "wb") as file:
        file.write(b"r" * size)
    readers = []
    for _ in range(6):
        readers.append(open("read", "rb"))
        assert len(readers[-1].read()) == size
        time.sleep(0.002)
    os.unlink("read")
    for reader in readers:
        assert len(os.pread(reader.fileno(), size, 0)) == size and os.fstat(reader.fileno()).st_nlink == 0
        reader.close()

# A file that was only made longer reads as zeros, before anything is written.
descriptor = os.open("longer", os.O_RDWR | os.O_CREAT)
os.ftruncate(descriptor, 12_289)
assert os.pread(descriptor, 20_000, 0) == bytes(12_289)
os.close(descriptor)

# A directory that was removed while it is open: in a volume there is nothing left to look at.
os.mkdir("removed")
descriptor = os.open("removed", os.O_RDONLY)
os.rmdir("removed")
for look in (lambda: os.fstat(descriptor).st_nlink, lambda: len(os.listdir(descriptor))):
    try:
        assert look() in (0, 1, 2)
    except OSError as error:
        assert mounted.is_volume() and error.errno == errno.ESTALE, error
os.close(descriptor)
