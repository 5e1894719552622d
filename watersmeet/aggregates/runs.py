"""Sorted runs: what has arrived on the other side, kept so that ranges of it can be folded.

    run    keys      2    3    3    7    9      in order (an equality's key, then that of a range)
           values   10  0.5   -1    4    8      of every slot, in that order, with their tables (blocks.py)
           place     3    0    4    1    2      rank by tick
           ticks     5    6    6    8    9      in order

Every push makes one run; neighbours of about the same size are merged, so that there are few. A run that is wholly out
of reach goes. One at the edge, of which some tuples want some rows and others others, is parted into halves by tick,
again and again, until it is about as large as the batch that asks; so what must be swept (sweep.py) is no more than
what is asked, however large the window. Both cost O(log) a row.

A tuple that wants some rows in the middle of a run (its window is shorter than the run) wants all from a tick on of one
half and all up to a tick of the other, after the run has been halved once or several times.

Runs are never changed: to undo a step is to have the old ones again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.index.sorting import in_order

from .blocks import ADD, Tables, count_whole, fold_rows, fold_whole, neutral, tables
from .sweep import offsets, sweep, tree

Array = np.ndarray

_NONE = np.zeros(0, np.int64)
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
#: A run at the edge with more rows than this, and more than are asked for, is parted.
FEW = 1 << 10
#: One with no more is gone through for tuples that want some rows in its middle.
LEAF = 1 << 8
_ADD, _FIRST = np.array([ADD], np.int64), np.zeros(1, np.int64)
#: Candidates that are checked at a time.
PORTION = 1 << 17


@dataclass(frozen=True)
class Slots:
    """What is folded for all aggregates: some slots of whole numbers, and some of doubles, which are added up."""

    ops: Array
    counting: tuple[int, ...]  # those of whole numbers that count values which are not null
    doubles: int

    @cached_property
    def added(self) -> tuple[Array, Array]:
        """Of the doubles: what is done, and where the sums go."""
        return np.zeros(self.doubles, np.int64), np.arange(self.doubles)

    def nothing(self, rows: int) -> Sums:
        """For so many tuples, before anything is folded."""
        ints = np.repeat(np.array([neutral(op) for op in self.ops], np.int64), rows).reshape(self.ops.size, rows)
        return Sums(np.zeros(rows, np.int64), ints, np.zeros((self.doubles, rows)))


@dataclass(frozen=True)
class Asked:
    """What a batch looks for, in order of keys: rows with these keys and ticks. who: tuples of the batch."""

    equal: Array  # empty: there is no equality
    lows: Array
    highs: Array
    first: Array  # least tick
    last: Array  # greatest tick
    who: Array

    @cached_property
    def common(self) -> tuple[int, int]:
        """The ticks that all want: from, to."""
        return int(self.first.max()), int(self.last.min())

    @cached_property
    def any(self) -> tuple[int, int]:
        """The ticks that any wants."""
        return int(self.first.min()), int(self.last.max())

    def some(self, kept: Array) -> Asked:
        """Some questions, in the same order."""
        equal = self.equal[kept] if self.equal.size else _NONE
        return Asked(equal, self.lows[kept], self.highs[kept], self.first[kept], self.last[kept], self.who[kept])

    def touching(self, least: int, greatest: int) -> Asked:
        """Those that want any of these ticks."""
        return self.some(np.flatnonzero((self.first <= greatest) & (self.last >= least)))

    def sides(self, least: int, greatest: int) -> tuple[Array | None, Array, Array, Array]:
        """Of rows with these ticks: who wants all (None: everyone); all up to one; all from one on; some in between."""
        if not self.lows.size or (self.common[0] <= least and greatest <= self.common[1]):
            return None, _NONE, _NONE, _NONE
        some = (self.first <= greatest) & (self.last >= least)
        begins, ends = self.first <= least, self.last >= greatest
        sides = (begins & ends, begins & ~ends, ~begins & ends, ~begins & ~ends)
        whole, early, late, inside = (np.flatnonzero(side & some) for side in sides)
        return whole, early, late, inside


@dataclass(frozen=True)
class Sums:
    """What has been folded for each tuple of a batch."""

    counts: Array
    ints: Array  # a row a slot
    doubles: Array

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        return self.counts, self.ints, self.doubles

    def some(self, rows: Any) -> Sums:
        return Sums(self.counts[rows], self.ints[:, rows], self.doubles[:, rows])

    def copy(self) -> Sums:
        return Sums(self.counts.copy(), self.ints.copy(), self.doubles.copy())

    @staticmethod
    def joined(some: list[Sums]) -> Sums:
        counts, ints, doubles = zip(*(each.arrays for each in some), strict=True)
        return Sums(np.concatenate(counts), np.concatenate(ints, 1), np.concatenate(doubles, 1))


@dataclass(frozen=True)
class Run:
    equal: Array
    ordered: Array
    place: Array  # int32
    ticks: Array
    ints: Array  # a row a slot of `present`
    doubles: Array
    present: Array  # slots of whole numbers that are not the same for all rows
    slots: Slots
    columns: pa.RecordBatch | None  # by tick, where candidates are to be checked

    @property
    def rows(self) -> int:
        return self.ordered.size

    @property
    def least(self) -> int:
        return int(self.ticks[0])

    @property
    def greatest(self) -> int:
        return int(self.ticks[-1])

    @property
    def ops(self) -> Array:
        return self.slots.ops[self.present]

    @property
    def full(self) -> list[int]:
        """Slots that count values, all of which are there."""
        return [slot for slot in self.slots.counting if slot not in self.present]

    def whole_numbers(self, present: Array) -> Array:
        """Of these slots."""
        if np.array_equal(present, self.present):
            return self.ints
        out = np.empty((present.size, self.rows), np.int64)
        for row, slot in zip(out, present, strict=True):
            found = np.flatnonzero(self.present == slot)
            row[:] = self.ints[found[0]] if found.size else slot in self.slots.counting
        return out

    @property
    def nbytes(self) -> int:
        parts = [self.equal, self.ordered, self.place, self.ticks, self.ints, self.doubles]
        for made in self.tables:
            parts += [made.heads, made.tails, made.blocks]
        return sum(part.nbytes for part in parts)

    @cached_property
    def tables(self) -> tuple[Tables, Tables]:
        """Over whole numbers and over doubles; made when first asked for."""
        return tables(self.ints, self.ops, self.present), tables(self.doubles, *self.slots.added)

    def ranges(self, asked: Asked) -> tuple[Array, Array]:
        """Rows a to b have the keys that are asked for. O(questions + log rows), or less."""
        a, b = np.empty(asked.lows.size, np.int64), np.empty(asked.lows.size, np.int64)
        _ranges(self.equal, self.ordered, asked.equal, asked.lows, asked.highs, a, b)
        return a, b

    def fold(self, asked: Asked, sums: Sums) -> None:
        """Fold what each question wants, for the tuple that asks."""
        counted = sums.counts.copy() if self.full else _NONE
        self._fold(asked, sums)
        self._count_full(counted, sums)

    def _fold(self, asked: Asked, sums: Sums) -> None:
        whole, early, late, inside = asked.sides(self.least, self.greatest)
        if whole is None or whole.size:
            some = asked if whole is None else asked.some(whole)
            a, b = self.ranges(some)
            count_whole(a, b, some.who, sums.counts)
            fold_whole(a, b, some.who, self.tables[0], sums.ints)
            fold_whole(a, b, some.who, self.tables[1], sums.doubles)
        for chosen, up in ((early, True), (late, False)):
            if chosen.size:
                self._sweep(asked.some(chosen), up, sums)
        if inside.size:
            some = asked.some(inside)
            if self.rows <= LEAF:
                self._scan(some, None, sums)
            else:
                for half in self.halves():
                    half._fold(some.touching(half.least, half.greatest), sums)

    def _sweep(self, asked: Asked, up: bool, sums: Sums) -> None:
        """up: they want all up to a tick, else all from one on."""
        a, b = self.ranges(asked)
        by_tick = np.empty(self.rows, np.int32)
        by_tick[self.place] = np.arange(self.rows, dtype=np.int32)
        _, bounds, order = in_order(None, asked.last if up else asked.first)
        if up:
            upto = self.ticks.searchsorted(bounds, "right")
        else:
            upto = self.rows - self.ticks.searchsorted(bounds)[::-1]
            by_tick, order = by_tick[::-1].copy(), order[::-1]
        given = a[order], b[order], upto, asked.who[order], by_tick, self.rows, offsets(self.rows)
        for values, ops, slots, out in (
            (np.ones((1, self.rows), np.int64), _ADD, _FIRST, sums.counts.reshape(1, -1)),
            (self.ints, self.ops, self.present, sums.ints),
            (self.doubles, *self.slots.added, sums.doubles),
        ):
            if ops.size:
                sweep(*given, values, ops, slots, tree(self.rows, ops, values.dtype.type), out)

    def _count_full(self, counted: Array, sums: Sums) -> None:
        for slot in self.full:
            sums.ints[slot] += sums.counts - counted

    def check(self, asked: Asked, keeps: Callable[[Array, Array], Array], sums: Sums) -> None:
        """As `fold`, of candidates that satisfy keeps(who, ranks by tick), a portion at a time."""
        counted = sums.counts.copy() if self.full else _NONE
        self._scan(asked, keeps, sums)
        self._count_full(counted, sums)

    def _scan(self, asked: Asked, keeps: Callable[[Array, Array], Array] | None, sums: Sums) -> None:
        a, b = self.ranges(asked)
        question, row = 0, 0
        room = min(PORTION, int(np.minimum(b - a, PORTION).sum()) + 1)
        who, rows = np.empty(room, np.int64), np.empty(room, np.int64)
        while question < a.size:
            n, question, row = _candidates(a, b, asked.first, asked.last, asked.who, self.place, self.ticks, question,
                                           row, who, rows)  # fmt: skip
            found, theirs = who[:n], rows[:n]
            if n and keeps is not None:
                kept = keeps(found, self.place[theirs])
                found, theirs = found[kept], theirs[kept]
            np.add.at(sums.counts, found, 1)
            fold_rows(theirs, found, self.ints, self.ops, self.present, sums.ints)
            fold_rows(theirs, found, self.doubles, *self.slots.added, sums.doubles)

    def check_invariants(self) -> None:
        keys = list(zip(self.equal, self.ordered, strict=True)) if self.equal.size else list(self.ordered)
        assert keys == sorted(keys), keys
        assert bool((self.ticks[1:] >= self.ticks[:-1]).all()), self.ticks
        assert np.array_equal(np.sort(self.place), np.arange(self.rows)), self.place
        assert self.ints.shape == (self.present.size, self.rows), self.ints.shape

    def halves(self) -> tuple[Run, Run]:
        """By tick. O(rows)."""
        middle = self.rows >> 1
        early = self.place < middle
        return self._some(early, 0, middle), self._some(~early, middle, self.rows)

    def _some(self, kept: Array, start: int, stop: int) -> Run:
        columns = None if self.columns is None else self.columns.slice(start, stop - start)
        return Run(
            self.equal[kept] if self.equal.size else _NONE, self.ordered[kept], self.place[kept] - np.int32(start),
            self.ticks[start:stop], self.ints[:, kept], self.doubles[:, kept], self.present, self.slots, columns,
        )  # fmt: skip


def made(
    equal: Array | None, ordered: Array, ticks: Array, ints: Array, doubles: Array, present: Array, slots: Slots,
    columns: pa.RecordBatch | None,
) -> Run:  # fmt: skip
    """A run of rows as they have arrived."""
    if ticks.size > 1 and bool((ticks[1:] < ticks[:-1]).any()):
        order = np.argsort(ticks, kind="stable")
        equal, ordered, ticks = None if equal is None else equal[order], ordered[order], ticks[order]
        ints, doubles = ints[:, order], doubles[:, order]
        columns = None if columns is None else columns.take(pa.array(order))
    major, minor, place = in_order(equal, ordered)
    return Run(
        major if equal is not None else _NONE, minor, place.astype(np.int32, copy=False), ticks, ints[:, place],
        doubles[:, place], present, slots, columns,
    )  # fmt: skip


def merged(a: Run, b: Run) -> Run:
    """Two runs as one. O(rows)."""
    n = a.rows + b.rows
    ticks = np.empty(n, np.int64)
    place_a, place_b = np.empty(a.rows, np.int32), np.empty(b.rows, np.int32)
    _merge_ticks(a.ticks, b.ticks, ticks, place_a, place_b)
    equal = np.empty(n if a.equal.size else 0, np.int64)
    ordered, place = np.empty(n, np.int64), np.empty(n, np.int32)
    present = np.union1d(a.present, b.present)
    ints, doubles = np.empty((present.size, n), np.int64), np.empty((a.doubles.shape[0], n), np.float64)
    _merge(
        a.equal, a.ordered, place_a[a.place], a.whole_numbers(present), a.doubles, b.equal, b.ordered, place_b[b.place],
        b.whole_numbers(present), b.doubles, equal, ordered, place, ints, doubles,
    )  # fmt: skip
    columns = None
    if a.columns is not None and b.columns is not None:
        columns = pa.RecordBatch.from_arrays(
            [pa.concat_arrays(both) for both in zip(a.columns.columns, b.columns.columns, strict=True)],
            schema=a.columns.schema,
        )
        if a.greatest > b.least:
            order = np.empty(n, np.int64)
            order[place_a], order[place_b] = np.arange(a.rows), np.arange(a.rows, n)
            columns = columns.take(pa.array(order))
    return Run(equal, ordered, place, ticks, ints, doubles, present, a.slots, columns)


# -- kernels -----------------------------------------------------------------------------------------------------------


@njit(inline="always")
def _below(equal, ordered, at, key, bound, strict):
    """Whether the row at `at` is before (key, bound); strict: or is it."""
    if equal.size and equal[at] != key:
        return equal[at] < key
    return ordered[at] < bound or (strict and ordered[at] == bound)


@njit
def _search(equal, ordered, key, bound, strict, at):
    """The first row that is not below, looked for from `at` on in growing steps."""
    n = ordered.size
    step = 1
    if at < n and _below(equal, ordered, at, key, bound, strict):
        low = at + 1
        while low + step <= n and _below(equal, ordered, low + step - 1, key, bound, strict):
            low += step
            step <<= 1
        high = min(low + step - 1, n)
    else:
        high = at
        while high - step >= 0 and not _below(equal, ordered, high - step, key, bound, strict):
            high -= step
            step <<= 1
        low = max(high - step + 1, 0)
    while low < high:
        middle = (low + high) >> 1
        if _below(equal, ordered, middle, key, bound, strict):
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _ranges(equal, ordered, keys, lows, highs, a, b):
    at, to = 0, 0
    for k in range(lows.size):
        if lows[k] > highs[k]:
            a[k], b[k] = 0, 0
            continue
        key = keys[k] if keys.size else 0
        if keys.size or lows[k] != _LEAST:
            at = _search(equal, ordered, key, lows[k], False, at)
            a[k] = at
        else:
            a[k] = 0
        if keys.size or highs[k] != _GREATEST:
            to = _search(equal, ordered, key, highs[k], True, to)
            b[k] = to
        else:
            b[k] = ordered.size


@njit(nogil=True, cache=True)
def _candidates(a, b, first, last, asked, place, ticks, question, row, who, rows):
    """Candidates from row `row` of a question's range on, until there is no more room; and where to go on."""
    n = 0
    while question < a.size:
        i = a[question] + row
        while i < b[question]:
            if n == who.size:
                return n, question, i - a[question]
            tick = ticks[place[i]]
            who[n], rows[n] = asked[question], i
            n += (first[question] <= tick) & (tick <= last[question])
            i += 1
        question += 1
        row = 0
    return n, question, 0


