"""The kernels of a sorted run: search sorted probes in it, write out, count or mark their partners, forget, pack.

A run keeps its keys in one of three kinds, a constant to the compiler:

    PACKED      one array: (key - base) << shift | row, so that a probe that finds a key has its row as well
    SINGLE      `ordered` and `rows` apart, for keys that span too many bits, and where others read them
    COMPOSITE   `equal`, `ordered` and `rows`

`code` is (base, greatest key - base, shift) of a packed run. Indices are unsigned, since Numba else tests for negative
ones. Loops take arrays out of their tuples beforehand: each access to a tuple's would count references.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import BY_ROW, BY_TICK, EMIT, MARK, UNBOUNDED, Array, bounds_of, in_bounds
from watersmeet.prefetch import prefetch

PACKED, SINGLE, COMPOSITE = 0, 1, 2

CHUNK = 512  # probes that are searched for before their partners are written out
SAMPLED = 512  # keys of which samples are taken at a time
FEW = 4  # keys that are looked at whether or not they are partners; no more than there are sentinels
BLOCK = 64  # keys of which it is noted that there is nothing left to mark
STEP = 8  # keys that are counted at a time: what a vector register, and a cache line, hold
GREATEST = np.iinfo(np.int64).max
GIVEN = -1  # a mode that an argument says


class RunArrays(NamedTuple):
    """A run, as kernels see it: its keys, and the samples of each level over them, with where these begin."""

    code: tuple[int, int, int]
    equal: Array  # empty where there is one key
    ordered: Array
    rows: Array  # empty where they are packed with the keys
    size: int
    sample_equal: Array
    sample_ordered: Array
    levels: Array  # [begin, count] of each; level 0 is the run itself


def sentinels(width: int) -> int:
    """How many stand behind the last key of a run, and of each level over it: a search may look at so many."""
    return width + -(-width // STEP) * STEP


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
def _row(kind, mask, ordered, rows, j):
    if kind == PACKED:
        return np.int32(ordered[j] & mask)
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
def _count_below(kind, equal, ordered, at, width, e, key):
    """How many of `width` sorted keys are below this one. It may look at up to 7 more: none of those is, then."""
    n = uint64(0)
    block = uint64(0)
    while block < width:
        for u in range(STEP):
            n += uint64(1) if _below(kind, equal, ordered, at + block + uint64(u), e, key) else uint64(0)
        block += uint64(STEP)
    return n


@njit(inline="always")
def count_below(keys, at, width, key):
    """The same, of keys in one array."""
    return _count_below(SINGLE, keys, keys, at, width, np.int64(0), key)


@njit(inline="always")
def _look(kind, mask, equal, ordered, rows, j, end, e, key):
    """(row, 1 if its key is up to this one, else 0) of place j, behind the last key as well."""
    if kind == PACKED:
        value = ordered[j]
        return np.int32(value & mask), uint64(value <= key)
    hit = uint64(j < end) & uint64(upto(kind, equal, ordered, j, e, key))  # a key may be as great as the sentinels
    return rows[min(j, end)], hit


@njit(inline="always")
def _range_end(kind, equal, ordered, j, end, e, key):
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
def _search(kind, width, run, top, at, p_equal, lows, first, count, starts):
    """starts[i] becomes the first place in the run that is not below the sorted probe first + i.

    `top` is the level to walk (0: the run itself), `at` where the walk stands. Returns where it stands in the end.
    Behind every level are sentinels, which are below nothing: no search goes on beyond them.

    All probes go down a level before any goes down the next, and each asks for the partition it will look into there:
    misses, but many of them are under way at once. It asks for the line behind it as well, where its range may go on.
    Where rows lie apart the last pass also reads one of each partition, to have that line at hand when pairs are
    written out.
    """
    code, equal, ordered, rows = run.code, run.equal, run.ordered, run.rows
    s_equal, s_ordered, levels = run.sample_equal, run.sample_ordered, run.levels
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
            s += _count_below(kind, of_equal, of_ordered, begin + s, w, e, low)
            starts[i] = s
            if above:
                prefetch(next_ordered, below + s * w)
                prefetch(next_ordered, below + s * w + uint64(STEP))
    starts[count] = touched  # so that the reads are not optimised away
    return at


@njit(inline="always")
def _within(kind, mode, mask, ordered, rows, j, beyond, p, low, high, ticks):
    """How many rows from place j on are within the bounds of batch row p."""
    least, most = bounds_of(mode, p, low, high)
    n = uint64(0)
    for k in range(j, beyond):
        n += uint64(in_bounds(mode, _row(kind, mask, ordered, rows, k), least, most, ticks))
    return n


@njit(inline="always")
def _mark(kind, mode, mask, ordered, rows, end, j, beyond, least, most, widest, ticks, met, done):
    """Mark them.

    widest: the least and the greatest of all bounds. A block all of whose rows are marked, or out of all bounds, is
    done: where ranges overlap there is soon nothing left to mark.
    """
    while j < beyond:
        block = j // uint64(BLOCK)
        pause = min(beyond, (block + uint64(1)) * uint64(BLOCK))
        if not done[block]:
            for k in range(j, pause):
                row = _row(kind, mask, ordered, rows, k)
                met[row] |= np.uint8(in_bounds(mode, row, least, most, ticks))
            left = uint64(0)
            for k in range(block * uint64(BLOCK), min(end, (block + uint64(1)) * uint64(BLOCK))):
                row = _row(kind, mask, ordered, rows, k)
                left += uint64(in_bounds(mode, row, widest[0], widest[1], ticks)) & uint64(met[row] == 0)
            done[block] = left == 0
        j = pause


@cache
def probe_kernel(kind: int, mode: int, use: int):
    """Search, and write out pairs, only count them, or also mark who is in them, for one kind of keys and one way of
    comparing ticks: constants to the compiler, which drops branches by them. A kernel that writes no pairs is told of
    the way (GIVEN), which costs it nothing.

    Where it marks, `out_probe` and `out_row` have a byte for each batch row and for each row of the run.
    """
    emits, marks = use == EMIT, use == MARK

    @njit(nogil=True, cache=True)
    def probe(width, run, top, at, band, first, stop, given_mode, bounds, out_probe, out_row):
        """Returns (first probe not done, pairs, where the walk stands).

        Probes are taken some hundred at a time, so that what the search has brought into the cache is still there when
        the pairs are written out. How many partners a probe has follows no pattern that a processor could learn, so the
        first few keys are taken without asking, and counted if they are partners. Of more the end is looked for first,
        so that the loop which writes them has nothing to decide. To count is to look for the ends only, as long as
        there are no bounds.
        """
        code, equal, ordered, rows = run.code, run.equal, run.ordered, run.rows
        p_equal, lows, highs, probe_rows = band.equal, band.lows, band.highs, band.rows
        low, high, ticks = bounds.low, bounds.high, bounds.ticks
        starts = np.empty(CHUNK + 1, np.int32)
        n = uint64(0)
        room = uint64(out_row.size)
        end = uint64(run.size)
        marked = uint64(0)
        widest = np.int64(0), np.int64(-1)
        done = np.zeros(end // uint64(BLOCK) + uint64(1) if marks else 0, np.bool_)
        if marks and given_mode != UNBOUNDED:
            widest = low.min(), high.max()
        mask = (np.int64(1) << code[2]) - 1
        e = np.int64(0)
        while first < stop:
            count = min(CHUNK, stop - first)
            after = _search(kind, width, run, top, at, p_equal, lows, first, count, starts)
            for i in range(count):
                p = probe_rows[first + i]
                key = _to(kind, code, highs[first + i])
                if kind == COMPOSITE:
                    e = p_equal[first + i]
                j = uint64(starts[i])
                if not emits:
                    before = n
                    beyond = _range_end(kind, equal, ordered, j, end, e, key)
                    if given_mode == UNBOUNDED:
                        n += beyond - j
                    elif given_mode == BY_ROW:
                        n += _within(kind, BY_ROW, mask, ordered, rows, j, beyond, p, low, high, ticks)
                    else:
                        n += _within(kind, BY_TICK, mask, ordered, rows, j, beyond, p, low, high, ticks)
                    if marks:
                        out_probe[p] |= np.uint8(n > before)
                        if given_mode == UNBOUNDED:  # lows are sorted: all from here up to `marked` is
                            for k in range(max(j, marked), beyond):
                                out_row[_row(kind, mask, ordered, rows, k)] = 1
                            marked = max(marked, beyond)
                        elif given_mode == BY_ROW:
                            _mark(
                                kind, BY_ROW, mask, ordered, rows, end, j, beyond, low[p], high[p], widest, ticks,
                                out_row, done,
                            )  # fmt: skip
                        else:
                            _mark(
                                kind, BY_TICK, mask, ordered, rows, end, j, beyond, low[p], high[p], widest, ticks,
                                out_row, done,
                            )  # fmt: skip
                    continue
                least, most = bounds_of(mode, p, low, high)
                before = n
                if kind == PACKED or mode == UNBOUNDED:  # else it would wait for what bounds need of the others
                    if n + uint64(FEW) > room:
                        return first + i, n, at
                    for u in range(FEW):
                        row, hit = _look(kind, mask, equal, ordered, rows, j + uint64(u), end, e, key)
                        if mode == BY_TICK and not hit:
                            row = np.int32(0)  # what stands behind the last key is no row
                        out_probe[n] = p
                        out_row[n] = row
                        n += hit & uint64(in_bounds(mode, row, least, most, ticks))
                    j += uint64(FEW)
                    if not upto(kind, equal, ordered, j - uint64(1), e, key):
                        continue
                beyond = _range_end(kind, equal, ordered, j, end, e, key)
                if mode == UNBOUNDED:
                    if beyond - j > room - n:
                        return first + i, before, at
                    for u in range(beyond - j):
                        out_probe[n + u] = p
                        out_row[n + u] = _row(kind, mask, ordered, rows, j + u)
                    n += beyond - j
                while mode != UNBOUNDED and j < beyond:
                    if n == room:
                        return first + i, before, at
                    pause = j + min(beyond - j, room - n)
                    for k in range(j, pause):
                        row = _row(kind, mask, ordered, rows, k)
                        out_probe[n] = p
                        out_row[n] = row
                        n += uint64(in_bounds(mode, row, least, most, ticks))
                    j = pause
            first += count
            at = after
        return first, n, at

    return probe


@njit(nogil=True, cache=True)
def forget(shift, equal, ordered, rows, size, gone, width, s_equal, s_ordered):
    """Drop the rows below `gone` and take `gone` off the others; returns how many are left.

    Takes samples of what is left, of some hundred keys at a time, while these are in cache; there is no room for
    samples where the run is a single partition.
    """
    mask = (np.int64(1) << shift) - 1
    n = uint64(0)
    s = uint64(0)
    room = uint64(s_ordered.size)
    w = uint64(width)
    i = uint64(0)
    while i < uint64(size):
        stop = min(i + uint64(SAMPLED), uint64(size))
        if rows.size == 0:  # packed
            for j in range(i, stop):
                value = ordered[j]
                ordered[n] = value - gone
                n += uint64((value & mask) >= gone)
        else:
            for j in range(i, stop):
                if equal.size:
                    equal[n] = equal[j]
                ordered[n] = ordered[j]
                row = rows[j]
                rows[n] = row - np.int32(gone)
                n += uint64(row >= np.int32(gone))
        i = stop
        while s < room and (s + uint64(1)) * w <= n:
            if equal.size:
                s_equal[s] = equal[s * w + w - uint64(1)]
            s_ordered[s] = ordered[s * w + w - uint64(1)]
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
