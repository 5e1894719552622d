"""Joins of windows on a CPU: kernels that one thread runs, without Python's lock.

Each works on a *part* of the keys: several threads that share a window have parts of their own, and nothing to wait
for. All take tuples of one side, look them up among those of the other that are stored, and store them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.atomics import fetch_add

EMPTY = -1  # keys are not negative


@njit
def _hash(key):
    """Spread over 32 bits."""
    return (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)


@njit(nogil=True, cache=True)
def pick(words, stride, start, stop, first, part, parts, keys, rows):
    """Keys and rows of the tuples from start to stop that belong to a part; rows count from `first`. Gives how many."""
    n = 0
    for i in range(start, stop):
        key = words[i * stride]
        keys[n] = key
        rows[n] = i - first
        if parts == 1:
            n += 1
        else:
            n += np.int64((_hash(key) * np.uint64(parts)) >> np.uint64(32)) == part
    return n


# -- hash ----------------------------------------------------------------------------------------------------------


@njit
def _slot(table, key):
    mask = table.size - 1
    at = np.int64(_hash(key)) & mask
    while table[at] != key and table[at] != EMPTY:
        at = (at + 1) & mask
    return at


@njit(nogil=True, cache=True)
def count_by_key(keys, n, at, table, used, own, other, stores):
    """From tuple `at` on: how many of the other side have each one's key; then one more of this side has.

    Gives (results, tuples done, keys in the table): it stops where the table is more than half full.
    """
    total = 0
    while at < n and 2 * used < table.size:
        slot = _slot(table, keys[at])
        if table[slot] == EMPTY:
            if stores:
                table[slot] = keys[at]
                own[slot] = 1
                used += 1
        else:
            total += other[slot]
            own[slot] += stores
        at += 1
    return total, at, used


@njit(nogil=True, cache=True)
def rehash(table, columns, larger, to):
    """What is in a table into a larger one; columns[c, slot] goes to to[c, its slot there]."""
    for slot in range(table.size):
        if table[slot] != EMPTY:
            at = _slot(larger, table[slot])
            larger[at] = table[slot]
            for c in range(columns.shape[0]):
                to[c, at] = columns[c, slot]


@njit(nogil=True, cache=True)
def chain(keys, rows, n, table, used, heads, following):
    """Store tuples behind their keys, the newest first, each with the row of the one before. Gives how many keys."""
    for i in range(n):
        slot = _slot(table, keys[i])
        if table[slot] == EMPTY:
            table[slot] = keys[i]
            used += 1
        following[rows[i]] = heads[slot]
        heads[slot] = rows[i]
    return used


@njit(nogil=True, cache=True)
def chained_pairs(keys, rows, n, table, heads, following, cursor, atomic, flipped, lefts, rights):
    """Pairs of tuples with those that are stored with the same keys, from place cursor[0] on; counted where there is no
    room (lefts is empty). atomic: other threads write to the same place."""
    at = cursor[0]
    writes = lefts.size > 0
    for i in range(n):
        slot = _slot(table, keys[i])
        if table[slot] == EMPTY:
            continue
        row = heads[slot]
        while row >= 0:
            if writes:
                if atomic:
                    at = fetch_add(cursor, 0, 1)
                if at < lefts.size:
                    lefts[at] = row if flipped else rows[i]
                    rights[at] = rows[i] if flipped else row
            at += 1
            row = following[row]
    if not atomic or not writes:
        cursor[0] = at


# -- nested loop ---------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def loop_count(keys, n, others, m):
    total = 0
    for i in range(n):
        key = keys[i]
        for j in range(m):
            total += others[j] == key
    return total


@njit(nogil=True, cache=True)
def loop_pairs(keys, rows, n, others, other_rows, m, cursor, atomic, flipped, lefts, rights):
    at = cursor[0]
    for i in range(n):
        key = keys[i]
        for j in range(m):
            if others[j] == key:
                if atomic:
                    at = fetch_add(cursor, 0, 1)
                if at < lefts.size:
                    lefts[at] = other_rows[j] if flipped else rows[i]
                    rights[at] = rows[i] if flipped else other_rows[j]
                at += 1
    if not atomic:
        cursor[0] = at


# -- sort-merge ----------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def merge_count(keys, n, others, m):
    """Results of two sorted sides."""
    total = 0
    i = j = 0
    while i < n and j < m:
        if keys[i] < others[j]:
            i += 1
        elif keys[i] > others[j]:
            j += 1
        else:
            key = keys[i]
            first, second = i, j
            while i < n and keys[i] == key:
                i += 1
            while j < m and others[j] == key:
                j += 1
            total += (i - first) * (j - second)
    return total


@njit(nogil=True, cache=True)
def merge_pairs(keys, rows, n, others, other_rows, m, cursor, atomic, flipped, lefts, rights):
    at = cursor[0]
    i = j = 0
    while i < n and j < m:
        if keys[i] < others[j]:
            i += 1
        elif keys[i] > others[j]:
            j += 1
        else:
            key = keys[i]
            second = j
            while j < m and others[j] == key:
                j += 1
            while i < n and keys[i] == key:
                for k in range(second, j):
                    if atomic:
                        at = fetch_add(cursor, 0, 1)
                    if at < lefts.size:
                        lefts[at] = other_rows[k] if flipped else rows[i]
                        rights[at] = rows[i] if flipped else other_rows[k]
                    at += 1
                i += 1
    if not atomic:
        cursor[0] = at


@njit(nogil=True, cache=True)
def merged(keys, rows, n, new_keys, new_rows, m, to_keys, to_rows):
    """Two sorted runs as one."""
    i = j = 0
    for at in range(n + m):
        if j >= m or (i < n and keys[i] <= new_keys[j]):
            to_keys[at], to_rows[at] = keys[i], rows[i]
            i += 1
        else:
            to_keys[at], to_rows[at] = new_keys[j], new_rows[j]
            j += 1
