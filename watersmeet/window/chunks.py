"""Columns of a stream, kept by reference in the Arrow batches they came in, found by position.

    chunks   [ batch 0..4999 | batch 5000..5119 | ... ]       positions count every tuple pushed on the stream

Batches are not copied: a chunk is the batch itself, and it goes when all of its rows have expired. Only small batches
(fewer than `SMALL_ROWS`) are joined with their neighbours, two of like size at a time, so that pushing single rows
does not leave thousands of tiny batches, each with its own overhead.

Cost: append O(1), or O(log SMALL_ROWS) copies of a tuple from small batches; take O(rows out); retain O(chunks).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.index.base import appended
from watersmeet.memory import room
from watersmeet.window.gather import ColumnKind, gather_by_chunk, gather_words, locate
from watersmeet.workers import SMALL, Workers

Array = np.ndarray

SMALL_ROWS = 4096
_BLOCK_BITS = 10


class Chunks:
    def __init__(self, schema: pa.Schema, small_rows: int = SMALL_ROWS, first: int = 0):
        self._small_rows = small_rows
        self._kinds = [ColumnKind(field.type) for field in schema]
        self._end = first
        self._chunks: list[pa.RecordBatch] = []
        # One place a chunk, with room for more: where it starts (and, behind the last, where that ends); where its
        # buffers lie ([columns, 4, chunks]).
        self._starts = np.zeros(16, np.int64)
        self._where = np.zeros((len(self._kinds), 4, 16), np.int64)
        self._has_nulls = np.zeros(len(self._kinds), bool)
        # The chunk with the first position of each block of positions, from the block that `_first` lies in.
        self._first = first
        self._blocks = np.zeros(16, np.int32)
        self._block_count = 0

    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)

    def save(self) -> tuple[list[pa.RecordBatch], Array, int]:
        """What it takes to `restore` it."""
        return list(self._chunks), self._starts[: len(self._chunks)].copy(), self._end

    def restore(self, saved: tuple[list[pa.RecordBatch], Array, int]) -> None:
        """O(chunks): neighbours may have been joined since, and others have come in their places."""
        chunks, starts, end = saved
        self._chunks = []
        self._has_nulls[:] = False
        for chunk, start in zip(chunks, starts.tolist(), strict=True):
            self._put(chunk, start)
        self._end = end
        self._starts[len(chunks)] = end
        self._make_blocks()

    def append(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        start = self._end
        self._end += batch.num_rows
        before = len(self._chunks)
        while self._chunks and batch.num_rows < self._small_rows:
            newest = self._chunks[-1]
            newest_start = int(self._starts[len(self._chunks) - 1])
            if newest.num_rows > 2 * batch.num_rows or newest.num_rows + batch.num_rows > self._small_rows:
                break
            if newest_start + newest.num_rows != start:
                break
            both = _joined(newest, batch)
            if both is None:
                break
            start = newest_start
            self._chunks.pop()
            batch = both
        at = len(self._chunks)
        self._put(batch, start)
        if at == before > 0:
            self._add_blocks(at)
        else:
            self._make_blocks()

    def _put(self, batch: pa.RecordBatch, start: int) -> None:
        """Behind the last chunk."""
        at = len(self._chunks)
        if at + 2 > self._starts.size:
            self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
            self._where = np.concatenate([self._where, np.zeros_like(self._where)], axis=2)
        self._chunks.append(batch)
        self._starts[at] = start
        self._starts[at + 1] = start + batch.num_rows
        for c, kind in enumerate(self._kinds):
            if kind.direct:
                where = kind.addresses(batch.column(c))
                self._where[c, :, at] = where
                if where[0]:
                    self._has_nulls[c] = True

    def _add_blocks(self, at: int) -> None:
        """Blocks that begin in the newest chunk."""
        known = (self._first >> _BLOCK_BITS) + self._block_count
        beyond = ((self._end - 1) >> _BLOCK_BITS) + 1
        if beyond > known:
            new = np.full(beyond - known, at, np.int32)
            self._blocks = appended(self._blocks, self._block_count, new)
            self._block_count += new.size

    def _make_blocks(self) -> None:
        starts = self._starts[: len(self._chunks)]
        self._first = int(starts[0]) if len(self._chunks) else self._end
        blocks = np.arange(self._first >> _BLOCK_BITS, ((self._end - 1) >> _BLOCK_BITS) + 1)
        found = np.searchsorted(starts, blocks << _BLOCK_BITS, "right") - 1
        self._blocks = np.maximum(found, 0).astype(np.int32)
        self._block_count = self._blocks.size

    def retain(self, kept: list[tuple[int, int]]) -> None:
        """Let go of chunks that hold no position in these ascending (first, one behind the last) ranges."""
        if len(kept) == 1 and self._chunks:
            first, stop = kept[0]
            if first < self._starts[0] + self._chunks[0].num_rows and stop == self._end:
                return  # all are needed still, as most often when a few tuples have expired
        ranges = iter([*kept, (self._end, self._end + 1)])
        first, stop = next(ranges)
        wanted = []
        for i, chunk in enumerate(self._chunks):
            start = self._starts[i]
            while stop <= start:
                first, stop = next(ranges)
            if first < start + chunk.num_rows:
                wanted.append(i)
        n = len(wanted)
        if n == len(self._chunks):
            return
        self._starts[:n] = self._starts[wanted]
        self._starts[n] = self._end
        self._where[:, :, :n] = self._where[:, :, wanted]
        self._chunks = [self._chunks[i] for i in wanted]
        self._has_nulls[:] = self._where[:, 0, :n].any(axis=1)
        self._make_blocks()

    def check_invariants(self) -> None:
        """Chunks lie one behind the other, and every block of positions leads to the chunk it begins in."""
        n = len(self._chunks)
        starts = self._starts[:n]
        stops = starts + np.array([chunk.num_rows for chunk in self._chunks], np.int64)
        assert np.all(stops[:-1] <= starts[1:]), f"chunks overlap: {starts}, {stops}"
        assert n == 0 or stops[-1] <= self._starts[n] == self._end, f"the end is {self._end}: {starts}, {stops}"
        for c, kind in enumerate(self._kinds):
            for at, chunk in enumerate(self._chunks) if kind.direct else ():
                assert tuple(self._where[c, :, at]) == kind.addresses(chunk.column(c)), f"column {c} of chunk {at}"
        kept = self._blocks[: self._block_count].copy()
        self._make_blocks()
        assert np.array_equal(kept, self._blocks), f"blocks are {kept}, not {self._blocks}"

    def take(self, positions: Array, columns: Sequence[int], workers: Workers) -> list[pa.Array]:
        """These columns of the tuples at these positions, at least one."""
        n = positions.size
        words = [c for c in columns if self._kinds[c].width == 8 and not self._has_nulls[c]]
        found = self._take_words(positions, words, workers) if words else {}
        others = [c for c in columns if c not in found]
        if others:
            chunk, row = room(n, np.int32), room(n, np.int64)
            locate(positions, self._starts, self._blocks, _BLOCK_BITS, self._first_block(), chunk, row)

            def gather(c: int) -> pa.Array:
                kind = self._kinds[c]
                if kind.direct:
                    return kind.gather(self._where[c], chunk, row, bool(self._has_nulls[c]))
                arrays = {int(i): self._chunks[i].column(c) for i in np.unique(chunk)}
                return gather_by_chunk(arrays, kind.type, chunk, row)

            found |= zip(others, workers.map(gather, others) if n >= SMALL else map(gather, others), strict=True)
        return [found[c] for c in columns]

    def _take_words(self, positions: Array, words: list[int], workers: Workers) -> dict[int, pa.Array]:
        """Columns of 8-byte values without nulls, all in one go."""
        n = positions.size
        buffers = [pa.allocate_buffer(8 * n) for _ in words]
        outputs = np.array([buffer.address for buffer in buffers], np.int64)
        columns = np.array(words, np.int64)

        gather = partial(
            gather_words, self._where, columns, positions, self._starts, self._blocks, _BLOCK_BITS, self._first_block(),
            outputs,
        )  # fmt: skip
        workers.over(gather, n)
        return {
            c: pa.Array.from_buffers(self._kinds[c].type, n, [None, buffer], 0)
            for c, buffer in zip(words, buffers, strict=True)
        }

    def _first_block(self) -> int:
        """The position with which the first block begins."""
        return (self._first >> _BLOCK_BITS) << _BLOCK_BITS


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch | None:
    """None: one array cannot hold both (`capacity.py`)."""
    try:
        columns = [pa.concat_arrays([a, b]) for a, b in zip(first.columns, second.columns, strict=True)]
    except pa.ArrowInvalid:
        return None
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)
