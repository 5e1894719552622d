"""As-of joins, measured: the latest quote before each trade. `watersmeet bench embedded --only asof`

    number   l.key = r.key, whole numbers; 1M rows a side in the window, 10,000 keys
    text     the same with keys of text
    none     no key at all: the latest right row whatsoever

Every push has a batch of either side, `how="left"`, full rows out. Against it, in turns and in one process: Polars'
`join_asof` and DuckDB's ASOF JOIN of the new left batch with the right rows kept, which are the window and a quarter of
it at most. All must give the same pairs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import watersmeet as wm
from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.embedded.windows_by_hand import pushes, record

if TYPE_CHECKING:
    from watersmeet.bench.embedded import Embedded

KINDS = ("number", "text", "none")


@dataclass(frozen=True)
class Streams:
    kind: str
    window: int
    keys: int = 10_000

    @property
    def by_key(self) -> bool:
        return self.kind != "none"

    def batch(self, side: str, start: int, rows: int) -> pa.Table:
        rng = np.random.default_rng([11, side == "right", start])
        position = np.arange(start, start + rows)
        key = pa.array(rng.integers(0, self.keys, rows))
        key = pc.binary_join_element_wise("key", key.cast(pa.string()), "-") if self.kind == "text" else key
        return pa.table({"ts": position, "key": key, "value": rng.random(rows), "id": position})


class Ours:
    name = "watersmeet"

    def __init__(self, streams: Streams):
        on = "l.key = r.key" if streams.by_key else "true"
        self._join = wm.StreamJoin(on, wm.within(streams.window, 0), "left", pick="latest")

    def fill(self, left: pa.Table, right: pa.Table) -> None:
        self._join.push(left, right)

    def push(self, left: pa.Table, right: pa.Table) -> pa.Table:
        return self._join.push(left, right)

    def close(self) -> pa.Table:
        return self._join.close()


class Polars:
    name = "Polars join_asof"

    def __init__(self, streams: Streams):
        import polars

        self._polars: Any = polars
        self._streams = streams
        self._kept: Any = None

    def fill(self, left: pa.Table, right: pa.Table) -> None:
        frame = self._polars.from_arrow(right)
        most = self._streams.window + right.num_rows  # what the first row of a batch may look back to
        self._kept = frame if self._kept is None else self._polars.concat([self._kept, frame])
        if self._kept.height > 1.25 * most:
            self._kept = self._kept.tail(most).rechunk()

    def push(self, left: pa.Table, right: pa.Table) -> pa.Table:
        self.fill(left, right)
        by = {"by": "key"} if self._streams.by_key else {}
        kept = self._kept.set_sorted("ts")
        frame = self._polars.from_arrow(left).set_sorted("ts")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not check the order
            found = frame.join_asof(kept, on="ts", tolerance=self._streams.window, coalesce=False, **by)
        return found.to_arrow()

    def close(self) -> None:
        return None


class DuckDB:
    name = "DuckDB ASOF JOIN"

    def __init__(self, streams: Streams):
        import duckdb

        self._streams = streams
        self._connection = duckdb.connect()
        self._connection.register("first", streams.batch("right", 0, 1))
        self._connection.execute("create table kept as from first limit 0")
        self._rows = 0

    def fill(self, left: pa.Table, right: pa.Table) -> None:
        self._connection.register("added", right)
        self._connection.execute("insert into kept from added")
        self._rows += right.num_rows
        if self._rows > 1.25 * self._streams.window:
            oldest = right["ts"][0].as_py() - self._streams.window
            self._connection.execute(f"create or replace table kept as from kept where ts >= {oldest}")
            self._rows = self._streams.window + right.num_rows

    def push(self, left: pa.Table, right: pa.Table) -> pa.Table:
        self.fill(left, right)
        self._connection.register("new", left)
        same = "l.key = r.key and" if self._streams.by_key else ""
        near = f"l.ts - r.ts <= {self._streams.window}"
        columns = [f"case when {near} then r.{name} end as {name}_right" for name in right.column_names]
        query = f"select l.*, {', '.join(columns)} from new l asof left join kept r on {same} l.ts >= r.ts"
        return self._connection.sql(query).to_arrow_table()

    def close(self) -> None:
        return None


def measure(bench: Embedded, window: int, batches: tuple[int, ...], rounds: int, keys: int = 10_000) -> None:
    for kind in KINDS:
        for rows in batches:
            race(bench, Streams(kind, window, keys), rows, rounds)


def race(bench: Embedded, streams: Streams, rows: int, rounds: int) -> None:
    contenders: list[Any] = [Ours(streams), Polars(streams), DuckDB(streams)]
    seconds: dict[str, list[float]] = {each.name: [] for each in contenders}
    answers: dict[str, list[pa.Table]] = {each.name: [] for each in contenders}
    for found in pushes(contenders, streams.batch, streams.window, rows, rounds):
        for each, (took, table) in zip(contenders, found, strict=True):
            seconds[each.name].append(took)
            answers[each.name].append(table.select(["id", "id_right"]))
    for each in contenders:  # ours lets a row out when its time is over: the last ones at the end
        rest = each.close()
        answers[each.name] += [] if rest is None else [rest.select(["id", "id_right"])]
    since = -(-streams.window // rows) * rows
    first, *others = (_pairs(answers[each.name], since) for each in contenders)
    for each, other in zip(contenders[1:], others, strict=True):
        if not first.equals(other):
            raise AnswersDiffer(f"asof, {streams.kind}: {each.name} gives other pairs than {Ours.name}")
    setting = {"number": "keys are numbers", "text": "keys are texts", "none": "no key"}[streams.kind]
    about = {"workload": "asof", "window": streams.window, "batch": rows, "setting": setting}
    goals = {Polars.name: targets.ASOF[rows]} if streams.by_key and rows in targets.ASOF else {}
    record(bench, about, seconds, first.num_rows, goals)


def _pairs(tables: list[pa.Table], since: int) -> pa.Table:
    plain = pa.schema({"id": pa.int64(), "id_right": pa.int64()})
    found = pa.concat_tables([table.cast(plain) for table in tables]).sort_by("id").combine_chunks()
    return found.filter(pc.greater_equal(found["id"], since)).combine_chunks()
