"""Functions of dates and times, in whole-number arithmetic on counts.

Timestamps with a zone are instants; their fields (year, hour, ...) are those in UTC.
"""

from __future__ import annotations

import numpy as np

from . import vector
from .arithmetic import total
from .cast import cast_to
from .expr import Call
from .node import Builder, Node, Rows, as_null, constant_value, make, midnight, wrong
from .types import DAY, Type, exact
from .vector import Vector

_FIELDS = ("year", "month", "day", "hour", "minute", "second")


def days(data: np.ndarray, type: Type) -> np.ndarray:
    """Whole days since the epoch."""
    return data if type.kind == "date" else vector.floor_divide(data, DAY * 10**type.scale)


def civil(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Year, month and day of days since the epoch, in the proleptic Gregorian calendar.

    Years are counted from March, so that the leap day is the last of its year (Hinnant, "chrono-compatible
    low-level date algorithms", civil_from_days).
    """
    shifted = data + 719_468
    era = shifted // 146_097
    in_era = shifted - era * 146_097
    year_of_era = (in_era - in_era // 1_460 + in_era // 36_524 - in_era // 146_096) // 365
    in_year = in_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    from_march = (5 * in_year + 2) // 153
    day = in_year - (153 * from_march + 2) // 5 + 1
    month = from_march + np.where(from_march < 10, 3, -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def from_civil(year: np.ndarray, month: np.ndarray, day: int) -> np.ndarray:
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    in_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + in_year - 719_468


def field(name: str) -> Builder:
    place = _FIELDS.index(name)
    kinds = (
        ("date", "timestamp", "timestamptz") if place < 3 else ("timestamp", "timestamptz", "time", "date")
    )

    def build(args: list[Node], expr: Call) -> Node:
        node = args[0]
        if node.type.kind == "null":
            return as_null(node, exact(0, 0))
        if node.type.kind not in kinds:
            raise wrong(expr, node, "a date or timestamp" if place < 3 else "a time or timestamp")
        if place >= 3 and node.type.kind == "date":
            node = midnight(node)
        inner, type = node.run, node.type

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            if place < 3:
                return vector.shrink(np.asarray(civil(days(data, type))[place])), valid
            seconds = vector.floor_divide(data, 10**type.scale)
            unit, cycle = ((3600, 24), (60, 60), (1, 60))[place - 3]
            return vector.shrink(seconds // unit % cycle), valid

        bounds = [_years(type), (1, 12), (1, 31), (0, 23), (0, 59), (0, 59)][place]
        return make(name, (node,), exact(*bounds), expr, run)

    return build


def _years(type: Type) -> tuple[int, int]:
    """Bounds of the years in which moments of this type lie."""
    day = 1 if type.kind == "date" else DAY * 10**type.scale
    low, high = type.low // day, type.high // day
    return low // (366 if low > 0 else 365) + 1969, high // (365 if high > 0 else 366) + 1971


_STEPS = {"week": 7 * DAY, "day": DAY, "hour": 3600, "minute": 60, "second": 1}


def date_trunc(args: list[Node], expr: Call) -> Node:
    unit, node = "" if args[0].op != "constant" else str(constant_value(args[0])).lower(), args[1]
    if node.type.kind == "null":
        return as_null(node, Type("timestamp"))
    if node.type.kind == "date":
        node = midnight(node)
    if node.type.kind not in ("timestamp", "timestamptz"):
        raise wrong(expr, node, "a date or timestamp")
    if unit not in (*_STEPS, "month", "quarter", "year", "millisecond", "microsecond"):
        raise ValueError(
            f"on has {expr}; date_trunc takes year, quarter, month, {', '.join(_STEPS)}, not {unit!r}"
        )
    inner, type = node.run, node.type
    second = 10**type.scale

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        if unit in ("year", "quarter", "month"):
            year, month, _ = civil(days(data, type))
            month = {"year": month * 0 + 1, "quarter": (month - 1) // 3 * 3 + 1, "month": month}[unit]
            return vector.multiply(from_civil(year, month, 1), vector.constant_int(DAY * second)), valid
        if unit in ("millisecond", "microsecond"):
            step = max(1, second // (10**3 if unit == "millisecond" else 10**6))
        else:
            step = _STEPS[unit] * second
        # Weeks begin on Monday; the epoch was a Thursday.
        shift = vector.constant_int(3 * DAY * second if unit == "week" else 0)
        whole = vector.floor_divide(vector.add(data, shift), step)
        return vector.subtract(vector.multiply(whole, vector.constant_int(step)), shift), valid

    longest = 366 * DAY * second
    truncated = Type(type.kind, type.scale, type.low - longest, type.high)
    return make("date_trunc", (args[0], node), truncated, expr, run)


def to_date(args: list[Node], expr: Call) -> Node:
    return cast_to(args[0], "date", expr)


def datediff(args: list[Node], expr: Call) -> Node:
    a, b = (cast_to(arg, "date", expr) for arg in args)
    return total("-", a, b, "exact", expr)


TEMPORALS: dict[str, tuple[Builder, int, int]] = {
    **{name: (field(name), 1, 1) for name in _FIELDS},
    "date_trunc": (date_trunc, 2, 2),
    "to_date": (to_date, 1, 1),
    "datediff": (datediff, 2, 2),
}
