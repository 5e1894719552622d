"""Typed expressions that run.

Binding an expression to two schemas gives a tree of nodes. A node knows its type, which sides it reads, and
holds a compiled `run(rows) -> vector`: a closure over its arguments' closures, built once, so that a push
pays for NumPy calls and little else. Operations on constants are computed while the tree is built.

The coercions that Spark would apply (integers to double beside a double, a date to a timestamp, ...) are
nodes of their own, put in by `unify`; kinds that have no common ground are refused there, in terms of the
predicate's text.

Equal keys of two nodes promise equal values for the same row: conjuncts are dropped, and rows of a self join
stored once, on the strength of it. So a key is made of all that a node is (its operation, its type, its
arguments), here and nowhere else, and whatever a function is given (the characters of a trim, the digits of a
round) is one of its arguments, a constant, rather than something that only its closure knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from . import vector
from .expr import Call, Constant, Expr
from .types import DAY, FLOAT32, FLOAT64, Type, of_constant, temporal_literal
from .vector import Vector


class Rows:
    """The columns an expression reads: of one side's batch, or of both sides for pairs."""

    __slots__ = ("columns", "count", "seen")

    def __init__(self, left: Any, right: Any, count: int) -> None:
        self.columns: dict[str, Mapping[str, pa.Array]] = {"l": left, "r": right}
        self.count = count
        self.seen: dict[tuple, Vector] = {}


Run = Callable[[Rows], Vector]


class Node:
    __slots__ = ("op", "args", "type", "expr", "sides", "run", "key", "constant")

    def __init__(
        self,
        op: str,
        args: tuple[Node, ...],
        type: Type,
        expr: Expr,
        sides: frozenset,
        run: Run,
        leaf: tuple = (),
    ) -> None:
        self.op = op
        self.args = args
        self.type = type
        self.expr = expr  # what to call it in messages and explain
        self.sides = sides
        self.run = run
        self.key: tuple = leaf or (op, type, *(arg.key for arg in args))  # equal keys: the same value for the same row
        self.constant: Any = None  # the vector, of a constant

    def __repr__(self) -> str:
        return f"Node({self.expr}: {self.type})"


_NOWHERE: frozenset = frozenset()


def sideless(key: tuple) -> tuple:
    """A node's key without the side of its columns: the same for the same expression over either side."""
    if key[:1] == ("column",):
        return "column", key[2]
    return tuple(sideless(part) if isinstance(part, tuple) else part for part in key)


_NO_ROWS = Rows({}, {}, 1)


def column(side: str, name: str, arrow: pa.DataType, type: Type, expr: Expr) -> Node:
    load = vector.loader(arrow)
    key = ("column", side, name)

    def run(rows: Rows) -> Vector:
        found = rows.seen.get(key)
        if found is None:
            found = rows.seen[key] = load(rows.columns[side][name])
        return found

    return Node("column", (), type, expr, frozenset(side), run, key)


def constant(value: object, expr: Expr | None = None) -> Node:
    type, held = of_constant(value)
    data: Any
    if type.kind == "null":
        return _fixed((np.zeros(1, np.int64), np.zeros(1, bool)), type, expr or Constant(value))
    if type.countable:
        data = vector.constant_int(held)  # type: ignore[arg-type]
    elif type.kind == "float":
        data = np.array([held], np.float64)
    elif type.kind == "bool":
        data = np.array([held], bool)
    else:
        data = pa.scalar(held, pa.string() if type.kind == "string" else pa.binary())
    return _fixed((data, None), type, expr or Constant(value))


def _fixed(value: Vector, type: Type, expr: Expr) -> Node:
    data, valid = value
    shown = data if isinstance(data, pa.Scalar) else data[0]
    if isinstance(shown, np.floating):
        shown = shown.tobytes()  # -0.0, and NaN that differs from itself
    null = valid is not None and not valid[0]
    key = ("constant", type, None if null else shown)
    node = Node("constant", (), type, expr, _NOWHERE, lambda rows: value, key)
    node.constant = value
    return node


