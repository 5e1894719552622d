"""Two ranges at once: of keys and of ticks, the latter open on one side.

A run at the edge of the window has rows that some of the tuples of a batch want and others do not: those from a tick
on, at the old edge, or up to one, at the new. All questions are answered in one sweep: in order of their ticks, rows
are put into a tree over the order of keys, each when the first question wants it, and every question folds its range
of the tree, in which there is then what it wants and nothing else.

    question    wants ticks     then in the tree (by key)      rows 1..4
       c           >= 9            .  .  9  .  .                  9
       a           >= 7            .  7  9  .  8                  7 9
       b           >= 5            5  7  9  6  8                  7 9 6

A node of the tree has 16 children, in one or two lines of the cache; a row is put into four or five nodes, a question
goes through a few children of as many. Rows are only ever put in, so sums need no subtraction, and the least and the
greatest are found in the same way.

Cost: O(log16 rows) a row, O(16 log16 rows) a question, for each slot.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .blocks import ADD, BITS, BLOCK, both, neutral

Array = np.ndarray


def offsets(n: int) -> Array:
    """Where the levels of a tree over n rows begin, each at a node's first child, and where the last one ends."""
    sizes = [n]
    while sizes[-1] > BLOCK:
        sizes.append((sizes[-1] + BLOCK - 1) >> BITS)
    return np.concatenate([[0], np.cumsum([(size + BLOCK - 1) >> BITS << BITS for size in sizes])])


def tree(n: int, ops: Array, dtype: type) -> Array:
    """An empty one for each slot."""
    nodes: Array = np.empty((ops.size, int(offsets(n)[-1])), dtype)
    for row, op in zip(nodes, ops, strict=True):
        row[:] = neutral(op)
    return nodes


@njit(fastmath={"reassoc", "nsz"})
def _children(op, node, zero, begin, low, high):
    """The fold of children low to high of a node. All 16 are looked at, so that nothing depends on how many: no jumps,
    and several at once."""
    if op == ADD:
        added = zero
        for i in range(BLOCK):
            added += node[begin + i] if (i >= low) & (i < high) else zero
        return added
    folded = node[begin + low]
    for i in range(low + 1, high):
        folded = both(op, folded, node[begin + i])
    return folded


@njit(nogil=True, cache=True)
def sweep(a, b, upto, who, by_tick, n, offsets, values, ops, slots, nodes, sums):
    """Each question k, in order, wants rows a[k] to b[k] of those that are upto[k] first in `by_tick`."""
    for s in range(values.shape[0]):
        op, row, node, out = ops[s], values[s], nodes[s], sums[slots[s]]
        zero = values.dtype.type(0)
        at = 0
        for k in range(a.size):
            while at < upto[k]:
                place, value = by_tick[at], row[by_tick[at]]
                for level in range(offsets.size - 1):
                    node[offsets[level] + place] = both(op, node[offsets[level] + place], value)
                    place >>= BITS
                at += 1
            first, stop, size, level = a[k], b[k], n, 0
            folded = out[who[k]]
            while first < stop:
                begin, left, right = offsets[level], first >> BITS, (stop - 1) >> BITS
                at_left = begin + (left << BITS)
                if left == right:
                    low, high = first - (left << BITS), stop - (left << BITS)
                    folded = both(op, folded, _children(op, node, zero, at_left, low, high))
                    break
                folded = both(op, folded, _children(op, node, zero, at_left, first - (left << BITS), BLOCK))
                if stop & (BLOCK - 1) and stop < size:
                    at_right = begin + (right << BITS)
                    folded = both(op, folded, _children(op, node, zero, at_right, 0, stop - (right << BITS)))
                    first, stop = left + 1, right
                else:
                    first, stop = left + 1, right + 1
                size = (size + BLOCK - 1) >> BITS
                level += 1
            out[who[k]] = folded
