"""Cells: for bands. Keys are cut into cells, several times as wide as the band; a cell belongs to a core.

    band 10 wide, cells of 80          cell 0          cell 1          cell 2
    keys                            0 ---------- 80 ---------- 160 ---------- 240
    partners of a tuple                   [45..55]  -> cell 0: one core
                                              [75..85]  -> cells 0 and 1: at most two

A tuple is at home in the core of its own key's cell, and probes the cores of all cells that its range touches. The
range is computed for each tuple, so a range wider than was thought costs copies, never results.

Cells are counted in the key's own unit: whole keys by division; doubles, whose keys are their bits, by their value.

Cost: 1 + 1/8 copies a tuple at `CELL_BANDS` = 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.query.plan import Probe, SidePlan, Tuples
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.routing.base import Array, Places, at_home, core_of, hashed

#: How many times as wide as the band a cell is: more means fewer copies, fewer means that keys which crowd together
#: are spread better.
CELL_BANDS = 8

_FAR = 1 << 62
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class CellSize:
    """The width of cells over the keys of one side."""

    width: float  # whole for whole keys
    doubles: bool

    def cells(self, keys: Array) -> Array:
        """Monotone in the keys. O(n)."""
        if not self.doubles:
            return np.floor_divide(keys, np.int64(self.width))
        with np.errstate(all="ignore"):
            numbers = np.floor(doubles(keys) / self.width)
        inside = np.clip(np.nan_to_num(numbers, nan=0.0, posinf=_FAR, neginf=-_FAR), -_FAR, _FAR).astype(np.int64)
        return np.where(np.isnan(numbers), _FAR + 1, inside)  # NaN is the greatest key


def doubles(keys: Array) -> Array:
    """The doubles that have these keys; the ends of int64 are infinitely far."""
    bits = np.where(keys >= 0, keys, keys ^ np.int64(_GREATEST))
    values = bits.view(np.float64)
    return np.where(keys == _GREATEST, np.nan, np.where(keys == _LEAST, -np.inf, values))


@dataclass(frozen=True)
class Cells:
    cores: int
    sizes: tuple[CellSize | None, CellSize | None]  # of left keys and of right keys; None: nothing is looked for there
    anchor: Side | None = None
    name = "cells"
    by_turns = False

    @property
    def visits(self) -> bool:
        return self.anchor is None

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        own = self.sizes[SIDES.index(side)]
        home = hashed(ticks, self.cores)  # for tuples that nobody looks for
        if own is not None and self.anchor in (None, side):
            keys = tuples.keys()
            assert keys.ordered is not None
            found = hashed(own.cells(keys.ordered), self.cores)
            home = found if keys.live is None else np.where(keys.live, found, home)
        if side == self.anchor:
            return at_home(home)
        probe = tuples.probe()
        size = self.sizes[SIDES.index(other(side))]
        assert size is not None
        rows, cores = self._probed(probe, size)
        if self.anchor is None:
            away = cores != home[rows]
            return Places(home, rows[away], cores[away])
        # The first core in which it is needed is its home.
        first = np.ones(rows.size, bool)
        first[1:] = rows[1:] != rows[:-1]
        home[rows[first]] = cores[first]
        return Places(home, rows[~first], cores[~first])

    def _probed(self, probe: Probe, size: CellSize) -> tuple[Array, Array]:
        """(row, core) of all cores that the ranges touch, each once, by row."""
        n = probe.lows[0].size
        live = np.ones(n, bool) if probe.live is None else probe.live
        firsts, lasts = np.empty((len(probe.lows), n), np.int64), np.empty((len(probe.lows), n), np.int64)
        some = np.empty((len(probe.lows), n), bool)
        for i, (low, high) in enumerate(zip(probe.lows, probe.highs, strict=True)):
            firsts[i], lasts[i], some[i] = size.cells(low), size.cells(high), live & (low <= high)
        rows, cores = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        found = _touched(firsts, lasts, some, np.uint64(self.cores), rows, cores)
        if found > rows.size:
            rows, cores = np.empty(found, np.int64), np.empty(found, np.int64)
            _touched(firsts, lasts, some, np.uint64(self.cores), rows, cores)
        return rows[:found], cores[:found]


@njit(nogil=True, cache=True)
def _touched(firsts, lasts, some, cores, out_rows, out_cores):
    """Write (row, core) for the cells of all ranges; returns how many there are, also where there is no room."""
    bands, n = firsts.shape
    seen = np.full(cores, -1, np.int64)  # the last row that has been sent to each core
    found = 0
    for row in range(n):
        for band in range(bands):
            if not some[band, row]:
                continue
            first = firsts[band, row]
            width = np.uint64(lasts[band, row]) - np.uint64(first)
            far = width >= np.uint64(4) * cores  # so many cells that all cores have one, as good as certainly
            steps = np.int64(cores) if far else np.int64(width) + 1
            for step in range(steps):
                core = np.int64(step) if far else core_of(first + step, cores)
                if seen[core] != row:
                    seen[core] = row
                    if found < out_rows.size:
                        out_rows[found], out_cores[found] = row, core
                    found += 1
    return found


def cell_size(plan: SidePlan, batch: pa.RecordBatch, as_doubles: bool) -> CellSize | None:
    """The size of cells for the ranges that these tuples look for; None where they differ in width."""
    probe = plan.of(batch).probe()
    if not probe.lows:
        return None
    live = np.ones(batch.num_rows, bool) if probe.live is None else probe.live
    widths = []
    for low, high in zip(probe.lows, probe.highs, strict=True):
        for a, b in zip(low[live], high[live], strict=True):
            if a == _LEAST or b == _GREATEST:
                return None
            if as_doubles:
                x, y = doubles(np.array([a, b]))
                widths.append(float(y - x))
            else:
                widths.append(int(b) - int(a) + 1)
    if not widths or not all(math.isfinite(w) and w > 0 for w in widths):
        return None
    widest = max(widths)
    if min(widths) < 0.99 * widest or CELL_BANDS * widest >= _FAR:
        return None
    return CellSize(CELL_BANDS * widest, as_doubles)
