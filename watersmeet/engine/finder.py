"""Finding the pairs of a batch: probe, check what the keys do not tell, make results."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import How, Results
from watersmeet.memory import room
from watersmeet.query.plan import JoinPlan, Residual, SidePlan
from watersmeet.query.windows import Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Subwindow, Target
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Piece = tuple[Subwindow, Array, Array]  # pairs: where the partners are, batch rows, rows there

#: Probes are taken in parts with about this many pairs, so that what is made of them is still in cache when it is used.
PAIRS = 1 << 16
_LEAST_PROBES = 1 << 10


@dataclass(frozen=True)
class Ready:
    """A batch of one side that is in the payload, with what storing and probing need."""

    side: Side
    arrival: Arrival
    first: int  # position of its first tuple
    live: Array | None  # rows that go into the index; None: all
    entries: Any  # None: it is not stored
    probes: Any  # None: no tuple of the other side has come
    targets: list[Target]


@dataclass(frozen=True)
class _Found:
    """What some of the probes of a batch found."""

    pieces: list[Piece]
    pairs: int
    rows: int  # results
    batches: list[pa.RecordBatch]
    probe_seconds: float
    gather_seconds: float


class Finder:
    def __init__(
        self, plan: JoinPlan, payloads: dict[Side, Payload], how: How, workers: Workers, metrics: Metrics
    ):
        self._sides: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self._payloads = payloads
        self._how = how
        self._workers = workers
        self._metrics = metrics
        self._partners = 16.0  # pairs a probe, in the last batch; at first a guess

    def find(self, batch: Ready, results: Results, beside: Callable | None = None) -> list[Piece]:
        """Find the pairs of all probes and add their results; `beside` is done at the same time."""
        size = 0 if batch.probes is None else batch.probes.size
        most = max(int(PAIRS / max(self._partners, 1.0)), _LEAST_PROBES)
        parts = self._workers.parts(size, SMALL, most=most) if size else []
        work: list[Callable] = [partial(self._part, batch, results, *part) for part in parts]
        if beside is not None:
            work.append(beside)
        workers = self._workers if size >= SMALL else ALONE  # to wait for another thread would take longer
        pieces: list[Piece] = []
        pairs = 0
        for part in workers.each(lambda job: job(), work):
            if part is not None:  # `beside` gives nothing
                self._metrics.seconds["probe"] += part.probe_seconds
                self._metrics.seconds["gather"] += part.gather_seconds
                results.add(part.rows, part.batches)
                pieces += part.pieces
                pairs += part.pairs
        if size:
            self._partners = pairs / size
        return pieces

    def _part(self, batch: Ready, results: Results, start: int, stop: int) -> _Found:
        """Find the pairs of some of the probes, and make results of them at once, while they are in cache."""
        begin = time.perf_counter()
        residual = self._sides[batch.side].residual
        probes = batch.probes
        if results.counts_only and self._how == "inner" and residual is None:
            count = sum(t.subwindow.structure.count(probes, start, stop, t.bounds) for t in batch.targets)
            return _Found([], 0, count, [], time.perf_counter() - begin, 0.0)
        pieces: list[Piece] = []
        for target in batch.targets:
            sub = target.subwindow
            for rows, partners in sub.structure.find(probes, start, stop, target.bounds):
                if residual is not None:
                    keep = self._keep(batch.side, residual, batch.first, sub, rows, partners)
                    rows, partners = rows[keep], partners[keep]
                if rows.size:
                    pieces.append((sub, rows, partners))
        middle = time.perf_counter()
        total = sum(rows.size for _, rows, _ in pieces)
        if self._how in ("semi", "anti"):
            return _Found(pieces, total, 0, [], middle - begin, 0.0)
        made: list[pa.RecordBatch] = []
        if total and not results.counts_only:
            own, stored = room(total, np.int64), room(total, np.int64)
            at = 0
            for sub, rows, partners in pieces:
                np.add(rows, np.int64(batch.first), out=own[at : at + rows.size])  # positions outgrow the rows' 32 bits
                np.add(partners, np.int64(sub.base), out=stored[at : at + rows.size])
                at += rows.size
            made = results.pairs(batch.side, own, stored, self._payloads, ALONE)
        return _Found(pieces, total, total, made, middle - begin, time.perf_counter() - middle)

    def _keep(
        self, side: Side, residual: Residual, first: int, sub: Subwindow, rows: Array, partners: Array
    ) -> Array:
        """Which of the candidates satisfy the residual."""

        def check(start: int, stop: int) -> Array:
            return self._check(side, residual, first, sub, rows[start:stop], partners[start:stop])

        kept = in_parts(check, 0, rows.size)
        return kept[0] if len(kept) == 1 else np.concatenate(kept)

    def _check(
        self, side: Side, residual: Residual, first: int, sub: Subwindow, rows: Array, partners: Array
    ) -> Array:
        columns = {}
        for one, names, at, base in (
            (side, residual.left_columns if side == "left" else residual.right_columns, rows, first),
            (other(side), residual.right_columns if side == "left" else residual.left_columns, partners, sub.base),
        ):
            payload = self._payloads[one]
            numbers = [payload.schema.get_field_index(name) for name in names]
            taken = payload.take(at + np.int64(base), numbers, ALONE)
            columns[one] = dict(zip(names, taken, strict=True))
        return residual.keep(columns["left"], columns["right"], rows.size)
