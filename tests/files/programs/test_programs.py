"""Runs every program of this directory in a directory of its own below $GPUVOL_TEST_DIR.

A program is a .sh or .py file; $HERE is its directory, which it goes to by itself; it ends with 0 where everything was right, with
77 where something that it needs is missing (its last line says what). `# deadline: N` in its head gives it N seconds
instead of 60. `# long` marks those that are run only with FILES_LONG=1.

The driver itself never touches the directory under test: a process that waits for a dead mount cannot be killed, and
then the test must fail instead of waiting too.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
PROGRAMS = sorted(path for path in HERE.iterdir() if path.suffix in {".sh", ".py"} and path != pathlib.Path(__file__))
PROGRAMS = [path for path in PROGRAMS if path.name not in {"mounted.py", "conftest.py"}]
SKIPPED = 77
MOST_OUTPUT = 6000


def in_kernel(pid):
    """Where each process of the group waits, for the message about one that cannot be killed."""
    lines = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == pid:
                # Not its command line: that waits for a process that is stuck in a page fault.
                command = (entry / "comm").read_text().strip()
                lines.append(f"{entry.name} state {fields[0]} wchan {(entry / 'wchan').read_text()}: {command}")
        except (OSError, IndexError):
            continue
    return "; ".join(lines)


def run(command, deadline, **options):
    """The exit status and the output of a command; fails where it does not end in time."""
    with open("/tmp/gpuvol-tests-output-%d" % os.getpid(), "w+b") as output:
        os.unlink(output.name)
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, **options
        )
        end = time.monotonic() + deadline
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        late = child.poll() is None
        where = in_kernel(child.pid) if late else ""
        # Nothing of its session stays behind.
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        end = time.monotonic() + 5
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        output.seek(0)
        text = output.read().decode(errors="replace")[-MOST_OUTPUT:]
        if late:
            killed = "killed" if child.poll() is not None else "CANNOT BE KILLED"
            pytest.fail(f"{command}: not ready after {deadline} s, {killed}; {where}\n{text}", pytrace=False)
        return child.returncode, text


def head(path):
    return path.read_text()[:1000]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program(program):
    under = os.environ.get("GPUVOL_TEST_DIR")
    if not under:
        pytest.fail("GPUVOL_TEST_DIR is the directory to test in")
    if re.search(r"^# long$", head(program), re.M) and not os.environ.get("FILES_LONG"):
        pytest.skip("only with FILES_LONG=1")
    given = re.search(r"^# deadline: (\d+)$", head(program), re.M)
    deadline = int(given[1]) if given else 60
    directory = f"{under}/{program.stem}-{os.getpid()}"
    assert run(["mkdir", directory], 30) == (0, "")
    interpreter = ["bash", "-euo", "pipefail"] if program.suffix == ".sh" else [sys.executable]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "GPUVOL_TEST_PYTHON": sys.executable, "LC_ALL": "C.UTF-8"}
    try:
        status, text = run([*interpreter, str(program)], deadline, env={**environment, "HERE": directory})
    finally:
        removed = run(["rm", "-rf", "--", directory], 60)
    if status == SKIPPED:
        pytest.skip(text.strip().splitlines()[-1] if text.strip() else "no reason given")
    assert status == 0, f"{program.name} ended with {status}:\n{text}"
    assert removed == (0, ""), f"rm -rf of its directory: {removed}"
