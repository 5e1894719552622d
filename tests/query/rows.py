"""A predicate evaluated on one pair of rows in plain Python: the oracle for everything in `watersmeet.query`.

Written from the semantics alone. Values: Fraction for integers and decimals, float, np.float32, bool, str,
bytes, `Moment` for what is temporal (exact seconds), None for null.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from watersmeet.query import Call, Column, Constant, Expr, JoinPlan, Residual, SidePlan
from watersmeet.query.plan import Tuples


@dataclass(frozen=True)
class Moment:
    kind: str
    seconds: Fraction


EPOCH = datetime.datetime(1970, 1, 1)
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def values(array: pa.Array) -> list:
    """A column as the oracle's values, straight from Arrow's raw numbers."""
    arrow = array.type
    check = pa.types
    if check.is_dictionary(arrow):
        return values(array.dictionary_decode())
    if check.is_temporal(arrow):
        raw = array.cast(pa.int32()).to_pylist() if arrow.bit_width == 32 else array.cast(pa.int64()).to_pylist()
        if check.is_date32(arrow):
            return [None if v is None else Moment("date", Fraction(v) * 86400) for v in raw]
        if check.is_date64(arrow):
            return [None if v is None else Moment("date", Fraction(v // 86_400_000) * 86400) for v in raw]
        kind = "duration" if check.is_duration(arrow) else "time" if check.is_time(arrow) else "timestamp"
        if check.is_timestamp(arrow) and arrow.tz:
            kind = "timestamptz"
        return [None if v is None else Moment(kind, Fraction(v, TICKS[arrow.unit])) for v in raw]
    plain = array.to_pylist()
    if check.is_integer(arrow) or check.is_decimal(arrow):
        return [None if v is None else Fraction(v) for v in plain]
    if check.is_float32(arrow):
        return [None if v is None else np.float32(v) for v in plain]
    return plain


def constant(value: object) -> object:
    if isinstance(value, bool) or value is None or isinstance(value, (float, str, bytes)):
        return value
    if isinstance(value, (int, Decimal)):
        return Fraction(value)
    micro = datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.timedelta):
        return Moment("duration", Fraction(value // micro, 10**6))
    if isinstance(value, datetime.datetime):
        return Moment("timestamp", Fraction((value - EPOCH) // micro, 10**6))
    if isinstance(value, datetime.date):
        return Moment("date", Fraction((value - EPOCH.date()).days) * 86400)
    raise AssertionError(value)


def nearest(value: Fraction) -> float:
    return value.numerator / value.denominator


def double(value: object) -> float:
    return nearest(value) if isinstance(value, Fraction) else float(value)  # type: ignore[arg-type]


def meet(a: object, b: object) -> tuple:
    """Two operands as they are computed with: float32 only among themselves."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a, b
    if isinstance(a, np.float32) and isinstance(b, np.float32):
        return a, b
    if isinstance(a, (float, Fraction, np.float32)) and isinstance(b, (float, Fraction, np.float32)):
        return double(a), double(b)
    return a, b


def order(a: object, b: object) -> int:
    if isinstance(a, Moment) and isinstance(b, Moment):
        return (a.seconds > b.seconds) - (a.seconds < b.seconds)
    if isinstance(a, str) and isinstance(b, str):
        a, b = a.encode(), b.encode()
    a, b = meet(a, b)
    if isinstance(a, (float, np.float32)):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) - math.isnan(b)
    return int(a > b) - int(a < b)  # type: ignore[operator]


COMPARE = {
    "=": lambda o: o == 0,
    "<>": lambda o: o != 0,
    "<": lambda o: o < 0,
    "<=": lambda o: o <= 0,
    ">": lambda o: o > 0,
    ">=": lambda o: o >= 0,
}


