"""Functions of numbers: rounding, roots, logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np

from . import vector
from .arithmetic import numbers
from .expr import Call
from .node import Builder, Node, Rows, as_float, constant, make, unify, whole_constant
from .types import BOOL, FLOAT64, INT64_MAX, INT64_MIN, exact
from .vector import Vector, both

_ONE = constant(1.0)


def real(name: str, function: Any, domain: Callable[[np.ndarray], np.ndarray] | None = None) -> Builder:
    """A function of doubles; null outside its domain."""

    def build(args: list[Node], expr: Call) -> Node:
        numbers(args, expr)
        nodes = [as_float(node) for node in unify([*args, _ONE], expr)[:-1]]
        runs = [node.run for node in nodes]

        def run(rows: Rows) -> Vector:
            values = [each(rows) for each in runs]
            valid = values[0][1] if len(values) == 1 else both(values[0][1], values[1][1])
            if domain is not None:
                valid = both(valid, domain(values[0][0]))
            return function(*(data for data, _ in values)), valid

        return make(name, nodes, FLOAT64, expr, run)

    return build


def whole(name: str) -> Builder:
    """floor and ceil, which give an integer: of a double the nearest bigint, and 0 for NaN, as in Java."""

    def build(args: list[Node], expr: Call) -> Node:
        numbers(args, expr)
        if len(args) > 1:
            raise ValueError(f"on has {expr}; {name} takes one argument here")
        node = args[0]
        inner = node.run
        if node.type.kind == "null" or node.type.scale == 0 and node.type.kind == "exact":
            return node
        if node.type.kind == "float":
            function = np.floor if name == "floor" else np.ceil

            def run_float(rows: Rows) -> Vector:
                data, valid = inner(rows)
                return vector.saturated(function(data.astype(np.float64))), valid

            return make(name, (node,), exact(INT64_MIN, INT64_MAX), expr, run_float)
        unit = 10**node.type.scale
        low, high = node.type.low // unit, -(-node.type.high // unit)

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            if name == "floor":
                return vector.floor_divide(data, unit), valid
            return vector.negate(vector.floor_divide(vector.negate(data), unit)), valid

        return make(name, (node,), exact(low, high), expr, run)

    return build


_EXACTLY = Context(prec=400, rounding=ROUND_HALF_UP)  # holds every double to 30 places


def _round_double(value: float, digits: int) -> float:
    if not math.isfinite(value):
        return value
    return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), context=_EXACTLY))


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Java's: no power of 1 with an exponent that is infinite or NaN; -infinity's is no square root."""
    powers = np.where(np.isfinite(b) | (np.abs(a) != 1), np.power(a, b), np.nan)
    return np.where((a == -np.inf) & (b == 0.5), np.inf, powers)


def rounded(args: list[Node], expr: Call) -> Node:
    """Half away from zero, as Spark's."""
    numbers(args, expr)
    node = args[0]
    digits = 0
    if len(args) > 1:
        digits = whole_constant(args[1], expr, "the number of digits")
        if abs(digits) > 30:
            raise ValueError(f"on has {expr}; the number of digits must lie between -30 and 30")
    inner = node.run
    if node.type.kind == "null":
        return node
    if node.type.kind == "float":
        each = np.frompyfunc(lambda value: _round_double(float(value), digits), 1, 1)
        dtype = np.float64 if node.type.bits == 64 else np.float32

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            return np.asarray(each(data), dtype=dtype), valid

        return make("round", (node, *args[1:]), node.type, expr, run)
    if digits >= node.type.scale:
        return node
    unit = 10 ** (node.type.scale - digits)
    lift = 10 ** max(0, -digits)

    def run_exact(rows: Rows) -> Vector:
        data, valid = inner(rows)
        size = vector.floor_divide(
            vector.add(np.where(data < 0, vector.negate(data), data), _half(unit)), unit
        )
        size = vector.times_power(size, lift, False)
        return np.where(data < 0, vector.negate(size), size), valid

    most = (max(abs(node.type.low), abs(node.type.high)) // unit + 1) * lift
    return make("round", (node, *args[1:]), exact(-most, most, max(digits, 0)), expr, run_exact)


def _half(unit: int) -> np.ndarray:
    return vector.constant_int(unit // 2)


def signum(args: list[Node], expr: Call) -> Node:
    numbers(args, expr)
    node = args[0]
    inner = node.run
    if node.type.kind == "null":
        return node
    if node.type.kind == "float":
        return make("sign", (node,), node.type, expr, lambda rows: (np.sign((v := inner(rows))[0]), v[1]))

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        return (data > 0).astype(np.int64) - (data < 0), valid

    return make("sign", (node,), exact(-1, 1), expr, run)


def is_nan(args: list[Node], expr: Call) -> Node:
    numbers(args, expr)
    node = as_float(unify([args[0], _ONE], expr)[0])
    inner = node.run

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        nan = data != data
        return (nan if valid is None else nan & valid), None

    return make("isnan", (node,), BOOL, expr, run)


NUMBERS: dict[str, tuple[Builder, int, int]] = {
    "floor": (whole("floor"), 1, 2),
    "ceil": (whole("ceil"), 1, 2),
    "round": (rounded, 1, 2),
    "sign": (signum, 1, 1),
    "sqrt": (real("sqrt", np.sqrt), 1, 1),
    "exp": (real("exp", np.exp), 1, 1),
    "ln": (real("ln", np.log, lambda x: ~(x <= 0)), 1, 1),
    "pow": (real("pow", _power), 2, 2),
    "isnan": (is_nan, 1, 1),
}
