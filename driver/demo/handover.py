"""How a stage of the demo hands its table to the next one: by gpu-volume, or by a file as ever.

Prints one line of JSON for each hand-over. Only the hand-over is timed: imports are done and the
garbage collector is frozen by then.
"""

import argparse
import gc
import json
import os
import pickle
import tempfile
import time

import gpuvol
import pandas as pd


class Handover:
    def __init__(self, stage: str, description: str) -> None:
        parser = argparse.ArgumentParser(prog=stage, description=description)
        parser.add_argument("--input", default=os.environ.get("GPUVOL_DEMO_IN"))
        parser.add_argument("--output", default=os.environ.get("GPUVOL_DEMO_OUT"))
        parser.add_argument("--via", choices=list(WAYS), default="gpuvol")
        parser.add_argument("--device", help="gpuvol: auto, gpu or GPU-<uuid>; default host memory")
        parser.add_argument("--wait", type=float, default=60, help="gpuvol: seconds for the input")
        self.stage, self.args = stage, parser.parse_args()
        self._write, self._read = WAYS[self.args.via]
        with tempfile.TemporaryDirectory() as scratch:  # what a first call imports
            tiny = os.path.join(scratch, "tiny")
            self._write(pd.DataFrame({"a": [1], "b": ["x"]}), tiny, None)
            self._read(tiny, 0)

    def read(self) -> pd.DataFrame:
        if not self.args.input:
            raise SystemExit(f"{self.stage}: --input or GPUVOL_DEMO_IN is needed")
        (frame, size, way), seconds = timed(self._read, self.args.input, self.args.wait)
        self._report("read", len(frame), size, way, seconds)
        return frame

    def write(self, frame: pd.DataFrame) -> None:
        if not self.args.output:
            raise SystemExit(f"{self.stage}: --output or GPUVOL_DEMO_OUT is needed")
        (size, way), seconds = timed(self._write, frame, self.args.output, self.args.device)
        self._report("write", len(frame), size, way, seconds)

    def _report(self, op: str, rows: int, size: int, way: str, seconds: float) -> None:
        line = {"stage": self.stage, "op": op, "via": self.args.via, "bytes": size, "rows": rows}
        print(json.dumps({**line, "seconds": seconds, "way": way}), flush=True)


def timed(work, *arguments):
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        start = time.perf_counter()
        result = work(*arguments)
        return result, time.perf_counter() - start
    finally:
        gc.enable()
        gc.unfreeze()


def gpuvol_write(frame, path, device):
    done = gpuvol.put(path, frame, device=device)
    return done.size, done.way


def gpuvol_read(path, wait):
    found = gpuvol.open(path, wait=wait)
    return found.pandas(), found.size, found.way


def pickle_write(frame, path):
    with open(path, "wb") as file:
        pickle.dump(frame, file, protocol=5)


def by_file(write, read):
    """A way through an ordinary file, which has to be there before the reader starts."""

    def write_file(frame, path, device):
        write(frame, path)
        return os.path.getsize(path), "file"

    def read_file(path, wait):
        return read(path), os.path.getsize(path), "file"

    return write_file, read_file


WAYS = {
    "gpuvol": (gpuvol_write, gpuvol_read),
    "parquet": by_file(pd.DataFrame.to_parquet, pd.read_parquet),
    "feather": by_file(pd.DataFrame.to_feather, pd.read_feather),
    "pickle": by_file(pickle_write, pd.read_pickle),
}
