"""How many pairs a join over last(n) has, and their checksum, from the keys alone: what an exact join must give.

A pair of positions (l, r) adds mix(l) * mix(~r) to the checksum, modulo 2^64 (study/streams.py). So all partners of a
tuple are one product: its own number times the sum of theirs. Such sums are kept for each key of the window:

    arrivals            l0 has key 5    l1 has key 6    r0 has key 5, and a band of 1 looks at 4, 5 and 6
    sums of the left    5: mix(0)       6: mix(1)       adds (mix(0) + mix(1)) * mix(~0): two pairs

Invariant: counts and sums are those of the last n tuples of their side. Cost: O(width of the band) a tuple, however
many pairs it has. It shares nothing with the joins that it is held against: no order, no index, no batches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.bench.checksum import Checksum
from watersmeet.bench.gpu.study.streams import mixed

Array = np.ndarray


class KnownPairs:
    """Of two streams of keys in range(domain), over last(window); partners' keys are at most `width` apart."""

    def __init__(self, window: int, domain: int, width: int):
        self._width = width
        self._recent = np.zeros((2, window), np.int64)  # the key at a position is at position modulo window
        self._counts = np.zeros((2, domain), np.int64)
        self._sums = np.zeros((2, domain), np.uint64)
        self._arrived = [0, 0]

    def pushed(self, left: Array, right: Array) -> Checksum:
        """What a push must give: the left side comes before the right one."""
        return self._side(0, left) + self._side(1, right)

    def _side(self, side: int, keys: Array) -> Checksum:
        other = 1 - side
        found, total = _arrive(
            keys, self._arrived[side], side == 1, self._width, self._recent[side], self._counts[side],
            self._sums[side], self._counts[other], self._sums[other],
        )  # fmt: skip
        self._arrived[side] += keys.size
        return Checksum(int(found), int(total))

    def check_invariants(self) -> None:
        for side, arrived in enumerate(self._arrived):
            kept = min(arrived, self._recent.shape[1])
            assert self._counts[side].sum() == kept, f"side {side} counts {self._counts[side].sum()}, and has {kept}"


@njit(nogil=True, cache=True)
def _arrive(keys, first, is_right, width, recent, counts, sums, other_counts, other_sums):
    found, total = np.int64(0), np.uint64(0)
    for i in range(keys.size):
        key, position = keys[i], first + i
        mine = mixed(~np.uint64(position)) if is_right else mixed(np.uint64(position))
        partners = np.uint64(0)
        for near in range(max(key - width, 0), min(key + width + 1, counts.size)):
            found += other_counts[near]
            partners += other_sums[near]
        total += mine * partners
        place = position % recent.size
        if position >= recent.size:
            gone = np.uint64(position - recent.size)
            counts[recent[place]] -= 1
            sums[recent[place]] -= mixed(~gone) if is_right else mixed(gone)
        recent[place] = key
        counts[key] += 1
        sums[key] += mine
    return found, total
