"""The join itself: batches of both sides in, pairs out.

For each side that arrived, left before right:

    keys -> probe the other side's chain -> check the residual -> store in the own chain -> collect

then the watermark moves on, tuples that never found a partner come out where the join type wants them, and expired
subwindows go. Storing does not touch what probing reads, so with several threads the two run beside each other.

Nothing is given up before the end: expiring is what a step does last. So a step that fails can be undone (`save`,
`restore`).

In a self join (`self_join.py`) both sides have one payload and, where tuples have the same keys in both roles, one
chain.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.finder import Finder, Piece, Ready
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import How, Results
from watersmeet.engine.self_join import why_two_indexes
from watersmeet.engine.sizes import Sizes
from watersmeet.index import Index
from watersmeet.index.base import Structure
from watersmeet.query.plan import JoinPlan, SidePlan
from watersmeet.query.windows import SIDES, BoundWindow, Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Chain, Subwindow, Target
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Ticks = dict[Side, int | None]

#: Tuples taken at a time to make a structure anew.
_REMADE_ROWS = 1 << 16


class JoinCore:
    """State and steps of a join whose schemas are known.

    self_join: the two sides are one stream; what arrives on one is what arrives on the other.
    by_row: tuples are copied where results are then made of them faster.
    first: positions of the first tuples of both streams.
    """

    def __init__(
        self,
        plan: JoinPlan,
        window: BoundWindow,
        schemas: dict[Side, pa.Schema],
        how: How,
        index: Index,
        sizes: Sizes,
        workers: Workers,
        metrics: Metrics,
        self_join: bool = False,
        by_row: bool = False,
        first: int = 0,
    ):
        self.plan = plan
        self.window = window
        self.self_join = self_join
        self.how = how
        self.index = index
        self._workers = workers
        self._metrics = metrics
        self._sides: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self.alone: dict[Side, bool] = {"left": how in ("left", "full", "anti"), "right": how in ("right", "full")}
        self._flagged: dict[Side, bool] = {"left": self.alone["left"] or how == "semi", "right": self.alone["right"]}
        each: tuple[tuple[Side, ...], ...] = (("left",), ("right",))
        #: The sides of each stream, and of each chain.
        self.streams: tuple[tuple[Side, ...], ...] = (SIDES,) if self_join else each
        self.shares: tuple[tuple[Side, ...], ...] = each
        if self_join and why_two_indexes(plan, window) is None:
            self.shares = (SIDES,)
        self.payloads: dict[Side, Payload] = {}
        for sides in self.streams:
            self.payloads |= dict.fromkeys(sides, Payload(schemas[sides[0]], workers, by_row, first))
        self.chains: dict[Side, Chain] = {}
        for sides in self.shares:
            flagged = any(self._flagged[side] for side in sides)
            self.chains |= dict.fromkeys(sides, sizes.chain(index, window, sides, flagged, workers))
        self._role = {side: 1 << sides.index(side) for sides in self.shares for side in sides}
        self._finder = Finder(plan, self.payloads, how, workers, metrics)

    # -- undoing a step ------------------------------------------------------------------------------------------------

    def save(self) -> tuple[list[Any], list[Any]]:
        """What it takes to undo what follows. O(subwindows, slabs and chunks)."""
        payloads = [self.payloads[sides[0]].save() for sides in self.streams]
        return payloads, [self.chains[sides[0]].save() for sides in self.shares]

    def restore(self, saved: tuple[list[Any], list[Any]]) -> None:
        """As it was saved. O(1) as long as nothing was stored or expired, else O(window)."""
        for sides, payload in zip(self.streams, saved[0], strict=True):
            self.payloads[sides[0]].restore(payload)
        for sides, chain in zip(self.shares, saved[1], strict=True):
            self.chains[sides[0]].restore(chain, partial(self._remade, sides[0]))

    def _remade(self, side: Side, sub: Subwindow) -> Structure:
        """The structure of a subwindow, made from its tuples."""
        payload, plan = self.payloads[side], self._sides[side]
        structure = self.index.structure(None, self._workers)

        def put(start: int, stop: int) -> None:
            columns = payload.take(np.arange(sub.base + start, sub.base + stop))
            keys = plan.keys(pa.RecordBatch.from_arrays(columns, schema=payload.schema))
            plan.forget()
            live = _both(keys.live, sub.live(start, stop))
            structure.insert(self.index.entries(keys.equal, keys.ordered, live, stop - start, self._workers), start)

        for start in range(0, sub.size, _REMADE_ROWS):
            in_parts(put, start, min(start + _REMADE_ROWS, sub.size))
        return structure

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(
        self,
        arrivals: dict[Side, Arrival],
        expired_below: Ticks,
        results: Results,
        visitors: dict[Side, Arrival] | None = None,
    ) -> None:
        """Process arrivals, then let go of what is below `expired_below`.

        Visitors only probe: they are stored in another core. For inner joins of two streams.
        """
        unneeded = self._unneeded_below(expired_below)
        if len(self.shares) == 1:
            if arrivals:
                self._arrive_in_both_roles(arrivals, self._needed_from("left", [arrivals], unneeded), results)
        else:
            for side in SIDES:
                if visitors and side in visitors:
                    self._visit(side, visitors[side], results)
                if side in arrivals:
                    keep = self._needed_from(side, [arrivals, visitors or {}], unneeded)
                    self._arrive(side, arrivals[side], keep, results)
        begin = time.perf_counter()
        for side in SIDES:
            if self.alone[side] and expired_below[side] is not None:
                self._come_out(side, expired_below[side], results)
        self._expire(unneeded)
        self._metrics.seconds["expire"] += time.perf_counter() - begin

    def finish(self, results: Results) -> None:
        """The end of both streams: everything still without a partner comes out."""
        for side in SIDES:
            if self.alone[side]:
                self._come_out(side, None, results)

    def release(self) -> None:
        """Let go of all tuples."""
        for side in SIDES:
            self.chains[side].clear()
            self.payloads[side].retain([])

    def _come_out(self, side: Side, tick: int | None, results: Results) -> None:
        positions = self.chains[side].settle_below(tick, self._role[side])
        results.alone(side, self.payloads[side], positions, self.payloads[other(side)])

    def _unneeded_below(self, expired_below: Ticks) -> Ticks:
        """Below which ticks a side's chain needs no tuples: those that have expired for all sides that it serves."""
        unneeded: Ticks = {}
        for sides in self.shares:
            ticks = [tick for side in sides if (tick := expired_below[side]) is not None]
            unneeded |= dict.fromkeys(sides, min(ticks) if len(ticks) == len(sides) else None)
        return unneeded

    def _expire(self, unneeded: Ticks) -> None:
        for sides in self.streams:
            gone = False
            for side in sides:
                tick = unneeded[side]
                gone |= tick is not None and self.chains[side].expire(tick)
            if gone:
                kept = sorted({run for side in sides for run in self.chains[side].positions()})
                self.payloads[sides[0]].retain(kept)

    def _needed_from(self, side: Side, probing: list[dict[Side, Arrival]], unneeded: Ticks) -> int | None:
        """Tuples of this side below this tick need no place in the index: they expire before anything probes them."""
        tick = unneeded[side]
        for arrivals in probing:
            if tick is not None and side == "left" and "right" in arrivals and arrivals["right"].rows:
                tick = min(tick, int(arrivals["right"].low.min()))
        return tick

    # -- arriving ----------------------------------------------------------------------------------------------------

    def _arrive(self, side: Side, arrival: Arrival, keep: int | None, results: Results) -> None:
        payload = self.payloads[side]
        again = self.self_join and side == "right"  # the tuples came in as left
        first = payload.end - arrival.rows if again else payload.end
        for start, stop in self._cuts(arrival):
            batch = self._ready(side, arrival.slice(start, stop), first + start, keep, new=not again)
            pieces = self._finder.find(batch, results, beside=partial(self._store, batch))
            self._settle(batch, pieces, results)

    def _arrive_in_both_roles(self, arrivals: dict[Side, Arrival], keep: int | None, results: Results) -> None:
        """As left, tuples probe what came before; as right, all. What is stored between the two serves both roles."""
        payload = self.payloads["left"]
        cuts = self._cuts(arrivals["left"])
        batches = []
        for cut in cuts:
            batches.append(self._ready("left", arrivals["left"].slice(*cut), payload.end, keep))
        found = [self._finder.find(batch, results) for batch in batches]
        for batch, pieces in zip(batches, found, strict=True):
            self._store(batch)
            self._settle(batch, pieces, results)
        for cut, stored in zip(cuts, batches, strict=True):
            batch = self._ready("right", arrivals["right"].slice(*cut), stored.first, stored=stored, new=False)
            self._settle(batch, self._finder.find(batch, results), results)

    def _visit(self, side: Side, arrival: Arrival, results: Results) -> None:
        """Probe and forget. Before the side's arrivals, so that what these store has positions without a gap."""
        assert self.how == "inner" and arrival.late is None
        payload = self.payloads[side]
        for cut in self._cuts(arrival):
            self._finder.find(self._ready(side, arrival.slice(*cut), payload.end, visits=True), results)

    def _cuts(self, arrival: Arrival) -> list[tuple[int, int]]:
        return [(0, arrival.rows)] if self.window.counts else arrival.cuts()

    def _ready(
        self,
        side: Side,
        arrival: Arrival,
        first: int,
        keep: int | None = None,
        stored: Ready | None = None,
        visits: bool = False,
        new: bool = True,
    ) -> Ready:
        """Compute keys and sort; beside that take the tuples in, if they are new, and see what is in their reach.

        `stored` is the same batch in the other role, of which it takes over the order.
        """
        n = arrival.rows
        timed = self._metrics.timed
        plan = self._sides[side]
        stores = stored is None and not visits
        workers = self._workers if n >= SMALL else ALONE
        taking_in = partial(self._take_in, side, arrival, new)
        on_time = None if arrival.late is None else ~arrival.late
        entries, live = (None, None) if stored is None else (stored.entries, stored.live)
        with workers.beside(taking_in) as targets:
            with timed("keys"):
                keys = plan.keys(arrival.batch) if stores else None
                probe = plan.probe(arrival.batch) if self.payloads[other(side)].end else None
                plan.forget()
            with timed("sort"):
                if keys is not None:
                    early = None if keep is None or arrival.span.least >= keep else arrival.ticks >= keep
                    live = _both(_both(keys.live, on_time), early)
                    entries = self.index.entries(keys.equal, keys.ordered, live, n, self._workers)
                probes = None
                if probe is not None:
                    asks = _both(probe.live, on_time)
                    known = entries if not visits and _same(asks, live) else None
                    probes = self.index.probes(
                        probe.equal, probe.lows, probe.highs, asks, n, self._workers, known
                    )
        return Ready(side, arrival, first, live, entries, probes, targets.result())

    def _take_in(self, side: Side, arrival: Arrival, new: bool) -> list[Target]:
        if new:
            self.payloads[side].append(arrival.batch)
        return self.chains[other(side)].targets(arrival.low, arrival.high, arrival.span.in_order)

    def _store(self, batch: Ready) -> None:
        begin = time.perf_counter()
        arrival, chain = batch.arrival, self.chains[batch.side]
        settled = None
        if chain.keeps_settled:
            settled = np.zeros(arrival.rows, np.uint8)
            if arrival.late is not None:
                settled[arrival.late] = 0xFF  # in every role
        chain.append(batch.first, arrival.ticks, arrival.span, batch.entries, settled, arrival.late)
        self._metrics.seconds["store"] += time.perf_counter() - begin

    def _settle(self, batch: Ready, pieces: list[Piece], results: Results) -> None:
        """Note who has found a partner; in a semi join those who had none before come out."""
        if not (self._flagged["left"] or self._flagged["right"]):
            return
        side = batch.side
        fresh: dict[Side, list[Array]] = {each: [np.zeros(0, np.int64)] for each in SIDES}
        with self._metrics.timed("gather"):
            if self._flagged[other(side)]:
                role = self._role[other(side)]
                fresh[other(side)] += [sub.settle(partners, role) + np.int64(sub.base) for sub, _, partners in pieces]
            if self._flagged[side] and pieces:
                home = self.chains[side].holding(batch.first)
                offset = np.int32(batch.first - home.base)
                fresh[side] += [
                    home.settle(rows + offset, self._role[side]) + np.int64(home.base) for _, rows, _ in pieces
                ]
            if self.how == "semi":
                results.alone("left", self.payloads["left"], np.concatenate(fresh["left"]), self.payloads["right"])

    def check_invariants(self) -> None:
        for sides in self.streams:
            self.payloads[sides[0]].check_invariants()
        for sides in self.shares:
            self.chains[sides[0]].check_invariants()


def _both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b


def _same(a: Array | None, b: Array | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
