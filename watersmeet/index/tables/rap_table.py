"""RaP-Table (Range Partition Table): unsorted partitions between splitters that the predecessor's tuples suggest.

Purpose: ordered keys (band, inequality, equality) whose distribution changes slowly; small batches, few partners.

    uppers       [ 10  ,  20  ,  30  , max ]    splitters: the greatest key of each partition
    partitions   [7 5 9] [13] [24 21] [38]      unsorted, in an LLAT
    histogram     5..9   13   21..24   38       count, least and greatest key

A sorted batch finds its partitions from left to right, each search from where the last one ended: steps double until
they are beyond the key, then halve (the rebounding search). An insert appends to its partition. A probe for [8, 22]
compares the keys of the first and the third partition and takes the second whole.

When a subwindow begins, its splitters are put where its predecessor's histograms say that they would have cut that one
into equal parts, keys being spread evenly within a partition. Say it holds 16 tuples in 4 partitions of 2, 3, 5 and 6:
the second splitter should have 8 below it. 5 are in the first two partitions, so it lies 3/5 into the third, whose keys
are 20 to 30: at 26. Where many tuples have the same key no splitter can divide them; such a partition grows, and is not
compared when all of it is a partner.

Invariants: those of the LLAT, whose first entries are the partitions; uppers ascend and are the partitions'.

Cost: insert O(log of the partitions stepped over) a tuple; probe the same, and the tuples of the partitions at the
edges, and O(1) a partner. Memory: 12 * sigma bytes a tuple, 12 once sealed, and 72 bytes a partition.

Reference: PanJoin, section III-B (algorithm 1: splitters), III-E (batch mode, figure 6: rebounding search).
Differs from the paper: algorithm 1, line 7, lacks the least key of the partition that the interpolation starts from;
equal splitters are merged. The first subwindow takes its splitters from its first batch, not from the range of the
type. The number of partitions follows from the expected rows unless given. The steps of the search begin with what
partitions and batch suggest, not with 1. How many rows a subwindow will get is the predecessor's count, a guess where
windows are bounded by time: a table that gets more than sigma times that is adjusted by its own histograms, to twice
the rows, so that the promise behind 2P entries holds always. So is one whose further entries show that its splitters
are far off (`readjust`); with `readjust=False` it waits for the next subwindow, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import Array, Needs, Pairs, TickBounds
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.tables.llat import LLAT, entry_capacity
from watersmeet.index.tables.llat_kernels import GREATEST_KEY
from watersmeet.workers import ALONE, Workers

_SHARE = 64  # tuples a partition, unless their number is given
_FIRST = 16  # splitters may be put right once a subwindow has one in so many of the rows expected


@njit(nogil=True, cache=True)
def _locate(uppers, keys, stride, heads):
    """heads[i] becomes the first partition whose upper key is not below the sorted keys[i].

    Forward in doubling steps, then back in halving ones; only the end of the first cannot be foreseen by the processor.
    """
    at = uint64(0)
    one = uint64(1)
    last = uint64(uppers.size - 1)  # its key is above all, so no step goes beyond it
    for i in range(keys.size):
        key = keys[i]
        step = uint64(stride)
        while uppers[min(at + step - one, last)] < key:
            at += step
            step += step
        while step > one:
            step >>= one
            below = uppers[min(at + step - one, last)] < key
            at += step if below else uint64(0)
        heads[i] = at


def splitters(counts: Array, leasts: Array, greatests: Array, partitions: int) -> Array:
    """The greatest keys of so many partitions that would divide these histograms' tuples evenly. O(partitions)."""
    held = counts > 0
    counts, leasts, greatests = counts[held], leasts[held], greatests[held]
    if not counts.size:
        return np.array([GREATEST_KEY])
    sums = np.cumsum(counts)
    balance = np.arange(1, partitions) * (sums[-1] / partitions)
    at = np.minimum(np.searchsorted(sums, balance), counts.size - 1)
    into = (balance - (sums - counts)[at]) / counts[at]
    widths = greatests.astype(np.uint64) - leasts.astype(np.uint64)  # of up to 64 bits
    steps = np.minimum(into * widths[at], np.nextafter(2.0**64, 0))  # rounded; a splitter need not be exact
    inside = np.minimum(steps.astype(np.uint64), widths[at])
    found = (leasts[at].astype(np.uint64) + inside).astype(np.int64)
    return np.unique(np.append(found, GREATEST_KEY))


@dataclass(frozen=True)
class RaPTable(SortedBatches):
    """Range partitions whose splitters follow the data from subwindow to subwindow.

    partitions: how many; by default one for every 64 rows expected.
    sigma: room of a partition, in multiples of its share.
    readjust: whether splitters that turn out to be far off are put right before the subwindow ends.
    """

    partitions: int | None = None
    sigma: float = 1.25
    readjust: bool = True

    def __post_init__(self) -> None:
        if self.partitions is not None and self.partitions < 1:
            raise ValueError(f"partitions must be at least 1, got {self.partitions}; leave it out for a good number")
        if not 1 < self.sigma <= 16:
            raise ValueError(f"sigma must be above 1, and at most 16, got {self.sigma}; 1.1 to 1.25 are good values")

    name: ClassVar[str] = "rap_table"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = False

    def structure(self, like: RaPTableStructure | None = None, workers: Workers = ALONE) -> RaPTableStructure:
        """An empty structure, with room for as much as `like` came to hold, divided evenly. O(partitions)."""
        return RaPTableStructure(self, like)


