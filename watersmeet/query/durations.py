"""Lengths of time as users write them: "10 seconds", timedelta(minutes=5), or a plain number for integer times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

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
    length = _read(value, parameter)
    if length.amount < 0:
        raise ValueError(f"{parameter} must not be negative, got {value!r}")
    return length


def _read(value: Any, parameter: str) -> Duration:
    if isinstance(value, Duration):
        return value
    if isinstance(value, timedelta):
        return Duration((value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        return Duration(value, unitless=True)
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
        f"{parameter} must be text such as '10 seconds', a timedelta, or a whole number for integer time columns, "
        f"got {value!r}"
    )
