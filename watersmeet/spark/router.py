"""The stage before the shuffle: tuples of one side become packs, each for one core."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import Side
from watersmeet.routing import Places
from watersmeet.spark.bad_rows import good_rows, refuse
from watersmeet.spark.clock import NO_TIME, SparkClock
from watersmeet.spark.narrow import narrowed
from watersmeet.spark.packs import ALL, COPIES, HOME, PACK_BYTES, joined, pack, pieces
from watersmeet.spark.schemas import conform
from watersmeet.spark.spec import Compiled, JoinSpec, compiled
from watersmeet.spark.task import check_query

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
        schema = self._spec.schema(self._side)
        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if held and size + batch.nbytes > MOST_BYTES:
                yield from self._packs(join, joined(held))
                held, rows, size = [], 0, 0
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
            yield self._pack(0, HOME, NO_TIME, narrowed(batch), bad)
            return
        ticks = join.window.read(batch, self._side)
        greatest = clock.micros(int(ticks.max()))
        places = self._spec.route.places(self._side, join.side_plan(self._side).of(batch), ticks)
        cores = len(self._spec.keys)
        if places.everywhere:
            for piece in pieces(batch):
                blob = narrowed(piece)  # one for all cores
                for core in range(cores):
                    yield self._pack(core, ALL, greatest, blob)
        else:
            for core, home, part in _parts(batch, places, cores):
                for piece in pieces(part):
                    yield self._pack(core, home, greatest, narrowed(piece))
        # Core 0 hears of every micro-batch: it checks the plan.
        yield self._pack(0, HOME, greatest, narrowed(batch.slice(0, 0)), bad)

    def _good(self, join: Compiled, clock: SparkClock, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The rows that have a time, and how many have none; an error where these are not to be left out."""
        good = good_rows(join.window, clock, batch, self._side)
        if good is None:
            return batch, 0
        if self._spec.bad_rows == "fail":
            refuse(join.window, clock, batch, self._side, good)
        return batch.filter(good), good.false_count

    def _pack(self, core: int, home: int, micros: int, blob: bytes, bad: int = 0) -> pa.RecordBatch:
        return pack(self._spec, self._side, core, home, micros, blob, bad)


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
