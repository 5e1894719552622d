"""The checksum of results on Spark: over all columns, in any order, as Spark computes it and as NumPy does.

    count(*), sum(shiftright(xxhash64(every column), 30))

A sink has Spark compute it while rows go by, for a few ns a row; the right answer, DuckDB's, gets it from NumPy, so
that no part of Spark has a say in it. 34 bits of each hash are summed, so that the sum fits into 64 for 2^29 rows.

Spark's xxhash64 is XXH64 with seed 42, column by column, each with the hash of those before it as its seed; null leaves
the hash as it is. Times are hashed as their microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

SEED, KEPT_BITS = 42, 34
P1, P2, P3, P4, P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
    )
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """How many results, and the sum over them."""

    rows: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> Answer:
        kept = xxhash64(columns).view(np.int64) >> (64 - KEPT_BITS)
        return cls(len(columns[0]), int(kept.sum()))

    def __add__(self, other: Answer) -> Answer:
        return Answer(self.rows + other.rows, self.checksum + other.checksum)

    def __str__(self) -> str:
        return f"{self.rows}:{self.checksum}"


def expressions(names: Sequence[str]) -> tuple[str, str]:
    """Count and checksum of rows with these columns, in Spark SQL."""
    return "count(*)", f"coalesce(sum(shiftright(xxhash64({', '.join(names)}), {64 - KEPT_BITS})), 0)"


def xxhash64(columns: Sequence[pa.Array]) -> np.ndarray:
    """Spark's hash of each row: columns of whole numbers, times, or short texts."""
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            hashed = _texts(column.cast(pa.large_binary()), hashes)
        else:
            hashed = _longs(column.cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64), hashes)
        known = column.is_valid().to_numpy(zero_copy_only=False)
        hashes = hashed if known.all() else np.where(known, hashed, hashes)
    return hashes


def _longs(words: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    return _finish(_word(seeds + P5 + np.uint64(8), words))


def _texts(texts: pa.Array, seeds: np.ndarray) -> np.ndarray:
    """Texts of one length at a time, so that all of them go through the same steps."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    starts, lengths = ends[:-1], np.diff(ends)
    hashed = np.empty_like(seeds)
    for length in np.unique(lengths):
        of_length = np.flatnonzero(lengths == length)
        rows = content[starts[of_length, None] + np.arange(length)]
        hashed[of_length] = _finish(_bytes(rows, seeds[of_length]))
    return hashed


def _bytes(rows: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    length = rows.shape[1]
    if length >= 32:
        raise ValueError(f"texts must have fewer than 32 bytes, got {length}: longer ones are hashed in stripes")
    hashes = seeds + P5 + np.uint64(length)
    at = 0
    while at + 8 <= length:
        hashes = _word(hashes, np.ascontiguousarray(rows[:, at : at + 8]).view("<u8")[:, 0])
        at += 8
    if at + 4 <= length:
        half = np.ascontiguousarray(rows[:, at : at + 4]).view("<u4")[:, 0].astype(np.uint64)
        hashes = _rotate(hashes ^ half * P1, 23) * P2 + P3
        at += 4
    for i in range(at, length):
        hashes = _rotate(hashes ^ rows[:, i].astype(np.uint64) * P5, 11) * P1
    return hashes


def _word(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    return _rotate(hashes ^ _rotate(words * P2, 31) * P1, 27) * P1 + P4


def _rotate(bits: np.ndarray, by: int) -> np.ndarray:
    return bits << np.uint64(by) | bits >> np.uint64(64 - by)


def _finish(hashes: np.ndarray) -> np.ndarray:
    hashes = (hashes ^ hashes >> np.uint64(33)) * P2
    hashes = (hashes ^ hashes >> np.uint64(29)) * P3
    return hashes ^ hashes >> np.uint64(32)
