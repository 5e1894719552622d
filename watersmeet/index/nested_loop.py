"""Nested loop: every probe looks at every row. The baseline, and the index of predicates without a key.

    equal   [ 3 , 1 , 3 ]      one entry per live row, in order of arrival
    ordered [ 20, 50, 70]
    rows    [ 0 , 2 , 3 ]      row 1 was not live

Whatever keys the predicate has are compared in the loop, so even here only true candidates are materialised.

Cost: insert O(1), probe O(rows). Memory: 4 bytes of row number per tuple, 8 per key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit

from watersmeet.index.base import (
    PORTION,
    Array,
    Emitter,
    Pairs,
    TickBounds,
    appended,
    bounds_mode,
    in_bounds,
    live_rows,
    no_ticks,
)
from watersmeet.workers import Workers

_NO_KEYS = np.zeros(0, np.int64)


@njit(nogil=True, cache=True)
def _scan(
    rows, equal, ordered, probe_rows, probe_equal, lows, highs, start, stop, mode, low, high, ticks, out_probe, out_row
):
    """Emit pairs of probes[start:stop]; returns (first probe not done, pairs)."""
    n = 0
    room = out_row.size
    by_equal = equal.size > 0
    bands = lows.shape[0]
    for i in range(start, stop):
        p = probe_rows[i]
        before = n
        for j in range(rows.size):
            if by_equal and equal[j] != probe_equal[i]:
                continue
            row = rows[j]
            if not in_bounds(mode, p, row, low, high, ticks):
                continue
            hit = bands == 0
            for k in range(bands):
                hit |= lows[k, i] <= ordered[j] <= highs[k, i]
            if hit:
                if n == room:
                    return i, before
                out_probe[n] = p
                out_row[n] = row
                n += 1
    return stop, n


@njit(nogil=True, cache=True)
def _scan_count(
    rows, equal, ordered, probe_rows, probe_equal, lows, highs, start, stop, mode, low, high, ticks
):
    n = 0
    by_equal = equal.size > 0
    bands = lows.shape[0]
    for i in range(start, stop):
        p = probe_rows[i]
        for j in range(rows.size):
            if by_equal and equal[j] != probe_equal[i]:
                continue
            if not in_bounds(mode, p, rows[j], low, high, ticks):
                continue
            hit = bands == 0
            for k in range(bands):
                hit |= lows[k, i] <= ordered[j] <= highs[k, i]
            n += hit
    return n


@dataclass(frozen=True)
class Entries:
    rows: Array
    equal: Array
    ordered: Array

    @property
    def size(self) -> int:
        return self.rows.size


@dataclass(frozen=True)
class Probes:
    rows: Array
    equal: Array
    lows: Array
    highs: Array

    @property
    def size(self) -> int:
        return self.rows.size


@dataclass(frozen=True)
class NestedLoop:
    """Compare every pair."""

    @property
    def name(self) -> str:
        return "nested_loop"

    def entries(
        self, equal: Array | None, ordered: Array | None, live: Array | None, n: int, workers: Workers
    ) -> Entries:
        rows = live_rows(live, n)
        return Entries(rows, _kept(equal, rows), _kept(ordered, rows))

    def probes(self, equal, lows, highs, live, n, workers: Workers, entries=None) -> Probes:
        rows = live_rows(live, n)
        bands = np.array([low[rows] for low in lows], np.int64).reshape(len(lows), rows.size)
        tops = np.array([high[rows] for high in highs], np.int64).reshape(len(highs), rows.size)
        return Probes(rows, _kept(equal, rows), bands, tops)

    def structure(self, like: NestedLoopStructure | None = None) -> NestedLoopStructure:
        return NestedLoopStructure()


class NestedLoopStructure:
    """Live rows in arrival order, as a few arrays that double in size."""

    def __init__(self) -> None:
        self._size = 0
        self._rows = np.empty(0, np.int32)
        self._equal = _NO_KEYS
        self._ordered = _NO_KEYS

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(1) per tuple."""
        size = self._size
        self._rows = appended(self._rows, size, entries.rows + np.int32(first_row))
        self._equal = appended(self._equal, size, entries.equal)
        self._ordered = appended(self._ordered, size, entries.ordered)
        self._size += entries.size

    def _filled(self) -> tuple[Array, Array, Array]:
        n = self._size
        return self._rows[:n], self._equal[:n], self._ordered[:n]

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(rows) per probe."""
        if not self._size:
            return
        b = bounds or no_ticks()
        out = Emitter(min(PORTION, 2 * (stop - start)))
        while start < stop:
            done, n = _scan(
                *self._filled(), probes.rows, probes.equal, probes.lows, probes.highs, start, stop,
                bounds_mode(bounds), b.low, b.high, b.ticks, out.batch_rows, out.rows,
            )  # fmt: skip
            if n:
                yield out.emitted(n)
            if done == start:
                out.grow()
            elif done < stop:
                out = Emitter(min(PORTION, 2 * out.rows.size))
            start = done

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`, without writing pairs."""
        if not self._size:
            return 0
        b = bounds or no_ticks()
        return _scan_count(
            *self._filled(), probes.rows, probes.equal, probes.lows, probes.highs, start, stop,
            bounds_mode(bounds), b.low, b.high, b.ticks,
        )  # fmt: skip

    def seal(self) -> None:
        self._rows, self._equal, self._ordered = (a.copy() for a in self._filled())

    def nbytes(self) -> int:
        return self._rows.nbytes + self._equal.nbytes + self._ordered.nbytes

    def check_invariants(self) -> None:
        rows, equal, ordered = self._filled()
        assert np.all(np.diff(rows) > 0), f"rows are not in order of arrival: {rows}"
        assert equal.size in (0, rows.size), f"{equal.size} equality keys for {rows.size} rows"
        assert ordered.size in (0, rows.size), f"{ordered.size} ordered keys for {rows.size} rows"


def _kept(keys: Array | None, rows: Array) -> Array:
    return _NO_KEYS if keys is None else keys[rows]

