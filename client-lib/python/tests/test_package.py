"""What importing costs, and that stubs, wrapper and native module say the same."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path

import gpuvol
from gpuvol import _native

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_an_import_is_quick_and_imports_no_framework(python: Run) -> None:
    script = """
import sys, time
start = time.perf_counter()
import gpuvol
took = time.perf_counter() - start
heavy = {"numpy", "pandas", "pyarrow", "polars", "torch", "cupy"} & set(sys.modules)
print(took, *heavy)
"""
    runs = [python(script).stdout.split() for _ in range(5)]
    assert all(len(run) == 1 for run in runs), runs
    assert min(float(run[0]) for run in runs) < 0.05


def test_bytes_need_no_framework_at_all(volume: Path, python: Run) -> None:
    script = """
import sys, gpuvol
gpuvol.put(sys.argv[1], bytearray(100_000))
assert len(gpuvol.get(sys.argv[1])) == 100_000
print({"numpy", "pandas", "pyarrow", "polars"} & set(sys.modules))
"""
    assert python(script, volume / "b").stdout.strip() == "set()"


def test_stubs_name_what_the_native_module_has() -> None:
    stub = Path(gpuvol.__file__).with_name("_native.pyi")
    tree = ast.parse(stub.read_text())
    stubbed = {
        node.name if not isinstance(node, ast.AnnAssign) else ast.unparse(node.target)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign)
    } - {"Facts", "Numbers"}
    assert stubbed == {name for name in dir(_native) if not name.startswith("_")}
    methods = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Object")
    assert {n.name for n in methods.body if isinstance(n, ast.FunctionDef)} == {
        name for name in dir(_native.Object) if not name.startswith("_")
    }
    assert stub.with_name("py.typed").exists()


def test_every_native_name_is_used_by_the_package() -> None:
    package = Path(gpuvol.__file__).parent
    text = "".join(path.read_text() for path in package.glob("*.py"))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    for name in dir(_native):
        if not name.startswith("_"):
            assert f"_native.{name}" in text + tests or f"import {name}" in text, name


def test_everything_public_is_documented() -> None:
    assert sorted(gpuvol.__all__) == gpuvol.__all__
    for name in gpuvol.__all__:
        if not name.startswith("_"):
            assert getattr(gpuvol, name).__doc__, name
