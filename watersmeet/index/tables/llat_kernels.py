"""The kernels of LLAT: append a batch to partitions, write out or count the partners in them, close up the room.

An entry is described by eight int64s, a cache line (`headers`, flat). Columns are unsigned, as Numba else tests indices
for negative ones; HEAD columns are kept up to date in the first entry of a partition only.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numba import njit, uint64
from numba.cpython.unsafe.numbers import trailing_zeros

from watersmeet.index.base import UNBOUNDED, Array, bounds_of, in_bounds

COLUMNS = np.uint64(8)
BEGIN = np.uint64(0)  # where its tuples lie
COUNT = np.uint64(1)
LEAST = np.uint64(2)  # of its keys
GREATEST = np.uint64(3)
NEXT = np.uint64(4)  # the further entry of the same partition; -1: none
TAIL = np.uint64(5)  # HEAD: the last entry, which takes inserts
UPPER = np.uint64(6)  # HEAD: the greatest key that belongs to the partition
RIGHT = np.uint64(7)  # HEAD: the partition of the next greater keys; -1: none

LEAST_KEY, GREATEST_KEY = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BLOCK = 64  # keys compared before any is written out: the bits of a word
_CHUNK = 64  # probes whose partitions are fetched ahead


class Table(NamedTuple):
    """Entries and their tuples."""

    keys: Array
    rows: Array
    headers: Array


@njit(inline="always")
def open_entry(headers, entry, begin, upper, right):
    """An empty entry, the head and only one of its partition."""
    h = uint64(entry) * COLUMNS
    headers[h + BEGIN] = begin
    headers[h + COUNT] = 0
    headers[h + LEAST] = GREATEST_KEY
    headers[h + GREATEST] = LEAST_KEY
    headers[h + NEXT] = -1
    headers[h + TAIL] = entry
    headers[h + UPPER] = upper
    headers[h + RIGHT] = right


@njit(inline="always")
def link_entry(headers, head, entry, begin):
    """A further entry behind the last one of a partition."""
    open_entry(headers, entry, begin, np.int64(0), np.int64(-1))
    h = uint64(head) * COLUMNS
    headers[uint64(headers[h + TAIL]) * COLUMNS + NEXT] = entry
    headers[h + TAIL] = entry


@njit(inline="always")
def put(keys, rows, headers, entry, key, row):
    """Into an entry that has room."""
    h = uint64(entry) * COLUMNS
    count = headers[h + COUNT]
    at = uint64(headers[h + BEGIN] + count)
    keys[at] = key
    rows[at] = row
    headers[h + COUNT] = count + 1
    headers[h + LEAST] = min(headers[h + LEAST], key)
    headers[h + GREATEST] = max(headers[h + GREATEST], key)


@njit(nogil=True, cache=True)
def open_partitions(headers, uppers, capacity):
    """Entry p becomes partition p."""
    for p in range(uppers.size):
        open_entry(headers, p, p * capacity, uppers[p], p + 1 if p + 1 < uppers.size else -1)


@njit(nogil=True, cache=True)
def append(keys, rows, headers, used, capacity, heads, batch_keys, batch_rows, first_row):
    """Each tuple to the partition whose first entry is named; returns the number of entries then used.

    No branch depends on the data, so that the misses of many tuples are under way at once.
    """
    for i in range(batch_keys.size):
        head = heads[i]
        tail = headers[uint64(head) * COLUMNS + TAIL]
        if headers[uint64(tail) * COLUMNS + COUNT] == capacity:
            tail = used
            link_entry(headers, head, tail, tail * capacity)
            used += 1
        put(keys, rows, headers, tail, batch_keys[i], np.int32(batch_rows[i] + first_row))
    return used


@njit(nogil=True, cache=True)
def compact(keys, rows, headers, to_keys, to_rows):
    """Move all tuples, partitions from left to right, without a gap. (Slices would take seconds to compile.)"""
    at = uint64(0)
    head = np.int64(0)
    while head >= 0:
        entry = head
        while entry >= 0:
            h = uint64(entry) * COLUMNS
            begin = uint64(headers[h + BEGIN])
            count = uint64(headers[h + COUNT])
            for i in range(count):
                to_keys[at + i] = keys[begin + i]
            for i in range(count):
                to_rows[at + i] = rows[begin + i]
            headers[h + BEGIN] = at
            at += count
            entry = headers[h + NEXT]
        head = headers[uint64(head) * COLUMNS + RIGHT]


@njit(nogil=True, cache=True)
def histograms(headers, counts, leasts, greatests):
    """Count, least and greatest key of each partition, from left to right."""
    head = np.int64(0)
    p = 0
    while head >= 0:
        counts[p] = 0
        leasts[p] = GREATEST_KEY
        greatests[p] = LEAST_KEY
        entry = head
        while entry >= 0:
            h = uint64(entry) * COLUMNS
            counts[p] += headers[h + COUNT]
            leasts[p] = min(leasts[p], headers[h + LEAST])
            greatests[p] = max(greatests[p], headers[h + GREATEST])
            entry = headers[h + NEXT]
        p += 1
        head = headers[uint64(head) * COLUMNS + RIGHT]


@njit(inline="always")
def _fetch(keys, rows, headers, heads, first, stop):
    """Read a little of each partition that is about to be scanned: misses, but many of them under way at once."""
    touched = np.int64(0)
    for i in range(first, min(first + _CHUNK, stop)):
        h = uint64(heads[i]) * COLUMNS
        begin = uint64(headers[h + BEGIN])
        touched ^= keys[begin] ^ rows[begin]
    heads[stop] = touched  # a spare place, so that the reads are not optimised away


@njit(inline="always")
def _hit(mode, keys, rows, j, least, span, first, last, ticks):
    """1 if tuple j is a partner. One unsigned comparison stands for `least <= key` and `key <= least + span`."""
    hit = uint64(uint64(keys[j]) - least <= span)
    if mode != UNBOUNDED:
        hit &= uint64(in_bounds(mode, rows[j], first, last, ticks))
    return hit


@cache
def probe_kernel(mode: int, emits: bool):
    """Write out pairs or only count them, for one way of comparing ticks."""
    wholly = emits or mode == UNBOUNDED  # whether an entry may be taken whole: within bounds tuples are counted singly

    @njit(nogil=True, cache=True)
    def probe(table, heads, ranges, bounds, i, entry, out_probe, out_row):
        """From probe i on, and in its partition from `entry` on (-1: from the first).

        Returns (probe, entry, pairs) where it stopped, for want of room or at the end. `out_row` has room for the
        tuples of an entry at least, so that each call gets further.
        """
        keys, rows, headers = table.keys, table.rows, table.headers
        lows, highs, probe_rows = ranges.lows, ranges.highs, ranges.rows
        low, high, ticks = bounds.low, bounds.high, bounds.ticks
        n = np.int64(0)
        room = out_row.size
        stop = lows.size
        fetched = i
        while i < stop:
            if i == fetched:
                _fetch(keys, rows, headers, heads, i, stop)
                fetched += _CHUNK
            asks = uint64(i)
            lo = lows[asks]
            hi = highs[asks]
            if lo > hi:
                i += 1
                continue
            p = probe_rows[asks]
            first, last = bounds_of(mode, p, low, high)
            head = np.int64(heads[asks])
            if entry < 0:
                entry = head
            least = uint64(lo)
            span = uint64(hi) - uint64(lo)
            while True:
                h = uint64(entry) * COLUMNS
                begin = uint64(headers[h + BEGIN])
                count = headers[h + COUNT]
                if emits and n + count > room:
                    heads[asks] = head
                    return i, entry, n
                end = begin + uint64(count)
                if wholly and lo <= headers[h + LEAST] and headers[h + GREATEST] <= hi:  # all of it
                    if mode != UNBOUNDED:
                        for j in range(begin, end):
                            row = rows[j]
                            out_probe[uint64(n)] = p
                            out_row[uint64(n)] = row
                            n += in_bounds(mode, row, first, last, ticks)
                    else:
                        if emits:
                            for j in range(count):
                                out_probe[uint64(n + j)] = p
                                out_row[uint64(n + j)] = rows[begin + uint64(j)]
                        n += count
                elif headers[h + LEAST] <= hi and lo <= headers[h + GREATEST]:
                    if emits:
                        at = begin
                        while at < end:
                            block = min(uint64(_BLOCK), end - at)
                            hits = uint64(0)
                            for u in range(block):
                                hits |= _hit(mode, keys, rows, at + u, least, span, first, last, ticks) << u
                            while hits:
                                out_probe[uint64(n)] = p
                                out_row[uint64(n)] = rows[at + uint64(trailing_zeros(hits))]  # type: ignore[call-arg]
                                n += 1
                                hits &= hits - uint64(1)
                            at += block
                    else:
                        hits = uint64(0)
                        for j in range(begin, end):
                            hits += _hit(mode, keys, rows, j, least, span, first, last, ticks)
                        n += np.int64(hits)
                entry = headers[h + NEXT]
                if entry < 0:
                    h = uint64(head) * COLUMNS
                    if hi <= headers[h + UPPER]:
                        break
                    head = headers[h + RIGHT]
                    if head < 0:
                        break
                    entry = head
            entry = np.int64(-1)
            i += 1
        return i, entry, n

    return probe
