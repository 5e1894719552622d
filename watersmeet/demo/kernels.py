"""Compile the kernels of the demo's join while Spark starts, in a process of its own.

Numba compiles what is called first, once on a machine (half a minute); the Python workers of Spark then only load it.
Without this the first micro-batch would wait for it, and look as if joins were slow.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.demo.ships import generate
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.query.windows import Window
from watersmeet.routing.choose import choose_route
from watersmeet.spark.canonical import row_hashes
from watersmeet.warm import Kernels, kernels

#: More than small batches have, which are spared kernels (index/sorted/merging.py, index/sorting.py).
ROWS, PUSHES = 10_000, 4


class Beside:
    """Compiling, beside whatever this process does meanwhile."""

    def __init__(self, on: str, window: tuple[str, str]) -> None:
        self._started = perf_counter()
        command = [sys.executable, "-m", "watersmeet.demo.kernels", on, *window]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def wait(self) -> str:
        """What came of it, in words. If nothing did, the first micro-batch compiles what it needs itself."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            return "Kernels are compiled in the first micro-batch."
        compiled, loaded, seconds = json.loads(out)
        if compiled:
            return f"{compiled} kernels compiled meanwhile, in {seconds:.0f} s; once on this machine."
        return f"{loaded} kernels are compiled already."

    def stop(self) -> None:
        """Whatever it has come to; again and again, if need be."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def compile_for(on: str, window: Window) -> Kernels:
    """Run a small join of the same kind, as a core on Spark runs it, and route some rows."""
    # More 8-byte columns than are kept row by row: on Spark, columns stay as they are.
    more = {f"more_{number}": pa.array(np.zeros(PUSHES * ROWS)) for number in range(8)}
    reports, contacts = (
        pa.table({name: table[name] for name in table.column_names} | more) for table in generate(PUSHES * ROWS, seed=1)
    )
    with wm.StreamJoin(on, window, index="bisort", cores=1, subwindows=2) as join:
        for start in range(0, PUSHES * ROWS, ROWS):
            join.push(left=reports.slice(start, ROWS), right=contacts.slice(start, ROWS))
    plan = compile_plan(parse(on), reports.schema, contacts.schema)
    route, _ = choose_route("auto", plan, reports.schema, contacts.schema, "inner", 2)
    batch = reports.combine_chunks().to_batches()[0]
    route.places("left", plan.left.of(batch), np.arange(batch.num_rows))
    row_hashes(batch)
    return kernels()


if __name__ == "__main__":
    start = perf_counter()
    found = compile_for(sys.argv[1], wm.within(sys.argv[2], lateness=sys.argv[3]))
    print(json.dumps([found.compiled, found.loaded, perf_counter() - start]))
