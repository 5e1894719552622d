"""SQL text to the objects of `expr.py`, by way of sqlglot's Spark dialect.

sqlglot is imported when the first text is parsed, so plans given as objects need none. What it parses but a
join predicate cannot hold (aggregates, subqueries, window functions, nested fields) is refused by name.

Whatever the text is, what comes out is an expression or an error of ours. sqlglot goes some twenty calls deeper
with each parenthesis, so it gets more room for that than Python allows by default.
"""

from __future__ import annotations

import datetime
import functools
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from .expr import Call, Column, Constant, Expr, check_depth
from .types import temporal_literal

_BINARY = {
    "EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">=", "NullSafeEQ": "<=>",
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "%", "IntDiv": "div", "DPipe": "||",
    "Like": "like", "ILike": "ilike", "RegexpLike": "rlike", "Nullif": "nullif", "Pow": "pow",
    "StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains",
}  # fmt: skip
_UNARY = {
    "Abs": "abs", "Sign": "sign", "Sqrt": "sqrt", "Exp": "exp", "Upper": "upper", "Lower": "lower",
    "Neg": "neg",
    "Length": "length", "Year": "year", "Month": "month", "Day": "day", "DayOfMonth": "day", "Hour": "hour",
    "Minute": "minute", "Second": "second", "IsNan": "isnan", "Ln": "ln", "Date": "to_date",
}  # fmt: skip
_VARIADIC = {"Coalesce": "coalesce", "Least": "least", "Greatest": "greatest"}
_ANONYMOUS = {"isnull": "is_null", "startswith": "starts_with", "endswith": "ends_with", "ltrim": "ltrim"}
_UNITS = {
    "week": 7 * 86_400_000_000, "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000,
    "second": 1_000_000, "millisecond": 1_000, "microsecond": 1,
}  # fmt: skip


_DIGITS = 1_000


def parse(text: str) -> Expr:
    """The predicate in `text`; ValueError, with the place shown, where it is not one."""
    if not isinstance(text, str):
        raise TypeError(f"on must be SQL text or an expression object, got {type(text).__name__}")
    if not text.strip():
        raise ValueError(
            "on is empty; write a predicate over l and r, or 'true' to join all within the window"
        )
    try:
        import sqlglot
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise ImportError(
            "on is SQL text, which needs sqlglot (pip install sqlglot); without it, give on as "
            "watersmeet.query objects (Call, Column, Constant)"
        ) from error
    with _deep_calls():
        try:
            statements = sqlglot.parse(text, read=_dialect())
        except SqlglotError as error:
            raise ValueError(_syntax_message(text, error)) from None
        except RecursionError:
            raise ValueError("on is nested too deeply to parse; use fewer levels of parentheses") from None
        except Exception as error:  # sqlglot stumbles over some texts instead of refusing them
            raise ValueError(f"on is not valid SQL ({error!r}): {text}; use what docs/predicates.md lists") from None
        if len(statements) != 1 or statements[0] is None or type(statements[0]).__name__ == "Block":
            raise ValueError(f"on must be one predicate, got {text!r}; remove the ';'")
        try:
            expr = _convert(statements[0])
        except RecursionError:
            raise ValueError("on chains too many operations; compute some of them before the join") from None
        except (AttributeError, KeyError, IndexError) as error:  # a tree of a shape that no sqlglot had before
            raise ValueError(f"on is not understood ({error!r}): {text}; use what docs/predicates.md lists") from None
        check_depth(expr)
        return expr


_FRAMES = 6_000
_one_at_a_time = threading.Lock()


@contextmanager
def _deep_calls() -> Iterator[None]:
    """More room for recursion. The limit is the whole process's: one thread at a time may raise it and put it back."""
    with _one_at_a_time:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(before, _FRAMES))
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


@functools.cache
def _dialect() -> Any:
    from sqlglot.dialects.spark import Spark

    class Predicates(Spark):
        class Tokenizer(Spark.Tokenizer):
            STRING_ESCAPES = ["\\", "'"]  # 'it''s' as in standard SQL and Spark 4

    return Predicates


