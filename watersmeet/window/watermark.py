"""How far the two streams have come in time, and which tuples are too late.

The watermark of a stream is its greatest time less its lateness; that of the join is the smaller of the two. A tuple
below the join's watermark *when it arrives* is late. It is judged tuple by tuple, in the order of arrival, so that
what is late does not depend on how the stream was cut into batches:

    lateness 2, other stream far ahead     times    5  9  6  8  10
                                           before   -  3  7  7  7      watermark when the tuple arrives
                                                         late
"""

from __future__ import annotations

import numpy as np

from watersmeet.query.windows import Side, other
from watersmeet.window.ticks import Span


class Watermarks:
    def __init__(self, lateness: dict[Side, int]):
        self._lateness = lateness
        self._greatest: dict[Side, int | None] = {"left": None, "right": None}

    def of(self, side: Side) -> int | None:
        """The watermark of one stream; None before its first tuple."""
        greatest = self._greatest[side]
        return None if greatest is None else greatest - self._lateness[side]

    @property
    def join(self) -> int | None:
        left, right = self.of("left"), self.of("right")
        return None if left is None or right is None else min(left, right)

    def observe(self, side: Side, greatest: int) -> None:
        before = self._greatest[side]
        self._greatest[side] = greatest if before is None else max(before, greatest)

    def late(self, side: Side, ticks: np.ndarray, span: Span) -> np.ndarray | None:
        """Mask of the late ones among newly arrived tuples; None if there are none. O(n), mostly O(1)."""
        limit = self.of(other(side))
        if limit is None or span.least >= limit:
            return None
        seen = self._greatest[side]
        if span.in_order and (seen is None or span.least >= seen - self._lateness[side]):
            return None
        before = np.empty(ticks.size, np.int64)
        greatest = self._greatest[side]
        before[0] = np.iinfo(np.int64).min if greatest is None else greatest
        np.maximum.accumulate(ticks[:-1], out=before[1:])
        np.maximum(before[1:], before[0], out=before[1:])
        lateness = self._lateness[side]
        least = np.iinfo(np.int64).min
        own = np.maximum(before, least + lateness) - lateness
        late = ticks < np.minimum(own, limit)
        return late if late.any() else None

    def copy(self) -> Watermarks:
        twin = Watermarks(self._lateness)
        twin._greatest = dict(self._greatest)
        return twin
