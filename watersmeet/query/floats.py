"""Ranges of keys from comparisons of doubles.

A comparison of two one-sided operands is exact as it stands. From a sum that mixes the sides the stored
operand is peeled off: fl(x - y) <= c does not say x <= fl(y + c), but with each step rounded outwards the
range holds every match, and the plan checks the pairs again.

Worked example: `l.x - r.x <= 0.05`, l stored, r.x = 1.0. The next double after 0.05 is 0.05 + 7e-18; adding
1.0 and rounding up gives 1.0500000000000003, so all l.x up to there are looked at.

NaN is the greatest key, so a lower bound lets it pass, as it must: NaN - y >= c is true. That is also why y
- x is taken as y + (-x), with -x stored: for an upper bound on x, NaN would have to be found apart from the
  rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import keys
from .kernels import peel
from .keys import KeyRun
from .node import Node, Rows, as_float
from .ranges import SWAPPED, Found, Key, combine, facing_stored, one_range
from .vector import both


def floating(sign: str, a: Node, b: Node, stored: str) -> Found:
    answer: Found = {}
    facing = facing_stored(sign, a, b, stored)
    if facing is not None:
        way, own, other = facing
        key = _float_key(1, own)
        bound = keys.plain_key(as_float(other))

        def exactly(which: str) -> KeyRun:
            return keys.key_bound(bound, {">": 1, "<": -1}.get(which, 0))

        found = one_range(key, way, exactly, True)
        assert found is not None
        answer[key.id] = found
    if sign == "<>":
        return answer
    if stored in b.sides:
        sign, a, b = SWAPPED[sign], b, a
    if stored in b.sides:
        return answer
    for each, peeled in _peeled(sign, a, b, stored).items():
        answer.setdefault(each, peeled)
    return answer


def _float_key(way: int, node: Node) -> Key:
    text = str(node.expr) if way > 0 else f"-({node.expr})"
    return Key(("float", way, node.key), keys.plain_key(as_float(node), way < 0), text)


def _peeled(sign: str, node: Node, limit: Node, stored: str) -> Found:
    """`node (sign) limit`, limit free of the stored side, as ranges that hold every match."""
    while node.op == "to_float" and node.args[0].type.kind == "float":
        node = node.args[0]  # widening changes nothing
    run_limit = as_float(limit).run
    if node.op == "abs":
        return _peeled_abs(sign, node.args[0], run_limit, stored)
    return _peel(sign, node, run_limit, stored)


def _peeled_abs(sign: str, node: Node, limit: Callable[[Rows], Any], stored: str) -> Found:
    def opposite(rows: Rows) -> Any:
        data, valid = limit(rows)
        # |x| <= NaN holds for every x, so its lower end must be as low as can be.
        return np.where(data != data, -np.inf, -data), valid

    if sign in ("<", "<=", "="):
        return combine([_peel("<=", node, limit, stored, True), _peel(">=", node, opposite, stored, True)], True)
    return combine([_peel(">=", node, limit, stored, True), _peel("<=", node, opposite, stored, True)], False)


def _peel(sign: str, node: Node, limit: Callable[[Rows], Any], stored: str, either_way: bool = False) -> Found:
    """Take other operands off `node` until only what is stored is left.

    `way * node` is what the limit confines. fl(u + v) <= c implies u + v <= c', the next double after c, so
    u <= c' - v, and rounding that up once more keeps every u. Likewise downwards.

    either_way: `-node` may be confined instead, as |x| = |-x|. What is stored then keeps its sign, so that both
    sides of `abs(l.x - r.x) <= c` have the same key.
    """
    way, steps = 1, []
    while True:
        if node.op == "neg":
            way, node = -way, node.args[0]
        elif node.op == "to_float" and node.args[0].type.kind == "float" and node.type.bits == 64:
            node = node.args[0]
        elif node.op in ("+", "-") and (stored in node.args[0].sides) != (stored in node.args[1].sides):
            first = stored in node.args[0].sides
            other = node.args[1] if first else node.args[0]
            minus_second = -1 if node.op == "-" else 1
            steps.append((as_float(other).run, way * (minus_second if first else 1), node.type.bits))
            way, node = (way, node.args[0]) if first else (way * minus_second, node.args[1])
        else:
            break
    if node.sides != {stored} or node.type.kind != "float":
        return {}
    if either_way and way < 0:
        way, steps = 1, [(other, -sense, bits) for other, sense, bits in steps]
    key = _float_key(way, node)

    def make(which: str) -> KeyRun:
        return _peeled_bound(limit, steps, up=which in ("<", "<="))

    found = one_range(key, sign, make, False)
    return {} if found is None else {key.id: found}


def _peeled_bound(limit: Callable[[Rows], Any], steps: list, up: bool) -> KeyRun:
    outward = np.float32(np.inf if up else -np.inf)

    def run(rows: Rows) -> keys.Keyed:
        bound, valid = limit(rows)
        for other, way, bits in steps:
            data, also = other(rows)
            valid = both(valid, also)
            if bits == 32:  # the sum was rounded to float32: the limit must move by a step of those
                bound = np.nextafter(bound.astype(np.float32), outward)
                bound = np.nextafter(bound, outward).astype(np.float64)
            bound, hopeless = peel(keys.frozen(bound), keys.frozen(data), way, up)
            if up and hopeless.any():
                valid = both(valid, ~hopeless)
        return keys.doubles_key(bound), valid

    return run
