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

from watersmeet.index import INDEXES, BISort, Hash, Index, NestedLoop
from watersmeet.parameters import hint
from watersmeet.query.expr import Expr
from watersmeet.query.plan import JoinPlan, compile_plan

_BY_NAME = {index.name: index for index in INDEXES}
NAMES = ("auto", *_BY_NAME)
_NEEDED = {"equality": "an equality", "order": "an equality, band or inequality"}


def check_index(index: Any) -> None:
    """Errors that need no plan."""
    rule = f"index must be one of {', '.join(NAMES)}, or an object of watersmeet.index"
    if isinstance(index, str):
        if index not in NAMES:
            raise ValueError(f"{rule}, got {index!r}{hint(index, NAMES)}")
    elif not isinstance(index, INDEXES):
        raise TypeError(f"{rule}, got {index!r}")


def plan_and_index(on: Expr, left: pa.Schema, right: pa.Schema, index: Any) -> tuple[JoinPlan, Index, str]:
    """The plan, the index for it, and the reason in words."""
    plan = compile_plan(on, left, right)
    chosen, why = _choose(index, plan)
    if plan.equality and plan.range is not None and not chosen.composite:
        plan = compile_plan(on, left, right, ordered=False)
    return plan, chosen, why


def _choose(index: Any, plan: JoinPlan) -> tuple[Index, str]:
    has_range = plan.range is not None
    if index == "auto":
        if has_range:
            what = "equality, then range" if plan.equality else plan.range
            return BISort(), f"the predicate has an ordered key ({what})"
        if plan.equality:
            return Hash(), "the predicate has equalities only"
        return NestedLoop(), "the predicate has no key; every pair in the window is checked"
    chosen = _BY_NAME[index]() if isinstance(index, str) else index
    if not {"nothing": True, "equality": plan.equality, "order": plan.equality or has_range}[chosen.needs]:
        raise ValueError(
            f"index {chosen.name!r} needs {_NEEDED[chosen.needs]} between the two sides, and the predicate has none; "
            f"use index='auto'"
        )
    return chosen, "as asked for"


def index_text(index: Index, plan: JoinPlan) -> str:
    composite = index.needs == "order" and plan.equality and plan.range is not None
    return f"{index.name} (composite)" if composite else index.name
