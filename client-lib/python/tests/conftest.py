"""One node for all tests, and a volume of its own for each."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hypothesis import settings
from node import Node

settings.register_profile("here", database=None)
settings.load_profile("here")

_numbers = itertools.count()


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    node = Node()
    yield node
    node.close()


@pytest.fixture
def volume(node: Node) -> Iterator[Path]:
    """The directory that a fresh volume of 1 GiB is mounted at."""
    name = f"v{next(_numbers)}"
    yield node.volume(name)
    node.remove(name)


@pytest.fixture
def small_volume(node: Node) -> Iterator[Path]:
    """One of 4 MiB."""
    name = f"v{next(_numbers)}"
    yield node.volume(name, capacity=4 << 20)
    node.remove(name)


@pytest.fixture(params=["volume", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A directory on a volume, then one on none: the same calls work on both."""
    if request.param == "file":
        return tmp_path
    found: Path = request.getfixturevalue("volume")
    return found


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script in an interpreter of its own."""

    def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run
