"""What users hand-roll today: each new batch joined with the last rows of the other side by a batch engine.

    push(left, batch):   results = batch JOIN last right rows;   then batch joins the last left rows
    push(right, batch):  results = last left rows JOIN batch;    then batch joins the last right rows

so each pair is found once, by the later of its two tuples. The rows are kept for `keep_rows` (20 s of them in
the benchmarks: a batch of 10 s has partners 10 s before its first row). Equality (A2) is an equi-join on the
key and a filter on time. A band (B) is turned into an equi-join: keys are cut into cells of the band's width,
from -band to +band, so that the partners of a key lie in exactly two neighbouring cells; the new batch is
exploded to those two, joined on the cell with the rows kept, and filtered. Exploding the new batch, never the
larger of the two inputs, is the cheaper way round.

Every peer has several forms (where its buffer lives, which of its engines runs the join), because which is
fastest changes with the batch size. Runners try them all and time the fastest. Tried and left out: DuckDB's
own range join and Polars' join_where (IEJoin), about a tenth as fast as cells at 50,000 rows; interval
instead of integer arithmetic on time in DataFusion (half as fast from 50,000 rows on) and over Arrow in
DuckDB (slower); cells of half the width (no clear difference), of twice the width and of a single key (mostly
slower).
"""

from __future__ import annotations

import importlib
from collections import deque
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.bench.workloads import SIDES, Workload

NAMES = ("ts", "key", "value", "ts_right", "key_right", "value_right")
COLUMNS = "l.ts, l.key, l.value, r.ts as ts_right, r.key as key_right, r.value as value_right"
EXTRA = "pip install 'watersmeet[bench]'"
MERGE_ROWS = 100_000  # small Arrow batches are merged into ones of this size: engines pay per batch


def opposite(side: str) -> str:
    return SIDES[1 - SIDES.index(side)]


