"""The kernels of the WiB+-Tree: go down with sorted keys, insert, split.

Inner nodes are rows of `uppers` and `children` (flat, `fan_out` places a node): the greatest key that belongs below
each child, ascending, and the child. Behind the last child stands int64's greatest key, so that the child for a key is
the number of places that are below it, counted without a branch. Children of the lowest inner nodes are leaves, by the
number of their first entry in the LLAT.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import Array
from watersmeet.index.tables.llat_kernels import (
    BEGIN,
    COLUMNS,
    COUNT,
    GREATEST,
    GREATEST_KEY,
    LEAST,
    LEAST_KEY,
    NEXT,
    RIGHT,
    TAIL,
    UPPER,
    link_entry,
    open_entry,
    put,
)

ROOT, HEIGHT, NODES, ENTRIES, LEAVES = 0, 1, 2, 3, 4

_SAMPLE = 16  # keys of a leaf among which the one to split it at is chosen


class Inner(NamedTuple):
    """The inner nodes."""

    uppers: Array
    children: Array
    sizes: Array  # children of each node
    tree: Array  # root, height, nodes in use, entries in use, leaves
    fan_out: int


@njit(inline="always")
def _slot(uppers, fan_out, node, key):
    """Which child of a node a key belongs below."""
    begin = uint64(node) * uint64(fan_out)
    slot = uint64(0)
    for u in range(uint64(fan_out)):
        slot += uint64(uppers[begin + u] < key)
    return slot


@njit(nogil=True, cache=True)
def locate(inner, keys, heads):
    """heads[i] becomes the leaf of the sorted keys[i].

    Each search starts with the path of the last one: up, as long as the key is beyond the node, then down.
    """
    uppers, children, tree, fan_out = inner.uppers, inner.children, inner.tree, inner.fan_out
    bottom = tree[HEIGHT] - 1
    path = np.empty(tree[HEIGHT], np.int64)
    ends = np.empty(tree[HEIGHT], np.int64)
    path[0] = tree[ROOT]
    ends[:] = LEAST_KEY
    ends[0] = GREATEST_KEY
    leaf = np.int32(0)
    leaf_upper = np.int64(LEAST_KEY)
    for i in range(keys.size):
        key = keys[i]
        if key > leaf_upper or i == 0:
            level = bottom
            while level > 0 and (key > ends[level] or i == 0):
                level -= 1
            while True:
                at = uint64(path[level]) * uint64(fan_out) + _slot(uppers, fan_out, path[level], key)
                if level == bottom:
                    leaf = children[at]
                    leaf_upper = uppers[at]
                    break
                level += 1
                path[level] = children[at]
                ends[level] = uppers[at]
        heads[i] = leaf


@njit(inline="always")
def _insert_child(inner, node, slot, upper, child):
    """Cut the range of the child at `slot`: it keeps the keys up to `upper`, the new child gets the others."""
    uppers, children, sizes = inner.uppers, inner.children, inner.sizes
    begin = node * inner.fan_out
    for u in range(sizes[node], slot, -1):
        uppers[begin + u] = uppers[begin + u - 1]
        children[begin + u] = children[begin + u - 1]
    uppers[begin + slot] = upper
    children[begin + slot + 1] = child
    sizes[node] += 1


@njit(inline="always")
def _split_node(inner, node):
    """Move the upper half of a full node to a new one; returns (the greatest key of what stays, the new node)."""
    uppers, children, sizes, fan_out = inner.uppers, inner.children, inner.sizes, inner.fan_out
    new = inner.tree[NODES]
    inner.tree[NODES] += 1
    half = fan_out // 2
    begin = node * fan_out
    to = new * fan_out
    for u in range(fan_out):
        uppers[to + u] = GREATEST_KEY
    for u in range(half, fan_out):
        uppers[to + u - half] = uppers[begin + u]
        children[to + u - half] = children[begin + u]
        uppers[begin + u] = GREATEST_KEY
    sizes[new] = fan_out - half
    sizes[node] = half
    return uppers[begin + half - 1], new


@njit
def _insert_leaf(inner, upper, leaf):
    """Tell the inner nodes that the leaf in whose range `upper` is ends there, and that `leaf` follows.

    Full nodes are split on the way down, so that there is always room for what comes up.
    """
    uppers, children, sizes, tree, fan_out = inner.uppers, inner.children, inner.sizes, inner.tree, inner.fan_out
    root = tree[ROOT]
    if sizes[root] == fan_out:
        key, new = _split_node(inner, root)
        top = tree[NODES]
        tree[NODES] += 1
        for u in range(fan_out):
            uppers[top * fan_out + u] = GREATEST_KEY
        uppers[top * fan_out] = key
        children[top * fan_out] = root
        children[top * fan_out + 1] = new
        sizes[top] = 2
        tree[ROOT] = top
        tree[HEIGHT] += 1
    node = tree[ROOT]
    for _ in range(tree[HEIGHT] - 1):
        slot = np.int64(_slot(uppers, fan_out, node, upper))
        child = np.int64(children[node * fan_out + slot])
        if sizes[child] == fan_out:
            key, new = _split_node(inner, child)
            _insert_child(inner, node, slot, key, new)
            if upper > key:
                child = new
        node = child
    slot = np.int64(_slot(uppers, fan_out, node, upper))
    _insert_child(inner, node, slot, upper, leaf)
    tree[LEAVES] += 1


@njit
def _cut(keys, greatest):
    """A key that about half of the keys are not above, and some are: of a sample, the one whose rank is nearest to it.

    Ranks are counted, which needs no order, no branch and no second array.
    """
    cut = np.int64(LEAST_KEY)
    best = keys.size
    for s in range(min(keys.size, _SAMPLE)):
        key = keys[s * keys.size // min(keys.size, _SAMPLE)]
        rank = 0
        for other in keys:
            rank += 1 if other <= key else 0
        off = abs(2 * rank - keys.size)
        if off < best and key < greatest:
            best = off
            cut = key
    if best == keys.size:  # all of the sample are the greatest
        for key in keys:
            cut = max(cut, key if key < greatest else cut)
    return cut


@njit
def _split_leaf(table, leaf, new):
    """Divide the tuples of a leaf with two keys or more between it and an empty one; returns where."""
    keys, rows, headers = table.keys, table.rows, table.headers
    h = uint64(leaf) * COLUMNS
    begin = headers[h + BEGIN]
    end = begin + headers[h + COUNT]
    cut = _cut(keys[begin:end], headers[h + GREATEST])
    stay = begin
    to = headers[uint64(new) * COLUMNS + BEGIN]
    move = to
    right_least = headers[h + GREATEST]
    for j in range(begin, end):
        key = keys[j]
        row = rows[j]
        keys[stay] = key
        rows[stay] = row
        keys[move] = key
        rows[move] = row
        goes = np.int64(key > cut)
        stay += 1 - goes
        move += goes
        right_least = min(right_least, key if goes else right_least)
    g = uint64(new) * COLUMNS
    headers[g + COUNT] = move - to
    headers[g + LEAST] = right_least
    headers[g + GREATEST] = headers[h + GREATEST]
    headers[h + COUNT] = stay - begin
    headers[h + GREATEST] = cut  # it is one of the keys
    return cut


@njit
def _make_room(table, capacity, inner, leaf, key):
    """A leaf is full, or has further entries, of one key, and this is another: link an entry, or split.

    Returns the leaf that the key now belongs to.
    """
    headers = table.headers
    new = inner.tree[ENTRIES]
    inner.tree[ENTRIES] += 1
    begin = new * capacity
    h = uint64(leaf) * COLUMNS
    least = headers[h + LEAST]
    greatest = headers[h + GREATEST]
    if least == greatest == key:
        link_entry(headers, leaf, new, begin)
        return leaf
    g = uint64(new) * COLUMNS
    open_entry(headers, new, begin, headers[h + UPPER], headers[h + RIGHT])
    if key > greatest and (least == greatest or headers[h + RIGHT] < 0):
        cut = greatest  # what is here stays: of one key, or of keys that increase
    elif least == greatest:  # and the key is below: the tuples change place with the empty entry
        cut = least - 1
        headers[g + BEGIN] = headers[h + BEGIN]
        headers[g + COUNT] = headers[h + COUNT]
        headers[g + LEAST] = least
        headers[g + GREATEST] = greatest
        headers[g + NEXT] = headers[h + NEXT]
        if headers[h + TAIL] != leaf:
            headers[g + TAIL] = headers[h + TAIL]
        open_entry(headers, leaf, begin, cut, np.int64(new))
    else:
        cut = _split_leaf(table, leaf, new)
    headers[h + UPPER] = cut
    headers[h + RIGHT] = new
    _insert_leaf(inner, cut, np.int32(new))
    return leaf if key <= cut else new


@njit(nogil=True, cache=True)
def insert(table, capacity, inner, heads, i, batch_keys, batch_rows, first_row):
    """Tuples i and on, each to its leaf; returns how far it came before there might be too few entries or nodes.

    A leaf may have been split since `heads` was found: then the key's leaf is further to the right, and not to the left
    of the last key's.
    """
    keys, rows, headers = table.keys, table.rows, table.headers
    tree, nodes = inner.tree, inner.sizes.size
    entries = headers.size // np.int64(COLUMNS)
    head = np.int32(-1)
    leaf = np.int64(-1)
    while i < batch_keys.size:
        key = batch_keys[i]
        if heads[i] != head:
            head = heads[i]
            leaf = np.int64(head)
        while key > headers[uint64(leaf) * COLUMNS + UPPER]:
            leaf = headers[uint64(leaf) * COLUMNS + RIGHT]
        tail = headers[uint64(leaf) * COLUMNS + TAIL]
        full = headers[uint64(tail) * COLUMNS + COUNT] == capacity
        if full or (tail != leaf and key != headers[uint64(leaf) * COLUMNS + LEAST]):
            if tree[ENTRIES] == entries or tree[NODES] + tree[HEIGHT] + 1 > nodes:
                return i
            leaf = np.int64(_make_room(table, capacity, inner, leaf, key))
            tail = headers[uint64(leaf) * COLUMNS + TAIL]
        put(keys, rows, headers, tail, key, np.int32(batch_rows[i] + first_row))
        i += 1
    return i
