"""Arrays of every type and order, and bytes of every kind."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gpuvol
import numpy as np
import pyarrow as pa
import pytest
from gpuvol import _native

NUMPY_TYPES = [
    name for name in _native.tensor_types() if name != "bfloat16" and not name.startswith("float8")
]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4, 5), (2, 0, 3), (300, 301)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(volume: Path, dtype: str, shape: tuple[int, ...], order: Any) -> None:
    # Small numbers: every type has them.
    array = (np.arange(int(np.prod(shape))) % 100).reshape(shape).astype(dtype, order=order)
    gpuvol.put(volume / "a", array)
    got = gpuvol.get(volume / "a")
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    np.testing.assert_array_equal(got, array)
    if array.ndim > 1 and array.size > 0:
        assert got.flags.f_contiguous == (order == "F")
    assert not got.flags.writeable
    # And the object is a .npy file.
    loaded = np.load(io.BytesIO(gpuvol.get(volume / "a", "bytes")))
    np.testing.assert_array_equal(loaded, array)


def test_strided_and_foreign_arrays(place: Path) -> None:
    base = np.arange(10_000.0).reshape(100, 100)
    for name, array in {
        "strided": base[::2, 1::3],
        "reversed": base[::-1],
        "broadcast": np.broadcast_to(np.arange(5), (4, 5)),
        "permuted": base.reshape(10, 10, 100).transpose(1, 2, 0),
        "big-endian": base.astype(">f8"),
        "read-only": np.frombuffer(bytes(80)),
    }.items():
        gpuvol.put(place / name, array)
        got = gpuvol.get(place / name)
        np.testing.assert_array_equal(got, array)
        assert got.dtype.isnative
    copy = gpuvol.get(place / "strided", copy=True)
    copy[0, 0] = -5
    assert copy.base is None
    assert gpuvol.get(place / "strided")[0, 0] == base[0, 1]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array([1, "a"], dtype=object), ["dtype object", "astype"]),
        (np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]), ["('a', '<i4')", "DataFrame.from_records"]),
        (np.array(["a", "b"]), ["<U1", "pandas.Series"]),
        (np.array(["2026"], dtype="M8[s]"), ["datetime64[s]", "view('int64')"]),
        (np.ma.masked_array([1, 2], mask=[False, True]), ["masked", "filled"]),
        (np.zeros(2, np.longdouble), ["float128", "astype"]),
    ],
)
def test_arrays_that_cannot_be_put_say_what_to_do(
    volume: Path, array: Any, words: list[str]
) -> None:
    with pytest.raises(TypeError) as raised:
        gpuvol.put(volume / "a", array)
    assert all(word in str(raised.value) for word in words)
    assert not gpuvol.exists(volume / "a")


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 5_000_000])
def test_bytes(place: Path, size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    for value in (content, bytearray(content), memoryview(content)):
        result = gpuvol.put(place / "b", value)
        assert result.size == size
        got = gpuvol.get(place / "b")
        assert isinstance(got, memoryview)
        assert (got.readonly, got.format, got.ndim) == (True, "B", 1)
        assert got == content
    assert gpuvol.get(place / "b", copy=True) == content


def test_views_of_other_memory(volume: Path) -> None:
    array = np.arange(40_000, dtype="i4")
    gpuvol.put(volume / "b", array.data)
    assert bytes(gpuvol.get(volume / "b")) == array.tobytes()
    gpuvol.put(volume / "b", array.data[::2])
    assert bytes(gpuvol.get(volume / "b")) == array[::2].tobytes()
    grown = bytearray(100)
    gpuvol.put(volume / "b", grown)
    grown.extend(b"x")  # the put has let go of it
    # A view of an object can be put again.
    gpuvol.put(volume / "c", gpuvol.get(volume / "b"))
    assert len(gpuvol.get(volume / "c")) == 100


def test_files_of_other_programs_are_recognised(place: Path) -> None:
    table = pa.table({"a": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    gpuvol.put(place / "arrow", memoryview(sink.getvalue()))
    assert gpuvol.get(place / "arrow").equals(table)
    npy = io.BytesIO()
    np.save(npy, np.eye(3))
    gpuvol.put(place / "npy", npy.getvalue())
    np.testing.assert_array_equal(gpuvol.get(place / "npy"), np.eye(3))
    assert bytes(gpuvol.get(place / "npy", "bytes")) == npy.getvalue()


def test_what_a_kind_cannot_be_is_refused(volume: Path) -> None:
    gpuvol.put(volume / "b", b"plain")
    gpuvol.put(volume / "a", np.zeros(3))
    gpuvol.put(volume / "t", pa.table({"a": [1]}))
    for name, as_ in [("b", "arrow"), ("b", "numpy"), ("a", "pandas"), ("t", "numpy")]:
        with pytest.raises(gpuvol.InvalidArgument, match="without as_"):
            gpuvol.get(volume / name, as_)
    with pytest.raises(ValueError, match="as_='parquet'"):
        gpuvol.get(volume / "t", "parquet")
    with pytest.raises(gpuvol.InvalidArgument, match="no columns"):
        gpuvol.get(volume / "a", columns=["a"])
    for value in (None, 1, "text", [1, 2], {"a": 1}, object()):
        with pytest.raises(TypeError, match="pyarrow Table"):
            gpuvol.put(volume / "x", value)


def test_extended_floats_need_their_package(volume: Path) -> None:
    import ml_dtypes

    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
        gpuvol.put(volume / name, array)
        got = gpuvol.get(volume / name)
        assert got.dtype == array.dtype
        assert got.tobytes() == array.tobytes()
