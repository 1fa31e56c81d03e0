"""Waiting, threads, forks, Ctrl-C, the end of an interpreter, and a store that is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpuvol
import numpy as np
import pyarrow as pa
import pytest
from node import Node

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_wait_ends_when_the_path_is_there(place: Path) -> None:
    def later() -> None:
        time.sleep(0.5)
        gpuvol.put(place / "t", pa.table({"a": [1]}))

    thread = threading.Thread(target=later)
    start = time.perf_counter()
    thread.start()
    # Other threads run while one waits.
    assert gpuvol.get(place / "t", wait=20).num_rows == 1
    assert 0.4 < time.perf_counter() - start < 2
    thread.join()


def test_a_wait_in_vain_says_how_long(place: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(gpuvol.DeadlineExceeded, match=r"not sealed within 0\.5 s") as raised:
        gpuvol.get(place / "t", wait=0.5)
    assert 0.5 <= time.perf_counter() - start < 1.5
    assert isinstance(raised.value, TimeoutError)
    for wait in (-1, float("nan")):
        with pytest.raises(ValueError, match="wait="):
            gpuvol.get(place / "t", wait=wait)


@pytest.mark.parametrize("wait", ["60", "float('inf')"])
def test_ctrl_c_ends_a_wait(place: Path, wait: str) -> None:
    script = f"import sys, gpuvol; print(flush=True); gpuvol.get(sys.argv[1], wait={wait})"
    command = [sys.executable, "-c", script, str(place / "never")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        time.sleep(0.5)
        start = time.perf_counter()
        child.send_signal(signal.SIGINT)
        child.wait(timeout=10)
        assert time.perf_counter() - start < 1
        assert b"KeyboardInterrupt" in child.stderr.read()


def test_threads_put_and_get(volume: Path) -> None:
    def work(number: int) -> None:
        for round_ in range(20):
            value = np.full(20_000 + 1000 * number, number * 100 + round_)
            gpuvol.put(volume / f"own/{number}", value)
            gpuvol.put(volume / "shared", value)
            np.testing.assert_array_equal(gpuvol.get(volume / f"own/{number}"), value)
            shared = gpuvol.get(volume / "shared")
            assert shared.size == 20_000 + 1000 * (shared[0] // 100)
            assert (shared == shared[0]).all()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert gpuvol.df(volume).leases == 1


def test_a_forked_child_puts_and_gets(volume: Path) -> None:
    gpuvol.put(volume / "before", np.arange(100_000))
    before = gpuvol.get(volume / "before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert before.sum() == 4_999_950_000
            gpuvol.put(volume / "child", np.arange(50_000))
            assert gpuvol.get(volume / "before").sum() == 4_999_950_000
            assert gpuvol.get(volume / "child").size == 50_000
            del before
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # The child's end took nothing from its parent.
    gpuvol.unlink(volume / "before")
    assert gpuvol.df(volume).pinned > 0
    assert before[-1] == 99_999
    assert gpuvol.get(volume / "child").size == 50_000
    del before
    assert gpuvol.df(volume).pinned == 0


def test_worker_processes(volume: Path, python: Run) -> None:
    script = """
import multiprocessing as mp, sys, gpuvol, numpy as np
def work(n):
    gpuvol.put(f"{sys.argv[1]}/{n}", np.full(30_000, n))
    return int(gpuvol.get(f"{sys.argv[1]}/{n}").sum())
if __name__ == "__main__":
    gpuvol.put(sys.argv[1] + "/parent", np.zeros(30_000))
    with mp.get_context("fork").Pool(4) as pool:
        assert pool.map(work, range(16)) == [30_000 * n for n in range(16)]
"""
    done = python(script, volume)
    assert done.returncode == 0, done.stderr
    assert len(gpuvol.ls(volume)) == 17


def test_errors_travel_between_processes(volume: Path) -> None:
    import pickle

    with pytest.raises(gpuvol.NotFound) as raised:
        gpuvol.get(volume / "nothing")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is gpuvol.NotFound
    assert (again.errno, str(again)) == (raised.value.errno, str(raised.value))
    assert again.filename == str(volume / "nothing")


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "import threading; threading.Thread(target=lambda: gpuvol.get(sys.argv[1] + 'x', wait=60),"
        " daemon=True).start(); import time; time.sleep(0.3)",
        "sys.modules['kept'] = (view, table, array)",
        "import atexit; atexit.register(lambda: print(len(gpuvol.get(sys.argv[1] + '/b'))))",
    ],
)
def test_an_interpreter_ends_quietly(volume: Path, python: Run, ending: str) -> None:
    script = f"""
import sys, gpuvol, numpy as np, pyarrow as pa
gpuvol.put(sys.argv[1] + "/b", bytes(100_000))
gpuvol.put(sys.argv[1] + "/t", pa.table({{"a": np.zeros(100_000)}}))
gpuvol.put(sys.argv[1] + "/a", np.zeros(100_000))
view, table, array = (gpuvol.get(sys.argv[1] + name) for name in ("/b", "/t", "/a"))
{ending}
"""
    start = time.perf_counter()
    done = python(script, volume)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.perf_counter() - start < 20


def test_a_replaced_store_is_waited_for() -> None:
    node = Node()
    try:
        volume = node.volume("replaced")
        gpuvol.put(volume / "a", np.arange(100_000))
        view = gpuvol.get(volume / "a")
        node.kill_store()
        replacement = threading.Timer(1, node.start_store)
        replacement.start()
        assert gpuvol.get(volume / "a").sum() == view.sum()
        replacement.join()
        gpuvol.put(volume / "b", view)
        assert gpuvol.get(volume / "b")[-1] == 99_999
    finally:
        node.close()
