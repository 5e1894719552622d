"""Hash: tuples with equal keys meet in the core of that key. No copies; for every join type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home, hashed


@dataclass(frozen=True)
class Hashed:
    cores: int
    anchor: Side | None = None
    name = "hash"
    visits = False
    by_turns = False

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        return at_home(hashed(self._keys(tuples), self.cores))

    def _keys(self, tuples: Tuples) -> Array:
        equal, live = tuples.equality
        assert equal is not None
        # A null has no partner, so it may be anywhere, but in the same place each time.
        return np.ascontiguousarray(equal if live is None else np.where(live, equal, 0))
