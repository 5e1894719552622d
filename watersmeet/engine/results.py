"""What comes out of a push: rows, pairs of positions, or a count.

One step finds pairs of positions for each side that arrived, and single tuples that come out alone (null-extended,
semi, anti). A `Results` collects them and builds the answer once, at the end.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import Side
from watersmeet.window.payload import Payload

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


class Results:
    """The results of one step."""

    def __init__(self, output: Output, schema: pa.Schema, left_only: bool):
        self._output = output
        self._schema = schema
        self._left_only = left_only
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0

    @property
    def counts_only(self) -> bool:
        return self._output == "count"

    def count(self, n: int) -> None:
        self.rows += n

    def pairs(self, side: Side, own: Array, stored: Array, payloads: dict[Side, Payload]) -> None:
        """Pairs: positions of tuples of `side` that arrived, and of their partners."""
        self.rows += own.size
        if not own.size or self._output == "count":
            return
        left, right = (own, stored) if side == "left" else (stored, own)
        if self._output == "pairs":
            self._add(left, right)
        else:
            self._add(*payloads["left"].take(left), *payloads["right"].take(right))

    def alone(self, side: Side, payload: Payload, positions: Array, other: Payload) -> None:
        """Tuples that come out without a partner."""
        self.rows += positions.size
        if not positions.size or self._output == "count":
            return
        nothing = np.full(positions.size, -1, np.int64)
        if self._output == "pairs":
            missing = pa.nulls(positions.size, pa.int64())
            both = (positions, missing) if side == "left" else (missing, positions)
            self._add(*(both[:1] if self._left_only else both))
            return
        mine = payload.take(positions)
        if self._left_only:
            self._add(*mine)
            return
        theirs = other.take(nothing)
        self._add(*((*mine, *theirs) if side == "left" else (*theirs, *mine)))

    def _add(self, *columns: Array | pa.Array) -> None:
        arrays = [pa.array(c) if isinstance(c, np.ndarray) else c for c in columns]  # by reference
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def answer(self) -> pa.Table | int:
        if self._output == "count":
            return self.rows
        return pa.Table.from_batches(self._batches, schema=self._schema)


def combined(answers: list[pa.Table | int], empty: pa.Table | int) -> pa.Table | int:
    """The answers of several steps as one."""
    if isinstance(empty, int):
        return sum(answers)  # type: ignore[arg-type]
    if not answers:
        return empty
    return answers[0] if len(answers) == 1 else pa.concat_tables(answers)  # type: ignore[arg-type]
