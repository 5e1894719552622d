"""Finding the pairs of a batch: probe, check what the keys do not tell, make results."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from operator import call
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.order import Order, in_order, needs_sorting
from watersmeet.engine.results import How, Results
from watersmeet.memory import room
from watersmeet.query.plan import JoinPlan, Residual, SidePlan
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Subwindow, Target
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Piece = tuple[Subwindow, Array, Array]  # pairs: where the partners are, batch rows, rows there

#: Probes are taken in parts with about this many pairs, so that what is made of them is still in cache when it is used.
PAIRS = 1 << 16
_LEAST_PROBES = 1 << 10


@njit(nogil=True, cache=True)
def positions(rows, first, partners, base, at, own, stored):
    """Rows of pairs as positions, which outgrow their 32 bits, from place `at` on."""
    for i in range(rows.size):
        own[at + i] = np.int64(rows[i]) + first
        stored[at + i] = np.int64(partners[i]) + base


class Ready(NamedTuple):
    """A batch of one side, with what storing and probing need."""

    side: Side
    arrival: Arrival
    payload: Payload  # in which its tuples are
    first: int  # position of its first tuple there
    live: Array | None  # rows that go into the index; None: all
    entries: Any  # None: it is not stored
    probes: Any  # None: nothing to look for
    targets: list[Target]

    @property
    def ends(self) -> tuple[int, int]:
        """The positions of its first and its last tuple in the stream."""
        positions = self.arrival.positions
        if positions is None:
            return self.first, self.first + self.arrival.rows - 1
        return int(positions[0]), int(positions[-1])


class _Found(NamedTuple):
    """What some of the probes of a batch found."""

    pieces: list[Piece]
    pairs: int
    rows: int  # results
    batches: list[pa.RecordBatch]
    probe_seconds: float
    gather_seconds: float


class Finder:
    def __init__(
        self, plan: JoinPlan, payloads: dict[Side, Payload], how: How, workers: Workers, metrics: Metrics, order: Order
    ):
        self._sides: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self._stored = payloads
        self._how = how
        self._workers = workers
        self._metrics = metrics
        self._order = order
        self._partners = 16.0  # pairs a probe, in the last batch; at first a guess

    def find(self, batch: Ready, results: Results, beside: Callable | None = None) -> list[Piece]:
        """Find the pairs of all probes and add their results; `beside` is done at the same time."""
        size = 0 if batch.probes is None else batch.probes.size
        most = max(int(PAIRS / max(self._partners, 1.0)), _LEAST_PROBES)
        parts = self._workers.parts(size, SMALL, most=most) if size else []
        sorts = needs_sorting(self._order, *batch.ends)
        work: list[Callable] = [] if beside is None else [beside]  # first: it is long, and others wait for the last
        work += [partial(self._part, batch, results, sorts, *part) for part in parts]
        workers = self._workers if size >= SMALL else ALONE  # to wait for another thread would take longer
        pieces: list[Piece] = []
        pairs = 0
        for part in workers.each(call, work):
            if part is not None:  # `beside` gives nothing
                self._metrics.seconds["probe"] += part.probe_seconds
                self._metrics.seconds["gather"] += part.gather_seconds
                results.add(part.rows, part.batches)
                pieces += part.pieces
                pairs += part.pairs
        if size:
            self._partners = pairs / size
        if sorts and not results.counts_only and self._how not in ("semi", "anti"):
            begin = time.perf_counter()
            self._add_in_order(batch, pieces, results)
            self._metrics.took("gather", begin)
        return pieces

    def take(self, batch: Ready, pieces: list[Piece], results: Results) -> list[Piece]:
        """Check and add pairs that were found elsewhere, in order of arrival; gives those that are any."""
        sorts = self._order == "inner"

        def made(piece: Piece) -> _Found:
            begin = time.perf_counter()
            return self._made(batch, results, sorts, self._checked(batch, piece), begin)

        kept: list[Piece] = []
        for part in self._workers.each(made, pieces):
            self._metrics.seconds["probe"] += part.probe_seconds
            self._metrics.seconds["gather"] += part.gather_seconds
            results.add(part.rows, part.batches)
            kept += part.pieces
        if sorts and not results.counts_only and self._how not in ("semi", "anti"):
            begin = time.perf_counter()
            self._add_in_order(batch, kept, results)
            self._metrics.took("gather", begin)
        return kept

    def _checked(self, batch: Ready, piece: Piece) -> list[Piece]:
        """What of a piece satisfies the residual, if anything."""
        residual = self._sides[batch.side].residual
        sub, rows, partners = piece
        if residual is not None:
            keep = self._keep(batch, residual, sub, rows, partners)
            rows, partners = rows[keep], partners[keep]
        return [(sub, rows, partners)] if rows.size else []

    def pairs_in_order(self, batch: Ready, pieces: list[Piece]) -> tuple[Array, Array]:
        """Positions of a batch's tuples and of their partners."""
        found = [(sub.base, rows, partners) for sub, rows, partners in pieces]
        return in_order(self._order, found, batch.first, batch.arrival.rows)

    def _add_in_order(self, batch: Ready, pieces: list[Piece], results: Results) -> None:
        own, stored = self.pairs_in_order(batch, pieces)

        def make(start: int) -> list[pa.RecordBatch]:
            part = slice(start, start + PAIRS)
            return results.pairs(batch.side, own[part], stored[part], self._payloads(batch), ALONE)

        for made in self._workers.map(make, range(0, own.size, PAIRS)):
            results.add(0, made)

    def _part(self, batch: Ready, results: Results, sorts: bool, start: int, stop: int) -> _Found:
        """Find the pairs of some of the probes, and make results of them at once, while they are in cache; unless they
        are to be sorted first."""
        begin = time.perf_counter()
        residual = self._sides[batch.side].residual
        probes = batch.probes
        if results.counts_only and self._how == "inner" and residual is None:
            count = sum(t.subwindow.structure.count(probes, start, stop, t.bounds) for t in batch.targets)
            return _Found([], 0, count, [], time.perf_counter() - begin, 0.0)
        pieces: list[Piece] = []
        for target in batch.targets:
            for found in target.subwindow.structure.find(probes, start, stop, target.bounds):
                pieces += self._checked(batch, (target.subwindow, *found))
        return self._made(batch, results, sorts, pieces, begin)

    def _made(self, batch: Ready, results: Results, sorts: bool, pieces: list[Piece], begin: float) -> _Found:
        """Results of pairs, unless they are to be sorted first; they were looked for since `begin`."""
        middle = time.perf_counter()
        total = sum([rows.size for _, rows, _ in pieces])
        if self._how in ("semi", "anti"):
            return _Found(pieces, total, 0, [], middle - begin, 0.0)
        made: list[pa.RecordBatch] = []
        if total and not results.counts_only and not sorts:
            own, stored = room(total, np.int64), room(total, np.int64)
            at = 0
            for sub, rows, partners in pieces:
                positions(rows, batch.first, partners, sub.base, at, own, stored)
                at += rows.size
            made = results.pairs(batch.side, own, stored, self._payloads(batch), ALONE)
        return _Found(pieces, total, total, made, middle - begin, time.perf_counter() - middle)

    def _payloads(self, batch: Ready) -> dict[Side, Payload]:
        """Where the tuples of a batch and their partners are."""
        return {batch.side: batch.payload, other(batch.side): self._stored[other(batch.side)]}

    def _keep(self, batch: Ready, residual: Residual, sub: Subwindow, rows: Array, partners: Array) -> Array:
        """Which of the candidates satisfy the residual."""

        def check(start: int, stop: int) -> Array:
            return self._check(batch, residual, sub, rows[start:stop], partners[start:stop])

        kept = in_parts(check, 0, rows.size)
        return kept[0] if len(kept) == 1 else np.concatenate(kept)

    def _check(self, batch: Ready, residual: Residual, sub: Subwindow, rows: Array, partners: Array) -> Array:
        payloads = self._payloads(batch)
        positions = {batch.side: rows + np.int64(batch.first), other(batch.side): partners + np.int64(sub.base)}
        names: dict[Side, tuple[str, ...]] = {"left": residual.left_columns, "right": residual.right_columns}
        columns = {}
        for side in SIDES:
            payload = payloads[side]
            numbers = [payload.schema.get_field_index(name) for name in names[side]]
            columns[side] = dict(zip(names[side], payload.take(positions[side], numbers, ALONE), strict=True))
        return residual.keep(columns["left"], columns["right"], rows.size)
