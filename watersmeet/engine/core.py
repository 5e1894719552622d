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
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.finder import Finder, Piece, Ready
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.order import Order, by_completion, needs_sorting
from watersmeet.engine.results import How, Results
from watersmeet.engine.self_join import why_two_indexes
from watersmeet.engine.sizes import Sizes
from watersmeet.index import Index
from watersmeet.index.base import Structure
from watersmeet.query.plan import JoinPlan, SidePlan, Tuples
from watersmeet.query.windows import SIDES, BoundWindow, Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Chain, Subwindow, Target
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Ticks = dict[Side, int | None]
_NO_ROWS = np.zeros(0, np.int64)


class Stored(NamedTuple):
    """Some tuples that are kept, one after the other in their stream."""

    side: Side
    first: int  # position
    batch: pa.RecordBatch
    settled: Array
    late: Array


#: Tuples taken at a time to make a structure anew.
_REMADE_ROWS = 1 << 16


class JoinCore:
    """State and steps of a join whose schemas are known.

    self_join: the two sides are one stream; what arrives on one is what arrives on the other.
    by_row: tuples are copied where results are then made of them faster.
    first: positions of the first tuples of both streams.
    order: that of the results.
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
        order: Order = "none",
    ):
        self.plan = plan
        self.window = window
        self.self_join = self_join
        self.how = how
        self.index = index
        self._workers = workers
        self.metrics = metrics
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
        self._order = order
        self._finder = Finder(plan, self.payloads, how, workers, metrics, order)

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
            keys = plan.of(pa.RecordBatch.from_arrays(columns, schema=payload.schema)).keys()
            live = both(keys.live, sub.live(start, stop))
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
        """Process arrivals, then let go of what is below `expired_below`."""
        self.meet(arrivals, expired_below, results, visitors)
        self.let_go(expired_below, results)

    def meet(
        self,
        arrivals: dict[Side, Arrival],
        expired_below: Ticks,
        results: Results,
        visitors: dict[Side, Arrival] | None = None,
    ) -> dict[Side, Array]:
        """The first half of a step. Visitors, for inner and full joins of two streams, only probe: they are stored in
        another core. Gives rows of those that have found partners and must know of it."""
        unneeded = self._unneeded_below(expired_below)
        return self._process(arrivals, visitors or {}, unneeded, results)

    def have_met(self, side: Side, positions: Array) -> None:
        """These tuples, of the last arrivals and in their order, have found partners as visitors elsewhere."""
        self.chains[side].settle(positions, self._role[side])

    def let_go(self, expired_below: Ticks, results: Results) -> None:
        """The second half of a step: tuples without partners come out, and what is below `expired_below` goes."""
        begin = time.perf_counter()
        for side in SIDES:
            if self.alone[side] and expired_below[side] is not None:
                self._come_out(side, expired_below[side], results)
        self._expire(self._unneeded_below(expired_below))
        self.metrics.took("expire", begin)

    def _process(
        self, arrivals: dict[Side, Arrival], visitors: dict[Side, Arrival], unneeded: Ticks, results: Results
    ) -> dict[Side, Array]:
        """Let tuples find their partners, and store those that do not only visit; as `meet`."""
        met: dict[Side, Array] = {}
        if len(self.shares) == 1:
            if arrivals:
                self._arrive_in_both_roles(arrivals, self._needed_from("left", [arrivals], unneeded), results)
            return met
        for side in SIDES:
            if side in visitors:
                met[side] = self._visit(side, visitors[side], results)
            if side in arrivals:
                keep = self._needed_from(side, [arrivals, visitors], unneeded)
                self._arrive(side, arrivals[side], keep, results)
        return met

    def put(self, side: Side, arrival: Arrival, settled: Array) -> None:
        """Store tuples that have met all that came before; some of them are settled."""
        payload, chain = self.payloads[side], self.chains[side]
        first = payload.end
        payload.append(arrival.batch)
        _, entries = self._entries(arrival, self._sides[side].of(arrival.batch), None)
        flags = settled.astype(np.uint8) * np.uint8(self._role[side]) if chain.keeps_settled else None
        chain.append(first, arrival.ticks, arrival.span, entries, flags)

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
        if len(self.shares) > 1:
            return expired_below
        left, right = expired_below["left"], expired_below["right"]
        return dict.fromkeys(SIDES, None if left is None or right is None else min(left, right))

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
            piece = arrival.slice(start, stop)
            targets = self._take_in(side, piece, None if again else payload)
            tuples = self._sides[side].of(piece.batch)
            live, entries = self._entries(piece, tuples, keep)
            probes = self._probes(side, piece, tuples, live, entries)
            batch = Ready(side, piece, payload, first + start, live, entries, probes, targets())
            pieces = self._finder.find(batch, results, beside=partial(self._store, batch))
            self._settle(batch, pieces, results)

    def _arrive_in_both_roles(self, arrivals: dict[Side, Arrival], keep: int | None, results: Results) -> None:
        """As left, tuples probe what came before; as right, all. What is stored between the two serves both roles."""
        payload = self.payloads["left"]
        cuts = self._cuts(arrivals["left"])
        batches = []
        for cut in cuts:
            piece, first = arrivals["left"].slice(*cut), payload.end
            taken = self._take_in("left", piece, payload)
            tuples = self._sides["left"].of(piece.batch)
            live, entries = self._entries(piece, tuples, keep)
            probes = self._probes("left", piece, tuples, live, entries)
            batches.append(Ready("left", piece, payload, first, live, entries, probes, taken()))
        found = [self._finder.find(batch, results) for batch in batches]
        for batch, pieces in zip(batches, found, strict=True):
            self._store(batch)
            self._settle(batch, pieces, results)
        for cut, stored in zip(cuts, batches, strict=True):
            piece = arrivals["right"].slice(*cut)
            targets = self._targets("right", piece)
            tuples = self._sides["right"].of(piece.batch)
            probes = self._probes("right", piece, tuples, stored.live, stored.entries)
            batch = Ready("right", piece, payload, stored.first, stored.live, stored.entries, probes, targets)
            self._settle(batch, self._finder.find(batch, results), results)

    def _visit(self, side: Side, arrival: Arrival, results: Results) -> Array:
        """Probe and forget."""
        assert self.how in ("inner", "full") and arrival.late is None
        met = [_NO_ROWS]
        for start, stop in self._cuts(arrival):
            piece = arrival.slice(start, stop)
            guests = self.payloads[side].empty()
            guests.append(piece.batch)
            probes = self._probes(side, piece, self._sides[side].of(piece.batch), None, None)
            targets = self._targets(side, piece)
            pieces = self._finder.find(Ready(side, piece, guests, 0, None, None, probes, targets), results)
            if self._flagged[side]:
                for sub, rows, partners in pieces:
                    sub.settle(partners, self._role[other(side)])
                    met.append(np.unique(rows) + start)
        return np.concatenate(met)

    def _cuts(self, arrival: Arrival) -> list[tuple[int, int]]:
        return [(0, arrival.rows)] if self.window.counts else arrival.cuts()

    def _take_in(self, side: Side, arrival: Arrival, payload: Payload | None) -> Callable[[], list[Target]]:
        """Begin to take the tuples into the payload, if they are new, and to see what is in their reach."""

        def take_in() -> list[Target]:
            if payload is not None:
                payload.append(arrival.batch)
            return self._targets(side, arrival)

        return (self._workers if arrival.rows >= SMALL else ALONE).begun(take_in)

    def _targets(self, side: Side, arrival: Arrival) -> list[Target]:
        return self.chains[other(side)].targets(arrival.low, arrival.high, arrival.span.in_order)

    def _entries(self, arrival: Arrival, tuples: Tuples, keep: int | None) -> tuple[Array | None, Any]:
        """The rows that go into the index, and these as the index takes them."""
        begin = time.perf_counter()
        keys = tuples.keys()
        begin = self.metrics.took("keys", begin)
        live = self._stored_rows(arrival, keys.live, keep)
        entries = self.index.entries(keys.equal, keys.ordered, live, arrival.rows, self._workers)
        self.metrics.took("sort", begin)
        return live, entries

    def _stored_rows(self, arrival: Arrival, live: Array | None, keep: int | None) -> Array | None:
        """Of the rows that can match at all, those that go into the index; None: all."""
        early = None if keep is None or arrival.span.least >= keep else arrival.ticks >= keep
        return both(both(live, arrival.on_time), early)

    def _probes(self, side: Side, arrival: Arrival, tuples: Tuples, live: Array | None, entries: Any) -> Any:
        """What the index is to look for; None while no tuple of the other side has come.

        live, entries: the same tuples as they are stored, whose order mostly is that of the probes.
        """
        if not self.payloads[other(side)].end:
            return None
        begin = time.perf_counter()
        probe = tuples.probe()
        begin = self.metrics.took("keys", begin)
        asks = both(probe.live, arrival.on_time)
        known = entries if _same(asks, live) else None
        probes = self.index.probes(probe.equal, probe.lows, probe.highs, asks, arrival.rows, self._workers, known)
        self.metrics.took("sort", begin)
        return probes

    def _store(self, batch: Ready) -> None:
        begin = time.perf_counter()
        arrival, chain = batch.arrival, self.chains[batch.side]
        settled = None
        if chain.keeps_settled:
            settled = np.zeros(arrival.rows, np.uint8)
            if arrival.late is not None:
                settled[arrival.late] = 0xFF  # in every role
        chain.append(batch.first, arrival.ticks, arrival.span, batch.entries, settled, arrival.late)
        self.metrics.took("store", begin)

    def _settle(self, batch: Ready, pieces: list[Piece], results: Results) -> None:
        """Note who has found a partner; in a semi join those who had none before come out."""
        if not (self._flagged["left"] or self._flagged["right"]):
            return
        begin = time.perf_counter()
        side = batch.side
        fresh: dict[Side, list[Array]] = {each: [np.zeros(0, np.int64)] for each in SIDES}
        if self._flagged[other(side)]:
            role = self._role[other(side)]
            fresh[other(side)] += [sub.settle(partners, role) + np.int64(sub.base) for sub, _, partners in pieces]
        if self._flagged[side] and pieces:
            home = self.chains[side].holding(batch.first)
            offset = np.int32(batch.first - home.base)
            fresh[side] += [home.settle(rows + offset, self._role[side]) + np.int64(home.base) for _, rows, _ in pieces]
        if self.how == "semi":
            found = np.concatenate(fresh["left"])
            by = None
            if needs_sorting(self._order, *batch.ends):
                found = np.sort(found)
                if side == "right":
                    found, by = by_completion(found, *self._finder.pairs_in_order(batch, pieces))
            elif side == "right" and self._order != "none":
                by = np.full(found.size, batch.first)  # or any other: all are of one group
            results.alone("left", self.payloads["left"], found, self.payloads["right"], by)
        self.metrics.took("gather", begin)

    # -- looking -----------------------------------------------------------------------------------------------------

    def stored(self, most: int) -> Iterator[Stored]:
        """All tuples that are kept, of each side from the oldest on, at most so many at a time."""
        for side in SIDES:
            payload, chain = self.payloads[side], self.chains[side]
            for sub in chain.subwindows:
                for start in range(0, sub.size, most):
                    stop = min(start + most, sub.size)
                    columns = payload.take(np.arange(sub.base + start, sub.base + stop))
                    batch = pa.RecordBatch.from_arrays(columns, schema=payload.schema)
                    settled = np.zeros(stop - start, bool)
                    if chain.keeps_settled:
                        settled = sub.settled[start:stop] & self._role[side] != 0
                    yield Stored(side, sub.base + start, batch, settled, ~sub.live(start, stop))

    def measure(self, metrics: Metrics) -> None:
        """What is held now."""
        metrics.stored_left = self.chains["left"].stored
        metrics.stored_right = self.chains["right"].stored if len(self.shares) > 1 else 0
        metrics.index_bytes = sum(self.chains[sides[0]].nbytes() for sides in self.shares)
        metrics.payload_bytes = sum(self.payloads[sides[0]].nbytes() for sides in self.streams)

    def kinds(self) -> list[tuple[tuple[Side, ...], list[Any]]]:
        """The kinds of structures in each chain, where they are chosen one by one."""
        return [
            (sides, [getattr(sub.structure, "kind", None) for sub in self.chains[sides[0]].subwindows])
            for sides in self.shares
        ]

    def check_invariants(self) -> None:
        for sides in self.streams:
            self.payloads[sides[0]].check_invariants()
        for sides in self.shares:
            self.chains[sides[0]].check_invariants()


def both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b


def _same(a: Array | None, b: Array | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
