"""The stage before the shuffle: tuples of one side become packs, each for one core."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import Side
from watersmeet.routing import Places, Route, Spread
from watersmeet.routing.spread import BUCKETS
from watersmeet.spark.bad_rows import drops, good_rows, refuse
from watersmeet.spark.clock import NO_TIME, SparkClock
from watersmeet.spark.held import Held
from watersmeet.spark.narrow import narrowed
from watersmeet.spark.packs import ALL, COPIES, HOME, HOT, PACK_BYTES, joined, pack, pieces
from watersmeet.spark.schemas import conform
from watersmeet.spark.spec import Compiled, JoinSpec, compiled
from watersmeet.spark.task import check_query, spare_collector

Array = np.ndarray

#: Spark hands over 10,000 rows at a time; so many are gathered before they are packed.
PORTION_ROWS = 1 << 19
#: And no more bytes, for an Arrow array ends at 2 GiB of text. Spark's batches have 64 MiB, or one row if it is larger.
MOST_BYTES = 256 << 20


class Router:
    """A function for `mapInArrow`."""

    def __init__(self, spec: JoinSpec, side: Side):
        self._spec = spec
        self._side: Side = side

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_query(self._spec)
        join = compiled(self._spec)
        spare_collector()
        good = (self._good(join, join.clock, portion) for portion in self._portions(batches))
        if isinstance(self._spec.route, Spread):
            yield from self._hot_and_cold(join, self._spec.route, good)
        else:
            for batch, bad in good:
                yield from self._packs(join, batch, bad)

    def _portions(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Several batches as one."""
        schema = self._spec.schema(self._side)
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if held and size + batch.nbytes > MOST_BYTES:
                yield joined(held)
                held, rows, size = [], 0, 0
            if batch.num_rows:
                held.append(conform(batch, schema))
                rows += batch.num_rows
                size += batch.nbytes
            if rows >= PORTION_ROWS or size >= 2 * PACK_BYTES:
                yield joined(held)
                held, rows, size = [], 0, 0
        if held:
            yield joined(held)

    def _hot_and_cold(
        self, join: Compiled, route: Spread, portions: Iterator[tuple[pa.RecordBatch, int]]
    ) -> Iterator[pa.RecordBatch]:
        """All of the input is looked at before any of it is sent, so that the order in which it comes, which another
        attempt need not have, makes no difference to what is hot."""
        counts: Array = np.zeros(BUCKETS, np.int64)
        with Held(self._spec.schema(self._side)) as held:
            for batch, bad in portions:
                counts += route.count(self._side, join.side_plan(self._side).of(batch))
                held.add(batch, bad)
            for batch, bad in held:
                yield from self._packs(join, batch, bad, counts)

    def _packs(
        self, join: Compiled, batch: pa.RecordBatch, bad: int, counts: Array | None = None
    ) -> Iterator[pa.RecordBatch]:
        """counts: of all tuples of the task, where those of hot keys are to be spread."""
        clock = join.clock
        if not batch.num_rows:
            yield self._pack(0, HOME, NO_TIME, narrowed(batch), bad)
            return
        greatest = clock.micros(int(join.window.read(batch, self._side).max()))
        cold = batch
        if counts is not None:
            hot = believed(self._spec.route, self._side, join.side_plan(self._side).of(batch), counts)
            if hot.any():
                yield from self._hot_packs(join, batch.filter(pa.array(hot)), greatest)
                cold = batch.filter(pa.array(~hot))
        if cold.num_rows:
            yield from self._cold_packs(join, cold, greatest)
        # Core 0 hears of every micro-batch: it checks the plan.
        yield self._pack(0, HOME, greatest, narrowed(batch.slice(0, 0)), bad)

    def _cold_packs(self, join: Compiled, batch: pa.RecordBatch, greatest: int) -> Iterator[pa.RecordBatch]:
        ticks = join.window.read(batch, self._side)
        places = self._spec.route.places(self._side, join.side_plan(self._side).of(batch), ticks)
        if places.everywhere:
            yield from self._to_all(batch, ALL, greatest)
            return
        for core, home, part in _parts(batch, places, len(self._spec.keys)):
            for piece in pieces(part):
                yield self._pack(core, home, greatest, narrowed(piece))

    def _hot_packs(self, join: Compiled, batch: pa.RecordBatch, greatest: int) -> Iterator[pa.RecordBatch]:
        ticks = join.window.read(batch, self._side)
        route = self._spec.route
        assert isinstance(route, Spread)
        visited = route.visited(self._side, join.side_plan(self._side).of(batch), ticks)
        if visited is None:
            yield from self._to_all(batch, HOT, greatest)
            return
        rows, cores = visited
        for core in range(len(self._spec.keys)):
            mine = rows[cores == core]
            if mine.size:
                for piece in pieces(batch.take(pa.array(mine))):
                    yield self._pack(core, HOT, greatest, narrowed(piece))

    def _to_all(self, batch: pa.RecordBatch, home: int, greatest: int) -> Iterator[pa.RecordBatch]:
        for piece in pieces(batch):
            blob = narrowed(piece)  # one for all cores
            for core in range(len(self._spec.keys)):
                yield self._pack(core, home, greatest, blob)

    def _good(self, join: Compiled, clock: SparkClock, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The rows that have a time, and how many have none; an error where these are not to be left out."""
        good = good_rows(join.window, clock, batch, self._side)
        if good is None:
            return batch, 0
        if not drops(self._spec.bad_rows, self._side):
            refuse(join.window, clock, batch, self._side, good)
        return batch.filter(good), good.false_count

    def _pack(self, core: int, home: int, micros: int, blob: bytes, bad: int = 0) -> pa.RecordBatch:
        return pack(self._spec, self._side, core, home, micros, blob, bad)


def believed(route: Route, side: Side, tuples: Any, counts: Array) -> Array:
    """Which tuples are hot. Any answer gives the same results, as long as those without a key are not."""
    assert isinstance(route, Spread)
    return route.hot(side, tuples, counts)


def _parts(batch: pa.RecordBatch, places: Places, cores: int) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """(core, whether at home, tuples) of all that goes somewhere, in their order in the batch."""
    everyone = None
    for home, rows, where in ((HOME, everyone, places.home), (COPIES, places.rows, places.cores)):
        if not where.size:
            continue
        if home == HOME and cores == 1:
            yield 0, HOME, batch
            continue
        order = np.argsort(where.astype(np.uint16), kind="stable")  # a radix sort
        counts = np.bincount(where, minlength=cores)
        taken = batch.take(pa.array(order if rows is None else rows[order]))
        start = 0
        for core, count in enumerate(counts.tolist()):
            if count:
                yield core, home, taken.slice(start, count)
            start += count
