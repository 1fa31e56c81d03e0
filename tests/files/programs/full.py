"""A volume that is full: ENOSPC from write, the old version stays whole, room comes back."""

# deadline: 120
import errno
import os
import time

import mounted

mounted.enter()
MIB = 1 << 20


def free():
    state = os.statvfs(".")
    return state.f_bavail * state.f_frsize


if not mounted.is_volume():
    mounted.skip("only a volume has a capacity of its own here")
if free() > 6 << 30:
    mounted.skip(f"filling {free() >> 20} MiB takes too long; publish a smaller volume")


def refused(call):
    try:
        call()
    except OSError as error:
        assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
        return True
    return False


def settled(at_least):
    """Room comes back when the last handle is gone, which is after close(2)."""
    deadline = time.monotonic() + 20
    while free() < at_least:
        assert time.monotonic() < deadline, f"only {free() >> 10} KiB are free, there should be {at_least >> 10} KiB"
        time.sleep(0.05)


at_first = free()
open("old", "wb").write(b"old version" * 100_000)
before = free()
assert before <= at_first - 1_000_000, "statfs does not show what was written"
with open("filler", "wb") as filler:
    left = free() - 4 * MIB
    piece = b"f" * (4 * MIB)
    while left > 0:
        left -= filler.write(piece[: min(left, len(piece))])
    filler.flush()
    print(f"{free() >> 10} KiB left")

    # A write that does not fit says so, and what fitted before it is there.
    with open("grows", "wb", buffering=0) as grows:
        written = 0
        try:
            for _ in range(100):
                written += grows.write(b"g" * MIB)
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
        else:
            raise AssertionError("100 MiB fitted into 4")
        assert os.fstat(grows.fileno()).st_size >= written
    # New file, last write failed: what was written may be there or not, but never anything else.
    if os.path.exists("grows"):
        content = open("grows", "rb").read()
        assert content == b"g" * len(content)
        os.unlink("grows")

    # An overwrite that does not fit leaves the old version.
    def overwrite():
        with open("old", "wb", buffering=0) as old:
            for _ in range(100):
                old.write(b"n" * MIB)

    assert refused(overwrite)
    time.sleep(0.5)
    got = open("old", "rb").read()
    assert got == b"old version" * 100_000, f"the old version is lost: {len(got)} bytes, {got[:20]}"

    # Room that is asked for beforehand is refused too, and so is a sparse size: sizes count as they appear.
    with open("ahead", "wb") as ahead:
        assert refused(lambda: os.posix_fallocate(ahead.fileno(), 0, 100 * MIB))
        assert refused(lambda: os.ftruncate(ahead.fileno(), 100 * MIB) or ahead.flush() or os.fsync(ahead.fileno()))
    os.unlink("ahead")
    # Names and small files still work after a refusal.
    os.mkdir("d")
    os.rename("old", "d/old")
    os.unlink("d/old")
    os.rmdir("d")
os.unlink("filler")
settled(at_first - 64 * 1024)

# What is deleted and still open counts until it is closed.
held = open("held", "w+b")
held.write(b"h" * (64 * MIB))
held.flush()
used = free()
os.unlink("held")
time.sleep(0.3)
assert free() <= used + MIB, "room of an open file was given back"
held.close()
settled(at_first - 64 * 1024)

# The same file over and over takes the room of one (and of the one that is being written).
for n in range(2 * (at_first // (256 * MIB)) + 4):
    with open("again", "wb") as again:
        for _ in range(64):
            again.write(b"a" * MIB)
    if free() < 192 * MIB:
        settled(128 * MIB)
os.unlink("again")
settled(at_first - 64 * 1024)
