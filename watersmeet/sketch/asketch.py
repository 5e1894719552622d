"""ASketch: which keys of a stream are frequent, in one pass and some kilobytes.

A filter has counters of their own for the few keys that come most; all others share the counters of a count-min
sketch, a row of them for each of `depth` hashes.

    filter            key 7: 5210      key 3: 1904      ...       key 90: 33      <- the least
    sketch, row 0     |  12 |   3 |  31 |   0 |  18 | ...
            row 1     |   7 |  31 |   2 |  11 |   9 | ...

    add(41)     not in the filter; its counters are 31 in row 0 and 31 in row 1: it has come 31 times at most, now 32
    add(41)     33, not more than the least of the filter
    add(41)     34: more. Key 41 takes the place of key 90, whose counters in the sketch are raised to 33

Invariants:
- An estimate is never below the truth: a key's counter in the filter, and each of its counters in the sketch where it
  is not in the filter, is at least the number of times it has come.
- The keys of the filter are all different, and `slots` leads to each of them.
- `low` is not above the least count of a full filter.

Ageing: with `window` all counters are halved, upwards, each time that so many keys have come. A key of one window ago
counts half, of two windows ago a quarter; an estimate is never below that sum.

Cost: add O(1) a key, a filter's length more where two keys swap; estimate and hot O(1) a key.
Memory: 8 bytes a counter, 32 KiB by default, for a stream of any length.
Reference: STA-Join, sections 2.2.2 and 4.4 (augmented sketch, after Roy et al.).
Differs from the paper: the filter is found by a hash instead of a scan, so it may be larger than 32 keys; the sketch
raises no counter above a key's new estimate; a key that leaves the filter raises its counters to its count, so that no
old count has to be remembered beside the new one.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit, uint64

from watersmeet.parameters import whole, whole_or_none
from watersmeet.query.kernels import scramble

Array = np.ndarray

_MAGIC = b"ASK1"
_HEADER = struct.Struct("<4sIIIIIqqq")  # magic, depth, width, filter, keys in it, seed, window, total, until it ages
_ODD = 0x9E3779B97F4A7C15
_SLOTS = 8  # for each key of the filter, so that most searches end at once


class _State(NamedTuple):
    """Flat arrays, as kernels take them."""

    keys: Array  # of the filter
    counts: Array
    slots: Array  # by hash: the number of a key in the filter, or -1
    cells: Array  # counters of the sketch, row by row
    few: Array  # keys in the filter; a bound of their least count; keys until counters are halved, or -1; total


@njit(inline="always")
def _hash(key, seed):
    return scramble(uint64(key) * uint64(_ODD) + uint64(seed))


@njit(inline="always")
def _slot(state, key, word):
    """Where the key is in `slots`, or would be."""
    mask = uint64(state.slots.size - 1)
    at = word & mask
    while state.slots[at] >= 0 and state.keys[state.slots[at]] != key:
        at = (at + uint64(1)) & mask
    return at


@njit(inline="always")
def _cell(state, row, word):
    """The column of a hash in a row of the sketch: two halves of the hash make as many as are needed."""
    width = state.cells.shape[1]
    mixed = (word >> uint64(32)) + uint64(row) * ((word & uint64(0xFFFFFFFF)) | uint64(1))
    return ((mixed & uint64(0xFFFFFFFF)) * uint64(width)) >> uint64(32)


@njit(inline="always")
def _shared(state, word):
    """The least of a key's counters in the sketch."""
    least = state.cells[0, _cell(state, 0, word)]
    for row in range(1, state.cells.shape[0]):
        least = min(least, state.cells[row, _cell(state, row, word)])
    return least


@njit(inline="always")
def _raise(state, word, count):
    """No counter of this key in the sketch is below its count any more."""
    for row in range(state.cells.shape[0]):
        column = _cell(state, row, word)
        state.cells[row, column] = max(state.cells[row, column], count)


@njit
def _lead(state, seed):
    """Make `slots` lead to the keys of the filter. O(filter)."""
    state.slots[:] = -1
    for number in range(state.few[0]):
        key = state.keys[number]
        state.slots[_slot(state, key, _hash(key, seed))] = number


@njit
def _swap(state, key, count, seed):
    """A key that has come `count` times enters the full filter, if that is more than the least there has. O(filter)."""
    least = 0
    for number in range(1, state.few[0]):
        if state.counts[number] < state.counts[least]:
            least = number
    state.few[1] = state.counts[least]
    if count <= state.counts[least]:
        return
    _raise(state, _hash(state.keys[least], seed), state.counts[least])
    state.keys[least], state.counts[least] = key, count
    _lead(state, seed)


