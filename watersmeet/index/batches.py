"""Batches in key order: what every ordered index is filled from and probed with.

    entries   keys ascending, each with the number of its row in the batch
    probes    one list of ranges [low, high] for each band, each in order of its low ends

A batch is sorted once, whatever the number of structures that take it or are probed with it. Keys are one int64
(`equal` is empty), or two: an equality's, then a range's.

Reference: PanJoin, section III-E (batch mode).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.index.base import Array, live_rows
from watersmeet.index.sorting import FEW, in_order, taken
from watersmeet.workers import Workers

_NONE = np.zeros(0, np.int64)
_LOOKED_AT = 1024  # keys, before one out of order is asked for: several at a time take less than one by one


class Entries(NamedTuple):
    """A batch in key order."""

    equal: Array  # empty where there is one key
    ordered: Array
    rows: Array
    beyond: int  # all rows are below

    @property
    def size(self) -> int:
        return self.rows.size


class Ranges(NamedTuple):
    """A batch as ranges of one band, in order of their low ends."""

    equal: Array  # empty where there is one key
    lows: Array
    highs: Array
    rows: Array


class Probes(NamedTuple):
    """A batch as ranges of each band."""

    bands: tuple[Ranges, ...]

    @property
    def size(self) -> int:
        return self.bands[0].rows.size


class SortedBatches:
    """The half that all ordered indexes share."""

    def entries(
        self, equal: Array | None, ordered: Array | None, live: Array | None, n: int, workers: Workers
    ) -> Entries:
        """O(n), once a batch."""
        major, minor = _keys(equal, ordered)
        rows = None if live is None else live_rows(live, n)
        if rows is not None:
            major, minor = (None if major is None else major[rows]), minor[rows]
        majors, minors, order = in_order(major, minor)
        return Entries(majors, minors, order if rows is None else rows[order], n)

    def probes(self, equal, lows, highs, live, n, workers: Workers, entries: Entries | None = None) -> Probes:
        """O(n) where the order of the batch's own keys is that of its probes (a band), else it is sorted.

        `entries` are those of the same batch, if the same rows of it are live.
        """
        if not lows:
            lows = highs = (equal,)
            equal = None
        bands = []
        for low, high in zip(lows, highs, strict=True):
            for order in _known_orders(entries):
                ranges = _ranges(equal, low, high, order, workers)
                if _are_in_order(ranges.equal, ranges.lows):
                    break
            else:
                rows = None if live is None else live_rows(live, n)
                major, minor = (equal, low) if rows is None else (None if equal is None else equal[rows], low[rows])
                order = in_order(major, minor)[2]
                ranges = _ranges(equal, low, high, order if rows is None else rows[order], workers)
            bands.append(ranges)
        return Probes(tuple(bands))


def _keys(equal: Array | None, ordered: Array | None) -> tuple[Array | None, Array]:
    if ordered is None:
        assert equal is not None
        return None, equal
    return equal, ordered


def _ranges(equal: Array | None, low: Array, high: Array, order: Array, workers: Workers) -> Ranges:
    of_equal = _NONE if equal is None else taken(equal, order, workers)
    return Ranges(of_equal, taken(low, order, workers), taken(high, order, workers), order)


def _known_orders(entries: Entries | None) -> Iterator[Array]:
    """Orders that cost nothing and often are the right one: that of the batch's own keys, up or down."""
    if entries is not None:
        yield entries.rows
        yield np.ascontiguousarray(entries.rows[::-1])


def _are_in_order(equal: Array, low: Array) -> bool:
    if low.size >= FEW:
        return _all_in_order(equal, low)
    ascends = low[:-1] <= low[1:]  # without a kernel, which a first push would have to compile
    if equal.size:
        ascends = (equal[:-1] < equal[1:]) | ((equal[:-1] == equal[1:]) & ascends)
    return bool(ascends.all())


@njit(nogil=True, cache=True)
def _all_in_order(equal, low):
    begin = 1
    while begin < low.size:
        end = min(begin + _LOOKED_AT, low.size)
        above = 0
        if equal.size == 0:
            for i in range(begin, end):
                above += low[i - 1] > low[i]
        else:
            for i in range(begin, end):
                above += (equal[i - 1] > equal[i]) | ((equal[i - 1] == equal[i]) & (low[i - 1] > low[i]))
        if above:
            return False
        begin = end
    return True
