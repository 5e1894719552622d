"""Merging a sorted batch into a sorted run, in place, on several threads.

From the back, every key moves once and no second array is needed. With several threads the run is cut into parts of
equal size, and the batch where the parts begin:

    run     [ 10 20 30 40 | 50 60 70 80 ]  . . .      two parts
    batch     15    35    |    55                     two keys come in before the second part, so it moves by 2
    merged  [ 10 15 20 30 35 40 | 50 55 60 70 80 ]

The first part grows into the places of 50 and 60, the first of the second part. So the first keys of a part, as many
as come in before it, are saved before any thread begins. A part merges its other keys where they are, then those.

Cost: O(size) moves, divided among the threads. Memory: the keys saved, at most one for each of the batch and part.
Reference: PanJoin, section III-D (multithreaded merge).
Differs from the paper: in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import Array
from watersmeet.index.sorted.run_kernels import COMPOSITE, PACKED, SAMPLED, upto
from watersmeet.index.sorted.samples import NO_LEVEL, Level
from watersmeet.workers import Workers

#: Keys that a part for another thread has at least.
SMALL = 1 << 19
#: Keys that NumPy puts into an empty run as fast as a kernel, which then need not be compiled or loaded for them.
FEW = 1 << 12

Code = tuple[int, int, int]
Keys = tuple[Array, Array, Array]  # equal (empty where there is one key), ordered, rows (empty where packed)


def merge(
    kind: int,
    code: Code,
    run: Keys,
    size: int,
    batch: Keys,
    first_row: int,
    workers: Workers,
    level: Level = NO_LEVEL,
) -> None:
    """Merge a batch, whose rows get `first_row` added, into the first `size` keys, and take samples of all.

    The run must have room. O(size).
    """
    if size == 0 and batch[1].size < FEW:
        _fill(kind, code, run, batch, first_row, level)
        return
    kernel = merge_kernel(kind)
    if workers.threads == 1 or size < SMALL:
        kernel(code, *run, size, *batch, first_row, 0, *level)
        return

    def part_of(begin: int, end: int) -> _Part:
        before = _below(kind, code, run, size, batch, begin)
        rest = min(begin + before, end)
        within = _below(kind, code, run, size, batch, rest)
        until = _below(kind, code, run, size, batch, end)
        return _Part(begin, rest, end, before, within, until, tuple(array[begin:rest].copy() for array in run))

    def merge_part(part: _Part) -> None:
        rest, saved = _cut(run, part.rest), part.rest - part.begin
        new = _cut(batch, part.within, part.until)
        left = kernel(code, *rest, part.end - part.rest, *new, first_row, part.within, *NO_LEVEL)
        for array in rest:
            if array.size:
                shift_keys(array, left, part.within)
        place = _cut(run, part.begin + part.before)
        for array, keys in zip(place, part.saved, strict=True):
            array[: keys.size] = keys
        kernel(code, *place, saved, *_cut(batch, part.before, part.within), first_row, 0, *NO_LEVEL)
        level.take(*run[:2], part.begin + part.before, part.end + part.until)

    workers.map(merge_part, [part_of(*span) for span in workers.parts(size, SMALL, each=1)])


def _fill(kind: int, code: Code, run: Keys, batch: Keys, first_row: int, level: Level) -> None:
    """Put a batch into an empty run."""
    equal, ordered, rows = run
    n = batch[1].size
    numbers = batch[2] + np.int64(first_row)
    if kind == PACKED:
        ordered[:n] = ((batch[1] - np.int64(code[0])) << np.int64(code[2])) | numbers
    else:
        ordered[:n], rows[:n] = batch[1], numbers
    if kind == COMPOSITE:
        equal[:n] = batch[0]
    level.take(equal, ordered, 0, n)


@dataclass(frozen=True)
class _Part:
    """Places `begin` to `end` of a run, and how many keys of the batch come in before three of them."""

    begin: int
    rest: int
    end: int
    before: int  # `begin`
    within: int  # `rest`
    until: int  # `end`
    saved: tuple[Array, ...]  # keys from `begin` to `rest`


def _below(kind: int, code: Code, run: Keys, size: int, batch: Keys, place: int) -> int:
    """How many keys of the batch come in before this place: those below its key; equal ones come behind it."""
    equal, ordered, _ = batch
    if place in (0, size):
        return 0 if place == 0 else ordered.size
    key = run[1][place]
    if kind == PACKED:
        key = (key >> code[2]) + code[0]
    first, last = 0, ordered.size
    if kind == COMPOSITE:
        first, last = (int(np.searchsorted(equal, run[0][place], side)) for side in ("left", "right"))  # type: ignore
    return first + int(np.searchsorted(ordered[first:last], key))


def _cut(keys: Keys, start: int, stop: int | None = None) -> Keys:
    equal, ordered, rows = keys
    return equal[start:stop], ordered[start:stop], rows[start:stop]


@njit(inline="always")
def _move_key(kind, equal, ordered, rows, at, by):
    if kind == COMPOSITE:
        equal[at + by] = equal[at]
    ordered[at + by] = ordered[at]
    if kind != PACKED:
        rows[at + by] = rows[at]


@njit(inline="always")
def _move_eight(array, at, by):
    """array[at : at + 8] to `by` places further on; all are read before any is written."""
    a, b, c, d = array[at], array[at + uint64(1)], array[at + uint64(2)], array[at + uint64(3)]
    e, f, g, h = array[at + uint64(4)], array[at + uint64(5)], array[at + uint64(6)], array[at + uint64(7)]
    at += by
    array[at], array[at + uint64(1)], array[at + uint64(2)], array[at + uint64(3)] = a, b, c, d
    array[at + uint64(4)], array[at + uint64(5)], array[at + uint64(6)], array[at + uint64(7)] = e, f, g, h


@njit(nogil=True, cache=True)
def shift_keys(array, size, by):
    """The first `size` of an array to `by` places further on, from the back."""
    i = uint64(size)
    by = uint64(by)
    while i >= uint64(8):
        i -= uint64(8)
        _move_eight(array, i, by)
    while i > uint64(0):
        i -= uint64(1)
        array[i + by] = array[i]


@njit(inline="always")
def _move_keys(kind, equal, ordered, rows, at, by):
    if kind == COMPOSITE:
        _move_eight(equal, at, by)
    _move_eight(ordered, at, by)
    if kind != PACKED:
        _move_eight(rows, at, by)


@njit(inline="always")
def _sample(kind, width, equal, ordered, s_equal, s_ordered, s, least):
    """The samples before s, down to `least`; returns which were taken last."""
    while s > least:
        s -= uint64(1)
        at = s * width + width - uint64(1)
        if kind == COMPOSITE:
            s_equal[s] = equal[at]
        s_ordered[s] = ordered[at]
    return s


@cache
def merge_kernel(kind: int):
    @njit(nogil=True, cache=True)
    def merge(
        code, equal, ordered, rows, size, b_equal, b_ordered, b_rows, first_row, further, width, s_equal, s_ordered,
        first_sample, samples,
    ):  # fmt: skip
        """Merge a sorted batch into the first `size` keys, in place, from the back, and all `further` places on.

        Returns how many keys are where they were, since none of the batch comes in before them.

        Keys are moved eight at a time. Of the eight in which a batch's key finds its place all are moved, too, and
        those that should have stayed are moved again later: they lie where keys of the batch are still to come, and a
        number of steps that depends on the data would cost more than the moves.

        Samples, from the last down to `first_sample`, are taken of some hundred keys at a time that have come to their
        place, while these are in cache.
        """
        w = uint64(width)
        s = uint64(samples)  # those from here on have been taken; the one before is of place s * w - 1
        least = uint64(first_sample)
        i = uint64(size)  # keys still in their old place
        to_come = uint64(b_ordered.size) + uint64(further)  # places by which the next key moves
        one = uint64(1)
        eight = uint64(8)
        e = np.int64(0)
        n = np.int64(b_ordered.size)
        pace = SAMPLED * n // max(np.int64(size) + n, np.int64(1)) + 1  # keys of the batch among some hundred of all
        for begin in range((n - 1) // pace * pace, -1, -pace):
            for j in range(min(begin + pace, n) - 1, begin - 1, -1):
                row = np.int64(b_rows[j]) + first_row
                key = b_ordered[j]
                if kind == COMPOSITE:
                    e = b_equal[j]
                if kind == PACKED:
                    key = ((key - code[0]) << code[2]) | row
                while i >= eight and not upto(kind, equal, ordered, i - eight, e, key):
                    i -= eight
                    _move_keys(kind, equal, ordered, rows, i, to_come)
                if i >= eight and to_come >= eight:
                    greater = uint64(0)
                    for u in range(8):
                        stays = upto(kind, equal, ordered, i - eight + uint64(u), e, key)
                        greater += uint64(0) if stays else uint64(1)
                    _move_keys(kind, equal, ordered, rows, i - eight, to_come)
                    i -= greater
                else:
                    while i > uint64(0) and not upto(kind, equal, ordered, i - one, e, key):
                        i -= one
                        _move_key(kind, equal, ordered, rows, i, to_come)
                to_come -= one
                if kind == COMPOSITE:
                    equal[i + to_come] = e
                ordered[i + to_come] = key
                if kind != PACKED:
                    rows[i + to_come] = row
            s = _sample(kind, w, equal, ordered, s_equal, s_ordered, s, max(least, (i + to_come) // w))
        _sample(kind, w, equal, ordered, s_equal, s_ordered, s, least)
        return np.int64(i)

    return merge
