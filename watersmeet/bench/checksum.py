"""One number for a set of results, whatever their order: the sum, modulo 2^64, of a hash of each, over all columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.bench.workloads import mix


class AnswersDiffer(RuntimeError):
    """Two contenders gave different results for the same input: their times mean nothing."""


@dataclass(frozen=True)
class Checksum:
    """How many results, and the sum of their hashes."""

    pairs: int = 0
    total: int = 0

    @classmethod
    def of(cls, *columns: np.ndarray) -> Checksum:
        """`columns`: whole numbers, such as the positions of the two tuples of each pair."""
        hashes = np.zeros(1, np.uint64)
        for column in reversed(columns):
            hashes = mix(column.astype(np.uint64) ^ hashes)
        return cls(len(columns[0]), int(hashes.sum(dtype=np.uint64)))

    @classmethod
    def of_table(cls, table: pa.Table, names: Sequence[str]) -> Checksum:
        """Of these columns: whole numbers and times, these in microseconds."""
        columns = [table.column(name) for name in names]
        times = [pa.types.is_timestamp(column.type) for column in columns]
        columns = [column.cast(pa.timestamp("us")) if time else column for column, time in zip(columns, times)]
        return cls.of(*(column.cast(pa.int64()).to_numpy() for column in columns))

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.pairs + other.pairs, (self.total + other.total) % (1 << 64))

    def __sub__(self, other: Checksum) -> Checksum:
        return Checksum(self.pairs - other.pairs, (self.total - other.total) % (1 << 64))

    def __str__(self) -> str:
        return f"{self.pairs}:{self.total:016x}"
