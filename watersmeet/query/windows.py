"""Windows: which two tuples are near enough in time, or in number, to be a pair.

Every window is one rule: a tuple with tick t may pair with tuples of the other stream whose ticks lie in
[low(t), high(t)]. A tick is a time (int64, in the finer unit of the two time columns) or, for `last`, the position
of the tuple in its stream.

    within(before, after)   l at t:  r in [t - before, t + after]        r at t:  l in [t - after, t + before]
    hopping(size, slide)    [start of the first window with t, end of the last window with t]
    tumbling(size)          hopping(size, size)
    last(n, n_right)        the last n positions of the other stream when the tuple arrives

Worked example: hopping(10, 4), t = 9. Windows start at multiples of 4, those that contain 9 are 0..9, 4..13 and
8..17: partners lie in [0, 17].

low and high never decrease with t, so a tuple can be dropped once its high is below the watermark, and everything
below one tick (`expired_below`) is dropped together.

The specifications here know column names and lengths; `bind` turns one into a `BoundWindow` for two schemas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.memory import room
from watersmeet.query.durations import UNIT_NS, Duration, duration, nanoseconds, read
from watersmeet.query.kernels import add_held

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
_LEAST, _GREATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)
#: The name of the time column, unless another is given.
TIME = "ts"
_EPOCH, _LONGEST = datetime(1970, 1, 1), timedelta(days=999_999_999)


def other(side: Side) -> Side:
    return "right" if side == "left" else "left"


class Said(NamedTuple):
    time: tuple[bool, bool]
    lateness: tuple[bool, bool]


ALL_SAID = Said((True, True), (True, True))


@dataclass(frozen=True)
class TimeWindow:
    """What all windows over time share: the time column and the lateness of each side, and how far each may be behind
    the other before it is idle, and no longer waited for (None: however far).

    said: of which sides the caller has named the time column, and of which the lateness. The others have defaults,
    which give way to the watermark that a stream has already (on Spark).
    """

    time: tuple[str, str]
    lateness: tuple[Duration, Duration]
    idle_after: tuple[Duration | None, Duration | None] = field(default=(None, None), kw_only=True)
    said: Said = field(default=ALL_SAID, kw_only=True, compare=False)

    def lengths(self) -> tuple[tuple[str, Duration], ...]:
        raise NotImplementedError

    def bind(self, left: pa.Schema, right: pa.Schema) -> BoundTimeWindow:
        """Check the time columns and fix the unit of ticks."""
        return self._bound(
            _time_type(left, self.time[0], "left"),
            _time_type(right, self.time[1], "right"),
        )

    def bind_one(self, schema: pa.Schema, side: Side) -> BoundTimeWindow:
        """As if both sides had the time column of this one: to check it while the other is not known."""
        found = _time_type(schema, self.time[SIDES.index(side)], side)
        return self._bound(found, found)

    def _bound(self, *types: pa.DataType) -> BoundTimeWindow:
        clocks = [_clock(t) for t in types]
        if clocks[0] != clocks[1]:
            raise TypeError(
                f"time columns cannot be compared: left {self.time[0]!r} is {types[0]}, right {self.time[1]!r} is "
                f"{types[1]}; cast one of them"
            )
        unitless = clocks[0] == "integer"
        of_sides = [(f"lateness ({side})", d) for side, d in zip(SIDES, self.lateness, strict=True)]
        of_sides += [(f"idle_after ({side})", d) for side, d in zip(SIDES, self.idle_after, strict=True) if d]
        for name, length in (*self.lengths(), *of_sides):
            if length.unitless != unitless and length.amount != 0:
                kind = "a number such as 10" if unitless else "a length such as '10 seconds'"
                raise TypeError(f"{name} must be {kind} for time columns of type {types[0]}, got {str(length)!r}")
        unit = None if unitless else self._tick_unit(types)
        if isinstance(self, Hopping):
            for name, length in self.lengths():
                if length.amount // (1 if unit is None else UNIT_NS[unit]) > _GREATEST // 2:
                    raise ValueError(f"{name} is too long for times of type {types[0]}: {length}")
        return BoundTimeWindow(self, types, unit)  # type: ignore[arg-type]

    def _tick_unit(self, types: tuple[pa.DataType, ...]) -> str:
        """The coarsest unit in which both columns, and lengths that must be exact, are whole."""
        wanted = min(UNIT_NS[_unit(t)] for t in types)
        if isinstance(self, Hopping):
            for _, length in self.lengths():
                wanted = min(wanted, next(ns for ns in UNIT_NS.values() if length.amount % ns == 0))
        return next(unit for unit, ns in UNIT_NS.items() if ns == wanted)

    def _written(self, name: str, *lengths: Duration) -> str:
        """As a user would write it."""
        left, right = self.time
        given = [_argument(length) for length in lengths]
        given.append(f"time={left!r}" if left == right else f"time={self.time!r}")
        if any(late.amount for late in self.lateness):
            given.append(f"lateness={_arguments(self.lateness)}")
        if self.idle_after != (None, None):
            given.append(f"idle_after={_arguments(self.idle_after)}")
        return f"{name}({', '.join(given)})"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"

    def _time_text(self) -> str:
        left, right = self.time
        text = f"time {left}" if left == right else f"time {left} and {right}"
        late = " and ".join(dict.fromkeys(str(d) for d in self.lateness))
        text = f"{text}, lateness {late}"
        if self.idle_after != (None, None):
            text += ", idle after " + " and ".join(dict.fromkeys(str(d or "never") for d in self.idle_after))
        return text


@dataclass(frozen=True, repr=False)
class Within(TimeWindow):
    before: Duration
    after: Duration

    def lengths(self) -> tuple[tuple[str, Duration], ...]:
        return ("before", self.before), ("after", self.after)

    def __repr__(self) -> str:
        return self._written("within", *([self.before] if self.before == self.after else [self.before, self.after]))

    def __str__(self) -> str:
        if self.before == self.after:
            return f"within {self.before} ({self._time_text()})"
        return f"within {self.before} before and {self.after} after ({self._time_text()})"


@dataclass(frozen=True, repr=False)
class Hopping(TimeWindow):
    size: Duration
    slide: Duration

    def lengths(self) -> tuple[tuple[str, Duration], ...]:
        return ("size", self.size), ("slide", self.slide)

    def __repr__(self) -> str:
        if self.size == self.slide:
            return self._written("tumbling", self.size)
        return self._written("hopping", self.size, self.slide)

    def __str__(self) -> str:
        if self.size == self.slide:
            return f"tumbling {self.size} ({self._time_text()})"
        return f"hopping {self.size} every {self.slide} ({self._time_text()})"


@dataclass(frozen=True, repr=False)
class Last:
    """Count-based: n tuples of the left stream, n_right of the right one."""

    n: int
    n_right: int

    def bind(self, left: pa.Schema, right: pa.Schema) -> BoundCountWindow:
        return BoundCountWindow(self)

    def __repr__(self) -> str:
        return f"last({self.n})" if self.n == self.n_right else f"last({self.n}, {self.n_right})"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"

    def __str__(self) -> str:
        return f"last {self.n}" if self.n == self.n_right else f"last {self.n} of left, {self.n_right} of right"


Window = Within | Hopping | Last


def _argument(length: Duration | None) -> str:
    return str(length) if length is None or length.unitless else repr(str(length))


def _arguments(lengths: tuple[Duration | None, Duration | None]) -> str:
    """One for both sides, or one for each."""
    left, right = (_argument(each) for each in lengths)
    return left if left == right else f"({left}, {right})"


def within(before: Any, after: Any = None, time: Any = None, lateness: Any = None, idle_after: Any = None) -> Within:
    """Pairs with -before <= r.time - l.time <= after, both ends inclusive; `after` is `before` unless given.

    Lengths are text ("10 seconds"), timedelta, or whole numbers where the time columns are integers. `time` is the
    name of the time column, "ts" unless given, or a pair (left, right). `lateness` is how far a stream may be out of
    order, 0 unless given, one for both or a pair. `idle_after` is how far in time a stream may be behind the other
    before that one waits for it no longer, one for both or a pair; None: however far.
    """
    first = duration(before, "before")
    second = first if after is None else duration(after, "after")
    names, late, said = _times(time, lateness)
    return Within(names, late, first, second, idle_after=_idle_after(idle_after), said=said)


def tumbling(size: Any, time: Any = None, lateness: Any = None, idle_after: Any = None) -> Hopping:
    """Pairs in the same aligned interval of length `size`."""
    return hopping(size, size, time, lateness, idle_after)


def hopping(size: Any, slide: Any, time: Any = None, lateness: Any = None, idle_after: Any = None) -> Hopping:
    """Pairs that some aligned window of length `size`, moved in steps of `slide`, contains; each pair once."""
    lengths = duration(size, "size"), duration(slide, "slide")
    for name, length, value in zip(("size", "slide"), lengths, (size, slide), strict=True):
        if length.amount == 0:
            raise ValueError(f"{name} must be more than nothing, got {value!r}")
    names, late, said = _times(time, lateness)
    return Hopping(names, late, *lengths, idle_after=_idle_after(idle_after), said=said)


def last(n: int, n_right: int | None = None) -> Last:
    """Count-based: when the later of two arrives, the earlier is among the last n (right: n_right) of its stream."""
    n_right = n if n_right is None else n_right
    for name, value in (("n", n), ("n_right", n_right)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise TypeError(f"{name} must be a whole number of tuples, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    return Last(int(n), int(n_right))


def _times(time: Any, lateness: Any) -> tuple[tuple[str, str], tuple[Duration, Duration], Said]:
    """With the defaults, "ts" and nothing, where they are None; and where they are not."""
    names, lengths = _pair(time), _pair(lateness)
    if not (len(names) == 2 and all(name is None or isinstance(name, str) for name in names)):
        raise TypeError(f"time must be a column name or a pair of them (left, right), got {time!r}")
    if len(lengths) != 2:
        raise TypeError(f"lateness must be one length of time or a pair of them (left, right), got {lateness!r}")
    said = Said((names[0] is not None, names[1] is not None), (lengths[0] is not None, lengths[1] is not None))
    left, right = (duration(0 if length is None else length, "lateness") for length in lengths)
    return (TIME if names[0] is None else names[0], TIME if names[1] is None else names[1]), (left, right), said


def _pair(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _idle_after(idle_after: Any) -> tuple[Duration | None, Duration | None]:
    both = idle_after if isinstance(idle_after, tuple | list) else (idle_after, idle_after)
    if len(both) != 2:
        raise TypeError(
            f"idle_after must be a length of time, None, or a pair of them (left, right), got {idle_after!r}"
        )
    left, right = (None if one is None else duration(one, "idle_after") for one in both)
    return left, right


def _time_type(schema: pa.Schema, name: str, side: Side) -> pa.DataType:
    if name not in schema.names:
        raise ValueError(
            f"time column {name!r} is not in the {side} stream, whose columns are {', '.join(schema.names)}; "
            f"name it with time="
        )
    found = schema.field(name).type
    if pa.types.is_dictionary(found):
        found = found.value_type
    if _clock(found) is None:
        raise TypeError(
            f"time column {name!r} of the {side} stream is {found}; it must be a timestamp, a date, a duration or an "
            f"integer: cast it"
        )
    return found


def _clock(t: pa.DataType) -> str | None:
    """What kind of time a type counts; only like kinds compare."""
    if pa.types.is_integer(t):
        return "integer"
    if pa.types.is_timestamp(t):
        return "timestamp" if t.tz is None else "timestamp with zone"
    if pa.types.is_date(t):
        return "timestamp"
    if pa.types.is_duration(t):
        return "duration"
    return None


def _since_1970(value: str | date, parameter: str, zoned: bool) -> int:
    """Nanoseconds since 1970 of a time as Python has them."""
    if value != value:  # pandas' NaT is a datetime, too
        raise ValueError(f"{parameter} must be a time, got {value!r}; leave it out, or give a time")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{parameter} must be a time as in ISO 8601, got {value!r}; write it as in '2026-01-05 14:30:00'"
            ) from None
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if zoned != (value.tzinfo is not None):
        raise TypeError(f"{parameter} must be a time {'with' if zoned else 'without'} a zone, got {value!r}")
    since = value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH.replace(tzinfo=UTC)
    return read(since, parameter).amount


def _unit(t: pa.DataType) -> str:
    return "s" if pa.types.is_date32(t) else "ms" if pa.types.is_date64(t) else t.unit


def plus(ticks: np.ndarray, delta: int | np.ndarray) -> np.ndarray:
    """ticks + delta, held at the ends of int64 instead of wrapping round."""
    if isinstance(delta, np.ndarray):
        up, down = np.maximum(delta, 0), np.minimum(delta, 0)
        raised = np.minimum(ticks, _GREATEST - up) + up
        return np.maximum(raised, _LEAST - down) + down
    if abs(delta) > _GREATEST:  # more than int64 holds: in several steps, of which three reach any end from any tick
        step = _GREATEST if delta > 0 else -_GREATEST
        rest = delta - step if abs(delta) < 3 * _GREATEST else 2 * step
        return plus(plus(ticks, step), rest)
    moved = room(ticks.size, np.int64)
    add_held(ticks, delta, moved)
    return moved


@dataclass(frozen=True)
class BoundTimeWindow:
    """A time window over two known time columns."""

    spec: Within | Hopping
    types: tuple[pa.DataType, pa.DataType]
    unit: str | None  # of ticks; None for integer times

    counts = False

    def ticks_of(self, length: Duration) -> int:
        """A length in whole ticks, rounded down: differences of ticks are whole, so nothing is lost."""
        return length.amount if self.unit is None else length.amount // UNIT_NS[self.unit]

    def lateness(self, side: Side) -> int:
        return self.ticks_of(self.spec.lateness[SIDES.index(side)])

    def idle_after(self, side: Side) -> int | None:
        """How far this side may be behind the other before it is waited for no longer."""
        length = self.spec.idle_after[SIDES.index(side)]
        return None if length is None else self.ticks_of(length)

    def read(self, batch: pa.RecordBatch, side: Side) -> np.ndarray:
        """The ticks of a batch, int64; an error for nulls and for times beyond int64 in the tick unit."""
        name = self.spec.time[SIDES.index(side)]
        column = batch.column(name)
        if column.type in self._in_ticks and not column.null_count and len(column):  # mostly; without Arrow's detours
            return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
        column, factor = self.numbers(batch, side)
        if column.null_count:
            row = pc.index(column.is_null(), True).as_py()
            raise ValueError(
                f"time column {name!r} of the {side} stream is null in row {row} of this batch; every tuple needs a "
                f"time: fill or filter the nulls first"
            )
        if column.type == pa.uint64() and len(column) and pc.max(column).as_py() > _GREATEST:
            raise ValueError(f"time column {name!r} of the {side} stream has values beyond int64; use a signed type")
        ticks = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        if factor != 1 and ticks.size:
            limit = _GREATEST // factor
            if ticks.max() > limit or ticks.min() < -limit:
                raise ValueError(f"time column {name!r} of the {side} stream has values beyond int64 {self.unit}")
            ticks = ticks * factor
        return ticks

    @cached_property
    def _in_ticks(self) -> list[pa.DataType]:
        """Those of the time columns' types whose values are ticks as they are."""
        if self.unit is None:
            return [pa.int64()]
        return [t for t in self.types if not pa.types.is_date(t) and t.unit == self.unit]

    def numbers(self, batch: pa.RecordBatch, side: Side) -> tuple[pa.Array, int]:
        """The time column as integers, nulls among them, and how many ticks one of them is."""
        column = batch.column(self.spec.time[SIDES.index(side)])
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        t = column.type
        if self.unit is None:
            return column, 1
        factor = UNIT_NS[_unit(t)] // UNIT_NS[self.unit]
        if pa.types.is_date32(t):
            return column.view(pa.int32()), factor * 86400
        return column.view(pa.int64()), factor

    def tick(self, value: Any, parameter: str) -> int:
        """A time given by the user (`advance`) as a tick."""
        tick = self._tick(value, parameter)
        if not _LEAST <= tick <= _GREATEST:
            unit = "" if self.unit is None else f" {self.unit}"
            raise ValueError(f"{parameter} must be a time within int64{unit}, as the time columns are, got {value!r}")
        return tick

    def _tick(self, value: Any, parameter: str) -> int:
        if isinstance(value, pa.Scalar):
            return self._scalar_tick(value, parameter)
        if self.unit is None:
            if isinstance(value, int | np.integer) and not isinstance(value, bool):
                return int(value)
            raise TypeError(f"{parameter} must be an integer as the time columns are, got {value!r}")
        unit, clock = UNIT_NS[self.unit], _clock(self.types[0])
        if clock == "duration":
            if isinstance(value, timedelta | np.timedelta64):
                return read(value, parameter).amount // unit
        elif isinstance(value, np.datetime64):
            return nanoseconds(value, parameter) // unit
        elif isinstance(value, str | date):
            return _since_1970(value, parameter, clock == "timestamp with zone") // unit
        raise TypeError(f"{parameter} must be a time like the time columns ({self.types[0]}), got {value!r}")

    def _scalar_tick(self, value: pa.Scalar, parameter: str) -> int:
        if _clock(value.type) != _clock(self.types[0]):
            raise TypeError(f"{parameter} must be a time like the time columns ({self.types[0]}), got {value!r}")
        if not value.is_valid:
            raise ValueError(f"{parameter} must be a time, got null; leave it out, or give a time")
        if self.unit is None:
            return value.as_py()
        count = value.value * (86400 if pa.types.is_date32(value.type) else 1)
        return count * UNIT_NS[_unit(value.type)] // UNIT_NS[self.unit]

    def _time_type(self) -> pa.DataType:
        if _clock(self.types[0]) == "duration":
            return pa.duration(self.unit)
        return pa.timestamp(self.unit, getattr(self.types[0], "tz", None))

    def show(self, tick: int) -> Any:
        """A tick as users know it: an integer, or an Arrow scalar that prints as a time.

        A time before the year 1 or after 9999, which Python has no name for, is shown as the end of those.
        """
        if self.unit is None:
            return tick
        type = self._time_type()
        least, greatest = (
            (-_LONGEST, _LONGEST) if pa.types.is_duration(type) else (datetime.min - _EPOCH, datetime.max - _EPOCH)
        )
        unit = UNIT_NS[self.unit]
        low, high = -(-read(least, "least").amount // unit), read(greatest, "greatest").amount // unit
        return pa.scalar(min(max(tick, low, _LEAST + 1), high, _GREATEST), pa.int64()).cast(type)

    @cached_property
    def _reach(self) -> tuple[int, int]:
        """How far before a left tuple its partners may be, and how far after it."""
        assert isinstance(self.spec, Within)
        return self.ticks_of(self.spec.before), self.ticks_of(self.spec.after)

    def partners(self, side: Side, ticks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ticks that partners of these tuples may have: low and high, inclusive. O(n)."""
        spec = self.spec
        if isinstance(spec, Within):
            before, after = self._reach
            return (plus(ticks, -before), plus(ticks, after)) if side == "left" else (
                plus(ticks, -after), plus(ticks, before)
            )
        size, slide = self.ticks_of(spec.size), self.ticks_of(spec.slide)
        into = np.mod(ticks, slide)
        return plus(ticks, slide - size - np.mod(into - size, slide)), plus(ticks, size - 1 - into)

    def expired_below(self, side: Side, watermark: int) -> int:
        """Tuples of `side` with a tick below this have high < watermark: no partner can come any more."""
        spec = self.spec
        if isinstance(spec, Within):
            return watermark - self._reach[side == "left"]
        size, slide = self.ticks_of(spec.size), self.ticks_of(spec.slide)
        return ((watermark - size) // slide + 1) * slide

    def lifetime(self, side: Side) -> int:
        """For how many ticks a tuple waits for partners."""
        spec = self.spec
        return self.ticks_of(spec.size if isinstance(spec, Hopping) else spec.after if side == "left" else spec.before)


@dataclass(frozen=True)
class BoundCountWindow:
    """A count window; ticks are positions."""

    spec: Last
    unit = None
    counts = True

    def size(self, side: Side) -> int:
        return self.spec.n if side == "left" else self.spec.n_right

    def expired_below(self, side: Side, count: int) -> int:
        """Tuples of `side` with a position below this are not among its last n, once it has `count` tuples."""
        return count - self.size(side)

    def lifetime(self, side: Side) -> int:
        return self.size(side)


BoundWindow = BoundTimeWindow | BoundCountWindow


