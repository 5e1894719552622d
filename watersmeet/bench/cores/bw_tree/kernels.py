"""What threads do in a Bw-Tree at the same time: find, post, consolidate, split, scan. tree.py says what it looks like.

Whatever changes is one compare-and-swap of an entry of the mapping table. Who loses one looks again; nobody waits.

`todo` is a stack of what is still to be posted: (kind, level, key, row, child). `find` puts what it comes across there:
a node that it reached from above, though what it looks for lies behind its fence, has been split, and its parent may
not know. Whoever sees that posts the entry, unless somebody has.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.atomics import compare_and_swap, load, store
from watersmeet.bench.cores.bw_tree.records import (
    BELOW,
    CHILD,
    DEPTH,
    GREATEST,
    INSERT,
    KEY,
    KIND,
    LEAST,
    LEVEL,
    LINE,
    ROOT,
    ROW,
    SIZE,
    SPARE,
    SPLIT,
    claim,
    enter,
    give_back,
    leave,
    release,
    retire,
    shared,
    take,
    take_id,
    words,
)

INNER_CHAIN = 2  # deltas of an inner node: all look there, and few change it
MOST_POSTS = 64  # posts that one remembers: for more splits than these it is left to others


@njit(inline="always")
def less(key, row, other_key, other_row):
    return key < other_key or (key == other_key and row < other_row)


@njit(inline="always")
def _below(bases, keys, capacity, size, key, row):
    """How many entries of a base are less."""
    first = 0
    while size > 0:
        half = size >> 1
        at = keys + first + half
        if less(bases[at], bases[at + capacity], key, row):
            first += half + 1
            size -= half + 1
        else:
            size = half
    return first


@njit(inline="always")
def _level(tree, ref):
    return tree.deltas[LINE * ref + LEVEL] if ref >= 0 else tree.bases[words(tree) * ~ref + LEVEL]


@njit(inline="always")
def _depth(tree, ref):
    return tree.deltas[LINE * ref + DEPTH] if ref >= 0 else 0


@njit
def find(tree, level, key, row, todo, n):
    """The node of a level that (key, row) belongs in, its newest record, and how many posts are to be done, of n.

    The node is -1 if the tree is not that high.
    """
    deltas, bases, capacity = tree.deltas, tree.bases, tree.capacity
    node = load(tree.control, ROOT)
    from_above = True
    while True:
        head = load(tree.table, node)
        here = _level(tree, head)
        if here < level:
            return np.int64(-1), head, n
        inner = here > level
        right, best = np.int64(-1), np.int64(-1)
        best_key, best_row, fence_key, fence_row = LEAST, LEAST, LEAST, LEAST
        ref = head
        while ref >= 0:
            at = LINE * ref
            if deltas[at + KIND] == SPLIT:
                if right < 0:
                    right, fence_key, fence_row = deltas[at + CHILD], deltas[at + KEY], deltas[at + ROW]
            elif inner:
                entry_key, entry_row = deltas[at + KEY], deltas[at + ROW]
                if not less(key, row, entry_key, entry_row) and (
                    best < 0 or less(best_key, best_row, entry_key, entry_row)
                ):
                    best, best_key, best_row = deltas[at + CHILD], entry_key, entry_row
            ref = deltas[at + BELOW]
        base = words(tree) * ~ref
        if right < 0:
            right, fence_key, fence_row = bases[base + CHILD], bases[base + KEY], bases[base + ROW]
        if right >= 0 and not less(key, row, fence_key, fence_row):
            if from_above and n < MOST_POSTS:
                todo[n, 0], todo[n, 1], todo[n, 2] = INSERT, here + 1, fence_key
                todo[n, 3], todo[n, 4] = fence_row, right
                n += 1
            node = right
            continue
        if not inner:
            return node, head, n
        keys = base + LINE
        place = _below(bases, keys, capacity, bases[base + SIZE], key, row)
        if place == bases[base + SIZE] or less(
            key, row, bases[keys + place], bases[keys + place + capacity]
        ):  # the last that is not greater
            place -= 1
        if best < 0 or less(best_key, best_row, bases[keys + place], bases[keys + place + capacity]):
            best = bases[keys + place + 2 * capacity]
        node = best


@njit
def _has(tree, ref, key, row):
    """Whether an inner node has an entry."""
    deltas, bases = tree.deltas, tree.bases
    while ref >= 0:
        at = LINE * ref
        if deltas[at + KIND] == INSERT and deltas[at + KEY] == key and deltas[at + ROW] == row:
            return True
        ref = deltas[at + BELOW]
    base = words(tree) * ~ref
    keys, size = base + LINE, bases[base + SIZE]
    place = _below(bases, keys, tree.capacity, size, key, row)
    return place < size and bases[keys + place] == key and bases[keys + place + tree.capacity] == row


@njit
def post(tree, book, todo, n):
    """Do the first n that are to be done, the last of them first, and what that brings with it."""
    while n > 0:
        kind, level, key, row, child = todo[n - 1]
        node, head, more = find(tree, level, key, row, todo, n)
        if more > n:  # splits that it came across are completed first
            n = more
            continue
        if node < 0:
            if _grow(tree, book, level, key, row, child):
                n -= 1
            continue
        if level > 0 and _has(tree, head, key, row):
            n -= 1
            continue
        if _depth(tree, head) >= (tree.chain if level == 0 else INNER_CHAIN):
            n = consolidate(tree, book, node, head, todo, n)
            continue
        i = take(tree, book, 0)
        at = LINE * i
        tree.deltas[at + KIND], tree.deltas[at + LEVEL] = kind, level
        tree.deltas[at + DEPTH], tree.deltas[at + BELOW] = _depth(tree, head) + 1, head
        tree.deltas[at + KEY], tree.deltas[at + ROW], tree.deltas[at + CHILD] = key, row, child
        if compare_and_swap(tree.table, node, head, i):
            n -= 1
        else:
            give_back(tree, book, 0, i)


@njit
def _entry(tree, base, place, key, row, child):
    at = base + LINE + place
    tree.bases[at] = key
    tree.bases[at + tree.capacity] = row
    tree.bases[at + 2 * tree.capacity] = child


@njit
def _head(tree, base, size, level, key, row, right):
    bases = tree.bases
    bases[base + SIZE], bases[base + LEVEL], bases[base + DEPTH], bases[base + BELOW] = size, level, 0, 0
    bases[base + KEY], bases[base + ROW], bases[base + CHILD] = key, row, right


@njit
def _grow(tree, book, level, key, row, child):
    """Put a root above the one there is, which has been split; False: somebody has."""
    root = load(tree.control, ROOT)
    if _level(tree, load(tree.table, root)) >= level:
        return False
    b, node = take(tree, book, 1), take_id(tree, book)
    base = words(tree) * b
    _head(tree, base, 2, level, 0, 0, -1)
    _entry(tree, base, 0, LEAST, LEAST, root)
    _entry(tree, base, 1, key, row, child)
    store(tree.table, node, ~b)
    if compare_and_swap(tree.control, ROOT, root, node):
        return True
    give_back(tree, book, 1, b)
    tree.control[book + SPARE] = node
    return False


@njit
def _changes(tree, ref):
    """The newest delta of each key and row, in their order, how many there are, and the split delta or -1."""
    deltas = tree.deltas
    changes = np.empty(_depth(tree, ref) + 1, np.int64)
    n, split = 0, np.int64(-1)
    while ref >= 0:
        at = LINE * ref
        if deltas[at + KIND] == SPLIT:
            split = ref
        else:
            key, row = deltas[at + KEY], deltas[at + ROW]
            place = n
            while place > 0:
                other = LINE * changes[place - 1]
                if not less(key, row, deltas[other + KEY], deltas[other + ROW]):
                    break
                place -= 1
            other = LINE * changes[max(place - 1, 0)]
            if place == 0 or deltas[other + KEY] != key or deltas[other + ROW] != row:
                for i in range(n, place, -1):
                    changes[i] = changes[i - 1]
                changes[place] = ref
                n += 1
        ref = deltas[at + BELOW]
    return changes, n, split, ~ref


@njit
def consolidate(tree, book, node, head, todo, n):
    """Put one base in place of a node's records if `head` is still the newest; with a split delta on it if it is large.

    The split's entry for the parent goes to `todo`, of which n are taken; says how many are then.
    """
    deltas, bases, capacity = tree.deltas, tree.bases, tree.capacity
    level = _level(tree, head)
    changes, count, split, old = _changes(tree, head)
    source = words(tree) * old
    keys, size, right = source + LINE, bases[source + SIZE], bases[source + CHILD]
    fence_key, fence_row = bases[source + KEY], bases[source + ROW]
    if split >= 0:
        at = LINE * split
        fence_key, fence_row, right = deltas[at + KEY], deltas[at + ROW], deltas[at + CHILD]
        size = _below(bases, keys, capacity, size, fence_key, fence_row)
    new = take(tree, book, 1)
    base = words(tree) * new
    total, i = 0, 0
    for c in range(count + 1):
        last = c == count
        at = 0 if last else LINE * changes[c]
        key, row = deltas[at + KEY], deltas[at + ROW]
        while i < size and (last or less(bases[keys + i], bases[keys + i + capacity], key, row)):
            _entry(tree, base, total, bases[keys + i], bases[keys + i + capacity], bases[keys + i + 2 * capacity])
            total += 1
            i += 1
        if not last:
            if i < size and bases[keys + i] == key and bases[keys + i + capacity] == row:
                i += 1
            if deltas[at + KIND] == INSERT:
                _entry(tree, base, total, key, row, deltas[at + CHILD])
                total += 1
    _head(tree, base, total, level, fence_key, fence_row, right)
    if total <= tree.fan_out:
        if compare_and_swap(tree.table, node, head, ~new):
            _retire_all(tree, book, head)
        else:
            give_back(tree, book, 1, new)
        return n
    half = total >> 1
    key, row = bases[base + LINE + half], bases[base + LINE + half + capacity]
    other, sibling, delta = take(tree, book, 1), take_id(tree, book), take(tree, book, 0)
    target = words(tree) * other
    for place in range(half, total):
        at = base + LINE + place
        _entry(tree, target, place - half, bases[at], bases[at + capacity], bases[at + 2 * capacity])
    _head(tree, target, total - half, level, fence_key, fence_row, right)
    store(tree.table, sibling, ~other)
    at = LINE * delta
    deltas[at + KIND], deltas[at + LEVEL], deltas[at + DEPTH], deltas[at + BELOW] = SPLIT, level, 1, ~new
    deltas[at + KEY], deltas[at + ROW], deltas[at + CHILD] = key, row, sibling
    if compare_and_swap(tree.table, node, head, delta):
        _retire_all(tree, book, head)
        if n < MOST_POSTS:
            todo[n, 0], todo[n, 1], todo[n, 2], todo[n, 3], todo[n, 4] = INSERT, level + 1, key, row, sibling
            n += 1
    else:
        give_back(tree, book, 1, new)
        give_back(tree, book, 1, other)
        give_back(tree, book, 0, delta)
        tree.control[book + SPARE] = sibling
    return n


@njit
def _retire_all(tree, book, ref):
    while ref >= 0:
        below = tree.deltas[LINE * ref + BELOW]
        retire(tree, book, 0, ref)
        ref = below
    retire(tree, book, 1, ~ref)


@njit
def _hidden(tree, ref, until, key, row):
    """Whether a chain has something about (key, row) above a record."""
    deltas = tree.deltas
    while ref != until:
        at = LINE * ref
        if deltas[at + KEY] == key and deltas[at + ROW] == row and deltas[at + KIND] != SPLIT:
            return True
        ref = deltas[at + BELOW]
    return False


@njit
def scan(tree, book, low, most, offset, edge, p, out_probe, out_row, n, todo):
    """Write what has a key from low to most, as (p, row), in no order, and say how many are written then; -1: no room.

    Rows are those stored less `offset`; those from 0 to below `edge` are kept.
    """
    deltas, bases, capacity = tree.deltas, tree.bases, tree.capacity
    node, head, noted = find(tree, 0, low, LEAST, todo, 0)
    if noted:
        post(tree, book, todo, noted)
    while True:
        right, fence_key, fence_row = np.int64(-1), GREATEST, GREATEST
        changed = False
        ref = head
        while ref >= 0:
            at = LINE * ref
            key, row = deltas[at + KEY], deltas[at + ROW]
            if deltas[at + KIND] == SPLIT:
                right, fence_key, fence_row = deltas[at + CHILD], key, row
            elif low <= key and key <= most:
                if deltas[at + KIND] == INSERT and not (changed and _hidden(tree, head, ref, key, row)):
                    if n >= out_row.size:
                        return np.int64(-1)
                    out_probe[n], out_row[n] = p, row - offset
                    n += np.int64(row - offset >= 0) & np.int64(row - offset < edge)
                changed = True
            ref = deltas[at + BELOW]
        base = words(tree) * ~ref
        if right < 0:
            right, fence_key, fence_row = bases[base + CHILD], bases[base + KEY], bases[base + ROW]
        keys, size = base + LINE, bases[base + SIZE]
        i = _below(bases, keys, capacity, size, low, LEAST)
        while i < size and bases[keys + i] <= most:
            key, row = bases[keys + i], bases[keys + i + capacity]
            if right >= 0 and not less(key, row, fence_key, fence_row):
                break
            if not (changed and _hidden(tree, head, ref, key, row)):
                if n >= out_row.size:
                    return np.int64(-1)
                out_probe[n], out_row[n] = p, row - offset
                n += np.int64(row - offset >= 0) & np.int64(row - offset < edge)
            i += 1
        if right < 0 or fence_key > most:
            return n
        head = load(tree.table, right)


@njit(nogil=True, cache=True)
def change(tree, kind, keys, rows):
    """Insert or delete entries, one after the other."""
    tree = shared(tree)
    book = claim(tree.control)
    todo = np.empty((MOST_POSTS, 5), np.int64)
    for i in range(keys.size):
        enter(tree.control, book)
        todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = kind, 0, keys[i], rows[i], -1
        post(tree, book, todo, 1)
        leave(tree, book)
    release(tree.control, book)


@njit(nogil=True, cache=True)
def search(tree, lows, highs, out_probe, out_row):
    """Write the pairs (range, row) of all ranges, and say how many; -1: no room."""
    tree = shared(tree)
    book = claim(tree.control)
    todo = np.empty((MOST_POSTS, 5), np.int64)
    n = np.int64(0)
    for p in range(lows.size):
        if n >= 0 and lows[p] <= highs[p]:
            enter(tree.control, book)
            n = scan(tree, book, lows[p], highs[p], 0, GREATEST, p, out_probe, out_row, n, todo)
            leave(tree, book)
    release(tree.control, book)
    return n
