"""Sorting a batch by its keys, digit by digit.

Keys of a batch mostly differ in few bits: ids, prices in cents, times. So key and row number share one word,

    (key - least key) << bits of a row number | row number

and the words are put in order by a radix sort, lowest digit first: a pass counts how often each value of a digit
occurs, which tells where the words with that value begin, and moves each word there. Passes keep the order of what is
equal, so the row numbers are in order before the first one and need none, and after the last pass keys and rows are
read off the words. Keys that leave no room for the row (hashes, floats) are moved together with it.

    bits   words  30|0  11|1  31|2  10|3
    low digit:    30|0  10|3  11|1  31|2
    high digit:   10|3  11|1  30|0  31|2

Two keys are sorted as one where they fit into a word; else by the second, then by the first.

NumPy sorts words as well, through vector registers: on some processors faster than passes do, on others, with the same
instructions, several times slower. The first batch tries both, on a few words. They give the same answer.

Cost: O(n) a digit, of up to 11 bits: 2 to 3 passes for most keys, 6 for a hash. For small batches NumPy does as well,
and a stream of small batches compiles less before its first result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import Array
from watersmeet.memory import room
from watersmeet.workers import Workers

#: Rows that a part for another thread has at least.
_SMALL = 1 << 15
#: Rows below which NumPy's steps take no longer than the call of a kernel and its own.
FEW = 1 << 10
#: Bits of a digit, at most: as many places are written to by turns as the first caches and their page tables hold.
_DIGIT = 11
#: For fewer rows smaller digits: to go through all values of one must not take longer than to go through the rows.
_SMALL_DIGIT = 8
_SMALL_ROWS = 1 << 12
_WORD = 64
_TRIED = 1 << 12  # words
_NONE = np.zeros(0, np.int64)
_ONE = np.uint64(1)


@njit(nogil=True, cache=True)
def _span(keys):
    low = keys[0]
    high = keys[0]
    for key in keys:
        low = min(low, key)
        high = max(high, key)
    return low, high


@njit(nogil=True, cache=True)
def _pack(keys, low, shift, words):
    for i in range(keys.size):
        words[i] = (uint64(keys[i] - low) << shift) | uint64(i)


@njit(nogil=True, cache=True)
def _pack_two(major, major_low, major_shift, minor, minor_low, minor_shift, words):
    for i in range(minor.size):
        words[i] = (
            (uint64(major[i] - major_low) << major_shift) | (uint64(minor[i] - minor_low) << minor_shift) | uint64(i)
        )


@njit(nogil=True, cache=True)
def _unpack(words, shift, bits, low, keys):
    """The keys in the `bits` bits above `shift`."""
    mask = (_ONE << bits) - _ONE
    for i in range(keys.size):
        keys[i] = np.int64((words[i] >> shift) & mask) + low


@njit(nogil=True, cache=True)
def _unpack_rows(words, bits, rows):
    mask = (_ONE << bits) - _ONE
    for i in range(rows.size):
        rows[i] = words[i] & mask


@njit(nogil=True, cache=True)
def _pack_leading(keys, low, dropped, shift, words):
    for i in range(keys.size):
        words[i] = ((uint64(keys[i] - low) >> dropped) << shift) | uint64(i)


@njit(nogil=True, cache=True)
def _put_right(keys, rows, most):
    """Sort keys that nearly are, with their rows, by moving each back to its place; False after so many moves."""
    moves = 0
    for i in range(1, keys.size):
        key = keys[i]
        if keys[i - 1] <= key:
            continue
        row = rows[i]
        j = i
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            rows[j] = rows[j - 1]
            j -= 1
        keys[j] = key
        rows[j] = row
        moves += i - j
        if moves > most:
            return False
    return True


@njit
def _count(words, first_bit, width, counts):
    """counts[p, d] becomes the number of words whose p-th digit above `first_bit` is d."""
    mask = (_ONE << width) - _ONE
    for i in range(words.size):
        rest = words[i] >> first_bit
        for p in range(counts.shape[0]):
            counts[p, rest & mask] += np.uint32(1)
            rest >>= width


@njit
def _as_places(counts):
    """Where the words with each digit begin."""
    place = np.uint32(0)
    for d in range(counts.size):
        count = counts[d]
        counts[d] = place
        place += count


@njit(nogil=True, cache=True)
def _sort_words(words, spare, first_bit, passes, width):
    """Put words in order; says whether they are in `spare` now. (To give back an array, Numba calls Python, and Ctrl-C
    there would become an error of another kind.)"""
    moved = False
    counts = np.zeros((passes, 1 << width), np.uint32)
    _count(words, uint64(first_bit), uint64(width), counts)
    mask = (_ONE << uint64(width)) - _ONE
    for p in range(passes):
        shift = uint64(first_bit + p * width)
        places = counts[p]
        if places[(words[0] >> shift) & mask] == words.size:
            continue  # all have the same digit
        _as_places(places)
        for i in range(words.size):
            word = words[i]
            digit = (word >> shift) & mask
            spare[places[digit]] = word
            places[digit] += np.uint32(1)
        words, spare = spare, words
        moved = not moved
    return moved


def sort_words(words: Array, spare: Array, first_bit: int, passes: int, width: int) -> Array:
    """Words (uint64) in order of `passes` digits of `width` bits above `first_bit`: one of the two arrays given."""
    return spare if _sort_words(words, spare, first_bit, passes, width) else words


@njit(nogil=True, cache=True)
def _sort_apart(words, rows, spare, spare_rows, passes, width):
    """As `_sort_words`, for words that are all key; each takes its row with it."""
    moved = False
    counts = np.zeros((passes, 1 << width), np.uint32)
    _count(words, uint64(0), uint64(width), counts)
    mask = (_ONE << uint64(width)) - _ONE
    for p in range(passes):
        shift = uint64(p * width)
        places = counts[p]
        if places[(words[0] >> shift) & mask] == words.size:
            continue
        _as_places(places)
        for i in range(words.size):
            word = words[i]
            digit = (word >> shift) & mask
            place = places[digit]
            spare[place] = word
            spare_rows[place] = rows[i]
            places[digit] = place + np.uint32(1)
        words, spare = spare, words
        rows, spare_rows = spare_rows, rows
        moved = not moved
    return moved


@njit(nogil=True, cache=True)
def _take(values, rows, out):
    for i in range(rows.size):
        out[i] = values[np.uint32(rows[i])]


def taken(values: Array, rows: Array, workers: Workers) -> Array:
    """values[rows] for row numbers that are int32, which NumPy would first widen."""
    if rows.size < FEW:
        return values[rows]
    out = room(rows.size, np.int64)

    def take(start: int, stop: int) -> None:
        _take(values, rows[start:stop], out[start:stop])

    workers.over(take, rows.size, _SMALL, each=1)
    return out


def digits(bits: int, n: int) -> tuple[int, int]:
    """(passes, bits of a digit) to sort n keys of so many bits."""
    passes = -(-bits // (_DIGIT if n >= _SMALL_ROWS else _SMALL_DIGIT))
    return passes, -(-bits // passes) if passes else 0


def in_order(major: Array | None, minor: Array) -> tuple[Array, Array, Array]:
    """(major keys, minor keys, row numbers as int32), in order of (major, minor), or of minor alone.

    Rows with equal keys stay in their order. Without a major key there are none. O(n).
    """
    n = minor.size
    if n < max(FEW, 2):
        rows = _few_in_order(major, minor)
        return _NONE if major is None else major[rows], minor[rows], rows
    row_bits = (n - 1).bit_length()
    low, minor_bits = _low_and_bits(minor)
    major_low, major_bits = (0, 0) if major is None else _low_and_bits(major)
    bits = major_bits + minor_bits
    if row_bits + bits > _WORD:
        if major is None:
            keys, rows = room(n, np.int64), room(n, np.int32)
            if not (numpy_is_faster() and by_leading_bits(minor, low, minor_bits, row_bits, keys, rows)):
                rows = _wide_in_order(minor, np.arange(n, dtype=np.int32), low, minor_bits)
                _take(minor, rows, keys)
            return _NONE, keys, rows
        rows = _wide_in_order(minor, np.arange(n, dtype=np.int32), low, minor_bits)
        by_minor = room(n, np.int64)
        _take(major, rows, by_minor)
        rows = _wide_in_order(by_minor, rows, major_low, major_bits)
        keys, majors = room(n, np.int64), room(n, np.int64)
        _take(minor, rows, keys)
        _take(major, rows, majors)
        return majors, keys, rows
    words, spare = room(n, np.uint64), room(n, np.uint64)
    shift, major_shift = np.uint64(row_bits), np.uint64(min(row_bits + minor_bits, _WORD - 1))  # of no bits, if less
    if major is None:
        _pack(minor, low, shift, words)
    else:
        _pack_two(major, major_low, major_shift, minor, low, shift, words)
    if numpy_is_faster():
        words.sort()
    else:
        words = sort_words(words, spare, row_bits, *digits(bits, n))
    keys, majors, rows = room(n, np.int64), _NONE, room(n, np.int32)
    _unpack(words, shift, np.uint64(minor_bits), low, keys)
    if major is not None:
        majors = room(n, np.int64)
        _unpack(words, major_shift, np.uint64(major_bits), major_low, majors)
    _unpack_rows(words, shift, rows)
    return majors, keys, rows


@cache
def numpy_is_faster() -> bool:
    """Than passes over 33 bits, on this processor. A millisecond, once."""
    words = np.random.default_rng(1).integers(0, 1 << 45, _TRIED, dtype=np.uint64)
    spare = np.empty_like(words)

    def seconds(sort: Callable[[Array], Any]) -> float:
        taken = []
        for _ in range(5):
            some = words.copy()
            begin = time.perf_counter()
            sort(some)
            taken.append(time.perf_counter() - begin)
        return min(taken)

    return seconds(np.ndarray.sort) < seconds(lambda some: sort_words(some, spare, 12, *digits(33, _TRIED)))


def by_leading_bits(keys: Array, low: int, bits: int, row_bits: int, out: Array, rows: Array) -> bool:
    """Sort by as many bits as a word has room for, then put right what differs behind them; False: that is too much."""
    words = room(keys.size, np.uint64)
    _pack_leading(keys, low, np.uint64(bits + row_bits - _WORD), np.uint64(row_bits), words)
    words.sort()
    _unpack_rows(words, np.uint64(row_bits), rows)
    _take(keys, rows, out)
    return _put_right(out, rows, 4 * keys.size)


def _wide_in_order(keys: Array, rows: Array, low: int, bits: int) -> Array:
    n = keys.size
    words, spare, spare_rows = (keys - np.int64(low)).view(np.uint64), room(n, np.uint64), room(n, np.int32)
    return spare_rows if _sort_apart(words, rows, spare, spare_rows, *digits(bits, n)) else rows


def _few_in_order(major: Array | None, minor: Array) -> Array:
    n = minor.size
    if n < 2:
        return np.arange(n, dtype=np.int32)
    row_bits = (n - 1).bit_length()
    low, minor_bits = minor.min(), _bits(minor.min(), minor.max())
    major_low, major_bits = (0, 0) if major is None else (major.min(), _bits(major.min(), major.max()))
    if major_bits + minor_bits + row_bits > _WORD - 1:  # of an int64
        order = np.argsort(minor, kind="stable") if major is None else np.lexsort((minor, major))
        return order.astype(np.int32)
    words = ((minor - low) << row_bits) | np.arange(n)
    if major is not None:
        words |= (major - major_low) << (minor_bits + row_bits)
    words.sort()
    return (words & ((1 << row_bits) - 1)).astype(np.int32)


def _low_and_bits(keys: Array) -> tuple[int, int]:
    """The least key, and how many bits the others' distances from it have."""
    low, high = _span(keys)
    return low, _bits(low, high)


def _bits(low: int, high: int) -> int:
    return (int(high) - int(low)).bit_length()
