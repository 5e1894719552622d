"""Hash: tuples with equal keys meet in the core of that key. No copies; for every join type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home, core_of, hashed


@dataclass(frozen=True)
class Hashed:
    cores: int
    anchor: Side | None = None
    name = "hash"

    def at_home_in(self, core: int, tuples: Tuples) -> Array:
        """The rows that are at home in one core, in one pass. O(n)."""
        keys = self._keys(tuples)
        rows = np.empty(keys.size + 1, np.int64)
        return rows[: _rows_of(keys, np.uint64(self.cores), core, rows)]

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        return at_home(hashed(self._keys(tuples), self.cores))

    def _keys(self, tuples: Tuples) -> Array:
        equal, live = tuples.equality
        assert equal is not None
        # A null has no partner, so it may be anywhere, but in the same place each time.
        return np.ascontiguousarray(equal if live is None else np.where(live, equal, 0))


@njit(nogil=True, cache=True)
def _rows_of(keys, cores, core, rows):
    n = 0
    for i in range(keys.size):
        rows[n] = i
        n += core_of(keys[i], cores) == core
    return n
