"""Sorting a batch by its keys.

NumPy sorts int64 values several times faster than it argsorts them, since it can move eight at a time through
vector registers. So where the keys of a batch span few enough bits, key and row number are packed into one int64,

    (key - least key) << bits of a row number | row number

and sorted as values; the row numbers come back out of the low bits. Ids, prices in cents and times within a batch
all fit. Keys that span more (hashes, floats) take argsort.

Large batches are sorted in parts by several threads and the parts merged. For small ones NumPy does what kernels do for
others: as fast, and a stream of small batches compiles less before its first result.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.index.base import Array
from watersmeet.memory import room
from watersmeet.workers import Workers

#: Rows that a part for another thread has at least.
_SMALL = 1 << 15
#: Rows below which NumPy's steps take no longer than the call of a kernel and its own.
FEW = 1 << 10
_LARGE_GROUP = 64  # rows, from which on NumPy's sort is worth its call
_GAPS = (10, 4, 1)


@njit(nogil=True, cache=True)
def _span(keys):
    low = keys[0]
    high = keys[0]
    for key in keys:
        low = min(low, key)
        high = max(high, key)
    return low, high


@njit(nogil=True, cache=True)
def _pack(keys, low, shift, first_row, packed):
    for i in range(keys.size):
        packed[i] = ((keys[i] - low) << shift) | (first_row + i)


@njit(nogil=True, cache=True)
def _pack_two(major, major_low, major_shift, minor, minor_low, minor_shift, first_row, packed):
    for i in range(minor.size):
        packed[i] = (
            ((major[i] - major_low) << major_shift) | ((minor[i] - minor_low) << minor_shift) | (first_row + i)
        )


@njit(nogil=True, cache=True)
def _rows_of(packed, mask, rows):
    for i in range(packed.size):
        rows[i] = packed[i] & mask


@njit(nogil=True, cache=True)
def _merge_values(a, b, out):
    i = 0
    j = 0
    k = 0
    while i < a.size and j < b.size:
        take_a = a[i] <= b[j]
        out[k] = a[i] if take_a else b[j]
        i += take_a
        j += 1 - take_a
        k += 1
    while i < a.size:
        out[k] = a[i]
        i += 1
        k += 1
    while j < b.size:
        out[k] = b[j]
        j += 1
        k += 1


@njit(nogil=True, cache=True)
def _merge_orders(major, minor, a, b, out):
    """Merge two sorted lists of row numbers; `minor` decides among equal `major` keys."""
    i = 0
    j = 0
    k = 0
    while i < a.size and j < b.size:
        x = major[a[i]]
        y = major[b[j]]
        take_a = x < y or (x == y and minor[a[i]] <= minor[b[j]])
        out[k] = a[i] if take_a else b[j]
        i += take_a
        j += 1 - take_a
        k += 1
    while i < a.size:
        out[k] = a[i]
        i += 1
        k += 1
    while j < b.size:
        out[k] = b[j]
        j += 1
        k += 1


@njit(nogil=True, cache=True)
def _sort_small_groups(major, minor, order, start):
    """From place `start` on sort each group of equal major keys by `minor`, up to the first that is large.

    `order` sorts by `major`. Returns where that group begins and ends.
    """
    keys = np.empty(_LARGE_GROUP, np.int64)
    n = order.size
    while start < n:
        stop = start + 1
        while stop < n and major[order[stop]] == major[order[start]]:
            stop += 1
        if stop - start > _LARGE_GROUP:
            return start, stop
        for i in range(stop - start):
            keys[i] = minor[order[start + i]]
        for gap in _GAPS:  # Shell's sort
            for i in range(gap, stop - start):
                key, row = keys[i], order[start + i]
                j = i
                while j >= gap and keys[j - gap] > key:
                    keys[j], order[start + j] = keys[j - gap], order[start + j - gap]
                    j -= gap
                keys[j], order[start + j] = key, row
        start = stop
    return n, n


def _sort_groups(major: Array, minor: Array, order: Array) -> None:
    """`order` sorts by `major`; sort each group of equal major keys by `minor`.

    NumPy sorts large groups faster than a kernel can, which would also take seconds to compile.
    """
    stop = 0
    while stop < order.size:
        start, stop = _sort_small_groups(major, minor, order, stop)
        group = order[start:stop]
        if group.size:
            order[start:stop] = group[np.argsort(minor[group])]


@njit(nogil=True, cache=True)
def _take(values, rows, out):
    for i in range(rows.size):
        out[i] = values[np.uint32(rows[i])]


def taken(values: Array, rows: Array, workers: Workers) -> Array:
    """values[rows] for row numbers that are int32, which NumPy would first widen."""
    if rows.size < FEW:
        return values[rows]
    out = room(rows.size, np.int64)

    def take(part: tuple[int, int]) -> None:
        _take(values, rows[slice(*part)], out[slice(*part)])

    workers.map(take, workers.parts(rows.size, _SMALL, each=1))
    return out


def sorted_values(values: Array, workers: Workers) -> Array:
    """The values in order; may sort in place. O(n log n)."""

    def sort(part: tuple[int, int]) -> Array:
        piece = values[part[0] : part[1]]
        piece.sort()
        return piece

    return _merged(workers.map(sort, workers.parts(values.size, _SMALL, each=1)), np.int64, _merge_values, workers)


def _bits(low: int, high: int) -> int:
    return (int(high) - int(low)).bit_length()


def _ends(keys: Array) -> tuple[int, int]:
    return (keys.min(), keys.max()) if keys.size < FEW else _span(keys)


def sorted_rows(major: Array | None, minor: Array, workers: Workers) -> Array:
    """Row numbers (int32) that put the batch in order of (major, minor), or of minor alone. O(n log n)."""
    n = minor.size
    rows = room(n, np.int32)
    if n < 2:
        rows[:] = range(n)
        return rows
    row_bits = (n - 1).bit_length()
    low, high = _ends(minor)
    minor_bits = _bits(low, high)
    parts = workers.parts(n, _SMALL, each=1)
    major_low = major_bits = 0
    if major is not None:
        major_low, major_high = _ends(major)
        major_bits = _bits(major_low, major_high)
    if major_bits + minor_bits + row_bits <= 63:
        if n < FEW:
            few = ((minor - low) << row_bits) | np.arange(n)
            if major is not None:
                few |= (major - major_low) << (minor_bits + row_bits)
            few.sort()
            rows[:] = few & ((1 << row_bits) - 1)
            return rows
        packed = room(n, np.int64)

        def sort_packed(part: tuple[int, int]) -> Array:
            start, stop = part
            piece = packed[start:stop]
            if major is None:
                _pack(minor[start:stop], low, row_bits, start, piece)
            else:
                shift = minor_bits + row_bits
                _pack_two(major[start:stop], major_low, shift, minor[start:stop], low, row_bits, start, piece)
            piece.sort()
            return piece

        _rows_of(_merged(workers.map(sort_packed, parts), np.int64, _merge_values, workers), (1 << row_bits) - 1, rows)
        return rows

    def sort_part(part: tuple[int, int]) -> Array:
        start, stop = part
        if major is None:
            return np.argsort(minor[start:stop]) + start
        order = np.argsort(major[start:stop]) + start
        _sort_groups(major, minor, order)
        return order

    first = minor if major is None else major
    order = _merged(
        workers.map(sort_part, parts), np.int64, lambda a, b, out: _merge_orders(first, minor, a, b, out), workers
    )
    rows[:] = order
    return rows


def _merged(parts: list[Array], dtype, merge, workers: Workers) -> Array:
    """Merge sorted parts pairwise until one is left."""
    while len(parts) > 1:
        pairs = [(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]

        def merge_pair(pair):
            out = np.empty(pair[0].size + pair[1].size, dtype)
            merge(pair[0], pair[1], out)
            return out

        rest = parts[-1:] if len(parts) % 2 else []
        parts = workers.map(merge_pair, pairs) + rest
    return parts[0]
