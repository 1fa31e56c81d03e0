"""Nothing is copied, and memory lives exactly as long as something refers to it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpuvol
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

MIB = 1 << 20


def mapping_of(address: int) -> str:
    """The line of /proc/self/maps that an address is in."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return line
    return ""


def private_bytes() -> int:
    """Memory of this process that is not shared with anybody."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def in_the_volume(address: int) -> bool:
    line = mapping_of(address)
    return "memfd:" in line and line.split()[1].startswith("r--s")


def pa_table(numbers: Any) -> pa.Table:
    return pa.table({"x": numbers})


def test_all_forms_are_views_of_the_volume(volume: Path) -> None:
    rows = 100_000
    table = pa.table({"x": np.arange(rows), "s": [f"{i:040}" for i in range(rows)]})
    gpuvol.put(volume / "t", table)
    gpuvol.put(volume / "a", np.arange(rows))
    gpuvol.put(volume / "b", bytes(rows))
    assert gpuvol.open(volume / "t").way == "mapped"
    got = gpuvol.get(volume / "t")
    for column in got.columns:
        for buffer in column.chunk(0).buffers():
            assert buffer is None or in_the_volume(buffer.address)
    assert in_the_volume(gpuvol.get(volume / "t", "pandas")["x"].to_numpy().ctypes.data)
    assert in_the_volume(gpuvol.get(volume / "a").ctypes.data)
    assert in_the_volume(np.frombuffer(gpuvol.get(volume / "b"), "u1").ctypes.data)
    assert in_the_volume(gpuvol.get(volume / "t", "polars")["x"].to_numpy().ctypes.data)
    # The strings of a frame: pandas keeps Arrow's bytes.
    strings = pa.array(gpuvol.get(volume / "t", "pandas")["s"])
    assert in_the_volume(
        (strings.chunk(0) if isinstance(strings, pa.ChunkedArray) else strings).buffers()[2].address
    )


def test_a_frame_with_strings_in_pieces_is_read_without_a_copy(volume: Path) -> None:
    rows = 50_000
    part = pd.DataFrame({"x": np.arange(rows), "s": [f"{i:040}" for i in range(rows)]})
    frame = pd.concat([part] * 3, ignore_index=True)
    assert pa.Table.from_pandas(frame)["s"].num_chunks == 3
    gpuvol.put(volume / "f", frame)
    got = gpuvol.get(volume / "f", "pandas")
    pd.testing.assert_frame_equal(got, frame)
    assert in_the_volume(got["x"].to_numpy().ctypes.data)


def test_copies_are_private_and_writable(volume: Path) -> None:
    gpuvol.put(volume / "a", np.arange(100_000))
    gpuvol.put(volume / "t", pa.table({"x": np.arange(100_000)}))
    array = gpuvol.get(volume / "a", copy=True)
    assert not in_the_volume(array.ctypes.data)
    array[0] = 7
    column = gpuvol.get(volume / "t", copy=True)["x"].chunk(0)
    assert not in_the_volume(column.buffers()[1].address)


def test_reading_adds_no_private_memory(volume: Path) -> None:
    table = pa.table({f"c{i}": np.arange(8 * MIB, dtype="i8") for i in range(4)})
    gpuvol.put(volume / "t", table)
    gpuvol.put(volume / "a", table["c0"].to_numpy())
    del table
    gc.collect()
    before = private_bytes()
    got = gpuvol.get(volume / "t")
    frame = gpuvol.get(volume / "t", "pandas")
    array = gpuvol.get(volume / "a")
    assert frame["c3"].sum() == array.sum() == (8 * MIB) * (8 * MIB - 1) // 2
    assert private_bytes() - before < 32 * MIB
    assert got.nbytes == 256 * MIB


def test_an_open_takes_the_same_time_at_any_size(volume: Path) -> None:
    gpuvol.put(volume / "t", pa.table({"x": np.zeros(32 * MIB)}))
    gpuvol.get(volume / "t")
    start = time.perf_counter()
    gpuvol.get(volume / "t")
    # 256 MiB; a pass over them takes 50 ms and more.
    assert time.perf_counter() - start < 0.02


ROWS = 200_000
FILL = np.arange(ROWS)

#: What is put, the view that is kept of it, and the numbers that the view must still show.
VIEWS: dict[str, tuple[Callable[[Any], Any], Callable[[gpuvol.Object], Any], Any]] = {
    "arrow": (pa_table, lambda o: o.to("arrow"), lambda v: v["x"].to_numpy()),
    "slice": (pa_table, lambda o: o.to("arrow")["x"].slice(10).chunk(0), lambda v: v.to_numpy()),
    "pandas": (pa_table, lambda o: o.to("pandas"), lambda v: v["x"].to_numpy()),
    "series": (pa_table, lambda o: o.to("pandas")["x"].to_numpy()[10:], lambda v: v),
    "polars": (pa_table, lambda o: o.to("polars"), lambda v: v["x"].to_numpy()),
    "numpy": (lambda a: a, lambda o: o.to("numpy"), lambda v: v),
    "array": (lambda a: a, lambda o: np.asarray(o.to("numpy"))[10:], lambda v: v),
    "bytes": (lambda a: a.tobytes(), lambda o: o.to("bytes"), lambda v: np.frombuffer(v, "i8")),
    "part": (lambda a: a.tobytes(), lambda o: o.bytes()[80:], lambda v: np.frombuffer(v, "i8")),
}


@pytest.mark.parametrize("form", VIEWS)
def test_a_view_outlives_everything_but_itself(volume: Path, form: str) -> None:
    made, viewed, shown = VIEWS[form]
    path = volume / "x"
    gpuvol.put(path, made(FILL))
    handle: gpuvol.Object | None = gpuvol.open(path)
    assert handle is not None
    alive = weakref.ref(handle._native)
    view: Any = viewed(handle)
    handle = None
    gc.collect()
    assert gpuvol.df(volume).pinned == 0
    gpuvol.put(path, made(np.zeros(ROWS, "i8")))
    gpuvol.unlink(path)
    gpuvol.put(path, made(np.ones(ROWS, "i8")))
    gc.collect()
    assert alive() is not None
    assert gpuvol.df(volume).pinned > 0
    numbers = shown(view)
    np.testing.assert_array_equal(numbers, FILL[len(FILL) - len(numbers) :])
    del numbers
    view = None
    gc.collect()
    assert alive() is None
    assert gpuvol.df(volume).pinned == 0


def test_a_killed_writer_leaves_what_it_put(volume: Path) -> None:
    writer = """
