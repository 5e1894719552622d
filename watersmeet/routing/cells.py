"""Cells: for bands. Keys are cut into cells, several times as wide as the band; a cell belongs to a core.

    band 10 wide, cells of 80          cell 0          cell 1          cell 2
    keys                            0 ---------- 80 ---------- 160 ---------- 240
    partners of a tuple                   [45..55]  -> cell 0: one core
                                              [75..85]  -> cells 0 and 1: at most two

A tuple is at home in the core of its own key's cell, and probes the cores of all cells that its range touches. The
range is computed for each tuple, so a range wider than was thought costs copies, never results.

Cells are counted in the key's own unit: whole keys by division; doubles, whose keys are their bits, by their value.

Bands over several columns are cut in all of them: a cell is a box, and a tuple probes the cores of all that its own box
touches. Cells are wider then, so that no more tuples are at the end of one; there are many more of them, and cores get
more even shares, also where one dimension has few cells.

Cost: 1 + 1/8 copies a tuple at `CELL_BANDS` = 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.query.boxes import Box, mixed
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


Sizes = CellSize | tuple[CellSize, ...] | None  # of one band; of each dimension of a box; nothing is looked for


@dataclass(frozen=True)
class Cells:
    cores: int
    sizes: tuple[Sizes, Sizes]  # of left keys and of right keys
    anchor: Side | None = None
    name = "cells"
    by_turns = False

    @property
    def visits(self) -> bool:
        return self.anchor is None

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        own = self.sizes[SIDES.index(side)]
        if own is not None and self.anchor in (None, side):
            cells, live = own_cells(tuples, own)
            home = hashed(cells, self.cores)
            if live is not None:  # the others nobody looks for
                home = np.where(live, home, hashed(ticks, self.cores))
        else:
            home = hashed(ticks, self.cores)
        if side == self.anchor:
            return at_home(home)
        size = self.sizes[SIDES.index(other(side))]
        assert size is not None
        if isinstance(size, CellSize):
            rows, cores = self._probed(tuples.probe_of_one_band(), size)
        else:
            rows, cores = self._probed_box(*tuples.probe_of_dimensions(), size)
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


    def _probed_box(
        self, lows: Array, highs: Array, live: Array | None, sizes: tuple[CellSize, ...]
    ) -> tuple[Array, Array]:
        """As `_probed`, of boxes."""
        n = lows.shape[1]
        some = (lows <= highs).all(axis=0)
        some = some if live is None else some & live
        firsts = np.stack([size.cells(low) for size, low in zip(sizes, lows, strict=True)])
        lasts = np.stack([size.cells(high) for size, high in zip(sizes, highs, strict=True)])
        rows, cores = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        found = _touched_by_boxes(firsts, lasts, some, np.uint64(self.cores), rows, cores)
        if found > rows.size:
            rows, cores = np.empty(found, np.int64), np.empty(found, np.int64)
            _touched_by_boxes(firsts, lasts, some, np.uint64(self.cores), rows, cores)
        return rows[:found], cores[:found]


def own_cells(tuples: Tuples, size: CellSize | tuple[CellSize, ...]) -> tuple[Array, Array | None]:
    """The cell of each tuple, as a number, and which tuples have one."""
    if isinstance(size, CellSize):
        keys = tuples.keys_of_one_band()
        assert keys.ordered is not None
        return size.cells(keys.ordered), keys.live
    numbers, live = tuples.keys_of_dimensions()
    cells = np.stack([size.cells(keys) for size, keys in zip(size, numbers, strict=True)])
    out = np.empty(cells.shape[1], np.int64)
    _mix(cells, out)
    return out, live


@njit(nogil=True, cache=True)
def _mix(cells, out):
    for i in range(out.size):
        cell = cells[0, i]
        for d in range(1, cells.shape[0]):
            cell = mixed(cell, cells[d, i])
        out[i] = cell


@njit(nogil=True, cache=True)
def _touched_by_boxes(firsts, lasts, some, cores, out_rows, out_cores):
    """As `_touched`; a box touches all combinations of the cells of its dimensions."""
    dimensions, n = firsts.shape
    seen = np.full(cores, -1, np.int64)
    at = np.zeros(dimensions, np.int64)  # the cell in each dimension, from the first one on
    found = 0
    for row in range(n):
        if not some[row]:
            continue
        total = np.uint64(1)  # cells, up to so many that all cores have one, as good as certainly
        for d in range(dimensions):
            width = np.uint64(lasts[d, row]) - np.uint64(firsts[d, row])
            total = min(total * (min(width, np.uint64(4) * cores) + np.uint64(1)), np.uint64(4) * cores)
        far = total >= np.uint64(4) * cores
        steps = np.int64(cores if far else total)
        at[:] = 0
        for step in range(steps):
            core = np.int64(step)
            if not far:
                cell = firsts[0, row] + at[0]
                for d in range(1, dimensions):
                    cell = mixed(cell, firsts[d, row] + at[d])
                core = core_of(cell, cores)
                for d in range(dimensions):  # the next one, counted up like a number
                    at[d] += 1
                    if firsts[d, row] + at[d] <= lasts[d, row]:
                        break
                    at[d] = 0
            if seen[core] != row:
                seen[core] = row
                if found < out_rows.size:
                    out_rows[found], out_cores[found] = row, core
                found += 1
    return found


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
    probe = plan.of(batch).probe_of_one_band()
    if not probe.lows:
        return None
    live = np.ones(batch.num_rows, bool) if probe.live is None else probe.live
    widths = []
    for low, high in zip(probe.lows, probe.highs, strict=True):
        for a, b in zip(low[live], high[live], strict=True):
            if a == _LEAST or b == _GREATEST:
                return None
            if as_doubles:
                x, y = doubles(np.array([a, b])).tolist()  # plain floats: of infinities they differ by NaN, silently
                widths.append(y - x)
            else:
                widths.append(int(b) - int(a) + 1)
    if not widths or not all(math.isfinite(w) and w > 0 for w in widths):
        return None
    widest = max(widths)
    if min(widths) < 0.99 * widest or CELL_BANDS * widest >= _FAR:
        return None
    return CellSize(CELL_BANDS * widest, as_doubles)


def box_sizes(box: Box) -> tuple[CellSize, ...] | None:
    """The sizes of cells in the dimensions of a box, or None where they would be too wide."""
    factor = CELL_BANDS * len(box.dimensions)
    sizes = tuple(CellSize(factor * each.width, each.doubles) for each in box.dimensions)
    return None if any(size.width >= _FAR for size in sizes) else sizes
