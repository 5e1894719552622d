"""The 8-byte columns of a stream, row by row, found by position.

    columns   a  a  a  a ..             rows   a b c | a b c | a b c | ..
              b  b  b  b ..
              c  c  c  c ..

A join reads whole tuples at scattered positions. In columns each of a tuple's values is a miss in the cache; in a row
of no more than a cache line the first brings in the others. So what comes in is copied, once, in order, which costs a
small part of what it saves.

Rows lie in slabs, as large as a huge page where the window holds several of those, so that the places of a whole
window are few to the processor's page tables; a slab goes, or is used again, when all of its rows have expired. A table
has the address of every block of positions, so that a row is found in one step, whatever the sizes of the slabs.

Rows are only written behind those that are there, and lists of slabs are replaced, not changed; so what `save` notes is
enough to `restore`.

Cost: append O(rows), take O(rows out), retain O(slabs), save O(1).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numba import carray, njit

from watersmeet.index.base import appended
from watersmeet.prefetch import prefetch_address
from watersmeet.window.gather import pointer, word
from watersmeet.workers import Workers

Array = np.ndarray

MOST_WORDS = 8  # of a row: a cache line
BLOCK_BITS = 10
_BLOCK = 1 << BLOCK_BITS
_HUGE_PAGE = 1 << 21
_CHUNK = 512  # rows that are asked for before they are read


@njit(nogil=True, cache=True)
def _put(columns, start, stop, words, address):
    """Rows start to stop of columns at these addresses, to this address: some at a time, so that they stay in cache."""
    k = np.uint64(words)
    out = carray(pointer(address), ((stop - start) * words,), np.uint64)
    first = start
    while first < stop:
        count = min(_CHUNK, stop - first)
        for c in range(words):
            column = carray(pointer(columns[c]), (stop,), np.uint64)
            for i in range(count):
                out[np.uint64(first - start + i) * k + np.uint64(c)] = column[np.uint64(first + i)]
        first += count


@njit(nogil=True, cache=True)
def _take(bases, first_block, words, columns, positions, outputs, start, stop):
    """Columns of the rows at positions[start:stop], to these addresses."""
    at = np.empty(_CHUNK, np.int64)
    width = np.int64(8) * words
    while start < stop:
        count = min(_CHUNK, stop - start)
        for i in range(count):
            p = positions[start + i]
            address = bases[np.uint64((p >> BLOCK_BITS) - first_block)] + (p & (_BLOCK - 1)) * width
            at[i] = address
            prefetch_address(address)
            prefetch_address(address + width - 8)
        for k in range(columns.size):
            offset = 8 * columns[k]
            out = carray(pointer(outputs[k]), (stop,), np.uint64)
            for i in range(count):
                out[np.uint64(start + i)] = word(at[i] + offset)
        start += count


class _Slab(NamedTuple):
    rows: int
    address: int
    memory: Array

    @classmethod
    def of(cls, rows: int, width: int) -> _Slab:
        need = rows * width
        if need <= _HUGE_PAGE // 2:
            memory = np.empty(need, np.uint8)
            return cls(rows, memory.ctypes.data, memory)
        memory = np.empty(2 * _HUGE_PAGE, np.uint8)  # NumPy asks for huge pages; what is not used takes no memory
        return cls(rows, -(-memory.ctypes.data // _HUGE_PAGE) * _HUGE_PAGE, memory)


class Rows:
    """Rows of `words` 8-byte values, from a position on that begins a block."""

    def __init__(self, words: int, begin: int = 0):
        self._words = words
        self._width = 8 * words
        self._slabs: list[tuple[int, _Slab]] = []  # first position, slab; ascending
        self._spare: list[_Slab] = []  # to be used again: the system takes long to find huge pages, and clears them
        self._end = begin
        self._room = begin  # positions up to here have a place
        # The address of each block of positions, from block `_first_block` on.
        self._bases = np.zeros(16, np.int64)
        self._first_block = begin >> BLOCK_BITS

    @property
    def begin(self) -> int:
        """The oldest position that is held, or none is."""
        return self._first_block << BLOCK_BITS

    @property
    def end(self) -> int:
        """The position that the next row gets."""
        return self._end

    def nbytes(self) -> int:
        """Bytes of the rows held, and of slabs to be used again; room behind the last row takes none, or little."""
        spare = sum(slab.rows for slab in self._spare)
        return (sum(slab.rows for _, slab in self._slabs) - (self._room - self._end) + spare) * self._width

    def save(self) -> tuple[Any, ...]:
        """What it takes to `restore` it."""
        return self._slabs, self._spare, self._end, self._room, self._bases, self._first_block

    def restore(self, saved: tuple[Any, ...]) -> None:
        self._slabs, self._spare, self._end, self._room, self._bases, self._first_block = saved

    def append(self, columns: Array, n: int) -> None:
        """n rows of columns that lie at these addresses."""
        done = 0
        while done < n:
            if self._end == self._room:
                self._add_slab(n - done)
            count = min(n - done, self._room - self._end)
            start, slab = self._slabs[-1]
            _put(columns, done, done + count, self._words, slab.address + (self._end - start) * self._width)
            done += count
            self._end += count

    def _add_slab(self, rows: int) -> None:
        """A quarter of what there is, so that little is held in vain; or room for what comes."""
        held = sum(slab.rows for _, slab in self._slabs)
        wanted = -(-max(held // 4, rows) // _BLOCK) * _BLOCK
        wanted = min(wanted, _HUGE_PAGE // self._width // _BLOCK * _BLOCK)
        fitting = (i for i, slab in enumerate(self._spare) if wanted <= slab.rows <= 2 * wanted)
        at = next(fitting, None)
        if at is None:
            slab = _Slab.of(wanted, self._width)
        else:
            slab = self._spare[at]
            self._spare = self._spare[:at] + self._spare[at + 1 :]
        block = self._end >> BLOCK_BITS  # it need not begin here: the slab before may have gone half full
        addresses = np.arange(slab.rows // _BLOCK) * (_BLOCK * self._width) + slab.address
        self._bases = appended(self._bases, block - self._first_block, addresses)
        self._slabs = [*self._slabs, (block << BLOCK_BITS, slab)]
        self._room = (block << BLOCK_BITS) + slab.rows

    def retain(self, kept: list[tuple[int, int]]) -> None:
        """Let go of slabs that hold no position in these ascending (first, one behind the last) ranges."""
        wanted, gone = [], []
        ranges = iter([*kept, (self._room, self._room + 1)])
        first, stop = next(ranges)
        for held in self._slabs:
            start, slab = held
            while stop <= start:
                first, stop = next(ranges)
            if first < start + slab.rows:
                wanted.append(held)
            else:
                gone.append(slab)
        if len(wanted) == len(self._slabs):
            return
        if not wanted or wanted[-1] is not self._slabs[-1]:
            self._room = self._end
        self._spare = [*self._spare, *gone][-(len(wanted) // 2 + 1) :] if wanted else []
        self._slabs = wanted
        blocks = ((wanted[0][0] if wanted else self._end) >> BLOCK_BITS) - self._first_block
        self._bases = self._bases[blocks:].copy()
        self._first_block += blocks

    def check_invariants(self) -> None:
        """Slabs lie one behind the other, and every block that has a place is in the table."""
        stop = self.begin
        for start, slab in self._slabs:
            assert stop <= start and start % _BLOCK == 0, f"slabs overlap: {self._slabs}"
            stop = start + slab.rows
            blocks = np.arange(start, stop, _BLOCK)
            places = slab.address + (blocks - start) * self._width
            assert np.array_equal(self._bases[(blocks >> BLOCK_BITS) - self._first_block], places), self._bases
        assert self._end <= self._room and (not self._slabs or self._room in (stop, self._end)), (self._room, stop)

    def take(self, positions: Array, columns: Array, workers: Workers) -> list[pa.Buffer]:
        """These of the columns at these positions."""
        n = positions.size
        buffers = [pa.allocate_buffer(8 * n) for _ in range(columns.size)]
        outputs = np.array([buffer.address for buffer in buffers], np.int64)
        take = partial(_take, self._bases, self._first_block, self._words, columns, positions, outputs)
        workers.over(take, n)
        return buffers
