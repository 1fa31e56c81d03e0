"""Getting: views of an object's memory as the types that people work with."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from gpuvol import _native
from gpuvol._errors import InvalidArgument
from gpuvol._paths import Entry, entry
from gpuvol._put import SERIES_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np


def open(path: str | os.PathLike[str], *, wait: float = 0.0) -> Object:
    """Open what is at a path, waiting up to ``wait`` seconds for somebody to put it there."""
    return Object(_native.open(os.fspath(path), float(wait)))


def get(
    path: str | os.PathLike[str],
    as_: str | None = None,
    *,
    wait: float = 0.0,
    columns: Sequence[str] | None = None,
    copy: bool = False,
) -> Any:
    """Get what is at a path: a ``pyarrow.Table``, a numpy array or a memoryview, by its kind.

    In host memory nothing is copied, whatever its size: the result is a read-only view of the
    memory that the producer filled. It stays valid when the path is replaced or unlinked, and
    until the last reference to it is gone. An object in GPU memory is downloaded to the host;
    :attr:`Object.way` of :func:`gpuvol.open` tells.

    ``as_``: ``"arrow"``, ``"pandas"``, ``"polars"``, ``"numpy"`` or ``"bytes"`` (those of any
    kind of object, as a file would have them). For pandas, columns of numbers without nulls stay
    views, and so do strings from pandas 3 on; numbers with nulls, booleans and categories are
    copied, because pandas stores them otherwise. pandas refuses to write into a view
    ("assignment destination is read-only"): assign whole columns, or get a ``copy``.

    ``wait``: seconds to wait for the path. ``columns``: only these columns of a table. ``copy``:
    memory of your own that you can write to (``bytes`` for bytes).
    """
    return open(path, wait=wait).to(as_, columns=columns, copy=copy)


class Object:
    """An open object. Its memory stays while this, or anything that came from it, lives."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Object) -> None:
        self._native = native

    def __repr__(self) -> str:
        return f"<gpuvol.Object {str(self.path)!r}: {self.kind}, {self.size} bytes, {self.way}>"

    @property
    def path(self) -> str:
        return os.fspath(self._native.path)

    @property
    def kind(self) -> str:
        """``arrow``, ``tensor`` or ``bytes``."""
        return self._native.kind

    @property
    def size(self) -> int:
        """Bytes of content."""
        return self._native.size

    @property
    def way(self) -> str:
        """How the bytes come here: ``mapped`` (no copy), ``inline`` (small), ``download`` from a
        GPU, or ``file`` where the path is on no volume."""
        return self._native.way

    def stat(self) -> Entry:
        """What was at the path when it was opened."""
        return entry(self.path, self._native.facts())

    def to(
        self,
        as_: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        copy: bool = False,
    ) -> Any:
        """The object as :func:`gpuvol.get` gives it."""
        wanted = as_ or {"arrow": "arrow", "tensor": "numpy"}.get(self.kind, "bytes")
        forms: dict[str, Callable[[], Any]] = {
            "arrow": lambda: self.arrow(columns=columns, copy=copy),
            "pandas": lambda: self.pandas(columns=columns, copy=copy),
            "polars": lambda: self.polars(columns=columns, copy=copy),
            "numpy": lambda: self.numpy(copy=copy),
            "bytes": lambda: bytes(self.bytes()) if copy else self.bytes(),
        }
        if wanted not in forms:
            raise ValueError(f"as_={as_!r} is none of {', '.join(map(repr, forms))}")
        if columns is not None and wanted in ("numpy", "bytes"):
            raise InvalidArgument(_EINVAL, f"{self.path} as {wanted} has no columns", self.path)
        return forms[wanted]()

    def bytes(self) -> memoryview:
        """All bytes, as a file at the path would have them."""
        from gpuvol._memory import view

        return view(self._native.address(), self.size, self._native)

    def arrow(self, *, columns: Sequence[str] | None = None, copy: bool = False) -> Any:
        """The table as a ``pyarrow.Table``."""
        self._expect("arrow", "a table")
        import pyarrow as pa

        if copy:
            buffer = pa.allocate_buffer(self.size)
            memoryview(buffer).cast("B")[:] = self.bytes()
        else:
            buffer = pa.foreign_buffer(self._native.address(), self.size, base=self._native)
        reader = pa.ipc.open_file(buffer)
        if columns is not None:
            fields = [self._field(reader.schema, name) for name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=fields)
            return pa.ipc.open_file(buffer, options=options).read_all().select(list(columns))
        return reader.read_all()

    def pandas(self, *, columns: Sequence[str] | None = None, copy: bool = False) -> Any:
        """The table as a ``pandas.DataFrame``, or the ``pandas.Series`` that was put."""
        # With a chosen index, pyarrow would make columns of what is left of it.
        table = self.arrow(columns=columns)
        series = (table.schema.metadata or {}).get(SERIES_KEY)
        frame = table.to_pandas(split_blocks=True)
        if copy:
            frame = frame.copy()
        if series is None or columns is not None:
            return frame
        column = frame.iloc[:, 0]
        if not json.loads(series)["named"]:
            column.name = None
        return column

    def polars(self, *, columns: Sequence[str] | None = None, copy: bool = False) -> Any:
        """The table as a ``polars.DataFrame``."""
        import polars as pl

        return pl.from_arrow(self.arrow(columns=columns, copy=copy))

    def numpy(self, *, copy: bool = False) -> np.ndarray[Any, Any]:
        """The array, in the order in which it was put."""
        self._expect("tensor", "an array")
        import numpy as np

        name, typestr, shape, strides, offset = self._native.tensor()
        array = np.asarray(_View(self._native, typestr, tuple(shape), tuple(strides), offset))
        if typestr.startswith("|V"):
            array = array.view(_extended_dtype(name, self.path))
        return array.copy(order="K") if copy else array

    def _expect(self, kind: str, wanted: str) -> None:
        if self.kind != kind:
            what = {"arrow": "a table", "tensor": "an array"}.get(self.kind, "plain bytes")
            message = f"{self.path} is {what}, not {wanted}; get it without as_, or as 'bytes'"
            raise InvalidArgument(_EINVAL, message, self.path)

    def _field(self, schema: Any, name: str) -> int:
        indices: list[int] = schema.get_all_field_indices(name)
        if len(indices) != 1:
            names = ", ".join(schema.names)
            message = f"{self.path} has no single column {name!r}; its columns are {names}"
            raise InvalidArgument(_EINVAL, message, self.path)
        return indices[0]


_EINVAL = 22


class _View:
    """What numpy asks for an array's memory; the array keeps this, and this keeps the object."""

    def __init__(
        self,
        owner: _native.Object,
        typestr: str,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
    ) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (owner.address() + offset, True),
            "typestr": typestr,
            "shape": shape,
            "strides": strides,
        }


def _extended_dtype(name: str, path: str) -> Any:
    """A type that numpy has only with the package ml_dtypes."""
    try:
        import ml_dtypes
    except ImportError:
        message = f"{path} is an array of {name}, which numpy has only with the package ml_dtypes"
        raise ImportError(message, name="ml_dtypes") from None
    return getattr(ml_dtypes, name)
