"""What a volume does otherwise than a local file system, by design: readers keep the version that they opened."""

import mmap
import os
import threading
import time

import mounted

mounted.enter()
if not mounted.is_volume():
    mounted.skip("only a volume has versions")


def settle():
    """close(2) returns before the file is sealed."""
    time.sleep(0.2)


open("f", "wb").write(b"first" * 2000)
settle()
reader = open("f", "rb")
mapped = mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ)
old = os.fstat(reader.fileno())
with open("f", "r+b") as writer:
    writer.write(b"SECOND")
    writer.flush()
    assert reader.read(6) == b"firstf", "a reader saw a later version's bytes"
    # Opened now: it sees the writer.
    assert open("f", "rb").read(6) == b"SECOND"
    assert os.fstat(writer.fileno()).st_ino != old.st_ino, "a new version keeps the inode number"
assert mapped[:10] == b"firstfirst" and mapped[9990:] == b"firstfirst"
assert os.fstat(reader.fileno()).st_size == 10_000
new = open("f", "rb").read()
assert new == b"SECOND" + (b"first" * 2000)[6:], "the rest of the old version is not in the new one"

# The same by truncation, by O_TRUNC, by rename and by unlink.
settle()
for change in (
    lambda: os.truncate("f", 3),
    lambda: open("f", "wb").close(),
    lambda: (open("other", "wb").write(b"x"), os.replace("other", "f")),
    lambda: os.unlink("f"),
):
    settle()
    before = open("f", "rb")
    content = os.pread(before.fileno(), 1 << 20, 0)
    change()
    assert os.pread(before.fileno(), 1 << 20, 0) == content, "a reader lost its version"
    assert os.fstat(before.fileno()).st_size == len(content)
reader.seek(0)
assert reader.read() == b"first" * 2000

# Two writers at once share one version, and so does a reader that came after the first.
open("two", "wb").write(b"." * 10)
settle()
first = os.open("two", os.O_RDWR)
watcher = os.open("two", os.O_RDONLY)
second = os.open("two", os.O_RDWR)
os.pwrite(first, b"a", 0)
os.pwrite(second, b"b", 1)
assert os.pread(first, 10, 0) == os.pread(second, 10, 0) == os.pread(watcher, 10, 0) == b"ab........"
os.close(first)
os.pwrite(second, b"c", 2)
assert os.pread(watcher, 3, 0) == b"abc"
os.close(second)
assert open("two", "rb").read() == b"abc......."

# Attributes and modes go over to the new version.
os.setxattr("two", "user.a", b"kept")
os.chmod("two", 0o640)
settle()
with open("two", "ab") as writer:
    writer.write(b"!")
assert os.getxattr("two", "user.a") == b"kept" and os.stat("two").st_mode & 0o777 == 0o640

# A mapping alone keeps a writer's file open.
with open("mapped", "w+b") as file:
    file.truncate(8192)
    alone = mmap.mmap(file.fileno(), 8192)
alone[5000:5004] = b"late"
assert open("mapped", "rb").read()[5000:5004] == b"late"
alone.flush()
alone.close()
settle()
assert open("mapped", "rb").read()[5000:5004] == b"late"

# Version numbers go up.
number = lambda: int(os.getxattr("two", "user.gpuvol.version"))
settle()
one = number()
with open("two", "ab") as writer:
    writer.write(b"?")
settle()
assert number() > one

# Reading while another overwrites in a loop: always one whole version.
stop = threading.Event()
def overwrite():
    for n in range(200):
        open("w", "wb").write(bytes([n % 250 + 1]) * 100_000)
        os.replace("w", "whole")
    stop.set()
threading.Thread(target=overwrite).start()
while not stop.is_set():
    if os.path.exists("whole"):
        content = open("whole", "rb").read()
        assert len(content) == 100_000 and len(set(content)) == 1, f"{len(content)} bytes of {len(set(content))} kinds"
