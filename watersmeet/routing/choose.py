"""Which route a join takes, and why."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.parameters import one_of
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import Side, other
from watersmeet.routing.base import Route
from watersmeet.routing.broadcast import Broadcast
from watersmeet.routing.cells import CELL_BANDS, Cells, CellSize, cell_size
from watersmeet.routing.hash import Hashed
from watersmeet.routing.single import Single
from watersmeet.routing.split import Split

ROUTES = ("auto", "hash", "cells", "split", "broadcast", "shared", "single")

#: The side whose tuples must see all of their partners in one core.
_ANCHORS: dict[str, Side | None] = {
    "inner": None, "left": "left", "semi": "left", "anti": "left", "right": "right", "full": None,
}  # fmt: skip


def choose_route(
    wanted: str, plan: JoinPlan, left: pa.Schema, right: pa.Schema, how: str, cores: int, talk: bool = False
) -> tuple[Route, str]:
    """The route, and the reason in words; ValueError for one that cannot give exact results.

    talk: in the middle of a step, cores tell each other whose visitors have found partners.
    """
    one_of("route", wanted, ROUTES)
    if wanted == "shared":
        raise ValueError("route 'shared' is for threads of one process (StreamJoin); use 'auto'")
    if wanted == "single" or (wanted == "auto" and cores == 1):
        return Single(), "as asked for" if wanted == "single" else "there is one core"
    if wanted == "hash" and not plan.equality:
        raise ValueError("route 'hash' needs an equality between the two sides, and the predicate has none; use 'auto'")
    if wanted == "hash" or (wanted == "auto" and plan.equality):
        return Hashed(cores), "as asked for" if wanted == "hash" else "the predicate has an equality"
    if how == "full" and (wanted == "broadcast" or not talk):
        if wanted != "auto":
            raise ValueError(
                f"route {wanted!r} cannot do a full join: tuples of both sides must see all partners in one core; "
                f"use 'auto'"
            )
        return Single(), "a full join without an equality must see all tuples in one core"
    if wanted == "broadcast":
        return Broadcast(cores, _ANCHORS[how] or "right"), "as asked for"
    if wanted in ("auto", "cells"):
        cells = _cells(plan, left, right, how, cores)
        if cells is not None:
            return cells, "as asked for" if wanted == "cells" else "the predicate is a band of fixed width"
        if wanted == "cells":
            raise ValueError(
                "route 'cells' needs a band of the same width for all tuples, such as abs(l.x - r.x) <= 5, and this "
                "predicate has none that its join type can use; use 'auto'"
            )
    reason = "as asked for" if wanted == "split" else "the predicate has neither an equality nor a band of fixed width"
    return Split(cores, _ANCHORS[how]), reason


def copies_lines(route: Route) -> list[str]:
    """For explain(): where tuples are stored, and how many copies of them there are; nothing where there are none."""
    anchor = route.anchor
    if anchor is None and not route.visits:
        return []
    stored = f"the {anchor} side at home, the other wherever it may have partners" if anchor else "at home only"
    copies = f"a row goes to one core, one in {CELL_BANDS} to two"
    if route.by_turns:
        whose = "every row" if anchor is None else f"every {other(anchor)} row"
        copies = f"{whose} goes to all {route.cores} cores"
    return [f"  stored: {stored}", f"  copies: {copies}"]


def _cells(plan: JoinPlan, left: pa.Schema, right: pa.Schema, how: str, cores: int) -> Cells | None:
    if plan.range not in ("band", "bands"):
        return None
    # Left keys are looked for by right tuples, and the other way round.
    of_left = cell_size(plan.right, _specimens(right), plan.left.keys_are_doubles)
    of_right = cell_size(plan.left, _specimens(left), plan.right.keys_are_doubles)
    anchor = _ANCHORS[how]
    if how == "inner" and (of_left is None or of_right is None):
        anchor = "left" if of_left is not None else "right"
    sizes: tuple[CellSize | None, CellSize | None] = (
        of_left if anchor != "right" else None,
        of_right if anchor != "left" else None,
    )
    needed = {"left": sizes[:1], "right": sizes[1:], None: sizes}[anchor]
    return Cells(cores, sizes, anchor) if all(size is not None for size in needed) else None


def _specimens(schema: pa.Schema) -> pa.RecordBatch:
    """A few made-up tuples, to see how wide the ranges are that such tuples look for."""
    return pa.RecordBatch.from_arrays([_values(field.type) for field in schema], schema=schema)


def _values(t: pa.DataType) -> pa.Array:
    numbers: Any = [0, 1, 2, 10, 100]
    for values in (pa.array(numbers, pa.int64()), pa.array(numbers, pa.int32()), pa.array([str(n) for n in numbers])):
        try:
            return values.cast(t)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    return pa.nulls(len(numbers), t)
