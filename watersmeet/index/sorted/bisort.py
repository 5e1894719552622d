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

Samples are taken again of the samples, in levels, until a batch and a level are of like size. A sorted batch walks
the level of its own size from left to right (the rebounding search of the paper, with steps that follow from the
sizes instead of being found by doubling), then goes down one partition a level. Inside a partition keys are
*counted*, not searched: a fixed number of comparisons without a branch, which the compiler turns into vector
instructions; that is two to three times faster than galloping, whose branches the processor cannot predict.

Inserts: a batch that is small beside main goes to the buffer; when the buffer is full, or the batch larger than it,
they are merged into main, in place, from the back, so that every key moves once and no second array is needed. Rows
that have expired are forgotten many at a time, in one pass over both.

Invariants: main and buffer are sorted; every inserted live row is in exactly one of them; behind the last key
stands room for a partition of sentinels (int64's greatest value); level i + 1 holds the last key of every partition
of level i.

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
from typing import ClassVar, Literal

import numpy as np

from watersmeet.index.base import (
    Array,
    Emitter,
    Needs,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    grown,
    no_ticks,
    portions,
)
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.sorted.bisort_kernels import (
    COMPOSITE,
    GREATEST,
    PACKED,
    SINGLE,
    count_kernel,
    find_kernel,
    forget,
    forget_packed,
    pack,
    unpack,
)
from watersmeet.index.sorted.merging import merge
from watersmeet.index.sorted.samples import Samples
from watersmeet.workers import ALONE, Workers

_PARTITION = 8
_DIRECT = 64
_FORGET = 4  # expired rows are let go of when they are one in so many
_BITS = 62  # that a packed key and row may take, so that the sentinels are above all of them
_NONE = np.zeros(0, np.int64)
_NO_ROWS = np.zeros(0, np.int32)
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(frozen=True)
class Sealed:
    """What a sealed structure is made of: flat arrays that may lie in a file and be shared by many."""

    about: Array  # size, kind, code and bound of the rows, as in `_Run`
    equal: Array  # empty where there is one key; keys have their sentinels behind them
    ordered: Array
    rows: Array  # empty where they are packed with the keys, else one more than there are keys
    samples: tuple[Array, Array, Array]


@dataclass(frozen=True)
class BISort(SortedBatches):
    """Sorted subwindows with an insertion buffer.

    buffer_rows: batches smaller than this are collected before they are merged; by default as main and batch suggest.
    partition_rows: keys from one sample to the next.
    """

    buffer_rows: int | None = None
    partition_rows: int = _PARTITION

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
        structure = BISortStructure(self)
        composite = sealed.equal.size > 0
        structure._runs = _Run.adopted(self.partition_rows, sealed), _Run(composite, self.partition_rows)
        return structure


class _Run:
    """Sorted keys with their rows, room to grow, and the levels of samples over them.

    Keys are kept packed with their rows as long as both fit into 62 bits together; see the kernels for the kinds.
    """

    def __init__(self, composite: bool, width: int, expected: int = 0, workers: Workers = ALONE):
        self.size = 0
        self._workers = workers
        self._width = width
        self._kind = COMPOSITE if composite else PACKED
        self._code = (0, -1, 0)  # base, greatest key - base, shift; this one fits no key
        self._beyond = 0  # all rows are below
        self.ordered = np.full(2 * width, GREATEST, np.int64)
        self.equal = self.ordered.copy() if composite else _NONE
        self.rows = np.zeros(1, np.int32) if composite else _NO_ROWS
        self._samples = Samples(width, composite, expected)
        if expected:
            self._resize(expected)

    @classmethod
    def adopted(cls, width: int, sealed: Sealed) -> _Run:
        run = cls(sealed.equal.size > 0, width)
        run.size, run._kind, *code, run._beyond = map(int, sealed.about)
        run._code = (code[0], code[1], code[2])
        run.equal, run.ordered, run.rows = sealed.equal, sealed.ordered, sealed.rows
        run._samples = Samples.adopted(width, sealed.samples)
        return run

    def sealed(self) -> Sealed:
        end = self.size + 2 * self._width
        about = np.array([self.size, self._kind, *self._code, self._beyond])
        rows = self.rows[: self.size + 1] if self._kind != PACKED else _NO_ROWS
        return Sealed(about, self.equal[:end], self.ordered[:end], rows, self._samples.arrays)

    @property
    def _room(self) -> int:
        return self.ordered.size - 2 * self._width

    def above(self, entries: Entries) -> int:
        """How many keys are not below the first of these: those that a merge would move. O(log size)."""
        first = int(entries.ordered[0])
        start, stop = 0, self.size
        if self._kind == COMPOSITE:
            keys = self.equal[: self.size]
            start, stop = (int(keys.searchsorted(entries.equal[0], side)) for side in _SIDES)
        if self._kind == PACKED:
            base, span, shift = self._code
            if not base <= first <= base + span:
                return 0 if first > base else self.size
            first = (first - base) << shift
        return self.size - start - int(self.ordered[start:stop].searchsorted(first))

    def merge(self, entries: Entries, first_row: int) -> None:
        """O(keys moved)."""
        size = self.size + entries.size
        if size > self._room:
            self._resize(grown(self._room, size))
        self._beyond = max(self._beyond, first_row + entries.beyond)
        recoded = self._kind == PACKED and self._encode(int(entries.ordered[0]), int(entries.ordered[-1]))
        stay = 0 if recoded else self.size - self.above(entries)
        run, batch = (self.equal, self.ordered, self.rows), (entries.equal, entries.ordered, entries.rows)
        level = self._samples.first_level(size, stay)
        merge(self._kind, self._code, run, self.size, batch, first_row, self._workers, level)
        self.size = size
        self._put_sentinels(stay, sampled=True)

    def _encode(self, least: int, greatest: int) -> bool:
        """See that these keys fit as well: by another code if need be, or no longer packed; says if that was needed."""
        base, span, shift = self._code
        if base <= least and greatest <= base + span and self._beyond <= 1 << shift:
            return False
        if self.size:
            keys, rows = self._unpacked(self.size)
            least, greatest = min(least, int(keys[0])), max(greatest, int(keys[-1]))
        code = _code_for(least, greatest, self._beyond)
        if code is None:
            self._kind = SINGLE
            keys_to = self.ordered
            self.rows = np.empty(self._room + 1, np.int32)
            if self.size:
                keys_to[: self.size], self.rows[: self.size] = keys, rows
        elif self.size:
            pack(code, keys, rows, self.size, self.ordered)
        self._code = code or self._code
        return True

    def _unpacked(self, n: int) -> tuple[Array, Array]:
        keys, rows = np.empty(n, np.int64), np.empty(n, np.int32)
        unpack(self._code, self.ordered, n, keys, rows)
        return keys, rows

    def _put_sentinels(self, stay: int = 0, sampled: bool = False) -> None:
        """Behind the last key; what lies further on has not been touched, and takes no memory yet.

        stay: so many keys are where they were, and have their samples; sampled: all have them on the first level.
        """
        end = self.size + 2 * self._width
        self.ordered[self.size : end] = GREATEST
        if self._kind == COMPOSITE:
            self.equal[self.size : end] = GREATEST
        if self._kind != PACKED:
            self.rows[self.size] = 0  # read, but not used, by a search that ends behind the last key
        self._samples.refresh(self.equal, self.ordered, self.size, stay, sampled)

    def _resize(self, room: int) -> None:
        def resized(keys: Array) -> Array:
            other = aligned(room + 2 * self._width)
            end = self.size + 2 * self._width
            other[:end] = keys[:end]  # the sentinels come along
            return other

        self.ordered = resized(self.ordered)
        if self._kind == COMPOSITE:
            self.equal = resized(self.equal)
        if self._kind != PACKED:
            rows = np.empty(room + 1, np.int32)
            rows[: self.size] = self.rows[: self.size]
            self.rows = rows

    def clear(self) -> None:
        self.size = self._beyond = 0
        if self._kind == SINGLE:
            self._kind, self.rows = PACKED, _NO_ROWS
        self._put_sentinels()

    def trim(self) -> None:
        if self._room > self.size:
            self._resize(self.size)
        self._samples = Samples(self._width, self._kind == COMPOSITE, self.size)
        self._samples.refresh(self.equal, self.ordered, self.size, 0)

    def forget(self, gone: int) -> None:
        """Drop the rows below `gone`, and take `gone` off the numbers of the others. O(size)."""
        self._beyond = max(self._beyond - gone, 0)
        if self._kind == PACKED:
            samples = self._samples.first_level(self.size, 0).ordered
            self.size = forget_packed(self._code[2], self.ordered, self.size, gone, self._width, samples)
            self._put_sentinels(sampled=True)
        else:
            self.size = forget(self.equal, self.ordered, self.rows, self.size, np.int32(gone))
            self._pack_if_it_fits()
            self._put_sentinels()

    def _pack_if_it_fits(self) -> None:
        """The keys that were too far apart may have gone."""
        if self._kind == SINGLE:
            least, greatest = (int(self.ordered[0]), int(self.ordered[self.size - 1])) if self.size else (0, 0)
            code = _code_for(least, greatest, self._beyond)
            if code is not None:
                pack(code, self.ordered, self.rows, self.size, self.ordered)
                self._kind, self._code, self.rows = PACKED, code, _NO_ROWS

    def entries(self) -> Entries:
        n = self.size
        if self._kind == PACKED:
            return Entries(_NONE, *self._unpacked(n), self._beyond)
        return Entries(self.equal[:n], self.ordered[:n], self.rows[:n], self._beyond)

    def find(self, band, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """Pairs of the probes band[start:stop]."""
        equal, lows, highs, probe_rows = band
        b = bounds or no_ticks()
        kernel = find_kernel(self._kind, _compiled(self._width), bounds_mode(bounds))
        samples = self._samples.arrays
        top = self._samples.level_for(stop - start)
        at = np.uint64(0)  # where the walk over samples stands

        def write(first: int, out: Emitter) -> tuple[int, int]:
            nonlocal at
            done, n, stands = kernel(
                self._width, self._code, self.equal, self.ordered, self.rows, self.size, *samples, top, at, equal, lows,
                highs, probe_rows, first, stop, b.low, b.high, b.ticks, out.batch_rows, out.rows,
            )  # fmt: skip
            at = np.uint64(stands)
            return done, n

        return portions(start, stop, write)

    def count(self, band, start: int, stop: int, bounds: TickBounds | None) -> int:
        equal, lows, highs, probe_rows = band
        b = bounds or no_ticks()
        kernel = count_kernel(self._kind, _compiled(self._width))
        return kernel(
            self._width, self._code, self.equal, self.ordered, self.rows, self.size,
            *self._samples.arrays, self._samples.level_for(stop - start), equal, lows, highs, probe_rows, start, stop,
            bounds_mode(bounds), b.low, b.high, b.ticks,
        )  # fmt: skip

    def nbytes(self) -> int:
        """Bytes in use; room that was never written to takes none."""
        each = {PACKED: 8, SINGLE: 12, COMPOSITE: 20}[self._kind]
        return each * self.size + self._samples.nbytes()

    def check_invariants(self, name: str) -> None:
        n, w = self.size, self._width
        entries = self.entries()
        keys = list(zip(self.equal[:n] if self.equal.size else entries.ordered, entries.ordered, strict=True))
        assert keys == sorted(keys), f"{name} is not sorted: {keys}"
        assert np.all(entries.rows < self._beyond), f"{name} has rows beyond {self._beyond}: {entries.rows}"
        sentinels = self.ordered[n : n + 2 * w]
        assert sentinels.size == 2 * w, f"{name} has too few sentinels"
        assert np.all(sentinels == GREATEST), f"{name} has no sentinels behind key {n}: {sentinels}"
        self._samples.check_invariants(name, self.equal[:n], self.ordered[:n])


def _compiled(width: int) -> int:
    """Kernels are compiled for the usual width, and once for all others."""
    return width if width == _PARTITION else 0


def _code_for(least: int, greatest: int, rows: int) -> tuple[int, int, int] | None:
    """A code that packs keys from `least` to `greatest` with so many rows, and leaves room for more; None: too wide."""
    shift = max(rows - 1, 1).bit_length()
    if (greatest - least).bit_length() + shift > _BITS:
        return None
    if (greatest - least).bit_length() + shift < _BITS:
        shift += 1  # twice the rows, before the run must be packed anew
    span = (1 << (_BITS - shift)) - 1
    base = least - (span - (greatest - least)) // 2
    base = min(max(base, -GREATEST - 1), GREATEST - span)
    return base, span, shift


def _buffer_room(moved: int, batch: int) -> int:
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
        self._runs: tuple[_Run, _Run] | None = None  # main, buffer; made when the first batch shows the keys

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
            self._runs = _Run(composite, width, self._expected, self._workers), _Run(composite, width)
        main, buffer = self._runs
        room = self._index.buffer_rows
        if room is None:
            room = _buffer_room(main.above(entries), entries.size)
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
            self._runs = main, _Run(buffer.equal.size > 0, self._index.partition_rows)

    def sealed(self) -> Sealed:
        """The arrays of a structure that has been sealed, by reference."""
        return (self._runs[0] if self._runs else _Run(False, self._index.partition_rows)).sealed()

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
