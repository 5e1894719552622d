"""Grouping keys that give every core a shuffle partition of its own.

Spark puts a group into partition pmod(Murmur3(key), partitions). Small numbers collide (0 and 1 are in the same one
of 2 partitions), so keys are tried in turn, 0, 1, 2 ..., and one is taken if its partition has none yet. Core 0
always has key 0, whatever their number: it can tell that a checkpoint was written with another one.
"""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF
SEED = 42  # Spark's


def murmur3(value: int, seed: int = SEED) -> int:
    """Spark's hash of an int column, signed."""
    k = (value * 0xCC9E2D51) & _MASK
    k = ((k << 15) | (k >> 17)) & _MASK
    k = (k * 0x1B873593) & _MASK
    h = seed ^ k
    h = ((h << 13) | (h >> 19)) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4  # bytes hashed
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & _MASK
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


@cache
def core_keys(cores: int, partitions: int) -> tuple[int, ...]:
    """A key for each core; as many partitions as possible have one. O(partitions log partitions)."""
    keys: list[int] = []
    taken: set[int] = set()
    key = 0
    while len(keys) < cores:
        partition = murmur3(key) % partitions
        if partition not in taken:
            taken.add(partition)
            keys.append(key)
        key += 1
        if len(taken) == partitions:  # more cores than partitions: go round again
            taken.clear()
    return tuple(keys)
