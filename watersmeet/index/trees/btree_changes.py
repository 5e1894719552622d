"""The kernels of B+-Trees that change them: insert and delete sorted batches.

    insert   [10 20 30] full, and 25 to come:  [10] -> [20 25 30], and the separator 10 goes into the node above
    delete   [10] -> [20 25], 10 goes:         the leaf is freed, its child and a separator leave the node above

Leaves are looked up for some hundred entries at a time, and looked into once, before any of them changes: so misses are
under way together. Nodes know their parents, so that a split or a leaf that is freed finds its way up.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from watersmeet.atomics import fetch_add
from watersmeet.index.sorted.run_kernels import GREATEST, count_below
from watersmeet.index.trees.btree_kernels import (
    CHUNK,
    FREE_INNER,
    FREE_LEAF,
    INNERS_USED,
    LEAVES_USED,
    SPARE_INNERS,
    SPARE_LEAVES,
    count_upto,
    descend,
    node_width,
)
from watersmeet.index.trees.css_tree import route


@njit(inline="always")
def after(key):
    """The bound below which are the keys up to this one. (Of the greatest key none, but the trees allow for that.)"""
    return key + np.int64(key < GREATEST)


@njit
def _take(books, used, free, spare, above, keys, width):
    """A node: one that was freed, or the first never used. `used`, `free` and `spare` are places of `books`.

    Where trees change at the same time (shared_kernels.py) nothing is ever freed.
    """
    node = books[free]
    if node >= 0:
        books[free] = above[node]
    else:
        node = fetch_add(books, used, 1)
    fetch_add(books, spare, -1)
    for j in range(width):
        keys[uint64(node) * width + uint64(j)] = GREATEST
    return node


@njit
def take_leaf(nodes, width):
    leaf = _take(nodes.books, LEAVES_USED, FREE_LEAF, SPARE_LEAVES, nodes.leaf_above, nodes.keys, width)
    nodes.filled[leaf] = 0
    nodes.following[leaf] = -1
    nodes.preceding[leaf] = -1
    return leaf


@njit
def _take_inner(nodes, width):
    inner = _take(nodes.books, INNERS_USED, FREE_INNER, SPARE_INNERS, nodes.inner_above, nodes.separators, width)
    nodes.counts[inner] = 0
    return inner


@njit
def _place_of(nodes, width, inner, child):
    """Which child of an inner node this is."""
    at = uint64(inner) * width
    n = uint64(0)
    while nodes.children[at + n] != child:
        n += uint64(1)
    return np.int64(n)


@njit
def _adopt(nodes, width, above, inner, start):
    """Tell the children of an inner node, from `start` on, whose they are."""
    at = uint64(inner) * width
    for j in range(start, nodes.counts[inner]):
        above[nodes.children[at + uint64(j)]] = inner


@njit
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


@njit
def split(nodes, fan_out, width, leaf, place):
    """Move the upper half of a full leaf to a new one, which it returns.

    A key that comes behind all others leaves the old leaf full: where keys ascend none would come to fill it.
    """
    following = np.int64(nodes.following[leaf])
    half = fan_out if place == fan_out and following < 0 else fan_out // 2
    right = take_leaf(nodes, width)
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


@njit(inline="always")
def shift_up(keys, rows, start, stop):
    """Move the entries in keys[start:stop] one place on."""
    while stop > start:
        keys[stop] = keys[stop - uint64(1)]
        rows[stop] = rows[stop - uint64(1)]
        stop -= uint64(1)


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
    width = node_width(fan_out)
    leaf_keys, leaf_rows, filleds, following = nodes.keys, nodes.rows, nodes.filled, nodes.following
    n = keys.size
    while first < n:
        count = min(CHUNK, n - first)
        route(levels, keys, first, count, trees)
        for i in range(count):
            bounds[i] = after(keys[first + i])
            tree = trees[i]
            if nodes.roots[tree] < 0:
                if nodes.books[SPARE_LEAVES] == 0:
                    return first
                root = take_leaf(nodes, width)
                nodes.leaf_above[root] = -1 - tree
                nodes.roots[tree] = root
                nodes.heights[tree] = 0
        descend(nodes, width, bounds, count, trees, leaves, left)
        touched = np.int32(0)
        for i in range(count):  # into all leaves, so that misses are under way at once; bounds become places
            bounds[i] = count_upto(leaf_keys, filleds, width, leaves[i], keys[first + i])
            touched ^= leaf_rows[uint64(leaves[i]) * width + uint64(bounds[i])] ^ following[uint64(leaves[i])]
        left[0] = touched  # so that the reads are not optimised away
        target = np.int64(-1)
        leaf = np.int64(-1)
        end = np.int64(-1)
        for i in range(count):
            key = keys[first + i]
            place = bounds[i]
            if leaves[i] != target:
                target = leaves[i]
                leaf = target
                end = np.int64(following[uint64(leaf)])
                filled = np.int64(filleds[uint64(leaf)])
            else:
                filled = np.int64(filleds[uint64(leaf)])
                while following[uint64(leaf)] != end and key >= leaf_keys[uint64(leaf) * width + uint64(filled - 1)]:
                    leaf = np.int64(following[uint64(leaf)])
                    filled = np.int64(filleds[uint64(leaf)])
                place = count_upto(leaf_keys, filleds, width, leaf, key)
            if filled == fan_out:
                if nodes.books[SPARE_LEAVES] == 0 or nodes.books[SPARE_INNERS] <= nodes.heights[trees[i]]:
                    return first + i
                right = split(nodes, fan_out, width, leaf, place)
                filled = np.int64(filleds[uint64(leaf)])
                if place >= filled:
                    place -= filled
                    leaf = np.int64(right)
                    filled = np.int64(filleds[uint64(leaf)])
            at = uint64(leaf) * width
            shift_up(leaf_keys, leaf_rows, at + uint64(place), at + uint64(filled))
            leaf_keys[at + uint64(place)] = key
            leaf_rows[at + uint64(place)] = rows[first + i] + first_row
            filleds[uint64(leaf)] = filled + 1
        first += count
    return first


# -- deleting ------------------------------------------------------------------------------------------------------


@njit
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


@njit
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


@njit
def _free_leaf(nodes, width, leaf, instead):
    """Take out a leaf, not a root; what was looked for in it is to be looked for in another one."""
    before = np.int64(nodes.preceding[leaf])
    after = np.int64(nodes.following[leaf])
    if before >= 0:
        nodes.following[before] = after
    if after >= 0:
        nodes.preceding[after] = before
    nodes.filled[leaf] = -1
    nodes.following[leaf] = instead
    _drop_child(nodes, width, leaf)
    _lower_root(nodes, width, 0)


@njit
def _join_leaves(nodes, width, leaf, after):
    """Move the entries of the leaf `after` behind those of its sibling `leaf`."""
    to = uint64(leaf) * width + uint64(nodes.filled[leaf])
    source = uint64(after) * width
    for j in range(nodes.filled[after]):
        nodes.keys[to + uint64(j)] = nodes.keys[source + uint64(j)]
        nodes.rows[to + uint64(j)] = nodes.rows[source + uint64(j)]
    nodes.filled[leaf] += nodes.filled[after]
    _free_leaf(nodes, width, after, leaf)


@njit(nogil=True, cache=True)
def delete(nodes, fan_out, keys, rows, first_row):
    """Delete entries, sorted by key, from the only tree; returns how many were found: all, if all is well.

    As in `insert`, leaves are looked up before they change. No leaf is taken meanwhile, so one that has gone still
    says where its entries, or those that followed, are.
    """
    trees = np.zeros(CHUNK, np.int64)
    leaves = np.empty(CHUNK, np.int64)
    left = np.empty(CHUNK, np.int64)
    width = node_width(fan_out)
    leaf_keys, leaf_rows, filleds, following = nodes.keys, nodes.rows, nodes.filled, nodes.following
    above = nodes.leaf_above
    found = 0
    first = 0
    while first < keys.size:
        count = min(CHUNK, keys.size - first)
        descend(nodes, width, keys[first : first + count], count, trees, leaves, left)
        touched = np.int32(0)
        for i in range(count):  # into all leaves, so that misses are under way at once
            at = uint64(leaves[i]) * width
            touched ^= leaf_rows[at + count_below(leaf_keys, at, width, keys[first + i])]
            touched ^= filleds[uint64(leaves[i])]
        left[0] = touched  # so that the reads are not optimised away
        for i in range(count):
            key = keys[first + i]
            row = np.int32(rows[first + i] + first_row)
            leaf = leaves[i]
            while filleds[uint64(leaf)] < 0:
                leaf = np.int64(following[uint64(leaf)])
            at = uint64(leaf) * width
            filled = uint64(filleds[uint64(leaf)])
            j = count_below(leaf_keys, at, width, key)
            while leaf >= 0:
                while j < filled and leaf_keys[at + j] == key and leaf_rows[at + j] != row:
                    j += uint64(1)
                if j < filled:
                    break
                leaf = np.int64(following[uint64(leaf)])
                j = uint64(0)
                if leaf >= 0:
                    at = uint64(leaf) * width
                    filled = uint64(filleds[uint64(leaf)])
            if leaf < 0 or leaf_keys[at + j] != key:
                continue
            for k in range(at + j, at + filled - uint64(1)):
                leaf_keys[k] = leaf_keys[k + uint64(1)]
                leaf_rows[k] = leaf_rows[k + uint64(1)]
            leaf_keys[at + filled - uint64(1)] = GREATEST
            filled -= uint64(1)
            filleds[uint64(leaf)] = filled
            found += 1
            if uint64(2) * filled <= uint64(fan_out) and above[uint64(leaf)] >= 0:
                after = np.int64(following[uint64(leaf)])
                if filled == uint64(0):
                    _free_leaf(nodes, width, leaf, after)
                elif after >= 0 and above[uint64(after)] == above[uint64(leaf)]:
                    if uint64(4) * (filled + uint64(filleds[uint64(after)])) <= uint64(3 * fan_out):
                        _join_leaves(nodes, width, leaf, after)
        first += count
    return found