def add(a: object, b: object, sign: int) -> object:
    if isinstance(a, Moment) or isinstance(b, Moment):
        return add_moments(a, b, sign)
    a, b = meet(a, b)
    with np.errstate(all="ignore"):
        return a + b if sign > 0 else a - b  # type: ignore[operator]


def add_moments(a: object, b: object, sign: int) -> Moment:
    if isinstance(b, Fraction):
        assert isinstance(a, Moment) and a.kind == "date"
        return Moment("date", a.seconds + sign * b * 86400)
    assert isinstance(a, Moment) and isinstance(b, Moment)
    total = a.seconds + sign * b.seconds
    if b.kind == "duration":
        kind = "timestamp" if a.kind == "date" else a.kind
    elif a.kind == "duration":
        kind = "timestamp" if b.kind == "date" else b.kind
    else:
        kind = "duration"
    return Moment(kind, total)


def truncated(a: Fraction, b: Fraction) -> int:
    return math.trunc(a / b)


def evaluate(expr: Expr, left: dict, right: dict) -> object:
    if isinstance(expr, Column):
        return (left if expr.side == "l" else right)[expr.name]
    if isinstance(expr, Constant):
        return constant(expr.value)
    assert isinstance(expr, Call)
    name = expr.name
    args = [evaluate(arg, left, right) for arg in expr.args]
    if name == "and":
        return False if any(a is False for a in args) else None if None in args else True
    if name == "or":
        return True if any(a is True for a in args) else None if any(a is None for a in args) else False
    if name == "between":
        low = None if args[0] is None or args[1] is None else order(args[0], args[1]) >= 0
        high = None if args[0] is None or args[2] is None else order(args[0], args[2]) <= 0
        return False if low is False or high is False else None if low is None or high is None else True
    if name == "in":
        found = [None if args[0] is None or b is None else order(args[0], b) == 0 for b in args[1:]]
        return True if any(f is True for f in found) else None if any(f is None for f in found) else False
    if name == "<=>":
        if args[0] is None or args[1] is None:
            return args[0] is None and args[1] is None
        return order(*args) == 0
    if name == "is_null":
        return args[0] is None
    if name == "is_true":
        return args[0] is True
    if name == "is_false":
        return args[0] is False
    if name == "coalesce":
        return next((a for a in args if a is not None), None)
    if name == "case":
        for when, then in zip(args[:-1:2], args[1::2], strict=False):
            if when is True:
                return then
        return args[-1]
    if any(a is None for a in args):
        return None
    if name == "not":
        return not args[0]
    if name in COMPARE:
        return COMPARE[name](order(*args))
    if name in ("+", "-"):
        return add(*args, 1 if name == "+" else -1)
    if name == "*":
        a, b = meet(*args)
        with np.errstate(all="ignore"):
            return a * b
    if name == "/":
        a, b = double(args[0]), double(args[1])
        with np.errstate(all="ignore"):
            return None if b == 0 else float(np.divide(a, b))
    if name in ("%", "div"):
        a, b = args
        if b == 0:
            return None
        quotient = truncated(a, b)
        return Fraction(quotient) if name == "div" else a - quotient * b
    if name == "neg":
        return Moment("duration", -args[0].seconds) if isinstance(args[0], Moment) else -args[0]
    if name == "abs":
        return Moment("duration", abs(args[0].seconds)) if isinstance(args[0], Moment) else abs(args[0])
    if name == "cast" and args[1] == "double":
        return double(args[0])
    raise AssertionError(name)


# --- the contract of a plan -----------------------------------------------------------------------


def rows_of(batch: pa.RecordBatch) -> list[dict]:
    columns = {name: values(batch[name]) for name in batch.schema.names}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(batch))]


def truth_table(expr: Expr, left: pa.RecordBatch, right: pa.RecordBatch) -> np.ndarray:
    rights = rows_of(right)
    answer = np.zeros((len(left), len(right)), bool)
    for i, row in enumerate(rows_of(left)):
        for j, other in enumerate(rights):
            answer[i, j] = evaluate(expr, row, other) is True
    return answer


