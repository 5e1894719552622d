"""An inequality, of which only a count and a sum for each left row are wanted; and the same with the pairs made.

`l.x < r.x` over the last million right rows: half a million partners a left row. Ours gets both streams in batches and
gives one row for each left row. Beside it, for a few of the same left rows, whose answers must be the same: our own
join with all pairs made and grouped by Arrow, and DuckDB over the same window, given as a table.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.bench.checksum import AnswersDiffer

ON = "l.x < r.x"
AGGREGATE = {"n": "count(*)", "total": "sum(r.amount)"}
FEW = 16  # left rows with the pairs made
Row = dict[str, Any]


def batches(window: int, batch: int) -> Any:
    """Both streams, batch by batch, without an end; amounts are doubles that add up exactly."""
    rng = np.random.default_rng(17)
    start = 0
    while True:
        ts = np.arange(start, start + batch)
        left = pa.table({"ts": ts, "x": rng.integers(0, 1 << 30, batch)})
        right = {"ts": ts, "x": rng.integers(0, 1 << 30, batch), "amount": rng.integers(0, 1 << 20, batch) / 4}
        yield left, pa.table(right)
        start += batch


def measure(record: Callable[[Row], None], window: int, batch: int, rounds: int, turn: float) -> list[float]:
    """Record all contenders; gives our left rows/s, round by round."""
    pushes = batches(window, batch)
    kept: deque[pa.Table] = deque(maxlen=window // batch + 2)
    speeds: list[float] = []
    memory = []
    with wm.StreamJoin(ON, wm.within(window, 0), per="left", aggregate=AGGREGATE, cores=1) as join:

        def push() -> tuple[pa.Table, float]:
            left, right = next(pushes)
            kept.append(right)
            begin = perf_counter()
            found = join.push(left, right)
            return found, perf_counter() - begin

        for _ in range(2 * window // batch):
            found, _ = push()
        for _ in range(rounds):
            spent, rows = 0.0, 0
            while spent < turn or not rows:
                found, took = push()
                spent, rows = spent + took, rows + found.num_rows
            speeds.append(rows / spent)
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    about = {"workload": "aggregates", "window": window, "batch": batch}
    form = {"form": "count(*), sum of doubles, 1 core", "results_per_tuple": 1.0, "memory": memory}
    record(about | {"contender": "watersmeet", "rounds": speeds, "tuples_per_s": max(speeds)} | form)

    few = found.slice(found.num_rows - FEW, FEW)
    rights = pa.concat_tables(kept)
    for name, answer in (("pairs made", with_pairs(window)), ("duckdb", lateral(window))):
        speed = []
        for _ in range(min(rounds, 3)):
            begin = perf_counter()
            same = answer(few.select(["ts", "x"]), rights)
            speed.append(FEW / (perf_counter() - begin))
            if same.sort_by("ts").select(["n", "total"]).to_pylist() != few.select(["n", "total"]).to_pylist():
                raise AnswersDiffer(f"aggregates: {name} has other counts or sums than watersmeet")
        made = {"contender": name, "form": f"{FEW} left rows of the same", "results_per_tuple": 1.0}
        record(about | made | {"rounds": speed, "tuples_per_s": max(speed)})
    return speeds


def with_pairs(window: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def answer(left: pa.Table, right: pa.Table) -> pa.Table:
        with wm.StreamJoin(ON, wm.within(window, 0), cores=1) as join:
            pairs = join.push(left, right)
        found = pairs.group_by("ts").aggregate([([], "count_all"), ("amount", "sum")])
        return found.rename_columns(["ts", "n", "total"])

    return answer


def lateral(window: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    def answer(left: pa.Table, right: pa.Table) -> pa.Table:
        import duckdb

        with duckdb.connect() as connection:
            connection.execute("set threads = 1")
            connection.register("l", left)
            connection.register("r", right)
            where = f"{ON} and r.ts between l.ts - {window} and l.ts"
            each = f"select count(*) as n, sum(r.amount) as total from r where {where}"
            return connection.sql(f"select l.ts, s.* from l cross join lateral ({each}) s").to_arrow_table()

    return answer
