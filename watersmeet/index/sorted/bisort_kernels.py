"""The kernels of BI-Sort: search sorted probes in a run, write out or count their partners, merge a batch into a run.

A run keeps its keys in one of three kinds, a constant to the compiler:

    PACKED      one array: (key - base) << shift | row, so that a probe that finds a key has its row as well
    SINGLE      `ordered` and `rows` apart, for keys that span too many bits
    COMPOSITE   `equal`, `ordered` and `rows`

`code` is (base, greatest key - base, shift) of a packed run. Indices are unsigned, since Numba else tests for negative
ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import BY_ROW, BY_TICK, UNBOUNDED, bounds_of, in_bounds
from watersmeet.prefetch import prefetch

PACKED, SINGLE, COMPOSITE = 0, 1, 2

CHUNK = 512  # probes that are searched for before their partners are written out
SAMPLED = 512  # keys of which samples are taken at a time
FEW = 4  # keys that are looked at whether or not they are partners; no more than there are sentinels
GREATEST = np.iinfo(np.int64).max


@njit(inline="always")
def _from(kind, code, key):
    """A low bound as it compares with what the run holds."""
    if kind != PACKED:
        return key
    if key <= code[0]:
        return np.int64(0)
    if key > code[0] + code[1]:
        return np.int64(GREATEST)
    return (key - code[0]) << code[2]


@njit(inline="always")
def _to(kind, code, key):
    """A high bound, likewise; always below the sentinels of a packed run."""
    if kind != PACKED:
        return key
    if key < code[0]:
        return np.int64(-1)
    if key >= code[0] + code[1]:
        return np.int64(GREATEST - 1)
    return ((key - code[0] + 1) << code[2]) - 1


@njit(inline="always")
def _row(kind, code, ordered, rows, j):
    if kind == PACKED:
        return np.int32(ordered[j] & ((np.int64(1) << code[2]) - 1))
    return rows[j]


@njit(inline="always")
def _below(kind, equal, ordered, j, e, key):
    if kind == COMPOSITE:
        return (equal[j] < e) | ((equal[j] == e) & (ordered[j] < key))
    return ordered[j] < key


@njit(inline="always")
def upto(kind, equal, ordered, j, e, key):
    if kind == COMPOSITE:
        return (equal[j] < e) | ((equal[j] == e) & (ordered[j] <= key))
    return ordered[j] <= key


@njit(inline="always")
def _count_below(kind, width, equal, ordered, at, e, key):
    n = uint64(0)
    for u in range(width):
        n += uint64(1) if _below(kind, equal, ordered, at + uint64(u), e, key) else uint64(0)
    return n


@njit(inline="always")
def range_end(kind, equal, ordered, j, end, e, key):
    """The first place from j on, and up to `end`, whose key is above this one: by eights, then in doubling steps."""
    step = uint64(8)
    while j + step <= end and upto(kind, equal, ordered, j + step - uint64(1), e, key):
        j += step
        step <<= uint64(1)
    while step > uint64(8):
        step >>= uint64(1)
        if j + step <= end and upto(kind, equal, ordered, j + step - uint64(1), e, key):
            j += step
    while j < end and upto(kind, equal, ordered, j, e, key):
        j += uint64(1)
    return j


@njit(forceinline=True)
def _search(
    kind, width, code, equal, ordered, rows, s_equal, s_ordered, levels, top, at, p_equal, lows, first, count, starts,
):  # fmt: skip
    """starts[i] becomes the first place in the run that is not below the sorted probe first + i.

    `levels` has where each level of samples begins and how many it holds; `top` is the level to walk (0: the run
    itself), `at` where the walk stands. Returns where it stands in the end. Behind every level are sentinels, which
    are below nothing: no search goes on beyond them.

    All probes go down a level before any goes down the next, and each asks for the partition it will look into there:
    misses, but many of them are under way at once. It asks for the next partition as well, where its range may go on.
    Where rows lie apart the last pass also reads one of each partition, to have that line at hand when pairs are
    written out.
    """
    w = uint64(width)
    last = uint64(width - 1)
    e = np.int64(0)
    touched = np.int32(0)
    for level in range(top, -1, -1):  # one loop for all levels: what is written once is compiled once
        above = level > 0
        of_equal, of_ordered = (s_equal, s_ordered) if above else (equal, ordered)
        begin, n = uint64(levels[level, 0]), uint64(levels[level, 1])
        next_ordered, below = (s_ordered, uint64(levels[level - 1, 0])) if level > 1 else (ordered, uint64(0))
        for i in range(count):
            low = _from(kind, code, lows[first + i])
            if kind == COMPOSITE:
                e = p_equal[first + i]
            if level == top:
                while at < n and _below(kind, of_equal, of_ordered, begin + at + last, e, low):
                    at += w
                s = at
            else:
                s = uint64(starts[i]) * w
            if kind != PACKED and not above:
                touched ^= rows[s]
            s += _count_below(kind, width, of_equal, of_ordered, begin + s, e, low)
            starts[i] = s
            if above:
                prefetch(next_ordered, below + s * w)
                prefetch(next_ordered, below + s * w + w)
    starts[count] = touched  # so that the reads are not optimised away
    return at


@cache
def find_kernel(kind: int, width: int, mode: int):
    """Search and write out pairs, for one kind of keys, one width of partitions (0: an argument says which) and one way
    of comparing ticks: all constants to the compiler, which unrolls and drops branches by them."""

    @njit(nogil=True, cache=True)
    def find(
        given_width, code, equal, ordered, rows, size, s_equal, s_ordered, levels, top, at, p_equal, lows, highs,
        probe_rows, first, stop, low, high, ticks, out_probe, out_row,
    ):  # fmt: skip
        """Returns (first probe not done, pairs written, where the walk stands).

        Probes are taken some hundred at a time, so that what the search has brought into the cache is still there when
        the pairs are written out. How many partners a probe has follows no pattern that a processor could learn, so the
        first few keys are taken without asking, and counted if they are partners. Of more the end is looked for first,
        so that the loop which writes them has nothing to decide.
        """
        starts = np.empty(CHUNK + 1, np.int32)
        n = uint64(0)
        room = uint64(out_row.size)
        end = uint64(size)
        mask = (np.int64(1) << code[2]) - 1
        e = np.int64(0)
        while first < stop:
            count = min(CHUNK, stop - first)
            after = _search(
                kind, width or given_width, code, equal, ordered, rows, s_equal, s_ordered, levels, top, at, p_equal,
                lows, first, count, starts,
            )  # fmt: skip
            for i in range(count):
                p = probe_rows[first + i]
                key = _to(kind, code, highs[first + i])
                if kind == COMPOSITE:
                    e = p_equal[first + i]
                least, most = bounds_of(mode, p, low, high)
                before = n
                j = uint64(starts[i])
                if kind == PACKED:
                    if n + uint64(FEW) > room:
                        return first + i, np.int64(n), at
                    for u in range(FEW):
                        value = ordered[j + uint64(u)]
                        hit = np.int64(value <= key)
                        row = np.int32(value & mask)
                        if mode == BY_TICK and not hit:
                            row = np.int32(0)  # what stands behind the last key is no row
                        out_probe[n] = p
                        out_row[n] = row
                        n += uint64(hit & in_bounds(mode, row, least, most, ticks))
                    j += uint64(FEW)
                    if ordered[j - uint64(1)] > key:
                        continue
                beyond = range_end(kind, equal, ordered, j, end, e, key)
                if mode == UNBOUNDED:
                    if n + (beyond - j) > room:
                        return first + i, np.int64(before), at
                    for u in range(beyond - j):
                        out_probe[n + u] = p
                        out_row[n + u] = _row(kind, code, ordered, rows, j + u)
                    n += beyond - j
                else:
                    while j < beyond:
                        if n == room:
                            return first + i, np.int64(before), at
                        pause = j + min(beyond - j, room - n)
                        for k in range(j, pause):
                            row = _row(kind, code, ordered, rows, k)
                            out_probe[n] = p
                            out_row[n] = row
                            n += uint64(in_bounds(mode, row, least, most, ticks))
                        j = pause
            first += count
            at = after
        return first, np.int64(n), at

    return find


@njit(inline="always")
def _within(kind, mode, code, ordered, rows, j, beyond, p, low, high, ticks):
    """How many rows from place j on are within the bounds of batch row p."""
    least, most = bounds_of(mode, p, low, high)
    n = np.int64(0)
    for k in range(j, beyond):
        n += in_bounds(mode, _row(kind, code, ordered, rows, k), least, most, ticks)
    return n


@cache
def count_kernel(kind: int, width: int):
    @njit(nogil=True, cache=True)
    def count(
        given_width, code, equal, ordered, rows, size, s_equal, s_ordered, levels, top, p_equal, lows, highs,
        probe_rows, first, stop, mode, low, high, ticks,
    ):  # fmt: skip
        """How many pairs `find` would write; without bounds no row is looked at."""
        starts = np.empty(CHUNK + 1, np.int32)
        n = np.int64(0)
        at = uint64(0)
        end = uint64(size)
        e = np.int64(0)
        while first < stop:
            probes = min(CHUNK, stop - first)
            at = _search(
                kind, width or given_width, code, equal, ordered, rows, s_equal, s_ordered, levels, top, at, p_equal,
                lows, first, probes, starts,
            )  # fmt: skip
            for i in range(probes):
                key = _to(kind, code, highs[first + i])
                if kind == COMPOSITE:
                    e = p_equal[first + i]
                j = uint64(starts[i])
                beyond = range_end(kind, equal, ordered, j, end, e, key)
                if mode == UNBOUNDED:
                    n += np.int64(beyond - j)
                elif mode == BY_ROW:
                    n += _within(kind, BY_ROW, code, ordered, rows, j, beyond, probe_rows[first + i], low, high, ticks)
                else:
                    n += _within(kind, BY_TICK, code, ordered, rows, j, beyond, probe_rows[first + i], low, high, ticks)
            first += probes
        return n

    return count


@njit(nogil=True, cache=True)
def forget(equal, ordered, rows, size, gone):
    """Drop the rows below `gone` and take `gone` off the others; returns how many are left."""
    n = 0
    for i in range(size):
        if equal.size:
            equal[n] = equal[i]
        ordered[n] = ordered[i]
        row = rows[i]
        rows[n] = row - gone
        n += row >= gone
    return n


@njit(nogil=True, cache=True)
def forget_packed(shift, ordered, size, gone, width, samples):
    """As `forget`; takes samples of what is left, of some hundred keys at a time, while these are in cache.

    There is no room for samples where the run is a single partition.
    """
    mask = (np.int64(1) << shift) - 1
    n = uint64(0)
    s = uint64(0)
    room = uint64(samples.size)
    w = uint64(width)
    i = uint64(0)
    while i < uint64(size):
        for j in range(i, min(i + uint64(SAMPLED), uint64(size))):
            value = ordered[j]
            ordered[n] = value - gone
            n += uint64((value & mask) >= gone)
        i += uint64(SAMPLED)
        while s < room and (s + uint64(1)) * w <= n:
            samples[s] = ordered[s * w + w - uint64(1)]
            s += uint64(1)
    return np.int64(n)


@njit(nogil=True, cache=True)
def unpack(code, ordered, size, keys, rows):
    mask = (np.int64(1) << code[2]) - 1
    for i in range(size):
        keys[i] = (ordered[i] >> code[2]) + code[0]
        rows[i] = ordered[i] & mask


@njit(nogil=True, cache=True)
def pack(code, keys, rows, size, ordered):
    for i in range(size):
        ordered[i] = ((keys[i] - code[0]) << code[2]) | rows[i]
