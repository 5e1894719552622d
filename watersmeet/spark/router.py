"""The stage before the shuffle: tuples of one side become packs, each for one core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import SIDES, Side
from watersmeet.routing import Places
from watersmeet.spark.bad_rows import good_rows, refuse
from watersmeet.spark.clock import NO_TIME, SparkClock
from watersmeet.spark.narrow import narrowed
from watersmeet.spark.packs import PACK_ARROW, PACK_BYTES, joined, pieces
from watersmeet.spark.schemas import conform
from watersmeet.spark.spec import Compiled, JoinSpec, compiled

Array = np.ndarray

#: Spark hands over 10,000 rows at a time; so many are gathered before they are packed.
PORTION_ROWS = 1 << 19


class Router:
    """A function for `mapInArrow`."""

    def __init__(self, spec: JoinSpec, side: Side):
        self._spec = spec
        self._side: Side = side

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = compiled(self._spec)
        schema = self._spec.schema(self._side)
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if batch.num_rows:
                held.append(conform(batch, schema))
                rows += batch.num_rows
                size += batch.nbytes
            if rows >= PORTION_ROWS or size >= 2 * PACK_BYTES:
                yield from self._packs(join, joined(held))
                held, rows, size = [], 0, 0
        if held:
            yield from self._packs(join, joined(held))

    def _packs(self, join: Compiled, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        clock = SparkClock(join.window)
        batch, bad = self._good(join, clock, batch)
        if not batch.num_rows:
            yield self._row(0, True, NO_TIME, batch, bad)
            return
        ticks = join.window.read(batch, self._side)
        greatest = clock.micros(int(ticks.max()))
        places = self._spec.route.places(self._side, join.side_plan(self._side), batch, ticks)
        for core, home, part in _parts(batch, places, len(self._spec.keys)):
            for piece in pieces(part):
                yield self._row(core, home, greatest, piece)
        # Core 0 hears of every micro-batch: it checks the plan.
        yield self._row(0, True, greatest, batch.slice(0, 0), bad)

    def _good(self, join: Compiled, clock: SparkClock, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The rows that have a time, and how many have none; an error where these are not to be left out."""
        good = good_rows(join.window, clock, batch, self._side)
        if good is None:
            return batch, 0
        if self._spec.bad_rows == "fail":
            refuse(join.window, clock, batch, self._side, good)
        return batch.filter(good), good.false_count

    def _row(self, core: int, home: bool, micros: int, batch: pa.RecordBatch, bad: int = 0) -> pa.RecordBatch:
        blob = narrowed(batch)
        offsets = pa.py_buffer(np.array([0, len(blob)], np.int32))
        columns = [
            pa.array([self._spec.keys[core]], pa.int32()),
            pa.array([SIDES.index(self._side)], pa.int8()),
            pa.array([home]),
            pa.array([micros], pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array([bad], pa.int64()),
            pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PACK_ARROW)


def _parts(batch: pa.RecordBatch, places: Places, cores: int) -> Iterator[tuple[int, bool, pa.RecordBatch]]:
    """(core, at home, tuples) of all that goes somewhere, in their order in the batch."""
    everyone = None
    for home, rows, where in ((True, everyone, places.home), (False, places.rows, places.cores)):
        if not where.size:
            continue
        if home and cores == 1:
            yield 0, True, batch
            continue
        order = np.argsort(where.astype(np.uint16), kind="stable")  # a radix sort
        counts = np.bincount(where, minlength=cores)
        taken = batch.take(pa.array(order if rows is None else rows[order]))
        start = 0
        for core, count in enumerate(counts.tolist()):
            if count:
                yield core, home, taken.slice(start, count)
            start += count