class Peer:
    """One hand-rolled join. `push` is what is timed, and returns results in the peer's own form."""

    name: ClassVar[str]
    package: ClassVar[str]
    forms: ClassVar[tuple[str, ...]]

    def __init__(self, workload: Workload, keep_rows: int, form: str) -> None:
        if form not in self.forms:
            raise ValueError(f"form must be one of {', '.join(self.forms)}, got {form!r}")
        self.workload, self.keep_rows, self.form = workload, keep_rows, form
        self.on = "cell" if workload.band else "key"
        self.open()

    @classmethod
    def missing(cls) -> str | None:
        """Why this peer cannot run here, or None."""
        try:
            importlib.import_module(cls.package)
        except ImportError:
            return f"{cls.package} is not installed: {EXTRA}"
        return None

    def open(self) -> None:
        raise NotImplementedError

    def load(self, side: str, batch: pa.RecordBatch) -> None:
        """Keep a batch without joining it."""
        raise NotImplementedError

    def push(self, side: str, batch: pa.RecordBatch) -> Any:
        """Join a new batch with the rows kept of the other side, then keep it."""
        raise NotImplementedError

    def table(self, results: Any) -> pa.Table:
        """The results of a push as Arrow; not timed."""
        return results

    def with_cell(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as it is kept."""
        if not self.workload.band:
            return batch
        return batch.append_column("cell", pa.array(self.cells(batch, 0)))

    def exploded(self, batch: pa.RecordBatch) -> pa.Table:
        """The batch as it probes: once for each of the two cells its partners may lie in."""
        band = self.workload.band
        if not band:
            return pa.Table.from_batches([batch])
        first = self.cells(batch, -band)  # the cell of key - band; key + band lies in the next
        return pa.Table.from_batches([batch.append_column("cell", pa.array(first + i)) for i in (0, 1)])

    def cells(self, batch: pa.RecordBatch, offset: int) -> np.ndarray:
        return (batch.column("key").to_numpy() + offset) // (2 * self.workload.band)


class ArrowBuffer:
    """The last rows of a side as Arrow batches, small ones merged."""

    def __init__(self, keep_rows: int) -> None:
        self.keep_rows, self.stored = keep_rows, 0
        self.batches: deque[pa.RecordBatch] = deque()
        self.small: list[pa.RecordBatch] = []  # the last of the batches, not yet merged

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.stored += len(batch)
        self.small.append(batch)
        if sum(map(len, self.small)) >= MERGE_ROWS:
            for _ in self.small[: len(self.batches)]:
                self.batches.pop()
            self.batches.extend(pa.Table.from_batches(self.small).combine_chunks().to_batches())
            self.small.clear()
            self.stored = sum(map(len, self.batches))
        while self.stored > self.keep_rows:
            excess = self.stored - self.keep_rows
            oldest = self.batches.popleft()
            self.stored -= min(excess, len(oldest))
            if excess < len(oldest):
                self.batches.appendleft(oldest.slice(excess))


class DuckDB(Peer):
    """The buffer is Arrow, scanned in place ("arrow"), or a table, rewritten now and then ("native"). Times are
    compared as integers, or ("interval") as timestamps, which is faster for some batch sizes."""

    name, package, forms = "DuckDB", "duckdb", ("arrow", "native", "native, interval")

    def open(self) -> None:
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("set preserve_insertion_order = false")
        self.buffers = {side: ArrowBuffer(self.keep_rows) for side in SIDES}
        self.stored = dict.fromkeys(SIDES, 0)
        cell = ", cell bigint" if self.workload.band else ""
        if self.form != "arrow":
            for side in SIDES:
                self.connection.execute(f"create table kept_{side} (ts timestamp, key bigint, value bigint{cell})")

    def load(self, side: str, batch: pa.RecordBatch) -> None:
        if self.form == "arrow":
            self.buffers[side].add(self.with_cell(batch))
            return
        self.connection.register("added", pa.Table.from_batches([self.with_cell(batch)]))
        self.connection.execute(f"insert into kept_{side} from added")
        self.stored[side] += len(batch)
        if self.stored[side] >= 1.5 * self.keep_rows:
            old = batch.column("value")[-1].as_py() - self.keep_rows
            self.connection.execute(f"create or replace table kept_{side} as from kept_{side} where value > {old}")
            self.stored[side] = self.keep_rows

    def push(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        self.connection.register("new", self.exploded(batch))
        kept = f"kept_{opposite(side)}"
        if self.form == "arrow":
            self.connection.register(kept, pa.Table.from_batches(self.buffers[opposite(side)].batches))
        left, right = ("new", kept) if side == "left" else (kept, "new")
        span, band = self.workload.window_us, self.workload.band
        close = f"epoch_us(r.ts) - epoch_us(l.ts) between -{span} and {span}"
        if self.form == "native, interval":
            reach = f"interval {span} microseconds"
            close = f"r.ts between l.ts - {reach} and l.ts + {reach}"
        query = f"""select {COLUMNS} from {left} l join {right} r on l.{self.on} = r.{self.on}
            where {close}"""
        if band:
            query += f" and l.key - r.key between -{band} and {band}"
        results = self.connection.sql(query).to_arrow_table()
        self.load(side, batch)
        return results


class Polars(Peer):
    """The buffer is one frame a side, extended in place. The forms differ in the engine that runs the join;
    "filtered" first leaves only rows of the buffer whose key occurs in the new batch."""

    name, package, forms = "Polars", "polars", ("eager", "filtered", "lazy", "streaming")

    def open(self) -> None:
        import polars

        self.polars = polars
        self.frames: dict[str, Any] = {}

    def load(self, side: str, batch: pa.RecordBatch) -> None:
        new = self.polars.from_arrow(self.with_cell(batch))
        frame = self.frames[side].extend(new) if side in self.frames else new
        if len(frame) >= 1.25 * self.keep_rows:
            frame = frame.tail(self.keep_rows)
        self.frames[side] = frame

    def push(self, side: str, batch: pa.RecordBatch) -> Any:
        pl, band = self.polars, self.workload.band
        new, kept = pl.from_arrow(self.exploded(batch)), self.frames[opposite(side)].tail(self.keep_rows)
        if self.form == "filtered":
            kept = kept.filter(pl.col(self.on).is_in(new[self.on].implode()))
        left, right = (new, kept) if side == "left" else (kept, new)
        apart, key = (pl.col("ts_right") - pl.col("ts")).to_physical(), pl.col("key") - pl.col("key_right")
        close = [apart.is_between(-self.workload.window_us, self.workload.window_us)]
        if band:
            close.append(key.is_between(-band, band))
        if self.form in ("lazy", "streaming"):
            left, right = left.lazy(), right.lazy()
        results = left.join(right, on=self.on, coalesce=bool(band)).filter(*close)
        if band:
            results = results.drop("cell")
        if self.form in ("lazy", "streaming"):
            results = results.collect(engine="streaming" if self.form == "streaming" else "in-memory")
        del kept, left, right  # a frame that is still shared cannot be extended in place
        self.load(side, batch)
        return results

    def table(self, results: Any) -> pa.Table:
        return results.to_arrow()


class DataFusion(Peer):
    """The buffer is Arrow, in as many partitions as there are cores. Both sides are repartitioned by the key
    ("partitioned"), or one hash table is built and all cores probe it ("collected")."""

    name, package, forms = "DataFusion", "datafusion", ("partitioned", "collected")

    def open(self) -> None:
        from datafusion import SessionConfig, SessionContext

        from watersmeet.bench.machine import cores

        config = SessionConfig({"datafusion.optimizer.repartition_joins": str(self.form == "partitioned").lower()})
        self.cores = cores()
        self.context = SessionContext(config.with_target_partitions(self.cores))
        self.buffers = {side: ArrowBuffer(self.keep_rows) for side in SIDES}

    def load(self, side: str, batch: pa.RecordBatch) -> None:
        self.buffers[side].add(self.with_cell(batch))

    def push(self, side: str, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        left, right = ("new", "kept") if side == "left" else ("kept", "new")
        self.register("new", self.exploded(batch).to_batches())
        self.register("kept", list(self.buffers[opposite(side)].batches))
        span, band = self.workload.window_us, self.workload.band
        query = f"""select {COLUMNS} from {left} l join {right} r on l.{self.on} = r.{self.on}
            and arrow_cast(r.ts, 'Int64') - arrow_cast(l.ts, 'Int64') between -{span} and {span}"""
        if band:
            query += f" and l.key - r.key between -{band} and {band}"
        results = self.context.sql(query).collect()
        self.load(side, batch)
        return results

    def register(self, name: str, batches: list[pa.RecordBatch]) -> None:
        rows = sum(map(len, batches))
        share = -(-rows // self.cores)
        partitions: list[list[pa.RecordBatch]] = [[]]
        room = share
        for batch in batches:
            while len(batch) > room and len(partitions) < self.cores:
                partitions[-1].append(batch.slice(0, room))
                batch, room = batch.slice(room), share
                partitions.append([])
            partitions[-1].append(batch)
            room -= len(batch)
        if self.context.table_exist(name):
            self.context.deregister_table(name)
        self.context.register_record_batches(name, partitions)

    def table(self, results: list[pa.RecordBatch]) -> pa.Table:
        if not results:  # DataFusion returns no batch at all where nothing matched
            return pa.table({name: pa.array([], pa.int64()) for name in NAMES})
        return pa.Table.from_batches(results)


PEERS: tuple[type[Peer], ...] = (DuckDB, Polars, DataFusion)
