"""flock and fcntl locks between processes of one mount."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
import time

import mounted

mounted.enter()


def child(code, **options):
    return subprocess.Popen([sys.executable, "-c", "import fcntl, os, time, sys\n" + code], stdout=subprocess.PIPE, text=True, **options)


def says(code):
    output = child(code).communicate(timeout=20)[0].strip()
    return output


TRY = """
f = open("lock", "r+")
try:
    fcntl.{call}(f, fcntl.{how} | fcntl.LOCK_NB)
    print("got")
except BlockingIOError:
    print("busy")
"""

with open("lock", "w") as file:
    file.write("0" * 100)
holder = open("lock", "r+")
for call in ("flock", "lockf"):
    lock = getattr(fcntl, call)
    assert says(TRY.format(call=call, how="LOCK_EX")) == "got", call
    lock(holder, fcntl.LOCK_EX)
    assert says(TRY.format(call=call, how="LOCK_EX")) == "busy", call
    assert says(TRY.format(call=call, how="LOCK_SH")) == "busy", call
    lock(holder, fcntl.LOCK_UN)
    lock(holder, fcntl.LOCK_SH)
    assert says(TRY.format(call=call, how="LOCK_SH")) == "got", call
    assert says(TRY.format(call=call, how="LOCK_EX")) == "busy", call
    lock(holder, fcntl.LOCK_UN)

# Ranges.
fcntl.lockf(holder, fcntl.LOCK_EX, 10, 20)
ranged = 'f = open("lock", "r+")\ntry:\n fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, {}, {})\n print("got")\nexcept BlockingIOError:\n print("busy")'
assert says(ranged.format(10, 0)) == "got" and says(ranged.format(5, 18)) == "busy" and says(ranged.format(10, 30)) == "got"
query = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 100, 0)
by_child = f'import struct\nf = open("lock", "r+")\nprint(struct.unpack("hhqqi", fcntl.fcntl(f, fcntl.F_GETLK, {query!r}))[2:])'
assert says(by_child) == f"(20, 10, {os.getpid()})", says(by_child)
fcntl.lockf(holder, fcntl.LOCK_UN, 10, 20)

# One that waits gets it when the holder lets go, and when the holder is killed.
for how in ("flock", "lockf"):
    first = child(f'f = open("lock", "r+"); fcntl.{how}(f, fcntl.LOCK_EX); print("held", flush=True); time.sleep(60)')
    assert first.stdout.readline() == "held\n"
    second = child(f'f = open("lock", "r+"); fcntl.{how}(f, fcntl.LOCK_EX); print("mine", flush=True)')
    time.sleep(0.3)
    assert second.poll() is None, f"{how}: two hold it"
    first.kill()
    assert second.communicate(timeout=10)[0] == "mine\n"
    first.wait()

# One that waits can be killed.
fcntl.flock(holder, fcntl.LOCK_EX)
waiting = child('f = open("lock", "r+"); print("wait", flush=True); fcntl.flock(f, fcntl.LOCK_EX)')
assert waiting.stdout.readline() == "wait\n"
time.sleep(0.2)
waiting.kill()
waiting.wait(timeout=10)
fcntl.flock(holder, fcntl.LOCK_UN)

# A counter under a lock, by four processes that open it each time.
count = """
for _ in range(100):
    with open("lock", "r+") as f:
        fcntl.{how}(f, fcntl.LOCK_EX)
        n = int(f.read() or 0)
        f.seek(0)
        f.write(str(n + 1))
        f.truncate()
        f.flush()
"""
holder.close()
for how in ("flock", "lockf"):
    open("lock", "w").write("0")
    children = [child(count.format(how=how)) for _ in range(4)]
    assert [one.wait(timeout=60) for one in children] == [0] * 4
    assert open("lock").read() == "400", f"{how}: {open('lock').read()} of 400"
