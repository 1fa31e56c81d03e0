"""Memory by address, both ways: the stable ABI of Python 3.10 has no buffer protocol of its own."""

from __future__ import annotations

import ctypes
from typing import Any


class _PyBuffer(ctypes.Structure):
    """``Py_buffer``, the same in every CPython 3."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None

_PYBUF_SIMPLE = 0


class Exported:
    """The bytes of ``owner`` while the ``with`` block runs: they neither move nor change size."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._buffer = _PyBuffer()

    def __enter__(self) -> tuple[int, int]:
        # Raises BufferError where the bytes do not lie in one piece.
        _get_buffer(self._owner, ctypes.byref(self._buffer), _PYBUF_SIMPLE)
        return self._buffer.buf or 0, self._buffer.len

    def __exit__(self, *_: object) -> None:
        _release_buffer(ctypes.byref(self._buffer))


def view(address: int, size: int, owner: Any) -> memoryview:
    """``size`` bytes at ``address``, read-only; ``owner`` lives while a slice of the view does."""
    array = (ctypes.c_ubyte * size).from_address(address)
    array._owner = owner  # type: ignore[attr-defined]
    return memoryview(array).toreadonly().cast("B")