@njit
def _age(state):
    """Halve all counters, upwards."""
    for number in range(state.few[0]):
        state.counts[number] = (state.counts[number] + 1) >> 1
    for row in range(state.cells.shape[0]):
        for column in range(state.cells.shape[1]):
            state.cells[row, column] = (state.cells[row, column] + 1) >> 1
    state.few[1] = (state.few[1] + 1) >> 1
    state.few[3] = (state.few[3] + 1) >> 1


@njit(nogil=True, cache=True)
def _add(state, batch, seed, window):
    start = 0
    while start < batch.size:
        if state.few[2] == 0:
            _age(state)
            state.few[2] = window
        stop = batch.size if window < 0 else min(batch.size, start + state.few[2])
        _count(state, batch[start:stop], seed)
        state.few[2] -= 0 if window < 0 else stop - start
        state.few[3] += stop - start
        start = stop


@njit
def _count(state, batch, seed):
    keys, counts, slots = state.keys, state.counts, state.slots
    mask = uint64(slots.size - 1)
    low = state.few[1]
    for key in batch:
        word = _hash(key, seed)
        at = word & mask
        number = slots[at]
        while number >= 0 and keys[uint64(number)] != key:
            at = (at + uint64(1)) & mask
            number = slots[at]
        if number >= 0:
            counts[uint64(number)] += 1
        elif state.few[0] < keys.size:
            number = state.few[0]
            state.few[0] += 1
            keys[number], counts[number], slots[at] = key, 1, number
        else:
            count = _shared(state, word) + 1
            _raise(state, word, count)
            if count > low:
                _swap(state, key, count, seed)
                low = state.few[1]


@njit(nogil=True, cache=True)
def _look(state, batch, seed, counts, filtered):
    """Write each key's count, and whether it is in the filter."""
    for i in range(batch.size):
        word = _hash(batch[i], seed)
        number = state.slots[_slot(state, batch[i], word)]
        filtered[i] = number >= 0
        counts[i] = state.counts[number] if number >= 0 else _shared(state, word)


@njit(nogil=True, cache=True)
def _merge(state, keys, counts, seed):
    """Fill an empty filter with the first of these keys, and let the sketch have the others."""
    state.few[0] = min(keys.size, state.keys.size)
    for i in range(keys.size):
        if i < state.few[0]:
            state.keys[i], state.counts[i] = keys[i], counts[i]
        else:
            _raise(state, _hash(keys[i], seed), counts[i])
    state.few[1] = 0
    _lead(state, seed)


