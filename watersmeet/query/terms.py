"""What a predicate says about keys.

The predicate is brought to negation normal form and cut at its top-level ANDs. Each conjunct is then asked,
for a stored side s: do you confine some key of s to ranges that the other side's tuple determines?

- Countable values (integers, decimals, everything temporal) are exact, so their comparisons may be
  rearranged like equations: `l.a + r.a > 3`, `l.a - r.b between -3 and 7`, `abs(l.x - r.x) < l.tol` are all
  linear in their columns. Terms of s go to one side with coprime whole coefficients, everything else to the
  other (`Linear`).
- Doubles may not: fl(x - y) <= c does not say x <= fl(y + c). A comparison of two one-sided operands is
  exact as it stands; from a sum the stored operand is peeled off with outward rounding (`_peel`), which
  gives a range that holds every match, and the conjunct is checked again on the pairs.
- Texts are confined by their first bytes, and checked again.

Answers compose: an AND of ranges over the same key is their intersection, an OR their union, so an OR of
bands over one pair of keys is several ranges, and `<>` is two. A condition on the probing side alone, joined
by AND, is a range that holds everything or nothing (not by OR: it would also have to hold the stored tuples
whose key is null).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd

import numpy as np

from . import keys
from .expr import Call
from .floats import floating
from .keys import Band, KeyRun
from .linear import Linear, linear, sum_of, text_of, whole_form
from .logic import compare, connective, negation
from .node import Node, Rows, as_float, rescaled, sideless, truth
from .ranges import SWAPPED, Found, Key, Ranges, combine, facing_stored, one_range
from .types import INT64_MIN

FLIPPED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
OTHER = {"l": "r", "r": "l"}

# --- normal form ----------------------------------------------------------------------------------


def normal(node: Node, negate: bool = False) -> Node:
    """Negations pushed in as far as they go; sound in three-valued logic, as NaN is ordered like a value."""
    if node.op == "not":
        return normal(node.args[0], not negate)
    if node.op in ("and", "or"):
        name = node.op if not negate else {"and": "or", "or": "and"}[node.op]
        args = [normal(arg, negate) for arg in node.args]
        expr = Call("not", (node.expr,)) if negate else node.expr
        return connective(name)(args, expr)  # type: ignore[arg-type]
    if negate and node.op in FLIPPED and node.args:
        a, b = node.args
        return compare(FLIPPED[node.op], a, b, Call(FLIPPED[node.op], (a.expr, b.expr)))
    return negation([node], Call("not", (node.expr,))) if negate else node


def conjuncts(node: Node) -> list[Node]:
    """The top-level ANDs taken apart; a BETWEEN stays one."""
    if node.op == "and" and not (isinstance(node.expr, Call) and node.expr.name == "between"):
        return [part for arg in node.args for part in conjuncts(arg)]
    return [node]


# --- ranges ---------------------------------------------------------------------------------------


def ranges(node: Node, stored: str) -> Found:
    """By key id, what `node` says about keys of the stored side."""
    if node.op in ("and", "or"):
        parts = [ranges(arg, stored) for arg in node.args]
        return combine(parts, node.op == "and")
    if node.sides == {OTHER[stored]} or not node.sides:
        return {None: Ranges(None, (_all_or_nothing(node),), True, "inequality")}
    if node.op not in SWAPPED or not node.args or stored not in node.sides:
        return {}
    a, b = node.args
    if a.type.countable:
        return _countable(node.op, a, b, stored)
    if a.type.kind == "float":
        return floating(node.op, a, b, stored)
    return _direct(node.op, a, b, stored) if a.type.kind in ("bool", "string", "binary") else {}


def exactly(node: Node, stored: str) -> list[Ranges] | None:
    """What `node` says as ranges of keys of the stored side, all of which must hold; None where these do not tell all.

    Each may be of another key: `l.x between r.a and r.b` is two ranges, of r.a and of r.b.
    """
    exact = [each for each in ranges(node, stored).values() if each.exact]
    if exact:
        return exact[:1]
    parts: list[list[Ranges] | None] = []
    if node.op == "and":
        parts = [exactly(arg, stored) for arg in node.args]
    elif node.op in SWAPPED and node.args and node.args[0].type.countable:
        parts = [None if each is None else [each] for each in _halves(node, stored)]
    if not parts:
        return None
    answer: list[Ranges] = []
    for part in parts:
        if part is None:
            return None
        answer += part
    return answer


def _halves(node: Node, stored: str) -> list[Ranges | None]:
    """`|x| <= c` as x <= c and -x <= c; none of anything else."""
    found = _form(node.op, *node.args)
    if found is None or not any(len(atom.sides) == 2 for _, atom in found[1].atoms.values()):
        return []
    unfolded = None if found[1].cancels else _unfolded(*found)
    if unfolded is None or not unfolded[1]:
        return []
    halves = [_below_zero(found[0], form, stored).values() for form in unfolded[0]]
    return [next((each for each in half if each.exact), None) for half in halves]


def _all_or_nothing(node: Node) -> Band:
    holds = truth(node)

    def run(rows: Rows) -> keys.Keyed:
        possible = holds(rows)
        return np.full(len(possible), INT64_MIN, np.int64), possible

    return Band((run,), ())


# --- countable ------------------------------------------------------------------------------------


def _countable(sign: str, a: Node, b: Node, stored: str) -> Found:
    found = _form(sign, a, b)
    return {} if found is None else _below_zero(*found, stored)


def _form(sign: str, a: Node, b: Node) -> tuple[str, Linear] | None:
    """`a (sign) b` as a sign, one of = <> < <=, and what it compares with zero."""
    left, right = linear(a), linear(b)
    if left is None or right is None:
        return None
    form = left.plus(right, Fraction(-1))
    return (SWAPPED[sign], form.times(Fraction(-1))) if sign in (">", ">=") else (sign, form)


def _below_zero(sign: str, form: Linear, stored: str) -> Found:
    """form (sign) 0, sign one of = <> < <=."""
    if form.cancels:
        return {}
    if any(len(node.sides) == 2 for _, node in form.atoms.values()):
        unfolded = _unfolded(sign, form)
        if unfolded is None:
            return {}
        forms, is_and = unfolded
        answer = combine([_below_zero(sign, each, stored) for each in forms], is_and)
        if sign == "=":  # |x| = c is not quite x = c or x = -c: not for c < 0
            return {k: Ranges(r.key, r.bands, False, r.kind) for k, r in answer.items()}
        return answer
    own = form.only(stored)
    if not own.atoms:
        return {}
    others = Linear({k: p for k, p in form.atoms.items() if k not in own.atoms}, form.rest)
    # own = factor * key with coprime whole coefficients, the first of them positive.
    in_order = sorted(own.atoms.items(), key=lambda item: repr(item[0]))
    own, scale = whole_form(Linear(dict(in_order), Fraction(0)))
    sizes = [coefficient.numerator for coefficient, _ in own.atoms.values()]
    factor = Fraction(gcd(*sizes) * (1 if sizes[0] > 0 else -1), scale)
    own = own.times(Fraction(1, factor.numerator))
    node = sum_of(own)
    # key (sign) bound, bound = -others / factor = numerator / divisor
    numerator, divisor = whole_form(others.times(-1 / factor))
    if factor < 0:
        sign = SWAPPED[sign]
    bound = sum_of(numerator)
    down = bound.type.scale - node.type.scale
    if down < 0:
        bound = rescaled(bound, node.type.scale)
    else:
        divisor *= 10**down
    run, offset, exact = keys.count_key(node)
    key = Key(("count", node.key), run, text_of(own), node.type)

    def make(which: str) -> KeyRun:
        return keys.count_bound(bound, divisor, offset, which, exact)

    found = one_range(key, sign, make, exact)
    return {} if found is None else {key.id: found}


def _unfolded(sign: str, form: Linear) -> tuple[list[Linear], bool] | None:
    """A form with one |x| of both sides in it as the two with x and -x, and whether both must hold."""
    mixed = [(key, pair) for key, pair in form.atoms.items() if len(pair[1].sides) == 2]
    name, (coefficient, node) = mixed[0]
    if len(mixed) > 1 or node.op != "abs" or sign == "<>":
        return None
    inner = linear(node.args[0])
    if inner is None:
        return None
    rest = Linear({k: p for k, p in form.atoms.items() if k != name}, form.rest)
    return [rest.plus(inner, coefficient * way) for way in (1, -1)], sign != "=" and coefficient > 0


# --- bool and text --------------------------------------------------------------------------------


def _direct(sign: str, a: Node, b: Node, stored: str) -> Found:
    facing = facing_stored(sign, a, b, stored)
    if facing is None:
        return {}
    sign, own, other = facing
    exact = own.type.kind not in ("string", "binary")
    key = Key((own.type.kind, own.key), keys.plain_key(own), str(own.expr))
    bound = keys.plain_key(other)

    def make(which: str) -> KeyRun:
        return keys.key_bound(bound, {">": 1, "<": -1}.get(which, 0) if exact else 0)

    found = one_range(key, sign, make, exact)
    return {} if found is None else {key.id: found}


# --- equality -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equality:
    left: KeyRun
    right: KeyRun
    exact: bool
    alike: bool  # the same expression of either side


def equality(node: Node) -> Equality | None:
    """Keys of both sides that are equal wherever the conjunct is true, if it is an equality between them."""
    if node.op == "<=>":
        return _null_safe(node)
    if node.op != "=" or not node.args:
        return None
    a, b = node.args
    if not a.type.countable:
        if a.sides == {"r"}:
            a, b = b, a
        if a.sides != {"l"} or b.sides != {"r"} or a.type.kind == "null":
            return None
        if a.type.kind == "float":
            a, b = as_float(a), as_float(b)
        exact = a.type.kind not in ("string", "binary")
        return Equality(keys.equal_key(a), keys.equal_key(b), exact, _alike(a, b))
    left, right = linear(a), linear(b)
    if left is None or right is None:
        return None
    form, _ = whole_form(left.plus(right, Fraction(-1)))
    if form.cancels:
        return None
    own = form.only("l")
    others = Linear({k: p for k, p in form.atoms.items() if k not in own.atoms}, form.rest).times(
        Fraction(-1)
    )
    if not own.atoms or not others.atoms or any(p[1].sides != {"r"} for p in others.atoms.values()):
        return None
    if all(p[0] < 0 for p in own.atoms.values()):
        own, others = own.times(Fraction(-1)), others.times(Fraction(-1))
    x, y = sum_of(own), sum_of(others)
    scale = max(x.type.scale, y.type.scale)
    x, y = rescaled(x, scale), rescaled(y, scale)
    first, second, exact = keys.equal_counts(x, y)
    return Equality(first, second, exact, _alike(x, y))


def _alike(a: Node, b: Node) -> bool:
    return sideless(a.key) == sideless(b.key)


def _null_safe(node: Node) -> Equality | None:
    a, b = node.args
    if a.sides == {"r"}:
        a, b = b, a
    if a.sides != {"l"} or b.sides != {"r"} or a.type.kind == "null":
        return None
    if a.type.countable:
        scale = max(a.type.scale, b.type.scale)
        a, b = rescaled(a, scale), rescaled(b, scale)
        first, second = keys.wrapped(a), keys.wrapped(b)
    else:
        if a.type.kind == "float":
            a, b = as_float(a), as_float(b)
        first, second = keys.equal_key(a), keys.equal_key(b)
    return Equality(_nulls_too(first), _nulls_too(second), False, _alike(a, b))


def _nulls_too(inner: KeyRun) -> KeyRun:
    def run(rows: Rows) -> keys.Keyed:
        data, valid = inner(rows)
        return (data if valid is None else np.where(valid, data, 0)), None

    return run