def _syntax_message(text: str, error: Any) -> str:
    details = getattr(error, "errors", None)
    if not details or not details[0].get("line"):
        return f"on is not valid SQL: {error}\n  {text}"
    first = details[0]
    what = re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", first["description"])
    line = text.splitlines()[first["line"] - 1]
    column = max(first["col"] - len(first.get("highlight") or " "), 0)
    return (
        f"on is not valid SQL at line {first['line']}, column {first['col']}: {what}\n"
        f"  {line}\n  {' ' * column}^"
    )


def _refuse(node: Any, what: str, remedy: str) -> ValueError:
    return ValueError(f"on cannot contain {what}: {node.sql(dialect='spark')}; {remedy}")


def _convert(node: Any) -> Expr:
    kind = type(node).__name__
    special = _SPECIAL.get(kind)
    if special is not None:
        return special(node)
    if kind == "EQ" and type(node.this).__name__ == type(node.expression).__name__ == "Tuple":
        return _tuples(node)
    if kind in _BINARY:
        pair = Call(_BINARY[kind], (_convert(node.this), _convert(node.expression)))
        return Call("not", (pair,)) if node.args.get("negate") else pair
    if kind in _UNARY:
        inner = node.this
        if kind in ("Year", "Month", "Day", "DayOfMonth") and type(inner).__name__ == "TsOrDsToDate":
            inner = inner.this  # sqlglot's own wrapping
        return Call(_UNARY[kind], (_convert(inner),))
    if kind in _VARIADIC:
        return Call(_VARIADIC[kind], tuple(_convert(arg) for arg in (node.this, *node.expressions)))
    return _unsupported(node)


def _unsupported(node: Any) -> Expr:
    from sqlglot import exp

    if isinstance(node, (exp.Query, exp.Subquery, exp.Exists, exp.Any, exp.All)):
        raise _refuse(node, "a subquery", "join streams, or compute the set beforehand and write x in (...)")
    if isinstance(node, exp.Window):
        raise _refuse(node, "a window function", "compute it before the join")
    if isinstance(node, exp.AggFunc):
        raise _refuse(node, "an aggregate", "aggregate before or after the join")
    if isinstance(node, exp.Func):
        return Call(
            node.sql_name().lower(), tuple(_convert(arg) for arg in node.args.values() if _is_node(arg))
        )
    raise _refuse(node, f"{type(node).__name__}", "rewrite it with operators and functions the library knows")


def _is_node(arg: Any) -> bool:
    from sqlglot import exp

    return isinstance(arg, exp.Expression)


def _column(node: Any) -> Expr:
    parts = [part.name for part in node.parts]
    if len(parts) == 1:
        return Column("", parts[0])
    side = {"l": "l", "left": "l", "r": "r", "right": "r"}.get(parts[0].lower())
    if side is None or len(parts) > 2:
        whole = ".".join(parts)
        if side is not None:
            raise ValueError(
                f"on reaches into a nested column: {whole}; add the field as a column of its own"
            )
        raise ValueError(
            f"on names {whole}, but the streams are called l and r; write l.{parts[-1]} or r.{parts[-1]}"
        )
    return Column(side, parts[1])


def _number(node: Any) -> Expr:
    text = node.this
    if node.is_string:
        return Constant(text)
    if "e" in text.lower():
        try:
            return Constant(float(text))
        except ValueError:
            raise ValueError(f"on has a bad number {text!r}; write it as in 1.5e3") from None
    if len(text) > _DIGITS:
        raise ValueError(f"on has a number of {len(text)} digits, {text[:20]}...; use at most {_DIGITS}")
    return Constant(Decimal(text) if "." in text else int(text))


def _bytes(node: Any) -> bytes:
    try:
        return bytes.fromhex(node.this)
    except ValueError:
        raise _refuse(node, "bytes that are not pairs of hexadecimal digits", "write them as in x'00ff'") from None


def _connective(name: str):
    def convert(node: Any) -> Expr:
        # A long chain is a deep tree to the left: unroll it, so that it stays one flat call.
        operands, stack = [], [node]
        while stack:
            top = stack.pop()
            if type(top) is type(node):
                stack += [top.expression, top.this]
            else:
                operands.append(_convert(top))
        return Call(name, tuple(operands))

    return convert


