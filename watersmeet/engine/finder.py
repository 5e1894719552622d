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
from watersmeet.index.base import mark
from watersmeet.memory import room
from watersmeet.query.plan import JoinPlan, Residual, SidePlan
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Subwindow, Target, settle
from watersmeet.window.kept import KeptKeys
from watersmeet.window.payload import Payload
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray
Piece = tuple[Subwindow, Array, Array]  # pairs: where the partners are, batch rows, rows there

#: Probes are taken in parts with about this many pairs, so that what is made of them is still in cache when it is used.
PAIRS = 1 << 16
_LEAST_PROBES = 1 << 10

#: Pairs of some probes that are kept, where results are only counted, to know who is in them; of more, only that.
KEPT = 1 << 18


@njit(nogil=True, cache=True)
def positions(rows, first, partners, base, at, own, stored):
    """Rows of pairs as positions, which outgrow their 32 bits, from place `at` on."""
    for i in range(rows.size):
        own[at + i] = np.int64(rows[i]) + first
        stored[at + i] = np.int64(partners[i]) + base


@njit(nogil=True, cache=True)
def _compact(keep, rows, partners, out_rows, out_partners):
    """Those pairs that are kept, one after the other; gives how many. Which ones follows no pattern: no branches."""
    n = 0
    for i in range(keep.size):
        out_rows[n] = rows[i]
        out_partners[n] = partners[i]
        n += keep[i]
    return n


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
    kept: list[Array]  # keys that are stored for the checks of the other side; none: there are no such checks
    limits: list[Array]  # what its own checks compare with

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


class Met:
    """Who has found partners among pairs that are not kept: tuples of a batch, and tuples of subwindows.

    O(batch and subwindows) of memory, whatever the number of pairs.
    """

    def __init__(self, rows: int):
        self._rows = np.zeros(rows, np.uint8)
        self._partners: dict[int, tuple[Subwindow, Array]] = {}

    def _of(self, sub: Subwindow) -> Array:
        if id(sub) not in self._partners:
            self._partners[id(sub)] = sub, np.zeros(sub.size, np.uint8)
        return self._partners[id(sub)][1]

    def add(self, piece: Piece) -> None:
        """Pairs, or what another gave. O(its rows)."""
        sub, rows, partners = piece
        new = room(1 + max(rows.size, partners.size), np.int32)
        settle(self._rows, rows, np.uint8(1), new)
        settle(self._of(sub), partners, np.uint8(1), new)

    def find(self, target: Target, probes: Any, start: int, stop: int) -> int:
        """All who are in pairs of these probes; gives how many pairs these are. O(subwindow), beside the index."""
        sub, bounds = target
        return mark(sub.structure, probes, start, stop, bounds, self._rows, self._of(sub))

    def pieces(self) -> list[Piece]:
        """Each of them once. These are no pairs."""
        rows = np.flatnonzero(self._rows).astype(np.int32)
        found = []
        for sub, flags in self._partners.values():
            found.append((sub, rows, np.flatnonzero(flags).astype(np.int32)))
            rows = rows[:0]  # once is enough
        return found


