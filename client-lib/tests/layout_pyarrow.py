"""The other side of the layout tests: what pyarrow and numpy make of our files, and files of theirs.

    layout_pyarrow.py probe
    layout_pyarrow.py compare DIR     every NAME.ours.arrow equals NAME.theirs.arrow
    layout_pyarrow.py make DIR        writes NAME.theirs.arrow in pyarrow's ways
    layout_pyarrow.py make-npy DIR    writes NAME.theirs.npy and NAME.bin
    layout_pyarrow.py compare-npy DIR every NAME.ours.npy holds NAME.bin as NAME says
"""

import decimal
import pathlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa


def read(path):
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def compare(folder):
    compared = 0
    for ours in sorted(folder.glob("*.ours.arrow")):
        name = ours.name.removesuffix(".ours.arrow")
        found, expected = read(ours), read(folder / f"{name}.theirs.arrow")
        found.validate(full=True)
        assert found.schema.equals(expected.schema, check_metadata=True), f"{name}: {found.schema} {expected.schema}"
        # Null values that unions and dictionaries hide are compared by equals too.
        assert found.equals(expected), f"{name}: other values"
        assert found.num_rows == expected.num_rows, name
        if name.startswith("pandas"):
            pd.testing.assert_frame_equal(found.to_pandas(), expected.to_pandas())
        compared += 1
    print(compared)


def tables():
    words = ["a", "bb", None, "a string that is longer than a view", "é"] * 20
    numbers = [1, None, 3, -4, 5] * 20
    yield "flat", pa.table(
        {
            "n": pa.array(numbers, pa.int32()),
            "b": pa.array([True, None, False, True, True] * 20),
            "s": pa.array(words),
            "large": pa.array(words, pa.large_string()),
            "view": pa.array(words, pa.string_view()),
            "binary": pa.array([None if w is None else w.encode() for w in words], pa.binary_view()),
            "d": pa.array([decimal.Decimal("1.25"), None] * 50, pa.decimal128(9, 2)),
            "t": pa.array(numbers, pa.timestamp("us", tz="UTC")),
            "null": pa.nulls(100),
            "fixed": pa.array([b"abc", None] * 50, pa.binary(3)),
            "half": pa.array(np.arange(100, dtype=np.float16)),
        }
    )
    lists = [[1, 2], None, [], [3, None]] * 25
    yield "nested", pa.table(
        {
            "l": pa.array(lists, pa.list_(pa.int64())),
            "ll": pa.array(lists, pa.large_list(pa.int8())),
            "lv": pa.array(lists, pa.list_view(pa.int64())),
            "fl": pa.array([[1, 2], None] * 50, pa.list_(pa.int16(), 2)),
            "st": pa.array([{"x": 1, "y": "a"}, None] * 50),
            "m": pa.array([[("k", 1)], None] * 50, pa.map_(pa.string(), pa.int32())),
            "ree": pa.RunEndEncodedArray.from_arrays(pa.array([40, 100], pa.int32()), pa.array(["x", None])),
            "sparse": pa.UnionArray.from_sparse(
                pa.array([0, 1] * 50, pa.int8()), [pa.array(range(100)), pa.array(words)]
            ),
            "dense": pa.UnionArray.from_dense(
                pa.array([0, 1] * 50, pa.int8()),
                pa.array([i // 2 for i in range(100)], pa.int32()),
                [pa.array(range(50)), pa.array(words[:50])],
            ),
        }
    )
    coded = pa.array(words).dictionary_encode()
    yield "dictionary", pa.table(
        {"d": coded, "l": pa.ListArray.from_arrays(pa.array([0, 40, 100], pa.int32()), coded).take([0, 1] * 50)}
    )
    frame = pd.DataFrame(
        {
            "city": pd.Categorical(["b", "a", None, "b"] * 25),
            "when": pd.date_range("2024-01-01", periods=100, tz="Europe/Berlin"),
            "x": np.linspace(0, 1, 100),
        },
        index=pd.Index(range(100, 200), name="id"),
    )
    yield "pandas", pa.Table.from_pandas(frame)
    yield "empty", pa.table({"n": pa.array([], pa.int32()), "s": pa.array([], pa.string())})


def make(folder):
    for name, table in tables():
        for compression in ["none", "lz4", "zstd"]:
            codec = None if compression == "none" else compression
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_file(str(folder / f"{name}-{compression}.theirs.arrow"), table.schema, options=options) as out:
                out.write_table(table, max_chunksize=33)
    old = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    table = pa.table({"n": pa.array([1, None, 3]), "s": pa.array(["a", None, "c"])})
    with pa.ipc.new_file(str(folder / "version4.theirs.arrow"), table.schema, options=old) as out:
        out.write_table(table)
    # Slices, which pyarrow trims in its own way, and unified dictionaries.
    table = next(table for name, table in tables() if name == "flat").slice(3, 50)
    with pa.ipc.new_file(str(folder / "slice.theirs.arrow"), table.schema) as out:
        out.write_table(table)
    deltas = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    batches = [
        pa.record_batch({"d": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(values))})
        for values in (["a", "b"], ["a", "b", "c"])
    ]
    with pa.ipc.new_file(str(folder / "delta.theirs.arrow"), batches[0].schema, options=deltas) as out:
        for batch in batches:
            out.write_batch(batch)
    print("made")


def arrays():
    for dtype in "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split():
        array = np.arange(24).astype(np.dtype(f"<{dtype}"))
        yield f"{dtype}-flat", array
        yield f"{dtype}-c", array.reshape(2, 3, 4)
        yield f"{dtype}-f", np.asfortranarray(array.reshape(2, 3, 4))
        yield f"{dtype}-scalar", array[5].reshape(())
        yield f"{dtype}-empty", array[:0].reshape(0, 7)


def make_npy(folder):
    for name, array in arrays():
        with open(folder / f"{name}.theirs.npy", "wb") as out:
            np.lib.format.write_array(out, array, version=(2, 0) if name.startswith("f8") else None)
        (folder / f"{name}.bin").write_bytes(array.tobytes("A"))
    print("made")


def compare_npy(folder):
    compared = 0
    for name, array in arrays():
        path = folder / f"{name}.ours.npy"
        found = np.load(path)
        assert found.dtype == array.dtype and found.shape == array.shape, name
        assert np.array_equal(found, array), name
        assert found.flags.f_contiguous == array.flags.f_contiguous, name
        mapped = np.load(path, mmap_mode="r") if array.size else found
        assert mapped.size == 0 or mapped.ctypes.data % 64 == 0, f"{name}: elements at an odd address"
        compared += 1
    raw = np.load(folder / "bfloat16.ours.npy")
    assert raw.dtype == np.dtype("V2") and raw.shape == (3, 2)
    print(compared)


if __name__ == "__main__":
    if sys.argv[1] == "probe":
        print(pa.__version__)
    else:
        action = {"compare": compare, "make": make, "make-npy": make_npy, "compare-npy": compare_npy}[sys.argv[1]]
        action(pathlib.Path(sys.argv[2]))
