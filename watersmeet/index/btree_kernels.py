"""The kernels of B+-Trees: go down, insert, delete, write out or count partners, drain.

They work on any number of trees over one pool of nodes (the sub-trees of a PIM-Tree; a B+-Tree is the only one of its
pool). `Levels` leads a key to its tree; with depth 0 there is one.

Sorted batches go down some hundred keys at a time and level by level, from the deepest node that these have in common
on: the steps of different keys do not wait for each other, so that many misses are under way at once. Inside a node
keys are counted, not searched: there is no branch that a processor could guess wrong.

Indices are unsigned, since Numba else tests for negative ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import UNBOUNDED, Array, in_bounds
from watersmeet.index.bisort_kernels import GREATEST
from watersmeet.index.css_tree import CHUNK, FEW, STEP, count_below, route

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
def _width(fan_out):
    return uint64((fan_out + STEP - 1) // STEP * STEP)


@njit(inline="always")
def _after(key):
    """The bound below which are the keys up to this one. (Of the greatest key none, but the trees allow for that.)"""
    return key + np.int64(key < GREATEST)


@njit(nogil=True, cache=True)
def _descend(nodes, width, bounds, count, trees, leaves, left):
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


@njit(nogil=True, cache=True)
def _search(nodes, width, levels, lows, first, count, trees, leaves, starts, left):
    """starts[i] becomes the first place in leaves[i] whose key is not below lows[first + i]; it may be behind all."""
    route(levels, lows, first, count, trees)
    _descend(nodes, width, lows[first : first + count], count, trees, leaves, left)
    touched = np.int32(0)
    for i in range(count):
        if leaves[i] >= 0:
            at = uint64(leaves[i]) * width
            starts[i] = count_below(nodes.keys, at, width, lows[first + i])
            touched ^= nodes.rows[at + uint64(starts[i])]  # to have that line at hand when pairs are written
    starts[count] = touched  # so that the reads are not optimised away


@njit(inline="always")
def _end(nodes, width, leaf, most):
    """How many entries of the leaf have a key up to `most`."""
    n = np.int64(0)
    at = uint64(leaf) * width
    block = uint64(0)
    while block < width:
        for u in range(STEP):
            n += np.int64(nodes.keys[at + block + uint64(u)] <= most)
        block += uint64(STEP)
    return min(n, np.int64(nodes.filled[uint64(leaf)]))


@njit(nogil=True, cache=True)
def _onward(nodes, width, levels, tree, leaf, most):
    """(tree, leaf) that come next, in this tree or in one that the range up to `most` reaches too; leaf -1: none."""
    if leaf >= 0:
        leaf = np.int64(nodes.following[leaf])
    while leaf < 0 and levels.depth > 0 and tree + 1 < nodes.roots.size:
        if levels.separators[levels.begins[levels.depth - 1] + tree] >= most:
            break
        tree += 1
        leaf = np.int64(nodes.roots[tree])
        for _ in range(nodes.heights[tree]):
            leaf = np.int64(nodes.children[uint64(leaf) * width])
    return tree, leaf


@njit(nogil=True, cache=True)
def find(
    nodes, fan_out, base, levels, lows, highs, probe_rows, first, stop, mode, low, high, ticks, out_probe, out_row
):  # fmt: skip
    """Returns (first probe not done, pairs written). Rows are stored with `base` added.

    The first few entries are written whether or not they are partners, and counted if they are: how many partners a
    probe has follows no pattern that a processor could learn.
    """
    trees = np.empty(CHUNK, np.int64)
    leaves = np.empty(CHUNK, np.int64)
    left = np.empty(CHUNK, np.int64)
    starts = np.empty(CHUNK + 1, np.int64)
    width = _width(fan_out)
    n = 0
    room = out_row.size
    while first < stop:
        count = min(CHUNK, stop - first)
        _search(nodes, width, levels, lows, first, count, trees, leaves, starts, left)
        for i in range(count):
            if n + FEW > room:
                return first + i, n
            before = n
            p = probe_rows[first + i]
            most = highs[first + i]
            leaf = leaves[i]
            j = np.int64(0)
            end = np.int64(0)
            if leaf >= 0:
                j = starts[i]
                end = _end(nodes, width, leaf, most)
                at = uint64(leaf) * width + uint64(j)
                for u in range(FEW):
                    hit = np.int64(j + u < end)
                    row = np.int32(nodes.rows[at + uint64(u)] - base)
                    if not hit:
                        row = np.int32(0)
                    out_probe[n] = p
                    out_row[n] = row
                    n += hit & in_bounds(mode, p, row, low, high, ticks)
                j += FEW
            tree = trees[i]
            while True:
                if n + end - j > room:
                    return first + i, before
                at = uint64(leaf) * width
                while j < end:
                    row = np.int32(nodes.rows[at + uint64(j)] - base)
                    out_probe[n] = p
                    out_row[n] = row
                    n += in_bounds(mode, p, row, low, high, ticks)
                    j += 1
                if leaf >= 0 and end < nodes.filled[leaf]:
                    break
                tree, leaf = _onward(nodes, width, levels, tree, leaf, most)
                if leaf < 0:
                    break
                j = np.int64(0)
                end = _end(nodes, width, leaf, most)
        first += count
    return first, n


@njit(nogil=True, cache=True)
def count(nodes, fan_out, base, levels, lows, highs, probe_rows, first, stop, mode, low, high, ticks):
    """How many pairs `find` would write; without bounds no row is looked at."""
    trees = np.empty(CHUNK, np.int64)
    leaves = np.empty(CHUNK, np.int64)
    left = np.empty(CHUNK, np.int64)
    starts = np.empty(CHUNK + 1, np.int64)
    width = _width(fan_out)
    n = np.int64(0)
    while first < stop:
        probes = min(CHUNK, stop - first)
        _search(nodes, width, levels, lows, first, probes, trees, leaves, starts, left)
        for i in range(probes):
            p = probe_rows[first + i]
            most = highs[first + i]
            tree = trees[i]
            leaf = leaves[i]
            j = starts[i] if leaf >= 0 else np.int64(0)
            while True:
                if leaf >= 0:
                    end = _end(nodes, width, leaf, most)
                    if mode == UNBOUNDED:
                        n += max(end - j, np.int64(0))
                    else:
                        at = uint64(leaf) * width
                        for k in range(j, end):
                            row = np.int32(nodes.rows[at + uint64(k)] - base)
                            n += in_bounds(mode, p, row, low, high, ticks)
                    if end < nodes.filled[leaf]:
                        break
                tree, leaf = _onward(nodes, width, levels, tree, leaf, most)
                if leaf < 0:
                    break
                j = np.int64(0)
        first += probes
    return n


# -- inserting -----------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _take_leaf(nodes, width):
    books = nodes.books
    leaf = books[FREE_LEAF]
    if leaf >= 0:
        books[FREE_LEAF] = nodes.leaf_above[leaf]
    else:
        leaf = books[LEAVES_USED]
        books[LEAVES_USED] += 1
    books[SPARE_LEAVES] -= 1
    for j in range(width):
        nodes.keys[uint64(leaf) * width + uint64(j)] = GREATEST
    nodes.filled[leaf] = 0
    nodes.following[leaf] = -1
    nodes.preceding[leaf] = -1
    return leaf


@njit(nogil=True, cache=True)
def _take_inner(nodes, width):
    books = nodes.books
    inner = books[FREE_INNER]
    if inner >= 0:
        books[FREE_INNER] = nodes.inner_above[inner]
    else:
        inner = books[INNERS_USED]
        books[INNERS_USED] += 1
    books[SPARE_INNERS] -= 1
    for j in range(width):
        nodes.separators[uint64(inner) * width + uint64(j)] = GREATEST
    nodes.counts[inner] = 0
    return inner


@njit(nogil=True, cache=True)
def _place_of(nodes, width, inner, child):
    """Which child of an inner node this is."""
    at = uint64(inner) * width
    n = uint64(0)
    while nodes.children[at + n] != child:
        n += uint64(1)
    return np.int64(n)


@njit(nogil=True, cache=True)
def _adopt(nodes, width, above, inner, start):
    """Tell the children of an inner node, from `start` on, whose they are."""
    at = uint64(inner) * width
    for j in range(start, nodes.counts[inner]):
        above[nodes.children[at + uint64(j)]] = inner


@njit(nogil=True, cache=True)
def _add_child(nodes, fan_out, width, leaf, separator, right):
    """Put the leaf `right` behind its other half `leaf` into the inner nodes above, splitting those that are full."""
    child = np.int64(leaf)
    other = np.int64(right)
    above = nodes.leaf_above
    while True:
        parent = np.int64(above[child])
        if parent < 0:  # the child was a root
            tree = -1 - parent
            root = _take_inner(nodes, width)
            at = uint64(root) * width
            nodes.children[at] = child
            nodes.children[at + uint64(1)] = other
            nodes.separators[at] = separator
            nodes.counts[root] = 2
            nodes.inner_above[root] = parent
            _adopt(nodes, width, above, root, 0)
            nodes.roots[tree] = root
            nodes.heights[tree] += 1
            return
        place = _place_of(nodes, width, parent, child)
        size = np.int64(nodes.counts[parent])
        at = uint64(parent) * width
        if size < fan_out:
            for j in range(size - 1, place, -1):
                nodes.separators[at + uint64(j)] = nodes.separators[at + uint64(j - 1)]
                nodes.children[at + uint64(j + 1)] = nodes.children[at + uint64(j)]
            nodes.separators[at + uint64(place)] = separator
            nodes.children[at + uint64(place + 1)] = other
            nodes.counts[parent] = size + 1
            above[other] = parent
            return
        # Lay out what the node would hold had it one place more, and deal that out to two.
        all_separators = np.empty(fan_out, np.int64)
        all_children = np.empty(fan_out + 1, np.int64)
        all_children[0] = nodes.children[at]
        for j in range(fan_out - 1):
            to = j + (j >= place)
            all_separators[to] = nodes.separators[at + uint64(j)]
            all_children[to + 1] = nodes.children[at + uint64(j + 1)]
        all_separators[place] = separator
        all_children[place + 1] = other
        sibling = _take_inner(nodes, width)
        keep = (fan_out + 2) // 2
        to_at = uint64(sibling) * width
        for j in range(keep):
            nodes.children[at + uint64(j)] = all_children[j]
        for j in range(fan_out + 1 - keep):
            nodes.children[to_at + uint64(j)] = all_children[keep + j]
        for j in range(fan_out):
            nodes.separators[at + uint64(j)] = all_separators[j] if j < keep - 1 else GREATEST
        for j in range(fan_out - keep):
            nodes.separators[to_at + uint64(j)] = all_separators[keep + j]
        nodes.counts[parent] = keep
        nodes.counts[sibling] = fan_out + 1 - keep
        _adopt(nodes, width, above, parent, 0)
        _adopt(nodes, width, above, sibling, 0)
        child = parent
        other = np.int64(sibling)
        separator = all_separators[keep - 1]
        above = nodes.inner_above


@njit(nogil=True, cache=True)
def _split(nodes, fan_out, width, leaf, place):
    """Move the upper half of a full leaf to a new one, which it returns.

    A key that comes behind all others leaves the old leaf full: where keys ascend none would come to fill it.
    """
    following = np.int64(nodes.following[leaf])
    half = fan_out if place == fan_out and following < 0 else fan_out // 2
    right = _take_leaf(nodes, width)
    at = uint64(leaf) * width
    to = uint64(right) * width
    for j in range(half, fan_out):
        nodes.keys[to + uint64(j - half)] = nodes.keys[at + uint64(j)]
        nodes.rows[to + uint64(j - half)] = nodes.rows[at + uint64(j)]
        nodes.keys[at + uint64(j)] = GREATEST
    nodes.filled[leaf] = half
    nodes.filled[right] = fan_out - half
    nodes.following[right] = following
    nodes.preceding[right] = leaf
    nodes.following[leaf] = right
    if following >= 0:
        nodes.preceding[following] = right
    _add_child(nodes, fan_out, width, leaf, nodes.keys[at + uint64(half - 1)], right)
    return right


@njit(nogil=True, cache=True)
def insert(nodes, fan_out, levels, keys, rows, first_row, first):
    """Insert the sorted entries from `first` on; returns the first that is not in, for want of nodes.

    Entries go behind those with the same key, so that the oldest of these is the first to be found.

    The leaves of some hundred entries are looked up before any of these is inserted. If a leaf is split meanwhile, the
    place of a later entry is in it or among its parts, which follow it up to `end`.
    """
    trees = np.empty(CHUNK, np.int64)
    leaves = np.empty(CHUNK, np.int64)
    left = np.empty(CHUNK, np.int64)
    bounds = np.empty(CHUNK, np.int64)
    width = _width(fan_out)
    n = keys.size
    while first < n:
        count = min(CHUNK, n - first)
        route(levels, keys, first, count, trees)
        for i in range(count):
            bounds[i] = _after(keys[first + i])
            tree = trees[i]
            if nodes.roots[tree] < 0:
                if nodes.books[SPARE_LEAVES] == 0:
                    return first
                root = _take_leaf(nodes, width)
                nodes.leaf_above[root] = -1 - tree
                nodes.roots[tree] = root
                nodes.heights[tree] = 0
        _descend(nodes, width, bounds, count, trees, leaves, left)
        target = np.int64(-1)
        leaf = np.int64(-1)
        end = np.int64(-1)
        for i in range(count):
            key = keys[first + i]
            if leaves[i] != target:
                target = leaves[i]
                leaf = target
                end = np.int64(nodes.following[leaf])
            filled = np.int64(nodes.filled[leaf])
            while nodes.following[leaf] != end and key >= nodes.keys[uint64(leaf) * width + uint64(filled - 1)]:
                leaf = np.int64(nodes.following[leaf])
                filled = np.int64(nodes.filled[leaf])
            place = _end(nodes, width, leaf, key)
            if filled == fan_out:
                if nodes.books[SPARE_LEAVES] == 0 or nodes.books[SPARE_INNERS] <= nodes.heights[trees[i]]:
                    return first + i
                right = _split(nodes, fan_out, width, leaf, place)
                filled = np.int64(nodes.filled[leaf])
                if place >= filled:
                    place -= filled
                    leaf = right
                    filled = np.int64(nodes.filled[leaf])
            at = uint64(leaf) * width
            for j in range(filled, place, -1):
                nodes.keys[at + uint64(j)] = nodes.keys[at + uint64(j - 1)]
                nodes.rows[at + uint64(j)] = nodes.rows[at + uint64(j - 1)]
            nodes.keys[at + uint64(place)] = key
            nodes.rows[at + uint64(place)] = rows[first + i] + first_row
            nodes.filled[leaf] = filled + 1
        first += count
    return first


# -- deleting ------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _drop_child(nodes, width, leaf):
    """Take a leaf, not a root, out of the nodes above it; free it, and those that have no child left."""
    child = np.int64(leaf)
    above = nodes.leaf_above
    free = FREE_LEAF
    while True:
        parent = np.int64(above[child])
        place = _place_of(nodes, width, parent, child)
        size = np.int64(nodes.counts[parent])
        at = uint64(parent) * width
        for j in range(place, size - 1):
            nodes.children[at + uint64(j)] = nodes.children[at + uint64(j + 1)]
        for j in range(max(place - 1, 0), size - 2):
            nodes.separators[at + uint64(j)] = nodes.separators[at + uint64(j + 1)]
        if size > 1:
            nodes.separators[at + uint64(size - 2)] = GREATEST
        nodes.counts[parent] = size - 1
        above[child] = nodes.books[free]
        nodes.books[free] = child
        nodes.books[free + 1] += 1  # one more to spare
        if size > 1:
            break
        child = parent
        above = nodes.inner_above
        free = FREE_INNER


@njit(nogil=True, cache=True)
def _lower_root(nodes, width, tree):
    """Where a root has one child left, that becomes the root."""
    while nodes.heights[tree] > 0 and nodes.counts[nodes.roots[tree]] == 1:
        root = np.int64(nodes.roots[tree])
        child = nodes.children[uint64(root) * width]
        nodes.inner_above[root] = nodes.books[FREE_INNER]
        nodes.books[FREE_INNER] = root
        nodes.books[SPARE_INNERS] += 1
        nodes.heights[tree] -= 1
        nodes.roots[tree] = child
        if nodes.heights[tree] > 0:
            nodes.inner_above[child] = -1 - tree
        else:
            nodes.leaf_above[child] = -1 - tree


@njit(nogil=True, cache=True)
def _shrink(nodes, fan_out, width, leaf):
    """Free a leaf that is empty, and join one that is nearly so with the next, if that is its sibling and they fit."""
    parent = np.int64(nodes.leaf_above[leaf])
    filled = np.int64(nodes.filled[leaf])
    following = np.int64(nodes.following[leaf])
    if parent < 0:
        return
    if filled == 0:
        away = leaf
        nodes.filled[away] = -1  # look in the following leaf
    elif (
        following >= 0 and nodes.leaf_above[following] == parent and 4 * (filled + nodes.filled[following]) <= 3 * fan_out
    ):
        away = following
        at = uint64(leaf) * width + uint64(filled)
        source = uint64(away) * width
        for j in range(nodes.filled[away]):
            nodes.keys[at + uint64(j)] = nodes.keys[source + uint64(j)]
            nodes.rows[at + uint64(j)] = nodes.rows[source + uint64(j)]
        nodes.filled[leaf] = filled + nodes.filled[away]
        nodes.filled[away] = -1
    else:
        return
    before = np.int64(nodes.preceding[away])
    after = np.int64(nodes.following[away])
    if before >= 0:
        nodes.following[before] = after
    if after >= 0:
        nodes.preceding[after] = before
    if away != leaf:
        nodes.following[away] = leaf
    _drop_child(nodes, width, away)
    _lower_root(nodes, width, 0)


@njit(nogil=True, cache=True)
def delete(nodes, fan_out, keys, rows, first_row):
    """Delete entries, sorted by key, from the only tree; returns how many were found: all, if all is well.

    As in `insert`, leaves are looked up before they change. No leaf is taken meanwhile, so one that has gone still
    says where its entries, or those that followed, are.
    """
    trees = np.zeros(CHUNK, np.int64)
    leaves = np.empty(CHUNK, np.int64)
    left = np.empty(CHUNK, np.int64)
    width = _width(fan_out)
    found = 0
    first = 0
    while first < keys.size:
        count = min(CHUNK, keys.size - first)
        _descend(nodes, width, keys[first : first + count], count, trees, leaves, left)
        for i in range(count):
            key = keys[first + i]
            row = np.int32(rows[first + i] + first_row)
            leaf = leaves[i]
            while nodes.filled[leaf] < 0:
                leaf = np.int64(nodes.following[leaf])
            at = uint64(leaf) * width
            j = np.int64(count_below(nodes.keys, at, width, key))
            while leaf >= 0:
                at = uint64(leaf) * width
                filled = np.int64(nodes.filled[leaf])
                while j < filled and nodes.keys[at + uint64(j)] == key and nodes.rows[at + uint64(j)] != row:
                    j += 1
                if j < filled:
                    break
                leaf = np.int64(nodes.following[leaf])
                j = np.int64(0)
            if leaf < 0 or nodes.keys[at + uint64(j)] != key:
                continue
            for k in range(j, filled - 1):
                nodes.keys[at + uint64(k)] = nodes.keys[at + uint64(k + 1)]
                nodes.rows[at + uint64(k)] = nodes.rows[at + uint64(k + 1)]
            nodes.keys[at + uint64(filled - 1)] = GREATEST
            nodes.filled[leaf] = filled - 1
            found += 1
            if 4 * (filled - 1) <= fan_out:
                _shrink(nodes, fan_out, width, leaf)
        first += count
    return found


# -- draining ------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def drain(nodes, fan_out, base, out_keys, out_rows):
    """Write out all entries in order; the rows less `base`. Those that come to be negative are left out."""
    width = _width(fan_out)
    n = 0
    for tree in range(nodes.roots.size):
        leaf = np.int64(nodes.roots[tree])
        for _ in range(nodes.heights[tree]):
            leaf = np.int64(nodes.children[uint64(leaf) * width])
        while leaf >= 0:
            at = uint64(leaf) * width
            for j in range(nodes.filled[leaf]):
                row = np.int32(nodes.rows[at + uint64(j)] - base)
                out_keys[n] = nodes.keys[at + uint64(j)]
                out_rows[n] = row
                n += row >= 0
            leaf = np.int64(nodes.following[leaf])
    return n
