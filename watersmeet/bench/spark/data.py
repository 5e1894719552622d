"""The streams of `watersmeet bench spark`: Parquet files in order of arrival, the joins over them, the right answers.

    A     l.key = r.key             within 10 s      about 2 matches for an arriving row
    B     |l.key - r.key| <= 2      within 10 s      about 2
    B17   the same                  within 10 s      about 17: the results outweigh the input
    C     l.key > r.key             within 50 ms     about 2: the ranges of the two keys overlap a little
    D     l.device = r.device       within 10 s      about 1, left join: texts, out of order by up to 2 s
    L     l.key = r.key             within 10 s      about 1, left join: for large windows (flat.py)
    Z, U  l.key = r.key             within 0.2 ms    about 2: keys as in Zipf's law; U: 0.4 s, uniform (skew.py)

Rows come every 20 us on each stream, so 10 s hold 500,000 of them. They are (ts, key, value), of D (ts, device, note,
value) with texts of 15 and 16 bytes. Keys are those of workloads.py; `value` is the row's position in its stream, so
that (value, value_right) is a result. What arrives in one micro-batch is a few files of each side; their modification
times are set, because Spark reads files in that order.

The rows of D are in order of arrival, up to 2 s after their time, which is the lateness, so that none is late. Each
stream of D and L ends with a row far ahead in time that matches nothing: it moves the watermark past all others, so
that every left row without a match is due, and stays without an answer itself.

The right answer is DuckDB's, as a count and a checksum over all columns (checksum.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watersmeet.bench import workloads
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.spark.checksum import Answer
from watersmeet.bench.workloads import BAND, SIDES, Workload, mix

JOINS = ("A", "B", "B17", "C", "D")
FILES_A_BATCH = 2  # of each side: as many tasks read as there are cores
C_SECONDS = 0.05
ZIPF = 1.5
LATENESS = 0.2  # of D, in windows
START_US = 1_767_225_600_000_000  # 2026: a row at 1970 would be late, Spark's watermark begins there
NUMBERS = {"ts": "timestamp", "key": "bigint", "value": "bigint"}
TEXTS = {"ts": "timestamp", "device": "string", "note": "string", "value": "bigint"}
END = -1  # value of the rows that end the streams of left joins
_BATCH = 1 << 15  # results that are summed up at a time: their hashes stay in the cache


@dataclass(frozen=True)
class Part:
    """Two streams and the join over them."""

    name: str
    workload: Workload
    on: str
    window_us: int
    shift: int = 0  # added to the right keys
    how: str = "inner"
    lateness_us: int = 0

    @property
    def types(self) -> dict[str, str]:
        """The columns of a stream, and what Spark calls their types."""
        return TEXTS if self.name == "D" else NUMBERS

    @property
    def names(self) -> list[str]:
        """The columns of the result."""
        return [*self.types, *(f"{name}_right" for name in self.types)]

    def rows(self, side: str, start: int, rows: int) -> pa.Table:
        batch = self.workload.rows(side, start, rows)
        key = batch["key"] if side == "left" else pc.add(batch["key"], self.shift)
        ticks = pc.add(batch["ts"].cast(pa.int64()), START_US)
        if self.name != "D":
            return pa.table({"ts": times(ticks), "key": key, "value": batch["value"]})
        bits = mix(batch["value"].to_numpy().astype(np.uint64) + np.uint64(SIDES.index(side) << 40))
        delay = (bits >> np.uint64(32)) * np.uint64(self.lateness_us) >> np.uint64(32)
        device = pc.binary_join_element_wise("device", digits(key, 8), "-")
        ticks = pc.subtract(ticks, pa.array(delay.astype(np.int64)))
        note = digits(pa.array((bits % np.uint64(10**16)).astype(np.int64)), 16)
        return pa.table({"ts": times(ticks), "device": device, "note": note, "value": batch["value"]})

    def end(self, side: str, rows: int) -> pa.Table:
        """The row after the last one, if the streams need one."""
        if self.how != "left":
            return self.rows(side, rows, 0)
        tick = START_US + rows * self.workload.spacing_us + 2 * (self.window_us + self.lateness_us)
        row = {"ts": times(pa.array([tick])), "device": [side], "note": ["end"], "value": [END]}
        row["key"] = [END - SIDES.index(side)]  # the two must not meet either
        row = {name: row[name] for name in self.types}
        return pa.table(row, schema=self.rows(side, 0, 0).schema)


def times(ticks: pa.Array) -> pa.Array:
    return ticks.cast(pa.timestamp("us", "UTC"))


def digits(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def part(name: str, seconds: float = 10) -> Part:
    """One of the parts; `seconds` is the window of A, B and D (C keeps its 1/200 of that)."""
    if name == "A":
        workload = workloads.a2(1, seconds=seconds)
        return Part(name, workload, workload.on, workload.window_us)
    if name == "D":
        workload = workloads.a2(1, seconds=seconds, matches=1.0)
        lateness = round(LATENESS * workload.window_us)
        return Part(name, workload, "l.device = r.device", workload.window_us, how="left", lateness_us=lateness)
    if name == "L":
        workload = workloads.a2(1, seconds=seconds, matches=1.0)
        return Part(name, workload, workload.on, workload.window_us, how="left")
    if name in ("Z", "U"):
        workload = workloads.skewed(ZIPF if name == "Z" else 0.0)
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
            table = part.rows(side, start, min(a_file, rows - start))
            if start + a_file >= rows:
                table = pa.concat_tables([table, part.end(side, rows)])
            pq.write_table(table, path, compression="snappy")
            os.utime(path, (1_700_000_000 + number,) * 2)


def answer(part: Part, folder: Path) -> Answer:
    """DuckDB's answer for the files of this folder. A band is cut into cells, so that it can hash."""
    import duckdb

    left, right = (f"read_parquet('{folder}/{side}/*.parquet')" for side in SIDES)
    sides = f"l as (select *, epoch_us(ts) as t from {left}), r as (select *, epoch_us(ts) as t from {right})"
    near = f"abs(l.t - r.t) <= {part.window_us}"
    if part.name == "Z":  # by the key alone most of all pairs of rows would be looked at: cells of time as well
        match = f"""from (select *, t // {part.window_us} as cell from l) l
            join (select *, t // {part.window_us} + unnest([-1, 0, 1]) as cell from r) r
            on l.key = r.key and l.cell = r.cell where {near}"""
    elif part.name in ("A", "U"):
        match = f"from l join r on l.key = r.key where {near}"
    elif part.name == "L":
        match = f"from l left join r on l.key = r.key and {near} where l.value <> {END}"
    elif part.name == "D":
        match = f"from l left join r on l.device = r.device and {near} where l.value <> {END}"
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
    columns = [f"{side}.{'t' if name == 'ts' else name}" for side in "lr" for name in part.types]
    query = f"with {sides} select {', '.join(columns)} {match}"
    total = Answer()
    with duckdb.connect() as db:
        db.execute("set preserve_insertion_order = false")
        for batch in db.sql(query).to_arrow_reader(_BATCH):
            total += Answer.of(batch.columns)
    return total


def compare(name: str, contender: str, got: Answer, right: Answer) -> None:
    """The results must be DuckDB's."""
    if got != right:
        raise AnswersDiffer(f"{name}: {contender} gives {got}, DuckDB {right} (results:checksum)")