import os, signal, sys, gpuvol, pandas as pd, numpy as np
gpuvol.put(sys.argv[1], pd.DataFrame({"x": np.arange(500_000), "s": ["αβ"] * 500_000}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", writer, volume / "t"], timeout=60)
    assert done.returncode == -signal.SIGKILL
    frame = gpuvol.get(volume / "t", "pandas")
    assert frame["x"].sum() == 500_000 * 499_999 // 2
    assert frame["s"].iloc[-1] == "αβ"
    assert in_the_volume(frame["x"].to_numpy().ctypes.data)


def test_a_killed_reader_lets_go(
    volume: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    gpuvol.put(volume / "b", bytes(MIB))
    reader = """
import os, signal, sys, gpuvol
view = gpuvol.get(sys.argv[1])
gpuvol.unlink(sys.argv[1])
assert gpuvol.df(sys.argv[1]).pinned >= 1 << 20
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = python(reader, volume / "b")
    assert done.returncode == -signal.SIGKILL, done.stderr
    until = time.monotonic() + 10
    while gpuvol.df(volume).pinned and time.monotonic() < until:
        time.sleep(0.01)
    assert gpuvol.df(volume).used == 0


def test_many_views_use_one_descriptor_and_one_mapping(volume: Path) -> None:
    gpuvol.put(volume / "a", np.zeros(100_000))
    before = len(os.listdir("/proc/self/fd"))
    views = [gpuvol.get(volume / "a") for _ in range(100)]
    assert len({view.ctypes.data for view in views}) == 1
    assert len(os.listdir("/proc/self/fd")) - before < 8


def test_frames_and_polars_are_the_types_they_say(volume: Path) -> None:
    gpuvol.put(volume / "t", pa.table({"a": [1]}))
    assert isinstance(gpuvol.get(volume / "t", "pandas"), pd.DataFrame)
    assert isinstance(gpuvol.get(volume / "t", "polars"), pl.DataFrame)
