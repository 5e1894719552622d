"""How one side's watermark hears of the other's time, where it has `idle_after`.

Spark takes the least of the two sides' watermarks, and 0 for a side that has shown nothing: a silent side holds time
for ever. So a side's watermark is also fed with markers, packs without tuples, which say how far the other has come:

    left  tuples up to 100 ----------------------------> watermark of left:  100 - lateness
                  |
                  +--> marker for the right, whose time makes it
                       100 - lateness - idle_after ----+
                                                       v
    right tuples up to  20 ---------------- greatest ----> watermark of right

The least of the two is then what `window/watermark.py` says. For this a source is read twice, the second time its time
column only; Spark has one source for both uses, so that they always are of the same rows. Its checkpoint counts the
uses, so that idle_after cannot come or go with a restart. (A branch that is always there, behind a filter that is never
true, would be read: Spark leaves streaming plans unpruned.)
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.query.windows import SIDES, Side, other
from watersmeet.spark.bad_rows import good_rows
from watersmeet.spark.clock import NO_TIME
from watersmeet.spark.packs import HOME, nothing, pack
from watersmeet.spark.schemas import conform
from watersmeet.spark.spec import JoinSpec, compiled


class Marker:
    """A function for `mapInArrow`: the times of the other side become one marker for this one."""

    def __init__(self, spec: JoinSpec, side: Side):
        self._spec = spec
        self._side: Side = side

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        join = compiled(self._spec)
        window, clock = join.window, join.clock
        away = other(self._side)
        name = window.spec.time[SIDES.index(away)]
        times = pa.schema([self._spec.schema(away).field(name)])
        greatest = None
        for batch in batches:
            batch = conform(batch, times)
            good = good_rows(window, clock, batch, away)  # the router says what is wrong with the others
            batch = batch if good is None else batch.filter(good)
            if batch.num_rows:
                here = int(window.read(batch, away).max())
                greatest = here if greatest is None else max(greatest, here)
        if greatest is not None:
            micros = max(clock.marker(self._side, greatest), NO_TIME)
            yield pack(self._spec, self._side, 0, HOME, micros, nothing(self._spec.schema(self._side)))
