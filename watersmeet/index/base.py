"""What every window index has in common.

A window is a chain of subwindows, and each subwindow keeps its tuples in one *structure*. An *index* is the
recipe for such structures: a small frozen object that a user may name (`index="bisort"`) or configure
(`index=wm.index.BISort(buffer_rows=1024)`). It does three things.

    entries = index.entries(equal, ordered, live, n, workers)      a batch, in the order in which structures take it
    probes = index.probes(equal, lows, highs, live, n, workers)    the same batch, as questions to the other side
    structure = index.structure()                                  an empty structure

Entries and probes are made once a batch and used on every subwindow, so the sort is paid once.

A structure knows rows by their number in the subwindow (0, 1, 2 ... in order of arrival) and keys as int64. It
knows nothing of Arrow, of streams or of time; but each row has a *tick* (an int64, in practice its time or its
position in the stream), and a probe may ask that the ticks of its partners lie within bounds of its own. Only
subwindows at the edge of the window need that; elsewhere the bounds are not passed and not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numba import njit, uint64

from watersmeet.memory import room
from watersmeet.workers import ALONE, Workers

Array = np.ndarray
Pairs = tuple[Array, Array]
Needs = Literal["nothing", "equality", "order"]  # of the predicate: any, an equality, an equality or a range

#: Candidates are handed over in portions of about this many, so that a probe with very many partners, most of
#: which a later check throws away, does not need memory for all of them at once.
PORTION = 1 << 20


class TickBounds(NamedTuple):
    """Partners of batch row i must have `low[i] <= ticks[partner row] <= high[i]`.

    Where rows lie in order of their ticks, the bounds are given as row numbers and `ticks` is empty: what is compared
    is then in a register, where a tick would be a miss in the cache.
    """

    low: Array
    high: Array
    ticks: Array


class Structure(Protocol):
    """The tuples of one subwindow."""

    def insert(self, entries: Any, first_row: int) -> None:
        """Store a batch; its row i becomes row `first_row + i` here."""

    def find(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """Yield (batch rows, rows here) of all matches of probes[start:stop], in portions, in any order."""

    def count(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> int:
        """How many pairs `find` would yield, without making them."""

    def seal(self) -> None:
        """No more inserts will come: give back spare room."""

    def nbytes(self) -> int:
        """Bytes held."""

    def check_invariants(self) -> None:
        """Raise AssertionError, showing the state, if the structure is not what it should be."""


class Forgetting(Structure, Protocol):
    """A structure that can hold a whole window."""

    def worth_forgetting(self, expired: int, size: int) -> bool:
        """Whether to let go of the oldest `expired` of `size` rows now. Until then probes leave them out by ticks."""

    def forget(self, gone: int) -> None:
        """Drop the rows below `gone` and number the others from 0 again."""


@runtime_checkable
class Marking(Protocol):
    """A structure that can tell who is in pairs without making them."""

    def mark(
        self, probes: Any, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int: ...


class Index(Protocol):
    """A recipe for structures."""

    name: ClassVar[str]
    needs: ClassVar[Needs]
    composite: ClassVar[bool]  # whether an equality's key and a range's go into one order; else the range is a residual
    forgets: ClassVar[bool]  # whether its structures are `Forgetting`

    def entries(
        self, equal: Array | None, ordered: Array | None, live: Array | None, n: int, workers: Workers
    ) -> Any: ...

    def probes(
        self,
        equal: Array | None,
        lows: tuple[Array, ...],
        highs: tuple[Array, ...],
        live: Array | None,
        n: int,
        workers: Workers,
        entries: Any = None,
    ) -> Any: ...

    def structure(self, like: Any = None, workers: Workers = ALONE) -> Structure:
        """An empty structure that will come to hold about as much as `like` does; `workers` are for its inserts."""


def mark(
    structure: Structure, probes: Any, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
) -> int:
    """How many pairs `find` would yield; sets a byte for each batch row and each row here that is in one."""
    if isinstance(structure, Marking):
        return structure.mark(probes, start, stop, bounds, probes_met, met)
    pairs = 0
    for batch_rows, rows in structure.find(probes, start, stop, bounds):
        _mark(batch_rows, rows, probes_met, met)
        pairs += rows.size
    return pairs


@njit(nogil=True, cache=True)
def _mark(batch_rows, rows, probes_met, met):
    for i in range(rows.size):
        probes_met[batch_rows[i]] = 1
        met[rows[i]] = 1


class Emitter:
    """Two arrays that kernels write pairs into; grown when a single probe needs more than they hold."""

    def __init__(self, capacity: int):
        self._reserve(max(int(capacity), 64))

    def _reserve(self, capacity: int) -> None:
        both = room(2 * capacity, np.int32)
        self.batch_rows, self.rows = both[:capacity], both[capacity:]

    def grow(self) -> None:
        self._reserve(2 * self.batch_rows.size)

    def emitted(self, n: int) -> Pairs:
        return self.batch_rows[:n], self.rows[:n]


def portions(start: int, stop: int, write: Callable[[int, Emitter], tuple[int, int]]) -> Iterator[Pairs]:
    """The pairs of the probes from `start` to `stop`, as many at a time as there is room for.

    write(start, out): writes from probe `start` on, and says which is the first not done, and how many pairs it wrote.
    """
    out = Emitter(min(2 * (stop - start) + 64, PORTION))
    while start < stop:
        done, n = write(start, out)
        if n:
            yield out.emitted(n)
        if done == start:
            out.grow()  # a single probe has more partners than there was room for
        elif done < stop:
            out = Emitter(max(out.rows.size, min(2 * out.rows.size, PORTION)))
        start = done


def aligned(n: int) -> Array:
    """Uninitialised int64s that begin with a cache line, so that 8 of them never straddle two."""
    raw = np.empty(n + 7, np.int64)
    skip = (-raw.ctypes.data % 64) // 8
    return raw[skip : skip + n]


def grown(size: int, need: int) -> int:
    """The room to take when `need` must fit: generous while small, a quarter more when that is much memory."""
    return max(need, size + max(size // 4, min(size, 1 << 14)))


def appended(array: Array, used: int, values: Array) -> Array:
    """The array with the values behind its first `used` ones; a larger one if they do not fit."""
    if not values.size:
        return array
    need = used + values.size
    if need > array.size:
        larger = np.empty(grown(array.size, need), array.dtype)
        larger[:used] = array[:used]
        array = larger
    array[used:need] = values
    return array


def live_rows(live: Array | None, n: int) -> Array:
    """Numbers of the live rows, as int32."""
    if live is None:
        return np.arange(n, dtype=np.int32)
    return np.flatnonzero(live).astype(np.int32)


#: How kernels compare ticks. Kernels are compiled once for each, with the mode as a constant: a test of it inside of
#: the loop keeps the compiler from making the loop free of branches, and costs a factor of five.
UNBOUNDED, BY_ROW, BY_TICK = 0, 1, 2
EMIT, COUNT, MARK = 0, 1, 2  # what becomes of partners


def bounds_mode(bounds: TickBounds | None) -> int:
    return UNBOUNDED if bounds is None else BY_TICK if bounds.ticks.size else BY_ROW


@njit(inline="always")
def bounds_of(mode, p, low, high):
    """(least, most) of batch row p. Read before the loop over its partners: behind a store it would be read again."""
    if mode == UNBOUNDED:
        return np.int64(0), np.int64(0)
    return low[p], high[p]


@njit(inline="always")
def in_bounds(mode, row, least, most, ticks):
    """1 if a row is within the bounds, else 0."""
    if mode == UNBOUNDED:
        return np.int64(1)
    value = np.int64(row)
    if mode == BY_TICK:
        value = ticks[row]
    return np.int64(least <= value) & np.int64(value <= most)


@njit
def keep_within(mode, low, high, ticks, out_probe, out_row, first, stop):
    """Of the pairs from `first` to `stop` keep those within bounds, one behind the other; returns where they end.

    Apart from the loops that find pairs, so that these are compiled once and not for each way to compare ticks.
    """
    n = uint64(first)
    if mode == UNBOUNDED:
        return uint64(stop)
    if mode == BY_ROW:
        for i in range(uint64(first), uint64(stop)):
            p = out_probe[i]
            row = out_row[i]
            out_probe[n] = p
            out_row[n] = row
            n += uint64(low[p] <= row) & uint64(row <= high[p])
    else:
        for i in range(uint64(first), uint64(stop)):
            p = out_probe[i]
            row = out_row[i]
            tick = ticks[row]
            out_probe[n] = p
            out_row[n] = row
            n += uint64(low[p] <= tick) & uint64(tick <= high[p])
    return n


def no_ticks() -> TickBounds:
    """A placeholder for kernels that are told not to look at ticks."""
    return _NO_TICKS


_NONE = np.zeros(0, np.int64)
_NO_TICKS = TickBounds(_NONE, _NONE, _NONE)
