"""Single: everything in one core. What is left when no other route is exact (on Spark, a full join without an
equality)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home


@dataclass(frozen=True)
class Single:
    cores: int = 1
    anchor: Side | None = None
    name = "single"
    visits = False
    by_turns = True

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        return at_home(np.zeros(ticks.size, np.int64))
