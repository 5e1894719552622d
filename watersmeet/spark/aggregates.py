"""Aggregates on Spark: one row for each row of a side, when the watermark proves it complete.

A core keeps rows as any join does, as runs in the state, and the side whose rows come out is the anchor of the route:
it sees all its partners in one core. Instead of probing what arrives, a step only stores it; rows that have become
complete are settled, and looked up once in what the core has of the other side (watersmeet/aggregates/core.py), which
is therefore kept for as long as any row that waits wants it.

Cost of a micro-batch: as a join that finds nothing, and, if any row is complete, O(rows of the other side within reach)
to sort them; tables over them are not kept in the state.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.aggregates.core import AggregateCore, Waiting
from watersmeet.aggregates.functions import Aggregates
from watersmeet.aggregates.options import PerRow
from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore
from watersmeet.engine.results import Results
from watersmeet.query.windows import BoundTimeWindow, Side, other
from watersmeet.window.ticks import span_of

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NONE = np.zeros(0, np.int64)


def aggregates_of(per: PerRow, left: pa.Schema, right: pa.Schema) -> Aggregates:
    return Aggregates(per.calls, left, right, other(per.side))


def aggregate_schema(per: PerRow, left: pa.Schema, right: pa.Schema) -> pa.Schema:
    """The columns of the results."""
    return pa.schema([*(left if per.side == "left" else right), *aggregates_of(per, left, right).fields])


def aggregated_step(
    core: JoinCore, per: PerRow, arrivals: dict[Side, Arrival], expired_below: dict[Side, int | None], results: Results
) -> None:
    """Store what has arrived, and let out rows that are complete."""
    for side, arrival in arrivals.items():
        core.put(side, arrival, np.zeros(arrival.rows, bool))
    own, away = per.side, other(per.side)
    tick = expired_below[own]
    if tick is None:
        return
    window = core.window
    assert isinstance(window, BoundTimeWindow)
    payload = core.payloads[own]
    positions = core.chains[own].settle_below(tick, 1)
    if positions.size:
        batch = pa.RecordBatch.from_arrays(payload.take(positions), schema=payload.schema)
        _let_out(core, per, batch, window.read(batch, own), results)
    edge = np.array([min(max(tick, _LEAST), _GREATEST)])
    unwanted = expired_below[away]
    if unwanted is not None:
        unwanted = min(unwanted, int(window.partners(own, edge)[0][0]))
    core._expire(core._unneeded_below({own: tick, away: unwanted}))  # type: ignore[dict-item]


def _let_out(core: JoinCore, per: PerRow, batch: pa.RecordBatch, ticks: np.ndarray, results: Results) -> None:
    own, away = per.side, other(per.side)
    window = core.window
    assert isinstance(window, BoundTimeWindow)
    schemas = {side: core.payloads[side].schema for side in core.payloads}
    looked = AggregateCore(
        core.plan, window, schemas, own, aggregates_of(per, schemas["left"], schemas["right"]), per.keeps_all, False,
        core.metrics,
    )  # fmt: skip
    first, last = window.partners(own, ticks)
    least, greatest = int(first.min()), int(last.max())
    runs = []
    for sub in core.chains[away].subwindows:
        if sub.span.greatest < least or sub.span.least > greatest:
            continue
        rows = np.flatnonzero((sub.ticks >= least) & (sub.ticks <= greatest))
        if rows.size:
            payload = core.payloads[away]
            found = pa.RecordBatch.from_arrays(payload.take(rows + sub.base), schema=payload.schema)
            theirs = sub.ticks[rows]
            run = looked.stored(Arrival(found, theirs, span_of(theirs), None, partial(window.partners, away, theirs)))
            runs += [] if run is None else [run]
    looked.come_out([Waiting(batch, ticks, _NONE, None)], [], runs, {}, results)
