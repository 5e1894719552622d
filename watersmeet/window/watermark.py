"""How far the two streams have come in time, and which tuples are too late.

The watermark of a stream is its greatest time less its lateness; that of the join is the smaller of the two. A tuple
below the join's watermark *when it arrives* is late. It is judged tuple by tuple, in the order of arrival, so that
what is late does not depend on how the stream was cut into batches:

    lateness 2, other stream far ahead     times    5  9  6  8  10
                                           before   -  3  7  7  7      watermark when the tuple arrives
                                                         late

A stream that falls silent would hold the join's watermark for ever. So it may be given a distance, `idle_after`, beyond
which it is idle, and counts as no farther behind than that:

    idle_after 5       watermark of left     10   14   16   20   20   20
                       watermark of right     9    9    9    9   12   18        it wakes up: what is below 15 is late
                       that of the join       9    9   11   15   15   18

Before its first tuple a stream is infinitely far behind.
"""

from __future__ import annotations

import numpy as np

from watersmeet.query.windows import Side, other, plus
from watersmeet.window.ticks import Span

_LEAST = np.iinfo(np.int64).min


def _later(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


class Watermarks:
    def __init__(self, lateness: dict[Side, int], idle_after: dict[Side, int | None]):
        self._lateness = lateness
        self._idle_after = idle_after
        self._greatest: dict[Side, int | None] = {"left": None, "right": None}

    def of(self, side: Side) -> int | None:
        """The watermark of one stream; None before its first tuple."""
        greatest = self._greatest[side]
        return None if greatest is None else greatest - self._lateness[side]

    @property
    def join(self) -> int | None:
        return self._joined("left", self.of("left"), self.of("right"))

    def _joined(self, side: Side, own: int | None, away: int | None) -> int | None:
        """The join's watermark when those of this stream and of the other are these."""
        here, there = _later(own, self._least(side, away)), _later(away, self._least(other(side), own))
        return None if here is None or there is None else min(here, there)

    def _least(self, side: Side, ahead: int | None) -> int | None:
        """What this side counts as at least, when the other is there."""
        idle_after = self._idle_after[side]
        return None if ahead is None or idle_after is None else ahead - idle_after

    def observe(self, side: Side, greatest: int) -> None:
        before = self._greatest[side]
        self._greatest[side] = greatest if before is None else max(before, greatest)

    def late(self, side: Side, ticks: np.ndarray, span: Span) -> np.ndarray | None:
        """Mask of the late ones among newly arrived tuples; None if there are none. O(n), mostly O(1)."""
        away, seen, lateness = other(side), self._greatest[side], self._lateness[side]
        there = self.of(away)
        greatest = span.greatest if seen is None else max(seen, span.greatest)
        in_the_end = self._joined(side, greatest - lateness, there)
        if in_the_end is None or span.least >= in_the_end:
            return None
        least = self._least(side, there)  # what this side counts as however slow it is
        if span.in_order and all(mark is None or span.least >= mark for mark in (self.of(side), least)):
            return None
        before = np.empty(ticks.size, np.int64)
        before[0] = _LEAST if seen is None else seen
        np.maximum.accumulate(ticks[:-1], out=before[1:])
        np.maximum(before[1:], before[0], out=before[1:])
        own = plus(before, -lateness)
        if seen is None:
            own[0] = _LEAST  # infinitely far behind
        held = own if least is None else np.maximum(own, max(least, _LEAST))
        idle_after = self._idle_after[away]
        beyond = np.int64(_LEAST if there is None else max(there, _LEAST))
        limit = np.minimum(held, beyond if idle_after is None else np.maximum(plus(own, -idle_after), beyond))
        late = ticks < limit
        return late if late.any() else None

    def save(self) -> dict[Side, int | None]:
        """What it takes to `restore` it."""
        return dict(self._greatest)

    def restore(self, saved: dict[Side, int | None]) -> None:
        self._greatest = dict(saved)
