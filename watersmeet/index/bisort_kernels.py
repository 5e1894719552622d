"""The kernels of BI-Sort: search sorted probes in a run, write out or count their ranges, merge a batch into a run.

Keys are two arrays, `equal` and `ordered`; with one key only, `equal` is empty and not looked at. Indices are unsigned,
since Numba else tests for negative ones.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import BY_TICK, UNBOUNDED, in_bounds

CHUNK = 512  # probes that are searched for before their ranges are written out


@njit(inline="always")
def _below(composite, equal, ordered, j, e, key):
    if composite:
        return (equal[j] < e) | ((equal[j] == e) & (ordered[j] < key))
    return ordered[j] < key


@njit(inline="always")
def _upto(composite, equal, ordered, j, e, key):
    if composite:
        return (equal[j] < e) | ((equal[j] == e) & (ordered[j] <= key))
    return ordered[j] <= key


@njit(inline="always")
def _count_below(composite, width, equal, ordered, at, e, key):
    n = uint64(0)
    for u in range(width):
        n += uint64(1) if _below(composite, equal, ordered, at + uint64(u), e, key) else uint64(0)
    return n


@njit(inline="always")
def _count_upto(composite, width, equal, ordered, at, e, key):
    n = uint64(0)
    for u in range(width):
        n += uint64(1) if _upto(composite, equal, ordered, at + uint64(u), e, key) else uint64(0)
    return n


@njit(inline="always")
def _search(
    composite, width, equal, ordered, rows, size, s_equal, s_ordered, levels, top, at,
    p_equal, lows, highs, first, count, starts, stops,
):  # fmt: skip
    """Ranges of a run for the sorted probes first, first + 1, ...: starts[i]..stops[i] are those of probe first + i.

    `levels` has where each level of samples begins and how many it holds; `top` is the level to walk (0: the run
    itself), `at` where the walk stands. Returns where it stands in the end.

    Two passes. The first finds partitions, in samples that mostly stay in cache. The second looks into them: misses,
    but no guess of the processor can go wrong there, so it has many of them under way at once. It also reads a row
    number of each partition, to have that line at hand when ranges are written out.
    """
    n = uint64(size)
    w = uint64(width)
    last = uint64(width - 1)
    one = uint64(1)
    e = np.int64(0)
    top_begin = uint64(levels[top, 0])
    top_size = uint64(levels[top, 1])
    for i in range(count):
        low = lows[first + i]
        if composite:
            e = p_equal[first + i]
        if top == 0:
            while at < n and _below(composite, equal, ordered, at + last, e, low):
                at += w
            starts[i] = at
        else:
            while at < top_size and _below(composite, s_equal, s_ordered, top_begin + at + last, e, low):
                at += w
            s = at + _count_below(composite, width, s_equal, s_ordered, top_begin + at, e, low)
            for level in range(top - 1, 0, -1):
                s = min(s * w, uint64(levels[level, 1]))
                s += _count_below(composite, width, s_equal, s_ordered, uint64(levels[level, 0]) + s, e, low)
            starts[i] = min(s * w, n)
    touched = np.int32(0)
    for i in range(count):
        low = lows[first + i]
        high = highs[first + i]
        if composite:
            e = p_equal[first + i]
        s = uint64(starts[i])
        touched ^= rows[s]
        s += _count_below(composite, width, equal, ordered, s, e, low)
        c = _count_upto(composite, width, equal, ordered, s, e, high)
        stop = s + c
        if c == w and stop < n and low <= high:  # a long range: gallop to its end
            step = one
            while stop + step <= n and _upto(composite, equal, ordered, stop + step - one, e, high):
                stop += step
                step <<= one
            beyond = min(stop + step - one, n)
            while stop < beyond:
                middle = (stop + beyond) >> one
                if _upto(composite, equal, ordered, middle, e, high):
                    stop = middle + one
                else:
                    beyond = middle
        starts[i] = s
        stops[i] = min(stop, n) if low <= high else s
    starts[count] = touched  # so that the reads are not optimised away
    return at


@cache
def find_kernel(composite: bool, width: int, mode: int):
    """Search and write out pairs, for one kind of keys, one width of partitions and one way of comparing ticks: all
    constants to the compiler, which unrolls and drops branches by them."""

    @njit(nogil=True, cache=True)
    def find(
        equal, ordered, rows, size, s_equal, s_ordered, levels, top, at, p_equal, lows, highs, probe_rows, first, stop,
        low, high, ticks, out_probe, out_row,
    ):  # fmt: skip
        """Returns (first probe not done, pairs written, where the walk stands).

        Probes are taken some hundred at a time, so that what the search has brought into the cache is still there when
        the ranges are written out. Most ranges hold no row or one, in no pattern that a processor could learn, so the
        first row is written without asking, and counted if it is there; only further rows take a loop.
        """
        starts = np.empty(CHUNK + 1, np.int32)
        stops = np.empty(CHUNK, np.int32)
        n = 0
        room = out_row.size - 1
        while first < stop:
            count = min(CHUNK, stop - first)
            after = _search(
                composite, width, equal, ordered, rows, size, s_equal, s_ordered, levels, top, at,
                p_equal, lows, highs, first, count, starts, stops,
            )  # fmt: skip
            for i in range(count):
                start = starts[i]
                if n + stops[i] - start > room:
                    return first + i, n, at
                p = probe_rows[first + i]
                row = rows[start]
                out_probe[n] = p
                out_row[n] = row
                if mode == BY_TICK and start == stops[i]:
                    row = 0  # what is read behind the last row is no row of the subwindow
                n += np.int64(start < stops[i]) & in_bounds(mode, p, row, low, high, ticks)
                for j in range(start + 1, stops[i]):
                    row = rows[j]
                    out_probe[n] = p
                    out_row[n] = row
                    n += in_bounds(mode, p, row, low, high, ticks)
            first += count
            at = after
        return first, n, at

    return find


@cache
def count_kernel(composite: bool, width: int, mode: int):
    @njit(nogil=True, cache=True)
    def count(
        equal, ordered, rows, size, s_equal, s_ordered, levels, top, p_equal, lows, highs, probe_rows, first, stop,
        low, high, ticks,
    ):  # fmt: skip
        """How many pairs `find` would write; without bounds no row is looked at."""
        starts = np.empty(CHUNK + 1, np.int32)
        stops = np.empty(CHUNK, np.int32)
        n = 0
        at = uint64(0)
        while first < stop:
            probes = min(CHUNK, stop - first)
            at = _search(
                composite, width, equal, ordered, rows, size, s_equal, s_ordered, levels, top, at,
                p_equal, lows, highs, first, probes, starts, stops,
            )  # fmt: skip
            for i in range(probes):
                if mode == UNBOUNDED:
                    n += stops[i] - starts[i]
                else:
                    p = probe_rows[first + i]
                    for j in range(starts[i], stops[i]):
                        n += in_bounds(mode, p, rows[j], low, high, ticks)
            first += probes
        return n

    return count


@njit(nogil=True, cache=True)
def merge(equal, ordered, rows, size, b_equal, b_ordered, b_rows, first_row):
    """Merge a sorted batch into the first `size` keys, in place, from the back."""
    i = size - 1
    k = size + b_ordered.size - 1
    if equal.size == 0:
        for j in range(b_ordered.size - 1, -1, -1):
            key = b_ordered[j]
            while i >= 0 and ordered[i] > key:
                ordered[k] = ordered[i]
                rows[k] = rows[i]
                i -= 1
                k -= 1
            ordered[k] = key
            rows[k] = b_rows[j] + first_row
            k -= 1
    else:
        for j in range(b_ordered.size - 1, -1, -1):
            e = b_equal[j]
            key = b_ordered[j]
            while i >= 0 and (equal[i] > e or (equal[i] == e and ordered[i] > key)):
                equal[k] = equal[i]
                ordered[k] = ordered[i]
                rows[k] = rows[i]
                i -= 1
                k -= 1
            equal[k] = e
            ordered[k] = key
            rows[k] = b_rows[j] + first_row
            k -= 1
