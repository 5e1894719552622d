"""The streams of `watersmeet bench spark`: Parquet files in order of time, the joins over them, the right answers.

    A     l.key = r.key             within 10 s      about 2 matches for an arriving row
    B     |l.key - r.key| <= 2      within 10 s      about 2
    B17   the same                  within 10 s      about 17: the results outweigh the input
    C     l.key > r.key             within 50 ms     about 2: the ranges of the two keys overlap a little

Rows (ts, key, value) come every 20 us on each stream, so 10 s hold 500,000 of them. Keys are those of workloads.py;
`value` is the row's position in its stream, so that (value, value_right) is a result. What arrives in one micro-batch
is a few files of each side; their modification times are set, because Spark reads files in that order.

The right answer is DuckDB's, as a count and a checksum that every engine can compute (`CHECKSUM`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.bench import workloads
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.workloads import BAND, SIDES, Workload

JOINS = ("A", "B", "B17", "C")
FILES_A_BATCH = 2  # of each side: as many tasks read as there are cores
C_SECONDS = 0.05
START_US = 1_767_225_600_000_000  # 2026: a row at 1970 would be late, Spark's watermark begins there
# Over all results, in any order. A product, so that it also sees partners exchanged between two results.
CHECKSUM = "sum((((value * 31 + 7) % 999983) * ((value_right * 17 + 3) % 999979)) % 1000003)"


@dataclass(frozen=True)
class Part:
    """Two streams and the join over them."""

    name: str
    workload: Workload
    on: str
    window_us: int
    shift: int = 0  # added to the right keys

    def rows(self, side: str, start: int, rows: int) -> pa.Table:
        batch = self.workload.rows(side, start, rows)
        key = batch["key"] if side == "left" else pc.add(batch["key"], self.shift)
        ticks = pc.add(batch["ts"].cast(pa.int64()), START_US)
        return pa.table({"ts": ticks.cast(pa.timestamp("us", "UTC")), "key": key, "value": batch["value"]})


def part(name: str, seconds: float = 10) -> Part:
    """One of the parts; `seconds` is the window of A and B (C keeps its 1/200 of that)."""
    if name == "A":
        workload = workloads.a2(1, seconds=seconds)
        return Part(name, workload, workload.on, workload.window_us)
    matches = 17.0 if name == "B17" else 2.0
    workload = workloads.b(1, seconds=seconds, matches=matches)
    if name != "C":
        return Part(name, workload, workload.on, workload.window_us)
    # l uniform in [0, d), r uniform in [d - s, 2d - s): l > r for s^2 / 2 d^2 of the pairs.
    window_us = round(seconds * C_SECONDS / 10 * 1e6)
    overlap = round(workload.domain * min(1.0, (2 * matches * workload.spacing_us / window_us) ** 0.5))
    return Part(name, workload, "l.key > r.key", window_us, shift=workload.domain - overlap)


def write(part: Part, folder: Path, rows: int, batch_rows: int) -> None:
    """`rows` of each side, `batch_rows` of them (half of each side) to a micro-batch."""
    a_file = batch_rows // 2 // FILES_A_BATCH
    for side in SIDES:
        (folder / side).mkdir(parents=True)
        for number, start in enumerate(range(0, rows, a_file)):
            path = folder / side / f"{number:05}.parquet"
            pq.write_table(part.rows(side, start, min(a_file, rows - start)), path, compression="snappy")
            os.utime(path, (1_700_000_000 + number,) * 2)


@dataclass(frozen=True)
class Answer:
    """How many results, and the sum over them."""

    rows: int
    checksum: int


def answer(part: Part, folder: Path) -> Answer:
    """DuckDB's answer for the files of this folder. A band is cut into cells, so that it can hash."""
    import duckdb

    left, right = (f"read_parquet('{folder}/{side}/*.parquet')" for side in SIDES)
    sides = f"l as (select *, epoch_us(ts) as t from {left}), r as (select *, epoch_us(ts) as t from {right})"
    near = f"abs(l.t - r.t) <= {part.window_us}"
    if part.name == "A":
        match = f"from l join r on l.key = r.key where {near}"
    elif part.name == "C":
        # Only keys in the overlap can match; cells of the window's length in time.
        low, high = part.shift, part.workload.domain
        match = f"""from (select *, t // {part.window_us} as cell from l where key > {low}) l
            join (select *, t // {part.window_us} + unnest([-1, 0, 1]) as cell from r where key < {high}) r
            on l.cell = r.cell where l.key > r.key and {near}"""
    else:
        width = 2 * BAND + 1
        match = f"""from (select *, key // {width} as cell from l) l
            join (select *, key // {width} + unnest([-1, 0, 1]) as cell from r) r
            on l.cell = r.cell where abs(l.key - r.key) <= {BAND} and {near}"""
    query = f"""with {sides}, pairs as (select l.value as value, r.value as value_right {match})
        select count(*), {CHECKSUM} from pairs"""
    with duckdb.connect() as db:
        rows, total = db.execute(query).fetchall()[0]
    return Answer(int(rows), int(total or 0))


def compare(name: str, contender: str, outcome: dict[str, Any], answers: dict[str, Answer]) -> None:
    """The results must be DuckDB's."""
    got = Answer(outcome["check"]["rows_out"], outcome["check"]["checksum"])
    if got != answers["check"]:
        raise AnswersDiffer(f"{name}, small streams: {contender} gives {got}, DuckDB {answers['check']}")
    if outcome["measured"]["rows_out"] != answers["measured"].rows:
        got_rows, rows = outcome["measured"]["rows_out"], answers["measured"].rows
        raise AnswersDiffer(f"{name}: {contender} gives {got_rows:,} results, DuckDB {rows:,}")