@njit(nogil=True, cache=True)
def _merge_ticks(a, b, out, place_a, place_b):
    i, j = 0, 0
    for k in range(out.size):
        if j == b.size or (i < a.size and a[i] <= b[j]):
            out[k], place_a[i] = a[i], k
            i += 1
        else:
            out[k], place_b[j] = b[j], k
            j += 1


@njit(nogil=True, cache=True)
def _merge(equal_a, a, place_a, ints_a, doubles_a, equal_b, b, place_b, ints_b, doubles_b, equal, out, place, ints,
           doubles):  # fmt: skip
    i, j = 0, 0
    for k in range(out.size):
        left = j == b.size
        if not left and i < a.size:
            left = a[i] <= b[j]
            if equal.size and equal_a[i] != equal_b[j]:
                left = equal_a[i] < equal_b[j]
        if left:
            out[k], place[k] = a[i], place_a[i]
            if equal.size:
                equal[k] = equal_a[i]
            for s in range(ints.shape[0]):
                ints[s, k] = ints_a[s, i]
            for s in range(doubles.shape[0]):
                doubles[s, k] = doubles_a[s, i]
            i += 1
        else:
            out[k], place[k] = b[j], place_b[j]
            if equal.size:
                equal[k] = equal_b[j]
            for s in range(ints.shape[0]):
                ints[s, k] = ints_b[s, j]
            for s in range(doubles.shape[0]):
                doubles[s, k] = doubles_b[s, j]
            j += 1
