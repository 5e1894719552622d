"""CSS-tree (cache-sensitive search tree): a B+-Tree that never changes, in breadth-first order, without pointers.

Purpose: the archived part of a window, in the trees that keep one: `FrozenBTree`, `IMTree`, `PIMTree`.

    separators   [ 30  max ][ 20  30 | 50  max ]           level by level, the root first; here of fan-out 2
    keys         [ 10  20 | 25  30 | 40  50 | 60  90 ]     the leaves are one sorted array
    rows         [  4   0 |  7   1 |  8   2 |  3   6 ]     whose tuple that is

A node holds the greatest key below each of its children, so that node i has its children at i * fan-out and the next
places of the level below: no pointers, and a node's room is all keys. Instead of the last one of every level stands
int64's greatest value, so that a key beyond all others has its place as well.

A probe for [25, 40] counts the separators below 25 in the root (none: node 0), then there (one, the 20: leaf 1), and
the keys below 25 in that leaf (none): it starts at 2, and takes keys up to 40 from there on.

A batch of sorted probes goes down level by level, not probe by probe: steps of different probes do not wait for each
other, so many misses are under way at once. It starts at the deepest node that it has in common.

Invariants: keys are sorted; behind them stand sentinels (int64's greatest value); level d + 1 has a node for each
separator of level d, and every separator is the greatest key of its node, but for the last of each level.

Cost: find O(log n) a probe and O(1) a partner; merge and forget O(n). Memory: 12 bytes a tuple, and for separators
8 / (fan-out - 1).

Reference: PIM, section 3.1 (immutable B+-Tree) and appendix A.3.
Differs from the paper: a node has as many separators as children, not one less, so that nodes begin with a cache line;
a node is searched by counting, without a branch; the tree is filled level by level, and merged in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import (
    BY_ROW,
    BY_TICK,
    UNBOUNDED,
    Array,
    Emitter,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    bounds_of,
    grown,
    in_bounds,
    no_ticks,
    portions,
)
from watersmeet.index.sorted.bisort_kernels import GREATEST, SINGLE, forget, range_end
from watersmeet.index.sorted.merging import merge
from watersmeet.workers import ALONE, Workers

CHUNK = 256  # probes that go down together
FEW = 4  # partners that are written whether or not they are any; no more than there are sentinels
STEP = 8  # keys that are counted at a time: what a vector register, and a cache line, hold
_NONE = np.zeros(0, np.int64)
_NO_CODE = (0, -1, 0)


class Levels(NamedTuple):
    """The inner nodes; what a kernel needs to go down."""

    separators: Array
    begins: Array  # where each level begins
    fan_out: int
    depth: int  # how many levels to go down


@njit(inline="always")
def count_below(keys, at, width, key):
    """How many of `width` sorted keys are below this one. It may look at up to 7 more: none of those is, then."""
    n = uint64(0)
    block = uint64(0)
    while block < width:
        for u in range(STEP):
            n += uint64(1) if keys[at + block + uint64(u)] < key else uint64(0)
        block += uint64(STEP)
    return n


@njit
def route(levels, keys, first, count, places):
    """places[i] becomes the number of the node, `depth` levels down, in whose range keys[first + i] (ascending) is."""
    width = uint64(levels.fan_out)
    separators = levels.separators
    node = uint64(0)
    level = 0
    while level < levels.depth:
        at = uint64(levels.begins[level]) + node * width
        child = count_below(separators, at, width, keys[first])
        if child != count_below(separators, at, width, keys[first + count - 1]):
            break
        node = node * width + child
        level += 1
    for i in range(count):
        places[i] = node
    for below in range(level, levels.depth):
        begin = uint64(levels.begins[below])
        for i in range(count):
            at = uint64(places[i]) * width
            places[i] = at + count_below(separators, begin + at, width, keys[first + i])


@njit
def _search(levels, keys, rows, size, lows, first, count, starts):
    """starts[i] becomes the first place whose key is not below lows[first + i]."""
    route(levels, lows, first, count, starts)
    width = uint64(levels.fan_out)
    touched = np.int32(0)
    for i in range(count):
        at = uint64(starts[i]) * width
        touched ^= rows[at]  # to have that line at hand when pairs are written
        starts[i] = min(at + count_below(keys, at, width, lows[first + i]), uint64(size))
    starts[count] = touched  # so that the reads are not optimised away


@njit
def keep_within(mode, low, high, ticks, out_probe, out_row, first, stop):
    """Of the pairs from `first` to `stop` keep those within bounds, one behind the other; returns where they end.

    Apart from the loop that finds pairs, so that this one is compiled once and not for each way to compare ticks.
    """
    n = uint64(first)
    if mode == UNBOUNDED:
        return stop
    if mode == BY_ROW:
        for i in range(uint64(first), uint64(stop)):
            p = out_probe[i]
            row = out_row[i]
            out_probe[n] = p
            out_row[n] = row
            n += uint64(low[p] <= row) & uint64(row <= high[p])
    else:
        for i in range(uint64(first), uint64(stop)):
            p = out_probe[i]
            row = out_row[i]
            tick = ticks[row]
            out_probe[n] = p
            out_row[n] = row
            n += uint64(low[p] <= tick) & uint64(tick <= high[p])
    return np.int64(n)


@njit(nogil=True, cache=True)
def _find(
    levels, keys, rows, size, lows, highs, probe_rows, first, stop, mode, low, high, ticks, out_probe, out_row
):  # fmt: skip
    """Returns (first probe not done, pairs written).

    How many partners a probe has follows no pattern that a processor could learn, so the first few keys are taken
    without asking, and counted if they are partners.
    """
    starts = np.empty(CHUNK + 1, np.int64)
    n = np.int64(0)
    room = out_row.size
    end = uint64(size)
    while first < stop:
        count = min(CHUNK, stop - first)
        _search(levels, keys, rows, size, lows, first, count, starts)
        kept = n
        done = count
        for i in range(count):
            if n + FEW > room:
                done = i
                break
            before = n
            p = probe_rows[first + i]
            most = highs[first + i]
            j = uint64(starts[i])
            for u in range(FEW):
                at = j + uint64(u)
                out_probe[n] = p
                out_row[n] = rows[at]
                n += np.int64(at < end) & np.int64(keys[at] <= most)
            j += uint64(FEW)
            if keys[j - uint64(1)] > most:
                continue
            more = range_end(SINGLE, keys, keys, j, end, np.int64(0), most) - j
            if np.int64(more) > room - n:
                n = before
                done = i
                break
            for u in range(more):
                out_probe[uint64(n) + u] = p
                out_row[uint64(n) + u] = rows[j + u]
            n += np.int64(more)
        n = keep_within(mode, low, high, ticks, out_probe, out_row, kept, n)
        first += done
        if done < count:
            break
    return first, n


@njit(inline="always")
def _within(mode, rows, j, beyond, low, high, ticks, p):
    """How many of the rows from j on are within the bounds of batch row p."""
    least, most = bounds_of(mode, p, low, high)
    n = np.int64(0)
    for k in range(j, beyond):
        n += in_bounds(mode, rows[k], least, most, ticks)
    return n


@njit(nogil=True, cache=True)
def _count(levels, keys, rows, size, lows, highs, probe_rows, first, stop, mode, low, high, ticks):
    """How many pairs `_find` would write; without bounds a long range is galloped over."""
    starts = np.empty(CHUNK + 1, np.int64)
    n = np.int64(0)
    end = uint64(size)
    while first < stop:
        count = min(CHUNK, stop - first)
        _search(levels, keys, rows, size, lows, first, count, starts)
        for i in range(count):
            j = uint64(starts[i])
            beyond = range_end(SINGLE, keys, keys, j, end, np.int64(0), highs[first + i])
            if mode == UNBOUNDED:
                n += np.int64(beyond - j)
            elif mode == BY_ROW:
                n += _within(BY_ROW, rows, j, beyond, low, high, ticks, probe_rows[first + i])
            else:
                n += _within(BY_TICK, rows, j, beyond, low, high, ticks, probe_rows[first + i])
        first += count
    return n


@njit(nogil=True, cache=True)
def _merged(keys, rows, size, gone, new_keys, new_rows, out_keys, out_rows):
    """Merge entries with new ones, which come behind those of the same key; says how many there are then.

    Rows of the old ones get `gone` taken off, and those that are negative then are left out.
    """
    n = uint64(0)
    i = uint64(0)
    end = uint64(size)
    for j in range(uint64(new_keys.size)):
        key = new_keys[j]
        while i < end and keys[i] <= key:
            row = np.int32(rows[i] - gone)
            out_keys[n] = keys[i]
            out_rows[n] = row
            n += uint64(1) if row >= 0 else uint64(0)
            i += uint64(1)
        out_keys[n] = key
        out_rows[n] = new_rows[j]
        n += uint64(1)
    while i < end:
        row = np.int32(rows[i] - gone)
        out_keys[n] = keys[i]
        out_rows[n] = row
        n += uint64(1) if row >= 0 else uint64(0)
        i += uint64(1)
    return np.int64(n)


class CSSTree:
    """Sorted keys with their rows, and the separators over them."""

    def __init__(self, fan_out: int, expected: int = 0, workers: Workers = ALONE):
        self.size = 0
        self._workers = workers
        self.fan_out = fan_out
        self._pad = 2 * fan_out + STEP  # places behind the last key that a search may look at
        self._keys = np.full(self._pad, GREATEST, np.int64)
        self._rows = np.zeros(self._pad, np.int32)
        self._reserve(expected)
        self._build()

    def merge(self, keys: Array, rows: Array, first_row: int = 0) -> None:
        """Take in sorted keys; their rows get `first_row` added. O(n)."""
        if not keys.size:
            return
        size = self.size + keys.size
        if size > self._keys.size - self._pad:
            self._reserve(grown(self._keys.size - self._pad, size))
        run, batch = (_NONE, self._keys, self._rows), (_NONE, keys, rows)
        merge(SINGLE, _NO_CODE, run, self.size, batch, first_row, self._workers)
        self.size = size
        self._build()

    def become(self, source: CSSTree, gone: int, keys: Array, rows: Array) -> None:
        """Let go of all entries and take those of `source`, without rows below `gone` and with the others numbered
        from 0, and sorted new ones. O(n)."""
        self.size = 0
        need = source.size + keys.size
        if need > self._keys.size - self._pad:
            self._reserve(grown(self._keys.size - self._pad, need))
        self.size = _merged(*source.arrays(), source.size, gone, keys, rows, self._keys, self._rows)
        self._build()

    def arrays(self) -> tuple[Array, Array]:
        """Keys and rows, with what lies behind the last, by reference."""
        return self._keys, self._rows

    def forget(self, gone: int, build: bool = True) -> None:
        """Drop the rows below `gone` and number the others from 0; `build=False` if a merge follows. O(n)."""
        self.size = forget(_NONE, self._keys, self._rows, self.size, np.int32(gone))
        if build:
            self._build()

    def _build(self) -> None:
        """Sentinels behind the keys, and the levels above them, from the lowest up."""
        self._keys[self.size : self.size + self._pad] = GREATEST
        self._rows[self.size : self.size + self._pad] = 0
        f = self.fan_out
        overrun = -f % STEP  # that a search may look at behind the last node of a level
        below = self._keys[: self.size]
        levels: list[Array] = []
        self._nodes: list[int] = []  # at each depth
        while below.size > f:
            nodes = -(-below.size // f)
            level = np.full(-(-nodes // f) * f + overrun, GREATEST, np.int64)
            level[: nodes - 1] = below[f - 1 :: f][: nodes - 1]
            levels.insert(0, level)
            self._nodes.insert(0, nodes)
            below = level[:nodes]
        self._nodes.insert(0, 1)
        begins = np.cumsum([0, *(level.size for level in levels)])
        separators = aligned(int(begins[-1]))
        for level, begin in zip(levels, begins, strict=False):
            separators[begin : begin + level.size] = level
        self.levels = Levels(separators, begins, f, len(levels))

    def _reserve(self, room: int) -> None:
        keys, rows = aligned(room + self._pad), np.empty(room + self._pad, np.int32)
        keys[: self.size], rows[: self.size] = self._keys[: self.size], self._rows[: self.size]
        self._keys, self._rows = keys, rows

    def trim(self) -> None:
        """Give back spare room. O(n)."""
        if self._keys.size > self.size + self._pad:
            self._reserve(self.size)
            self._build()

    def inner_nodes(self, depth: int) -> tuple[Levels, int]:
        """The way down to the inner nodes of this depth (or of the deepest there are), and the number of those."""
        depth = max(min(depth, self.levels.depth - 1), 0)
        return self.levels._replace(depth=depth), self._nodes[depth]

    def find(self, band, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """Pairs of the probes band[start:stop]. O(log n) a probe, O(1) a partner."""
        _, lows, highs, probe_rows = band
        b = bounds or no_ticks()

        def write(first: int, out: Emitter) -> tuple[int, int]:
            return _find(
                self.levels, self._keys, self._rows, self.size, lows, highs, probe_rows, first, stop,
                bounds_mode(bounds), b.low, b.high, b.ticks, out.batch_rows, out.rows,
            )  # fmt: skip

        return portions(start, stop if self.size else start, write)

    def count(self, band, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no partner is looked at."""
        _, lows, highs, probe_rows = band
        b = bounds or no_ticks()
        return _count(
            self.levels, self._keys, self._rows, self.size, lows, highs, probe_rows, start, stop,
            bounds_mode(bounds), b.low, b.high, b.ticks,
        )  # fmt: skip

    def entries(self) -> tuple[Array, Array]:
        """All keys, in order, and their rows; by reference."""
        return self._keys[: self.size], self._rows[: self.size]

    def nbytes(self) -> int:
        """Bytes in use; room that was never written to takes none."""
        return 12 * (self.size + self._pad) + self.levels.separators.nbytes

    def check_invariants(self) -> None:
        n, f = self.size, self.fan_out
        keys = self._keys[:n]
        assert np.all(keys[1:] >= keys[:-1]), f"keys are not sorted: {keys}"
        behind = self._keys[n : n + self._pad]
        assert behind.size == self._pad and np.all(behind == GREATEST), f"no sentinels behind key {n}: {behind}"
        rows = self._rows[n : n + self._pad]
        assert rows.size == self._pad and not rows.any(), f"what may be read behind key {n} are no rows: {rows}"
        separators, begins, _, depth = self.levels
        below = keys
        for level in reversed(range(depth)):
            own = separators[begins[level] : begins[level + 1]]
            nodes = -(-below.size // f)
            greatest = np.array([below[k * f : (k + 1) * f].max() for k in range(nodes)])
            assert np.array_equal(own[: nodes - 1], greatest[:-1]), f"level {level} is not {greatest}: {own}"
            assert np.all(own[nodes - 1 :] == GREATEST), f"level {level} has no sentinels behind {nodes - 1}: {own}"
            assert self._nodes[level + 1] == nodes, f"{nodes} nodes at depth {level + 1}: {self._nodes}"
            below = own[:nodes]
        assert below.size <= f, f"a root of {below.size} separators: {below}"
