"""The stateful stage: one join core per grouping key.

In every micro-batch the core is put together from its state (runs are adopted as sealed subwindows, by reference to
mapped files: milliseconds), takes one step of the embedded engine, and is written back: one new run for each new
subwindow, nothing for the others. Nothing lives from one micro-batch to the next but files that hold what the state
holds.

A micro-batch with very much text is taken in several steps of the engine, for an Arrow array ends at 2 GiB. First
come all of the left side, copies before others, then all of the right: so two tuples of one micro-batch meet in one of
the cores that have both, and only there. What expires does so in the last step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from watersmeet.engine.arrival import Arrival
from watersmeet.query.windows import SIDES, Side
from watersmeet.spark.cache import FiledResults, in_use, query_folder, sweep
from watersmeet.spark.canonical import in_order
from watersmeet.spark.clock import SparkClock
from watersmeet.spark.limits import LIMITS, Limits
from watersmeet.spark.narrow import widened
from watersmeet.spark.packs import COPIES, COUNTERS, HOME, joined, portions
from watersmeet.spark.runs import OpenCore
from watersmeet.spark.spec import Compiled, JoinSpec, compiled
from watersmeet.spark.state import CoreState
from watersmeet.spark.task import check_query
from watersmeet.window.ticks import span_of

Batches = dict[Side, list[pa.RecordBatch]]
Arrivals = dict[Side, list[Arrival]]
Step = tuple[dict[Side, Arrival], dict[Side, Arrival]]  # who arrive, and who visit


class Joiner(StatefulProcessor):
    def __init__(self, spec: JoinSpec, limits: Limits = LIMITS):
        self._spec = spec
        self._limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        check_query(self._spec)
        self._state = CoreState(handle)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        home: Batches = {"left": [], "right": []}
        copies: Batches = {"left": [], "right": []}
        bad: dict[Side, int] = {"left": 0, "right": 0}
        for frame in rows:
            packs = zip(frame["side"], frame["home"], frame["bad"], frame["blob"], strict=True)
            for number, at_home, left_out, blob in packs:
                side = SIDES[number]
                bad[side] += left_out
                batch = widened(blob, self._spec.schema(side))
                parts = {HOME: (batch, None), COPIES: (None, batch)}.get(at_home) or self._own(key[0], side, batch)
                for part, into in zip(parts, (home, copies), strict=True):
                    if part is not None and part.num_rows:
                        into[side].append(part)
        result = self._batch(key[0], home, copies, timerValues.getCurrentWatermarkInMs())
        yield result.assign(bad_left=bad["left"], bad_right=bad["right"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        yield self._batch(key[0], {}, {}, timerValues.getCurrentWatermarkInMs(), fired)

    def close(self) -> None:
        pass

    def _own(self, key: int, side: Side, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Of tuples that all cores get: those at home in this one, and the others."""
        join = compiled(self._spec)
        places = self._spec.route.places(side, join.side_plan(side).of(batch), join.window.read(batch, side))
        mine = places.home == self._spec.keys.index(key)
        return batch.filter(pa.array(mine)), batch.filter(pa.array(~mine))

    def _batch(
        self, key: int, home: Batches, copies: Batches, milliseconds: int, fired: int | None = None
    ) -> pd.DataFrame:
        query = query_folder()
        with in_use(query):
            return self._joined(query, key, home, copies, milliseconds, fired)

    def _joined(
        self, query: Path, key: int, home: Batches, copies: Batches, milliseconds: int, fired: int | None
    ) -> pd.DataFrame:
        join = compiled(self._spec)
        clock = SparkClock(join.window)
        watermark = clock.watermark(milliseconds)
        counts = dict.fromkeys(COUNTERS, 0)
        opened = OpenCore(join, self._state, query, key, self._limits)
        stored_copies = self._spec.route.anchor is not None
        arrivals: Arrivals = {}
        visitors: Arrivals = {}
        for side in SIDES:
            mine = _in_time(join, side, home.get(side, []), watermark)
            counts[f"rows_{side}"] = sum(b.num_rows for b in home.get(side, []))
            counts[f"late_{side}"] = counts[f"rows_{side}"] - sum(b.num_rows for b in mine)
            others = _in_time(join, side, copies.get(side, []), watermark)
            if stored_copies:
                mine, others = mine + others, []
            arrivals[side] = _arrivals(join, side, mine, self._limits.step)
            visitors[side] = _arrivals(join, side, others, self._limits.step)
        expired_below: dict[Side, int | None] = {
            side: None if watermark is None else join.window.expired_below(side, watermark) for side in SIDES
        }
        results = FiledResults(query, join.results, join.left_only)
        *before, last = _steps(arrivals, visitors)
        for mine_now, others_now in before:
            opened.core.step(mine_now, dict.fromkeys(SIDES), results, others_now)
        opened.core.step(last[0], expired_below, results, last[1])
        opened.save(arrivals, clock, milliseconds, fired)
        counts["rows_out"] = results.rows
        counts |= opened.counts()
        sweep(query)
        return pd.DataFrame({"path": [results.close()], **{name: [counts[name]] for name in COUNTERS}})


def _steps(arrivals: Arrivals, visitors: Arrivals) -> list[Step]:
    """What the engine is to take in, step by step; all at once where each is one at most."""
    if all(len(some) <= 1 for each in (arrivals, visitors) for some in each.values()):
        at_once = [{side: some[0] for side, some in each.items() if some} for each in (arrivals, visitors)]
        return [(at_once[0], at_once[1])]
    steps: list[Step] = []
    for side in SIDES:
        steps += [({}, {side: one}) for one in visitors[side]]
        steps += [({side: one}, {}) for one in arrivals[side]]
    return steps


def _in_time(join: Compiled, side: Side, batches: list[pa.RecordBatch], watermark: int | None) -> list[pa.RecordBatch]:
    """Without the late tuples, and without batches that have none left."""
    if watermark is None:
        return batches
    kept = []
    for batch in batches:
        ticks = join.window.read(batch, side)
        if int(ticks.min()) < watermark:
            batch = batch.filter(pa.array(ticks >= watermark))
        if batch.num_rows:
            kept.append(batch)
    return kept


def _arrivals(join: Compiled, side: Side, batches: list[pa.RecordBatch], most: int) -> list[Arrival]:
    """Batches as arrivals, each in order of time: so it skips subwindows, and needs no ticks to be looked up."""
    # Packs come from many tasks in any order, but each often has a stretch of time to itself.
    ranked = sorted(
        batches, key=lambda one: (int(join.window.read(one.slice(0, 1), side)[0]), one.num_rows, one.nbytes)
    )
    return [_arrival(join, side, joined(some)) for some in portions(ranked, most)]


def _arrival(join: Compiled, side: Side, batch: pa.RecordBatch) -> Arrival:
    batch, ticks = in_order(batch, join.window.read(batch, side))
    return Arrival(batch, ticks, span_of(ticks), None, partial(join.window.partners, side, ticks))
