"""Samples of a sorted run: the last key of every partition, of those again, and so on, in levels.

    level 2            [ 40 ,        70 ]                 (partitions of 2)
    level 1    [ 20 ,    40 ,    50 ,    70 ]
    run      [ 10 20 | 30 40 | 50 50 | 60 70 | 80 ]

Read from the top down they are the inner nodes of a tree (see css_tree), whose leaves are the partitions of the run.

All levels lie in one array. Each has room to grow, and a partition of sentinels or two behind it, so that a search may
read beyond its end. Keys that are put behind all others leave the samples before them as they are: only what has
changed is sampled again.

Cost: O(keys changed / width).
Reference: PanJoin, section III-D (the index array of BI-Sort), which has one level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.index.base import Array, aligned, grown
from watersmeet.index.sorted.run_kernels import GREATEST, sentinels

_LINE = 8  # keys of a cache line, with which levels begin
_NONE = np.zeros(0, np.int64)


class Level(NamedTuple):
    """The samples right above a run, while they are taken; all but the first `first` are to be."""

    width: int
    equal: Array
    ordered: Array
    first: int
    total: int

    def take(self, equal: Array, ordered: Array, begin: int, end: int) -> None:
        """Those of the keys from place `begin` to `end` of the run."""
        w = self.width
        first, last = max(begin // w, self.first), min(end // w, self.total)
        if first < last:
            self.ordered[first:last] = ordered[first * w + w - 1 : last * w : w]
            if self.equal.size:
                self.equal[first:last] = equal[first * w + w - 1 : last * w : w]


@njit(nogil=True, cache=True)
def _sample_levels(samples, width, behind, begins, size, kept, before, levels):
    """Take the samples of all levels above the first, and put sentinels `behind` those of each; writes where levels
    begin and how many they hold, and returns their number. `before`: how many levels there were."""
    levels[0, 0] = 0
    levels[0, 1] = size
    n = 1
    while n <= begins.size and size > width:
        begin = begins[n - 1]
        if n >= before:
            kept = 0  # a level that was not there
        kept //= width
        size //= width
        samples[begin + size : begin + size + behind] = GREATEST
        if n > 1:
            below = levels[n - 1, 0]
            for s in range(kept, size):
                samples[begin + s] = samples[below + s * width + width - 1]
        levels[n, 0] = begin
        levels[n, 1] = size
        n += 1
    return n


#: Nothing is to be sampled.
NO_LEVEL = Level(1, _NONE, _NONE, 0, 0)


class Samples:
    """arrays: (equal keys, empty where there is one key; ordered keys; [begin, count] of each level).

    Level 0 is the run itself.
    """

    def __init__(self, width: int, composite: bool, rows: int = 0):
        self._width = width
        self._behind = sentinels(width)
        self._composite = composite
        self._lay_out(rows)

    @classmethod
    def adopted(cls, width: int, arrays: tuple[Array, Array, Array]) -> Samples:
        """Samples that are there already, for searching only."""
        samples = cls(width, arrays[0].size > 0)
        samples.arrays = arrays
        return samples

    def _lay_out(self, rows: int) -> None:
        """Find room for the samples of so many keys."""
        self._rows = rows
        begins = []
        end = 0
        while rows > self._width:
            rows //= self._width
            begins.append(end)
            end += -(-(rows + self._behind) // _LINE) * _LINE
        self._begins = np.array(begins, np.int64)
        ordered = aligned(end)
        equal = aligned(end) if self._composite else _NONE
        self.arrays = equal, ordered, np.zeros((1, 2), np.int64)

    def first_level(self, size: int, kept: int) -> Level:
        """Where the samples of the first `size` keys of a run go, of which the first `kept` are those of the last time.

        For one who has the keys at hand, and takes their samples before calling `refresh`.
        """
        if size > self._rows:
            self._lay_out(grown(self._rows, size))
        equal, ordered, levels = self.arrays
        if size <= self._width:
            return NO_LEVEL
        begin, count = int(self._begins[0]), size // self._width
        end = begin + count
        first = kept // self._width if len(levels) > 1 else 0
        return Level(self._width, equal[begin:end], ordered[begin:end], first, count)

    def refresh(self, equal: Array, ordered: Array, size: int, kept: int, taken: bool = False) -> None:
        """Sample the first `size` keys of a run, of which the first `kept` are those of the last time.

        taken: those of the first level have been taken.
        """
        level = self.first_level(size, kept)
        if not taken:
            level.take(equal, ordered, 0, size)
        sample_equal, sample_ordered, before = self.arrays
        levels = np.empty((len(self._begins) + 1, 2), np.int64)
        for samples in (sample_equal, sample_ordered)[0 if self._composite else 1 :]:
            count = _sample_levels(
                samples, self._width, self._behind, self._begins, size, kept, len(before), levels
            )
        self.arrays = sample_equal, sample_ordered, levels[:count]

    def level_for(self, probes: int) -> int:
        """The level that has about as many keys as there are probes: the one to walk."""
        sizes = self.arrays[2][:, 1].tolist()
        top = 0
        while top + 1 < len(sizes) and sizes[top] > 2 * probes:
            top += 1
        return top

    def nbytes(self) -> int:
        """Bytes in use; room that was never written to takes none."""
        return int(self.arrays[2][1:, 1].sum()) * (16 if self._composite else 8)

    def check_invariants(self, name: str, equal: Array, ordered: Array) -> None:
        """equal, ordered: the keys of the run."""
        sample_equal, sample_ordered, levels = self.arrays
        w = self._width
        assert levels[0, 1] == ordered.size, f"{name}: samples of {levels[0, 1]} keys, not of {ordered.size}"
        for begin, count in levels[1:]:
            for samples, keys in ((sample_ordered, ordered), (sample_equal, equal))[: 2 if self._composite else 1]:
                expected = np.append(keys[w - 1 :: w], np.full(self._behind, GREATEST))
                found = samples[begin : begin + count + self._behind]
                assert np.array_equal(found, expected), f"{name}: stale samples {found}, not {expected}"
            equal, ordered = equal[w - 1 :: w], ordered[w - 1 :: w]
        assert ordered.size <= w, f"{name}: a level of samples is missing"