def make(op: str, args: Sequence[Node], type: Type, expr: Expr, run: Run) -> Node:
    """A node over `args`; computed here and now when all of them are constants.

    `run` may depend on nothing but `op`, `args` and `type`: they are the node's key.
    """
    args = tuple(args)
    sides = _NOWHERE.union(*(arg.sides for arg in args))
    if args and all(arg.op == "constant" for arg in args):
        with np.errstate(all="ignore"):
            data, valid = run(_NO_ROWS)
        if isinstance(data, (pa.Array, pa.ChunkedArray)):
            data = data[0]
        if isinstance(data, pa.Scalar) and not data.is_valid:
            valid = np.zeros(1, bool)
        if type.countable and (valid is None or valid[0]):
            value = int(data[0])
            data, type = vector.constant_int(value), type.bounded(value, value)
        return _fixed((data, valid), type, expr)
    return Node(op, args, type, expr, sides, run)


def is_null_constant(node: Node) -> bool:
    return node.op == "constant" and node.constant[1] is not None and not node.constant[1][0]


def constant_value(node: Node) -> Any:
    """The Python value of a constant in its representation (a count, a float, a text), None for null."""
    if is_null_constant(node):
        return None
    data = node.constant[0]
    return (
        data.as_py()
        if isinstance(data, pa.Scalar)
        else data[0].item()
        if hasattr(data[0], "item")
        else data[0]
    )


def whole_constant(node: Node, expr: Expr, what: str) -> int:
    """The value of an argument that must be a whole number, the same for all rows."""
    if node.op != "constant" or node.type.kind != "exact" or node.type.scale or is_null_constant(node):
        raise ValueError(f"on has {expr}; {what} must be a whole constant, as in 3")
    return int(constant_value(node))


Builder = Callable[[list[Node], Call], Node]


def wrong(expr: Expr, node: Node, wanted: str) -> TypeError:
    return TypeError(f"on needs {wanted} in {expr}, but {node.expr} is {node.type}; cast it")


# --- coercions ------------------------------------------------------------------------------------


def rescaled(node: Node, scale: int) -> Node:
    """A countable node at a larger scale."""
    if node.type.scale == scale:
        return node
    factor = 10 ** (scale - node.type.scale)
    return _multiplied(node, factor, node.type.kind, scale, "rescale")


def _multiplied(node: Node, factor: int, kind: str, scale: int, op: str) -> Node:
    low, high = node.type.low * factor, node.type.high * factor
    type = Type(kind, scale, low, high)
    inner, fits = node.run, type.fits

    def run(rows: Rows) -> Vector:
        data, valid = inner(rows)
        return vector.times_power(data, factor, fits), valid

    return make(op, (node,), type, node.expr, run)


def midnight(node: Node, kind: str = "timestamp") -> Node:
    """A date as the timestamp at which it begins."""
    return _multiplied(node, DAY, kind, 0, "midnight")


def as_float(node: Node, bits: int = 64) -> Node:
    if node.type.kind == "float" and node.type.bits == bits:
        return node
    inner, scale = node.run, node.type.scale
    if node.type.kind == "float":

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            return data.astype(np.float64 if bits == 64 else np.float32), valid
    else:

        def run(rows: Rows) -> Vector:
            data, valid = inner(rows)
            return vector.to_float(data, scale), valid

    return make("to_float", (node,), FLOAT64 if bits == 64 else FLOAT32, node.expr, run)


def as_null(node: Node, type: Type) -> Node:
    """A null of another type."""
    if type.kind in ("string", "binary"):
        arrow = pa.string() if type.kind == "string" else pa.binary()

        def run(rows: Rows) -> Vector:
            count = len(inner(rows)[1])  # type: ignore[arg-type]
            return pa.nulls(count, arrow), np.zeros(count, bool)
    else:
        dtype = {"float": np.float64, "bool": np.bool_}.get(type.kind, np.int64)

        def run(rows: Rows) -> Vector:
            count = len(inner(rows)[1])  # type: ignore[arg-type]
            return np.zeros(count, dtype), np.zeros(count, bool)

    inner = node.run
    kept = Type(
        type.kind, type.scale if type.countable else 0, 0, 0, bits=64 if type.kind == "float" else type.bits
    )
    return make("null", (node,), kept, node.expr, run)


