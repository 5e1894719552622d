"""The core of a join, made once the columns of both streams are known."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa

from watersmeet.aggregates.core import AggregateCore
from watersmeet.aggregates.functions import Aggregates
from watersmeet.engine.asked import Asked
from watersmeet.engine.choose import plan_and_index
from watersmeet.engine.core import JoinCore
from watersmeet.engine.cores.member import Share
from watersmeet.engine.cores.spread import Spread
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.pick import PickCore
from watersmeet.engine.results import pairs_schema, rows_schema
from watersmeet.engine.shared import SharedCore, shared_index
from watersmeet.engine.sta import sta_core
from watersmeet.index import Index
from watersmeet.query.pick import BoundPick
from watersmeet.query.plan import JoinPlan, compile_plan
from watersmeet.query.windows import BoundTimeWindow, BoundWindow, Last, Side, other
from watersmeet.routing import Route


def bound(
    asked: Asked, window: BoundWindow, left: pa.Schema, right: pa.Schema, spread: Spread, metrics: Metrics
) -> tuple[Any, pa.Schema, str]:
    """The core, the schema of its results, and why it has the index it has. Raises before anything changes."""
    schemas: dict[Side, pa.Schema] = {"left": left, "right": right}
    if asked.per is not None:
        aggregates = Aggregates(asked.per.calls, left, right, other(asked.per.side))
        per = AggregateCore(
            compile_plan(asked.on, left, right), window, schemas, asked.per.side, aggregates, asked.per.keeps_all,
            asked.per.updates, metrics, asked.self_join,
        )  # fmt: skip
        return per, per.schema, ""
    plan, index, why = plan_and_index(asked.on, left, right, _wanted_index(asked, spread))
    schema = _schema(asked, left, right)
    spread.bind(plan, left, right, asked.how, asked.order, partial(_share, asked, plan, index, left, right))
    core: Any
    if asked.pick is not None:
        assert isinstance(window, BoundTimeWindow)  # checked when it was asked for
        spread.why = "left rows look for their partner there"
        core = PickCore(
            plan, window, schemas, asked.how, index, asked.sizes, spread.workers, metrics,
            BoundPick(asked.pick, left, right), merges=asked.index == "auto", by_row=asked.output == "rows",
        )  # fmt: skip
        return core, schema, why
    if asked.device != "cpu":
        spread.why = "the windows are on the device"
    core = (SharedCore if spread.shares else JoinCore)(
        plan, window, schemas, asked.how, index, asked.sizes, spread.workers, metrics, asked.self_join,
        by_row=asked.output == "rows", order=asked.order,
    )  # fmt: skip
    if asked.sta is not None:
        core = sta_core(asked.sta, asked.elements, core, asked.sizes, schemas, asked.output)
    return core, schema, why


def _wanted_index(asked: Asked, spread: Spread) -> Any:
    if spread.shares:
        return shared_index(asked.index)
    return "btree" if asked.sta is not None and asked.index == "auto" else asked.index


def _schema(asked: Asked, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    if asked.output == "pairs":
        return pairs_schema(asked.left_only)
    return rows_schema(left, None if asked.left_only else right, asked.suffix)


def _share(asked: Asked, plan: JoinPlan, index: Index, left: pa.Schema, right: pa.Schema, route: Route) -> Share:
    """What every core of several is to know."""
    if asked.output != "rows":  # no more columns than are looked at
        times = {} if isinstance(asked.window, Last) else dict(zip("lr", asked.window.time, strict=True))
        used = {side: {name for one, name in plan.columns if one == side} for side in "lr"}
        left, right = (
            pa.schema([field for field in schema if field.name in used[side] or field.name == times.get(side)])
            for side, schema in (("l", left), ("r", right))
        )
    return Share(
        asked.on, asked.window, asked.how, asked.output, index, asked.suffix, asked.order, asked.sizes, left, right,
        route,
    )  # fmt: skip
