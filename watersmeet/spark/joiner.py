"""The stateful stage: one join core per grouping key.

In every micro-batch the core is put together from its state (runs are adopted as sealed subwindows, by reference to
mapped files: milliseconds), takes one step of the embedded engine, and is written back: one new run for each new
subwindow, nothing for the others. Nothing lives from one micro-batch to the next but files that hold what the state
holds.

A micro-batch with very much text is taken in several steps of the engine, for an Arrow array ends at 2 GiB. First
come all of the left side, copies before others, then all of the right: so two tuples of one micro-batch meet in one of
the cores that have both, and only there. What expires does so in the last step.

A core may have several stores (stores.py), each put together and written back like a core of its own.
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
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.spark.aggregates import aggregated_step
from watersmeet.spark.cache import FiledResults, in_use, query_folder, sweep
from watersmeet.spark.canonical import cut, in_order
from watersmeet.spark.gpu import use_gpu_of_task
from watersmeet.spark.limits import LIMITS, Limits
from watersmeet.spark.narrow import widened
from watersmeet.spark.order import OrderedResults
from watersmeet.spark.packs import COUNTERS, joined
from watersmeet.spark.runs import OpenCore
from watersmeet.spark.spec import Compiled, JoinSpec, compiled
from watersmeet.spark.state import CoreState
from watersmeet.spark.stores import Tuples, about, further
from watersmeet.spark.task import check_query, spare_collector
from watersmeet.window.ticks import span_of

Arrivals = dict[Side, list[Arrival]]
Step = tuple[dict[Side, Arrival], dict[Side, Arrival]]  # who arrive, and who visit


class Joiner(StatefulProcessor):
    def __init__(self, spec: JoinSpec, limits: Limits = LIMITS):
        self._spec = spec
        self._limits = limits

    def init(self, handle: StatefulProcessorHandle) -> None:
        check_query(self._spec)
        spare_collector()
        self._state = CoreState(handle, further(self._spec.route))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        join = compiled(self._spec)
        tuples = Tuples(self._spec, key[0])
        bad: dict[Side, int] = {"left": 0, "right": 0}
        for frame in rows:
            packs = zip(frame["side"], frame["home"], frame["bad"], frame["blob"], strict=True)
            for number, home, left_out, blob in packs:
                side = SIDES[number]
                bad[side] += left_out
                tuples.add(join, side, home, widened(blob, self._spec.schema(side)))
        result = self._batch(key[0], tuples, timerValues.getCurrentWatermarkInMs())
        yield result.assign(bad_left=bad["left"], bad_right=bad["right"])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        fired = expiredTimerInfo.getExpiryTimeInMs()
        yield self._batch(key[0], Tuples(self._spec, key[0]), timerValues.getCurrentWatermarkInMs(), fired)

    def close(self) -> None:
        pass

    def _batch(self, key: int, tuples: Tuples, milliseconds: int, fired: int | None = None) -> pd.DataFrame:
        query = query_folder()
        with in_use(query):
            return self._joined(query, key, tuples, milliseconds, fired)

    def _results(self, query: Path, join: Compiled) -> FiledResults:
        if self._spec.order == "none":
            return FiledResults(query, join.results, join.left_only, join.filed)
        return OrderedResults(query, join, self._spec.order)

    def _joined(self, query: Path, key: int, tuples: Tuples, milliseconds: int, fired: int | None) -> pd.DataFrame:
        if self._spec.device == "gpu":
            use_gpu_of_task()
        join = compiled(self._spec)
        clock = join.clock
        watermarks = {side: clock.watermark(side, milliseconds) for side in SIDES}
        results = self._results(query, join)
        counts = dict.fromkeys(COUNTERS, 0) | tuples.counts()
        for side in SIDES:
            below = None if clock.never_late(side) else watermarks[side]
            late = tuples.leave_late(join, side, below)
            counts[f"late_{side}"] = sum(b.num_rows for b in late)
            if self._spec.keep_late:
                results.late(side, late)
        expired_below = {side: _expired_below(join, side, watermarks[other(side)]) for side in SIDES}
        timers: list[int] = []
        for state in (*self._state.parts.values(), self._state):
            arrivals = {side: self._arrivals(join, side, tuples.arrive(state.part, side)) for side in SIDES}
            if state.part and not any(arrivals.values()) and not state.read(self._spec).runs:
                continue
            opened = OpenCore(join, state, query, key, self._limits)
            visitors = {side: self._arrivals(join, side, tuples.visit(state.part, side)) for side in SIDES}
            *before, last = _steps(arrivals, visitors)
            for mine_now, others_now in before:
                self._step(opened, mine_now, dict.fromkeys(SIDES), results, others_now)
            self._step(opened, last[0], expired_below, results, last[1])
            timer = opened.save(arrivals, clock, milliseconds, fired, timers)
            timers += [] if timer is None else [timer]
            for name, count in opened.counts().items():
                if name not in ("stored_left", "stored_right") or not state.part.startswith("silent"):
                    counts[name] += count
        counts["rows_out"] = results.rows
        sweep(query)
        told = None
        if self._state.parts and fired is None:
            told = about(counts["stored_left"] + counts["stored_right"], counts["probes"], tuples.hot(join))
        core = {"core": [self._spec.keys.index(key)], "about": [told]}
        return pd.DataFrame({"path": [results.close()], **{name: [counts[name]] for name in COUNTERS}, **core})

    def _step(self, opened: OpenCore, mine: Any, expired_below: Any, results: FiledResults, others: Any) -> None:
        if self._spec.per is None:
            opened.core.step(mine, expired_below, results, others)
        else:  # its routes are anchored: nobody only visits
            aggregated_step(opened.core, self._spec.per, mine, expired_below, results)

    def _arrivals(self, join: Compiled, side: Side, batches: list[pa.RecordBatch]) -> list[Arrival]:
        return _arrivals(join, side, batches, self._limits.step)


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


def _expired_below(join: Compiled, side: Side, watermark: int | None) -> int | None:
    """Of tuples of `side`, when this is the other side's watermark."""
    return None if watermark is None else join.window.expired_below(side, watermark)


def _arrivals(join: Compiled, side: Side, batches: list[pa.RecordBatch], most: int) -> list[Arrival]:
    """Batches as arrivals, each in order of time: so it skips subwindows, and needs no ticks to be looked up."""
    if not batches:
        return []
    # Packs come from many tasks in any order, but each often has a stretch of time to itself.
    ranked = sorted(batches, key=lambda one: int(join.window.read(one.slice(0, 1), side)[0]))
    parts = cut(ranked, [join.window.read(one, side) for one in ranked], most)
    return [_arrival(join, side, joined(some)) for some in parts]


def _arrival(join: Compiled, side: Side, batch: pa.RecordBatch) -> Arrival:
    batch, ticks = in_order(batch, join.window.read(batch, side))
    return Arrival(batch, ticks, span_of(ticks), None, partial(join.window.partners, side, ticks))
