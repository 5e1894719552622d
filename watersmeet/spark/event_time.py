"""The event time of results, for operators with state that come behind the join in the same query.

Let W be Spark's watermark in a micro-batch and w the one before. An operator behind the join has let go, by then, of
all that is not later than w; so every result must be later than w. The two sides of the join have watermarks of their
own, L and R, below which no more rows come. A result may come out because

    a row of the right arrives         its time is at least R, so its left partner's is at least R - after
    a row of the left arrives          its time is at least L
    a left row has found no partner    its time + after is below R, and was not below the R of the micro-batch before

With the left row's time as the event time all three are later than w, if Spark's watermark is held back by a little
more than `after`: W = R - after - 1 ms, and W = L or less. (`hopping`: by its size instead of `after`. The right row's
time: likewise, with `before`.) That takes a right side whose watermark is made here. One that a user has made is R
itself, and Spark allows no other; there, the time at which a result was decided can be an event time, in a column of
its own: of a pair the later of its two times, of a row without a partner the last time that a partner could have had.
That is never below w, whoever makes the watermarks. A join that picks one partner lets all rows out like those without
a partner.

Worked example: within("10 seconds"), lateness 0, all rows up to 12:00:30 are there. The join's watermark is 12:00:30,
Spark's 12:00:19.999. A right row of 12:00:30 may still find a left one of 12:00:20: a count by the minute of the left
row's time waits for it, and is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from watersmeet.query.windows import SIDES, BoundTimeWindow, Hopping, Side, Within, other
from watersmeet.spark.checks import WATERMARK
from watersmeet.spark.clock import MILLISECOND, Timing
from watersmeet.spark.watermark import JOINS, Declared

AUTO = "auto"
#: Spark takes what is at the watermark for late, not only what is below.
_MORE = 1

#: Sides whose time every result has.
_ALWAYS: dict[str, tuple[Side, ...]] = {
    "inner": SIDES,
    "left": ("left",),
    "right": ("right",),
    "full": (),
    "semi": ("left",),
    "anti": ("left",),
}


@dataclass(frozen=True)
class EventTime:
    column: str  # of the results
    side: Side | None  # whose time it is; None: a column of its own
    delay: int  # milliseconds


@dataclass(frozen=True)
class Given:
    """What there is to choose an event time from."""

    window: BoundTimeWindow
    how: str
    columns: list[str]  # of the results
    names: dict[Side, str]  # of the time columns, among these
    watermarks: dict[Side, Declared | None]
    types: list[Any]  # of the time columns, as Spark's
    picks: bool = False  # one partner for each left row

    def reach(self, side: Side) -> int:
        """How much older than the rows that arrive a result's time of this side may be, in milliseconds."""
        spec = self.window.spec
        length = spec.size if isinstance(spec, Hopping) else spec.after if side == "left" else spec.before
        return -(-length.amount // MILLISECOND)

    def obstacle(self, side: Side) -> str | None:
        """Why results cannot have the time of this side as their event time."""
        found = self.watermarks[other(side)]
        if self.picks and side == "right":
            return "with pick, rows come out by the left row's time"
        if side not in _ALWAYS[self.how]:
            missing = "no" if self.how in ("semi", "anti") else "not always a"
            return f"results of a join with how={self.how!r} have {missing} {side} row"
        if found is not None and self.reach(side) > 0:
            return (
                f"{other(side)} has {found}, and Spark allows no other, but results come later by the window's length: "
                f"leave withWatermark out of {other(side)}, and give the window its lateness"
            )
        return None


def chosen(event_time: Any, given: Given, later: bool, keep_late: bool) -> tuple[EventTime | None, Timing]:
    """The event time of the results, and what that makes of the watermarks."""
    let_out = [found is not None and found.let_out for found in given.watermarks.values()]
    plain = Timing(later, (0, 0), (let_out[0], let_out[1]))
    why_none = _why_none(given, later, keep_late)
    if event_time is None or (event_time == AUTO and why_none is not None):
        return None, plain
    if why_none is not None:
        raise ValueError(f"event_time {event_time!r} cannot be: {why_none}")
    if event_time == AUTO:
        free = [side for side in SIDES if given.obstacle(side) is None]
        return _of_side(free[0], given, plain) if free else (None, plain)
    if not isinstance(event_time, str) or not event_time:
        raise TypeError(f"event_time must be 'auto', None, or the name of a column of the result, got {event_time!r}")
    for side in SIDES:
        if given.names.get(side) == event_time:
            obstacle = given.obstacle(side)
            if obstacle is not None:
                raise ValueError(
                    f"event_time {event_time!r} cannot be: {obstacle}. Or give the name of a new column, which gets "
                    f"the time at which each result was decided: event_time='decided'"
                )
            return _of_side(side, given, plain)
    if event_time in given.columns:
        times = " or ".join(repr(name) for name in given.names.values())
        raise ValueError(
            f"event_time {event_time!r} is a column of the result, but not its time; give {times}, or the name of a "
            f"new column"
        )
    if any(length.amount % 1000 for _, length in given.window.spec.lengths()):
        raise ValueError(f"event_time {event_time!r} cannot be: {given.window.spec} is finer than Spark's times")
    return _held_back(EventTime(event_time, None, _lateness(given)), given, plain, _MORE)


def _why_none(given: Given, later: bool, keep_late: bool) -> str | None:
    """Why results have no event time at all."""
    if keep_late:
        return (
            "late='keep' puts rows below the watermark among the results; leave it out, or have the results of two "
            "queries"
        )
    if not all(isinstance(each, TimestampType) for each in given.types):
        return "the time columns are not timestamps; cast them with cast('timestamp') before the join"
    if later:
        return "before_1970=True gives the join a clock of its own; leave it out"
    return None


def _of_side(side: Side, given: Given, plain: Timing) -> tuple[EventTime, Timing]:
    reach = given.reach(side)
    return _held_back(EventTime(given.names[side], side, _lateness(given) + reach), given, plain, reach + _MORE)


def _held_back(found: EventTime, given: Given, plain: Timing, by: int) -> tuple[EventTime, Timing]:
    left, right = (0 if given.watermarks[side] is not None else by for side in SIDES)
    return found, Timing(plain.later, (left, right), plain.never_late)


def _lateness(given: Given) -> int:
    return max(-(-length.amount // MILLISECOND) for length in given.window.spec.lateness)


def marked(results: Any, found: EventTime, given: Given, name: str) -> Any:
    """The results with their event time declared, as withWatermark and transformWithState declare one."""
    before = [one for watermark in given.watermarks.values() if watermark is not None for one in watermark.joins]
    metadata = {WATERMARK: found.delay, JOINS: [*before, name]}
    time = F.col(quoted(found.column)) if found.side is not None else _decided(given)
    others = [F.col(quoted(name)) for name in given.columns]
    if found.side is None:
        return results.select(*others, time.alias(found.column, metadata=metadata))
    at = given.columns.index(found.column)
    return results.select(*others[:at], time.alias(found.column, metadata=metadata), *others[at + 1 :])


def _decided(given: Given) -> Any:
    """When a result was certain, as an expression over the results."""
    waits = {side: end_of_wait(given.window.spec, side, F.col(quoted(name))) for side, name in given.names.items()}
    if given.picks:
        return waits["left"]
    if len(given.names) == 1:
        return next(iter(waits.values()))
    left, right = (F.col(quoted(given.names[side])) for side in SIDES)
    alone = F.when(right.isNull(), waits["left"]).when(left.isNull(), waits["right"])
    return alone.otherwise(F.greatest(left, right))


def end_of_wait(spec: Within | Hopping, side: Side, time: Any) -> Any:
    """The last time that a partner of a row of this side may have."""
    micros = F.unix_micros(time)
    if isinstance(spec, Hopping):
        size, slide = spec.size.amount // 1000, spec.slide.amount // 1000
        last = F.greatest(micros - F.pmod(micros, F.lit(slide)) + F.lit(size - 1), micros)
    else:
        last = micros + F.lit((spec.after if side == "left" else spec.before).amount // 1000)
    return F.timestamp_micros(last)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def travels_later(window: BoundTimeWindow, before_1970: bool) -> bool:
    """Whether times need a clock of their own."""
    return before_1970 or window.unit is None or any(pa.types.is_duration(each) for each in window.types)
