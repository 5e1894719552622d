"""One row for each tuple of a side, with aggregates over its partners; no pairs are made.

A tuple waits until nothing that could still come is a partner of its; then it is asked for once, against all that has
come on the other side, which is kept as long as any tuple that waits wants it:

    ticks   ----------------|====== within reach ======|-----------|------> now
                          t - before        t       t + after   watermark
                                                                          t comes out: its partners are all here

So a tuple is looked up once, in a batch with all that are complete with it, in order of keys; nothing is kept for it
but itself. The other way, to update the tuples that wait with all that comes, touches each of them with every push and
keeps what it has found so far for all; that is done only where every push is to tell (`emit="updates"`).

In every window the partners of tuple i have ticks from low(i) to high(i): times, or in a window of the last n
positions: those that were among the last n when i came, and all that came until n more tuples followed i. Both ends
only rise with i. The price of waiting: the other side is kept for `after` longer, in a window of the last n until n
tuples have followed the oldest that waits.

Where the keys tell all, runs are folded (runs.py). Where they do not (a residual), candidates are made in portions, by
the keys and ticks, are checked, and folded one by one.

Cost, for q tuples that are complete, against m rows in R runs (about 8 + log of them):
    count            O(q R): a search in each run, from that of the tuple before
    sum, min, max    O(16) more a run each
    at the edge      O(q log q) for the few runs that are not wanted by all or none of the q
    storing          O(log) a row, to sort, merge and part runs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import Results
from watersmeet.index.sorting import in_order
from watersmeet.query.plan import JoinPlan, Residual
from watersmeet.query.windows import SIDES, BoundWindow, Side, other

from .functions import Aggregates
from .runs import FEW, Asked, Run, Sums, made, merged

Array = np.ndarray
Ticks = dict[Side, int | None]

#: No run has more than one part in so many of all rows, or fewer than so many rows.
PARTS, SMALL = 2, 1 << 14
_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Waiting:
    """Tuples that wait, as they have come. Never changed."""

    batch: pa.RecordBatch
    ticks: Array
    seen: Array  # in a window of the last n: how many of the other side had come before
    sums: Sums | None  # what has been found so far, where every push is to tell

    @property
    def rows(self) -> int:
        return self.ticks.size

    @property
    def found(self) -> Sums:
        assert self.sums is not None
        return self.sums

    def parted(self, gone: Array) -> tuple[Waiting, Waiting]:
        """Those for which this is true, and the others."""
        count = int(gone.sum())
        if not gone[:count].all():
            return self._some(np.flatnonzero(gone)), self._some(np.flatnonzero(~gone))
        return self._some(slice(0, count)), self._some(slice(count, self.rows))

    def _some(self, rows: Any) -> Waiting:
        if isinstance(rows, slice):
            batch = self.batch.slice(rows.start, rows.stop - rows.start)
        else:
            batch = self.batch.take(pa.array(rows))
        seen = self.seen[rows] if self.seen.size else _NONE
        return Waiting(batch, self.ticks[rows], seen, None if self.sums is None else self.sums.some(rows))


class _State(NamedTuple):
    waiting: tuple[Waiting, ...]
    runs: tuple[Run, ...]
    counts: tuple[tuple[Side, int], ...]  # tuples that have come


class AggregateCore:
    """State and steps. own: the side whose tuples come out. keeps_all: also those without partners."""

    def __init__(self, plan: JoinPlan, window: BoundWindow, schemas: dict[Side, pa.Schema], own: Side,
                 aggregates: Aggregates, keeps_all: bool, updates: bool, metrics: Metrics,
                 self_join: bool = False):  # fmt: skip
        self.plan = plan
        self.window: Any = window
        self.own: Side = own
        self.aggregates = aggregates
        self.self_join = self_join
        self.updates = updates
        self.metrics = metrics
        self._schemas = schemas
        self._keeps_all = keeps_all
        self._asking = plan.left if own == "left" else plan.right
        self._stored = plan.right if own == "left" else plan.left
        self.residual: Residual | None = self._asking.residual
        self._state = _State((), (), tuple((side, 0) for side in SIDES))

    # -- a step --------------------------------------------------------------------------------------------------------

    def save(self) -> Any:
        return self._state

    def restore(self, saved: Any) -> None:
        self._state = saved

    def step(self, arrivals: dict[Side, Arrival], expired_below: Ticks, results: Results) -> None:
        """Take in what has arrived, and let out what is complete."""
        away = other(self.own)
        waiting, runs = list(self._state.waiting), list(self._state.runs)
        counts = dict(self._state.counts)
        for side in SIDES:
            if side in arrivals:
                counts[side] += arrivals[side].rows
        if self.own in arrivals:
            waiting += self._arrived(arrivals[self.own])
        more = self.stored(arrivals[away]) if away in arrivals else None
        if self.updates:
            new = len(waiting) - len(self._state.waiting)
            waiting, told = self._updated(waiting, new, runs, more, counts)
            results.add(*self._rows(told))
        if more is not None:
            runs.append(more)
        expired = expired_below[self.own]
        if expired is not None:
            done, waiting = self._complete(waiting, expired)
            if not self.updates:
                self.come_out(done, waiting, runs, counts, results)
        begin = time.perf_counter()
        runs = self._kept(runs, waiting, expired_below)
        self.metrics.took("expire", begin)
        self._state = _State(tuple(waiting), tuple(runs), tuple(counts.items()))

    def finish(self, results: Results) -> None:
        """The end of both streams: all that waits is complete."""
        if not self.updates:
            runs = list(self._state.runs)
            self.come_out(list(self._state.waiting), [], runs, dict(self._state.counts), results)

    def release(self) -> None:
        self._state = self._state._replace(waiting=(), runs=())

    # -- arriving ------------------------------------------------------------------------------------------------------

    def _arrived(self, arrival: Arrival) -> list[Waiting]:
        seen = _NONE
        if self.window.counts:
            seen = arrival.low + self.window.size(other(self.own))
        new = Waiting(arrival.batch, arrival.ticks, seen, None)
        if arrival.late is not None:
            new = new.parted(arrival.late)[1]
        if self.updates:
            new = replace(new, sums=self.aggregates.slots.nothing(new.rows))
        return [new] if new.rows else []

    def stored(self, arrival: Arrival) -> Run | None:
        """What has arrived on the other side as a run, without what can have no partners."""
        begin = time.perf_counter()
        batch, ticks = arrival.batch, arrival.ticks
        keys = self._stored.of(batch).keys()
        live = keys.live
        if arrival.late is not None:
            live = ~arrival.late if live is None else live & ~arrival.late
        ints, present, doubles = self.aggregates.values(batch)
        equal, ordered = keys.equal, keys.ordered
        if ordered is None:
            ordered = np.zeros(batch.num_rows, np.int64)
        columns = None
        if self.residual is not None:
            names = self.residual.right_columns if self.own == "left" else self.residual.left_columns
            columns = batch.select(list(names)) if names else None
        if live is not None and not live.all():
            rows = np.flatnonzero(live)
            equal, ordered, ticks = None if equal is None else equal[rows], ordered[rows], ticks[rows]
            ints, doubles = ints[:, rows], doubles[:, rows]
            columns = None if columns is None else columns.take(pa.array(rows))
        begin = self.metrics.took("keys", begin)
        run = None
        if ticks.size:
            run = made(equal, ordered, ticks, ints, doubles, present, self.aggregates.slots, columns)
        self.metrics.took("sort", begin)
        return run

    # -- coming out ----------------------------------------------------------------------------------------------------

    def _complete(self, waiting: list[Waiting], expired: int) -> tuple[list[Waiting], list[Waiting]]:
        """Those that are below a tick, and the others."""
        done, rest = [], []
        for some in waiting:
            if expired > int(some.ticks.max()):
                done.append(some)
            elif expired <= int(some.ticks.min()):
                rest.append(some)
            else:
                gone, stays = some.parted(some.ticks < expired)
                done.append(gone)
                rest.append(stays)
        return done, rest

    def come_out(self, done: list[Waiting], rest: list[Waiting], runs: list[Run], counts: dict[Side, int],
                 results: Results) -> None:  # fmt: skip
        """Those that are complete, looked up in the runs. rest, counts: for windows of the last n."""
        if not done:
            return
        begin = time.perf_counter()
        whole = _joined(done)
        first, last = self._reach(whole, _seen([*done, *rest]), counts)
        sums = self.aggregates.slots.nothing(whole.rows)
        self._look_up(whole, first, last, runs, sums)
        begin = self.metrics.took("probe", begin)
        results.add(*self._rows([replace(whole, sums=sums)]))
        self.metrics.took("gather", begin)

    def _rows(self, some: list[Waiting]) -> tuple[int, list[pa.RecordBatch]]:
        """As results."""
        batches = []
        for each in some:
            if not self._keeps_all and not each.found.counts.all():
                each = each.parted(each.found.counts > 0)[0]
            if each.rows:
                columns = [*each.batch.columns, *self.aggregates.columns(each.found)]
                batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        return sum(batch.num_rows for batch in batches), batches

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self._schemas[self.own], *self.aggregates.fields])

    def _reach(self, some: Waiting, seen: Array, counts: dict[Side, int]) -> tuple[Array, Array]:
        """The ticks of their partners: least and greatest."""
        if not self.window.counts:
            return self.window.partners(self.own, some.ticks)
        size, away = self.window.size(self.own), self.window.size(other(self.own))
        last = np.full(some.rows, counts[other(self.own)] - 1)
        follows = some.ticks + size - (counts[self.own] - seen.size)  # the first that finds it gone
        known = follows < seen.size
        last[known] = seen[follows[known]] - 1
        return some.seen - away, last

    # -- looking up ----------------------------------------------------------------------------------------------------

    def _look_up(self, some: Waiting, first: Array, last: Array, runs: list[Run], sums: Sums) -> None:
        """Fold what is in the runs for each tuple; at the edge runs are parted, in the list."""
        if not runs:
            return
        asked = self._asked(some, first, last)
        at = 0
        while at < len(runs) and asked.lows.size:
            run = runs[at]
            least, greatest = asked.any
            if run.greatest >= least and run.least <= greatest:
                inside = asked.common[0] <= run.least and run.greatest <= asked.common[1]
                if not inside and run.rows > max(FEW, 2 * some.rows):
                    runs[at : at + 1] = run.halves()
                    continue
                if self.residual is None:
                    run.fold(asked, sums)
                else:
                    run.check(asked, self._keeps(some, run), sums)
            at += 1

    def _asked(self, some: Waiting, first: Array, last: Array) -> Asked:
        probe = self._asking.of(some.batch).probe()
        n, bands = some.rows, max(len(probe.lows), 1)
        lows = np.concatenate(probe.lows) if probe.lows else np.zeros(n, np.int64)
        highs = np.concatenate(probe.highs) if probe.highs else np.zeros(n, np.int64)
        who = np.tile(np.arange(n), bands)
        equal = None if probe.equal is None else np.tile(probe.equal, bands)
        ask = lows <= highs
        if probe.live is not None:
            ask &= np.tile(probe.live, bands)
        ask &= (first <= last)[who]
        if not ask.all():
            lows, highs, who = lows[ask], highs[ask], who[ask]
            equal = None if equal is None else equal[ask]
        major, lows, order = in_order(equal, lows)
        who = who[order]
        return Asked(major if equal is not None else _NONE, lows, highs[order], first[who], last[who], who)

    def _keeps(self, some: Waiting, run: Run) -> Callable[[Array, Array], Array]:
        residual = self.residual
        assert residual is not None
        own = residual.left_columns if self.own == "left" else residual.right_columns

        def keeps(who: Array, rows: Array) -> Array:
            mine = {name: some.batch.column(name).take(pa.array(who)) for name in own}
            theirs = {}
            if run.columns is not None:
                theirs = {name: run.columns.column(name).take(pa.array(rows)) for name in run.columns.schema.names}
            left, right = (mine, theirs) if self.own == "left" else (theirs, mine)
            return np.asarray(residual.keep(left, right, who.size))

        return keeps

    # -- every push tells ----------------------------------------------------------------------------------------------

    def _updated(self, waiting: list[Waiting], new: int, runs: list[Run], more: Run | None,
                 counts: dict[Side, int]) -> tuple[list[Waiting], list[Waiting]]:  # fmt: skip
        """The tuples with what has come now, and those of them that are new or have changed."""
        begin = time.perf_counter()
        seen = _seen(waiting)
        after, told = [], []
        for number, some in enumerate(waiting):
            is_new = number >= len(waiting) - new
            sums = some.found.copy()
            first, last = self._reach(some, seen, counts)
            if is_new:
                self._look_up(some, first, last, runs, sums)
            if more is not None:
                self._look_up(some, first, last, [more], sums)
            some, before = replace(some, sums=sums), some.found
            after.append(some)
            changed = np.ones(some.rows, bool) if is_new else sums.counts != before.counts
            if changed.any():
                told.append(some.parted(changed)[0])
        while len(after) > 1 and after[-2].rows <= 2 * after[-1].rows:
            after[-2:] = [_joined(after[-2:])]
        self.metrics.took("probe", begin)
        return after, told

    # -- keeping few runs ----------------------------------------------------------------------------------------------

    def _kept(self, runs: list[Run], waiting: list[Waiting], expired_below: dict[Side, Any]) -> list[Run]:
        """Without what nothing can want any more; neighbours that all will want alike merged."""
        expired = expired_below[self.own]
        if expired is None:
            return runs
        if self.window.counts:
            size, away = self.window.size(self.own), other(self.own)
            unwanted = expired_below[away]
            seen = _seen(waiting)
            settled = int(seen[size]) - 1 if seen.size > size else _MAX
            if not self.updates and seen.size:
                unwanted = min(unwanted, int(seen[0]) - self.window.size(away))
        else:
            edge = np.array([min(max(expired, _MIN), _MAX)])
            low, high = self.window.partners(self.own, edge)
            unwanted, settled = int(low[0]), int(high[0])
            if expired > _MAX:
                unwanted = _MAX
            elif expired < _MIN:
                return runs
            if self.updates:
                unwanted = expired_below[other(self.own)]
        runs = [run for run in runs if run.greatest >= unwanted]
        most = max(SMALL, sum(run.rows for run in runs) // PARTS)
        at = len(runs)
        while at > 1:
            a, b = runs[at - 2], runs[at - 1]
            if a.greatest > settled or b.greatest > settled or a.least < unwanted:
                at -= 1
                continue
            if a.rows > 2 * b.rows or a.rows + b.rows > most:
                break
            runs[at - 2 : at] = [merged(a, b)]
            at -= 1
        return runs

    # -- looking -------------------------------------------------------------------------------------------------------

    def measure(self, metrics: Metrics) -> None:
        waits, kept = sum(some.rows for some in self._state.waiting), sum(run.rows for run in self._state.runs)
        metrics.stored_left, metrics.stored_right = (waits, kept) if self.own == "left" else (kept, waits)
        metrics.index_bytes = sum(run.nbytes for run in self._state.runs)
        metrics.payload_bytes = sum(some.batch.get_total_buffer_size() for some in self._state.waiting)

    def check_invariants(self) -> None:
        for run in self._state.runs:
            run.check_invariants()
        for some in self._state.waiting:
            assert some.rows == some.batch.num_rows > 0, some


def _seen(waiting: list[Waiting]) -> Array:
    return np.concatenate([some.seen for some in waiting]) if waiting else _NONE


def _joined(some: list[Waiting]) -> Waiting:
    """Several as one."""
    if len(some) == 1:
        return some[0]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(each.batch.columns for each in some), strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=some[0].batch.schema)
    sums = None
    if some[0].sums is not None:
        sums = Sums.joined([each.sums for each in some if each.sums is not None])
    return Waiting(batch, np.concatenate([each.ticks for each in some]), _seen(some), sums)
