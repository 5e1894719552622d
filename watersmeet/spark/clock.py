"""Spark's time and ours: ticks of the window as event times of packs, and Spark's watermark as a tick.

Spark's watermark counts milliseconds since 1970, begins at 0 and never goes below: taken as it is, times before 1970
would never be over. So integers, which travel as if they were milliseconds since 1970, and times that may lie before
1970, travel 2,000 years later than they are, 1969-12-31 as 3969-12-31; the calendar repeats every 400 years, so only
the year looks odd in Spark's own progress. Times before the year -29 cannot travel. All other times travel as they
are: what is before and behind the join in the same query has the same clock.

A side's watermark may be ahead of Spark's, which is then held back for those behind the join (event_time.py):

    Spark's watermark       11:59:50
    held back by               10 s
    watermark of the side   12:00:00     rows below it are late

0 is left to mean that nothing is known yet: nothing is late then. `NO_TIME` is for packs that say nothing of time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from watersmeet.query.durations import UNIT_NS
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side, other

MILLISECOND = 1_000_000
#: How much later times travel, in milliseconds: five times 400 years. Part of what is in checkpoints (`spec.VERSION`).
SHIFT = 5 * 146_097 * 86_400_000
NO_TIME = 0

_MS_END = (1 << 63) // 1000  # microseconds are int64
_NEVER = (1 << 63) - 1


@dataclass(frozen=True)
class Timing:
    """How the times of a join, and its two watermarks, are Spark's."""

    later: bool = True  # times travel 2,000 years later than they are
    held_back: tuple[int, int] = (0, 0)  # by how many milliseconds Spark's watermark is behind that of each side
    never_late: tuple[bool, bool] = (False, False)  # rows that an operator with state has let out below the watermark


class SparkClock:
    def __init__(self, window: BoundTimeWindow, timing: Timing):
        self._window = window
        self._timing = timing
        self._shift = SHIFT if timing.later else 0
        #: Ticks of a millisecond, as a fraction.
        ns = MILLISECOND if window.unit is None else UNIT_NS[window.unit]
        self._up, self._down = MILLISECOND // min(ns, MILLISECOND), max(ns // MILLISECOND, 1)
        #: The first and the last tick that can travel.
        self.first = max(-((self._shift - 1) * self._up // self._down), -_NEVER) if timing.later else 0
        self.last = min(((_MS_END - self._shift) * self._up - 1) // self._down, _NEVER)
        years = "the years -29 to 290,000" if timing.later else "the years 1970 to 290,000"
        self.reach = f"{self.first} to {self.last}" if window.unit is None else years
        self.since_1970 = not timing.later

    def micros(self, tick: int) -> int:
        """The event time of a pack with this tick: microseconds, rounded down."""
        assert self.first <= tick <= self.last
        return tick * self._down * 1000 // self._up + self._shift * 1000

    def watermark(self, side: Side, milliseconds: int) -> int | None:
        """The watermark of a side when Spark's is this, as a tick: no tuple below it comes any more, but late ones.
        None: it is not known yet."""
        if milliseconds <= 0:
            return None
        return -(-(milliseconds - self._shift + self._held_back(side)) * self._up // self._down)

    def timer(self, side: Side, tick: int) -> int:
        """Spark's watermark when that of the side is first at least this tick."""
        return min((tick - 1) * self._down // self._up + 1 + self._shift - self._held_back(side), _NEVER)

    def never_late(self, side: Side) -> bool:
        return self._timing.never_late[SIDES.index(side)]

    def _held_back(self, side: Side) -> int:
        return self._timing.held_back[SIDES.index(side)]

    def delay(self, side: Side) -> int:
        """Of the watermark that Spark is asked for."""
        return self.lateness(side) + self._held_back(side)

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


def shown(watermark: str | None, later: bool = True) -> str | None:
    """The watermark in a progress record of Spark's, as the time that it stands for; None before there is one.

    later: times travel 2,000 years later than they are.

    >>> shown("4026-01-05T14:30:00.120Z"), shown("3969-12-31T23:59:59.000Z"), shown("1970-01-01T00:00:00.000Z")
    ('2026-01-05T14:30:00.120Z', '1969-12-31T23:59:59.000Z', None)
    >>> shown("2026-01-05T14:30:00.120Z", later=False)
    '2026-01-05T14:30:00.120Z'
    """
    match = re.fullmatch(r"\+?(\d+)(-.+)", watermark or "")
    if match is None or match[0].startswith("1970-01-01T00:00:00"):
        return None
    return f"{int(match[1]) - 2000:04}{match[2]}" if later else watermark
