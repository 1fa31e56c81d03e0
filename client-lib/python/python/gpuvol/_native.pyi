import os
from collections.abc import Sequence
from typing import Any, TypedDict

VERSION: str

class Facts(TypedDict):
    name: str
    kind: str
    size: int
    version: int
    tier: str
    device: str | None
    modified: float
    producer: str
    attributes: dict[str, str]

class Numbers(TypedDict):
    volume: str
    capacity: int
    used: int
    gpu: int
    pinned: int
    reserved: int
    entries: int
    max_entries: int
    leases: int
    tier: str
    device: str | None
    read_only: bool

class Object:
    @property
    def path(self) -> os.PathLike[str]: ...
    @property
    def kind(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def way(self) -> str: ...
    def address(self) -> int: ...
    def tensor(self) -> tuple[str, str, list[int], list[int], int]: ...
    def facts(self) -> Facts: ...

def open(path: str, wait: float) -> Object: ...
def put_bytes(
    path: str, address: int, size: int, wishes: dict[str, Any]
) -> tuple[int, int, str]: ...
def put_tensor(
    path: str,
    dtype: str,
    shape: Sequence[int],
    fortran_order: bool,
    address: int,
    wishes: dict[str, Any],
) -> tuple[int, int, str]: ...
def put_arrow(path: str, stream: Any, wishes: dict[str, Any]) -> tuple[int, int, str]: ...
def tensor_types() -> list[str]: ...
def stat(path: str) -> Facts | None: ...
def entries(path: str) -> list[Facts] | None: ...
def unlink(path: str) -> bool: ...
def usage(path: str) -> Numbers | None: ...
def error_codes() -> list[tuple[str, int]]: ...
