"""One number for a set of pairs, whatever their order: the sum, modulo 2^64, of a hash of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.bench.workloads import mix


class AnswersDiffer(RuntimeError):
    """Two contenders gave different results for the same input: their times mean nothing."""


@dataclass(frozen=True)
class Checksum:
    """How many pairs, and the sum of their hashes."""

    pairs: int = 0
    total: int = 0

    @classmethod
    def of(cls, left: np.ndarray, right: np.ndarray) -> Checksum:
        """`left` and `right`: positions of the two tuples of each pair."""
        hashes = mix(left.astype(np.uint64) ^ mix(right.astype(np.uint64)))
        return cls(len(left), int(hashes.sum(dtype=np.uint64)))

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.pairs + other.pairs, (self.total + other.total) % (1 << 64))

    def __str__(self) -> str:
        return f"{self.pairs}:{self.total:016x}"
