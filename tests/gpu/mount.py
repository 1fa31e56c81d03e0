"""Tables and bytes in GPU memory, read as ordinary files: what is read, and how fast.

Usage: mount.py BIN SIZE_GIB    where BIN holds the binaries of `make gpu-bundle`; the wheel is installed.
Starts a node of its own, and takes it away. Prints figures; fails where bytes differ.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.ipc

BIN, GIB = os.path.abspath(sys.argv[1]), float(sys.argv[2])


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, **options).stdout


def timed(what, size, work):
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    print(f"{what:<58} {seconds * 1000:10.1f} ms {size / seconds / 1e9:8.2f} GB/s", flush=True)
    return seconds, result


def cat(path):
    subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL, timeout=300)


def fill(path, size):
    """Writes a fresh file on tmpfs, a MiB at a time."""
    block = os.urandom(1 << 20)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size >> 20):
            file.write(block)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main():
    base = tempfile.mkdtemp(prefix="gpuvol-gpu-")
    data = f"{base}/data"
    gpuvol = f"{BIN}/gpuvol"
    capacity = int((12 * GIB + 4) * (1 << 30))  # the client puts several


    print(run(gpuvol, "dev", "up", "--mount", data, "--device", "gpu", "--capacity", str(capacity)))
    try:
        import gpuvol as library

        size = int(GIB * (1 << 30))
        shm, _ = timed("tmpfs: write of a fresh file", size, lambda: fill("/dev/shm/gpuvol-gpu", size))
        timed("tmpfs: cat", size, lambda: cat("/dev/shm/gpuvol-gpu"))
        os.unlink("/dev/shm/gpuvol-gpu")
        # Bytes that a client made on the GPU.
        client = subprocess.Popen(
            [f"{BIN}/gpuvol-test-client", data, "gpu-put", "bytes", str(size), "7"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        print("put:", client.stdout.readline().strip())
        client.kill()
        client.wait()
        first, _ = timed("GPU object: first cat (copy to the host included)", size, lambda: cat(f"{data}/bytes"))
        timed("GPU object: cat again", size, lambda: cat(f"{data}/bytes"))
        pinned = size / 55e9
        print(f"first cat against the slower of tmpfs write and pinned D2H (55 GB/s): {max(shm, pinned) / first:.2f}")
        kind = os.getxattr(f"{data}/bytes", "user.gpuvol.tier")
        assert kind == b"gpu", kind
        for name in os.listdir(data):
            os.unlink(f"{data}/{name}")
        # A table: what the GPU holds and what the file shows are the same.
        rows = size // 32
        import numpy

        columns = {name: numpy.arange(rows, dtype="int64") * factor for name, factor in (("a", 1), ("b", 3), ("c", 7))}
        table = pyarrow.table(columns | {"flag": numpy.arange(rows) % 3 == 0})
        put = library.put(f"{data}/t.arrow", table, device="gpu")
        print("table:", put)

        def read():
            with pyarrow.memory_map(f"{data}/t.arrow") as source:
                return pyarrow.ipc.open_file(source).read_all()

        _, seen = timed("GPU table: pyarrow.ipc.open_file, memory_map, read_all", size, read)
        assert seen.equals(table), "the file shows another table"
        assert library.get(f"{data}/t.arrow", as_="arrow").equals(table), "the library gets another table"
        timed("GPU table: the same again", size, read)
        # Written over through the mount: a copy of what was on the GPU.
        small = library.put(f"{data}/s.arrow", pyarrow.table({"x": list(range(100_000))}), device="gpu")
        before = digest(f"{data}/s.arrow")
        with open(f"{data}/s.arrow", "r+b") as file:
            file.seek(100)
            byte = file.read(1)
            file.seek(100)
            file.write(byte)
        assert digest(f"{data}/s.arrow") == before, small
        copier = [pid for pid in os.listdir("/proc") if pid.isdigit() and open(f"/proc/{pid}/comm").read().strip() == "gpuvol-copier"]
        print("copiers running now:", len(copier))
        time.sleep(8)
        copier = [pid for pid in os.listdir("/proc") if pid.isdigit() and open(f"/proc/{pid}/comm").read().strip() == "gpuvol-copier"]
        assert not copier, "the copier does not end when idle"
        print("the copier has ended; GPU memory in use:", run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader").strip())
    finally:
        print(run(gpuvol, "dev", "down", "--mount", data))
        print(run("bash", "-c", "cat /run/gpuvol-dev/*/log/gpuvol-store.log 2>/dev/null | grep -i copied | tail -5 || true"))


main()
