"""Three-valued logic, comparisons, and choices between values (case, coalesce, least, ...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import vector
from .expr import Call, Expr
from .node import Builder, Node, Rows, as_null, constant, make, same_scale, unify
from .types import BOOL, Type
from .vector import Vector, both


def boolean(node: Node, expr: Expr) -> Node:
    if node.type.kind == "null":
        return as_null(node, BOOL)
    if node.type.kind != "bool":
        raise TypeError(
            f"on needs a boolean in {expr}, but {node.expr} is {node.type}; compare it with something"
        )
    return node


def _pair(is_and: bool, a: Vector, b: Vector) -> Vector:
    (x, vx), (y, vy) = a, b
    data = x & y if is_and else x | y
    if vx is None and vy is None:
        return data, None
    # One side alone decides when it is valid and false (and), valid and true (or).
    dx, dy = (~x, ~y) if is_and else (x, y)
    if vx is None:
        return data, dx | vy
    if vy is None:
        return data, dy | vx
    return data, (vx & vy) | (vx & dx) | (vy & dy)


def connective(name: str) -> Builder:
    is_and = name == "and"

    def build(args: list[Node], expr: Call) -> Node:
        args = [boolean(arg, expr) for arg in args]
        if len(args) == 1:
            return args[0]
        runs = [arg.run for arg in args]

        def run(rows: Rows) -> Vector:
            total = runs[0](rows)
            for each in runs[1:]:
                total = _pair(is_and, total, each(rows))
            return total

        return make(name, args, BOOL, expr, run)

    return build


def negation(args: list[Node], expr: Expr) -> Node:
    inner = boolean(args[0], expr)
    operand = inner.run

    def run(rows: Rows) -> Vector:
        data, valid = operand(rows)
        return ~data, valid

    return make("not", (inner,), BOOL, expr, run)


def comparison(sign: str) -> Builder:
    def build(args: list[Node], expr: Call) -> Node:
        a, b = unify(args, expr)
        return compare(sign, a, b, expr)

    return build


def compare(sign: str, a: Node, b: Node, expr: Expr) -> Node:
    """a (sign) b for nodes of one kind."""
    kind = a.type.kind
    if kind == "null":
        return make(sign, (a, b), BOOL, expr, _always_null(a, b))
    x, y = same_scale([a, b])
    first, second = x.run, y.run
    function: Any
    if kind == "float":
        function = vector.compare_floats(sign)
    elif kind in ("string", "binary"):
        function = vector.compare_texts(sign)
    else:
        function = vector.ORDERED[sign]

    def run(rows: Rows) -> Vector:
        p, vp = first(rows)
        q, vq = second(rows)
        return function(p, q), both(vp, vq)

    return make(sign, (a, b), BOOL, expr, run)


def _always_null(a: Node, b: Node) -> Callable[[Rows], Vector]:
    def run(rows: Rows) -> Vector:
        size = max(len(a.run(rows)[0]), len(b.run(rows)[0]))
        return np.zeros(size, bool), np.zeros(size, bool)

    return run


def null_safe(args: list[Node], expr: Call) -> Node:
    a, b = unify(args, expr)
    equal = compare("=", a, b, expr).run if a.type.kind != "null" else _always_null(a, b)
    first, second = a.run, b.run

    def run(rows: Rows) -> Vector:
        data, valid = equal(rows)
        if valid is None:
            return data, None
        vp, vq = first(rows)[1], second(rows)[1]
        nulls_meet = False if vp is None or vq is None else ~vp & ~vq
        return (data & valid) | nulls_meet, None

    return make("<=>", (a, b), BOOL, expr, run)


def between(args: list[Node], expr: Call) -> Node:
    operand, low, high = args
    parts = [
        comparison(">=")([operand, low], Call(">=", (expr.args[0], expr.args[1]))),
        comparison("<=")([operand, high], Call("<=", (expr.args[0], expr.args[2]))),
    ]
    return connective("and")(parts, expr)


def among(args: list[Node], expr: Call) -> Node:
    operand, *choices = args
    parts = [
        comparison("=")([operand, choice], Call("=", (expr.args[0], text)))
        for choice, text in zip(choices, expr.args[1:], strict=True)
    ]
    return connective("or")(parts, expr)


def is_null(args: list[Node], expr: Call) -> Node:
    inner = args[0].run

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        if valid is None:
            return np.zeros(1 if isinstance(data, pa.Scalar) else len(data), bool), None
        return ~valid, None

    return make("is_null", args, BOOL, expr, run)


def is_truth(wanted: bool) -> Builder:
    def build(args: list[Node], expr: Call) -> Node:
        inner = boolean(args[0], expr)
        operand = inner.run

        def run(rows: Rows) -> Vector:
            data, valid = operand(rows)
            held = data if wanted else ~data
            return (held if valid is None else held & valid), None

        return make(f"is_{str(wanted).lower()}", (inner,), BOOL, expr, run)

    return build


# --- choices --------------------------------------------------------------------------------------


def _select(rows: Rows, chosen: np.ndarray, a: Vector, b: Vector, kind: str) -> Vector:
    """a where chosen, else b."""
    (x, vx), (y, vy) = a, b
    if kind in ("string", "binary"):
        if isinstance(x, pa.Scalar) and isinstance(y, pa.Scalar) and len(chosen) == 1:
            data = x if chosen[0] else y
        else:
            wide = np.ascontiguousarray(
                np.broadcast_to(chosen, rows.count if len(chosen) == 1 else len(chosen))
            )
            large = pa.large_string() if kind == "string" else pa.large_binary()
            data = pc.if_else(pa.array(wide), x.cast(large), y.cast(large))
            chosen = wide
    else:
        data = np.where(chosen, x, y)
    if vx is None and vy is None:
        return data, None
    true = np.ones(1, bool)
    return data, np.where(chosen, true if vx is None else vx, true if vy is None else vy)


def _common(nodes: list[Node], expr: Expr) -> tuple[list[Node], Type]:
    nodes = same_scale(unify(nodes, expr))
    first = nodes[0].type
    if first.countable:
        low, high = min(node.type.low for node in nodes), max(node.type.high for node in nodes)
        return nodes, Type(first.kind, first.scale, low, high)
    return nodes, first


def case(args: list[Node], expr: Call) -> Node:
    if len(args) % 2 == 0:
        args = [*args, constant(None)]
    conditions = [boolean(node, expr) for node in args[:-1:2]]
    results, type = _common([*args[1::2], args[-1]], expr)
    tests, values = [node.run for node in conditions], [node.run for node in results]

    def run(rows: Rows) -> Vector:
        answer = values[-1](rows)
        for test, value in zip(reversed(tests), reversed(values[:-1]), strict=True):
            data, valid = test(rows)
            answer = _select(rows, data if valid is None else data & valid, value(rows), answer, type.kind)
        return answer

    return make("case", (*conditions, *results), type, expr, run)


def coalesce(args: list[Node], expr: Call) -> Node:
    nodes, type = _common(args, expr)
    runs = [node.run for node in nodes]

    def run(rows: Rows) -> Vector:
        answer = runs[-1](rows)
        for each in reversed(runs[:-1]):
            value = each(rows)
            answer = value if value[1] is None else _select(rows, value[1], value, answer, type.kind)
        return answer

    return make("coalesce", nodes, type, expr, run)


def nullif(args: list[Node], expr: Call) -> Node:
    first = args[0]
    same = comparison("=")(args, expr).run
    inner = first.run

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        equal, known = same(rows)
        hit = equal if known is None else equal & known
        if isinstance(data, pa.Scalar) and len(hit) > 1:
            data = vector.text_array(data, len(hit))
        elif len(data) < len(hit) if not isinstance(data, pa.Scalar) else False:
            data = np.repeat(data, len(hit))
        return data, both(valid, ~hit)

    return make("nullif", (first, args[1]), first.type, expr, run)


def extreme(name: str) -> Builder:
    sign = "<=" if name == "least" else ">="

    def build(args: list[Node], expr: Call) -> Node:
        nodes, type = _common(args, expr)
        runs = [node.run for node in nodes]
        if type.kind == "float":
            beats = vector.compare_floats(sign)
        elif type.kind in ("string", "binary"):
            beats = vector.compare_texts(sign)
        else:
            beats = vector.ORDERED[sign]

        def run(rows: Rows) -> Vector:
            best = runs[0](rows)
            for each in runs[1:]:
                value = each(rows)
                chosen = beats(best[0], value[0])
                if value[1] is not None:  # nulls are passed over
                    chosen = chosen | ~value[1]
                if best[1] is not None:
                    chosen = chosen & best[1]
                best = _select(rows, chosen, best, value, type.kind)
            return best

        return make(name, nodes, type, expr, run)

    return build


LOGIC: dict[str, tuple[Builder, int, int]] = {
    "and": (connective("and"), 1, 10**6),
    "or": (connective("or"), 1, 10**6),
    "not": (negation, 1, 1),
    **{sign: (comparison(sign), 2, 2) for sign in vector.ORDERED},
    "<=>": (null_safe, 2, 2),
    "between": (between, 3, 3),
    "in": (among, 2, 10**6),
    "is_null": (is_null, 1, 1),
    "is_true": (is_truth(True), 1, 1),
    "is_false": (is_truth(False), 1, 1),
    "case": (case, 2, 10**6),
    "coalesce": (coalesce, 1, 10**6),
    "nullif": (nullif, 2, 2),
    "least": (extreme("least"), 1, 10**6),
    "greatest": (extreme("greatest"), 1, 10**6),
}
