"""LLAT (Linked List Adaptive Table): room for partitions whose sizes nobody knows beforehand.

Purpose: where RaP-Table and WiB+-Tree keep their tuples, unsorted within a partition.

    entries    0        1        2        3      | 4        5        6        7
    tuples    [7 5 9]  [13 . .] [24 21 .][38 . .]| [6 8 .]   free     free     free        capacity 3
    next       4        -        -        -        -
    upper      10       20       30       max

An entry has room for a fixed number of tuples, sigma times what a partition is expected to get. Of 2P entries the
first P are the partitions themselves; one that overflows (here the first, which holds 5 tuples) links a further entry.
The header of an entry is one cache line: where it begins, its count, its least and greatest key, its links, and for
the first entry of a partition the greatest key that belongs there and the partition to the right.

A probe comes with the partition that its low end falls into. From there it goes to the right until its high end belongs
to a partition. An entry all of whose keys lie within the range is taken whole, without a comparison; one of whose keys
none can be is skipped; in others every key is compared. So a partition in the middle of a range costs a copy, and a
long chain only as many comparisons as its entries' ranges of keys demand.

2P entries suffice for up to sigma * N tuples, N being those expected: a link is made only when an entry is full, and
full entries hold sigma * N / P each, so with P links there would be more than sigma * N tuples.

Invariants: every entry in use is in exactly one chain; all but the last of a chain are full; keys are above the upper
key of the partition to the left and not above that of their own; least and greatest are those of the entry's keys.

Cost: append O(1), find O(tuples in the partitions at the edges) a probe and O(1) a partner. Memory: 12 bytes a place
and 64 an entry; once closed up, 12 bytes a tuple and 64 an entry.

Reference: PanJoin, section III-B2 (LLAT), III-F2 (edges are compared, what lies between is copied).
Differs from the paper: nothing is deleted tuple by tuple (subwindows expire whole), so entries have no tail pointer for
it; the histograms (count, least, greatest) are kept an entry, not a partition; the last entry of a chain is known, not
walked to; entries are linked when the next tuple comes, not when they become full; more entries can be had, as a tree
needs them (see wib_tree); `seal` closes up the room between partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from watersmeet.index.base import (
    PORTION,
    Array,
    Emitter,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    grown,
    no_ticks,
)
from watersmeet.index.batches import Ranges
from watersmeet.index.tables.llat_kernels import (
    BEGIN,
    COLUMNS,
    COUNT,
    GREATEST,
    GREATEST_KEY,
    LEAST,
    LEAST_KEY,
    NEXT,
    RIGHT,
    TAIL,
    UPPER,
    Table,
    append,
    compact,
    histograms,
    open_partitions,
    probe_kernel,
)

_COLUMNS = int(COLUMNS)
_LINE = 8  # keys in a cache line
_NO_ROOM = np.zeros(0, np.int32)


def entry_capacity(sigma: float, rows: int, partitions: int) -> int:
    """Tuples of an entry: sigma times a partition's share, in whole cache lines where it is more than one."""
    capacity = max(int(np.ceil(sigma * rows / partitions)), 2)
    return capacity if capacity <= _LINE else -(-capacity // _LINE) * _LINE


class LLAT:
    """Partitions by their greatest keys, in order; the last one's is int64's greatest.

    capacity: tuples of an entry.
    entries: how many there are; `uppers.size` of them are in use from the start.
    """

    def __init__(self, uppers: Array, capacity: int, entries: int):
        assert uppers[-1] == GREATEST_KEY and uppers.size <= entries
        self.size = 0
        self.capacity = capacity
        self.partitions = uppers.size
        self.used = uppers.size  # entries
        self.sealed = False
        self.keys = aligned(entries * capacity)
        self.rows = np.empty(entries * capacity, np.int32)
        self.headers = aligned(entries * _COLUMNS)
        open_partitions(self.headers, uppers, capacity)

    @property
    def entries(self) -> int:
        return self.headers.size // _COLUMNS

    def append(self, heads: Array, keys: Array, rows: Array, first_row: int) -> None:
        """Each tuple to the partition of that number. O(1) a tuple."""
        self.used = append(
            self.keys, self.rows, self.headers, self.used, self.capacity, heads, keys, rows, first_row
        )
        self.size += keys.size

    def more_entries(self, need: int) -> None:
        """See that there are so many. Amortised O(1) a tuple."""
        if need > self.entries:
            entries = grown(self.entries, need)
            used = self.used * self.capacity
            keys, rows, headers = (
                aligned(entries * self.capacity),
                np.empty(entries * self.capacity, np.int32),
                aligned(entries * _COLUMNS),
            )
            keys[:used], rows[:used] = self.keys[:used], self.rows[:used]
            headers[: self.used * _COLUMNS] = self.headers[: self.used * _COLUMNS]
            self.keys, self.rows, self.headers = keys, rows, headers

    def find(self, heads: Array, ranges: Ranges, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """Pairs of ranges[start:stop], whose low ends fall into these partitions; `heads` has one place to spare.

        O(tuples of the partitions at the edges) a probe, O(1) a partner.
        """
        probe = self._probe(True, heads, ranges, start, stop, bounds)
        room = 2 * (stop - start) + 64
        at, entry = 0, -1
        while at < stop - start:
            out = Emitter(max(min(room, PORTION), self.capacity))
            at, entry, n = probe(at, entry, out.batch_rows, out.rows)
            if n:
                yield out.emitted(n)
            room *= 2

    def count(self, heads: Array, ranges: Ranges, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds a partition in the middle of a range costs O(1)."""
        return self._probe(False, heads, ranges, start, stop, bounds)(0, -1, _NO_ROOM, _NO_ROOM)[2]

    def _probe(
        self, emits: bool, heads: Array, ranges: Ranges, start: int, stop: int, bounds: TickBounds | None
    ) -> Any:
        """The kernel, to be told where to go on, and where to write."""
        kernel = probe_kernel(bounds_mode(bounds), emits)
        return partial(kernel, self.table, heads, _part(ranges, start, stop), bounds or no_ticks())

    @property
    def table(self) -> Table:
        return Table(self.keys, self.rows, self.headers)

    def histograms(self) -> tuple[Array, Array, Array]:
        """(count, least key, greatest key) of each partition, from left to right. O(entries)."""
        counts, leasts, greatests = (np.empty(self.partitions, np.int64) for _ in range(3))
        histograms(self.headers, counts, leasts, greatests)
        return counts, leasts, greatests

    def contents(self) -> tuple[Array, Array]:
        """All keys and rows, partitions from left to right. O(size)."""
        keys, rows = np.empty(self.size, np.int64), np.empty(self.size, np.int32)
        compact(self.keys, self.rows, self.headers.copy(), keys, rows)
        return keys, rows

    def seal(self) -> None:
        """Close up the room between entries. O(size)."""
        if not self.sealed:
            headers = aligned(self.used * _COLUMNS)
            headers[:] = self.headers[: headers.size]
            keys, rows = aligned(self.size + 1), np.empty(self.size + 1, np.int32)
            keys[self.size] = rows[self.size] = 0  # may be fetched, is not used
            compact(self.keys, self.rows, headers, keys, rows)
            self.keys, self.rows, self.headers = keys, rows, headers
            self.sealed = True

    def nbytes(self) -> int:
        """Bytes in use; entries that were never used take none."""
        if self.sealed:
            return self.keys.nbytes + self.rows.nbytes + self.headers.nbytes
        return self.used * (12 * self.capacity + 8 * _COLUMNS)

    def chains(self) -> list[list[int]]:
        """The entries of each partition, from left to right."""
        headers = self.headers.reshape(-1, _COLUMNS)
        found: list[list[int]] = []
        head = 0
        while head >= 0:
            chain = [head]
            while headers[chain[-1], NEXT] >= 0:
                chain.append(int(headers[chain[-1], NEXT]))
                assert len(chain) <= self.used, f"partition {head} is linked in a ring: {chain}"
            found.append(chain)
            head = int(headers[head, RIGHT])
            assert len(found) <= self.used, f"partitions are linked in a ring: {found}"
        return found

    def check_invariants(self) -> None:
        headers = self.headers.reshape(-1, _COLUMNS)
        chains = self.chains()
        state = f"used {self.used} of {self.entries}, capacity {self.capacity}, chains {chains}"
        entries = [entry for chain in chains for entry in chain]
        assert sorted(entries) == list(range(self.used)), f"entries are not in one chain each: {state}"
        assert len(chains) == self.partitions, f"there should be {self.partitions} partitions: {state}"
        assert self.used <= self.entries, state
        below: int | None = None
        seen: list[int] = []
        places: list[int] = []
        for chain in chains:
            head = chain[0]
            upper = int(headers[head, UPPER])
            assert below is None or upper > below, f"partition {head} ends at {upper}, the one before at {below}"
            assert headers[head, TAIL] == chain[-1], f"tail of {head} is {headers[head, TAIL]}: {state}"
            for entry in chain:
                begin, count = int(headers[entry, BEGIN]), int(headers[entry, COUNT])
                full = count == self.capacity
                assert full or entry == chain[-1], f"entry {entry} has {count} tuples and a next: {state}"
                keys = self.keys[begin : begin + count]
                least, greatest = (int(keys.min()), int(keys.max())) if count else (GREATEST_KEY, LEAST_KEY)
                assert (least, greatest) == (headers[entry, LEAST], headers[entry, GREATEST]), f"{entry}: {keys}"
                inside = not count or ((below is None or least > below) and greatest <= upper)
                assert inside, f"keys {keys} of {head} are not in ({below}, {upper}]"
                seen += self.rows[begin : begin + count].tolist()
                places += range(begin, begin + count)
            below = upper
        assert below == GREATEST_KEY, f"the last partition ends at {below}"
        assert len(places) == len(set(places)) == self.size, f"{len(places)} places for {self.size} tuples: {state}"
        assert len(set(seen)) == self.size, f"rows are there twice: {sorted(seen)}"


def _part(ranges: Ranges, start: int, stop: int) -> Ranges:
    """Contiguous, as kernels are compiled for that alone; the rows of a batch may run backwards."""
    equal, lows, highs, rows = ranges
    return Ranges(equal, lows[start:stop], highs[start:stop], np.ascontiguousarray(rows[start:stop]))
