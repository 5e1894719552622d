"""Binding: expressions meet two schemas and become typed nodes that run.

Columns are found by name, exactly first, then without regard to case as Spark does. All that can be wrong
with a predicate (an unknown column or function, types that do not go together) is wrong here, before any
data is seen.
"""

from __future__ import annotations

import difflib

import pyarrow as pa

from . import node as nodes
from .arithmetic import ARITHMETIC
from .cast import CASTS
from .distances import DISTANCES
from .expr import Call, Column, Constant, Expr, check_depth
from .functions import NUMBERS
from .logic import LOGIC
from .node import Node
from .temporal import TEMPORALS
from .texts import TEXTS
from .types import from_arrow

FUNCTIONS = {**LOGIC, **ARITHMETIC, **NUMBERS, **DISTANCES, **TEXTS, **TEMPORALS, **CASTS}
_SIDES = {"l": "left", "r": "right"}


def supported() -> list[str]:
    """The names of the functions a predicate may call (operators left out)."""
    hidden = {"and", "or", "not", "div", "between", "in", "like", "ilike", "rlike", "case", "neg"}
    named = (name for name in FUNCTIONS if name.isidentifier() and not name.startswith("is_"))
    return sorted({*named, "if", "nvl", "is null"} - hidden)


def bind(expr: Expr, left: pa.Schema, right: pa.Schema) -> Node:
    """The typed tree of `expr` over columns of the two schemas."""
    check_depth(expr)
    return _bind(expr, left, right)


def _bind(expr: Expr, left: pa.Schema, right: pa.Schema) -> Node:
    if isinstance(expr, Constant):
        return nodes.constant(expr.value, expr)
    if isinstance(expr, Column):
        return _bind_column(expr, {"l": left, "r": right})
    if not isinstance(expr, Call):
        raise TypeError(f"on must be SQL text or Call, Column, Constant objects, got {expr!r}")
    function = FUNCTIONS.get(expr.name)
    if function is None:
        close = difflib.get_close_matches(expr.name, supported(), 3)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ValueError(
            f"on calls an unknown function {expr.name} in {expr}; {hint}supported: {', '.join(supported())}"
        )
    build, least, most = function
    args = [_bind(arg, left, right) for arg in expr.args]
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}" if most < 100 else f"at least {least}"
        raise ValueError(f"on calls {expr.name} with {len(args)} arguments in {expr}; it takes {wanted}")
    return build(args, expr)


def _find(name: str, schema: pa.Schema) -> list[str]:
    """The columns of that name: exactly, or else ignoring case."""
    names = schema.names
    if name in names:
        return [name] * names.count(name)
    folded = name.lower()
    return [each for each in names if each.lower() == folded]


def _bind_column(expr: Column, schemas: dict[str, pa.Schema]) -> Node:
    if expr.side not in ("", "l", "r"):
        raise ValueError(f"on has a column of side {expr.side!r} ({expr}); the sides are 'l' and 'r'")
    sides = [expr.side] if expr.side else ["l", "r"]
    found = [(side, name) for side in sides for name in _find(expr.name, schemas[side])]
    if not found:
        raise ValueError(_unknown(expr, sides, schemas))
    if len({side for side, _ in found}) > 1:
        raise ValueError(f"on names {expr}, which both streams have; write l.{expr.name} or r.{expr.name}")
    side, name = found[0]
    if len(found) > 1:
        raise ValueError(
            f"on names {expr}, but the {_SIDES[side]} stream has several columns of that name "
            f"({', '.join(name for _, name in found)}); rename them"
        )
    arrow = schemas[side].field(name).type
    type = from_arrow(arrow)
    if type is None:
        raise TypeError(f"on uses {side}.{name}, which is {arrow}; a predicate cannot compute with that type")
    return nodes.column(side, name, arrow, type, Column(side, name))


def _unknown(expr: Column, sides: list[str], schemas: dict[str, pa.Schema]) -> str:
    names = [f"{side}.{name}" for side in sides for name in schemas[side].names]
    plain = {name.split(".", 1)[1].lower(): name for name in names}
    close = [plain[name] for name in difflib.get_close_matches(expr.name.lower(), plain, 3, 0.5)]
    elsewhere = [s for s in ("l", "r") if s not in sides and _find(expr.name, schemas[s])]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    if elsewhere:
        hint = f"the other side has it: write {elsewhere[0]}.{expr.name}. "
    where = f"the {_SIDES[sides[0]]} stream" if len(sides) == 1 else "either stream"
    return f"on names an unknown column {expr}; {hint}Columns of {where}: {', '.join(names) or 'none'}"
