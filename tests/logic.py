"""SQL's three-valued logic with Spark's values, as plain Python functions: None is unknown.

NaN equals NaN and is greater than every number; -0.0 equals 0.0; an int meets a float as a float; integer
arithmetic is exact; the remainder has the sign of the dividend. The predicates of `predicates.py` are written
with these.
"""

from __future__ import annotations

import math


def _strict(function):
    """Unknown if any argument is."""
    return lambda *args: None if any(arg is None for arg in args) else function(*args)


def _order(a, b) -> int:
    """-1, 0 or 1, in Spark's order."""
    if isinstance(a, float) or isinstance(b, float):
        a, b = float(a), float(b)
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) - math.isnan(b)
    return (a > b) - (a < b)


eq = _strict(lambda a, b: _order(a, b) == 0)
ne = _strict(lambda a, b: _order(a, b) != 0)
lt = _strict(lambda a, b: _order(a, b) < 0)
le = _strict(lambda a, b: _order(a, b) <= 0)
gt = _strict(lambda a, b: _order(a, b) > 0)
ge = _strict(lambda a, b: _order(a, b) >= 0)
add = _strict(lambda a, b: a + b)
sub = _strict(lambda a, b: a - b)
mul = _strict(lambda a, b: a * b)
absolute = _strict(abs)


@_strict
def rem(a, b):
    if b == 0:
        return None
    return abs(a) % abs(b) * (1 if a >= 0 else -1)


def between(a, low, high):
    return and_(ge(a, low), le(a, high))


def and_(*args):
    if any(arg is False for arg in args):
        return False
    return None if any(arg is None for arg in args) else True


def or_(*args):
    if any(arg is True for arg in args):
        return True
    return None if any(arg is None for arg in args) else False


def not_(a):
    return None if a is None else not a
