"""The tuples of a stream, found by their position in it.

Columns of 8-byte values (numbers, times), if there are no more of them than fit a cache line, are copied and kept row
by row (`rows.py`); all others stay in the Arrow batches they came in (`chunks.py`). Where results are not made of
tuples, or the tuples are there already (on Spark), nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.window.chunks import Chunks
from watersmeet.window.gather import ColumnKind
from watersmeet.window.rows import MOST_WORDS, Rows
from watersmeet.workers import Workers

Array = np.ndarray


_FIRST = np.zeros(1, np.int64)


class _Pick(NamedTuple):
    """Some of the columns, and where they are."""

    columns: tuple[int, ...]
    places: Array  # in a row, of those that are kept by row
    types: list[pa.DataType]  # of these
    others: list[int]  # in the chunks
    order: list[int]  # of the columns among both


class Payload:
    """by_row: copy 8-byte columns. first: the position of the first tuple, which begins a block."""

    def __init__(self, schema: pa.Schema, workers: Workers, by_row: bool, first: int = 0):
        self.schema = schema
        self._by_row = by_row
        self._workers = workers
        self._kinds = [ColumnKind(field.type) for field in schema]
        words = [c for c, kind in enumerate(self._kinds) if kind.width == 8]
        self._words = words if by_row and len(words) <= MOST_WORDS else []
        self._others = [c for c in range(len(schema)) if c not in self._words]
        self._rows = Rows(len(self._words), first) if self._words else None
        self._nulls: Rows | None = None  # which values of a row are null, a bit each; while there are any
        self._nulls_until = 0
        self._chunks = Chunks(pa.schema([schema.field(c) for c in self._others]), first=first)
        self._end = first
        self._picks: dict[tuple[int, ...], _Pick] = {}
        self._all = self._pick(tuple(range(len(schema))))

    def empty(self) -> Payload:
        """One for other tuples of the same columns."""
        return Payload(self.schema, self._workers, self._by_row)

    @property
    def end(self) -> int:
        """The position that the next tuple gets."""
        return self._end

    def nbytes(self) -> int:
        return self._chunks.nbytes() + sum(rows.nbytes() for rows in (self._rows, self._nulls) if rows is not None)

    def save(self) -> tuple[Any, ...]:
        """What it takes to `restore` it. O(slabs and chunks)."""
        parts = [part.save() for part in self._parts()]
        return self._nulls, self._nulls_until, self._end, parts

    def restore(self, saved: tuple[Any, ...]) -> None:
        self._nulls, self._nulls_until, self._end, parts = saved
        for part, was in zip(self._parts(), parts, strict=True):
            part.restore(was)

    def _parts(self) -> list[Any]:
        """Where tuples are."""
        parts: list[Any] = [part for part in (self._rows, self._nulls) if part is not None]
        return [*parts, self._chunks] if self._others else parts

    def check_invariants(self) -> None:
        for part in self._parts():
            part.check_invariants()

    def append(self, batch: pa.RecordBatch) -> None:
        n = batch.num_rows
        if not n:
            return
        if self._rows is not None:
            arrays = [batch.column(c) for c in self._words]
            where = [self._kinds[c].addresses(array) for c, array in zip(self._words, arrays, strict=True)]
            if any(one[0] for one in where):
                self._note_nulls(arrays)
            elif self._nulls is not None:
                self._note(np.zeros(n, np.uint64))
            self._rows.append(np.array([one[2] for one in where], np.int64), n)
        if self._others:
            self._chunks.append(batch if self._rows is None else batch.select(self._others))
        self._end += n

    def retain(self, kept: list[tuple[int, int]]) -> None:
        """Let go of tuples, some at a time, that are not in these ascending (first, one behind the last) ranges."""
        if self._rows is not None:
            self._rows.retain(kept)
            if self._nulls is not None:
                self._nulls.retain(kept)
                if self._nulls_until <= self._rows.begin:
                    self._nulls = None
        if self._others:
            self._chunks.retain(kept)

    def take(
        self, positions: Array, columns: Sequence[int] | None = None, workers: Workers | None = None
    ) -> list[pa.Array]:
        """These columns (default all) of the tuples at these positions."""
        pick = self._all if columns is None else self._pick(tuple(columns))
        if not positions.size:
            return [pa.nulls(0, self._kinds[c].type) for c in pick.columns]
        workers = workers or self._workers
        found = self._take_rows(positions, pick, workers) if pick.types else []
        if pick.others:
            found += self._chunks.take(positions, pick.others, workers)
        return [found[at] for at in pick.order]

    def _pick(self, columns: tuple[int, ...]) -> _Pick:
        """Where these columns are; looked up once."""
        if columns not in self._picks:
            words = [c for c in columns if c in self._words]
            others = [c for c in columns if c in self._others]
            places = np.array([self._words.index(c) for c in words], np.int64)
            types = [self._kinds[c].type for c in words]
            order = [[*words, *others].index(c) for c in columns]
            self._picks[columns] = _Pick(columns, places, types, [self._others.index(c) for c in others], order)
        return self._picks[columns]

    def nothing(self, n: int) -> list[pa.Array]:
        """n rows of nulls."""
        return [pa.nulls(n, kind.type) for kind in self._kinds]

    # -- rows --------------------------------------------------------------------------------------------------------

    def _take_rows(self, positions: Array, pick: _Pick, workers: Workers) -> list[pa.Array]:
        assert self._rows is not None
        n = positions.size
        buffers = self._rows.take(positions, pick.places, workers)
        validity: list[tuple[pa.Buffer | None, int]] = [(None, 0)] * len(buffers)
        if self._nulls is not None:
            nulls = np.frombuffer(self._nulls.take(positions, _FIRST, workers)[0], np.uint64)
            validity = [_validity(nulls >> np.uint64(place) & np.uint64(1)) for place in pick.places]
        return [
            pa.Array.from_buffers(type_, n, [valid, buffer], null_count)
            for type_, buffer, (valid, null_count) in zip(pick.types, buffers, validity, strict=True)
        ]

    def _note_nulls(self, arrays: list[pa.Array]) -> None:
        """A word of a bit a column beside each row, from the first null on."""
        assert self._rows is not None
        if self._nulls is None:
            begin = self._rows.begin
            self._nulls = Rows(1, begin)
            self._note(np.zeros(self._end - begin, np.uint64))
        bits = np.zeros(len(arrays[0]), np.uint64)
        for place, array in enumerate(arrays):
            if array.null_count:
                bits |= np.asarray(array.is_null()).astype(np.uint64) << np.uint64(place)
        self._note(bits)
        self._nulls_until = self._end + bits.size

    def _note(self, bits: Array) -> None:
        assert self._nulls is not None
        self._nulls.append(np.array([bits.ctypes.data]), bits.size)


def _validity(nulls: Array) -> tuple[pa.Buffer | None, int]:
    """The bitmap of an array with nulls where there is a 1, and how many that are."""
    count = int(np.count_nonzero(nulls))
    return (pa.py_buffer(np.packbits(nulls == 0, bitorder="little")), count) if count else (None, 0)
