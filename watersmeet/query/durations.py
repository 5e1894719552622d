"""Lengths of time as users write them: "10 seconds", timedelta(minutes=5), or a plain number for integer times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np

#: Nanoseconds of each unit that Arrow times have.
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

_NAMES = {
    "ns": ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
    "us": ("us", "µs", "micro", "micros", "microsecond", "microseconds"),
    "ms": ("ms", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "min": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_NS |= {"d": 24 * _NS["h"], "w": 7 * 24 * _NS["h"]}
_UNITS = {name: _NS[unit] for unit, names in _NAMES.items() for name in names}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zµ]+)\s*(?:,|and)?", re.IGNORECASE)


@dataclass(frozen=True)
class Duration:
    """A length of time in nanoseconds, or (unit None) in whatever the integer time columns count."""

    amount: int
    unitless: bool = False

    def __str__(self) -> str:
        if self.unitless:
            return str(self.amount)
        for unit in ("w", "d", "h", "min", "s", "ms", "us", "ns"):
            if self.amount % _NS[unit] == 0 and (self.amount or unit == "s"):
                count = self.amount // _NS[unit]
                name = _NAMES[unit][-1]
                return f"{count} {name[:-1] if count == 1 else name}"
        raise AssertionError(self)


def duration(value: Any, parameter: str) -> Duration:
    """Read a non-negative length of time; `parameter` is named in errors."""
    length = read(value, parameter)
    if length.amount < 0:
        raise ValueError(f"{parameter} must not be negative, got {value!r}")
    return length


def read(value: Any, parameter: str) -> Duration:
    """Read a length of time of either sign."""
    if isinstance(value, Duration):
        return value
    if isinstance(value, timedelta):
        nanos = getattr(value, "nanoseconds", 0)  # pandas' Timedelta
        return Duration((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000 + nanos)
    if isinstance(value, np.timedelta64):
        return Duration(nanoseconds(value, parameter))
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return Duration(int(value), unitless=True)
    if isinstance(value, str):
        total = Fraction(0)
        at = 0
        while at < len(value.rstrip()):
            part = _PART.match(value, at)
            if part is None or part[2].lower() not in _UNITS:
                break
            total += Fraction(part[1]) * _UNITS[part[2].lower()]
            at = part.end()
        if at and at >= len(value.rstrip()):
            if total.denominator != 1:
                raise ValueError(f"{parameter} is finer than a nanosecond: {value!r}")
            return Duration(int(total))
        raise ValueError(
            f"{parameter} is not a length of time: {value!r}; write for instance '10 seconds', '5 min' or '250 ms'"
        )
    raise TypeError(
        f"{parameter} must be text such as '10 seconds', a timedelta (Python's, NumPy's or pandas'), or a whole number "
        f"for integer time columns, got {value!r}"
    )


_NUMPY = {"W": "w", "D": "d", "h": "h", "m": "min", "s": "s", "ms": "ms", "us": "us", "ns": "ns"}


def nanoseconds(value: np.timedelta64 | np.datetime64, parameter: str) -> int:
    """A NumPy length of time, or the time since 1970, in nanoseconds; what is finer is cut off (downwards)."""
    if np.isnat(value):
        raise ValueError(f"{parameter} must be a time, got NaT; leave it out, or give a time")
    unit, step = np.datetime_data(value.dtype)
    if unit in ("Y", "M") and isinstance(value, np.datetime64):
        days = value.astype("datetime64[D]")
        if days.astype(value.dtype) != value:  # wrapped round
            raise ValueError(f"{parameter} must be a time within int64, got {value!r}; use an earlier one")
        value, unit, step = days, "D", 1
    count = int(value.view(np.int64)) * step
    if unit in ("ps", "fs", "as"):
        return count // 1000 ** (1 + ("ps", "fs", "as").index(unit))
    if unit not in _NUMPY:
        raise ValueError(f"{parameter} must be in weeks or a finer unit, got {value!r}; use for instance 's' or 'ms'")
    return count * _NS[_NUMPY[unit]]