def _tuples(node: Any) -> Expr:
    """(l.a, l.b) = (r.a, r.b)"""
    left, right = node.this.expressions, node.expression.expressions
    if len(left) != len(right):
        raise _refuse(node, "tuples of different sizes", "compare as many values on both sides")
    pairs = zip(left, right, strict=True)
    return Call("and", tuple(Call("=", (_convert(a), _convert(b))) for a, b in pairs))


def _between(node: Any) -> Expr:
    operand, low, high = _convert(node.this), _convert(node.args["low"]), _convert(node.args["high"])
    if node.args.get("symmetric"):
        low, high = Call("least", (low, high)), Call("greatest", (low, high))
    return Call("between", (operand, low, high))


def _in(node: Any) -> Expr:
    if node.args.get("query") is not None:
        raise _refuse(node, "a subquery", "join streams, or compute the set beforehand and write x in (...)")
    if not node.expressions:
        raise _refuse(node, "an empty or unknown list after IN", "write x in (a, b, ...)")
    return Call("in", tuple(_convert(arg) for arg in (node.this, *node.expressions)))


def _is(node: Any) -> Expr:
    kind = type(node.expression).__name__
    if kind == "Null":
        return Call("is_null", (_convert(node.this),))
    if kind == "Boolean":
        return Call("is_true" if node.expression.this else "is_false", (_convert(node.this),))
    raise _refuse(node, "IS with anything but null, true, false", "write = or <=>")


def _case(node: Any) -> Expr:
    subject = None if node.this is None else _convert(node.this)
    args: list[Expr] = []
    for branch in node.args["ifs"]:
        when = _convert(branch.this)
        args += [when if subject is None else Call("=", (subject, when)), _convert(branch.args["true"])]
    default = node.args.get("default")
    return Call("case", (*args, Constant(None) if default is None else _convert(default)))


def _if(node: Any) -> Expr:
    default = node.args.get("false")
    otherwise = Constant(None) if default is None else _convert(default)
    return Call("case", (_convert(node.this), _convert(node.args["true"]), otherwise))


def _cast(node: Any) -> Expr:
    target = "time" if node.to.this.name == "TIME" else node.to.sql(dialect="spark").lower()
    literal = type(node).__name__ == "Cast" and type(node.this).__name__ == "Literal" and node.this.is_string
    if literal and type(node.to.parent).__name__ == "Cast":
        return _typed_literal(node, target)
    return Call("cast", (_convert(node.this), Constant(target)))


def _typed_literal(node: Any, target: str) -> Expr:
    """date '2024-01-01', timestamp '2024-01-01 00:00:00[+00:00]', time '12:00:00'."""
    text = node.this.this.strip()
    if target not in ("date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz"):
        return Call("cast", (Constant(node.this.this), Constant(target)))
    zoned = target == "timestamp_ltz" or target == "timestamp" and re.search(r"(Z|[+-]\d\d:\d\d(:\d\d)?)$", text)
    kind = target if target in ("date", "time") else "timestamptz" if zoned else "timestamp"
    value = temporal_literal(text, kind)
    if value is None:
        example = {"date": "2026-01-05", "time": "14:30:00"}.get(target, "2026-01-05 14:30:00")
        raise ValueError(f"on has a bad {target} literal {text!r}; write it as in {target} '{example}'")
    return Constant(value)


def _interval(node: Any) -> Expr:
    text = node.this.name if node.this is not None else ""
    unit = node.args.get("unit")
    units = unit.name.lower() if unit is not None else ""
    if " to " in (unit.sql().lower() if unit is not None else ""):
        raise _refuse(
            node, "an interval from one unit to another", "write interval 'N' UNIT + interval 'M' UNIT"
        )
    number = r"[-+]?\s*[0-9]+(?:\.[0-9]*)?"
    pieces = re.findall(rf"({number})\s*([a-zA-Z]*)", f"{text} {units}" if units else text)
    micros = Decimal(0)
    if not pieces or re.sub(rf"{number}\s*[a-zA-Z]*", "", f"{text} {units}").strip():
        raise _refuse(node, "an interval that is not a number and a unit", "write interval '5' seconds")
    for size, name in pieces:
        scale = _UNITS.get(name.lower().rstrip("s"))
        if scale is None:
            raise _refuse(node, f"an interval of {name or 'no unit'!r}", f"use one of {', '.join(_UNITS)}")
        micros += Decimal(re.sub(r"\s", "", size)) * scale
    if micros != int(micros):
        raise _refuse(node, "an interval finer than a microsecond", "use a whole number of microseconds")
    try:
        return Constant(datetime.timedelta(microseconds=int(micros)))
    except OverflowError:
        raise _refuse(node, "an interval longer than 999999999 days", "use a shorter one") from None


