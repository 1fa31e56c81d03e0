"""Each error is the builtin that says the same; names, numbers and paths."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import gpuvol
import pyarrow as pa
import pytest
from gpuvol import _errors, _native
from node import Node


def test_every_code_has_a_class_and_an_errno() -> None:
    codes = _native.error_codes()
    assert len(codes) == 24
    assert len({name for name, _ in codes}) == len(codes)
    for name, number in codes:
        class_ = getattr(_errors, name)
        assert issubclass(class_, gpuvol.GpuvolError)
        assert getattr(gpuvol, name) is class_
        assert number in errno.errorcode
        # Where errno has a builtin of its own, the class is one of that too.
        natural = type(OSError(number, ""))
        if natural is not OSError:
            assert issubclass(class_, natural), name
        error = class_(number, "what happened", "/data/x")
        assert (error.errno, error.filename, str(error)) == (number, "/data/x", "what happened")
        assert (error.need, error.free, error.limit) == (0, 0, 0)


def test_not_found(place: Path) -> None:
    for call in (gpuvol.get, gpuvol.stat, gpuvol.unlink):
        with pytest.raises(FileNotFoundError) as raised:
            call(place / "nothing")
        assert raised.value.errno == errno.ENOENT
        assert "nothing" in str(raised.value)
    assert not gpuvol.exists(place / "nothing")


def test_exclusive(place: Path) -> None:
    gpuvol.put(place / "b", b"1", exclusive=True)
    with pytest.raises(FileExistsError) as raised:
        gpuvol.put(place / "b", b"2", exclusive=True)
    assert raised.value.errno == errno.EEXIST
    assert bytes(gpuvol.get(place / "b")) == b"1"


def test_quota(small_volume: Path) -> None:
    with pytest.raises(gpuvol.QuotaExceeded) as raised:
        gpuvol.put(small_volume / "b", bytes(5 << 20))
    assert raised.value.errno == errno.ENOSPC
    assert raised.value.need >= 5 << 20
    assert raised.value.limit == 4 << 20
    assert raised.value.free <= 4 << 20
    # What was refused takes nothing.
    gpuvol.put(small_volume / "b", bytes(3 << 20))
    assert gpuvol.df(small_volume).free == 1 << 20


def test_read_only(node: Node, volume: Path) -> None:
    gpuvol.put(volume / "b", b"1")
    mount = node.publish(volume.name.removesuffix("-rw"), "ro", read_only=True)
    assert bytes(gpuvol.get(mount / "b")) == b"1"
    assert gpuvol.df(mount).read_only
    for call in (lambda: gpuvol.put(mount / "b", b"2"), lambda: gpuvol.unlink(mount / "b")):
        with pytest.raises(PermissionError) as raised:
            call()
        assert raised.value.errno == errno.EROFS


def test_directories(volume: Path) -> None:
    gpuvol.put(volume / "d/e/x", b"1")
    assert [entry.kind for entry in gpuvol.ls(volume)] == ["directory"]
    assert gpuvol.stat(volume / "d").kind == "directory"
    with pytest.raises(IsADirectoryError):
        gpuvol.get(volume / "d")
    with pytest.raises(NotADirectoryError):
        gpuvol.put(volume / "d/e/x/y", b"1")
    with pytest.raises(NotADirectoryError):
        gpuvol.ls(volume / "d/e/x")
    assert not gpuvol.exists(volume / "d/e/x/y")


def test_entries(place: Path) -> None:
    result = gpuvol.put(place / "t.arrow", pa.table({"a": [1, 2]}))
    gpuvol.put(place / "b", b"12345")
    names = {os.path.basename(entry.path): entry for entry in gpuvol.ls(place)}
    assert list(names) == ["b", "t.arrow"]
    assert names["b"].size == 5
    entry = gpuvol.stat(str(place / "t.arrow"))
    assert (entry.size, entry.version) == (result.size, result.version)
    assert entry == names["t.arrow"]
    gpuvol.unlink(place / "b")
    assert not gpuvol.exists(place / "b")
    assert gpuvol.df(place).capacity > 0


def test_attributes_and_producer(volume: Path) -> None:
    gpuvol.put(volume / "b", b"1", attributes={"run": "42", "näme": "wért"})
    entry = gpuvol.stat(volume / "b")
    assert entry.attributes == {"run": "42", "näme": "wért"}
    assert entry.producer.startswith("tests/rw")
    assert entry.kind == "bytes"
    assert gpuvol.open(volume / "b").stat().attributes["run"] == "42"


def test_odd_names(volume: Path) -> None:
    for name in ("with space", "ünï", os.fsdecode(b"not-utf8-\xff"), "a" * 200):
        gpuvol.put(volume / name, name.encode(errors="surrogateescape"))
        assert os.fsencode(name) == bytes(gpuvol.get(volume / name))
    assert len(gpuvol.ls(volume)) == 4
    with pytest.raises(gpuvol.InvalidArgument):
        gpuvol.put(volume / ("a" * 300), b"")


def test_permissions_of_ordinary_files(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may do anything")
    tmp_path.chmod(0o500)
    with pytest.raises(gpuvol.PermissionDenied) as raised:
        gpuvol.put(tmp_path / "x", b"")
    assert raised.value.errno == errno.EACCES


@pytest.mark.parametrize("device", ["gpu", "GPU-00000000-0000-0000-0000-000000000001"])
def test_ordinary_files_and_missing_gpus_are_named(
    tmp_path: Path, volume: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(gpuvol.Unsupported, match="no gpu-volume"):
        gpuvol.put(tmp_path / "x", b"1", device=device)
    with pytest.raises(gpuvol.GpuvolError, match="GPU"):
        gpuvol.put(volume / "x", b"1", device=device)
    with pytest.raises(gpuvol.InvalidArgument):
        gpuvol.put(volume / "x", b"1", device="cuda:0")
    assert gpuvol.put(volume / "x", b"1", device="auto").way == "inline"