class Finder:
    """kept: by side, the keys that the other side's checks compare, where there are any."""

    def __init__(
        self,
        plan: JoinPlan,
        payloads: dict[Side, Payload],
        kept: dict[Side, KeptKeys],
        how: How,
        workers: Workers,
        metrics: Metrics,
        order: Order,
    ):
        self._sides: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self._stored = payloads
        self._kept = kept
        self._how = how
        self._workers = workers
        self._metrics = metrics
        self._order = order
        self._partners = 16.0  # pairs a probe, in the last batch; at first a guess

    def find(self, batch: Ready, results: Results, beside: Callable | None = None) -> list[Piece]:
        """Find the pairs of all probes and add their results; `beside` is done at the same time.

        Gives the pairs; or, where results are only counted, who has found partners (`Met`), if the join asks for it.
        """
        if getattr(batch.probes, "on_device", False):
            return self._find_on_device(batch, results, beside)
        size = 0 if batch.probes is None else batch.probes.size
        sorts = needs_sorting(self._order, *batch.ends)
        most = max(int(PAIRS / max(self._partners, 1.0)), _LEAST_PROBES)
        find: Callable[..., _Found] = partial(self._part, batch, results, sorts)
        knows = results.counts_only and self._how != "inner"  # who is in pairs, of which only the number is a result
        if knows and self._sides[batch.side].residual is None and self._partners * size > KEPT:
            find, most = partial(self._marked, batch), size
        parts = self._workers.parts(size, SMALL, most=most) if size else []
        work: list[Callable] = [] if beside is None else [beside]  # first: it is long, and others wait for the last
        work += [partial(find, *part) for part in parts]
        workers = self._workers if size >= SMALL else ALONE  # to wait for another thread would take longer
        pieces: list[Piece] = []
        pairs = 0
        met = Met(batch.arrival.rows) if knows and len(parts) > 1 else None
        for part in workers.each(call, work):
            if part is None:  # `beside` gives nothing
                continue
            self._add(part, results)
            pairs += part.pairs
            if met is None:
                pieces += part.pieces
            else:
                for piece in part.pieces:
                    met.add(piece)
        if size:
            self._partners = pairs / size
        self._add_sorted(batch, pieces, results, sorts)
        return pieces if met is None else met.pieces()

    def _find_on_device(self, batch: Ready, results: Results, beside: Callable | None) -> list[Piece]:
        """As `find`: all probes are one question there, and what comes back is cut for the threads here."""
        sorts = needs_sorting(self._order, *batch.ends)
        large = batch.probes.size >= SMALL
        stored = (self._workers if large else ALONE).begun(beside) if beside is not None else None
        pieces: list[Piece] = []
        plain = self._how == "inner" and self._sides[batch.side].residual is None
        if plain and results.counts_only:
            self._add(self._part(batch, results, sorts, 0, batch.probes.size), results)
        elif plain and results.positions_only and not sorts:
            self._positions_of_device(batch, results)
        else:
            begin = time.perf_counter()
            for target in batch.targets:
                for rows, partners in target.subwindow.structure.find(
                    batch.probes, 0, batch.probes.size, target.bounds
                ):
                    begin = self._metrics.took("probe", begin)
                    cuts = [slice(at, at + PAIRS) for at in range(0, rows.size, PAIRS)]
                    cut = [(target.subwindow, rows[part], partners[part]) for part in cuts]
                    pieces += self._checked_and_added(batch, cut, results, sorts)
                    begin = time.perf_counter()
            self._metrics.took("probe", begin)
            self._add_sorted(batch, pieces, results, sorts)
        if stored is not None:
            stored()
        return pieces

    def _positions_of_device(self, batch: Ready, results: Results) -> None:
        """Pairs of positions are made there, and are the results as they come back."""
        begin = time.perf_counter()
        for sub, bounds in batch.targets:
            structure: Any = sub.structure  # one of device/, which takes positions
            ends = batch.first, sub.base
            for own, stored in structure.find(batch.probes, 0, batch.probes.size, bounds, ends):
                begin = self._metrics.took("probe", begin)
                results.add(own.size, results.pairs(batch.side, own, stored, self._payloads(batch), ALONE))
                begin = self._metrics.took("gather", begin)
        self._metrics.took("probe", begin)

    def take(self, batch: Ready, pieces: list[Piece], results: Results) -> list[Piece]:
        """Check and add pairs that were found elsewhere, in order of arrival; gives those that are any."""
        sorts = self._order == "inner"
        kept = self._checked_and_added(batch, pieces, results, sorts)
        self._add_sorted(batch, kept, results, sorts)
        return kept

    def _checked_and_added(self, batch: Ready, pieces: list[Piece], results: Results, sorts: bool) -> list[Piece]:
        """Check pairs, and add them unless they are to be sorted first; gives those that are any."""

        def made(piece: Piece) -> _Found:
            begin = time.perf_counter()
            return self._made(batch, results, sorts, self._checked(batch, piece), begin)

        kept: list[Piece] = []
        for part in self._workers.each(made, pieces):
            self._add(part, results)
            kept += part.pieces
        return kept

    def _add(self, part: _Found, results: Results) -> None:
        self._metrics.seconds["probe"] += part.probe_seconds
        self._metrics.seconds["gather"] += part.gather_seconds
        results.add(part.rows, part.batches)

    def _add_sorted(self, batch: Ready, pieces: list[Piece], results: Results, sorts: bool) -> None:
        """Pairs that were to be sorted first."""
        if sorts and not results.counts_only and self._how not in ("semi", "anti"):
            begin = time.perf_counter()
            self._add_in_order(batch, pieces, results)
            self._metrics.took("gather", begin)

    def _checked(self, batch: Ready, piece: Piece) -> list[Piece]:
        """What of a piece satisfies what the index does not tell, if anything."""
        plan, kept = self._sides[batch.side], self._kept.get(other(batch.side))
        sub, rows, partners = piece
        residual = plan.residual
        if kept is not None and plan.checks is not None:
            residual = plan.rest
            out = room(rows.size, np.int32), room(rows.size, np.int32)
            for check, limits in zip(plan.checks.checks, batch.limits, strict=True):
                rows, partners = kept.within(check.place, limits, sub.base, rows, partners, out)
        if residual is not None and rows.size:
            keep = self._keep(batch, residual, sub, rows, partners)
            out = room(rows.size, np.int32), room(rows.size, np.int32)
            n = _compact(np.ascontiguousarray(keep), rows, partners, *out)
            rows, partners = out[0][:n], out[1][:n]
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
        if results.counts_only:
            return self._counted(batch, start, stop, begin)
        pieces: list[Piece] = []
        for target in batch.targets:
            for found in target.subwindow.structure.find(probes, start, stop, target.bounds):
                pieces += self._checked(batch, (target.subwindow, *found))
        return self._made(batch, results, sorts, pieces, begin)

    def _counted(self, batch: Ready, start: int, stop: int, begin: float) -> _Found:
        """The same, where pairs must be made to be checked, or to know who is in them: portion by portion, none kept
        where they are many."""
        pieces: list[Piece] = []
        met: Met | None = None
        total = 0
        for target in batch.targets:
            for found in target.subwindow.structure.find(batch.probes, start, stop, target.bounds):
                checked = self._checked(batch, (target.subwindow, *found))
                total += sum(rows.size for _, rows, _ in checked)
                if self._how == "inner":
                    continue
                pieces += checked
                if total > KEPT:
                    met = met or Met(batch.arrival.rows)
                    for piece in pieces:
                        met.add(piece)
                    pieces = []
        rows = 0 if self._how in ("semi", "anti") else total
        kept = pieces if met is None else met.pieces()
        return _Found(kept, total, rows, [], time.perf_counter() - begin, 0.0)

    def _marked(self, batch: Ready, start: int, stop: int) -> _Found:
        """The same, where many pairs are to be expected and none is to be checked: none is made."""
        begin = time.perf_counter()
        met = Met(batch.arrival.rows)
        total = sum(met.find(target, batch.probes, start, stop) for target in batch.targets)
        rows = 0 if self._how in ("semi", "anti") else total
        return _Found(met.pieces(), total, rows, [], time.perf_counter() - begin, 0.0)

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
