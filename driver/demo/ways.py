"""The ways by which a stage can hand its table over: by gpu-volume, or by a file as ever."""

import os
import pickle
from collections.abc import Callable
from typing import NamedTuple

import gpuvol
import pandas as pd


class Way(NamedTuple):
    write: Callable[[pd.DataFrame, str, str | None], tuple[int, str]]
    """Table, path and device; answers the bytes and how they were written."""
    read: Callable[[str, float], tuple[pd.DataFrame, int, str]]
    """Path and seconds to wait; answers the table, its bytes and how they were read."""
    remove: Callable[[str], None]


def put(table: pd.DataFrame, path: str, device: str | None) -> tuple[int, str]:
    done = gpuvol.put(path, table, device=device)
    return done.size, done.way


def get(path: str, wait: float) -> tuple[pd.DataFrame, int, str]:
    found = gpuvol.open(path, wait=wait)
    return found.pandas(), found.size, found.way


def by_file(write: Callable[[pd.DataFrame, str], None], read: Callable[[str], pd.DataFrame]) -> Way:
    """An ordinary file, which has to be complete before its reader starts."""

    def write_file(table: pd.DataFrame, path: str, device: str | None) -> tuple[int, str]:
        write(table, path)
        return os.path.getsize(path), "file"

    def read_file(path: str, wait: float) -> tuple[pd.DataFrame, int, str]:
        return read(path), os.path.getsize(path), "file"

    return Way(write_file, read_file, os.remove)


def pickled(table: pd.DataFrame, path: str) -> None:
    with open(path, "wb") as file:
        pickle.dump(table, file, protocol=5)


WAYS = {
    "gpuvol": Way(put, get, gpuvol.unlink),
    "parquet": by_file(pd.DataFrame.to_parquet, pd.read_parquet),
    "feather": by_file(pd.DataFrame.to_feather, pd.read_feather),
    "pickle": by_file(pickled, pd.read_pickle),
}
