"""A sorted run with samples over it: what BI-Sort keeps its tuples in, and the immutable part of the trees.

    samples   [        30 ,         70 ,        90 ]     last key of every partition (here of 3 keys), in levels
    keys      [ 10  20  30 | 40  50  70 | 80  80  90 ]   sorted, with sentinels behind them
    rows      [  4   0   7 |  1   8   2 |  3   6   5 ]   whose tuple that is; in one word with the key, if both fit

Samples are taken again of the samples, in levels, until a batch and a level are of like size. A sorted batch walks
the level of its own size from left to right (the rebounding search of the paper, with steps that follow from the
sizes instead of being found by doubling), then goes down one partition a level. Inside a partition keys are
*counted*, not searched: a fixed number of comparisons without a branch, which the compiler turns into vector
instructions; that is two to three times faster than galloping, whose branches the processor cannot predict.

A probe for [35, 50] skips partitions while their sample is below 35 (30: skip, 70: stop), counts the keys below 35 in
that partition (none) and has its start, 3; from there on it takes the keys up to 50 (two): its answer is 3..5.

Invariants: keys are sorted; behind the last one stand sentinels (int64's greatest value); level i + 1 holds the last
key of every partition of level i.

Cost: merge O(keys moved); probe O(levels) a tuple and O(1) a partner, count O(levels + log range); forget O(n). Memory:
8 bytes a tuple packed, 12 not, 20 composite, and for samples 8 / (partition - 1).

Reference: PanJoin, section III-D (main and index array of BI-Sort), III-E (batch mode), figure 6 (rebounding search).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from watersmeet.index.base import (
    COUNT,
    EMIT,
    MARK,
    Array,
    Emitter,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    grown,
    no_ticks,
    portions,
)
from watersmeet.index.batches import Entries, Ranges
from watersmeet.index.sorted.merging import merge
from watersmeet.index.sorted.run_kernels import (
    COMPOSITE,
    GIVEN,
    GREATEST,
    PACKED,
    SINGLE,
    RunArrays,
    forget,
    pack,
    probe_kernel,
    sentinels,
    unpack,
)
from watersmeet.index.sorted.samples import Samples
from watersmeet.workers import ALONE, Workers

PARTITION = 8
_BITS = 62  # that a packed key and row may take, so that the sentinels are above all of them
_NONE = np.zeros(0, np.int64)
_NO_ROWS = np.zeros(0, np.int32)
_NO_ROOM = np.zeros(0, np.int32)
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")


@dataclass(frozen=True)
class Sealed:
    """What a sealed structure is made of: flat arrays that may lie in a file and be shared by many."""

    about: Array  # size, kind, code and bound of the rows, as in `Run`
    equal: Array  # empty where there is one key; keys have their sentinels behind them
    ordered: Array
    rows: Array  # empty where they are packed with the keys, else one more than there are keys
    samples: tuple[Array, Array, Array]


class Run:
    """Sorted keys with their rows, room to grow, and the levels of samples over them.

    Keys are kept packed with their rows as long as both fit into 62 bits together, unless `packs` is False; see the
    kernels for the kinds.
    """

    def __init__(
        self, composite: bool, width: int, expected: int = 0, workers: Workers = ALONE, *, packs: bool = True
    ):
        self.size = 0
        self._workers = workers
        self._width = width
        self._behind = sentinels(width)
        self._packs = packs and not composite
        self._kind = PACKED if self._packs else COMPOSITE if composite else SINGLE
        self._code = (0, -1, 0)  # base, greatest key - base, shift; this one fits no key
        self._beyond = 0  # all rows are below
        self.ordered = np.full(self._behind, GREATEST, np.int64)
        self.equal = self.ordered.copy() if composite else _NONE
        self.rows = _NO_ROWS if self._packs else np.zeros(1, np.int32)
        self._samples = Samples(width, composite, expected)
        if expected:
            self._resize(expected)

    @classmethod
    def adopted(cls, width: int, sealed: Sealed) -> Run:
        run = cls(sealed.equal.size > 0, width)
        run.size, run._kind, *code, run._beyond = map(int, sealed.about)
        run._code = (code[0], code[1], code[2])
        run.equal, run.ordered, run.rows = sealed.equal, sealed.ordered, sealed.rows
        run._samples = Samples.adopted(width, sealed.samples)
        return run

    def sealed(self) -> Sealed:
        end = self.size + self._behind
        about = np.array([self.size, self._kind, *self._code, self._beyond])
        rows = self.rows[: self.size + 1] if self._kind != PACKED else _NO_ROWS
        return Sealed(about, self.equal[:end], self.ordered[:end], rows, self._samples.arrays)

    @property
    def _room(self) -> int:
        return self.ordered.size - self._behind

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
        end = self.size + self._behind
        self.ordered[self.size : end] = GREATEST
        if self._kind == COMPOSITE:
            self.equal[self.size : end] = GREATEST
        if self._kind != PACKED:
            self.rows[self.size] = 0  # read, but not used, by a search that ends behind the last key
        self._samples.refresh(self.equal, self.ordered, self.size, stay, sampled)

    def _resize(self, room: int) -> None:
        def resized(keys: Array) -> Array:
            other = aligned(room + self._behind)
            end = self.size + self._behind
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
        if self._packs:
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
        level = self._samples.first_level(self.size, 0)
        self.size = forget(
            self._code[2], self.equal, self.ordered, self.rows, self.size, gone, self._width, level.equal, level.ordered
        )
        self._put_sentinels(sampled=not self._pack_if_it_fits())

    def _pack_if_it_fits(self) -> bool:
        """The keys that were too far apart may have gone; says if they had."""
        if not self._packs or self._kind == PACKED:
            return False
        least, greatest = (int(self.ordered[0]), int(self.ordered[self.size - 1])) if self.size else (0, 0)
        code = _code_for(least, greatest, self._beyond)
        if code is None:
            return False
        pack(code, self.ordered, self.rows, self.size, self.ordered)
        self._kind, self._code, self.rows = PACKED, code, _NO_ROWS
        return True

    def entries(self) -> Entries:
        n = self.size
        if self._kind == PACKED:
            return Entries(_NONE, *self._unpacked(n), self._beyond)
        return Entries(self.equal[:n], self.ordered[:n], self.rows[:n], self._beyond)

    @property
    def _arrays(self) -> RunArrays:
        return RunArrays(self._code, self.equal, self.ordered, self.rows, self.size, *self._samples.arrays)

    def find(self, band: Ranges, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """Pairs of the probes band[start:stop]. O(levels) a probe, O(1) a partner."""
        mode = bounds_mode(bounds)
        kernel = probe_kernel(self._kind, mode, EMIT)
        run, of_ticks = self._arrays, bounds or no_ticks()
        top = self._samples.level_for(stop - start)
        at = np.uint64(0)  # where the walk over samples stands

        def write(first: int, out: Emitter) -> tuple[int, int]:
            nonlocal at
            done, n, stands = kernel(
                self._width, run, top, at, band, first, stop, mode, of_ticks, out.batch_rows, out.rows
            )
            at = np.uint64(stands)
            return done, n

        return portions(start, stop if self.size else start, write)

    def count(self, band: Ranges, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no partner is looked at."""
        return self._counted(COUNT, band, start, stop, bounds, _NO_ROOM, _NO_ROOM)

    def mark(
        self, band: Ranges, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int:
        """As `find`; without bounds each partner is marked once, however many probes it has."""
        return self._counted(MARK, band, start, stop, bounds, probes_met, met)

    def _counted(
        self, use: int, band: Ranges, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int:
        kernel = probe_kernel(self._kind, GIVEN, use)
        top = self._samples.level_for(stop - start)
        return kernel(
            self._width, self._arrays, top, np.uint64(0), band, start, stop, bounds_mode(bounds), bounds or no_ticks(),
            probes_met, met,
        )[1]  # fmt: skip

    def nbytes(self) -> int:
        """Bytes in use; room that was never written to takes none."""
        each = {PACKED: 8, SINGLE: 12, COMPOSITE: 20}[self._kind]
        return each * self.size + self._samples.nbytes()

    def check_invariants(self, name: str) -> None:
        n = self.size
        entries = self.entries()
        keys = list(zip(self.equal[:n] if self.equal.size else entries.ordered, entries.ordered, strict=True))
        assert keys == sorted(keys), f"{name} is not sorted: {keys}"
        if self._packs:
            assert np.all(entries.rows < self._beyond), f"{name} has rows beyond {self._beyond}: {entries.rows}"
        behind = self.ordered[n : n + self._behind]
        assert behind.size == self._behind, f"{name} has too few sentinels"
        assert np.all(behind == GREATEST), f"{name} has no sentinels behind key {n}: {behind}"
        self._samples.check_invariants(name, self.equal[:n], self.ordered[:n])


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
