"""Tables: what goes in comes out, of every type, with every index."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import gpuvol
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_DAY = datetime.datetime(2026, 2, 28, 23, 59, 59, 999_999)

COLUMNS: dict[str, Any] = {
    "bool": pa.array([True, None, False]),
    "int8": pa.array([1, -128, None], pa.int8()),
    "uint64": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "float16": pa.array(np.array([1, 2, 3], np.float16)),
    "float64": pa.array([1.5, float("nan"), None]),
    "string": pa.array(["", None, "αβγ"]),
    "large_string": pa.array(["a", None, "c"], pa.large_string()),
    "string_view": pa.array(["a", None, "longer than twelve bytes"], pa.string_view()),
    "binary": pa.array([b"\0", None, b"x"]),
    "fixed_binary": pa.array([b"abc", None, b"def"], pa.binary(3)),
    "date": pa.array([_DAY.date(), None, _DAY.date()]),
    "time": pa.array([_DAY.time(), None, _DAY.time()]),
    "timestamp": pa.array([_DAY, None, _DAY], pa.timestamp("us")),
    "timestamp_tz": pa.array([_DAY, None, _DAY], pa.timestamp("ns", "Europe/Berlin")),
    "duration": pa.array([1, None, 3], pa.duration("ms")),
    "decimal": pa.array([decimal.Decimal("1.23"), None, decimal.Decimal("-9.99")]),
    "decimal256": pa.array([decimal.Decimal(1), None, decimal.Decimal(2)], pa.decimal256(50, 3)),
    "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
    "large_list": pa.array([["x"], None, []], pa.large_list(pa.string())),
    "fixed_list": pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2)),
    "struct": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": None}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "null": pa.nulls(3),
    "list_of_dictionary": pa.ListArray.from_arrays(
        [0, 1, 1, 2], pa.array(["p", "q"]).dictionary_encode()
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_each_type(volume: Path, name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    for case, expected in {
        "whole": table,
        "sliced": table.slice(1, 2),
        "none": table.slice(3),
        "long": pa.concat_tables([table] * 5000),
    }.items():
        result = gpuvol.put(volume / case, expected)
        assert result.way == ("host copy" if result.size > 64 * 1024 else "inline")
        got = gpuvol.get(volume / case)
        got.validate(full=True)
        # Where nan is, nan is equal.
        assert str(got.to_pylist()) == str(expected.to_pylist())
        assert got.schema.equals(expected.schema, check_metadata=True)


def test_all_columns_at_once_and_some_of_them(place: Path) -> None:
    table = pa.table(COLUMNS).replace_schema_metadata({"unit": "m"})
    gpuvol.put(place / "t.arrow", table)
    got = gpuvol.get(place / "t.arrow")
    assert got.schema.metadata == {b"unit": b"m"}
    assert got.column_names == table.column_names
    some = gpuvol.get(place / "t.arrow", columns=["string", "bool"])
    assert some.column_names == ["string", "bool"]
    assert some.equals(table.select(["string", "bool"]))
    with pytest.raises(gpuvol.InvalidArgument, match="no single column 'strings'"):
        gpuvol.get(place / "t.arrow", columns=["strings"])


def test_record_batches_and_readers(place: Path) -> None:
    batch = pa.record_batch({"a": [1, 2, 3]})
    gpuvol.put(place / "batch", batch)
    assert gpuvol.get(place / "batch").equals(pa.Table.from_batches([batch]))
    reader = pa.RecordBatchReader.from_batches(batch.schema, iter([batch, batch.slice(1)]))
    gpuvol.put(place / "reader", reader)
    assert gpuvol.get(place / "reader")["a"].to_pylist() == [1, 2, 3, 2, 3]
    gpuvol.put(place / "nothing", pa.schema([("a", pa.string())]).empty_table())
    assert gpuvol.get(place / "nothing").num_rows == 0
    gpuvol.put(place / "no columns", pa.table({}))
    assert gpuvol.get(place / "no columns").num_columns == 0


def test_chunks_with_dictionaries_of_their_own(volume: Path) -> None:
    chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", None], ["b"])]
    table = pa.table({"d": pa.chunked_array(chunks), "n": pa.chunked_array([[1, 2, 3], [4, 5]])})
    gpuvol.put(volume / "t", table)
    assert gpuvol.get(volume / "t").to_pydict() == table.to_pydict()


def test_a_stream_that_is_no_table_is_refused(volume: Path) -> None:
    with pytest.raises(gpuvol.InvalidArgument):
        gpuvol.put(volume / "x", pa.chunked_array([[1, 2]]))

    def broken() -> Any:
        yield pa.record_batch({"a": [1]})
        raise RuntimeError("the source failed")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), broken())
    with pytest.raises(gpuvol.InvalidArgument, match="the source failed"):
        gpuvol.put(volume / "x", reader)
    assert not gpuvol.exists(volume / "x")


FRAMES: dict[str, pd.DataFrame] = {
    "plain": pd.DataFrame({"a": [1, 2, 3], "b": [0.5, None, 1.5], "s": ["x", None, "z"]}),
    "index": pd.DataFrame({"a": [1, 2]}, index=pd.Index(["p", "q"], name="key")),
    "range": pd.DataFrame({"a": [1, 2, 3]}, index=pd.RangeIndex(10, 16, 2)),
    "multi": pd.DataFrame(
        {"a": [1.0, 2.0, 3.0]},
        index=pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)], names=["k", None]),
    ),
    "number names": pd.DataFrame(np.arange(6).reshape(2, 3)),
    "multi names": pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])),
    "categories": pd.DataFrame({"c": pd.Categorical(["b", "a", None], ["b", "a"], ordered=True)}),
    "times": pd.DataFrame(
        {"t": pd.date_range("2026-10-25", periods=3, freq="h", tz="Europe/Berlin")},
        index=pd.date_range("2026", periods=3, name="day"),
    ),
    "nullable": pd.DataFrame({"i": pd.array([1, None], "Int64"), "b": pd.array([True, None])}),
    "timedelta": pd.DataFrame({"d": pd.to_timedelta([1, None], "s")}),
    "periods": pd.DataFrame({"p": pd.period_range("2026", periods=2, freq="M")}),
    "empty": pd.DataFrame({"a": pd.Series([], dtype="float64")}),
    "no columns": pd.DataFrame(index=pd.RangeIndex(3)),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("copy", [False, True])
def test_a_frame_comes_back_as_it_was(place: Path, name: str, copy: bool) -> None:
    frame = FRAMES[name]
    gpuvol.put(place / "f", frame)
    got = gpuvol.get(place / "f", "pandas", copy=copy)
    pd.testing.assert_frame_equal(got, frame, check_freq=False)


def test_a_copied_frame_can_be_written_to(volume: Path) -> None:
    gpuvol.put(volume / "f", pd.DataFrame({"a": np.arange(100_000.0)}))
    view = gpuvol.get(volume / "f", "pandas")
    with pytest.raises(ValueError, match="read-only"):
        view.loc[0, "a"] = 5
    view["a"] += 1  # makes a new column
    frame = gpuvol.get(volume / "f", "pandas", copy=True)
    frame.loc[0, "a"] = 5
    assert frame["a"].iloc[0] == 5
    assert gpuvol.get(volume / "f", "pandas")["a"].iloc[0] == 0


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1, 2], index=["a", "b"], name="n"),
        pd.Series([1.5, None]),
        pd.Series(["x", "y"], name=7),
        pd.Series(pd.Categorical(["a", "b"]), name="c"),
    ],
)
def test_a_series_comes_back_as_one(place: Path, series: pd.Series) -> None:
    gpuvol.put(place / "s", series)
    pd.testing.assert_series_equal(gpuvol.get(place / "s", "pandas"), series)


def test_chosen_columns_of_a_frame(place: Path) -> None:
    gpuvol.put(place / "f", FRAMES["index"].assign(b=[3, 4]))
    got = gpuvol.get(place / "f", "pandas", columns=["b"])
    assert got["b"].tolist() == [3, 4]
    assert got.shape == (2, 1)


def test_polars(place: Path) -> None:
    frame = pl.DataFrame({"a": [1, 2, None], "s": ["x", None, "a string of some length"]})
    gpuvol.put(place / "p", frame)
    assert gpuvol.get(place / "p", "polars").equals(frame)
    assert gpuvol.get(place / "p")["a"].to_pylist() == [1, 2, None]
    categories = pl.DataFrame({"c": pl.Series(["a", "b", "a"], dtype=pl.Categorical)})
    gpuvol.put(place / "c", categories)
    assert gpuvol.get(place / "c", "polars")["c"].to_list() == ["a", "b", "a"]


_VALUES = {
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=20),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int8()): st.lists(st.integers(-128, 127), max_size=4),
    pa.struct([("x", pa.int64()), ("y", pa.string())]): st.fixed_dictionaries(
        {"x": st.integers(-(2**63), 2**63 - 1), "y": st.none() | st.text(max_size=5)}
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 40))
    columns = {}
    for number, type_ in enumerate(draw(st.lists(st.sampled_from(list(_VALUES)), max_size=5))):
        value = st.none() | _VALUES[type_]
        columns[f"c{number}"] = pa.array(draw(st.lists(value, min_size=rows, max_size=rows)), type_)
    table = pa.table(columns)
    start = draw(st.integers(0, max(rows, 0)))
    return table.slice(start, draw(st.integers(0, 40)))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=tables())
def test_any_slice_of_any_table(volume: Path, table: pa.Table) -> None:
    gpuvol.put(volume / "any", table)
    got = gpuvol.get(volume / "any")
    got.validate(full=True)
    assert got.equals(table)
