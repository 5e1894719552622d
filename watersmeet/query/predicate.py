"""A join's predicate as users give it: SQL text, objects of `expr.py`, or a function of two rows.

    lambda l, r: (l.price - r.price).abs() <= 0.05

is called once, with two `Row`s that have no values. Their columns are `Value`s, which note down what is done with them:
what comes back is the expression `abs(l.price - r.price) <= 0.05`. So a function can say what SQL can, and no more; it
never runs on data. Names are those of PySpark's columns where it has them, and those of SQL (docs/predicates.md).

Constants keep their Python type: 0.05 is a double, as in PySpark; in SQL text it is a decimal, as `Decimal("0.05")` is.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from .expr import Call, Column, Constant, Expr
from .parse import parse

On = str | Expr | Callable[[Any, Any], Any]

_HELD = (bool, int, float, Decimal, str, bytes, datetime.date, datetime.time, datetime.timedelta)
_FORM = "on=lambda l, r: (l.price - r.price).abs() <= 0.05"


def predicate(on: Any) -> Expr:
    """The expression that `on` stands for; ValueError or TypeError where it is none."""
    if isinstance(on, str):
        return parse(on)
    if isinstance(on, Expr):
        return on
    if isinstance(on, Value):
        return on.expr
    if type(on).__name__ == "Column":
        raise TypeError(
            f"on is a column of Spark, {on}, which does not tell the two streams apart; give SQL over l and r, such as "
            f"'abs(l.price - r.price) <= 0.05', or a function of two rows, such as {_FORM}"
        )
    if not callable(on):
        raise TypeError(
            f"on must be SQL text such as 'l.id = r.id', or a function of two rows such as {_FORM}, got {on!r}"
        )
    return _called(on)


def _called(function: Callable[[Any, Any], Any]) -> Expr:
    try:
        answer = function(Row("l"), Row("r"))
    except _Misused as error:
        raise TypeError(str(error)) from None
    except Exception as error:
        raise TypeError(
            f"on, called with two rows, raised {type(error).__name__}: {error}; it must take two rows and combine "
            f"their columns by operators and methods, such as {_FORM}"
        ) from error
    if isinstance(answer, bool | np.bool_):
        return Constant(bool(answer))
    if isinstance(answer, Value):
        return answer.expr
    if isinstance(answer, Expr):
        return answer
    raise TypeError(f"on must give a comparison of columns, such as {_FORM}, but gave {answer!r}")


class Row:
    """The row of one stream, as a predicate sees it: `l.price`, or `l["unit price"]`."""

    def __init__(self, side: str):
        self._side = side

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Value:
        if not isinstance(name, str):
            raise _Misused(f"on asks a row for {name!r}; columns have names, as in {self._side}['price']")
        return Value(Column(self._side, name))

    def __repr__(self) -> str:
        return f"Row({self._side!r})"


class _Misused(TypeError):
    """Something that Python would take otherwise than it is meant."""


class Value:
    """A column, or what is computed from columns."""

    __slots__ = ("expr",)
    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # NumPy's numbers leave operators to us

    def __init__(self, expr: Expr):
        self.expr = expr

    def __repr__(self) -> str:
        return f"Value({str(self.expr)!r})"

    def __bool__(self) -> bool:
        raise _Misused(
            f"on asks whether {self.expr} is true, which is not known before rows come; write & for and, | for or, "
            f"~ for not, each operand in parentheses, and x.between(a, b) for a <= x <= b"
        )

    def __iter__(self) -> Any:
        raise _Misused(f"on goes through {self.expr} as if it were a list; fields of nested columns cannot be used")

    # -- operators ---------------------------------------------------------------------------------------------------

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return _call("=", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return _call("<>", self, other)

    def __lt__(self, other: Any) -> Value:
        return _call("<", self, other)

    def __le__(self, other: Any) -> Value:
        return _call("<=", self, other)

    def __gt__(self, other: Any) -> Value:
        return _call(">", self, other)

    def __ge__(self, other: Any) -> Value:
        return _call(">=", self, other)

    def __add__(self, other: Any) -> Value:
        return _call("+", self, other)

    def __radd__(self, other: Any) -> Value:
        return _call("+", other, self)

    def __sub__(self, other: Any) -> Value:
        return _call("-", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _call("-", other, self)

    def __mul__(self, other: Any) -> Value:
        return _call("*", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _call("*", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _call("/", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _call("/", other, self)

    def __mod__(self, other: Any) -> Value:
        """SQL's: with the sign of the dividend, as in PySpark."""
        return _call("%", self, other)

    def __rmod__(self, other: Any) -> Value:
        return _call("%", other, self)

    def __floordiv__(self, other: Any) -> Value:
        raise _Misused("on has //, which rounds down in Python but not in SQL; write x.div(y), or (x / y).floor()")

    __rfloordiv__ = __floordiv__

    def __pow__(self, other: Any) -> Value:
        return _call("pow", self, other)

    def __rpow__(self, other: Any) -> Value:
        return _call("pow", other, self)

    def __neg__(self) -> Value:
        return _call("neg", self)

    def __abs__(self) -> Value:
        return _call("abs", self)

    def __and__(self, other: Any) -> Value:
        return _chain("and", self, other)

    def __rand__(self, other: Any) -> Value:
        return _chain("and", other, self)

    def __or__(self, other: Any) -> Value:
        return _chain("or", self, other)

    def __ror__(self, other: Any) -> Value:
        return _chain("or", other, self)

    def __invert__(self) -> Value:
        return _call("not", self)

    # -- methods that are not functions of the same name ---------------------------------------------------------------

    def between(self, low: Any, high: Any) -> Value:
        return _call("between", self, low, high)

    def isin(self, *values: Any) -> Value:
        """Of the values given, or of one list of them."""
        one_list = len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset)
        given = tuple(values[0]) if one_list else values
        if not given:
            raise _Misused("on has isin() without values; give some, as in l.kind.isin('a', 'b')")
        return _call("in", self, *given)

    def is_null(self) -> Value:
        return _call("is_null", self)

    def is_not_null(self) -> Value:
        return ~self.is_null()

    def eq_null_safe(self, other: Any) -> Value:
        """Equal, or both null."""
        return _call("<=>", self, other)

    def cast(self, type: str) -> Value:
        """As SQL's types: "double", "decimal(10,2)"."""
        name = type if isinstance(type, str) else getattr(type, "simpleString", lambda: None)()
        if not isinstance(name, str):
            raise _Misused(f"on casts {self.expr} to {type!r}; give the type as text, as in x.cast('decimal(10,2)')")
        return Value(Call("cast", (self.expr, Constant(name.lower()))))

    def date_trunc(self, unit: str) -> Value:
        return Value(Call("date_trunc", (Constant(unit), self.expr)))

    def substr(self, start: Any, length: Any) -> Value:
        return _call("substring", self, start, length)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        """Every function of SQL that there is, with this as its first argument: `x.round(2)`, `x.coalesce(y)`."""
        if name.startswith("__"):
            raise AttributeError(name)
        method = _PYSPARK.get(name)
        if method is not None:
            return getattr(self, method)
        from .evaluate import FUNCTIONS, supported

        named = _SPELLED.get(name, name)
        if named not in FUNCTIONS or not named.isidentifier():
            known = ", ".join(_methods(supported()))
            raise _Misused(f"on calls an unknown method {name} of {self.expr}; known: {known}")
        return lambda *given: _call(named, self, *given)


#: PySpark's names of methods, and of functions.
_PYSPARK = {"isNull": "is_null", "isNotNull": "is_not_null", "eqNullSafe": "eq_null_safe"}
_SPELLED = {"startswith": "starts_with", "endswith": "ends_with"}


def _methods(functions: list[str]) -> list[str]:
    own = {"between", "isin", "is_null", "is_not_null", "eq_null_safe", "cast", "like", "ilike", "rlike", "div"}
    return sorted((own | set(functions)) - {"if", "nvl", "is null", "not"})


def _call(name: str, *args: Any) -> Value:
    return Value(Call(name, tuple(map(_expr, args))))


def _chain(name: str, *args: Any) -> Value:
    """One flat call, however many operands are chained."""
    flat: list[Expr] = []
    for arg in map(_expr, args):
        flat += arg.args if isinstance(arg, Call) and arg.name == name else [arg]
    return Value(Call(name, tuple(flat)))


def _expr(value: Any) -> Expr:
    if isinstance(value, Value):
        return value.expr
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if value is None or isinstance(value, _HELD):
        return Constant(value)
    raise _Misused(
        f"on has {value!r}, which is no constant of a predicate; use a number, text, bytes, or a date, time, datetime "
        f"or timedelta"
    )
