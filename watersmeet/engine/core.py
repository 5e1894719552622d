"""The join itself: batches of both sides in, pairs out.

For each side that arrived, left before right:

    keys -> probe the other side's chain -> check the residual -> store in the own chain -> collect

then the watermark moves on, tuples that never found a partner come out where the join type wants them, and expired
subwindows go. Storing does not touch what probing reads, so with several threads the two run beside each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import How, Results
from watersmeet.index import Index
from watersmeet.memory import room
from watersmeet.query.plan import JoinPlan, Residual, SidePlan
from watersmeet.query.windows import SIDES, BoundWindow, Side, other
from watersmeet.window.chain import Chain, Subwindow, Target, settle
from watersmeet.window.payload import Payload
from watersmeet.window.ticks import Span, span_of
from watersmeet.workers import SMALL, Workers

Array = np.ndarray

#: Into how many subwindows a window is cut where its index cannot forget.
_SUBWINDOWS = 2

#: A batch that spans many windows is processed in slices of at least this many rows.
_SLICE_ROWS = 4096


@dataclass(frozen=True)
class Arrival:
    """Tuples of one side that arrived, judged for lateness, with the ticks that their partners may have."""

    batch: pa.RecordBatch
    ticks: Array
    span: Span
    late: Array | None
    low: Array
    high: Array

    @property
    def rows(self) -> int:
        return self.batch.num_rows

    def slice(self, start: int, stop: int) -> Arrival:
        cut = slice(start, stop)
        late = None if self.late is None else self.late[cut]
        return Arrival(
            self.batch.slice(start, stop - start), self.ticks[cut], span_of(self.ticks[cut]), late,
            self.low[cut], self.high[cut],
        )  # fmt: skip


Piece = tuple[Subwindow, Array, Array]  # pairs: where the partners are, batch rows, rows there


@dataclass(frozen=True)
class Found:
    """What some of the probes of a batch found."""

    pieces: list[Piece]
    rows: int
    batch: pa.RecordBatch | None
    probe_seconds: float
    gather_seconds: float


@dataclass(frozen=True)
class Sizes:
    """How windows are cut into subwindows; None: as suits the index."""

    subwindows: int | None = None
    subwindow_rows: int | None = None
    least_rows: int = 1024

    def chain(self, index: Index, window: BoundWindow, side: Side, keeps_settled: bool) -> Chain:
        if self._whole(index):
            return Chain(index, None, None, 0, keeps_settled, window.counts, forgets=True)
        share = max(window.lifetime(side) // (self.subwindows or _SUBWINDOWS), 1)
        least = self.least_rows if self.subwindow_rows is None else min(self.least_rows, self.subwindow_rows)
        span, rows = (None, max(share, least)) if window.counts else (share, None)
        if self.subwindow_rows is not None:
            rows = self.subwindow_rows
        return Chain(index, span, rows, least, keeps_settled, window.counts)

    def text(self, index: Index) -> str:
        if self._whole(index):
            return "1 a window, which forgets its oldest rows"
        return f"{self.subwindows or _SUBWINDOWS} a window"

    def _whole(self, index: Index) -> bool:
        return self.subwindows is None and self.subwindow_rows is None and index.forgets


class JoinCore:
    """State and steps of a join whose schemas are known."""

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
    ):
        self.plan = plan
        self.window = window
        self.how = how
        self.index = index
        self._workers = workers
        self._metrics = metrics
        self._sides: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self.alone: dict[Side, bool] = {"left": how in ("left", "full", "anti"), "right": how in ("right", "full")}
        self._flagged: dict[Side, bool] = {"left": self.alone["left"] or how == "semi", "right": self.alone["right"]}
        self.payloads = {side: Payload(schemas[side], workers) for side in SIDES}
        self.chains = {side: sizes.chain(index, window, side, self._flagged[side]) for side in SIDES}

    def step(
        self,
        arrivals: dict[Side, Arrival],
        expired_below: dict[Side, int | None],
        results: Results,
        visitors: dict[Side, Arrival] | None = None,
    ) -> None:
        """Process arrivals, then let go of what is below `expired_below`.

        Visitors only probe: they are stored in another core. For inner joins.
        """
        for side in SIDES:
            if visitors and side in visitors:
                for piece in self._slices(visitors[side]):
                    self._visit(side, piece, results)
            if side in arrivals:
                keep = self._needed_from(side, [arrivals, visitors or {}], expired_below)
                for piece in self._slices(arrivals[side]):
                    self._arrive(side, piece, keep, results)
        begin = time.perf_counter()
        for side in SIDES:
            tick = expired_below[side]
            if tick is not None:
                if self.alone[side]:
                    self._come_out(side, tick, results)
                if self.chains[side].expire(tick):
                    self.payloads[side].retain(self.chains[side].positions())
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
        positions = self.chains[side].settle_below(tick)
        results.alone(side, self.payloads[side], positions, self.payloads[other(side)])

    def _needed_from(
        self, side: Side, probing: list[dict[Side, Arrival]], expired_below: dict[Side, int | None]
    ) -> int | None:
        """Tuples of this side below this tick need no place in the index: they expire before anything probes them."""
        tick = expired_below[side]
        for arrivals in probing:
            if tick is not None and side == "left" and "right" in arrivals and arrivals["right"].rows:
                tick = min(tick, int(arrivals["right"].low.min()))
        return tick

    def _slices(self, arrival: Arrival) -> list[Arrival]:
        """A batch that spans many windows, cut so that each slice meets few subwindows that are out of its reach."""
        n = arrival.rows
        if n < 2 * _SLICE_ROWS or self.window.counts:
            return [arrival]
        reach = max(int(arrival.high[0]) - int(arrival.low[0]), 1)
        if arrival.span.greatest - arrival.span.least <= 2 * reach:
            return [arrival]
        so_far = np.maximum.accumulate(arrival.ticks)
        cuts, start = [0], 0
        while n - start >= 2 * _SLICE_ROWS:
            edge = min(int(so_far[start]) + reach, np.iinfo(np.int64).max)
            beyond = int(np.searchsorted(so_far, edge))
            start = max(beyond, start + _SLICE_ROWS)
            if start < n:
                cuts.append(start)
        return [arrival.slice(a, b) for a, b in zip(cuts, [*cuts[1:], n], strict=True)]

    def _arrive(self, side: Side, arrival: Arrival, keep: int | None, results: Results) -> None:
        n = arrival.rows
        timed = self._metrics.timed
        plan = self._sides[side]
        chain = self.chains[side]
        targets = self.chains[other(side)].targets(arrival.low, arrival.high, arrival.span.in_order)
        with timed("keys"):
            keys = plan.keys(arrival.batch)
            probe = plan.probe(arrival.batch) if targets else None
            plan.forget()
            early = None if keep is None or arrival.span.least >= keep else arrival.ticks >= keep
            on_time = None if arrival.late is None else ~arrival.late
            key_live = _both(_both(keys.live, on_time), early)
        with timed("sort"):
            entries = self.index.entries(keys.equal, keys.ordered, key_live, n, self._workers)
            probes = None
            if probe is not None:
                live = _both(probe.live, on_time)
                same = live is key_live or (
                    live is not None and key_live is not None and np.array_equal(live, key_live)
                )
                probes = self.index.probes(
                    probe.equal, probe.lows, probe.highs, live, n, self._workers, entries if same else None
                )

        settled = None
        if self._flagged[side]:
            settled = np.zeros(n, np.uint8) if arrival.late is None else arrival.late.astype(np.uint8)
        first = self.payloads[side].end
        self.payloads[side].append(arrival.batch)

        def store() -> None:
            begin = time.perf_counter()
            chain.append(first, arrival.ticks, arrival.span, entries, settled)
            self._metrics.seconds["store"] += time.perf_counter() - begin

        found = self._probe(side, first, probes, targets, results, beside=store)
        if self._flagged["left"] or self._flagged["right"]:
            pieces = [piece for part in found for piece in part.pieces]
            with timed("gather"):
                self._settle(side, first, chain.subwindows[-1], pieces, results)

    def _visit(self, side: Side, arrival: Arrival, results: Results) -> None:
        """Probe and forget. Before the side's arrivals, so that what these store has positions without a gap."""
        assert self.how == "inner" and arrival.late is None
        targets = self.chains[other(side)].targets(arrival.low, arrival.high, arrival.span.in_order)
        if not targets:
            return
        plan = self._sides[side]
        with self._metrics.timed("keys"):
            probe = plan.probe(arrival.batch)
            plan.forget()
        with self._metrics.timed("sort"):
            probes = self.index.probes(
                probe.equal, probe.lows, probe.highs, probe.live, arrival.rows, self._workers
            )
        first = self.payloads[side].end
        self.payloads[side].append(arrival.batch)
        self._probe(side, first, probes, targets, results)

    def _probe(
        self, side: Side, first: int, probes, targets: list[Target], results: Results, beside: Callable | None = None
    ) -> list[Found]:
        """Find the pairs of all probes and add their results; `beside` is done at the same time."""
        parts = self._workers.parts(probes.size, SMALL) if probes is not None and probes.size else []
        work: list[Callable] = [partial(self._probe_part, side, first, probes, targets, results, p) for p in parts]
        if beside is not None:
            work.append(beside)
        found = self._workers.map(lambda job: job(), work)[: len(parts)]
        for part in found:
            self._metrics.seconds["probe"] += part.probe_seconds
            self._metrics.seconds["gather"] += part.gather_seconds
            results.add(part.rows, part.batch)
        return found

    def _probe_part(self, side: Side, first: int, probes, targets: list[Target], results: Results, part) -> Found:
        """Find the pairs of some of the probes, and make results of them at once, while they are in cache."""
        begin = time.perf_counter()
        start, stop = part
        residual = self._sides[side].residual
        if results.counts_only and self.how == "inner" and residual is None:
            count = sum(t.subwindow.structure.count(probes, start, stop, t.bounds) for t in targets)
            return Found([], count, None, time.perf_counter() - begin, 0.0)
        pieces: list[Piece] = []
        for target in targets:
            sub = target.subwindow
            for rows, partners in sub.structure.find(probes, start, stop, target.bounds):
                if residual is not None:
                    keep = self._keep(side, residual, first, sub, rows, partners)
                    rows, partners = rows[keep], partners[keep]
                if rows.size:
                    pieces.append((sub, rows, partners))
        middle = time.perf_counter()
        if self.how in ("semi", "anti"):
            return Found(pieces, 0, None, middle - begin, 0.0)
        total = sum(rows.size for _, rows, _ in pieces)
        batch = None
        if total and not results.counts_only:
            own, stored = room(total, np.int64), room(total, np.int64)
            at = 0
            for sub, rows, partners in pieces:
                np.add(rows, first, out=own[at : at + rows.size])
                np.add(partners, sub.base, out=stored[at : at + rows.size])
                at += rows.size
            batch = results.pairs(side, own, stored, self.payloads, _ALONE)
        return Found(pieces, total, batch, middle - begin, time.perf_counter() - middle)

    def _keep(
        self, side: Side, residual: Residual, first: int, sub: Subwindow, rows: Array, partners: Array
    ) -> Array:
        """Which of the candidates satisfy the residual."""
        columns = {}
        for one, names, at, base in (
            (side, residual.left_columns if side == "left" else residual.right_columns, rows, first),
            (other(side), residual.right_columns if side == "left" else residual.left_columns, partners, sub.base),
        ):
            payload = self.payloads[one]
            numbers = [payload.schema.get_field_index(name) for name in names]
            taken = payload.take(np.add(at, base, dtype=np.int64), numbers, _ALONE)
            columns[one] = dict(zip(names, taken, strict=True))
        return residual.keep(columns["left"], columns["right"], rows.size)

    def _settle(self, side: Side, first: int, newest: Subwindow, pieces: list[Piece], results: Results) -> None:
        """Note who has found a partner; in a semi join those who had none before come out."""
        fresh = []
        if self._flagged[other(side)]:
            for sub, _, partners in pieces:
                new = np.empty(partners.size, np.int32)
                n = settle(sub.settled, partners, new)
                if side == "right":
                    fresh.append(np.add(new[:n], sub.base, dtype=np.int64))
        if self._flagged[side]:
            offset = first - newest.base
            for _, rows, _ in pieces:
                new = np.empty(rows.size, np.int64)
                n = settle(newest.settled, rows.astype(np.int64) + offset, new)
                if side == "left":
                    fresh.append(new[:n] + newest.base)
        if self.how == "semi":
            positions = np.concatenate(fresh) if fresh else np.zeros(0, np.int64)
            results.alone("left", self.payloads["left"], positions, self.payloads["right"])

    def check_invariants(self) -> None:
        for side in SIDES:
            self.chains[side].check_invariants()


#: Parts of a probe run inside of worker threads already.
_ALONE = Workers(1)


def _both(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a & b
