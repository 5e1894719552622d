"""What comes out of a push: rows, pairs of positions, or a count.

One step finds pairs of positions for each side that arrived, and single tuples that come out alone (null-extended,
semi, anti). A `Results` collects them and builds the answer once, at the end.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import Side
from watersmeet.window.capacity import in_parts
from watersmeet.window.payload import Payload
from watersmeet.workers import Workers

Array = np.ndarray
How = Literal["inner", "left", "right", "full", "semi", "anti"]
Output = Literal["rows", "pairs", "count"]
HOWS = ("inner", "left", "right", "full", "semi", "anti")
OUTPUTS = ("rows", "pairs", "count")


def rows_schema(left: pa.Schema, right: pa.Schema | None, suffix: str) -> pa.Schema:
    """All of the left, then all of the right; colliding names on the right get the suffix."""
    fields = list(left)
    taken = set(left.names)
    for field in right or ():
        name = field.name + suffix if field.name in left.names else field.name
        if name in taken:
            raise ValueError(
                f"suffix {suffix!r} gives two result columns named {name!r}; choose another suffix or rename a column"
            )
        taken.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields)


def pairs_schema(left_only: bool) -> pa.Schema:
    names = ["left"] if left_only else ["left", "right"]
    return pa.schema([(name, pa.int64()) for name in names])


def empty_table(schema: pa.Schema | None) -> pa.Table:
    """No rows; no columns either while these are not known. Arrow's own `empty_table` does not know all types."""
    return pa.Table.from_batches([], schema=schema or pa.schema([]))


class Results:
    """The results of one step."""

    def __init__(self, output: Output, schema: pa.Schema, left_only: bool):
        self._output = output
        self._schema = schema
        self._left_only = left_only
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0

    @property
    def counts_only(self) -> bool:
        return self._output == "count"

    @property
    def positions_only(self) -> bool:
        return self._output == "pairs"

    def pairs(
        self, side: Side, own: Array, stored: Array, payloads: dict[Side, Payload], workers: Workers
    ) -> list[pa.RecordBatch]:
        """Pairs as batches of results, mostly one: positions of tuples of `side` that arrived, and of partners."""
        left, right = (own, stored) if side == "left" else (stored, own)
        if self.positions_only:
            both = self._positions(payloads["left"], left), self._positions(payloads["right"], right)
            return [self._batch(*both)]

        def make(start: int, stop: int) -> pa.RecordBatch:
            ours = payloads["left"].take(left[start:stop], workers=workers)
            return self._batch(*ours, *payloads["right"].take(right[start:stop], workers=workers))

        return in_parts(make, 0, left.size)

    def add(self, rows: int, batches: list[pa.RecordBatch]) -> None:
        """So many results; no batches: counted only."""
        self.rows += rows
        for batch in batches:
            self._take(batch)

    def _take(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def alone(
        self, side: Side, payload: Payload, positions: Array, other: Payload, by: Array | None = None
    ) -> None:
        """Tuples that come out without a partner. by: positions, in the stream, of those that let them, where these are
        to be known."""
        self.rows += positions.size
        if not positions.size or self._output == "count":
            return
        if self.positions_only:
            missing, own = pa.nulls(positions.size, pa.int64()), self._positions(payload, positions)
            both = (own, missing) if side == "left" else (missing, own)
            self._take(self._batch(*(both[:1] if self._left_only else both), *self._marks(other, by, positions.size)))
            return

        def make(start: int, stop: int) -> pa.RecordBatch:
            columns = payload.take(positions[start:stop])
            if not self._left_only:
                theirs = other.nothing(stop - start)
                columns = [*columns, *theirs] if side == "left" else [*theirs, *columns]
            part = None if by is None else by[start:stop]
            return self._batch(*columns, *self._marks(other, part, stop - start))

        for batch in in_parts(make, 0, positions.size):
            self._take(batch)

    def _positions(self, payload: Payload, positions: Array) -> Array | pa.Array:
        """Positions in the stream of the tuples at these positions of a payload."""
        return positions

    def _marks(self, other: Payload, by: Array | None, rows: int) -> list[Array | pa.Array]:
        """Further columns of tuples that come out alone."""
        return []

    def _batch(self, *columns: Array | pa.Array) -> pa.RecordBatch:
        arrays = [_of_positions(c) if isinstance(c, np.ndarray) else c for c in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def answer(self) -> pa.Table | int:
        if self._output == "count":
            return self.rows
        return pa.Table.from_batches(self.batches, schema=self._schema)


def _of_positions(values: Array) -> pa.Array:
    """By reference; `pa.array` looks at them for three times as long."""
    return pa.Array.from_buffers(pa.int64(), values.size, [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def combined(answers: list[pa.Table | int], empty: pa.Table | int) -> pa.Table | int:
    """The answers of several steps as one."""
    if isinstance(empty, int):
        return sum(answers)  # type: ignore[arg-type]
    if not answers:
        return empty
    return answers[0] if len(answers) == 1 else pa.concat_tables(answers)  # type: ignore[arg-type]
