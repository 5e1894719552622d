"""Spark's time and ours: ticks of the window as event times of packs, and Spark's watermark as a tick.

Spark's watermark counts milliseconds since 1970, begins at 0 and never goes below: taken as it is, times before 1970
would never be over. So times travel later than they are, by a constant that puts all of them behind 1970:

    timestamps, dates      2,000 years: 1969-12-31 travels as 3969-12-31 (the calendar repeats every 400 years), and
                           Spark's own progress shows such years; times before the year -29 cannot travel
    integers, durations    2^52 milliseconds; integers travel as if they were milliseconds, of which 2^52 either way

0 is left to mean that nothing is known yet: nothing is late then. `NO_TIME` is for packs that say nothing of time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from watersmeet.query.durations import UNIT_NS
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side, other

MILLISECOND = 1_000_000
#: How much later times travel, in milliseconds. Part of what is in checkpoints (`spec.VERSION`).
CALENDAR_SHIFT = 5 * 146_097 * 86_400_000  # five times the 400 years after which the calendar repeats
COUNT_SHIFT = 1 << 52
NO_TIME = 0

_MS_END = (1 << 63) // 1000  # microseconds are int64
_NEVER = (1 << 63) - 1


class SparkClock:
    def __init__(self, window: BoundTimeWindow):
        self._window = window
        calendar = window.unit is not None and not any(map(pa.types.is_duration, window.types))
        self._shift = CALENDAR_SHIFT if calendar else COUNT_SHIFT
        #: Ticks of a millisecond, as a fraction.
        ns = MILLISECOND if window.unit is None else UNIT_NS[window.unit]
        self._up, self._down = MILLISECOND // min(ns, MILLISECOND), max(ns // MILLISECOND, 1)
        #: The first and the last tick that can travel.
        first, end = 1 - self._shift, min(_MS_END - self._shift, COUNT_SHIFT)
        self.first = max(-(-first * self._up // self._down), -_NEVER)
        self.last = min((end * self._up - 1) // self._down, _NEVER)
        self.reach = "the years -29 to 144,000" if calendar else f"{self.first} to {self.last}"

    def micros(self, tick: int) -> int:
        """The event time of a pack with this tick: microseconds, rounded down."""
        assert self.first <= tick <= self.last
        return tick * self._down * 1000 // self._up + self._shift * 1000

    def watermark(self, milliseconds: int) -> int | None:
        """Spark's watermark as a tick: tuples below it are late. None: it is not known yet."""
        return None if milliseconds <= 0 else -(-(milliseconds - self._shift) * self._up // self._down)

    def timer(self, tick: int) -> int:
        """The first millisecond at which the watermark is at least this tick."""
        return min((tick - 1) * self._down // self._up + 1 + self._shift, _NEVER)

    def lateness(self, side: Side) -> int:
        """In milliseconds, rounded up: a little patience more, never less."""
        length = self._window.spec.lateness[SIDES.index(side)]
        return length.amount if self._window.unit is None else -(-length.amount // MILLISECOND)

    def idle_after(self, side: Side) -> int | None:
        """In milliseconds, rounded up, like the lateness."""
        length = self._window.spec.idle_after[SIDES.index(side)]
        if length is None:
            return None
        return length.amount if self._window.unit is None else -(-length.amount // MILLISECOND)

    def marker(self, side: Side, tick: int) -> int:
        """The event time that tells the watermark of `side` that the other side has come to this tick."""
        idle_after = self.idle_after(side)
        assert idle_after is not None
        behind = self.lateness(other(side)) + idle_after - self.lateness(side)
        return (self.micros(tick) // 1000 - behind) * 1000


_SHOWN = re.compile(r"\+?(\d+)-(\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z")
_CALENDAR_END = 20_000  # Spark's timestamps end with the year 9999


def shown(watermark: str | None) -> str | None:
    """The watermark in a progress record of Spark's, as the time that it stands for; None before there is one.

    >>> shown("4026-01-05T14:30:00.120Z"), shown("3969-12-31T23:59:59.000Z"), shown("1970-01-01T00:00:00.000Z")
    ('2026-01-05T14:30:00.120Z', '1969-12-31T23:59:59.000Z', None)
    >>> shown("144683-05-23T16:29:31.496Z")  # of integer times, which travel as milliseconds
    '1000'
    """
    match = _SHOWN.fullmatch(watermark or "")
    if match is None or match[0].startswith("1970-01-01T00:00:00"):
        return None
    year, rest = int(match[1]), match[2]
    if year < _CALENDAR_END:
        return f"{year - 2000:04}-{rest}Z"
    cycles, into = divmod(year - 1970, 400)
    moment = datetime.fromisoformat(f"{1970 + into}-{rest}+00:00") - datetime(1970, 1, 1, tzinfo=UTC)
    return str(moment // timedelta(milliseconds=1) + cycles * 146_097 * 86_400_000 - COUNT_SHIFT)
