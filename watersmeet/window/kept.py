"""Keys of a stream's tuples, found by position: what candidates are compared by (query/checks.py).

    candidates    (probe 0, position 7)   (probe 0, position 2)   (probe 1, position 7)   ..
    limits        of probe 0: [3, 8]      of probe 1: [5, 5]
    keys          at 7: 5                 at 2: 9
    left          (probe 0, position 7)                           (probe 1, position 7)

They lie row by row, as the 8-byte columns of tuples do (rows.py), and come and go with these; so whatever moves or
undoes a window need not know of them. Cost: 8 bytes a key and tuple, a few nanoseconds a candidate.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.window.gather import word
from watersmeet.window.rows import BLOCK_BITS, Rows

Array = np.ndarray

_IN_BLOCK = (1 << BLOCK_BITS) - 1


@njit(nogil=True, cache=True)
def _within(bases, first_block, words, place, limits, base, rows, partners, out_rows, out_partners):
    """Those pairs whose stored key number `place` is in one of the ranges of their probe, one after the other; gives
    how many. What is written may be what is read. Which pairs stay follows no pattern: no branches.

    base: the position of partner 0.
    """
    width, offset = np.int64(8) * words, np.int64(8) * place
    ends = np.uint64(limits.shape[1])
    flat = limits.reshape(limits.size)
    n = np.uint64(0)
    for i in range(rows.size):
        row, partner = rows[i], partners[i]
        p = np.int64(partner) + base
        key = np.int64(word(bases[np.uint64((p >> BLOCK_BITS) - first_block)] + (p & _IN_BLOCK) * width + offset))
        first = np.uint64(row) * ends
        hit = np.uint64(flat[first] <= key) & np.uint64(key <= flat[first + np.uint64(1)])
        for k in range(np.uint64(2), ends, np.uint64(2)):
            hit |= np.uint64(flat[first + k] <= key) & np.uint64(key <= flat[first + k + np.uint64(1)])
        out_rows[n] = row
        out_partners[n] = partner
        n += hit
    return np.int64(n)


class KeptKeys(Rows):
    """So many keys of each tuple, from a position on that begins a block."""

    def store(self, keys: list[Array]) -> None:
        """Of the tuples that come next: int64s, one array a key."""
        self.append(np.array([key.ctypes.data for key in keys], np.int64), keys[0].size)

    def within(
        self, place: int, limits: Array, base: int, rows: Array, partners: Array, out: tuple[Array, Array]
    ) -> tuple[Array, Array]:
        """Of these pairs those whose key is within the limits of their row, in `out`, which may hold them. O(pairs)."""
        n = _within(self._bases, self._first_block, self._words, place, limits, base, rows, partners, out[0], out[1])
        return out[0][:n], out[1][:n]
