"""Streams in memory, made before the clock starts, and what must come out of their join.

A tuple is 16 bytes: 4 of key, 4 of value, 8 of time. Of every pair (l, r) of rows of a window the sink may take

    mix(l) * mix(~r)      modulo 2^64, where ~r keeps (l, r) apart from (r, l)

and the sum of that over all pairs with equal keys is, for each key, the sum over its left rows times that over its
right ones. So the checksum of 10^9 pairs is known after a pass over the tuples, whatever algorithm they come by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

TUPLE_BYTES = 16
WORDS = 4  # of 4 bytes, in a tuple; the first is the key
Array = np.ndarray


@dataclass(frozen=True)
class Stream:
    """Tuples one behind the other, as words, and their keys once more, on their own."""

    words: Array  # int32, WORDS a tuple
    keys: Array  # int32

    @property
    def size(self) -> int:
        return self.keys.size

    def sent(self, keys_only: bool) -> tuple[Array, int]:
        """What travels, and the words of a tuple in it."""
        return (self.keys, 1) if keys_only else (self.words, WORDS)


@dataclass(frozen=True)
class Expected:
    """What the join of a window must give."""

    pairs: int
    checksum: int


def make(n: int, distinct: int, zipf: float, seed: int, place=np.empty) -> Stream:
    """n tuples with so many distinct keys; zipf 0: all alike often. place(n, dtype): memory to have them in."""
    rng = np.random.default_rng(seed)
    if zipf:
        shares = np.cumsum(np.arange(1, distinct + 1, dtype=np.float64) ** -zipf)
        ranks = np.searchsorted(shares, rng.random(n) * shares[-1], side="right")
    else:
        ranks = rng.integers(0, distinct, n)
    names = np.random.default_rng(7).permutation(4 * distinct)[:distinct]  # which keys there are, in no order
    keys = place(n, np.int32)
    keys[:] = names[np.minimum(ranks, distinct - 1)]
    words = place(WORDS * n, np.int32)
    tuples = words.reshape(n, WORDS)
    tuples[:, 0] = keys
    tuples[:, 1] = rng.integers(0, 1 << 31, n)
    tuples[:, 2] = np.arange(n)
    tuples[:, 3] = 0
    return Stream(words, keys)


def expected(left: Array, right: Array) -> Expected:
    """Of the keys of a window's two sides. O(n)."""
    most = int(max(left.max(), right.max())) + 1
    counts, sums = np.zeros((2, most), np.int64), np.zeros((2, most), np.uint64)
    for side, keys in enumerate((left, right)):
        _sum_up(keys, side == 1, counts[side], sums[side])
    return Expected(int((counts[0] * counts[1]).sum()), int((sums[0] * sums[1]).sum(dtype=np.uint64)))


@njit(nogil=True, cache=True)
def _sum_up(keys, is_right, counts, sums):
    for row in range(keys.size):
        counts[keys[row]] += 1
        sums[keys[row]] += mixed(~np.uint64(row)) if is_right else mixed(np.uint64(row))


@njit
def mixed(x):
    """As workloads.mix."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
