"""A stage's input and output, timed: prints one line of JSON for each hand-over.

Only the hand-over is timed; imports are done and the garbage collector is frozen by then.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from ways import WAYS


class Handover:
    def __init__(self, stage: str, description: str | None) -> None:
        parser = argparse.ArgumentParser(prog=stage, description=description)
        parser.add_argument("--input", default=os.environ.get("GPUVOL_DEMO_IN"))
        parser.add_argument("--output", default=os.environ.get("GPUVOL_DEMO_OUT"))
        parser.add_argument("--via", choices=list(WAYS), default="gpuvol")
        parser.add_argument("--device", help="gpuvol: auto, gpu or GPU-<uuid>; else host memory")
        parser.add_argument("--rows", type=int, help="hand over this many rows at most")
        parser.add_argument("--wait", type=float, default=60, help="gpuvol: seconds for the input")
        self.stage = stage
        self.args = parser.parse_args()
        self.way = WAYS[self.args.via]
        # The first call of its kind imports more modules, and on a GPU makes the process's CUDA context.
        beside = os.path.dirname(self.args.output or self.args.input or "")
        tiny = os.path.join(beside, f".{stage}-{os.getpid()}")
        table = pd.DataFrame({"number": [1.5, None], "word": ["a", None]})
        self.way.write(table, tiny, self.args.device)
        self.way.read(tiny, 0)
        self.way.remove(tiny)

    def read(self) -> pd.DataFrame:
        """The table that the stage before this one wrote."""
        if not self.args.input:
            raise SystemExit(f"{self.stage}: give --input, or set GPUVOL_DEMO_IN")
        seconds, (table, size, how) = timed(self.way.read, self.args.input, self.args.wait)
        self._report("read", len(table), size, seconds, how)
        return table

    def write(self, table: pd.DataFrame) -> None:
        """Hands a table to the next stage."""
        if not self.args.output:
            raise SystemExit(f"{self.stage}: give --output, or set GPUVOL_DEMO_OUT")
        if self.args.rows is not None:
            table = table.head(self.args.rows)
        seconds, (size, how) = timed(self.way.write, table, self.args.output, self.args.device)
        self._report("write", len(table), size, seconds, how)

    def _report(self, op: str, rows: int, size: int, seconds: float, how: str) -> None:
        line = {"stage": self.stage, "op": op, "via": self.args.via, "bytes": size, "rows": rows}
        print(json.dumps({**line, "seconds": seconds, "way": how}), flush=True)


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        start = time.perf_counter()
        result = work(*arguments)
        return time.perf_counter() - start, result
    finally:
        gc.enable()
        gc.unfreeze()
