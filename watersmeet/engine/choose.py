"""Which index a join uses, and why.

`auto` looks at the predicate alone: a hash index for equalities, BI-Sort where there is an order, else a nested loop.
PanJoin chooses by batch, match rate, order and drift of the keys (index/adaptive.py). `watersmeet bench index` goes
through windows of 2^13 to 2^23, batches of 512 to 32K, 2^-4 to 2^10 partners, skewed and increasing keys: in all 29
joins this choice is the fastest or within a tenth of it (docs/reproduction.md). What depends on window and batch,
BI-Sort decides inside, from merge to merge: whether there is a buffer and how large, whether keys and rows share a
word, when to forget.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.index import DEVICE_INDEXES, INDEXES, BISort, GPUSort, Hash, Index, NestedLoop
from watersmeet.parameters import hint, one_of
from watersmeet.query.expr import Expr
from watersmeet.query.plan import JoinPlan, compile_plan

_BY_NAME = {index.name: index for index in INDEXES}
NAMES = ("auto", *_BY_NAME)
DEVICES = ("cpu", "gpu")
_NEEDED = {"equality": "an equality", "order": "an equality, band or inequality"}


def check_index(index: Any) -> None:
    """Errors that need no plan."""
    rule = f"index must be one of {', '.join(NAMES)}, or an object of watersmeet.index"
    if isinstance(index, str):
        if index not in NAMES:
            raise ValueError(f"{rule}, got {index!r}{hint(index, NAMES)}")
    elif not isinstance(index, (*INDEXES, *DEVICE_INDEXES)):
        raise TypeError(f"{rule}, got {index!r}")


def on_device(index: Any, device: Any, route: Any, rows: int) -> tuple[Any, str, Any]:
    """Index, device and route as they are to be, for a join on this device; raises where they cannot go together, or
    there is no such device, or none that could hold windows of so many tuples (0: nobody knows how many)."""
    one_of("device", device, DEVICES)
    asked = device
    if isinstance(index, DEVICE_INDEXES):
        device = index.device
    if device == "cpu":
        return index, device, route
    if index == "auto":
        index = GPUSort()
    elif not isinstance(index, DEVICE_INDEXES) or asked == "gpu" != index.device:
        raise ValueError(f"index {index!r} is not one for device 'gpu'; leave it out, or use wm.index.GPUSort(...)")
    if route not in ("auto", "single"):
        raise ValueError(f"route {route!r} is not for device {device!r}, where one core has all windows; leave it out")
    index.check_device()
    if rows:
        from watersmeet.device.windows import check_room

        check_room(index, rows)
    return index, device, "single"


def check_pick_alone(self_join: bool, order: Any, device: Any, index: Any, route: Any) -> None:
    """Errors of a join that picks one partner: other parameters cannot go with that."""
    if self_join:
        raise ValueError("pick is not for self joins; push the stream on both sides, push(left=batch, right=batch)")
    if order != "none":
        raise ValueError(f"order must be 'none' with pick, whose rows come out as they are complete, got {order!r}")
    if device != "cpu" or isinstance(index, DEVICE_INDEXES):
        raise ValueError("pick is not for device 'gpu' so far; use device='cpu'")
    if route not in ("auto", "single"):
        raise ValueError(f"route must be 'auto' or 'single' with pick, which one core does, got {route!r}")


def plan_and_index(on: Expr, left: pa.Schema, right: pa.Schema, index: Any) -> tuple[JoinPlan, Index, str]:
    """The plan, the index for it, and the reason in words."""
    plan = compile_plan(on, left, right)
    chosen, why = _choose(index, plan)
    if plan.range == "box" and chosen.needs != "order":  # it has no use for one key of several
        plan = compile_plan(on, left, right, boxes=False)
    if plan.composite and not chosen.composite:
        plan = compile_plan(on, left, right, ordered=False)
    return plan, chosen, why


def _choose(index: Any, plan: JoinPlan) -> tuple[Index, str]:
    has_range = plan.range is not None
    if index == "auto":
        if has_range:
            what = "equality, then range" if plan.composite else plan.range
            return BISort(), f"the predicate has an ordered key ({what})"
        if plan.equality:
            return Hash(), "the predicate has equalities only"
        return NestedLoop(), "the predicate has no key; every pair in the window is checked"
    chosen = _BY_NAME[index]() if isinstance(index, str) else index
    if not {"nothing": True, "equality": plan.equality, "order": plan.equality or has_range}[chosen.needs]:
        if isinstance(chosen, DEVICE_INDEXES):
            raise _no_key(chosen.device)
        raise ValueError(
            f"index {chosen.name!r} needs {_NEEDED[chosen.needs]} between the two sides, and the predicate has none; "
            f"use index='auto'"
        )
    if isinstance(chosen, DEVICE_INDEXES) and chosen.device in DEVICES:
        return chosen, f"device={chosen.device!r} was asked for"
    return chosen, "as asked for"


def check_keyed(device: str, plan: JoinPlan) -> None:
    """ValueError if there is nothing in the plan that could be looked up on the device."""
    if not plan.equality and plan.range is None:
        raise _no_key(device)


def _no_key(device: str) -> ValueError:
    remedy = "use device='cpu'" if device in DEVICES else "use index='auto'"
    return ValueError(
        f"device {device!r} needs {_NEEDED['order']} between the two sides, and the predicate has none; {remedy}"
    )


def index_text(index: Index, plan: JoinPlan) -> str:
    if plan.boxes is not None:
        return f"{index.name} (box of {len(plan.boxes[0].dimensions)} dimensions)"
    return f"{index.name} (composite)" if index.needs == "order" and plan.composite else index.name


def box_lines(plan: JoinPlan) -> list[str]:
    """For explain(): the dimensions of a box; nothing where there is none."""
    if plan.boxes is None:
        return []
    lines = [f"  {side}: {box.text()}" for side, box in zip(("left", "right"), plan.boxes, strict=True)]
    return [*lines, f"  expected: about {max(box.candidates for box in plan.boxes):.1f} candidates a result"]
