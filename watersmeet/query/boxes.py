"""Boxes: bands over several dimensions, found by one ordered key.

A band of fixed width in each of two to four dimensions makes a box around a probing tuple. One dimension is *ordered*;
the others are cut into cells as wide as their bands. A tuple is stored once, under a key of one word:

    [ place of its cells, and of equalities: 20 bits | ordered dimension, in steps of 1/32 of its band: 18 bits ]

and probes the cells that its box touches, mostly two a dimension, each with one range of the ordered dimension:

    y  3 |      .   .     .         abs(l.x - r.x) <= 10 and abs(l.y - r.y) <= 10
       2 |  . +----+    .           a tuple with x = 47, y = 42 looks for y in 32..52: cells 1 (21..41) and 2 (42..62)
       1 |   .|.   |  .             so it asks for two ranges: (1, 37) to (1, 57) and (2, 37) to (2, 57)
       0 | .     .      .

Of all that is found there the predicate is checked: with n dimensions about 2^(n-1) candidates a result, as a band
touches 2 cells of its own width on average. A key is a filter and nothing more. It may let any pair through; it must
not lose one, and does not, since every cell number grows with the key that it is made of (cells.py). Numbers that 20 or
18 bits do not hold are taken modulo these: tuples far apart may then meet in a key, seldom, and are told apart by the
check. A range that goes over the end begins again at 0, as a second one. Where ranges of one tuple meet in a key they
are made disjoint, so that no pair is found twice.

A box that touches more than `MOST_RANGES` cells (rounding: a band much narrower than the distance from one double to
the next) looks at everything.

38 bits leave 24 for a row's number in one word with the key (BI-Sort packs them), which is three times as fast as two
keys of a word each: 16M rows a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit

from watersmeet.memory import room

from . import keys as key_maps
from .cells import cell_of
from .kernels import ODD, merge, scramble
from .node import Rows
from .ranges import Key, Ranges

Array = np.ndarray

MOST_DIMENSIONS = 4
MOST_RANGES = 32
STEPS = 32  # of the ordered dimension, a band
PLACE_BITS, STEP_BITS = 20, 18
_PLACES = np.int64((1 << PLACE_BITS) - 1)
_CIRCLE = np.int64((1 << STEP_BITS) - 1)
_HALF = np.int64(1 << (STEP_BITS - 1))  # so that numbers around 0 are far from the ends
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NO_SALTS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Dimension:
    """A stored key, the ranges in which probes look for it, and how wide these are."""

    key: Key
    ranges: Ranges  # of one band
    width: float

    @property
    def doubles(self) -> bool:
        return self.key.id[0] == "float"

    @property
    def cell(self) -> float:
        """As wide as the band; a little more for doubles, whose ranges may be wider by some roundings."""
        return _rounded_up(self.width) if self.doubles else self.width

    @property
    def cell_text(self) -> str:
        """As users write widths."""
        if self.key.type is None or not self.key.type.countable:
            return f"{self.cell:.6g}"
        unit = "" if self.key.type.kind == "exact" else " days" if self.key.type.kind == "date" else " seconds"
        return f"{self.cell / 10**self.key.type.scale:.10g}{unit}"

    @property
    def step(self) -> float:
        if self.doubles:
            return self.cell / STEPS
        return 1 if self.width <= 2 * STEPS else self.width / STEPS


def _rounded_up(width: float) -> float:
    """To 24 bits: the same from both sides, whose roundings differ."""
    fraction, exponent = math.frexp(width)
    return math.ldexp(math.floor(fraction * 2**24) + 2, exponent - 24)


@dataclass(frozen=True)
class Box:
    """Tuples of one side stored, those of the other probing. The first dimension is the ordered one."""

    dimensions: tuple[Dimension, ...]

    @property
    def id(self) -> tuple:
        """Equal ids mean equal keys."""
        return tuple((each.key.id, each.step if i == 0 else each.cell) for i, each in enumerate(self.dimensions))

    @cached_property
    def _scales(self) -> tuple[Array, Array]:
        """Which dimensions are doubles; and 1 / the width of a step or a cell."""
        first, *others = self.dimensions
        widths = [first.step, *[each.cell for each in others]]
        return np.array([each.doubles for each in self.dimensions]), 1.0 / np.array(widths, np.float64)

    def numbers(self, rows: Rows) -> key_maps.Keyed:
        """The keys of tuples that are stored, one row a dimension, and which tuples are live."""
        numbers = _table(len(self.dimensions), rows.count)
        live = None
        for i, each in enumerate(self.dimensions):
            numbers[i], valid = key_maps.full(each.key.run(rows), rows.count)
            live = key_maps.both(live, valid)
        return numbers, live

    def bounds(self, rows: Rows) -> tuple[Array, Array, Array | None]:
        """Low and high ends of what tuples look for, likewise, and which can match at all; others look for nothing."""
        lows, highs = _table(len(self.dimensions), rows.count), _table(len(self.dimensions), rows.count)
        possible = None
        for i, each in enumerate(self.dimensions):
            lows[i], highs[i], valid = each.ranges.bands[0].run(rows)
            possible = key_maps.both(possible, valid)
        if possible is not None:
            lows[0][~possible], highs[0][~possible] = _GREATEST, _LEAST
        return lows, highs, possible

    def keys(self, rows: Rows, equal: Array | None) -> key_maps.Keyed:
        """Of tuples that are stored. O(n)."""
        numbers, live = self.numbers(rows)
        out = room(rows.count, np.int64)
        _keys(numbers, *self._scales, _salts(equal), out)
        return out, live

    def ranges(self, rows: Rows, equal: Array | None) -> tuple[tuple[Array, ...], tuple[Array, ...], Array | None]:
        """Of tuples that probe: lows, highs and which can match at all. O(n * ranges)."""
        lows, highs, possible = self.bounds(rows)
        firsts, lasts = _table(len(self.dimensions), rows.count), _table(len(self.dimensions), rows.count)
        _cells(lows, *self._scales, firsts)
        _cells(highs, *self._scales, lasts)
        counts, salts = room(rows.count, np.int64), _salts(equal)
        most = max(int(_count(lows, highs, firsts, lasts, counts)), 1)
        out_lows, out_highs = _table(most, rows.count), _table(most, rows.count)
        _ranges(firsts, lasts, salts, counts, out_lows, out_highs)
        if salts.size or len(self.dimensions) > 2:
            merge(out_lows, out_highs)
        return tuple(out_lows), tuple(out_highs), possible

    @property
    def candidates(self) -> float:
        """How many candidates a result are to be expected, where tuples are spread evenly."""
        first, *others = self.dimensions
        step = 0 if not first.doubles and first.step == 1 else first.step
        return (1 + step / first.width) * math.prod(
            (each.cell + each.width - (0 if each.doubles else 1)) / each.width for each in others
        )

    def text(self) -> str:
        """For explain()."""
        return ", ".join(f"{each.key.text} {self.place_text(i)}" for i, each in enumerate(self.dimensions))

    def place_text(self, dimension: int) -> str:
        return f"in cells of {self.dimensions[dimension].cell_text}" if dimension else "in order"


def _table(width: int, length: int) -> Array:
    return room(width * length, np.int64).reshape(width, length)


def _salts(equal: Array | None) -> Array:
    return _NO_SALTS if equal is None else np.array(equal, np.int64)


@njit(inline="always")
def mixed(state, cell):
    """One more cell in a place."""
    return np.int64(scramble(np.uint64(state) * ODD + np.uint64(cell)))


@njit(inline="always")
def _key(place, step):
    return ((place & _PLACES) << STEP_BITS) | ((step + _HALF) & _CIRCLE)


@njit(nogil=True, cache=True)
def _keys(numbers, doubles, inverses, salts, out):
    for i in range(out.size):
        place = np.int64(0)
        if salts.size:
            place = mixed(np.int64(0), salts[i])
        for d in range(2, doubles.size):
            place = mixed(place, cell_of(numbers[d, i], doubles[d], inverses[d]))
        place += cell_of(numbers[1, i], doubles[1], inverses[1])
        out[i] = _key(place, cell_of(numbers[0, i], doubles[0], inverses[0]))


@njit(nogil=True, cache=True)
def _cells(numbers, doubles, inverses, out):
    for d in range(doubles.size):
        for i in range(numbers.shape[1]):
            out[d, i] = cell_of(numbers[d, i], doubles[d], inverses[d])


@njit(nogil=True, cache=True)
def _count(lows, highs, firsts, lasts, counts):
    """How many ranges each row makes, none where its box is empty; gives the most, of those that are not too many."""
    dimensions, n = firsts.shape
    most = np.int64(0)
    for i in range(n):
        begin = np.uint64((firsts[0, i] + _HALF) & _CIRCLE)
        further = np.uint64(lasts[0, i]) - np.uint64(firsts[0, i])
        wraps = (further < np.uint64(_CIRCLE)) & (begin + further > np.uint64(_CIRCLE))
        total = np.uint64(1) + np.uint64(wraps)
        some = lows[0, i] <= highs[0, i]
        for d in range(1, dimensions):
            some &= lows[d, i] <= highs[d, i]
            further = np.uint64(lasts[d, i]) - np.uint64(firsts[d, i])
            total *= min(further, np.uint64(MOST_RANGES)) + np.uint64(1)
        counts[i] = np.int64(total) * np.int64(some)
        if counts[i] <= MOST_RANGES:
            most = max(most, counts[i])
        else:
            most = max(most, np.int64(1))
    return most


@njit(nogil=True, cache=True)
def _ranges(firsts, lasts, salts, counts, out_lows, out_highs):
    """Write the ranges of all rows; where a row has fewer than others, empty ones."""
    dimensions, n = firsts.shape
    at = np.zeros(dimensions, np.int64)  # the cell in each dimension, counted from the first one on
    for i in range(n):
        written = 0
        if counts[i] > MOST_RANGES:
            out_lows[0, i], out_highs[0, i] = 0, _key(_PLACES, _CIRCLE - _HALF)
            written = 1
        elif counts[i] > 0:
            first, last = firsts[0, i], lasts[0, i]
            if np.uint64(last) - np.uint64(first) >= np.uint64(_CIRCLE):  # once round, or more
                first, last = -_HALF, _CIRCLE - _HALF
            own = np.int64(0)
            if salts.size:
                own = mixed(own, salts[i])
            at[:] = 0
            d = 1
            while d > 0:
                place = own
                for d in range(2, dimensions):
                    place = mixed(place, firsts[d, i] + at[d])
                place += firsts[1, i] + at[1]
                begin, end = _key(place, first), _key(place, last)
                out_lows[written, i], out_highs[written, i] = begin, end
                written += 1
                if begin > end:
                    out_highs[written - 1, i] = _key(place, _CIRCLE - _HALF)
                    out_lows[written, i], out_highs[written, i] = _key(place, -_HALF), end
                    written += 1
                d = dimensions - 1
                while d > 0:  # the next cell, counted up like a number
                    at[d] += 1
                    if firsts[d, i] + at[d] <= lasts[d, i]:
                        break
                    at[d] = 0
                    d -= 1
        for k in range(written, out_lows.shape[0]):
            out_lows[k, i], out_highs[k, i] = _GREATEST, _LEAST
