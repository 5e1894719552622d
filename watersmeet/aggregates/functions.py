"""count, sum, min, max and avg: from their text to slots, and from slots to columns of the result.

A slot is something that can be folded row by row in any order: added up, the least, the greatest. Aggregates share
them; those of one expression `x` are

    valid   how many are not null        count(x), and whether sum, min, max and avg are null
    low, high   their sum                of whole numbers, as high * 2^32 + low, so that no sum overflows
    sum         likewise                 of doubles
    least, greatest                      as int64 keys in the order of the values: NaN is greater than any number

Types are Spark's: sum of integers is bigint, of decimal(p,s) decimal(p+10,s), of floats double; avg of decimals has 4
more digits, else it is double; min and max have the type of what they look at. A sum beyond its type is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.query.evaluate import bind
from watersmeet.query.kernels import NAN_KEY
from watersmeet.query.keys import doubles_key
from watersmeet.query.node import Node, Rows
from watersmeet.query.parse import parse
from watersmeet.query.types import TEMPORAL
from watersmeet.query.windows import Side

from .blocks import ADD, GREATEST, LEAST
from .runs import Slots, Sums

Array = np.ndarray

FUNCTIONS = ("count", "sum", "min", "max", "avg")
_FORM = "such as 'count(*)', 'sum(r.amount)', 'max(r.price)'"
_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DIGITS = 38
_SMALL = 1 << 31
_MASK = np.int64(0xFFFFFFFF)


@dataclass(frozen=True)
class Call:
    """One aggregate as it was given."""

    name: str
    function: str
    inside: Any  # an expression; None: *
    text: str


def calls(aggregate: Any, side: Side) -> tuple[Call, ...]:
    """What was given as `aggregate`; ValueError or TypeError where it is none."""
    form = _FORM if side == "right" else _FORM.replace("r.", "l.")
    if not isinstance(aggregate, Mapping) or not aggregate:
        raise TypeError(f"aggregate must be names and what to compute, {form.replace('such as', 'as in')}; got "
                        f"{aggregate!r}; write aggregate={{'n': 'count(*)'}}")  # fmt: skip
    return tuple(_call(name, text, form) for name, text in aggregate.items())


def _call(name: Any, text: Any, form: str) -> Call:
    if not isinstance(name, str) or not name:
        raise TypeError(f"aggregate must have names that are text, got {name!r}")
    what = f"aggregate {name!r}"
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text {form}, got {text!r}")
    found = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if found is None:
        raise ValueError(f"{what} must be one function of the other side's columns {form}, got {text!r}")
    function, inside = found[1].lower(), found[2].strip()
    if function not in FUNCTIONS:
        raise ValueError(f"{what} calls an unknown function {found[1]} in {text!r}; known: {', '.join(FUNCTIONS)}")
    if inside == "*":
        if function != "count":
            raise ValueError(f"{what} is {text!r}, but only count takes *; name a column, as in {function}(r.amount)")
        return Call(name, function, None, text.strip())
    if re.match(r"distinct\b", inside, re.IGNORECASE):
        raise ValueError(f"{what} is {text!r}; distinct is not supported: leave it out, or aggregate the pairs")
    with _named(what):
        return Call(name, function, parse(inside), text.strip())


class _named:
    """Errors inside are about this aggregate, not about `on`."""

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ValueError | TypeError) and str(error).startswith("on "):
            raise type(error)(self._what + str(error)[2:].replace("a predicate", "an aggregate")) from None


@dataclass(frozen=True)
class _Expression:
    """What some aggregates look at, and its slots; -1: not wanted."""

    node: Node
    valid: int
    low: int = -1
    high: int = -1
    double: int = -1
    least: int = -1
    greatest: int = -1


class Aggregates:
    """Aggregates over columns of known types. side: whose columns."""

    def __init__(self, given: tuple[Call, ...], left: pa.Schema, right: pa.Schema, side: Side):
        self._given = given
        own: Side = "left" if side == "right" else "right"
        for call in given:
            if call.name in (left if own == "left" else right).names:
                taken = f"aggregate {call.name!r} has the name of a column of the {own} stream"
                raise ValueError(f"{taken}; choose another")
        ops: list[int] = []
        counting: list[int] = []
        doubles = 0
        nodes: dict[tuple, Node] = {}
        wanted: dict[tuple, set[str]] = {}
        self._keys: list[tuple | None] = []
        fields = []
        for call in given:
            node = None
            if call.inside is not None:
                with _named(f"aggregate {call.name!r}"):
                    node = bind(call.inside, left, right)
                _check(call, node, side)
                nodes[node.key] = node
                wanted.setdefault(node.key, set()).add("sum" if call.function == "avg" else call.function)
            self._keys.append(None if node is None else node.key)
            fields.append(pa.field(call.name, _type(call, node, left if side == "left" else right)))
        self._expressions: dict[tuple, _Expression] = {}
        for key, node in nodes.items():
            slots = {"valid": len(ops)}
            counting.append(len(ops))
            ops.append(ADD)
            if "sum" in wanted[key] and node.type.kind == "float":
                slots["double"] = doubles
                doubles += 1
            elif "sum" in wanted[key]:
                slots |= {"low": len(ops), "high": len(ops) + 1}
                ops += [ADD, ADD]
            for function, slot, op in (("min", "least", LEAST), ("max", "greatest", GREATEST)):
                if function in wanted[key]:
                    slots[slot] = len(ops)
                    ops.append(op)
            self._expressions[key] = _Expression(node, **slots)
        self.fields = fields
        self.slots = Slots(np.array(ops, np.int64), tuple(counting), doubles)
        self._side = side

    # -- from tuples to slots ------------------------------------------------------------------------------------------

    def values(self, batch: pa.RecordBatch) -> tuple[Array, Array, Array]:
        """Of the tuples of a batch: whole numbers, a row a slot; which slots these are; doubles."""
        n = batch.num_rows
        rows = Rows(batch, None, n) if self._side == "left" else Rows(None, batch, n)
        ints: dict[int, Array] = {}
        doubles = np.zeros((self.slots.doubles, n))
        for each in self._expressions.values():
            with np.errstate(all="ignore"):
                data, valid = each.node.run(rows)
            valid = None if valid is None or valid.all() else np.broadcast_to(valid, n)
            if valid is not None:
                ints[each.valid] = valid.astype(np.int64)
            if each.low < 0 and each.double < 0 and each.least < 0 and each.greatest < 0:
                continue
            if each.node.type.kind == "null":
                data = np.zeros(1, np.int64)
            if each.double >= 0:
                doubles[each.double] = _held(np.asarray(data, np.float64), valid, n, 0.0)
            if each.node.type.kind == "float":
                whole = doubles_key(np.ascontiguousarray(data, np.float64))
            else:
                whole = self._whole(each.node, data, valid)
            if each.low >= 0:
                numbers = _held(whole, valid, n, 0)
                small = not n or (int(numbers.max()) < _SMALL and int(numbers.min()) >= -_SMALL)
                ints[each.low] = numbers if small else numbers & _MASK
                if not small:
                    ints[each.high] = numbers >> 32
            for slot, otherwise in ((each.least, _MAX), (each.greatest, _MIN)):
                if slot >= 0:
                    ints[slot] = _held(whole, valid, n, otherwise)
        present = np.array(sorted(ints), np.int64)
        table = np.empty((present.size, n), np.int64)
        for row, slot in zip(table, present, strict=True):
            row[:] = ints[slot]
        return table, present, doubles

    @staticmethod
    def _whole(node: Node, data: Array, valid: Array | None) -> Array:
        if data.dtype == object:
            data = data if valid is None else np.where(valid, data, 0)
            beyond = next((value for value in data if not _MIN <= value <= _MAX), None)
            if beyond is not None:
                raise ValueError(f"aggregate over {node.expr} meets {beyond}, which int64 does not hold (of a decimal, "
                                 f"in units of its last digit); cast it to double")  # fmt: skip
        return np.asarray(data).astype(np.int64, copy=False)

    # -- from slots to columns -----------------------------------------------------------------------------------------

    def columns(self, sums: Sums) -> list[pa.Array]:
        """The aggregates, one value a tuple."""
        return [
            self._column(call, key, field.type, sums)
            for call, key, field in zip(self._given, self._keys, self.fields, strict=True)
        ]

    def _column(self, call: Call, key: tuple | None, type: pa.DataType, sums: Sums) -> pa.Array:
        if key is None:
            return pa.array(sums.counts)
        each = self._expressions[key]
        valid = sums.ints[each.valid]
        if call.function == "count":
            return pa.array(valid)
        null = valid == 0
        node = each.node
        if call.function in ("min", "max"):
            found = sums.ints[each.least if call.function == "min" else each.greatest]
            return _shown(np.where(null, 0, found), null, node, type)
        if node.type.kind == "float":
            total = sums.doubles[each.double]
            with np.errstate(all="ignore"):
                return pa.array(total if call.function == "sum" else total / valid, mask=null)
        low, high = sums.ints[each.low], sums.ints[each.high]
        high, low = high + (low >> 32), low & _MASK  # 0 <= low < 2^32
        if call.function == "avg" and not pa.types.is_decimal(type):
            total = np.where(high >> 31 == high >> 63, ((high << 32) | low).astype(np.float64), high * 2.0**32 + low)
            return pa.array(total / np.maximum(valid, 1), mask=null)
        if call.function == "avg":
            return _average(low, high, valid, node.type.scale, type)
        if pa.types.is_decimal(type):
            return _decimals(low, high, null, type, call)
        if bool(((high >> 31 != high >> 63) & ~null).any()):
            raise ValueError(f"aggregate {call.name!r}, {call.text}, is a sum that bigint does not hold; cast to "
                             f"double, as in sum(cast({node.expr} as double))")  # fmt: skip
        total = pa.array((high << 32) | low, mask=null)
        return total if pa.types.is_int64(type) else total.view(type)


_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def _held(data: Array, valid: Array | None, n: int, otherwise: Any) -> Array:
    """n values, with another one where they are null."""
    data = np.broadcast_to(data, n) if data.size != n else data
    return data if valid is None else np.where(valid, data, otherwise)


def _check(call: Call, node: Node, side: Side) -> None:
    own, other = ("l", "r") if side == "right" else ("r", "l")
    what = f"aggregate {call.name!r}, {call.text},"
    if own in node.sides:
        raise ValueError(f"{what} looks at {own}, of which each row has one; use columns of {other}: those of {own} "
                         f"are in the result as they are")  # fmt: skip
    kind = node.type.kind
    if call.function in ("sum", "avg") and kind not in ("exact", "float", "null"):
        raise TypeError(f"{what} adds up {node.type}; it must be a number: cast it")
    if call.function in ("min", "max") and kind in ("string", "binary"):
        raise TypeError(f"{what} compares {node.type}; min and max are for numbers, times and booleans")


def _precision(node: Node) -> int:
    return len(str(max(abs(node.type.low), abs(node.type.high))))


def _type(call: Call, node: Node | None, schema: pa.Schema) -> pa.DataType:
    """Of the aggregate, as Spark has it."""
    if node is None or call.function == "count":
        return pa.int64()
    type = node.type
    decimal = type.kind == "exact" and (type.scale or _is_decimal(node, schema))
    if call.function == "sum":
        if decimal:
            return pa.decimal128(min(_precision(node) + 10, _DIGITS), type.scale)
        return pa.float64() if type.kind in ("float", "null") else pa.int64()
    if call.function == "avg":
        if decimal:
            return pa.decimal128(min(_precision(node) + 4, _DIGITS), min(type.scale + 4, _DIGITS))
        return pa.float64()
    if node.op == "column":
        found = schema.field(node.key[2]).type
        return found.value_type if pa.types.is_dictionary(found) else found
    if decimal:
        return pa.decimal128(min(_precision(node), _DIGITS), type.scale)
    unit = _UNITS.get(type.scale, "ns")
    return {
        "exact": pa.int64(), "float": pa.float64() if type.bits == 64 else pa.float32(), "bool": pa.bool_(),
        "date": pa.date32(), "timestamp": pa.timestamp(unit), "timestamptz": pa.timestamp(unit, "UTC"),
        "duration": pa.duration(unit), "time": pa.time32(unit) if type.scale < 6 else pa.time64(unit),
    }.get(type.kind, pa.null())  # fmt: skip


def _is_decimal(node: Node, schema: pa.Schema) -> bool:
    return node.op == "column" and pa.types.is_decimal(schema.field(node.key[2]).type)


def _shown(values: Array, null: Array, node: Node, type: pa.DataType) -> pa.Array:
    """Values as int64 keys have them, as their own type."""
    if pa.types.is_null(type):
        return pa.nulls(values.size)
    if node.type.kind == "float":
        return pa.array(_doubles(values), mask=null).cast(type)
    if node.type.kind == "bool":
        return pa.array(values != 0, mask=null)
    if pa.types.is_decimal(type):
        return _decimals(values & _MASK, values >> 32, null, type, None)
    if node.type.kind in TEMPORAL:
        if pa.types.is_date64(type):
            return pa.array(values * 86_400_000, mask=null).view(type)
        narrow = pa.array(values, mask=null)
        return (narrow.cast(pa.int32()) if type.bit_width == 32 else narrow).view(type)
    return pa.array(values, mask=null).cast(type)


def _doubles(keys: Array) -> Array:
    """What `doubles_key` has made keys of."""
    bits = np.where(keys < 0, keys ^ _MAX, keys)
    return np.where(keys == NAN_KEY, np.nan, bits.view(np.float64))


def _decimals(low: Array, high: Array, null: Array, type: pa.DataType, call: Call | None) -> pa.Array:
    """high * 2^32 + low of the last digit of a decimal."""
    most = 10**type.precision
    if call is not None and type.precision < _DIGITS:
        far = np.flatnonzero((np.abs(high) >= (most >> 32)) & ~null)
        if any(abs((int(high[i]) << 32) + int(low[i])) >= most for i in far):
            what = f"aggregate {call.name!r}, {call.text},"
            raise ValueError(f"{what} is a sum that {type} does not hold; cast to double")
    words = np.empty((low.size, 2), np.int64)
    words[:, 0], words[:, 1] = (high << 32) | low, high >> 32
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    shown = pa.Array.from_buffers(pa.decimal128(type.precision, type.scale), low.size, [valid, pa.py_buffer(words)])
    return shown if shown.type == type else shown.cast(type)


def _average(low: Array, high: Array, valid: Array, scale: int, type: pa.DataType) -> pa.Array:
    """Half up, as Spark rounds."""
    exact = Context(prec=2 * _DIGITS, rounding=ROUND_HALF_UP)
    last = Decimal(1).scaleb(-type.scale)

    def one(low: int, high: int, count: int) -> Decimal | None:
        if not count:
            return None
        total = Decimal((high << 32) + low).scaleb(-scale, exact)
        return exact.divide(total, Decimal(count)).quantize(last, context=exact)

    found = [one(*each) for each in zip(low.tolist(), high.tolist(), valid.tolist(), strict=True)]
    return pa.array(found, type)
