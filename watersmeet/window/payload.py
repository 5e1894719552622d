"""The tuples of a stream, kept by reference in the Arrow batches they came in, found by position.

    chunks   [ batch 0..4999 | batch 5000..5119 | ... ]       positions count every tuple pushed on the stream

Batches are not copied: a chunk is the batch itself, and it goes when all of its rows have expired. Only small batches
(fewer than `SMALL_ROWS`) are joined with their neighbours, two of like size at a time, so that pushing single rows
does not leave thousands of tiny batches, each with its own overhead.

Cost: append O(1), or O(log SMALL_ROWS) copies of a tuple from small batches; take O(rows out); retain O(chunks).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.window.gather import ColumnKind, gather_by_chunk, locate
from watersmeet.workers import SMALL, Workers

Array = np.ndarray

SMALL_ROWS = 4096
_BLOCK_BITS = 10


class Payload:
    def __init__(self, schema: pa.Schema, workers: Workers, small_rows: int = SMALL_ROWS):
        self.schema = schema
        self._workers = workers
        self._small_rows = small_rows
        self._kinds = [ColumnKind(field.type) for field in schema]
        self._end = 0
        self._chunks: list[pa.RecordBatch] = []
        self._bytes: list[int] = []
        # One place a chunk, with room for more: where it starts, and where its buffers lie ([columns, 4, chunks]).
        self._starts = np.zeros(16, np.int64)
        self._where = np.zeros((len(self._kinds), 4, 16), np.int64)
        self._blocks: Array | None = None

    @property
    def end(self) -> int:
        """The position that the next tuple gets."""
        return self._end

    def nbytes(self) -> int:
        return sum(self._bytes)

    def append(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        start = self._end
        self._end += batch.num_rows
        while self._chunks and batch.num_rows < self._small_rows:
            newest = self._chunks[-1]
            if newest.num_rows > 2 * batch.num_rows or newest.num_rows + batch.num_rows > self._small_rows:
                break
            if self._starts[len(self._chunks) - 1] + newest.num_rows != start:
                break
            start = int(self._starts[len(self._chunks) - 1])
            self._chunks.pop()
            self._bytes.pop()
            batch = _joined(newest, batch)
        at = len(self._chunks)
        if at + 2 > self._starts.size:
            self._starts = np.concatenate([self._starts, np.zeros_like(self._starts)])
            self._where = np.concatenate([self._where, np.zeros_like(self._where)], axis=2)
        self._chunks.append(batch)
        self._bytes.append(batch.nbytes)
        self._starts[at] = start
        self._starts[at + 1] = self._end
        for c, (kind, column) in enumerate(zip(self._kinds, batch.columns, strict=True)):
            if kind.direct:
                self._where[c, :, at] = kind.addresses(column)
        self._blocks = None

    def retain(self, kept: list[tuple[int, int]]) -> None:
        """Let go of chunks that hold no position in these ascending (first, one behind the last) ranges."""
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
        self._starts[:n] = self._starts[wanted]
        self._starts[n] = self._end
        self._where[:, :, :n] = self._where[:, :, wanted]
        self._chunks = [self._chunks[i] for i in wanted]
        self._bytes = [self._bytes[i] for i in wanted]
        self._blocks = None

    def _block_table(self) -> Array:
        """The chunk in which each block of positions begins."""
        blocks = self._blocks
        if blocks is None:
            starts = self._starts[: len(self._chunks) + 1]
            begins = np.arange(starts[0], self._end, 1 << _BLOCK_BITS)
            blocks = self._blocks = (np.searchsorted(starts, begins, "right") - 1).astype(np.int32)
        return blocks

    def take(
        self, positions: Array, columns: Sequence[int] | None = None, workers: Workers | None = None
    ) -> list[pa.Array]:
        """These columns (default all) of the tuples at these positions; position -1 is a row of nulls."""
        wanted = range(len(self._kinds)) if columns is None else columns
        if not self._chunks:  # only nulls can be asked for
            return [pa.nulls(positions.size, self._kinds[c].type) for c in wanted]
        chunk = np.empty(positions.size, np.int32)
        row = np.empty(positions.size, np.int64)
        locate(positions, self._starts, self._block_table(), _BLOCK_BITS, self._starts[0], chunk, row)
        where = self._where[:, :, : len(self._chunks)]
        missing = bool(positions.size) and positions.min() < 0

        def gather(c: int) -> pa.Array:
            kind = self._kinds[c]
            if kind.direct:
                return kind.gather(where[c], chunk, row, missing or bool(where[c, 0].any()))
            arrays = {int(i): self._chunks[i].column(c) for i in np.unique(chunk) if i >= 0}
            return gather_by_chunk(arrays, kind.type, chunk, row)

        if positions.size < SMALL:
            return [gather(c) for c in wanted]
        return (workers or self._workers).map(gather, wanted)


def _joined(first: pa.RecordBatch, second: pa.RecordBatch) -> pa.RecordBatch:
    columns = [pa.concat_arrays([a, b]) for a, b in zip(first.columns, second.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=first.schema)


def take_rows(batch: pa.RecordBatch, rows: Array, columns: Sequence[int], workers: Workers) -> list[pa.Array]:
    """Columns of one batch at these rows."""
    as_arrow: list[pa.Array] = []

    def take(c: int) -> pa.Array:
        column = batch.column(c)
        kind = column.type
        if column.null_count == 0 and pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
            width = kind.bit_width // 8
            values = np.frombuffer(column.buffers()[1], f"u{width}")[column.offset : column.offset + len(column)]
            return pa.Array.from_buffers(kind, rows.size, [None, pa.py_buffer(values.take(rows))], 0)
        if not as_arrow:
            as_arrow.append(pa.array(rows))
        return column.take(as_arrow[0])

    if rows.size < SMALL or not len(batch):
        return [take(c) for c in columns]
    return workers.map(take, columns)