def planned(plan: JoinPlan, left: pa.RecordBatch, right: pa.RecordBatch, by_left: bool) -> np.ndarray:
    """What the plan says of every pair when one side probes; promises about the arrays are checked too."""
    probing, stored = (left, right) if by_left else (right, left)
    side, other = (plan.left, plan.right) if by_left else (plan.right, plan.left)
    keys, probe = other.of(stored).keys(), side.of(probing).probe()
    p, s = len(probing), len(stored)
    for array, size in [
        (keys.equal, s),
        (keys.ordered, s),
        (probe.equal, p),
        *((a, p) for a in probe.lows + probe.highs),
    ]:
        if array is not None:
            assert array.dtype == np.int64 and array.flags.c_contiguous and array.shape == (size,)
    for live, size in ((keys.live, s), (probe.live, p)):
        assert live is None or (live.dtype == np.bool_ and live.shape == (size,))
    found = np.ones((p, s), bool)
    by_equality = plan.equality and plan.range != "box"  # a box has it in its key
    assert (keys.equal is not None) == (probe.equal is not None) == by_equality
    assert (keys.ordered is not None) == bool(probe.lows) == (plan.range is not None)
    if by_equality:
        found &= probe.equal[:, None] == keys.equal[None, :]
    if plan.range is not None:
        hits = np.zeros((p, s), int)
        for low, high in zip(probe.lows, probe.highs, strict=True):
            hits += (low[:, None] <= keys.ordered[None, :]) & (keys.ordered[None, :] <= high[:, None])
        alive = np.ones((p, s), bool) if probe.live is None else np.broadcast_to(probe.live[:, None], (p, s))
        assert (hits[alive] <= 1).all(), "bands of one tuple overlap"
        found &= hits > 0
    if keys.live is not None:
        found &= keys.live[None, :]
    if probe.live is not None:
        found &= probe.live[:, None]
    by_keys = found & within_limits(side, side.of(probing), other.of(stored), p, s)
    left_over(side.rest, by_keys, left, right, by_left)
    left_over(side.residual, found, left, right, by_left)
    assert np.array_equal(found, by_keys), f"by keys, then {side.rest}, is not {side.residual}"
    return found if by_left else found.T


def within_limits(side: SidePlan, probing: Tuples, stored: Tuples, p: int, s: int) -> np.ndarray:
    """Which pairs pass the checks by keys."""
    passed = np.ones((p, s), bool)
    if side.checks is None:
        return passed
    (keys, valid), (limits, possible) = stored.kept(), probing.limits()
    for array in keys:
        assert array.dtype == np.int64 and array.flags.c_contiguous and array.shape == (s,)
    for check, each in zip(side.checks.checks, limits, strict=True):
        assert each.dtype == np.int64 and each.flags.c_contiguous and each.shape[0] == p
        key, hits = keys[check.place], np.zeros((p, s), bool)
        for low, high in zip(each[:, ::2].T, each[:, 1::2].T, strict=True):
            hits |= (low[:, None] <= key[None, :]) & (key[None, :] <= high[:, None])
        passed &= hits
    if valid is not None:
        passed &= valid[None, :]
    if possible is not None:
        passed &= possible[:, None]
    return passed


def left_over(
    residual: Residual | None, found: np.ndarray, left: pa.RecordBatch, right: pa.RecordBatch, by_left: bool
) -> None:
    """Take away what a residual does not keep."""
    if residual is not None:
        a, b = np.nonzero(found)
        i, j = (a, b) if by_left else (b, a)
        lefts = {name: left[name].take(pa.array(i)) for name in residual.left_columns}
        rights = {name: right[name].take(pa.array(j)) for name in residual.right_columns}
        kept = residual.keep(lefts, rights, len(a))
        assert kept.shape == (len(a),) and kept.dtype == np.bool_
        found[a, b] = kept
