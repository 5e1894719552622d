"""What a join is, as it travels to the workers; and what a worker makes of it, once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.aggregates.options import PerRow
from watersmeet.device.searched import SearchedOnGPU
from watersmeet.engine.order import Order
from watersmeet.engine.results import How, rows_schema
from watersmeet.index import BISort
from watersmeet.query.durations import Duration
from watersmeet.query.expr import Expr
from watersmeet.query.pick import BoundPick, Pick
from watersmeet.query.plan import JoinPlan, Keys, Probe, SidePlan, Tuples, compile_plan
from watersmeet.query.windows import BoundTimeWindow, Hopping, Side, Within
from watersmeet.routing import Route
from watersmeet.spark.aggregates import aggregate_schema
from watersmeet.spark.checks import PARTITIONS
from watersmeet.spark.clock import SparkClock, Timing
from watersmeet.spark.late import with_late

#: Of what is in the state store. Raise it when older state cannot be read any more.
VERSION = 4


@dataclass(frozen=True)
class JoinSpec:
    on: Expr
    window: Within | Hopping
    how: How
    left: pa.Schema
    right: pa.Schema
    suffix: str
    route: Route
    keys: tuple[int, ...]  # the grouping key of each core
    partitions: int  # of the shuffle, for which the keys were chosen
    bad_rows: str | tuple[str, str] = "fail"
    timing: Timing = Timing()
    keep_late: bool = False
    per: PerRow | None = None
    pick: Pick | None = None
    order: Order = "none"  # of the results, which may change between restarts
    device: str = "cpu"

    def schema(self, side: Side) -> pa.Schema:
        return self.left if side == "left" else self.right

    @property
    def identity(self) -> dict[str, str | None]:
        """What must not change while there is state; lateness may, idle_after, and what becomes of bad rows."""
        in_time = replace(self.window, lateness=(Duration(0), Duration(0)), idle_after=(None, None))
        aggregates = {} if self.per is None else {"aggregate": f"per {self.per.side}: {self.per.text()}"}
        return aggregates | {
            "predicate": str(self.on),
            "window": str(in_time),
            "how": self.how,
            "left columns": _columns(self.left),
            "right columns": _columns(self.right),
            "route": repr(self.route),
            "cores": str(len(self.keys)),
            "before_1970": str(self.timing.later),
            "event_time holds the watermark back by": _milliseconds(self.timing.held_back),
            PARTITIONS: str(self.partitions),
            "pick": None if self.pick is None else str(self.pick),
        }

    @property
    def fingerprint(self) -> str:
        parts = [VERSION, self.identity, str(self.window), self.suffix, str(self.timing), self.keep_late, self.device]
        text = json.dumps([*parts, repr(self.per)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _milliseconds(both: tuple[int, int]) -> str:
    return f"{both[0]} ms (left), {both[1]} ms (right)" if any(both) else "0"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


@dataclass(frozen=True)
class Compiled:
    """A spec, ready to run."""

    spec: JoinSpec
    plan: JoinPlan
    window: BoundTimeWindow
    results: pa.Schema
    index: BISort
    pick: BoundPick | None = None

    @property
    def left_only(self) -> bool:
        return self.spec.how in ("semi", "anti")

    @property
    def clock(self) -> SparkClock:
        return SparkClock(self.window, self.spec.timing)

    @property
    def filed(self) -> pa.Schema:
        """The columns of what comes out: of the results, and of late rows where these are kept."""
        return with_late(self.spec.left, self.spec.right, self.spec.suffix) if self.spec.keep_late else self.results

    def side_plan(self, side: Side) -> SidePlan:
        return self.plan.left if side == "left" else self.plan.right


_compiled: dict[str, Compiled] = {}


def compiled(spec: JoinSpec) -> Compiled:
    """Compiled once a worker process, which serves many micro-batches."""
    key = spec.fingerprint
    if key not in _compiled:
        _compiled[key] = compile_spec(spec)
    return _compiled[key]


def compile_spec(spec: JoinSpec) -> Compiled:
    window = spec.window.bind(spec.left, spec.right)
    left_only = spec.how in ("semi", "anti")
    if spec.keep_late:
        with_late(spec.left, spec.right, spec.suffix)  # names that collide are refused
    results = rows_schema(spec.left, None if left_only else spec.right, spec.suffix)
    if spec.per is not None:
        results = aggregate_schema(spec.per, spec.left, spec.right)
    plan = ordered_plan(compile_plan(spec.on, spec.left, spec.right))
    pick = None if spec.pick is None else BoundPick(spec.pick, spec.left, spec.right)
    index = BISort() if spec.device == "cpu" else SearchedOnGPU()
    return Compiled(spec, plan, window, results, index, pick)


def ordered_plan(plan: JoinPlan) -> JoinPlan:
    """A plan that the ordered index can run: without any key of its own it gets one that all tuples share."""
    if plan.equality or plan.range is not None:
        return plan
    left: Any = _OneKey(plan.left)
    right: Any = _OneKey(plan.right)
    return replace(plan, left=left, right=right)


class _OneKey:
    """A side plan whose tuples all have the same key, so that every pair in the window is a candidate."""

    keys_are_doubles = False

    def __init__(self, plan: SidePlan):
        self._plan = plan
        self.residual = plan.residual

    def of(self, batch: pa.RecordBatch) -> _OneKeyTuples:
        return _OneKeyTuples(self._plan.of(batch), batch.num_rows)


class _OneKeyTuples:
    def __init__(self, tuples: Tuples, rows: int):
        self._tuples = tuples
        self._zeros = np.zeros(rows, np.int64)

    def keys(self) -> Keys:
        return Keys(None, self._zeros, self._tuples.keys().live)

    def probe(self) -> Probe:
        return Probe(None, (self._zeros,), (self._zeros,), self._tuples.probe().live)
