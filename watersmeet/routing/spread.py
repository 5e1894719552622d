"""Hot and cold where routers cannot talk to each other: on Spark, whose map tasks know nothing but their own input.

Each task believes what it likes. A tuple that it believes *cold* goes the way of `hash` or `cells`. One that it thinks
*hot* goes to all of the `width` cores that its key may have, its home first; one of them, by a hash of the row, keeps
it, and its home keeps a second one. A core has three stores:

    own      tuples at home that are cold, or whose home happens to be the core that keeps them
    away     hot tuples that are kept here, away from home
    silent   second ones: hot tuples at home here that are kept away

    looks for partners     in the cores                         there, in
    a cold tuple           at home in any of its partners       own and silent
    a hot tuple            any of its partners may have         own and away

Every stored tuple is once among own and silent of its home, and once among own and away of all cores that its key may
have. So each pair is found once, whatever the two tasks believed, and beliefs may change at any time.

    key 7: home 1, cores 1 2 3 0     cold: own of 1          found by cold ones in 1, own; by hot ones in 1, own
                                     hot, kept by 3: away    found by cold ones in 1, silent; by hot ones in 3, away

A task that runs again must believe the same: it counts all of its input before it sends any of it, by a row of buckets,
for what a sketch with swaps finds depends on the order, and that may differ behind a shuffle.

Free (base.py), for inner joins: no core can tell another that a visitor has found a partner.

Cost: a cold tuple as by `hash` or `cells`; a hot one visits `width` cores and is stored twice. What is divided is the
work of finding and making results, of which a hot key makes most. Without skew it is `hash` or `cells`.
Reference: STA-Join, section 3.2; differs as routing/hot_cold.py does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from watersmeet.query.plan import Tuples
from watersmeet.query.windows import SIDES, Side
from watersmeet.routing.base import Array, Places, hashed
from watersmeet.routing.cells import Cells, own_cells
from watersmeet.routing.hash import Hashed

#: Cores that a key may have. More would cost more than they bring: each of them sees every tuple of a hot key.
WIDTH = 16
#: Hot: a task's tuples of a key are so large a part of what each of `width` cores would get of them all.
HOT = 1 / 4
#: And so many, so that a few rows make nothing hot.
SEEN = 16
#: In which keys are counted.
BUCKETS = 1 << 14


class Spots(NamedTuple):
    """Of hot tuples, whatever anybody believes of others."""

    home: Array
    keeper: Array


@dataclass(frozen=True)
class Spread:
    """cold: the way of tuples that are not hot, `Hashed` or free `Cells`."""

    cold: Hashed | Cells
    anchor = None
    name = "hot_cold"
    visits = True
    by_turns = False

    @property
    def cores(self) -> int:
        return self.cold.cores

    @property
    def width(self) -> int:
        return min(self.cores, WIDTH)

    def units(self, side: Side, tuples: Tuples) -> tuple[Array, Array | None]:
        """What is hot or cold of each tuple, its key or cell; and which tuples may have partners, None: all."""
        if isinstance(self.cold, Hashed):
            equal, live = tuples.equality
            assert equal is not None
            return equal, live
        size = self.cold.sizes[SIDES.index(side)]
        assert size is not None
        return own_cells(tuples, size)

    def count(self, side: Side, tuples: Tuples) -> Array:
        """Tuples in each bucket of keys. O(n)."""
        units, live = self.units(side, tuples)
        return np.bincount(hashed(units if live is None else units[live], BUCKETS), minlength=BUCKETS)

    def hot(self, side: Side, tuples: Tuples, counts: Array) -> Array:
        """Which tuples are hot, of an input with these counts. O(n)."""
        units, live = self.units(side, tuples)
        many = counts >= max(HOT / self.width * counts.sum(), SEEN)
        if self.cores == 1 or not many.any():
            return np.zeros(units.size, bool)
        hot = many[hashed(units, BUCKETS)]
        return hot if live is None else hot & live

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places:
        """Of cold tuples. O(n)."""
        return self.cold.places(side, tuples, ticks)

    def spots(self, side: Side, tuples: Tuples, rows: Array) -> Spots:
        """Of hot tuples. rows: a number for each tuple that all of its values have a part in, so that tuples of one key
        are spread even if they share their time, and whoever asks again gets the same. O(n)."""
        units, _ = self.units(side, tuples)
        home = hashed(units, self.cores)
        return Spots(home, (home + hashed(rows, self.width)) % self.cores)

    def visited(self, side: Side, tuples: Tuples, ticks: Array) -> tuple[Array, Array] | None:
        """(row, core) of all cores that hot tuples go to, each once; None: all go to all. O(n width)."""
        if self.width == self.cores:
            return None
        cold = self.cold.places(side, tuples, ticks)
        rows = np.concatenate([np.arange(cold.home.size), cold.rows])
        firsts = np.concatenate([cold.home, cold.cores])
        cores = (firsts[:, None] + np.arange(self.width)) % self.cores
        pairs = np.unique(rows[:, None] * self.cores + cores)
        return pairs // self.cores, pairs % self.cores
