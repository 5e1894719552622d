"""From pushed batches to arrivals: ticks, lateness, and the ticks that partners may have.

Both are judged when a batch is pushed, not when it is processed, so that batch mode gives the same results as
processing every push at once. What has been pushed but not processed waits in a `Collected`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.self_join import one_time
from watersmeet.memory import repeated
from watersmeet.query.windows import SIDES, BoundCountWindow, BoundTimeWindow, BoundWindow, Side, other
from watersmeet.window import capacity
from watersmeet.window.capacity import sizes
from watersmeet.window.ticks import Span, span_of
from watersmeet.window.watermark import Watermarks

Array = np.ndarray


class Pushed(NamedTuple):
    """One pushed batch of one side."""

    batch: pa.RecordBatch
    ticks: Array
    span: Span | None  # None: no rows
    late: Array | None
    seen: int  # tuples of the other side that had arrived before


@dataclass(frozen=True)
class Reached:
    """A time that a stream has reached, as the user gave it; which tick it is depends on the time columns of both."""

    value: Any


@dataclass
class Clock:
    """What has arrived so far: counts of both sides and, for windows over time, watermarks.

    self_join: both sides are one stream. A tuple with one time is judged once, for both roles.
    """

    window: BoundWindow
    self_join: bool = False
    counts: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})
    watermarks: Watermarks | None = None

    def __post_init__(self) -> None:
        if self.watermarks is None and isinstance(self.window, BoundTimeWindow):
            lateness = {side: self.window.lateness(side) for side in SIDES}
            idle_after = {side: self.window.idle_after(side) for side in SIDES}
            if self._one_time:  # never behind itself
                lateness, idle_after = dict.fromkeys(SIDES, max(lateness.values())), dict.fromkeys(SIDES)
            self.watermarks = Watermarks(lateness, idle_after)

    @property
    def _one_time(self) -> bool:
        return self.self_join and one_time(self.window)

    def save(self) -> tuple[dict[Side, int], Any]:
        """What it takes to `restore` it. O(1)."""
        return dict(self.counts), None if self.watermarks is None else self.watermarks.save()

    def restore(self, saved: tuple[dict[Side, int], Any]) -> None:
        self.counts = dict(saved[0])
        if self.watermarks is not None:
            self.watermarks.restore(saved[1])

    def push(self, batches: dict[Side, pa.RecordBatch]) -> dict[Side, Pushed]:
        """Read the ticks of batches and count them in, left before right."""
        pushed = {side: self._push(side, batches[side]) for side in SIDES if side in batches}
        if pushed and self._one_time:
            # As right it was judged when the whole batch had come as left, so that only what came before it counts.
            pushed["left"] = pushed["left"]._replace(late=pushed["right"].late)
        return pushed

    def _push(self, side: Side, batch: pa.RecordBatch) -> Pushed:
        first = self.counts[side]
        late = span = None
        if isinstance(self.window, BoundCountWindow):
            ticks = np.arange(first, first + batch.num_rows, dtype=np.int64)
            span = Span(first, first + batch.num_rows - 1, True)
        else:
            assert self.watermarks is not None
            ticks = self.window.read(batch, side)
            if ticks.size:
                span = span_of(ticks)
                late = self.watermarks.late(side, ticks, span)
                self.watermarks.observe(side, span.greatest)
        self.counts[side] += batch.num_rows
        return Pushed(batch, ticks, span, late, self.counts[other(side)])

    def is_ahead(self, side: Side) -> bool:
        """Whether this stream is so far ahead that its next tuples can meet nothing that the other has shown.

        Never where the other counts as idle one day: it must be seen to fall behind.
        """
        window = self.window
        if isinstance(window, BoundCountWindow) or window.idle_after(other(side)) is not None:
            return False
        assert self.watermarks is not None
        own, theirs = self.watermarks.of(side), self.watermarks.of(other(side))
        if own is None or theirs is None:
            return own is not None
        return own - theirs > window.lifetime(other(side)) + window.lateness(other(side))

    def expired_below(self) -> dict[Side, int | None]:
        """Below which ticks each side's tuples have no partners to come."""
        window = self.window
        if isinstance(window, BoundCountWindow):
            return {side: window.expired_below(side, self.counts[side]) for side in SIDES}
        assert self.watermarks is not None
        watermark = self.watermarks.join
        if watermark is None:
            return {"left": None, "right": None}
        return {side: window.expired_below(side, watermark) for side in SIDES}


