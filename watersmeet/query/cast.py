"""Casts. A value that the target cannot hold becomes null, as in Spark's try_cast; nothing raises on data.

Zones: a timestamp without one cast to one with (SQL's `timestamp`) is read as UTC, and the other way round
gives UTC's wall clock. A cast of text goes value by value through Python; numbers and times stay in arrays.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
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
_TRUE, _FALSE = {"true", "t", "yes", "y", "1"}, {"false", "f", "no", "n", "0"}


def target_type(name: str, expr: Expr) -> Type:
    """The type that a cast's target names."""
    text = name.lower().strip()
    number = re.fullmatch(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", text)
    if text in _INTEGERS:
        bits = _INTEGERS[text]
        return exact(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if number:
        precision, scale = int(number[1] or 10), int(number[2] or 0)
        if not 0 < precision <= 76 or scale > precision:
            raise ValueError(
                f"on has {expr}; a decimal's precision must lie in 1..76 and its scale below that"
            )
        return exact(-(10**precision) + 1, 10**precision - 1, scale)
    simple = {
        "float": FLOAT32, "real": FLOAT32, "double": FLOAT64, "boolean": BOOL, "string": STRING,
        "text": STRING, "binary": BINARY, "date": Type("date", 0, -(2**31), 2**31 - 1),
        "time": Type("time", 6), "timestamp": Type("timestamptz", 6), "timestamp_ltz": Type("timestamptz", 6),
        "timestamp_ntz": Type("timestamp", 6),
    }  # fmt: skip
    if text in simple:
        return simple[text]
    if re.fullmatch(r"(var)?char\s*(\(\d+\))?", text):
        return STRING
    raise ValueError(f"on casts to an unknown type {name!r} in {expr}; use one of {_NAMES}")


def parse_temporal(text: str, kind: str) -> Any:
    """A date, time or datetime of that kind in ISO 8601, or None."""
    text = text.strip()
    try:
        if kind == "date":
            return datetime.date.fromisoformat(text[:10]) if len(text) <= 10 else _moment(text).date()
        if kind == "time":
            value = datetime.time.fromisoformat(text)
            return value if value.tzinfo is None else None
        moment = _moment(text)
        if kind == "timestamptz":
            return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _parse_number(text: str) -> Decimal | None:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        return None
    return value if value.is_finite() and abs(value.adjusted()) < 400 else None


def _parse_double(text: str) -> float | None:
    try:
        return None if "_" in text else float(text.strip())
    except ValueError:
        return None


def _truncated(value: Decimal) -> int:
    return int(value)


def _half_up(value: Decimal, scale: int) -> int:
    with localcontext() as context:
        context.prec = 1000
        return int(value.scaleb(scale).to_integral_value(ROUND_HALF_UP))


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
        raise TypeError(f"on cannot cast {node.expr} ({node.type}) to {name} in {expr}; compare it as it is")
    return answer


def _bounded(node: Node, target: Type, expr: Expr, change: Callable[[np.ndarray], np.ndarray]) -> Node:
    """Counts changed by `change`; null where the target cannot hold the outcome."""
    inner = node.run
    safe = (
        node.type.countable
        and target.low <= node.type.low
        and node.type.high <= target.high
        and target.scale == 0
    )

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        data = vector.shrink(change(data))
        if not safe:
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


def _to_exact(node: Node, target: Type, expr: Expr) -> Node | None:
    kind, digits = node.type.kind, target.scale
    whole = target.scale == 0 and target.high + 1 == 2 ** (
        target.high.bit_length()
    )  # an integer type, not a decimal
    if kind == "exact":
        drop = node.type.scale - digits
        if drop > 0:
            return _bounded(node, target, expr, lambda data: _divided(data, 10**drop, not whole))
        return _bounded(node, target, expr, lambda data: vector.times_power(data, 10**-drop, False))
    if kind == "bool":
        return _bounded(node, target, expr, lambda data: data.astype(np.int64) * 10**digits)
    if kind in ("timestamp", "timestamptz") and whole:
        return _bounded(node, target, expr, lambda data: vector.floor_divide(data, 10**node.type.scale))
    if kind == "string":
        return _each(node, lambda text: _counted(_parse_number(text), target, whole), target, expr)
    if kind == "float":

        def convert(value: float) -> int | None:
            if value != value or value in (float("inf"), float("-inf")):
                return None
            return _counted(Decimal(int(value)) if whole else Decimal(repr(value)), target, whole)

        return _each(node, convert, target, expr)
    return None


def _counted(value: Decimal | None, target: Type, whole: bool) -> int | None:
    if value is None:
        return None
    count = _truncated(value) if whole else _half_up(value, target.scale)
    return count if target.low <= count <= target.high else None


def _to_float(node: Node, target: Type, expr: Expr) -> Node | None:
    if node.type.kind in ("exact", "float"):
        wide = as_float(node, 64)
        if target.bits == 64:
            return wide
        inner = wide.run
        return make(
            "cast",
            (node,),
            FLOAT32,
            expr,
            lambda rows: ((v := inner(rows))[0].astype(np.float32), v[1]),
        )
    if node.type.kind == "bool":
        return _each(node, float, target, expr)
    return _each(node, _parse_double, target, expr) if node.type.kind == "string" else None


def _to_bool(node: Node, target: Type, expr: Expr) -> Node | None:
    if node.type.kind == "bool":
        return node
    if node.type.kind in ("exact", "float"):
        inner = node.run
        return make(
            "cast",
            (node,),
            BOOL,
            expr,
            lambda rows: (np.asarray((v := inner(rows))[0] != 0, bool), v[1]),
        )
    if node.type.kind == "string":
        return _each(
            node,
            lambda t: True if t.strip().lower() in _TRUE else False if t.strip().lower() in _FALSE else None,
            BOOL,
            expr,
        )
    return None


def _to_string(node: Node, target: Type, expr: Expr) -> Node | None:
    kind, scale = node.type.kind, node.type.scale
    if kind == "string":
        return node
    if kind == "binary":
        return _each(node, lambda value: value.decode("utf-8", "replace"), STRING, expr)
    return _each(node, lambda value: written(value, kind, scale), STRING, expr)


def written(value: Any, kind: str, scale: int) -> str | None:
    """A value of a kind's representation as text."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "float":
        if value != value:
            return "NaN"
        return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(value) or repr(float(value))
    if kind == "exact":
        return f"{decimal(value, scale):f}"
    if kind == "duration":
        return f"{decimal(value, scale):f} seconds"
    try:
        if kind == "date":
            return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value // 10**scale)
    except OverflowError:
        return None
    fraction = f"{value % 10**scale:0{scale}d}".rstrip("0") if scale else ""
    text = moment.strftime("%H:%M:%S") if kind == "time" else moment.isoformat(" ")
    return f"{text}.{fraction}" if fraction else text


def _to_binary(node: Node, target: Type, expr: Expr) -> Node | None:
    if node.type.kind == "binary":
        return node
    return _each(node, lambda text: text.encode(), BINARY, expr) if node.type.kind == "string" else None


def _to_temporal(node: Node, target: Type, expr: Expr) -> Node | None:
    kind = node.type.kind
    if kind == target.kind:
        return node
    if kind == "string":
        from .types import of_constant

        def convert(text: str) -> Any:
            value = parse_temporal(text, target.kind)
            return None if value is None else of_constant(value)[1]

        return _each(node, convert, target, expr)
    zones = ("timestamp", "timestamptz")
    if kind in zones and target.kind in zones:
        type = Type(target.kind, node.type.scale, node.type.low, node.type.high)
        return make("cast", (node,), type, expr, node.run)
    if kind == "date" and target.kind in zones:
        return midnight(node, target.kind)
    unit = DAY * 10**node.type.scale
    if kind in zones and target.kind == "date":
        return _bounded(node, target, expr, lambda data: vector.floor_divide(data, unit))
    if kind in zones and target.kind == "time":
        type = Type("time", node.type.scale, 0, unit)
        inner = node.run
        return make(
            "cast",
            (node,),
            type,
            expr,
            lambda rows: (vector.shrink((v := inner(rows))[0] % unit), v[1]),
        )
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
