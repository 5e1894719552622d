"""The order of results on Spark: within a micro-batch, of each core.

Embedded, tuples have an order of arrival. On Spark two streams have none, and packs come in any order; what tuples of a
micro-batch do have is their times. So here a result belongs to the later of its two tuples by time, of two with the
same time to the right one, and

    outer    results are in order of the times of these tuples, at one time those of left tuples first
    inner    and at one time of one side, those with the oldest partner first
    punctuate(every=n)   as outer, which is more than was asked for

    l at 1, 5    r at 3, 5      all match       inner:  (1, 3)  (5, 3)  (1, 5)  (5, 5)

Rows of a single tuple come behind, by its time: null-extended ones, left before right. Those of semi and anti joins are
in the order of their own times. Nothing is said of tuples of one side with the same time among themselves.

A core has a partition of the result to itself, so each partition of a micro-batch is in order: in `foreachBatch` the
rows of a partition, in a sink of files each file. Between partitions, as anywhere on Spark, there is no order; with
`cores=1` there is one partition. A core keeps its results of a micro-batch in memory until all of them are there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.engine.order import Order
from watersmeet.query.windows import Side
from watersmeet.spark.cache import FiledResults
from watersmeet.spark.spec import Compiled

Array = np.ndarray

#: Rows that are put in their places at a time.
_ROWS = 1 << 17


class OrderedResults(FiledResults):
    """Results that are written when all of them are there, in order."""

    def __init__(self, query: Path, join: Compiled, order: Order):
        super().__init__(query, join.results, join.left_only, join.filed)
        self._join = join
        self._inner = order == "inner"
        self._held: list[pa.RecordBatch] = []

    def _take(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)

    def close(self) -> str | None:
        if self._held:
            table = pa.Table.from_batches(self._held, schema=self._schema)
            places = self._places(table)
            for start in range(0, places.size, _ROWS):
                part = table.take(pa.array(places[start : start + _ROWS])).combine_chunks()
                for batch in part.to_batches():
                    super()._take(batch)
            self._held = []
        return super().close()

    def _places(self, table: pa.Table) -> Array:
        """Of which row each is to have the place. O(rows log rows)."""
        spec = self._join.spec
        left, has_left = self._ticks(table, "left", spec.left.get_field_index(spec.window.time[0]))
        if self._join.left_only:
            return np.argsort(left, kind="stable")
        at = len(spec.left) + spec.right.get_field_index(spec.window.time[1])
        right, has_right = self._ticks(table, "right", at)
        alone = np.where(has_left & has_right, 0, np.where(has_left, 1, 2))
        of_right = right >= left  # whom a pair belongs to; rows of one tuple are apart anyway
        later = np.where(alone == 1, left, np.where(alone == 2, right, np.maximum(left, right)))
        keys = [of_right, later, alone]
        if self._inner:
            keys.insert(0, np.minimum(left, right))
        return np.lexsort(keys)

    def _ticks(self, table: pa.Table, side: Side, column: int) -> tuple[Array, Array]:
        """The times of one side, and which rows have one; 0 where there is none."""
        name = self._join.spec.window.time[0 if side == "left" else 1]
        times = table.column(column).combine_chunks()
        known = np.asarray(times.is_valid())
        ticks = np.zeros(len(times), np.int64)
        ticks[known] = self._join.window.read(pa.RecordBatch.from_arrays([times.drop_null()], names=[name]), side)
        return ticks, known