class Collected:
    """Pushed batches that wait to be processed together; in groups, one after the other, where one array cannot hold
    the text of all.

    flat: bounds that are the same for all tuples are arrays of one value, repeated by their stride, which a device is
    told instead of all. Kernels here would have to be compiled for them.
    """

    def __init__(self, window: BoundWindow, self_join: bool = False, flat: bool = False):
        self._window = window
        self._flat = flat
        self._self_join = self_join
        self._before: list[dict[Side, Arrival]] = []  # groups before this one
        self._begin()

    def _begin(self) -> None:
        self._pushed: dict[Side, list[Pushed]] = {"left": [], "right": []}
        self._sizes: dict[Side, Array] = {}

    def save(self) -> tuple[dict[str, Any], dict[Side, int]]:
        """What it takes to `restore` it: lists that only grow, and how far they had grown. O(groups)."""
        fields = dict(self.__dict__, _before=list(self._before), _sizes=dict(self._sizes))
        return fields, {side: len(self._pushed[side]) for side in SIDES}

    def restore(self, saved: tuple[dict[str, Any], dict[Side, int]]) -> None:
        fields, lengths = saved
        self.__dict__.update(fields)
        for side in SIDES:
            del self._pushed[side][lengths[side] :]

    def add(self, side: Side, pushed: Pushed) -> None:
        if not pushed.batch.num_rows:
            return
        if self._pushed[side]:
            held = self._sizes.get(side)
            more = sizes(pushed.batch) + (sizes(self._pushed[side][0].batch) if held is None else held)
            self._sizes[side] = more
            if (more > capacity.MOST).any():
                self._before.append(self._group())
        self._pushed[side].append(pushed)

    @property
    def rows(self) -> int:
        sides: tuple[Side, ...] = ("left",) if self._self_join else SIDES
        waiting = sum(p.batch.num_rows for side in sides for p in self._pushed[side])
        return waiting + sum(group[side].rows for group in self._before for side in sides if side in group)

    def take(self) -> list[dict[Side, Arrival]]:
        """What was collected, as one arrival a side; mostly in one group."""
        groups, self._before = [*self._before, self._group()], []
        return groups

    def _group(self) -> dict[Side, Arrival]:
        arrivals: dict[Side, Arrival] = {}
        for side in SIDES:
            pushed = self._pushed[side]
            if not pushed:
                continue
            twin = arrivals.get("left") if self._self_join else None
            batch, ticks, span, late = _joined(pushed, None if twin is None else twin.batch)
            if isinstance(self._window, BoundCountWindow):
                bounds = self._positions(side, ticks)
                arrivals[side] = Arrival(batch, ticks, span, late, lambda bounds=bounds: bounds)  # type: ignore[misc]
            else:
                arrivals[side] = Arrival(batch, ticks, span, late, partial(self._window.partners, side, ticks))
        self._begin()
        return arrivals

    def _positions(self, side: Side, ticks: Array) -> tuple[Array, Array]:
        """Positions on the other side that a tuple may pair with, in a count window.

        Those before it: the last n of the `seen` tuples that had arrived. Those after it, which can only be in the same
        collection: while it is among the last n of its own stream. For a left tuple these are found when the right
        tuple probes, so its range ends with what it has seen.
        """
        assert isinstance(self._window, BoundCountWindow)
        pushed = self._pushed[side]
        if self._flat and len(pushed) == 1:
            low, high = self._bounds(side, ticks[[0, -1]], [2])
            if low[0] == low[1] and high[0] == high[1]:  # and so are those between, for they rise with the ticks
                return repeated(low, ticks.size), repeated(high, ticks.size)
        return self._bounds(side, ticks, [p.batch.num_rows for p in pushed])

    def _bounds(self, side: Side, ticks: Array, rows: list[int]) -> tuple[Array, Array]:
        """Of tuples with these ticks, so many of each batch pushed."""
        assert isinstance(self._window, BoundCountWindow)
        pushed = self._pushed[side]
        size = self._window.size(other(side))
        low = np.repeat(np.array([p.seen - size for p in pushed]), rows)
        high = np.repeat(np.array([p.seen - 1 for p in pushed]), rows)
        partners = self._pushed["left"]
        if side == "right" and partners:
            first = int(partners[0].ticks[0])
            edges = np.cumsum([0, *(p.batch.num_rows for p in partners)])
            still = np.searchsorted([p.seen for p in partners], ticks + self._window.size("right"), "right")
            high = np.maximum(high, first + edges[still] - 1)
        return low, high


def _joined(
    pushed: list[Pushed], batch: pa.RecordBatch | None
) -> tuple[pa.RecordBatch, Array, Span, Array | None]:
    """Several pushed batches, none of them empty, as one; `batch` if their tuples have been joined already."""
    one = pushed[0]
    assert one.span is not None
    if len(pushed) == 1:
        return one.batch, one.ticks, one.span, one.late
    if batch is None:
        columns = [pa.concat_arrays(arrays) for arrays in zip(*(p.batch.columns for p in pushed), strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=pushed[0].batch.schema)
    late = None
    if any(p.late is not None for p in pushed):
        late = np.concatenate([np.zeros(p.batch.num_rows, bool) if p.late is None else p.late for p in pushed])
    ticks = np.concatenate([p.ticks for p in pushed])
    return batch, ticks, span_of(ticks), late
