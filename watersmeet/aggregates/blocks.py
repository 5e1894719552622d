"""Folding ranges of sorted rows: sum, least and greatest of rows a to b, in a few steps each.

The values of a run lie in the order of its keys, so the partners of a tuple are a range of them. They are cut into
blocks of 16. For every row there is the fold from its block's begin to it (`heads`) and from it to the block's end
(`tails`); and over the blocks lies a *disjoint sparse table*: level h has, for every block, the fold from that block to
the middle of its segment of 2^h blocks (in the left half to the middle, in the right half from it).

    blocks        0    1    2    3    4    5    6    7
    level 3     0..3 1..3 2..3  3    4   4..5 4..6 4..7       fold of blocks 1 to 6 = (1..3) + (4..6)
    level 2     0..1  1    2   2..3 4..5  5    6   6..7       fold of blocks 4 to 7 = (4..5) + (6..7)

Two blocks l < r meet in the level of the highest bit in which they differ, so any range is at most four lookups.
Nothing is subtracted: what is outside of a range (an infinity, a NaN, a huge number) has no influence on it, which
differences of prefix sums cannot promise.

Cost: to make O(n + n/16 log n); 24 bytes a row and slot, and n/16 log(n/16) values; a range O(1).
Reference: disjoint sparse tables are folklore; Bender and Farach-Colton 2000 for blocks under a sparse table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

Array = np.ndarray

ADD, LEAST, GREATEST = 0, 1, 2
BITS = 4
BLOCK = 1 << BITS
_MAX, _MIN = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def neutral(op: int) -> int:
    """What changes nothing when it is folded in."""
    return {ADD: 0, LEAST: _MAX, GREATEST: _MIN}[op]


@njit(inline="always")
def both(op, a, b):
    if op == ADD:
        return a + b
    if op == LEAST:
        return min(a, b)
    return max(a, b)


class Tables(NamedTuple):
    """Over some slots, a row each."""

    values: Array
    heads: Array
    tails: Array
    blocks: Array  # slot, level, block
    ops: Array
    slots: Array  # where their folds go


def tables(values: Array, ops: Array, slots: Array) -> Tables:
    """O(rows) a slot."""
    n = values.shape[1]
    levels = max((n - 1) >> BITS, 0).bit_length() + 1
    blocks = np.empty((values.shape[0], levels, max((n + BLOCK - 1) >> BITS, 1)), values.dtype)
    made = Tables(values, np.empty_like(values), np.empty_like(values), blocks, ops, slots)
    _fill(made)
    return made


@njit(nogil=True, cache=True)
def _fill(made):
    n = made.values.shape[1]
    blocks = (n + BLOCK - 1) >> BITS
    for s in range(made.values.shape[0]):
        op = made.ops[s]
        row, heads, tails, table = made.values[s], made.heads[s], made.tails[s], made.blocks[s]
        for block in range(blocks):
            first, stop = block << BITS, min((block + 1) << BITS, n)
            folded = row[first]
            heads[first] = folded
            for i in range(first + 1, stop):
                folded = both(op, folded, row[i])
                heads[i] = folded
            table[0, block] = folded
            folded = row[stop - 1]
            tails[stop - 1] = folded
            for i in range(stop - 2, first - 1, -1):
                folded = both(op, row[i], folded)
                tails[i] = folded
        for h in range(1, table.shape[0]):
            half = 1 << (h - 1)
            middle = half
            while middle <= blocks:
                folded = table[0, middle - 1]
                table[h, middle - 1] = folded
                for block in range(middle - 2, middle - half - 1, -1):
                    folded = both(op, table[0, block], folded)
                    table[h, block] = folded
                if middle < blocks:
                    folded = table[0, middle]
                    table[h, middle] = folded
                    for block in range(middle + 1, min(middle + half, blocks)):
                        folded = both(op, folded, table[0, block])
                        table[h, block] = folded
                middle += 2 * half


@njit(inline="always")
def _range(row, heads, tails, table, op, a, b):
    """The fold of rows a to b, at least one."""
    first, last = a >> BITS, (b - 1) >> BITS
    if first == last:
        folded = row[a]
        for i in range(a + 1, b):
            folded = both(op, folded, row[i])
        return folded
    folded = both(op, tails[a], heads[b - 1])
    first, last = first + 1, last - 1
    if first < last:
        h, apart = 0, first ^ last
        while apart:
            apart >>= 1
            h += 1
        folded = both(op, folded, both(op, table[h, first], table[h, last]))
    elif first == last:
        folded = both(op, folded, table[0, first])
    return folded


@njit(nogil=True, cache=True)
def count_whole(a, b, who, counts):
    for k in range(a.size):
        counts[who[k]] += b[k] - a[k]


@njit(nogil=True, cache=True)
def fold_whole(a, b, who, made, sums):
    """For questions to which all rows from a[k] to b[k] are partners."""
    for s in range(made.values.shape[0]):
        op, row, heads, tails, table = made.ops[s], made.values[s], made.heads[s], made.tails[s], made.blocks[s]
        out = sums[made.slots[s]]
        for k in range(a.size):
            if a[k] < b[k]:
                out[who[k]] = both(op, out[who[k]], _range(row, heads, tails, table, op, a[k], b[k]))


@njit(nogil=True, cache=True)
def fold_rows(rows, who, values, ops, slots, sums):
    """For pairs, one by one."""
    for s in range(values.shape[0]):
        op, row, out = ops[s], values[s], sums[slots[s]]
        for i in range(rows.size):
            out[who[i]] = both(op, out[who[i]], row[rows[i]])
