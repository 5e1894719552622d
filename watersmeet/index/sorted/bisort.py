"""BI-Sort (Buffered Indexed Sort): a sorted main array, a small insertion buffer, a sampled index array.

Purpose: ordered keys (band, inequality, equality, or equality then band), batches of any size, partners found as
ranges.

    samples   [        30 ,         70 ,        90 ]     last key of every partition (here of 3 keys)
    main      [ 10  20  30 | 40  50  70 | 80  80  90 ]   sorted
    rows      [  4   0   7 |  1   8   2 |  3   6   5 ]   whose tuple that is; in one word with the key, if both fit
    buffer    [ 35  60 ]                                 sorted too, and small beside main

A probe for [35, 50] skips partitions while their sample is below 35 (30: skip, 70: stop), counts the keys below 35
in that partition (none) and has its start, 3; from there on it takes the keys up to 50 (two): its answer is the range
3..5 of main, and 0..1 of the buffer.

Main and buffer are sorted runs alike (see run.py, which also says how a batch of probes goes through one).

Inserts: a batch that is small beside main goes to the buffer; when the buffer is full, or the batch larger than it,
they are merged into main, in place, from the back, so that every key moves once and no second array is needed. Rows
that have expired are forgotten many at a time, in one pass over both.

Invariants: those of both runs; every inserted live row is in exactly one of them.

Cost: insert O(log batch + main/buffer) moves a tuple; probe O(levels) a tuple and O(1) a partner, count O(levels + log
range). Memory: 8 bytes a tuple packed, 12 not, 20 composite, and a seventh of the keys for samples.

Reference: PanJoin, section III-D (BI-Sort), III-E (batch mode), figure 6 (rebounding search).
Differs from the paper: the buffer is sorted, so that probing it is no nested loop and it may be larger; its size
follows from main's and the batch's unless given; samples have several levels; partitions are counted; keys and rows are
packed; a structure may hold a whole window, as PIM's IM-Tree does, and forget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.index.base import Array, Needs, Pairs, TickBounds
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.sorted.run import PARTITION, Run, Sealed
from watersmeet.workers import ALONE, Workers

_DIRECT = 64
_FORGET = 4  # expired rows are let go of when they are one in so many
_NONE = np.zeros(0, np.int64)
_NO_ROWS = np.zeros(0, np.int32)


@dataclass(frozen=True)
class BISort(SortedBatches):
    """Sorted subwindows with an insertion buffer.

    buffer_rows: batches smaller than this are collected before they are merged; by default as main and batch suggest.
    partition_rows: keys from one sample to the next.
    """

    buffer_rows: int | None = None
    partition_rows: int = PARTITION

    def __post_init__(self) -> None:
        if self.buffer_rows is not None and self.buffer_rows < 0:
            raise ValueError(f"buffer_rows must not be negative, got {self.buffer_rows}; leave it out for a good one")
        if self.partition_rows < 2:
            raise ValueError(f"partition_rows must be at least 2, got {self.partition_rows}; 8 is a good value")

    name: ClassVar[str] = "bisort"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = True
    forgets: ClassVar[bool] = True

    def structure(self, like: BISortStructure | None = None, workers: Workers = ALONE) -> BISortStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return BISortStructure(self, 0 if like is None else like.size, workers)

    def adopt(self, sealed: Sealed) -> BISortStructure:
        """A structure over these arrays, by reference, for probing only. O(1)."""
        structure = self.structure()
        composite = sealed.equal.size > 0
        structure._runs = Run.adopted(self.partition_rows, sealed), Run(composite, self.partition_rows)
        return structure


def buffer_room(moved: int, batch: int) -> int:
    """How large a buffer is worth its probes, where a merge moves so many keys.

    Mostly these are all of main, but few where keys increase. Directly merged, a tuple costs moved / batch moves.
    Through a buffer of B it costs B / (2 batch) + moved / B, which is small around B = sqrt(moved * batch); but every
    probe then has a second run to search, which takes about as long as a hundred moves.
    """
    return 0 if moved < _DIRECT * batch else max(1024, math.isqrt(moved * batch))


class BISortStructure:
    def __init__(self, index: BISort, expected: int = 0, workers: Workers = ALONE):
        self._index = index
        self._workers = workers
        self._expected = expected + expected // 8
        self._runs: tuple[Run, Run] | None = None  # main, buffer; made when the first batch shows the keys

    @property
    def size(self) -> int:
        return sum(run.size for run in self._runs or ())

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(main / buffer) moves a tuple."""
        if not entries.size:
            return
        if self._runs is None:
            composite = entries.equal.size > 0
            width = self._index.partition_rows
            self._runs = Run(composite, width, self._expected, self._workers), Run(composite, width)
        main, buffer = self._runs
        room = self._index.buffer_rows
        if room is None:
            room = buffer_room(main.above(entries), entries.size)
        if entries.size + buffer.size < room and main.size:
            buffer.merge(entries, first_row)
            return
        if buffer.size:
            main.merge(buffer.entries(), 0)
            buffer.clear()
        main.merge(entries, first_row)

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(levels + log range) a probe, and O(1) a partner."""
        for run in self._runs or ():
            if run.size:
                for band in probes.bands:
                    yield from run.find(band, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no partner is looked at."""
        runs = [run for run in self._runs or () if run.size]
        return sum(run.count(band, start, stop, bounds) for run in runs for band in probes.bands)

    def mark(
        self, probes: Probes, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int:
        """As `count`, and O(1) a partner within bounds; without them O(range) of all probes together."""
        runs = [run for run in self._runs or () if run.size]
        return sum(run.mark(band, start, stop, bounds, probes_met, met) for run in runs for band in probes.bands)

    def worth_forgetting(self, expired: int, size: int) -> bool:
        return expired * _FORGET >= size

    def forget(self, gone: int) -> None:
        """O(size)."""
        for run in self._runs or ():
            run.forget(gone)

    def seal(self) -> None:
        if self._runs is not None:
            main, buffer = self._runs
            if buffer.size:
                main.merge(buffer.entries(), 0)
            main.trim()
            self._runs = main, Run(buffer.equal.size > 0, self._index.partition_rows)

    def sealed(self) -> Sealed:
        """The arrays of a structure that has been sealed, by reference."""
        return (self._runs[0] if self._runs else Run(False, self._index.partition_rows)).sealed()

    def entries(self) -> Entries:
        """All that a sealed structure holds, in order: to be inserted into another one."""
        return self._runs[0].entries() if self._runs else Entries(_NONE, _NONE, _NO_ROWS, 0)

    def nbytes(self) -> int:
        return sum(run.nbytes() for run in self._runs or ())

    def check_invariants(self) -> None:
        for name, run in zip(("main", "buffer"), self._runs or (), strict=False):
            run.check_invariants(name)
        rows = np.concatenate([run.entries().rows for run in self._runs or ()] or [_NO_ROWS])
        assert np.unique(rows).size == rows.size, f"a row is stored twice: {np.sort(rows)}"
