"""Spark's time and ours: ticks of the window as event times, and the watermark as a tick.

Spark's watermark counts milliseconds and begins at 0, which it also has while nothing is known: then nothing is late.
Times that are plain integers travel as if they were milliseconds.
"""

from __future__ import annotations

from watersmeet.query.durations import UNIT_NS
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side

_US_END = 1 << 63
MILLISECOND = 1_000_000


class SparkClock:
    def __init__(self, window: BoundTimeWindow):
        self._window = window
        #: Ticks of a millisecond, as a fraction.
        ns = MILLISECOND if window.unit is None else UNIT_NS[window.unit]
        self._up, self._down = MILLISECOND // min(ns, MILLISECOND), max(ns // MILLISECOND, 1)

    def micros(self, tick: int) -> int:
        """A tick as microseconds since 1970, rounded down, as Spark keeps event times."""
        micros = tick * self._down * 1000 // self._up
        if not -_US_END <= micros < _US_END:
            raise ValueError(f"time {tick} is beyond what Spark's timestamps hold, when counted in milliseconds")
        return micros

    def watermark(self, milliseconds: int) -> int | None:
        """Spark's watermark as a tick: tuples below it are late. None: it is not known yet."""
        return None if milliseconds <= 0 else -(-milliseconds * self._up // self._down)

    def timer(self, tick: int) -> int:
        """The first millisecond at which the watermark is at least this tick."""
        return -(-tick * self._down // self._up)

    def lateness(self, side: Side) -> int:
        """In milliseconds, rounded up: a little patience more, never less."""
        length = self._window.spec.lateness[SIDES.index(side)]
        return length.amount if self._window.unit is None else -(-length.amount // MILLISECOND)