class RaPTableStructure:
    def __init__(self, index: RaPTable, like: RaPTableStructure | None = None):
        self._index = index
        self._table: LLAT | None = None
        self.adjustments = 0  # how often the splitters were computed from histograms, predecessors' included
        self._uppers = np.array([GREATEST_KEY])
        self._wanted = 1  # partitions; there are fewer where splitters would be equal
        self._expected = 0  # rows
        self._checked = 0  # rows when splitters were last put right
        if like is not None and like._table is not None:
            self.adjustments = like.adjustments
            self._adjust(like.size, like._table)

    @property
    def size(self) -> int:
        return 0 if self._table is None else self._table.size

    @property
    def uppers(self) -> Array:
        """The greatest key of each partition."""
        return self._uppers

    def _adjust(self, expected: int, histograms_of: LLAT) -> None:
        """A new, empty table for so many rows, divided as these histograms suggest."""
        self.adjustments += 1
        self._open(expected, splitters(*histograms_of.histograms(), self._partitions(expected)))

    def _partitions(self, expected: int) -> int:
        return self._index.partitions or max(expected // _SHARE, 1)

    def _open(self, expected: int, uppers: Array) -> None:
        self._uppers = uppers
        self._expected = expected
        self._wanted = self._partitions(expected)
        capacity = entry_capacity(self._index.sigma, expected, self._wanted)
        self._table = LLAT(uppers, capacity, uppers.size + self._wanted)

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(log of the partitions stepped over) a tuple."""
        n = entries.size
        if not n:
            return
        if self._table is None:
            partitions = self._partitions(2 * n)
            ends = np.arange(1, partitions) * n // partitions
            self._open(2 * n, np.unique(np.append(entries.ordered[ends], GREATEST_KEY)))
        table = self._table
        assert table is not None
        if table.size + n > table.capacity * self._wanted:  # beyond that 2P entries might not be enough
            self._refill(2 * (table.size + n))
        elif self._is_far_off(table):
            self._refill(self._expected)
        table = self._table
        assert table is not None
        table.append(self._located(entries.ordered, 0, n), entries.ordered, entries.rows, first_row)

    def _is_far_off(self, table: LLAT) -> bool:
        """Whether half of the tuples are where they did not fit. Asked each time that their number has doubled."""
        if not self._index.readjust or table.size < max(2 * self._checked, self._expected // _FIRST):
            return False
        return 2 * (table.used - self._uppers.size) * table.capacity > table.size

    def _refill(self, expected: int) -> None:
        """Adjust the splitters to what is here, and divide it anew. Amortised O(log partitions) a tuple."""
        table = self._table
        assert table is not None
        self._checked = table.size
        keys, rows = table.contents()
        self._adjust(expected, table)
        assert self._table is not None
        self._table.append(np.searchsorted(self._uppers, keys).astype(np.int32), keys, rows, 0)

    def _located(self, keys: Array, start: int, stop: int) -> Array:
        """The partitions of sorted keys, and a place to spare."""
        heads = np.empty(stop - start + 1, np.int32)
        each = self._uppers.size // max(stop - start, 1)
        _locate(self._uppers, keys[start:stop], 1 << each.bit_length(), heads)
        return heads

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(tuples of the partitions at the edges) a probe, and O(1) a partner."""
        if self._table is not None:
            for band in probes.bands:
                yield from self._table.find(self._located(band.lows, start, stop), band, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds whole partitions cost O(1)."""
        table = self._table
        if table is None:
            return 0
        return sum(table.count(self._located(b.lows, start, stop), b, start, stop, bounds) for b in probes.bands)

    def partition_error(self) -> float:
        """Mean difference of the partitions' sizes from an even share, in shares: 0 is perfect. O(entries)."""
        if self._table is None or not self._table.size:
            return 0.0
        share = self._table.size / self._wanted
        merged = self._wanted - self._uppers.size  # splitters that were equal: partitions that have nothing
        errors = np.abs(self._table.histograms()[0] - share).sum() + merged * share
        return float(errors / self._wanted / share)

    def seal(self) -> None:
        """Close up the room between partitions; within them tuples stay unsorted, as in the paper. O(size)."""
        if self._table is not None:
            self._table.seal()

    def nbytes(self) -> int:
        return self._uppers.nbytes + (0 if self._table is None else self._table.nbytes())

    def check_invariants(self) -> None:
        table = self._table
        if table is None:
            return
        table.check_invariants()
        chains = table.chains()
        assert [chain[0] for chain in chains] == list(range(self._uppers.size)), f"partitions are not first: {chains}"
        assert np.all(self._uppers[1:] > self._uppers[:-1]), f"splitters do not ascend: {self._uppers}"
        assert self._uppers.size <= self._wanted, f"{self._uppers.size} partitions of {self._wanted}"
        assert table.used <= 2 * self._wanted, f"{table.used} entries for {self._wanted} partitions"
        promise = table.capacity * self._wanted
        assert table.size <= promise, f"{table.size} tuples, when 2P entries are for {promise}"
