"""Names and numbers: what is at a path, in a directory, on a volume."""

from __future__ import annotations

import os
import stat as _stat
from typing import TYPE_CHECKING, NamedTuple

from gpuvol import _native

if TYPE_CHECKING:
    from collections.abc import Mapping


class Entry(NamedTuple):
    """What is at a path."""

    path: str
    kind: str
    """``arrow``, ``tensor``, ``bytes`` or ``directory``; for an ordinary file always ``bytes``."""
    size: int
    """Bytes of content."""
    version: int
    """Grows with each put; 0 for an ordinary file."""
    tier: str
    """``host`` or ``gpu``: whose memory; ``file`` for an ordinary file."""
    device: str | None
    """The GPU that it is on."""
    modified: float
    """Seconds since the epoch."""
    producer: str
    """Who put it."""
    attributes: Mapping[str, str]


class Usage(NamedTuple):
    """A volume's room, in bytes."""

    volume: str
    """The volume's id; empty for an ordinary file system."""
    capacity: int
    used: int
    """Taken by objects, puts under way, and replaced versions that somebody has open."""
    gpu: int
    """The part of ``used`` in GPU memory."""
    pinned: int
    """The part of ``used`` that only open objects keep."""
    reserved: int
    """The part of ``used`` that puts under way take."""
    entries: int
    """Objects and directories."""
    max_entries: int
    leases: int
    """Processes that use the volume."""
    tier: str
    device: str | None
    read_only: bool

    @property
    def free(self) -> int:
        """What a put may take now."""
        return max(self.capacity - self.used, 0)


def stat(path: str | os.PathLike[str]) -> Entry:
    """What is at a path."""
    text = os.fspath(path)
    facts = _native.stat(text)
    return _of_file(text) if facts is None else entry(text, facts)


def ls(path: str | os.PathLike[str]) -> list[Entry]:
    """What is in a directory, by name."""
    text = os.fspath(path)
    found = _native.entries(text)
    if found is None:
        return [_of_file(os.path.join(text, name)) for name in sorted(os.listdir(text))]
    return [entry(os.path.join(text, facts["name"]), facts) for facts in found]


def exists(path: str | os.PathLike[str]) -> bool:
    """True where something is at the path."""
    try:
        stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def unlink(path: str | os.PathLike[str]) -> None:
    """Remove a path. Who has the object open keeps it."""
    text = os.fspath(path)
    if not _native.unlink(text):
        os.unlink(text)


def df(path: str | os.PathLike[str]) -> Usage:
    """The room on the volume that a path is on."""
    text = os.fspath(path)
    numbers = _native.usage(text)
    if numbers is not None:
        return Usage(**numbers)
    at = os.statvfs(text)
    size = at.f_frsize
    return Usage(
        volume="",
        capacity=at.f_blocks * size,
        used=(at.f_blocks - at.f_bavail) * size,
        gpu=0,
        pinned=0,
        reserved=0,
        entries=at.f_files - at.f_ffree,
        max_entries=at.f_files,
        leases=0,
        tier="file",
        device=None,
        read_only=bool(at.f_flag & os.ST_RDONLY),
    )


def entry(path: str, facts: _native.Facts) -> Entry:
    """The entry at a path from what the store said of it."""
    return Entry(
        path,
        facts["kind"],
        facts["size"],
        facts["version"],
        facts["tier"],
        facts["device"],
        facts["modified"],
        facts["producer"],
        facts["attributes"],
    )


def _of_file(path: str) -> Entry:
    at = os.stat(path)
    kind = "directory" if _stat.S_ISDIR(at.st_mode) else "bytes"
    return Entry(path, kind, at.st_size, 0, "file", None, at.st_mtime, "", {})
