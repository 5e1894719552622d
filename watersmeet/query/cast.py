"""Casts, as Spark's try_cast: a value that the target cannot hold is null, and nothing raises on data.

What Spark makes of a value must not depend on its version, its settings or the Java under it. Casts of which
that is not true (a double or a moment to text, text to a moment) are refused: they belong before the join.

Zones: a timestamp without one cast to one with (SQL's `timestamp`) is read as UTC, and the other way round
gives UTC's wall clock. A cast of text goes value by value through Python; numbers and times stay in arrays.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from . import vector
from .expr import Call, Expr
from .node import Builder, Node, Rows, as_float, as_null, constant_value, make, midnight
from .types import BINARY, BOOL, DAY, FLOAT32, FLOAT64, STRING, Type, decimal, exact
from .vector import Vector, both

_INTEGERS = {
    "tinyint": 8,
    "byte": 8,
    "smallint": 16,
    "short": 16,
    "int": 32,
    "integer": 32,
    "bigint": 64,
    "long": 64,
}
_NAMES = (
    "tinyint, smallint, int, bigint, decimal(p,s), float, double, boolean, string, binary, date, time, "
    "timestamp, timestamp_ntz"
)


def target_type(name: str, expr: Expr) -> Type:
    """The type that a cast's target names."""
    text = name.lower().strip()
    number = re.fullmatch(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?", text)
    if text in _INTEGERS:
        bits = _INTEGERS[text]
        return exact(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if number:
        precision, scale = int(number[1] or 10), int(number[2] or 0)
        if not 0 < precision <= 76 or scale > precision:
            raise ValueError(
                f"on has {expr}; a decimal's precision must lie in 1..76 and its scale not above that"
            )
        return Type("exact", scale, -(10**precision) + 1, 10**precision - 1, label=f"decimal({precision},{scale})")
    simple = {
        "float": FLOAT32, "real": FLOAT32, "double": FLOAT64, "boolean": BOOL, "string": STRING,
        "binary": BINARY, "date": Type("date", 0, -(2**31), 2**31 - 1),
        "time": Type("time", 6), "timestamp": Type("timestamptz", 6), "timestamp_ltz": Type("timestamptz", 6),
        "timestamp_ntz": Type("timestamp", 6),
    }  # fmt: skip
    if text in simple:
        return simple[text]
    raise ValueError(f"on casts to an unknown type {name!r} in {expr}; use one of {_NAMES}")


# --- text -----------------------------------------------------------------------------------------

_SPACE = "".join(map(chr, [*range(0x21), 0x7F]))  # what Spark's casts strip
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_NOT_FINITE = re.compile(r"([+-]?inf(?:inity)?|nan)", re.IGNORECASE)
_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}


def _whole(text: str) -> int | None:
    text = text.strip(_SPACE)
    return int(text) if _WHOLE.fullmatch(text) and len(text) < 100 else None


def _decimal(text: str) -> Decimal | None:
    text = text.strip(_SPACE[:-1])
    return Decimal(text) if _DECIMAL.fullmatch(text) else None


def _double(text: str) -> float | None:
    text = text.strip(_SPACE[:-1])
    if found := _DOUBLE.fullmatch(text):
        return float(found[1])
    if found := _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    return float(text) if _NOT_FINITE.fullmatch(text) or text in ("+NaN", "-NaN") else None


def _boolean(text: str) -> bool | None:
    text = text.strip(_SPACE).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _day(text: str) -> int | None:
    """Days since the epoch of `[+-]y{4,7}[-m[-d[( |T)...]]]`."""
    found = _DATE.fullmatch(text.strip(_SPACE))
    if found is None:
        return None
    cycles, year = divmod(int(found[1]), 400)  # of the calendar, which repeats; Python's dates end with 9999
    try:
        day = datetime.date(year + 400, int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        return None
    days = (cycles - 1) * 146_097 + day.toordinal() - datetime.date(1970, 1, 1).toordinal()
    return days if abs(days) < 2**31 else None


# --- how a cast runs ------------------------------------------------------------------------------


def _each(node: Node, function: Callable[[Any], Any], type: Type, expr: Expr) -> Node:
    """A cast value by value; None is null. `function` sees Python values of the node's representation."""
    inner = node.run

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        values = (
            [data.as_py()]
            if isinstance(data, pa.Scalar)
            else data.to_pylist()
            if _is_arrow(data)
            else data.tolist()
        )
        known = [True] * len(values) if valid is None else np.broadcast_to(valid, len(values)).tolist()
        answers = [
            function(value) if ok and value is not None else None
            for value, ok in zip(values, known, strict=True)
        ]
        return _built(answers, type)

    return make("cast", (node,), type, expr, run)


def _is_arrow(data: Any) -> bool:
    return isinstance(data, (pa.Array, pa.ChunkedArray))


def _built(answers: list, type: Type) -> Vector:
    valid = np.array([answer is not None for answer in answers], bool)
    if type.kind in ("string", "binary"):
        return pa.array(answers, pa.large_string() if type.kind == "string" else pa.large_binary()), valid
    filled = [answer if answer is not None else 0 for answer in answers]
    if type.countable:
        return vector.shrink(np.array(filled, object)), valid
    dtype = np.bool_ if type.kind == "bool" else np.float64 if type.bits == 64 else np.float32
    return np.array(filled, dtype), valid


def cast(args: list[Node], expr: Call) -> Node:
    if args[1].op != "constant" or args[1].type.kind != "string":
        raise ValueError(
            f"on has a cast without a type name: {expr}; write Call('cast', (x, Constant('bigint')))"
        )
    return cast_to(args[0], constant_value(args[1]), expr)


def cast_to(node: Node, name: str, expr: Expr) -> Node:
    target = target_type(name, expr)
    if node.type.kind == "null":
        return as_null(node, target)
    build = _TO[target.kind]
    answer = build(node, target, expr)
    if answer is None:
        raise TypeError(
            f"on cannot cast {node.expr} ({node.type}) to {name} in {expr}; compare it as it is, or cast it before the "
            f"join, in a column of its own"
        )
    return answer


def _bounded(node: Node, target: Type, expr: Expr, change: Callable[[np.ndarray], np.ndarray]) -> Node:
    """Counts changed by `change`; null where the target cannot hold the outcome."""
    inner = node.run

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        data = vector.shrink(change(data))
        inside = np.asarray((data >= target.low) & (data <= target.high), bool)
        if not inside.all():
            data = vector.shrink(np.where(inside, data, 0))
            valid = both(valid, inside)
        return data, valid

    return make("cast", (node,), target, expr, run)


def _divided(data: np.ndarray, unit: int, half_up: bool) -> np.ndarray:
    size = np.where(data < 0, vector.negate(data), data)
    if half_up:
        size = vector.add(size, vector.constant_int(unit // 2))
    size = vector.floor_divide(size, unit)
    return np.where(data < 0, vector.negate(size), size)


# --- by target ------------------------------------------------------------------------------------


def _to_exact(node: Node, target: Type, expr: Expr) -> Node | None:
    kind, digits = node.type.kind, target.scale
    whole = not target.label  # an integer type, not a decimal
    if kind == "exact":
        drop = node.type.scale - digits
        if drop > 0:
            return _bounded(node, target, expr, lambda data: _divided(data, 10**drop, not whole))
        return _bounded(node, target, expr, lambda data: vector.times_power(data, 10**-drop, False))
    if kind == "bool":
        unit = 10**digits
        return _bounded(node, target, expr, lambda data: vector.times_power(data.astype(np.int64), unit, False))
    if kind in ("timestamp", "timestamptz") and whole:
        return _bounded(node, target, expr, lambda data: vector.floor_divide(data, 10**node.type.scale))
    if kind == "string":
        return _each(node, lambda text: _counted(_whole(text) if whole else _decimal(text), target), target, expr)
    if kind == "float":
        if whole:
            return _float_to_integer(node, target, expr)
        return _each(node, lambda value: _counted(Decimal(repr(value)), target), target, expr)
    return None


def _counted(value: Decimal | int | None, target: Type) -> int | None:
    """A number as a count of the target's units, rounded half up; None where there is none or it does not fit."""
    if isinstance(value, Decimal):
        if not value.is_finite() or value.adjusted() > 80:
            return None
        context = Context(prec=len(value.as_tuple().digits) + 200, rounding=ROUND_HALF_UP)  # rounds once, at the end
        tiny = value.adjusted() < -80
        value = 0 if tiny else int(context.scaleb(value, target.scale).to_integral_value(context=context))
    return value if value is not None and target.low <= value <= target.high else None


def _float_to_integer(node: Node, target: Type, expr: Expr) -> Node:
    """Cut off towards zero. Spark tests the bounds as doubles: 2^63 passes, and becomes the greatest bigint."""
    inner = node.run
    low, high = float(target.low), float(target.high)

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        cut = np.trunc(data.astype(np.float64))
        return vector.saturated(cut), both(valid, (cut >= low) & (cut <= high))

    return make("cast", (node,), target, expr, run)


def _to_float(node: Node, target: Type, expr: Expr) -> Node | None:
    kind = node.type.kind
    if kind == "float":
        return as_float(node, target.bits)
    dtype = np.float64 if target.bits == 64 else np.float32
    if kind == "bool" or kind == "exact" and node.type.fits and node.type.scale == 0:
        inner = node.run
        return make("cast", (node,), target, expr, lambda rows: ((v := inner(rows))[0].astype(dtype), v[1]))
    if target.bits == 32:
        return None  # decimals and texts would be rounded twice
    if kind == "exact":
        return as_float(node)
    return _each(node, _double, target, expr) if kind == "string" else None


def _to_bool(node: Node, target: Type, expr: Expr) -> Node | None:
    if node.type.kind == "bool":
        return node
    if node.type.kind in ("exact", "float"):
        inner = node.run
        return make(
            "cast", (node,), BOOL, expr, lambda rows: (np.asarray((v := inner(rows))[0] != 0, bool), v[1])
        )
    return _each(node, _boolean, BOOL, expr) if node.type.kind == "string" else None


def _to_string(node: Node, target: Type, expr: Expr) -> Node | None:
    kind, scale = node.type.kind, node.type.scale
    if kind == "string":
        return node
    if kind == "bool":
        return _each(node, lambda value: "true" if value else "false", STRING, expr)
    if kind == "exact" and scale <= 6:  # beyond that, Spark may write an exponent or not
        return _each(node, lambda count: f"{decimal(count, scale):f}", STRING, expr)
    return None


def _to_binary(node: Node, target: Type, expr: Expr) -> Node | None:
    if node.type.kind == "binary":
        return node
    return _each(node, lambda text: text.encode(), BINARY, expr) if node.type.kind == "string" else None


def _to_temporal(node: Node, target: Type, expr: Expr) -> Node | None:
    kind = node.type.kind
    if kind == target.kind:
        return node
    if kind == "string" and target.kind == "date":
        return _each(node, _day, target, expr)
    zones = ("timestamp", "timestamptz")
    if kind in zones and target.kind in zones:
        type = Type(target.kind, node.type.scale, node.type.low, node.type.high)
        return make("cast", (node,), type, expr, node.run)
    if kind == "date" and target.kind in zones:
        return midnight(node, target.kind)
    unit = DAY * 10**node.type.scale
    if kind in zones and target.kind == "date":
        # Every moment has its day, also one that Spark has no number for.
        days = Type("date", 0, node.type.low // unit, node.type.high // unit)
        return _bounded(node, days, expr, lambda data: vector.floor_divide(data, unit))
    if kind in zones and target.kind == "time":
        type = Type("time", node.type.scale, 0, unit)
        inner = node.run
        return make("cast", (node,), type, expr, lambda rows: (vector.shrink((v := inner(rows))[0] % unit), v[1]))
    if kind == "exact" and node.type.scale == 0 and target.kind in zones:
        type = Type(target.kind, 0, node.type.low, node.type.high)
        return make("cast", (node,), type, expr, node.run)
    return None


_TO: dict[str, Callable[[Node, Type, Expr], Node | None]] = {
    "exact": _to_exact,
    "float": _to_float,
    "bool": _to_bool,
    "string": _to_string,
    "binary": _to_binary,
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _to_temporal),
}

CASTS: dict[str, tuple[Builder, int, int]] = {"cast": (cast, 2, 2)}