def _literal_as(node: Node, target: Type) -> Node | None:
    """A text constant beside a date or timestamp, read as one ('2024-01-01' as Spark would)."""
    if node.op != "constant" or node.type.kind != "string" or is_null_constant(node):
        return None
    value = temporal_literal(constant_value(node), target.kind)
    return None if value is None else constant(value, node.expr)


def unify(nodes: Sequence[Node], expr: Expr) -> list[Node]:
    """The nodes brought to one kind, so that their values compare; countable kinds keep their own scales."""
    typed = [node for node in nodes if node.type.kind != "null"]
    if not typed:
        return list(nodes)
    kinds = {node.type.kind for node in typed}
    if len(kinds) > 1 and "string" in kinds:
        other = next(node.type for node in typed if node.type.kind != "string")
        nodes = [_literal_as(node, other) or node for node in nodes]
        typed = [node for node in nodes if node.type.kind != "null"]
        kinds = {node.type.kind for node in typed}
    if kinds == {"exact", "float"}:
        nodes = [node if node.type.kind == "null" else as_float(node) for node in nodes]
        target = FLOAT64
    elif kinds == {"float"}:
        bits = max(node.type.bits for node in typed)
        nodes = [node if node.type.kind == "null" else as_float(node, bits) for node in nodes]
        target = FLOAT64 if bits == 64 else FLOAT32
    elif kinds == {"date", "timestamp"}:
        nodes = [midnight(node) if node.type.kind == "date" else node for node in nodes]
        target = next(node.type for node in typed if node.type.kind == "timestamp")
    elif len(kinds) == 1:
        target = typed[0].type
    else:
        first = typed[0]
        second = next(node for node in typed if node.type.kind != first.type.kind)
        raise TypeError(
            f"on cannot bring together {first.expr} ({first.type}) and {second.expr} ({second.type}) in "
            f"{expr}; {_remedy(first, second)}"
        )
    return [as_null(node, target) if node.type.kind == "null" else node for node in nodes]


def _remedy(a: Node, b: Node) -> str:
    kinds = {a.type.kind, b.type.kind}
    if kinds == {"timestamp", "timestamptz"}:
        naive = a if a.type.kind == "timestamp" else b
        if naive.op == "constant":
            return f"give the literal a zone, as in {str(naive.expr)[:-1]}+00:00'"
        return f"cast one of them, e.g. cast({naive.expr} as timestamp) to read it as UTC"
    names = {"exact": "bigint", "float": "double", "bool": "boolean", "timestamptz": "timestamp"}
    names["timestamp"] = "timestamp_ntz"
    if kinds == {"duration", "exact"} or kinds == {"duration", "float"}:
        return "write the number as an interval, e.g. interval '5' seconds"
    other = b if a.type.kind == "string" else a
    text = a if other is b else b
    if text.type.kind == "string" and other.type.kind in ("timestamp", "timestamptz", "time", "duration"):
        example = "interval '5' seconds" if other.type.kind == "duration" else "timestamp '2026-01-05 14:30:00'"
        return f"write a literal as in {example}, or cast {text.expr} before the join, in a column of its own"
    return f"cast one of them, e.g. cast({text.expr} as {names.get(other.type.kind, other.type.kind)})"


def same_scale(nodes: Sequence[Node]) -> list[Node]:
    """Countable nodes of one kind at their common scale; others as they are."""
    if not nodes[0].type.countable:
        return list(nodes)
    scale = max(node.type.scale for node in nodes)
    return [rescaled(node, scale) for node in nodes]


def truth(node: Node) -> Callable[[Rows], np.ndarray]:
    """A boolean node as a mask of where it is true (not false, not null)."""
    inner = node.run

    def run(rows: Rows) -> np.ndarray:
        data, valid = inner(rows)
        held = data if valid is None else data & valid
        return held if len(held) == rows.count else np.broadcast_to(held, rows.count)

    return run
