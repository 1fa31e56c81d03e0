"""GPU memory from Python, on the fake CUDA driver: what is put there is downloaded by a get."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gpuvol
import pytest
from node import TIER_GPU, Node, binary

SCRIPT = """
import sys
import gpuvol, numpy as np, pandas as pd, pyarrow as pa

mount = sys.argv[1]
values = {
    "t": pa.table({"x": np.arange(200_000), "s": ["αβ"] * 200_000}),
    "small": pa.table({"x": [1, None]}),
    "a": np.arange(60_000).reshape(200, 300).T,
    "b": bytes(range(256)) * 1000,
    "f": pd.DataFrame({"x": [1.5, None]}, index=["p", "q"]),
}
uuid = gpuvol.df(mount).device
for device in ("auto", "gpu", *([uuid] if uuid else [])):
    for name, value in values.items():
        done = gpuvol.put(f"{mount}/{name}", value, device=device)
        assert done.way == "upload", (device, name, done)
        entry = gpuvol.stat(f"{mount}/{name}")
        assert entry.tier == "gpu" and entry.device.startswith("GPU-"), entry
        found = gpuvol.open(f"{mount}/{name}")
        assert found.way == "download", found
    assert gpuvol.get(f"{mount}/t").equals(values["t"])
    assert gpuvol.get(f"{mount}/t", columns=["s"]).equals(values["t"].select(["s"]))
    assert gpuvol.get(f"{mount}/small").equals(values["small"])
    np.testing.assert_array_equal(gpuvol.get(f"{mount}/a"), values["a"])
    assert gpuvol.get(f"{mount}/a").flags.f_contiguous
    assert gpuvol.get(f"{mount}/b") == values["b"]
    pd.testing.assert_frame_equal(gpuvol.get(f"{mount}/f", "pandas"), values["f"])
# Nothing that a GPU could hold stays in host memory; the way says so.
assert gpuvol.put(f"{mount}/empty", b"", device="auto").way == "inline"
assert gpuvol.put(f"{mount}/host", bytes(100_000)).way == "host copy"
assert gpuvol.put(f"{mount}/host", bytes(100_000), device="host").way == "host copy"
assert gpuvol.df(mount).gpu > 0
try:
    gpuvol.put(f"{mount}/x", b"1", device="GPU-" + "0" * 32)
except gpuvol.DeviceMismatch as error:
    assert "GPU-" in str(error)
else:
    raise AssertionError
"""


@pytest.fixture(scope="module")
def gpu_volume() -> Iterator[Path]:
    fake = str(binary("libgpuvol_fake_cuda.so"))
    # The store asks NVML; its copier is what uses CUDA.
    node = Node("--memfd-devices", env={"GPUVOL_LIBNVML": fake, "GPUVOL_LIBCUDA": fake})
    yield node.volume("gpu", tier=TIER_GPU)
    node.close()


def test_put_into_gpu_memory_and_get_from_it(gpu_volume: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(gpu_volume)]
    env = {"GPUVOL_LIBCUDA": str(binary("libgpuvol_fake_cuda.so"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr

    # This process has no GPU: it gets a copy in host memory, and is told so.
    assert gpuvol.open(gpu_volume / "t").way == "copied"
    assert gpuvol.stat(gpu_volume / "t").tier == "gpu"
    assert gpuvol.put(gpu_volume / "here", bytes(100_000), device="auto").way == "host copy"
