"""Hash: tuples with equal keys meet in the core of that key. No copies; for every join type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.query.plan import SidePlan
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home, hashed


@dataclass(frozen=True)
class Hashed:
    cores: int
    anchor: Side | None = None
    name = "hash"

    def places(self, side: Side, plan: SidePlan, batch: pa.RecordBatch, ticks: Array) -> Places:
        """O(n)."""
        equal, live = plan.equal_keys(batch)
        plan.forget()
        assert equal is not None
        if live is not None:  # a null has no partner, so it may be anywhere, but in the same place each time
            equal = np.where(live, equal, 0)
        return at_home(hashed(equal, self.cores))
