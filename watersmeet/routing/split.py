"""Split: for any predicate. Tuples are spread evenly; every core sees every probe.

Spread by a hash of their time, not round robin: a task that is run again must send a tuple to the same core.

Cost: every tuple of a side that sends copies is handled by all cores; each holds its share of the window (of the
anchor's window, where there is one, and all of the other's).
Reference: SplitJoin's store-process split.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home, everywhere, hashed


@dataclass(frozen=True)
class Split:
    cores: int
    anchor: Side | None = None
    name = "split"
    by_turns = True

    @property
    def visits(self) -> bool:
        return self.anchor is None

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        home = hashed(ticks, self.cores)
        return at_home(home) if side == self.anchor else everywhere(home)
