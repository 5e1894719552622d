"""Operators on numbers, dates and times.

Integers, decimals and everything temporal are added and multiplied exactly; the bounds of the result's type
follow from those of the operands, and where they fit int64 no overflow is tested for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import vector
from .expr import Call, Expr
from .node import Builder, Node, Rows, as_float, as_null, make, midnight, rescaled, same_scale, unify, wrong
from .types import FLOAT64, Type, exact
from .vector import Vector, both


def _sum_kind(sign: str, a: Node, b: Node, expr: Expr) -> tuple[Node, Node, str]:
    """The operands as they are added, and the kind of the sum."""
    x, y = a.type.kind, b.type.kind
    if x == y and x in ("exact", "duration"):
        return a, b, x
    if x in ("timestamp", "timestamptz", "time") and y == "duration":
        return a, b, x
    if x == "duration" and y in ("timestamp", "timestamptz", "time") and sign == "+":
        return a, b, y
    if sign == "-" and x == y and x in ("timestamp", "timestamptz", "time"):
        return a, b, "duration"
    if sign == "-" and {x, y} <= {"date", "timestamp"}:
        return *(midnight(node) if node.type.kind == "date" else node for node in (a, b)), "duration"  # type: ignore
    if x == "date" and y == "exact" and b.type.scale == 0:
        return a, b, "date"
    if x == "exact" and y == "date" and sign == "+" and a.type.scale == 0:
        return a, b, "date"
    if x == "date" and y == "duration":
        return midnight(a), b, "timestamp"
    if x == "duration" and y == "date" and sign == "+":
        return a, midnight(b), "timestamp"
    hint = "cast one of them"
    if {x, y} & {"timestamp", "timestamptz"} and {x, y} & {"exact", "float"}:
        hint = "write the number as an interval, e.g. interval '5' seconds"
    raise TypeError(f"on cannot compute {expr}: {a.expr} is {a.type} and {b.expr} is {b.type}; {hint}")


def addition(sign: str) -> Builder:
    def build(args: list[Node], expr: Call) -> Node:
        a, b = args
        kinds = {a.type.kind, b.type.kind}
        if "null" in kinds and kinds <= {"null", "exact", "float", "duration"}:
            a, b = unify(args, expr)
        if a.type.kind == "null" or (kinds <= {"exact", "float"} and "float" in kinds):
            return _float_operation(sign, np.add if sign == "+" else np.subtract, a, b, expr)
        if "null" in kinds:
            a, b = (as_null(node, Type("duration")) if node.type.kind == "null" else node for node in (a, b))
        a, b, kind = _sum_kind(sign, a, b, expr)
        return total(sign, a, b, kind, expr)

    return build


def total(sign: str, a: Node, b: Node, kind: str, expr: Expr) -> Node:
    """The exact sum or difference of two countable nodes."""
    scale = max(a.type.scale, b.type.scale)
    x, y = rescaled(a, scale), rescaled(b, scale)
    if sign == "+":
        type = Type(kind, scale, x.type.low + y.type.low, x.type.high + y.type.high)
    else:
        type = Type(kind, scale, x.type.low - y.type.high, x.type.high - y.type.low)
    function: Any
    if type.fits and x.type.fits and y.type.fits:
        function = np.add if sign == "+" else np.subtract
    else:
        function = vector.add if sign == "+" else vector.subtract
    first, second = x.run, y.run

    def run(rows: Rows) -> Vector:
        p, vp = first(rows)
        q, vq = second(rows)
        return function(p, q), both(vp, vq)

    return make(sign, (a, b), type, expr, run)


def _float_operation(op: str, function: Any, a: Node, b: Node, expr: Expr, guard: bool = False) -> Node:
    if a.type.kind == b.type.kind == "float":
        bits = max(a.type.bits, b.type.bits)
        a, b = as_float(a, bits), as_float(b, bits)
    else:
        a, b = (node if node.type.kind == "null" else as_float(node) for node in (a, b))
        if "null" in (a.type.kind, b.type.kind):
            a, b = (as_null(node, FLOAT64) if node.type.kind == "null" else node for node in (a, b))
    first, second = a.run, b.run

    def run(rows: Rows) -> Vector:
        p, vp = first(rows)
        q, vq = second(rows)
        valid = both(vp, vq)
        if guard:
            valid = both(valid, q != 0)
        return function(p, q), valid

    return make(op, (a, b), a.type, expr, run)


def numbers(args: list[Node], expr: Expr) -> None:
    for node in args:
        if node.type.kind not in ("exact", "float", "null"):
            raise wrong(expr, node, "numbers")


def multiplication(args: list[Node], expr: Call) -> Node:
    a, b = args
    kinds = {a.type.kind, b.type.kind}
    if kinds != {"duration", "exact"}:
        numbers(args, expr)
        if kinds != {"exact"}:
            return _float_operation("*", np.multiply, a, b, expr)
    return product(a, b, expr)


def product(a: Node, b: Node, expr: Expr) -> Node:
    corners = [x * y for x in (a.type.low, a.type.high) for y in (b.type.low, b.type.high)]
    kind = "duration" if "duration" in (a.type.kind, b.type.kind) else "exact"
    type = Type(kind, a.type.scale + b.type.scale, min(corners), max(corners))
    function: Any = np.multiply if type.fits and a.type.fits and b.type.fits else vector.multiply
    first, second = a.run, b.run

    def run(rows: Rows) -> Vector:
        p, vp = first(rows)
        q, vq = second(rows)
        return function(p, q), both(vp, vq)

    return make("*", (a, b), type, expr, run)


def division(args: list[Node], expr: Call) -> Node:
    """A double, also of two float32."""
    numbers(args, expr)
    a, b = args
    if "float" not in (a.type.kind, b.type.kind) and (_is_decimal(a) or _is_decimal(b)):
        raise TypeError(
            f"on divides decimals in {expr}, whose quotient Spark rounds by the precision they were declared with; "
            f"divide doubles, as in cast({a.expr} as double) / {b.expr}, or multiply the other side instead"
        )
    a, b = (node if node.type.kind == "null" else as_float(node) for node in args)
    return _float_operation("/", np.divide, a, b, expr, guard=True)


def _is_decimal(node: Node) -> bool:
    """Whether an exact node is a decimal to Spark, rather than an integer."""
    if node.type.scale or node.type.label.startswith("decimal"):
        return True
    return node.op not in ("cast", "div") and any(_is_decimal(arg) for arg in node.args if arg.type.kind == "exact")


def _quotient(name: str) -> Builder:
    def build(args: list[Node], expr: Call) -> Node:
        if name == "%":
            numbers(args, expr)
        a, b = args
        if a.type.kind == b.type.kind and a.type.kind in ("exact", "duration"):
            return _exact_quotient(name, a, b, expr)
        if name == "div":
            raise TypeError(
                f"on cannot compute {expr}: {a.expr} is {a.type} and {b.expr} is {b.type}, and div needs "
                f"integers or decimals; write floor({a.expr} / {b.expr})"
            )
        return _float_operation("%", np.fmod, a, b, expr, guard=True)

    return build


def _exact_quotient(name: str, a: Node, b: Node, expr: Expr) -> Node:
    kind = a.type.kind
    a, b = same_scale([a, b])
    most = max(abs(a.type.low), abs(a.type.high))
    if name == "div":
        type = exact(-most, most)
    else:
        most = min(most, max(abs(b.type.low), abs(b.type.high)))
        type = Type(kind, a.type.scale, -most, most)
    which, first, second = (0 if name == "div" else 1), a.run, b.run

    def run(rows: Rows) -> Vector:
        p, vp = first(rows)
        q, vq = second(rows)
        zero = q == 0
        valid = both(vp, vq)
        if zero.any():
            valid = both(valid, ~zero)
            q = np.where(zero, 1, q)
        return vector.truncated(p, q)[which], valid

    return make(name, (a, b), type, expr, run)


def minus(args: list[Node], expr: Expr) -> Node:
    node = args[0]
    if node.type.kind == "null":
        return node
    if node.type.kind not in ("exact", "float", "duration"):
        raise wrong(expr, node, "a number")
    inner = node.run
    if node.type.kind == "float":
        return make("neg", (node,), node.type, expr, lambda rows: (-(v := inner(rows))[0], v[1]))
    type = Type(node.type.kind, node.type.scale, -node.type.high, -node.type.low)
    function: Any = np.negative if type.fits and node.type.fits else vector.negate
    return make("neg", (node,), type, expr, lambda rows: (function((v := inner(rows))[0]), v[1]))


def absolute(args: list[Node], expr: Call) -> Node:
    node = args[0]
    if node.type.kind == "null":
        return node
    if node.type.kind not in ("exact", "float", "duration"):
        raise wrong(expr, node, "a number")
    inner = node.run
    if node.type.kind == "float":
        return make("abs", (node,), node.type, expr, lambda rows: (np.abs((v := inner(rows))[0]), v[1]))
    low, high = node.type.low, node.type.high
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    type = Type(node.type.kind, node.type.scale, least, max(abs(low), abs(high)))

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        return np.where(data < 0, vector.negate(data), data), valid

    return make("abs", (node,), type, expr, run)


ARITHMETIC: dict[str, tuple[Builder, int, int]] = {
    "+": (addition("+"), 2, 2),
    "-": (addition("-"), 2, 2),
    "*": (multiplication, 2, 2),
    "/": (division, 2, 2),
    "%": (_quotient("%"), 2, 2),
    "div": (_quotient("div"), 2, 2),
    "neg": (minus, 1, 1),
    "abs": (absolute, 1, 1),
}