class ASketch:
    """How often the keys of a stream come, and which come most. Keys are whole numbers that fit into int64.

    filter: keys that have a counter of their own; only these can be hot.
    width, depth: counters in a row of the sketch, and rows.
    window: counters are halved each time that so many keys have come; None: never.
    seed: of the hashes. Sketches that are to be merged must have the same, as all else.

    >>> sketch = ASketch(filter=2)
    >>> sketch.add([7, 7, 7, 3, 3, 1])
    >>> sketch.top(2)
    [(7, 3), (3, 2)]
    >>> sketch.estimate([7, 1, 99]).tolist(), sketch.hot([7, 1]).tolist()
    ([3, 1, 0], [True, False])
    """

    def __init__(
        self, filter: int = 64, width: int = 1024, depth: int = 4, window: int | None = None, seed: int = 0
    ) -> None:
        self.filter = whole("filter", filter, most=1 << 14)
        self.width = whole("width", width, most=1 << 31)
        self.depth = whole("depth", depth, most=64)
        self.window = whole_or_none("window", window, most=1 << 62)
        self.seed = whole("seed", seed, least=0, most=(1 << 32) - 1)
        slots = 1 << (_SLOTS * self.filter - 1).bit_length()
        self._state = _State(
            np.zeros(self.filter, np.int64), np.zeros(self.filter, np.int64), np.full(slots, -1, np.int16),
            np.zeros((self.depth, self.width), np.int64), np.array([0, 0, self.window or -1, 0]),
        )  # fmt: skip

    # -- counting ----------------------------------------------------------------------------------------------------

    def add(self, keys: Any) -> None:
        """Count a batch. O(keys)."""
        _add(self._state, _whole_numbers(keys), self.seed, self.window or -1)

    def merge(self, other: ASketch) -> None:
        """Count all that the other has counted. Its estimates are then the sums of both. O(counters)."""
        if not isinstance(other, ASketch):
            raise TypeError(f"other must be an ASketch, got {other!r}")
        if self._shape() != other._shape():
            raise ValueError(f"sketches to be merged must be alike, got {self._shape()} and {other._shape()}")
        known = np.unique(np.concatenate([one._state.keys[: one._state.few[0]] for one in (self, other)]))
        counts = self.estimate(known) + other.estimate(known)
        order = np.argsort(-counts, kind="stable")
        self._state.cells[:] += other._state.cells
        _merge(self._state, known[order], counts[order], self.seed)
        self._state.few[3] += other._state.few[3]

    def copy(self) -> ASketch:
        """Another with the same counts. O(counters)."""
        made = object.__new__(ASketch)
        made.__dict__.update(self.__dict__, _state=_State(*(array.copy() for array in self._state)))
        return made

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """How many keys have come; with a window, those that have aged count less."""
        return int(self._state.few[3])

    def estimate(self, keys: Any) -> Array:
        """How often each key has come: never less than in truth, seldom much more. O(keys)."""
        return self._looked_up(keys)[0]

    def hot(self, keys: Any, share: float = 0.0) -> Array:
        """Which keys are among those with counters of their own, and at least such a share of all. O(keys)."""
        counts, filtered = self._looked_up(keys)
        return filtered & (counts >= share * self.total)

    def top(self, k: int | None = None) -> list[tuple[int, int]]:
        """The k keys that have come most, and how often, the most frequent first. O(filter log filter)."""
        k = whole("k", self.filter if k is None else k, most=self.filter)
        used = int(self._state.few[0])
        found = zip(self._state.keys[:used].tolist(), self._state.counts[:used].tolist(), strict=True)
        return sorted(found, key=lambda one: (-one[1], one[0]))[:k]

    def _looked_up(self, keys: Any) -> tuple[Array, Array]:
        batch = _whole_numbers(keys)
        counts, filtered = np.empty(batch.size, np.int64), np.empty(batch.size, bool)
        _look(self._state, batch, self.seed, counts, filtered)
        return counts, filtered

    # -- as bytes ----------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """All of it, in little-endian words. O(counters)."""
        state, used = self._state, int(self._state.few[0])
        header = _HEADER.pack(
            _MAGIC, self.depth, self.width, self.filter, used, self.seed, self.window or -1, self.total,
            int(state.few[2]),
        )  # fmt: skip
        arrays = (state.keys[:used], state.counts[:used], state.cells)
        return header + b"".join(array.astype("<i8").tobytes() for array in arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> ASketch:
        """The sketch that `to_bytes` was called on. O(counters)."""
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise ValueError("data must be what ASketch.to_bytes gives, and this does not begin like it")
        _, depth, width, filter_, used, seed, window, total, until = _HEADER.unpack_from(data)
        words = 2 * used + depth * width
        if used > filter_ or len(data) != _HEADER.size + 8 * words:
            raise ValueError(
                f"data must be what ASketch.to_bytes gives: {_HEADER.size + 8 * words} bytes, got {len(data)}"
            )
        made = cls(filter_, width, depth, None if window < 0 else window, seed)
        keys, counts, cells = np.split(np.frombuffer(data, "<i8", words, _HEADER.size), [used, 2 * used])
        state = made._state
        state.keys[:used], state.counts[:used], state.cells[:] = keys, counts, cells.reshape(depth, width)
        state.few[:] = used, 0, until, total
        _lead(state, seed)
        return made

    # -- looking -----------------------------------------------------------------------------------------------------

    def nbytes(self) -> int:
        """Bytes of its counters and keys."""
        return sum(array.nbytes for array in self._state)

    def check_invariants(self) -> None:
        state = self._state
        used = int(state.few[0])
        assert 0 <= used <= self.filter and state.few[3] >= 0, self
        assert np.unique(state.keys[:used]).size == used, state.keys[:used]
        assert np.array_equal(np.sort(state.slots[state.slots >= 0]), np.arange(used)), state.slots
        assert self._looked_up(state.keys[:used])[1].all(), state.keys[:used]
        if used:
            assert np.all(state.counts[:used] > 0) and (used < self.filter or state.few[1] <= state.counts.min()), state
        assert np.all(state.cells >= 0), state.cells

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value}" for name, value in self._shape().items() if value is not None)
        return f"<ASketch {parts}; {self.total:,} keys>"

    def _shape(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("filter", "width", "depth", "window", "seed")}


def _whole_numbers(keys: Any) -> Array:
    """Keys as an array of int64."""
    if isinstance(keys, pa.Array | pa.ChunkedArray):
        if keys.null_count:
            raise ValueError(f"keys must not be null, got {keys.null_count} nulls; drop them first")
        keys = keys.to_numpy() if isinstance(keys, pa.ChunkedArray) else keys.to_numpy(zero_copy_only=False)
    found = np.asarray(keys)
    if found.size == 0:
        return np.zeros(0, np.int64)
    if found.ndim != 1 or found.dtype.kind not in "iu" or found.dtype == np.uint64:
        raise TypeError(f"keys must be a batch of whole numbers that fit into int64, got {found.dtype} {found.shape}")
    return np.ascontiguousarray(found, np.int64)
