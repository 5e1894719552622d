"""Which route a join takes, and why."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.parameters import one_of
from watersmeet.query.cells import specimens
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import Side, other
from watersmeet.routing.base import Route
from watersmeet.routing.broadcast import Broadcast
from watersmeet.routing.cells import CELL_BANDS, Cells, CellSize, Sizes, box_sizes, cell_size
from watersmeet.routing.hash import Hashed
from watersmeet.routing.hot_cold import HotCold
from watersmeet.routing.single import Single
from watersmeet.routing.split import Split
from watersmeet.routing.spread import Spread

ROUTES = ("auto", "hash", "cells", "split", "broadcast", "hot_cold", "shared", "single", "sta")

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
    if wanted == "sta":
        raise ValueError("route 'sta' may miss pairs, and is for StreamJoin alone; use 'auto'")
    if wanted == "single" or (wanted == "auto" and cores == 1):
        return Single(), "as asked for" if wanted == "single" else "there is one core"
    if wanted == "hot_cold":
        return _hot_cold(plan, left, right, cores) if talk else _spread(plan, left, right, how, cores)
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
    if isinstance(route, HotCold):
        return _hot_cold_lines(route)
    if isinstance(route, Spread):
        return _spread_lines(route)
    if anchor is None and not route.visits:
        return []
    stored = f"the {anchor} side at home, the other wherever it may have partners" if anchor else "at home only"
    copies = f"a row goes to one core, one in {CELL_BANDS} to two"
    if route.by_turns:
        whose = "every row" if anchor is None else f"every {other(anchor)} row"
        copies = f"{whose} goes to all {route.cores} cores"
    return [f"  stored: {stored}", f"  copies: {copies}"]


def _hot_cold(plan: JoinPlan, left: pa.Schema, right: pa.Schema, cores: int) -> tuple[Route, str]:
    if plan.boxes is not None:
        raise ValueError("route 'hot_cold' is not for bands over several columns; use 'auto'")
    if plan.equality:
        return HotCold(cores, "key"), "as asked for"
    _check_keys(plan)
    cells = _cells(plan, left, right, "full", cores)  # both sides look for cells, whatever the join type
    if cells is None:
        return HotCold(cores, "anywhere"), "as asked for"
    of_left, of_right = cells.sizes
    assert isinstance(of_left, CellSize) and isinstance(of_right, CellSize)
    return HotCold(cores, "cell", (of_left, of_right)), "as asked for"


def _spread(plan: JoinPlan, left: pa.Schema, right: pa.Schema, how: str, cores: int) -> tuple[Route, str]:
    """The same where cores cannot tell each other anything."""
    if how != "inner":
        raise ValueError(
            f"route 'hot_cold' is for inner joins on Spark, not for how={how!r}: hot tuples look for partners in "
            f"several cores, and none of these could tell that there is no partner; use 'auto' or 'split'"
        )
    if plan.equality:
        return Spread(Hashed(cores)), "as asked for"
    _check_keys(plan)
    cells = _cells(plan, left, right, "full", cores)
    if cells is not None:
        return Spread(cells), "as asked for"
    return Split(cores), "as 'hot_cold' was asked for: partners may be in any core, so hot or cold makes no difference"


def _check_keys(plan: JoinPlan) -> None:
    if plan.range is None:
        raise ValueError(
            "route 'hot_cold' needs keys that may be hot, of an equality, band or inequality between the two sides, "
            "and the predicate has none; use 'split'"
        )


def _hot_cold_lines(route: HotCold) -> list[str]:
    homes = {"key": "at its key's home", "cell": "at its cell's home", "anywhere": "in one of the other cores"}
    what = "cell" if route.home == "cell" else "key"
    whose = "the cells that its band touches" if what == "cell" else "its key"
    probes = f"a row visits the home of {whose}, and all cores that may hold such rows away from home"
    if route.home == "anywhere":
        probes = f"every row visits all {route.cores} cores"
    return [f"  stored: a row of a hot {what} in one of several cores, by turns, a cold one {homes[route.home]}",
            f"  probes: {probes}"]  # fmt: skip


def _spread_lines(route: Spread) -> list[str]:
    what = "key" if isinstance(route.cold, Hashed) else "cell"
    return [f"  stored: a row of a cold {what} at home, one of a hot {what} in one of {route.width} cores and at home",
            f"  probes: a cold row goes where it would by {route.cold.name!r}, a hot one to {route.width} cores",
            f"  hot: a {what} that has a {4 * route.width}th of the rows that a map task reads"]  # fmt: skip


def _cells(plan: JoinPlan, left: pa.Schema, right: pa.Schema, how: str, cores: int) -> Cells | None:
    if plan.range not in ("band", "bands", "box"):
        return None
    of_left: Sizes = None
    of_right: Sizes = None
    if plan.boxes is not None:
        of_left, of_right = box_sizes(plan.boxes[0]), box_sizes(plan.boxes[1])
    if of_left is None or of_right is None:
        # Left keys are looked for by right tuples, and the other way round.
        of_left = cell_size(plan.right, specimens(right), plan.left.keys_are_doubles)
        of_right = cell_size(plan.left, specimens(left), plan.right.keys_are_doubles)
    anchor = _ANCHORS[how]
    if how == "inner" and (of_left is None or of_right is None):
        anchor = "left" if of_left is not None else "right"
    sizes: tuple[Sizes, Sizes] = (
        of_left if anchor != "right" else None,
        of_right if anchor != "left" else None,
    )
    needed = {"left": sizes[:1], "right": sizes[1:], None: sizes}[anchor]
    return Cells(cores, sizes, anchor) if all(size is not None for size in needed) else None
