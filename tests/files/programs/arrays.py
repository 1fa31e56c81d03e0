"""numpy: memmap in every mode, save and load, files that are written through a mapping and read by others."""

import os
import subprocess
import sys

import mounted

np = None
try:
    import numpy as np
except ImportError:
    mounted.skip("numpy is missing")

mounted.enter()
shape = (300, 1000)
expected = np.arange(300_000, dtype=np.float64).reshape(shape)

written = np.memmap("m", dtype=np.float64, mode="w+", shape=shape)
written[:] = expected
written.flush()
assert (np.memmap("m", dtype=np.float64, mode="r", shape=shape) == expected).all()
assert os.path.getsize("m") == expected.nbytes
del written
assert (np.fromfile("m").reshape(shape) == expected).all()

changed = np.memmap("m", dtype=np.float64, mode="r+", shape=shape)
changed[7] = -1
changed.flush()
by_child = "import numpy, sys; print(numpy.memmap('m', dtype='f8', mode='r', shape=(300, 1000))[7, 3])"
assert subprocess.run([sys.executable, "-c", by_child], capture_output=True, text=True).stdout.strip() == "-1.0"
# Written and not flushed: a read(2) of the same mount sees it.
changed[8] = -2
assert (np.fromfile("m").reshape(shape)[8] == -2).all()
del changed
assert (np.fromfile("m").reshape(shape)[7:9] == [[-1], [-2]]).all()

copy = np.memmap("m", dtype=np.float64, mode="c", shape=shape)
copy[0] = 99
assert (np.fromfile("m").reshape(shape)[0] == expected[0]).all()
del copy

np.save("a.npy", expected)
assert (np.load("a.npy") == expected).all()
assert (np.load("a.npy", mmap_mode="r") == expected).all()
grown = np.load("a.npy", mmap_mode="r+")
grown[0, 0] = 5
grown.flush()
assert np.load("a.npy")[0, 0] == 5
np.savez("a.npz", a=expected, b=expected[0])
with np.load("a.npz") as archive:
    assert (archive["a"] == expected).all() and (archive["b"] == expected[0]).all()
np.savez_compressed("c.npz", a=expected)
assert (np.load("c.npz")["a"] == expected).all()
# Overwriting a file that others have mapped does not change what they see.
mapped = np.load("a.npy", mmap_mode="r")
before = mapped[1].copy()
np.save("other.npy", np.zeros(shape))
os.replace("other.npy", "a.npy")
assert (mapped[1] == before).all() and (np.load("a.npy")[1] == 0).all()
