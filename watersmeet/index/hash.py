"""Hash index for equality: one chain of slots per bucket, newest first, filled and probed in order of hash.

    heads   [ 4 | - | 2 | - ]                                   bucket -> newest slot
    slots   [ 5, 1, - | 7, 0, - | 7, 2, 1 | 9, 4, 0 | 9, 3, 3 ]   key, row, next older slot of the same bucket

Worked example: 7 falls into bucket 2, 5 and 9 into bucket 0. A probe for 9 starts at heads[0] = 4 (match: row 3), goes
on to slot 3 (match: row 4), to slot 0 (5: no match), end.

Probes walk their chains together, a thousand at a time: the first slot of every chain, then the second of those that
have one, and so on, until few are left. Each such round is a loop without branches over reads that do not wait for each
other, and that are asked for a round before (watersmeet/prefetch.py), so the processor has many of them under way at
once; one chain after the other it would wait for each slot. To count is to walk without writing pairs, and to tell who
is in them is to mark both rows instead.

A batch is sorted by the leading bits of its hashes before it is inserted or probes. The bucket is leading bits, too, so
whatever the size of a table, the batch goes through it from left to right, and through the slots of each earlier batch
as well: memory is read in order although a hash scatters keys. For that, two passes a batch are a small price.

Cost: insert O(1) per tuple (amortised over doublings), probe O(1 + rows in the bucket). Memory: 8 bytes of key,
4 of row, 4 of link and 4 to 8 of heads per tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.index.base import (
    COUNT,
    EMIT,
    MARK,
    PORTION,
    UNBOUNDED,
    Array,
    Emitter,
    Needs,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    bounds_of,
    grown,
    in_bounds,
    live_rows,
    no_ticks,
)
from watersmeet.index.sorting import FEW, digits, numpy_is_faster, sort_words
from watersmeet.memory import room
from watersmeet.prefetch import prefetch
from watersmeet.workers import ALONE, Workers

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_LOAD = 1.0  # rows a bucket, at most
_TOGETHER = 1024  # probes that walk at a time: what they need fits the first cache
_FEW = 16  # walkers below which rounds do not pay
_LEAST_ROOM = 64  # pairs
_NO_ROOM = np.zeros(1, np.int32)
_SMALL = 1 << 15  # rows that a part for another thread has at least
_HASH_BITS = 22  # by which a batch is sorted: two digits. Neighbours of a larger table are in the cache as well


@njit(inline="always")
def _bucket(key, shift):
    return (uint64(key) * _FIBONACCI) >> shift


@njit(nogil=True, cache=True)
def _pack(keys, hash_bits, row_bits, part, parts, words):
    """(leading bits of the hash, row) as one word, of the keys whose hash is in this one of so many parts of all
    hashes; returns how many these are."""
    shift = uint64(64 - hash_bits)
    if parts == 1:
        for i in range(keys.size):
            words[i] = (_bucket(keys[i], shift) << uint64(row_bits)) | uint64(i)
        return keys.size
    low = (part << hash_bits) // parts
    high = ((part + 1) << hash_bits) // parts
    n = 0
    for i in range(keys.size):
        leading = np.int64(_bucket(keys[i], shift))
        words[n] = (uint64(leading) << uint64(row_bits)) | uint64(i)
        n += (low <= leading) & (leading < high)
    return n


@njit(nogil=True, cache=True)
def _unpack(words, row_bits, keys, begin, out_keys, out_rows):
    """Rows and their keys, from place `begin` on."""
    mask = (uint64(1) << uint64(row_bits)) - uint64(1)
    for i in range(words.size):
        row = words[i] & mask
        out_rows[begin + i] = row
        out_keys[begin + i] = keys[row]


# A slot is two int64s, so that one read brings all of it: the key; then the row (upper half) and the next slot.


@njit(nogil=True, cache=True)
def _link(heads, shift, slots, size, entry_keys, entry_rows, first_row):
    for i in range(entry_keys.size):
        slot = size + i
        key = entry_keys[i]
        b = _bucket(key, shift)
        slots[2 * slot] = key
        slots[2 * slot + 1] = (np.int64(first_row + entry_rows[i]) << 32) | np.int64(np.uint32(heads[b]))
        heads[b] = slot


@njit(nogil=True, cache=True)
def _relink(heads, shift, slots, size):
    for slot in range(size):
        b = _bucket(slots[2 * slot], shift)
        row = slots[2 * slot + 1] >> 32
        slots[2 * slot + 1] = (row << 32) | np.int64(np.uint32(heads[b]))
        heads[b] = slot


@njit(inline="always")
def _visit(mode, slots, slot, key, least, most, ticks):
    """Look at one slot: (whether it matches, its row, the next slot)."""
    rest = slots[2 * slot + 1]
    row = np.int32(rest >> 32)
    hit = np.int64(slots[2 * slot] == key) & in_bounds(mode, row, least, most, ticks)
    return hit, row, np.int32(rest & 0xFFFFFFFF)


@cache
def _walk_kernel(mode: int, use: int):
    emits, marks = use == EMIT, use == MARK

    @njit(nogil=True, cache=True)
    def walk(
        heads, shift, slots, probe_keys, probe_rows, stop, walkers, at, least, most, low, high, ticks, first, count,
        out_probe, out_row,
    ):  # fmt: skip
        """Walk the chains of the probes from `first` to `stop`, some at a time, until all have ended or, if pairs are
        written, the room is used up; returns (the first probe not begun, walkers left, pairs).

        walkers, at: probes under way, `count` of them, and the slots they are on; for a round of as many as these hold
        there must be room. least, most: the bounds of probe i at place i of a ring. out_probe, out_row: pairs; or, to
        mark who is in them, a byte for each row.
        """
        n = 0
        room = out_row.size - 1  # one place is written to before it is known to be wanted
        ring = np.uint64(walkers.size - 1)
        while True:
            if count == 0:
                if first == stop:
                    return first, count, n
                beyond = min(first + walkers.size, stop)
                for i in range(first, beyond):
                    slot = heads[_bucket(probe_keys[i], shift)]
                    walkers[count] = i
                    at[count] = slot
                    count += slot >= 0
                    prefetch(slots, np.uint64(2) * np.uint64(max(slot, 0)))
                if mode != UNBOUNDED:  # scattered reads, so no more of them than there must be
                    for i in range(first, beyond):
                        least[np.uint64(i) & ring] = low[probe_rows[i]]
                    for i in range(first, beyond):
                        most[np.uint64(i) & ring] = high[probe_rows[i]]
                first = beyond
            while count > _FEW and (not emits or n + count <= room):  # in rounds: every walker one slot further
                kept = 0
                for k in range(count):
                    i = walkers[k]
                    a, b = bounds_of(mode, np.uint64(i) & ring, least, most)
                    hit, row, following = _visit(mode, slots, np.uint64(at[k]), probe_keys[i], a, b, ticks)
                    if emits:
                        out_probe[n] = probe_rows[i]
                        out_row[n] = row
                    elif marks and hit:  # never a 0: another thread may just have marked it
                        out_probe[probe_rows[i]] = 1
                        out_row[row] = 1
                    n += hit
                    walkers[kept] = i
                    at[kept] = following
                    kept += following >= 0
                    prefetch(slots, np.uint64(2) * np.uint64(max(following, 0)))
                count = kept
            if count > _FEW:
                return first, count, n
            while count > 0:  # few are left, on long chains: one after the other, to the end
                i = walkers[count - 1]
                a, b = bounds_of(mode, np.uint64(i) & ring, least, most)
                key = probe_keys[i]
                slot = at[count - 1]
                while slot >= 0:
                    if emits and n == room:
                        at[count - 1] = slot
                        return first, count, n
                    hit, row, slot = _visit(mode, slots, np.uint64(slot), key, a, b, ticks)
                    if emits:
                        out_probe[n] = probe_rows[i]
                        out_row[n] = row
                    elif marks and hit:
                        out_probe[probe_rows[i]] = 1
                        out_row[row] = 1
                    n += hit
                count -= 1

    return walk


class Entries(NamedTuple):
    """A batch in order of hash, to be stored or to probe."""

    keys: Array
    rows: Array
    of: Array  # the keys as they came

    @property
    def size(self) -> int:
        return self.rows.size


@dataclass(frozen=True)
class Hash:
    """Equality by hash chains; whatever else the predicate says is checked on the pairs found."""

    buckets: int = 1024

    def __post_init__(self) -> None:
        if self.buckets < 2 or self.buckets & (self.buckets - 1):
            raise ValueError(f"buckets must be a power of two, at least 2, not {self.buckets}")

    name: ClassVar[str] = "hash"
    needs: ClassVar[Needs] = "equality"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = False

    def entries(
        self, equal: Array | None, ordered: Array | None, live: Array | None, n: int, workers: Workers
    ) -> Entries:
        """O(n), once a batch."""
        assert equal is not None and ordered is None
        return Entries(*_by_hash(equal, live, n, workers), equal)

    def probes(self, equal, lows, highs, live, n, workers: Workers, entries: Entries | None = None) -> Entries:
        """O(1) where the batch probes with the keys that it stores, as it mostly does."""
        if entries is not None and entries.of is equal:
            return entries
        return self.entries(equal, None, live, n, workers)

    def structure(self, like: HashStructure | None = None, workers: Workers = ALONE) -> HashStructure:
        """An empty structure, with room for as much as `like` came to hold."""
        return HashStructure(self.buckets, 0 if like is None else like.size)


def _by_hash(equal: Array, live: Array | None, n: int, workers: Workers) -> tuple[Array, Array]:
    """Keys and rows of the live rows, in order of hash. Each thread takes its part of all hashes."""
    picked = None if live is None else live_rows(live, n)
    keys = equal if picked is None else equal[picked]
    row_bits = max(keys.size - 1, 1).bit_length()
    parts = len(workers.parts(keys.size, _SMALL, each=1))

    def sort(part: int) -> Array:
        words = room(keys.size + 1, np.uint64)  # one place is written to before it is known to be wanted
        words = words[: _pack(keys, _HASH_BITS, row_bits, part, parts, words)]
        if words.size < FEW or numpy_is_faster():
            words.sort()
            return words
        return sort_words(words, room(words.size, np.uint64), row_bits, *digits(_HASH_BITS, words.size))

    in_order = workers.map(sort, range(parts))
    sorted_keys, rows = room(keys.size, np.int64), room(keys.size, np.int32)

    def unpack(part: int) -> None:
        begin = sum(words.size for words in in_order[:part])
        _unpack(in_order[part], row_bits, keys, begin, sorted_keys, rows)

    workers.map(unpack, range(parts))
    return sorted_keys, rows if picked is None else picked[rows]


class HashStructure:
    def __init__(self, buckets: int, expected: int = 0):
        self.size = 0
        self._slots = aligned(2 * max(buckets, expected + expected // 8))  # what is not written to takes no memory
        self._hash(max(buckets, expected))

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(1) per tuple."""
        size = self.size + entries.size
        if 2 * size > self._slots.size:
            self._resize(grown(self._slots.size // 2, size))
        _link(self._heads, self._shift, self._slots, self.size, entries.keys, entries.rows, np.int32(first_row))
        self.size = size
        if size > _LOAD * self._heads.size:
            self._hash(int(size * _LOAD))

    def _hash(self, expected: int) -> None:
        """Take as many buckets as that many rows want, and link the rows there are."""
        bits = max(1, int(expected / _LOAD - 1).bit_length())
        self._heads = np.full(1 << bits, -1, np.int32)
        self._shift = np.uint64(64 - bits)
        _relink(self._heads, self._shift, self._slots, self.size)

    def _resize(self, rows: int) -> None:
        slots = aligned(2 * rows)
        slots[: 2 * self.size] = self._slots[: 2 * self.size]
        self._slots = slots

    def find(self, probes: Entries, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(1 + rows in the bucket) per probe."""
        if not self.size:
            return
        walk = self._walk(probes, start, stop, bounds, EMIT)
        first, count, room = start, 0, 2 * (stop - start) + _LEAST_ROOM
        while first < stop or count:
            out = Emitter(min(room, PORTION))
            first, count, n = walk(first, count, out.batch_rows, out.rows)
            if n:
                yield out.emitted(n)
            room *= 2

    def count(self, probes: Entries, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`."""
        return self._walk(probes, start, stop, bounds, COUNT)(start, 0, _NO_ROOM, _NO_ROOM)[2]

    def mark(
        self, probes: Entries, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int:
        """As `find`."""
        return self._walk(probes, start, stop, bounds, MARK)(start, 0, probes_met, met)[2]

    def _walk(self, probes: Entries, start: int, stop: int, bounds: TickBounds | None, use: int) -> Any:
        """The kernel, to be told where to go on, with how many walkers, and where to write."""
        b = bounds or no_ticks()
        places = min(1 << (stop - start - 1).bit_length(), _TOGETHER)
        walkers, at = np.empty(places, np.int32), np.empty(places, np.int32)
        least, most = (b.low, b.high) if bounds is None else (np.empty(places, np.int64), np.empty(places, np.int64))
        return partial(
            _walk_kernel(bounds_mode(bounds), use), self._heads, self._shift, self._slots, probes.keys, probes.rows,
            stop, walkers, at, least, most, b.low, b.high, b.ticks,
        )  # fmt: skip

    def seal(self) -> None:
        if self._slots.size > 3 * self.size:  # half as much again
            self._resize(self.size)
        if self._heads.size > 2 * self.size / _LOAD:
            self._hash(self.size)

    def nbytes(self) -> int:
        """Bytes in use; room that was never written to takes none."""
        return self._heads.nbytes + 16 * self.size

    def check_invariants(self) -> None:
        seen = set()
        for b, head in enumerate(self._heads):
            newer, slot = self.size, int(head)
            while slot >= 0:
                assert slot < newer, f"chain of bucket {b} is not newest first: {slot} after {newer}"
                key, rest = int(self._slots[2 * slot]), int(self._slots[2 * slot + 1])
                key_bucket = (key * int(_FIBONACCI)) % 2**64 >> int(self._shift)
                assert key_bucket == b, f"slot {slot} (key {key}) is in bucket {b}, not {key_bucket}"
                seen.add(rest >> 32)
                newer, slot = slot, int(np.uint32(rest & 0xFFFFFFFF).astype(np.int32))
        assert len(seen) == self.size, f"{len(seen)} rows in chains, {self.size} inserted"
