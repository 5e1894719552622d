"""The types of expressions.

Arrow's many types fall into few kinds, and every kind has one representation at run time (see `vector.py`):

    exact         integers and decimals: an integer counting units of 10^-scale
    date          days since the epoch
    time, timestamp, timestamptz, duration
                  an integer counting units of 10^-scale seconds, scale 0, 3, 6 or 9, so that units mix
                  exactly
    float         float32 or float64
    bool, string, binary, null

The countable kinds (all those whose value is an integer) carry the bounds a value of the type can have.
Bounds follow the arithmetic (`l.a + 1` of an int32 lies in [-2^31 + 1, 2^31]), and they decide while the
plan is made whether int64 is enough, so that no overflow test is paid for where none can happen.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pyarrow as pa

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TEMPORAL = ("date", "time", "timestamp", "timestamptz", "duration")
COUNTABLE = ("exact", *TEMPORAL)
DAY = 86_400
_UNIT_SCALE = {"s": 0, "ms": 3, "us": 6, "ns": 9}


@dataclass(frozen=True)
class Type:
    kind: str
    scale: int = 0  # of countable kinds
    low: int = INT64_MIN  # bounds of the integer that stands for a value
    high: int = INT64_MAX
    bits: int = 64  # of floats
    label: str = field(default="", compare=False, repr=False)  # what to call it in messages

    @property
    def countable(self) -> bool:
        return self.kind in COUNTABLE

    @property
    def fits(self) -> bool:
        """Whether int64 holds every value of this countable type."""
        return self.low >= INT64_MIN and self.high <= INT64_MAX

    def bounded(self, low: int, high: int) -> Type:
        return replace(self, low=low, high=high, label="")

    def __str__(self) -> str:
        if self.label:
            return self.label
        if self.kind == "exact":
            return f"decimal of scale {self.scale}" if self.scale else "integer"
        if self.kind == "float":
            return "double" if self.bits == 64 else "float"
        return {"timestamptz": "timestamp with time zone", "bool": "boolean"}.get(self.kind, self.kind)


BOOL = Type("bool")
NULL = Type("null")
FLOAT64 = Type("float", bits=64)
FLOAT32 = Type("float", bits=32)
STRING = Type("string")
BINARY = Type("binary")


def exact(low: int, high: int, scale: int = 0) -> Type:
    return Type("exact", scale, low, high)


def from_arrow(arrow: pa.DataType) -> Type | None:
    """The type of a column, or None where a predicate cannot use it (lists, structs, ...)."""
    found = _from_arrow(arrow)
    return None if found is None else replace(found, label=str(arrow))


def _from_arrow(arrow: pa.DataType) -> Type | None:
    check = pa.types
    if check.is_dictionary(arrow):
        return _from_arrow(arrow.value_type)
    if check.is_integer(arrow):
        bits = arrow.bit_width
        if check.is_signed_integer(arrow):
            return exact(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return exact(0, 2**bits - 1)
    if check.is_decimal(arrow):
        most = 10**arrow.precision - 1
        most *= 10 ** max(0, -arrow.scale)  # a negative scale counts hundreds, thousands, ...
        return exact(-most, most, max(0, arrow.scale))
    if check.is_floating(arrow):
        return FLOAT64 if arrow.bit_width == 64 else FLOAT32
    if check.is_boolean(arrow):
        return BOOL
    if check.is_date(arrow):
        return Type("date", 0, -(2**31), 2**31 - 1) if check.is_date32(arrow) else Type("date")
    if check.is_time(arrow):
        scale = _UNIT_SCALE[arrow.unit]
        return Type("time", scale)
    if check.is_timestamp(arrow):
        return Type("timestamp" if arrow.tz is None else "timestamptz", _UNIT_SCALE[arrow.unit])
    if check.is_duration(arrow):
        return Type("duration", _UNIT_SCALE[arrow.unit])
    if check.is_string(arrow) or check.is_large_string(arrow) or check.is_string_view(arrow):
        return STRING
    if check.is_binary(arrow) or check.is_large_binary(arrow) or check.is_fixed_size_binary(arrow):
        return BINARY
    if check.is_binary_view(arrow):
        return BINARY
    if check.is_null(arrow):
        return NULL
    return None


def of_constant(value: object) -> tuple[Type, object]:
    """The type of a constant, and the value as its representation holds it."""
    if value is None:
        return NULL, None
    if isinstance(value, bool):
        return BOOL, value
    if isinstance(value, int):
        return exact(value, value), value
    if isinstance(value, Decimal):
        if not value.is_finite():
            return FLOAT64, float(value)
        scale = max(0, -int(value.as_tuple().exponent))
        count = _scaled(value, scale)
        return Type("exact", scale, count, count, label=f"decimal of scale {scale}"), count
    if isinstance(value, float):
        return FLOAT64, value
    if isinstance(value, str):
        return STRING, value
    if isinstance(value, (bytes, bytearray)):
        return BINARY, bytes(value)
    micro = datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.datetime):
        zoned = value.tzinfo is not None
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC if zoned else None)
        count = (value - epoch) // micro
        return Type("timestamptz" if zoned else "timestamp", 6, count, count), count
    if isinstance(value, datetime.date):
        count = (value - datetime.date(1970, 1, 1)).days
        return Type("date", 0, count, count), count
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise TypeError(f"constant {value!r} is a time with a zone; use a time without one")
        whole = datetime.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        )
        return Type("time", 6, whole // micro, whole // micro), whole // micro
    if isinstance(value, datetime.timedelta):
        count = value // micro
        return Type("duration", 6, count, count), count
    raise TypeError(
        f"constant {value!r} is of type {type(value).__name__}; use None, bool, int, float, Decimal, str, "
        "bytes, date, time, datetime or timedelta"
    )


_DATE, _TIME = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-]\d\d:\d\d(?::\d\d)?)?"
_MOMENT = re.compile(f"{_DATE}(?:[ T]{_TIME}{_ZONE})?")


def temporal_literal(text: str, kind: str) -> datetime.date | datetime.time | None:
    """A date, time, timestamp or timestamptz (a zone left out is UTC) as in ISO 8601; None where it is not one."""
    text = text.strip()
    try:
        if kind == "date":
            return datetime.date.fromisoformat(text) if re.fullmatch(_DATE, text) else None
        if kind == "time":
            return datetime.time.fromisoformat(text) if re.fullmatch(_TIME, text) else None
        if kind not in ("timestamp", "timestamptz") or not _MOMENT.fullmatch(text):
            return None
        moment = datetime.datetime.fromisoformat(text)
        if kind == "timestamptz":
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # the 30th of February; an hour before the year 1
        return None


def decimal(count: int, scale: int) -> Decimal:
    """count * 10^-scale, of any size."""
    sign, digits = (1, str(-count)) if count < 0 else (0, str(count))
    return Decimal((sign, tuple(map(int, digits)), -scale))


def _scaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    count = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -count if sign else count
