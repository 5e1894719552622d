"""CSS-tree (cache-sensitive search tree): a B+-Tree that never changes, in breadth-first order, without pointers.

Purpose: the archived part of a window, in the trees that keep one: `FrozenBTree`, `IMTree`, `PIMTree`.

    separators   [ 40 ][ 20  40 | 60 ]                  level by level, the root first; here of fan-out 2
    keys         [ 10  20 | 25  40 | 50  60 | 70 ]      the leaves are one sorted array
    rows         [  4   0 |  7   1 |  8   2 |  3 ]      whose tuple that is

It is a sorted run and its samples (see sorted/run.py), read as a tree: a partition is a node, of as many keys as the
fan-out, and the samples of a level are the greatest keys of the nodes below, so that node i has its children at
i * fan-out and the next places of the level below: no pointers, and a node's room is all keys. Behind the last key of
every level stands int64's greatest value, so that a key beyond all others has its place as well.

A probe for [25, 40] counts the separators below 25 in the root (none: node 0), then there (one, the 20: leaf 1), and
the keys below 25 in that leaf (none): it starts at 2, and takes keys up to 40 from there on.

What a tree adds to a run is the way down from the root: which of its inner nodes a key belongs to. The PIM-Tree keeps
a tree of its own for each of these.

Invariants: those of the run, whose keys are never packed with their rows: threads that share a tree read both.

Cost: find O(log n) a probe and O(1) a partner; merge and forget O(n). Memory: 12 bytes a tuple, and for separators
8 / (fan-out - 1).

Reference: PIM, section 3.1 (immutable B+-Tree) and appendix A.3.
Differs from the paper: a node has as many separators as children, not one less, so that nodes begin with a cache line;
a node is searched by counting, without a branch; batches begin with the level that has about as many separators as they
have probes; the tree is filled level by level, and merged in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import Array, grown
from watersmeet.index.batches import Entries
from watersmeet.index.sorted.run import Run
from watersmeet.index.sorted.run_kernels import count_below
from watersmeet.workers import ALONE, Workers

_NONE = np.zeros(0, np.int64)


class Levels(NamedTuple):
    """Inner nodes; what a kernel needs to go down."""

    separators: Array
    begins: Array  # where each level begins, from the root down
    fan_out: int
    depth: int  # how many levels to go down


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


class CSSTree(Run):
    """A run that is read as a tree."""

    def __init__(self, fan_out: int, expected: int = 0, workers: Workers = ALONE):
        super().__init__(False, fan_out, expected, workers, packs=False)
        self.fan_out = fan_out

    def become(self, source: CSSTree, gone: int, new: Entries) -> None:
        """Let go of all entries and take those of `source`, without rows below `gone` and with the others numbered
        from 0, and new ones. O(n)."""
        self.size = 0
        need = source.size + new.size
        if need > self._room:
            self._resize(grown(self._room, need))
        self.size = _merged(
            source.ordered, source.rows, source.size, gone, new.ordered, new.rows, self.ordered, self.rows
        )
        self._put_sentinels()

    @property
    def levels(self) -> Levels:
        """The way down to the leaves; by reference."""
        _, separators, levels = self._samples.arrays
        return Levels(separators, levels[:0:-1, 0].copy(), self.fan_out, len(levels) - 1)

    def inner_nodes(self, depth: int) -> tuple[Levels, int]:
        """The way down to the inner nodes of this depth (or of the deepest there are), and the number of those.

        By value: others go by it for as long as they like, while this tree changes. O(nodes).
        """
        separators, begins, fan_out, deepest = self.levels
        depth = max(min(depth, deepest - 1), 0)
        if depth == 0:
            return Levels(_NONE, np.zeros(1, np.int64), fan_out, 0), 1
        counts = self._samples.arrays[2][:0:-1, 1][:depth]
        ends = begins[:depth] + counts + self._behind
        upper = [separators[begin:end] for begin, end in zip(begins, ends, strict=False)]
        starts = np.cumsum([0, *(level.size for level in upper[:-1])])
        return Levels(np.concatenate(upper), starts, fan_out, depth), int(counts[-1]) + 1
