"""The kernels of B+-Trees that only look: go down, write out or count partners, drain. `btree_changes` has the others.

They work on any number of trees over one pool of nodes (the sub-trees of a PIM-Tree; a B+-Tree is the only one of its
pool). `Levels` leads a key to its tree; with depth 0 there is one.

Sorted batches go down some hundred keys at a time and level by level, from the deepest node that these have in common
on: the steps of different keys do not wait for each other, so that many misses are under way at once. Inside a node
keys are counted, not searched: there is no branch that a processor could guess wrong.

Indices are unsigned, since Numba else tests for negative ones. Loops take arrays out of the pool beforehand: each
access to a tuple's would count references.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import BY_ROW, BY_TICK, UNBOUNDED, Array, bounds_of, in_bounds, keep_within
from watersmeet.index.sorted.run_kernels import FEW, STEP, count_below
from watersmeet.index.trees.css_tree import route

CHUNK = 256  # probes, or entries, that go down together
LEAVES_USED, FREE_LEAF, SPARE_LEAVES, INNERS_USED, FREE_INNER, SPARE_INNERS = range(6)  # places of `books`


class Nodes(NamedTuple):
    """A pool of nodes. Node i has the places from i * width on, of which it uses the first `fan_out` at most."""

    keys: Array  # of leaves; unused places hold GREATEST
    rows: Array
    filled: Array  # entries of each leaf; -1: none any more, and `following` says where to look instead
    following: Array  # -1: this is the last leaf
    preceding: Array
    leaf_above: Array  # parent; -1 - t for the root of tree t; the next free one for a free leaf
    separators: Array  # of inner nodes: one less than children; unused places hold GREATEST
    children: Array  # leaves or inner nodes
    counts: Array  # of children
    inner_above: Array
    books: Array  # nodes ever used, the first free one, how many may still be taken
    roots: Array  # of each tree; -1: it is empty
    heights: Array  # levels of inner nodes of each tree


@njit(inline="always")
def node_width(fan_out):
    return uint64((fan_out + STEP - 1) // STEP * STEP)


@njit
def descend(nodes, width, bounds, count, trees, leaves, left):
    """leaves[i] becomes the leaf of trees[i] to which the keys below the ascending bounds[i] lead; -1 in an empty tree.

    `left` is for the work: levels that each still has to go down.
    """
    separators = nodes.separators
    children = nodes.children
    top = 0
    if trees[0] == trees[count - 1]:
        node = nodes.roots[trees[0]]
        top = nodes.heights[trees[0]]
        while top > 0:
            at = uint64(node) * width
            child = count_below(separators, at, width, bounds[0])
            if child != count_below(separators, at, width, bounds[count - 1]):
                break
            node = children[at + child]
            top -= 1
        for i in range(count):
            leaves[i] = node
            left[i] = top
    else:
        for i in range(count):
            leaves[i] = nodes.roots[trees[i]]
            left[i] = nodes.heights[trees[i]]
            top = max(top, left[i])
    for level in range(top, 0, -1):
        for i in range(count):
            if left[i] >= level:
                at = uint64(leaves[i]) * width
                leaves[i] = children[at + count_below(separators, at, width, bounds[i])]


# -- probing -------------------------------------------------------------------------------------------------------


@njit
def _search(nodes, width, levels, lows, first, count, trees, leaves, starts, left):
    """starts[i] becomes the first place in leaves[i] whose key is not below lows[first + i]; it may be behind all."""
    route(levels, lows, first, count, trees)
    descend(nodes, width, lows[first : first + count], count, trees, leaves, left)
    keys = nodes.keys
    rows = nodes.rows
    touched = np.int32(0)
    for i in range(count):
        if leaves[i] >= 0:
            at = uint64(leaves[i]) * width
            starts[i] = count_below(keys, at, width, lows[first + i])
            touched ^= rows[at + uint64(starts[i])]  # to have that line at hand when pairs are written
    starts[count] = touched  # so that the reads are not optimised away


@njit(inline="always")
def count_upto(keys, filled, width, leaf, key):
    """How many entries of the leaf have a key up to this one."""
    n = np.int64(0)
    at = uint64(leaf) * width
    block = uint64(0)
    while block < width:
        for u in range(STEP):
            n += np.int64(keys[at + block + uint64(u)] <= key)
        block += uint64(STEP)
    return min(n, np.int64(filled[uint64(leaf)]))


@njit
def _next_tree(roots, heights, children, width, separators, begin, tree, most):
    """(tree, its first leaf): the next one with any entries that the range up to `most` reaches; leaf -1: none."""
    leaf = np.int64(-1)
    while leaf < 0 and tree + 1 < roots.size and separators[begin + tree] < most:
        tree += 1
        leaf = np.int64(roots[tree])
        for _ in range(heights[tree]):
            leaf = np.int64(children[uint64(leaf) * width])
    return tree, leaf


@njit(inline="always")
def _within(mode, rows, at, j, end, base, p, low, high, ticks):
    """How many of the entries j to `end` of the leaf at this place are within the bounds of batch row p."""
    least, most = bounds_of(mode, p, low, high)
    n = np.int64(0)
    for k in range(j, end):
        n += in_bounds(mode, np.int32(rows[at + uint64(k)] - base), least, most, ticks)
    return n


@cache
def probe_kernel(emits: bool):
    """Search, and write out pairs or only count them."""

    @njit(nogil=True, cache=True)
    def probe(nodes, fan_out, base, levels, band, stop, mode, bounds, first, out_probe, out_row):
        """Returns (first probe not done, pairs). Rows are stored with `base` added.

        The first few entries of a leaf are written whether or not they are partners, and counted if they are: how many
        partners a probe has follows no pattern that a processor could learn. To count without bounds is to look at no
        row.
        """
        trees = np.empty(CHUNK, np.int64)
        leaves = np.empty(CHUNK, np.int64)
        left = np.empty(CHUNK, np.int64)
        starts = np.empty(CHUNK + 1, np.int64)
        width = node_width(fan_out)
        keys, rows, filled, following = nodes.keys, nodes.rows, nodes.filled, nodes.following
        roots, heights, children = nodes.roots, nodes.heights, nodes.children
        separators = levels.separators
        fences = levels.begins[max(levels.depth - 1, 0)]
        lows, highs, probe_rows = band.lows, band.highs, band.rows
        low, high, ticks = bounds.low, bounds.high, bounds.ticks
        n = np.int64(0)
        room = out_row.size
        while first < stop:
            count = min(CHUNK, stop - first)
            _search(nodes, width, levels, lows, first, count, trees, leaves, starts, left)
            kept = n  # of pairs from here on bounds have not been looked at
            done = count
            for i in range(count):
                before = n
                p = probe_rows[first + i]
                most = highs[first + i]
                tree = trees[i]
                leaf = leaves[i]
                j = starts[i] if leaf >= 0 else np.int64(0)
                while True:
                    if leaf >= 0:
                        end = count_upto(keys, filled, width, leaf, most)
                        at = uint64(leaf) * width
                        if emits:
                            if n + max(end - j, FEW) > room:
                                done = i
                                break
                            for u in range(FEW):
                                out_probe[n] = p
                                out_row[n] = rows[at + uint64(j + u)] - base
                                n += np.int64(j + u < end)
                            for k in range(j + FEW, end):
                                out_probe[n] = p
                                out_row[n] = rows[at + uint64(k)] - base
                                n += 1
                        elif mode == UNBOUNDED:
                            n += max(end - j, np.int64(0))
                        elif mode == BY_ROW:
                            n += _within(BY_ROW, rows, at, j, end, base, p, low, high, ticks)
                        else:
                            n += _within(BY_TICK, rows, at, j, end, base, p, low, high, ticks)
                        if end < filled[uint64(leaf)]:
                            break
                        leaf = np.int64(following[uint64(leaf)])
                        j = np.int64(0)
                    if leaf < 0:
                        tree, leaf = _next_tree(roots, heights, children, width, separators, fences, tree, most)
                        if leaf < 0:
                            break
                if done < count:
                    n = before
                    break
            if emits:
                n = np.int64(keep_within(mode, low, high, ticks, out_probe, out_row, kept, n))
            first += done
            if done < count:
                break
        return first, n

    return probe


# -- draining ------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def drain(nodes, fan_out, base, out_keys, out_rows):
    """Write out all entries in order; the rows less `base`. Those that come to be negative are left out."""
    width = node_width(fan_out)
    n = np.int64(0)
    keys, rows, filled, following = nodes.keys, nodes.rows, nodes.filled, nodes.following
    for tree in range(nodes.roots.size):
        leaf = np.int64(nodes.roots[tree])
        for _ in range(nodes.heights[tree]):
            leaf = np.int64(nodes.children[uint64(leaf) * width])
        while leaf >= 0:
            at = uint64(leaf) * width
            for j in range(at, at + uint64(filled[uint64(leaf)])):
                row = np.int32(rows[j] - base)
                out_keys[n] = keys[j]
                out_rows[n] = row
                n += np.int64(row >= 0)
            leaf = np.int64(following[uint64(leaf)])
    return n
