"""A node of real processes, keeper and store, and volumes published without a plugin."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

# This file is client-lib/python/tests/node.py.
_ROOT = Path(__file__).resolve().parents[3]
DEADLINE = 20.0

# Tags of client-lib/protocol/src/admin.rs.
_CREATE_VOLUME, _DELETE_VOLUME, _PUBLISH, _UNPUBLISH, _FAULT = 10, 11, 16, 17, 2
TIER_HOST, TIER_GPU = 0, 1


def binary(name: str) -> Path:
    """A program of the workspace, in ``$GPUVOL_BIN`` or where cargo puts debug builds."""
    path = Path(os.environ.get("GPUVOL_BIN") or _ROOT / "target" / "debug") / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; cargo build, or set GPUVOL_BIN")
    return path


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(fields: dict[int, int | str | bytes]) -> bytes:
    """One protobuf message: integers as varints, the rest with its length; no defaults."""
    out = bytearray()
    for tag, value in fields.items():
        if isinstance(value, int):
            if value:
                out += _varint(tag << 3) + _varint(value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += _varint(tag << 3 | 2) + _varint(len(raw)) + raw
    return bytes(out)


def _first_tag_with_bytes(reply: bytes) -> int:
    """The tag of an admin reply's answer, which follows the id."""
    at = 0
    while at < len(reply):
        tag, kind = reply[at] >> 3, reply[at] & 7
        if kind == 2:
            return tag
        at += 1
        while reply[at] & 0x80:
            at += 1
        at += 1
    return 0


class Node:
    """Starts keeper and store; ``close`` ends both."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None) -> None:
        # Paths of Unix sockets end at 107 bytes.
        self.state = Path(tempfile.mkdtemp(prefix="gpuvol", dir="/tmp"))
        self.flags = flags
        self.env = {**os.environ, **(env or {})}
        self.keeper = self._start("gpuvol-keeper", self.state / "keeper/keeper.sock")
        self.start_store()

    def start_store(self) -> None:
        self.store = self._start("gpuvol-store", self.state / "store/admin.sock", *self.flags)

    def _start(self, name: str, ready: Path, *flags: str) -> subprocess.Popen[bytes]:
        ready.unlink(missing_ok=True)
        with open(self.state / f"{name}.log", "ab") as log:
            child = subprocess.Popen(
                [binary(name), "--state", self.state, *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=self.env,
            )
        until = time.monotonic() + DEADLINE
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(ready)) == 0:
                    return child
            if child.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not come up:\n{self.logs()}")
            time.sleep(0.005)

    def logs(self) -> str:
        return "".join(path.read_text() for path in sorted(self.state.glob("*.log")))

    def _admin(self, tag: int, operation: bytes, fds: list[int] | None = None) -> None:
        request = _message({1: 1, tag: operation})
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(DEADLINE)
            admin.connect(str(self.state / "store/admin.sock"))
            socket.send_fds(admin, [struct.pack("<I", len(request)) + request], fds or [])
            reply = b""
            while len(reply) < 4 or len(reply) < 4 + struct.unpack("<I", reply[:4])[0]:
                some = admin.recv(65536)
                if not some:
                    raise RuntimeError(f"the store hung up:\n{self.logs()}")
                reply += some
        if _first_tag_with_bytes(reply[4:]) == _FAULT:
            raise RuntimeError(f"the store refused: {reply[4:]!r}")

    def volume(self, name: str, capacity: int = 1 << 30, tier: int = TIER_HOST) -> Path:
        """A new volume, published for reading and writing; the directory it is mounted at."""
        self._admin(_CREATE_VOLUME, _message({1: name, 2: name, 3: capacity, 4: tier}))
        return self.publish(name, "rw")

    def publish(self, volume: str, pod: str, read_only: bool = False) -> Path:
        mount = self.state / f"{volume}-{pod}"
        mount.mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(mount / ".gpuvol.sock"))
            listener.listen(64)
            publish = _message(
                {
                    1: f"{volume}-{pod}",
                    2: volume,
                    3: str(mount),
                    4: int(read_only),
                    5: f"tests/{pod}",
                    6: 1,
                }
            )
            self._admin(_PUBLISH, publish, [listener.fileno()])
        return mount

    def remove(self, volume: str) -> None:
        """Ends a volume's publishes and deletes it with all its content."""
        for mount in self.state.glob(f"{volume}-*"):
            self._admin(_UNPUBLISH, _message({1: mount.name}))
        self._admin(_DELETE_VOLUME, _message({1: volume}))

    def kill_store(self) -> None:
        self.store.send_signal(signal.SIGKILL)
        self.store.wait()

    def close(self) -> None:
        for child in (self.store, self.keeper):
            child.kill()
            child.wait()
        shutil.rmtree(self.state, ignore_errors=True)
