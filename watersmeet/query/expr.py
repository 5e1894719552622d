"""The predicate language as plain objects.

Three frozen classes are the whole language: a column of one side, a constant, and a call of an operator or
function by its name. `parse.py` makes them from SQL text; a program can just as well build them itself, and
then needs no SQL parser at all:

    Call("<", (Call("abs", (Call("-", (Column("l", "x"), Column("r", "x"))),)), Constant(5)))

is `abs(l.x - r.x) < 5`. Operators are called by their SQL symbol (`"="`, `"<>"`, `"<=>"`, `"+"`, `"and"`,
...; unary minus is `"neg"`), functions by their lower-case name. Two calls hold a word where others hold an
operand: `Call("cast", (x, Constant("decimal(10,2)")))` and `Call("date_trunc", (Constant("hour"), x))`.

`str()` gives SQL text again, with no more parentheses than needed.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")

# How tightly an operator binds, as in SQL; a function call or a leaf binds tightest.
_BINDING = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "||": 5, "*": 6, "/": 6, "%": 6, "div": 6, "neg": 7}
_BINDING.update(dict.fromkeys((*COMPARISONS, "between", "in", "like", "ilike", "rlike"), 4))
_BINDING.update({"is_null": 4, "is_true": 4, "is_false": 4})
_TIGHTEST = 9


@dataclass(frozen=True)
class Column:
    """A column of the left ("l") or right ("r") stream; side "" means whichever of the two has it."""

    side: str
    name: str

    def __str__(self) -> str:
        name = self.name if self.name.isidentifier() else "`" + self.name.replace("`", "``") + "`"
        return f"{self.side}.{name}" if self.side else name


@dataclass(frozen=True)
class Constant:
    """None, bool, int, Decimal, float, str, bytes, or a datetime date, time, datetime or timedelta."""

    value: object

    def __str__(self) -> str:
        return _literal(self.value)


@dataclass(frozen=True)
class Call:
    name: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return _call(self)


Expr = Column | Constant | Call


def walk(expr: Expr):
    """The expression and everything inside it."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from walk(arg)


DEPTH = 100


def check_depth(expr: Expr) -> None:
    """Refuse what is nested so deeply that walking it, which is done by recursion, could end in Python's limit."""
    level, here = 0, [expr]
    while here:
        level += 1
        if level > DEPTH:
            raise ValueError(
                f"on is nested more than {DEPTH} levels deep (each of a chain of operators is a level, but not of "
                f"and, or, in); compute a part of it before the join, in a column of its own"
            )
        here = [arg for each in here if isinstance(each, Call) for arg in each.args]


def _literal(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value):
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        return f"cast('{value}' as double)"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime.datetime):
        return f"timestamp '{value.isoformat(' ')}'"
    if isinstance(value, datetime.date):
        return f"date '{value}'"
    if isinstance(value, datetime.time):
        return f"time '{value}'"
    if isinstance(value, datetime.timedelta):
        return f"interval '{_plain_seconds(value)}' seconds"
    return str(value)


def _plain_seconds(value: datetime.timedelta) -> str:
    micros = value // datetime.timedelta(microseconds=1)
    text = f"{Decimal(micros).scaleb(-6):f}"
    return text.rstrip("0").rstrip(".")


def _binding(expr: Expr) -> int:
    return _BINDING.get(expr.name, _TIGHTEST) if isinstance(expr, Call) else _TIGHTEST


def _inside(expr: Expr, least: int) -> str:
    return str(expr) if _binding(expr) >= least else f"({expr})"


_ARGUMENTS = {"not": 1, "neg": 1, "between": 3, "is_null": 1, "is_true": 1, "is_false": 1, "cast": 2}


def _call(call: Call) -> str:
    name, args = call.name, call.args
    binding = _BINDING.get(name, _TIGHTEST)
    if len(args) != _ARGUMENTS.get(name, len(args)) or not args:  # not a predicate; but an error must show it
        return f"{name}({', '.join(map(str, args))})"
    if name == "not":
        inner = args[0]
        if isinstance(inner, Call) and inner.name in ("is_null", "is_true", "is_false") and len(inner.args) == 1:
            return f"{_inside(inner.args[0], binding + 2)} is not {inner.name[3:]}"
        return f"not {_inside(inner, _TIGHTEST)}"
    if name == "neg":
        text = _inside(args[0], _TIGHTEST)
        return f"-({text})" if text.startswith("-") else f"-{text}"  # two dashes are a comment
    if name in ("and", "or"):
        return f" {name} ".join(_inside(arg, binding) for arg in args)
    if name == "between":
        operand, low, high = (_inside(arg, binding + 1) for arg in args)
        return f"{operand} between {low} and {high}"
    if name == "in":
        return f"{_inside(args[0], binding + 1)} in ({', '.join(map(str, args[1:]))})"
    if name in ("is_null", "is_true", "is_false"):
        return f"{_inside(args[0], binding + 1)} is {name[3:]}"
    if name == "cast" and isinstance(args[1], Constant):
        return f"cast({args[0]} as {args[1].value})"
    if name == "case":
        parts = [f"when {when} then {then}" for when, then in zip(args[:-1:2], args[1::2], strict=False)]
        return f"case {' '.join(parts)} else {args[-1]} end"
    if name in _BINDING and len(args) == 2:
        # Left to right, and comparisons do not chain: the right operand must bind tighter.
        left = _inside(args[0], binding + 1 if binding == 4 else binding)
        return f"{left} {name} {_inside(args[1], binding + 1)}"
    return f"{name}({', '.join(map(str, args))})"
