"""Shared mappings: coherent between processes of one mount, and with read and write."""

import mmap
import os
import subprocess
import sys
import time

import mounted

mounted.enter()
SIZE = 64 * 4096

if len(sys.argv) == 2:
    # The child: answers each byte with its successor.
    with open("shared", "r+b") as file:
        own = mmap.mmap(file.fileno(), SIZE)
    deadline = time.monotonic() + 20
    for n in range(64):
        while own[n * 4096] != n + 1:
            assert time.monotonic() < deadline, f"the other's byte {n} is not seen"
        own[n * 4096 + 1] = n + 2
    sys.exit()

with open("shared", "w+b") as file:
    file.truncate(SIZE)
    memory = mmap.mmap(file.fileno(), SIZE)
    child = subprocess.Popen([sys.executable, __file__, "child"])
    deadline = time.monotonic() + 20
    for n in range(64):
        memory[n * 4096] = n + 1
        while memory[n * 4096 + 1] != n + 2:
            assert time.monotonic() < deadline and child.poll() in (None, 0), f"the other's answer {n} is not seen"
    assert child.wait(timeout=20) == 0
    # With write and read.
    os.pwrite(file.fileno(), b"written", 9000)
    assert memory[9000:9007] == b"written", "a write is not seen in a mapping"
    memory[20_000:20_006] = b"stored"
    assert os.pread(file.fileno(), 6, 20_000) == b"stored", "a store is not seen by a read"
    private = mmap.mmap(file.fileno(), SIZE, flags=mmap.MAP_PRIVATE)
    private[0:7] = b"private"
    assert os.pread(file.fileno(), 1, 0) == b"\x01" and memory[0] == 1
    # Growing and shrinking under a mapping.
    file.truncate(SIZE * 2)
    memory.resize(SIZE * 2)
    assert memory[SIZE:] == bytes(SIZE)
    memory[-1] = 7
    assert os.pread(file.fileno(), 1, SIZE * 2 - 1) == b"\x07"
    memory.flush()
    memory.close()
    file.truncate(4096 + 100)
    file.truncate(SIZE)
    assert os.pread(file.fileno(), SIZE, 4196) == bytes(SIZE - 4196), "what was cut off came back"
    # A page that is partly beyond the end reads as zeros there.
    file.truncate(5000)
    part = mmap.mmap(file.fileno(), 5000)
    assert part[4990:] == os.pread(file.fileno(), 10, 4990)
    part.close()
with open("shared", "rb") as file:
    assert len(file.read()) == 5000
