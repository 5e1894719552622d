"""Broadcast: for any predicate, where one side is small. That side is in every core, the other is split.

    every core    all of the small side's window
    core i        its share of the other's        a tuple of the small side goes to all cores, one of the other to one

Each pair is met in one core, that of the split tuple, whichever of the two comes later. So the split side sees all of
its partners in one place, and is the anchor: the left side in left, semi and anti joins, the right side in right joins.
In inner joins the left side is the small one.

Cost: a tuple of the split side is handled once, one of the small side by all cores; so is its part of the window.
Reference: STA-Join, sections 2.3.1 and 4.1.1 (broadcast hash join).
Differs from the paper, where one stream is stored and the other looks for partners: here both do both.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side
from watersmeet.routing.base import Array, Places, at_home, everywhere, hashed


@dataclass(frozen=True)
class Broadcast:
    cores: int
    anchor: Side  # the side that is split
    name = "broadcast"
    visits = False
    by_turns = True

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """O(n)."""
        home = hashed(ticks, self.cores)
        return at_home(home) if side == self.anchor else everywhere(home)
