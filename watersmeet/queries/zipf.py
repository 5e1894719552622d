"""Zipf's law: of n keys the one of rank r comes with probability r^-z / (1 + 2^-z + ... + n^-z).

A row's key depends on nothing but the seed, the stream and the row's position, so any batch can be made alone, and is
the same whatever the size of batches.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_ODD = np.uint64(0x9E3779B97F4A7C15)


@lru_cache(maxsize=16)
def shares(exponent: float, keys: int) -> np.ndarray:
    """The probability of each rank, the most frequent first."""
    weights = np.arange(1, keys + 1, dtype=float) ** -exponent
    return weights / weights.sum()


@lru_cache(maxsize=16)
def _bounds(exponent: float, keys: int) -> np.ndarray:
    return np.cumsum(shares(exponent, keys))


def ranks(positions: np.ndarray, exponent: float, keys: int, stream: int, seed: int) -> np.ndarray:
    """The rank of each position's key, from 0. O(n log keys)."""
    chance = uniform(positions, stream, seed)
    return np.minimum(np.searchsorted(_bounds(exponent, keys), chance, "right"), keys - 1)


def uniform(positions: np.ndarray, stream: int, seed: int) -> np.ndarray:
    """A number in [0, 1) for each position."""
    offset = ((seed << 20) + stream + 1) * 0xD1B54A32D192ED03 % (1 << 64)
    bits = positions.astype(np.uint64) * _ODD + np.uint64(offset)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64's finaliser
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(11)) * 2.0**-53
