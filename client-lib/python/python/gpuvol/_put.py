"""Putting: what kind of object a Python value becomes, and where its memory is."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuvol import _native

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

#: Key of a table's schema metadata that says that a pandas Series was put.
SERIES_KEY = b"gpuvol.series"

_ACCEPTED = (
    "a pyarrow Table or RecordBatch, a pandas DataFrame or Series, a polars DataFrame, "
    "a numpy array, bytes, bytearray, memoryview, or anything with __arrow_c_stream__"
)


class PutResult(NamedTuple):
    """What a put made."""

    version: int
    """The object's version; 0 for an ordinary file."""
    size: int
    """Bytes of content."""
    way: str
    """``inline`` (small), ``host copy``, ``upload`` to a GPU, or ``file`` on no volume."""


def put(
    path: str | os.PathLike[str],
    obj: Any,
    *,
    device: str | None = None,
    exclusive: bool = False,
    attributes: Mapping[str, str] | None = None,
) -> PutResult:
    """Put a table, an array or bytes at a path, replacing what is there.

    Readers see the whole object or none of it. The data is copied once, from ``obj`` into the
    volume's memory; ``obj`` may be changed as soon as this returns.

    A table of several chunks stays one of several batches. ``table.combine_chunks()`` before the
    put makes it one, which readers with pandas or on a GPU need for working without a copy. Of
    pandas objects only columns in pieces, such as strings from ``read_csv``, are joined so.

    * Tables become Arrow IPC files. Of pandas objects the index, the columns' names and the
      dtypes are kept; a NaN becomes a null, as in ``pyarrow.Table.from_pandas``.
    * numpy arrays become ``.npy`` files, in C or in Fortran order as they are; an array that is
      contiguous in neither is first copied into C order.
    * bytes, bytearray and memoryview stay bytes.

    ``device``: ``None`` or ``"host"`` puts into host memory, ``"gpu"`` into the volume's GPU,
    ``"GPU-<uuid>"`` into that GPU, and ``"auto"`` into GPU memory where the volume is one of GPU
    memory whose GPU this process sees, else into host memory; the result's ``way`` tells.

    With ``exclusive`` an existing path raises :class:`AlreadyExists`. ``attributes`` are names and
    values that readers find in :func:`gpuvol.stat`.
    """
    target = os.fspath(path)
    wishes = {
        "device": device,
        "exclusive": bool(exclusive),
        "attributes": dict(attributes) if attributes else {},
    }
    return PutResult(*_put(target, obj, wishes))


def _put(path: str, obj: Any, wishes: dict[str, Any]) -> tuple[int, int, str]:
    if isinstance(obj, (bytes, bytearray, memoryview)):
        return _put_buffer(path, obj, wishes)
    # A module that nobody has imported has no instances.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.ndarray):
        return _put_array(path, obj, wishes)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(obj, (pandas.DataFrame, pandas.Series)):
        return _put_stream(path, _arrow_of_pandas(obj, pandas), wishes)
    if hasattr(obj, "__arrow_c_stream__"):
        return _put_stream(path, obj, wishes)
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(obj, pyarrow.RecordBatch):
        return _put_stream(path, pyarrow.Table.from_batches([obj]), wishes)
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
    raise TypeError(f"{path}: cannot put a {kind}; put {_ACCEPTED}")


def _put_buffer(
    path: str, obj: bytes | bytearray | memoryview, wishes: dict[str, Any]
) -> tuple[int, int, str]:
    from gpuvol._memory import Exported

    if isinstance(obj, memoryview) and not obj.c_contiguous:
        obj = obj.tobytes()
    with Exported(obj) as (address, size):
        return _native.put_bytes(path, address, size, wishes)


def _put_stream(path: str, obj: Any, wishes: dict[str, Any]) -> tuple[int, int, str]:
    return _native.put_arrow(path, obj.__arrow_c_stream__(), wishes)


def _put_array(
    path: str, array: np.ndarray[Any, Any], wishes: dict[str, Any]
) -> tuple[int, int, str]:
    import numpy as np

    refuse = _refusal(array)
    if refuse is not None:
        raise TypeError(f"{path}: {refuse}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        array = np.ascontiguousarray(array)
    return _native.put_tensor(
        path,
        array.dtype.name,
        array.shape,
        not array.flags.c_contiguous,
        array.ctypes.data,
        wishes,
    )


def _refusal(array: np.ndarray[Any, Any]) -> str | None:
    """Why an array cannot be put, and what to do instead; ``None`` where it can."""
    dtype = array.dtype
    if hasattr(array, "mask"):
        return "cannot put a masked array: its mask would be lost; put array.filled(), or a table"
    if dtype.name in _native.tensor_types():
        return None
    if dtype.fields is not None:
        advice = "put it as a table, pandas.DataFrame.from_records(array)"
    elif dtype.kind == "O":
        advice = "convert it to numbers with array.astype(...), or put it as a table"
    elif dtype.kind in "SUT":
        advice = "put it as a table, pandas.Series(array)"
    elif dtype.kind in "mM":
        advice = "put array.view('int64') and its unit in attributes=, or pandas.Series(array)"
    else:
        advice = "convert it with array.astype(...)"
    return f"cannot put an array of dtype {dtype}; {advice}"


def _in_one_piece(table: Any) -> Any:
    """The table as one record batch, where a column of it is not.

    A frame from ``read_csv`` has its strings in pieces. In several batches no column would lie in
    one piece, and every reader with pandas would have to copy all of them.
    """
    return table.combine_chunks()


def _arrow_of_pandas(obj: Any, pandas: Any) -> Any:
    import pyarrow as pa

    if isinstance(obj, pandas.DataFrame):
        return _in_one_piece(pa.Table.from_pandas(obj))
    table = _in_one_piece(pa.Table.from_pandas(obj.to_frame()))
    named = json.dumps({"named": obj.name is not None}).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), SERIES_KEY: named})
