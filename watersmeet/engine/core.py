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
from watersmeet.query.plan import JoinPlan, Keys, Probe, SidePlan, Tuples
from watersmeet.query.windows import SIDES, BoundWindow, Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Chain, Subwindow, Target
from watersmeet.window.kept import KeptKeys
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Ticks = dict[Side, int | None]
Saved = tuple[list[Any], dict[Side, Any], list[Any]]
_NO_ROWS = np.zeros(0, np.int64)


class Stored(NamedTuple):
    """Some tuples that are kept, one after the other in their stream."""

    side: Side
    first: int  # position
    batch: pa.RecordBatch
    settled: Array
    late: Array


class _Completed(NamedTuple):
    """Left tuples of a semi join that have found their first partner by a batch."""

    batch: Ready
    pieces: list[Piece]  # all that it has found
    fresh: Array  # positions of these left tuples


#: Tuples taken at a time to make a structure anew.
_REMADE_ROWS = 1 << 16


class JoinCore:
    """State and steps of a join whose schemas are known.

    self_join: the two sides are one stream; what arrives on one is what arrives on the other.
    by_row: tuples are copied where results are then made of them faster.
    first: positions of the first tuples of both streams.
    order: that of the results.
    keeps_keys: whether tuples keep the keys that checks compare; if not, columns are taken to check candidates.
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
        keeps_keys: bool = True,
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
        self.order = order
        self.kept: dict[Side, KeptKeys] = {}
        self.keeps_keys = keeps_keys and (len(self.shares) > 1 or plan.checks_alike)
        if self.keeps_keys:
            for sides in self.shares:
                if keys := self._sides[sides[0]].kept:
                    self.kept |= dict.fromkeys(sides, KeptKeys(len(keys), first))
        self._finder = Finder(plan, self.payloads, self.kept, how, workers, metrics, order)
        self._completed: list[_Completed] = []  # in a step: what is yet to come out

    # -- undoing a step ------------------------------------------------------------------------------------------------

    def save(self) -> Saved:
        """What it takes to undo what follows. O(subwindows, slabs and chunks)."""
        payloads = [self.payloads[sides[0]].save() for sides in self.streams]
        kept = {side: keys.save() for side, keys in self.kept.items()}
        return payloads, kept, [self.chains[sides[0]].save() for sides in self.shares]

    def restore(self, saved: Saved) -> None:
        """As it was saved. O(1) as long as nothing was stored or expired, else O(window)."""
        payloads, kept, chains = saved
        for sides, payload in zip(self.streams, payloads, strict=True):
            self.payloads[sides[0]].restore(payload)
        for side, keys in kept.items():
            self.kept[side].restore(keys)
        for sides, chain in zip(self.shares, chains, strict=True):
            self.chains[sides[0]].restore(chain, partial(self._remade, sides[0]))

    def _remade(self, side: Side, sub: Subwindow) -> Structure:
        """The structure of a subwindow, made from its tuples."""
        payload, plan = self.payloads[side], self._sides[side]
        structure = self.index.structure(None, self._workers)

        def put(start: int, stop: int) -> None:
            columns = payload.take(np.arange(sub.base + start, sub.base + stop))
            keys, _ = self._keys(side, plan.of(pa.RecordBatch.from_arrays(columns, schema=payload.schema)))
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
        met_before: dict[Side, Array] | None = None,
    ) -> dict[Side, Array]:
        """The first half of a step. Visitors, for joins of two streams, only probe: they are stored in another core.
        Gives rows of those that have found partners and must know of it.

        met_before: rows of arrivals that have found partners in other cores, which came before the step.
        """
        unneeded = self._unneeded_below(expired_below)
        self._completed = []
        return self._process(arrivals, visitors or {}, unneeded, results, met_before or {})

    def visited(self, side: Side, arrival: Arrival) -> Array:
        """Rows of tuples that find partners here, of a join in which these need not know of it."""
        assert self.how == "semi" and side == "left"
        return self._visit(side, arrival, Results("count", pa.schema([]), True))

    def have_met(self, side: Side, positions: Array, results: Results | None = None) -> None:
        """These tuples, of the last arrivals and in their order, have found partners as visitors elsewhere; in a semi
        join those for which that is new come out."""
        if self._flagged[side]:
            fresh = self.chains[side].settle(positions, self._role[side])
            if self.how == "semi" and results is not None:
                results.alone(side, self.payloads[side], fresh, self.payloads[other(side)])

    def let_go(self, expired_below: Ticks, results: Results) -> None:
        """The second half of a step: tuples without partners come out, and what is below `expired_below` goes."""
        begin = time.perf_counter()
        for side in SIDES:
            if self.alone[side] and expired_below[side] is not None:
                self._come_out(side, expired_below[side], results)
        self._expire(self._unneeded_below(expired_below))
        self.metrics.took("expire", begin)

    def _process(
        self,
        arrivals: dict[Side, Arrival],
        visitors: dict[Side, Arrival],
        unneeded: Ticks,
        results: Results,
        met_before: dict[Side, Array],
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
                first = self.payloads[side].end
                self._arrive(side, arrivals[side], keep, results)
                if side in met_before:
                    self.have_met(side, met_before[side] + first, results)
            self._let_first_out(results)
        return met

    def put(self, side: Side, arrival: Arrival, settled: Array) -> None:
        """Store tuples that have met all that came before; some of them are settled."""
        payload, chain = self.payloads[side], self.chains[side]
        first = payload.end
        payload.append(arrival.batch)
        _, entries, kept = self._entries(side, arrival, self._sides[side].of(arrival.batch), None)
        if kept:
            self.kept[side].store(kept)
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
        for keys in self.kept.values():
            keys.retain([])

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
                for side in sides:
                    if side in self.kept:
                        self.kept[side].retain(kept)

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
            live, entries, kept = self._entries(side, piece, tuples, keep)
            probes, limits = self._probes(side, piece, tuples, live, entries)
            batch = Ready(side, piece, payload, first + start, live, entries, probes, targets(), kept, limits)
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
            live, entries, kept = self._entries("left", piece, tuples, keep)
            probes, limits = self._probes("left", piece, tuples, live, entries)
            batches.append(Ready("left", piece, payload, first, live, entries, probes, taken(), kept, limits))
        found = [self._finder.find(batch, results) for batch in batches]
        for batch, pieces in zip(batches, found, strict=True):
            self._store(batch)
            self._settle(batch, pieces, results)
        for cut, stored in zip(cuts, batches, strict=True):
            piece = arrivals["right"].slice(*cut)
            targets = self._targets("right", piece)
            tuples = self._sides["right"].of(piece.batch)
            probes, limits = self._probes("right", piece, tuples, stored.live, stored.entries)
            batch = stored._replace(side="right", arrival=piece, probes=probes, targets=targets, limits=limits)
            self._settle(batch, self._finder.find(batch, results), results)

    def _visit(self, side: Side, arrival: Arrival, results: Results) -> Array:
        """Probe and forget. Gives the rows that have found partners, if they must know of it."""
        assert arrival.late is None
        met = [_NO_ROWS]
        for start, stop in self._cuts(arrival):
            piece = arrival.slice(start, stop)
            guests = self.payloads[side].empty()
            guests.append(piece.batch)
            probes, limits = self._probes(side, piece, self._sides[side].of(piece.batch), None, None)
            targets = self._targets(side, piece)
            batch = Ready(side, piece, guests, 0, None, None, probes, targets, [], limits)
            pieces = self._finder.find(batch, results)
            if self._flagged[side]:
                met += [np.unique(rows) + start for _, rows, _ in pieces]
            if self._flagged[other(side)]:
                role = self._role[other(side)]
                fresh = [sub.settle(partners, role) + np.int64(sub.base) for sub, _, partners in pieces]
                self._first_partners(batch, pieces, fresh, results)
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

    def _keys(self, side: Side, tuples: Tuples) -> tuple[Keys, list[Array]]:
        """How tuples are stored, and the keys of theirs that checks compare; without one of these none can match."""
        keys = tuples.keys()
        if side not in self.kept:
            return keys, []
        kept, valid = tuples.kept()
        return keys._replace(live=both(keys.live, valid)), kept

    def _asked(self, side: Side, tuples: Tuples) -> tuple[Probe, list[Array]]:
        """What tuples look for, and what their checks compare with."""
        probe = tuples.probe()
        if other(side) not in self.kept:
            return probe, []
        limits, possible = tuples.limits()
        return probe._replace(live=both(probe.live, possible)), limits

    def _entries(
        self, side: Side, arrival: Arrival, tuples: Tuples, keep: int | None
    ) -> tuple[Array | None, Any, list[Array]]:
        """The rows that go into the index, these as the index takes them, and the keys that checks compare."""
        begin = time.perf_counter()
        keys, kept = self._keys(side, tuples)
        begin = self.metrics.took("keys", begin)
        live = self._stored_rows(arrival, keys.live, keep)
        entries = self.index.entries(keys.equal, keys.ordered, live, arrival.rows, self._workers)
        self.metrics.took("sort", begin)
        return live, entries, kept

    def _stored_rows(self, arrival: Arrival, live: Array | None, keep: int | None) -> Array | None:
        """Of the rows that can match at all, those that go into the index; None: all."""
        early = None if keep is None or arrival.span.least >= keep else arrival.ticks >= keep
        return both(both(live, arrival.on_time), early)

    def _probes(
        self, side: Side, arrival: Arrival, tuples: Tuples, live: Array | None, entries: Any
    ) -> tuple[Any, list[Array]]:
        """What the index is to look for, None while no tuple of the other side has come; and what checks compare with.

        live, entries: the same tuples as they are stored, whose order mostly is that of the probes.
        """
        if not self.payloads[other(side)].end:
            return None, []
        begin = time.perf_counter()
        probe, limits = self._asked(side, tuples)
        begin = self.metrics.took("keys", begin)
        asks = both(probe.live, arrival.on_time)
        known = entries if self.plan.range != "box" and _same(asks, live) else None  # a box has orders of its own
        probes = self.index.probes(probe.equal, probe.lows, probe.highs, asks, arrival.rows, self._workers, known)
        self.metrics.took("sort", begin)
        return probes, limits

    def _store(self, batch: Ready) -> None:
        begin = time.perf_counter()
        arrival, chain = batch.arrival, self.chains[batch.side]
        settled = None
        if chain.keeps_settled:
            settled = np.zeros(arrival.rows, np.uint8)
            if arrival.late is not None:
                settled[arrival.late] = 0xFF  # in every role
        if batch.kept:
            self.kept[batch.side].store(batch.kept)
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
        self._first_partners(batch, pieces, fresh["left"], results)
        self.metrics.took("gather", begin)

    def _first_partners(self, batch: Ready, pieces: list[Piece], fresh: list[Array], results: Results) -> None:
        """In a semi join: note left tuples that have found their first partner. They come out when all tuples of this
        side have met them, visitors as well, where it is to be known which was the first."""
        if self.how == "semi" and fresh:
            self._completed.append(_Completed(batch, pieces, np.concatenate(fresh)))
            if self.order == "none" or batch.side == "left" or len(self.shares) == 1:
                self._let_first_out(results)

    def _let_first_out(self, results: Results) -> None:
        """Left tuples that have found their first partner come out."""
        done, self._completed = self._completed, []
        if not done:
            return
        batch = done[0].batch
        by_right = batch.side == "right"
        found = np.concatenate([one.fresh for one in done])
        by = None
        if len(done) > 1 or needs_sorting(self.order, *batch.ends):
            found = np.sort(found)
            if by_right:
                pairs = [self._pairs(one) for one in done]
                own, stored = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
                if len(done) > 1:
                    order = np.argsort(own, kind="stable")
                    own, stored = own[order], stored[order]
                found, by = by_completion(found, own, stored)
        elif by_right and self.order != "none":
            by = np.full(found.size, batch.ends[0])  # or any other: all are of one group
        results.alone("left", self.payloads["left"], found, self.payloads["right"], by)

    def _pairs(self, one: _Completed) -> tuple[Array, Array]:
        """Positions in the stream of a batch's tuples, and those of their partners here, in order."""
        own, stored = self._finder.pairs_in_order(one.batch, one.pieces)
        numbers = one.batch.arrival.positions
        return own if numbers is None else numbers[own - one.batch.first], stored

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

    def newest(self, side: Side, most: int) -> pa.RecordBatch | None:
        """Some of the tuples that came last, at most so many; None: there are none."""
        payload, subwindows = self.payloads[side], self.chains[side].subwindows
        if not subwindows or not subwindows[-1].size:
            return None
        stop = subwindows[-1].base + subwindows[-1].size
        columns = payload.take(np.arange(stop - min(subwindows[-1].size, most), stop))
        return pa.RecordBatch.from_arrays(columns, schema=payload.schema)

    def measure(self, metrics: Metrics) -> None:
        """What is held now."""
        metrics.stored_left = self.chains["left"].stored
        metrics.stored_right = self.chains["right"].stored if len(self.shares) > 1 else 0
        metrics.subwindows_left = len(self.chains["left"].subwindows)
        metrics.subwindows_right = len(self.chains["right"].subwindows) if len(self.shares) > 1 else 0
        metrics.index_bytes = sum(self.chains[sides[0]].nbytes() for sides in self.shares)
        metrics.index_bytes += sum(self.kept[sides[0]].nbytes() for sides in self.shares if sides[0] in self.kept)
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
        for side, keys in self.kept.items():
            keys.check_invariants()
            assert keys.end == self.payloads[side].end, f"{keys.end} of {self.payloads[side].end} have keys"
        for sides in self.shares:
            self.chains[sides[0]].check_invariants()


def both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b


def _same(a: Array | None, b: Array | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))