def _round_like(name: str):
    def convert(node: Any) -> Expr:
        decimals = node.args.get("decimals")
        return Call(
            name, (_convert(node.this),) if decimals is None else (_convert(node.this), _convert(decimals))
        )

    return convert


def _trim(node: Any) -> Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "trim")
    characters = node.args.get("expression")
    return Call(
        name, (_convert(node.this),) if characters is None else (_convert(node.this), _convert(characters))
    )


def _substring(node: Any) -> Expr:
    parts = (node.this, node.args.get("start"), node.args.get("length"))
    return Call("substring", tuple(_convert(part) for part in parts if part is not None))


def _escape(node: Any) -> Expr:
    inner = _convert(node.this)
    negated = isinstance(inner, Call) and inner.name == "not"
    like = inner.args[0] if isinstance(inner, Call) and negated else inner
    assert isinstance(like, Call)
    escaped = Call(like.name, (*like.args, _convert(node.expression)))
    return Call("not", (escaped,)) if negated else escaped


def _days(node: Any) -> Expr:
    if node.args.get("unit") is not None and node.args["unit"].name.upper() != "DAY":
        raise _refuse(node, "date arithmetic in anything but days", "add an interval")
    return Call("+", (_convert(node.this), _convert(node.expression)))


def _anonymous(node: Any) -> Expr:
    name = node.name.lower()
    args = tuple(_convert(arg) for arg in node.expressions)
    if name == "isnotnull":
        return Call("not", (Call("is_null", args),))
    return Call(_ANONYMOUS.get(name, name), args)


def _extract(node: Any) -> Expr:
    return Call(node.this.name.lower(), (_convert(node.expression),))


def _day_difference(node: Any) -> Expr:
    if node.args.get("unit") is not None:
        raise _refuse(node, "a difference in a unit", "write l.ts - r.ts and compare it with an interval")
    return Call("datediff", (_convert(node.this), _convert(node.expression)))


_SPECIAL = {
    "Column": _column,
    "Literal": _number,
    "HexString": lambda node: Constant(_bytes(node)),
    "Boolean": lambda node: Constant(bool(node.this)),
    "Null": lambda node: Constant(None),
    "Paren": lambda node: _convert(node.this),
    "And": _connective("and"),
    "Or": _connective("or"),
    "Not": lambda node: Call("not", (_convert(node.this),)),
    "NullSafeNEQ": lambda node: Call("not", (Call("<=>", (_convert(node.this), _convert(node.expression))),)),
    "Between": _between,
    "In": _in,
    "Is": _is,
    "Case": _case,
    "If": _if,
    "Cast": _cast,
    "TryCast": _cast,
    "Interval": _interval,
    "Floor": _round_like("floor"),
    "Ceil": _round_like("ceil"),
    "Round": _round_like("round"),
    "Concat": lambda node: Call("concat", tuple(_convert(arg) for arg in node.expressions)),
    "Trim": _trim,
    "Substring": _substring,
    "Escape": _escape,
    "TsOrDsAdd": _days,
    "DateDiff": _day_difference,
    "TsOrDsToDate": lambda node: Call("to_date", (_convert(node.this),)),
    "TimestampTrunc": lambda node: Call(
        "date_trunc", (Constant(node.args["unit"].name.lower()), _convert(node.this))
    ),
    "DateTrunc": lambda node: Call(
        "date_trunc", (Constant(node.args["unit"].name.lower()), _convert(node.this))
    ),
    "Extract": _extract,
    "Anonymous": _anonymous,
    "EqualNull": lambda node: Call("<=>", (_convert(node.this), _convert(node.expression))),
}
