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
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from numba import njit

from watersmeet.index.base import (
    PORTION,
    Array,
    Emitter,
    Needs,
    Pairs,
    TickBounds,
    appended,
    bounds_mode,
    bounds_of,
    in_bounds,
    live_rows,
    no_ticks,
)
from watersmeet.workers import ALONE, Workers

_NO_KEYS = np.zeros(0, np.int64)
_NO_ROWS = np.zeros(0, np.int32)
_BLOCK = 256


@njit(inline="always")
def _hit(by_equal, bands, mode, equal, ordered, rows, j, e, i, least, most, lows, highs, first, last, ticks):
    """1 if row j is a partner of probe i, else 0; no branch on data, so that loops over j become vector code."""
    hit = in_bounds(mode, rows[j], first, last, ticks)
    if by_equal:
        hit &= np.int64(equal[j] == e)
    if bands == 1:
        hit &= np.int64(least <= ordered[j]) & np.int64(ordered[j] <= most)
    elif bands > 1:
        inside = np.int64(0)
        for k in range(lows.shape[0]):
            inside |= np.int64(lows[k, i] <= ordered[j]) & np.int64(ordered[j] <= highs[k, i])
        hit &= inside
    return hit


@cache
def _scan_kernel(by_equal: bool, bands: int, mode: int):
    """The loop for one kind of predicate."""

    @njit(nogil=True, cache=True)
    def scan(entries, probes, i, stop, j, bounds, emits, out_probe, out_row):
        """From probe i and row j on; returns (probe, row, pairs) where it stopped, for want of room or at the end.

        If it `emits` it writes pairs, else it only counts. A block of rows is counted first, and gone through one by
        one only if there is anything in it.
        """
        rows, equal, ordered = entries.rows, entries.equal, entries.ordered
        probe_rows, probe_equal, lows, highs = probes.rows, probes.equal, probes.lows, probes.highs
        low, high, ticks = bounds.low, bounds.high, bounds.ticks
        n = np.int64(0)
        room = out_row.size
        size = rows.size
        e = np.int64(0)
        least = np.int64(0)
        most = np.int64(0)
        while i < stop:
            p = probe_rows[i]
            first, last = bounds_of(mode, p, low, high)
            if bands > 0:
                least = lows[0, i]
                most = highs[0, i]
            if by_equal:
                e = probe_equal[i]
            while j < size:
                end = min(j + _BLOCK, size)
                hits = np.int64(0)
                for k in range(j, end):
                    hits += _hit(
                        by_equal, bands, mode, equal, ordered, rows, k, e, i, least, most, lows, highs,
                        first, last, ticks,
                    )  # fmt: skip
                if emits and hits > 0:
                    if n + hits > room:
                        return i, j, n
                    for k in range(j, end):
                        if _hit(
                            by_equal, bands, mode, equal, ordered, rows, k, e, i, least, most, lows, highs,
                            first, last, ticks,
                        ):  # fmt: skip
                            out_probe[n] = p
                            out_row[n] = rows[k]
                            n += 1
                elif not emits:
                    n += hits
                j = end
            j = 0
            i += 1
        return i, j, n

    return scan


class Entries(NamedTuple):
    rows: Array
    equal: Array
    ordered: Array

    @property
    def size(self) -> int:
        return self.rows.size


class Probes(NamedTuple):
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

    name: ClassVar[str] = "nested_loop"
    needs: ClassVar[Needs] = "nothing"
    composite: ClassVar[bool] = True
    forgets: ClassVar[bool] = False

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

    def structure(self, like: NestedLoopStructure | None = None, workers: Workers = ALONE) -> NestedLoopStructure:
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

    def _filled(self) -> Entries:
        n = self._size
        return Entries(self._rows[:n], self._equal[:n], self._ordered[:n])

    def _kernel(self, bounds: TickBounds | None, probes: Probes):
        return _scan_kernel(self._equal.size > 0, min(probes.lows.shape[0], 2), bounds_mode(bounds))

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(rows) per probe."""
        if not self._size:
            return
        scan, entries, of_ticks = self._kernel(bounds, probes), self._filled(), bounds or no_ticks()
        row = 0
        room = 2 * (stop - start) + _BLOCK
        while start < stop:
            out = Emitter(min(PORTION, room))
            start, row, n = scan(entries, probes, start, stop, row, of_ticks, True, out.batch_rows, out.rows)
            if n:
                yield out.emitted(n)
            room *= 2

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`, without writing pairs."""
        if not self._size:
            return 0
        scan = self._kernel(bounds, probes)
        of_ticks = bounds or no_ticks()
        return scan(self._filled(), probes, start, stop, 0, of_ticks, False, _NO_ROWS, _NO_ROWS)[2]

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

