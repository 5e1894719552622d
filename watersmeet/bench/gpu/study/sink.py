"""Where results go: they are counted, timed, and checked against what the keys say there must be."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from threading import Lock
from time import perf_counter

import numpy as np
from numba import njit

from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.gpu.study.streams import Expected, mixed
from watersmeet.workers import ALONE, Workers

Array = np.ndarray


@dataclass
class Sink:
    """verifies: pairs that are written are also summed up, which takes as long as to write them; by these workers, who
    must not be those that write."""

    verifies: bool = True
    workers: Workers = ALONE
    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # window -> results
    sums: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    written: int = 0
    arrived: list[tuple[float, int]] = field(default_factory=list)  # (when, results so far)
    began: float = field(default_factory=perf_counter)
    _one: Lock = field(default_factory=Lock)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, window: int, count: int) -> None:
        """So many more results of a window."""
        with self._one:
            self.counts[window] += count
            before = self.arrived[-1][1] if self.arrived else 0
            self.arrived.append((perf_counter() - self.began, before + count))

    def write(self, window: int, left: Array, right: Array) -> None:
        """Pairs of rows of a window, which `add` is also told of. They may be written over when this returns."""
        total = pair_sum(left, right, self.workers) if self.verifies else 0
        with self._one:
            self.written += left.size
            self.sums[window] = (self.sums[window] + total) % (1 << 64)

    def check(self, window: int, wanted: Expected, pairs_written: bool) -> None:
        """Raise AnswersDiffer unless the window's results are what they must be."""
        if self.counts[window] != wanted.pairs:
            raise AnswersDiffer(f"window {window} has {self.counts[window]:,} results, and must have {wanted.pairs:,}")
        if pairs_written and self.verifies and self.sums[window] != wanted.checksum:
            raise AnswersDiffer(f"the pairs of window {window} are not those that match")


@njit(nogil=True, cache=True)
def _pair_sum(left, right):
    total = np.uint64(0)
    for i in range(left.size):
        total += mixed(np.uint64(left[i])) * mixed(~np.uint64(right[i]))
    return total


def pair_sum(left: Array, right: Array, workers: Workers = ALONE) -> int:
    """The sum over pairs of rows that streams.py explains, modulo 2^64."""
    parts = workers.parts(left.size)
    sums = workers.map(lambda part: int(_pair_sum(left[part[0] : part[1]], right[part[0] : part[1]])), parts)
    return sum(sums) % (1 << 64)
