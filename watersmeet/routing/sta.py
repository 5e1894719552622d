"""STA, in the paper's own form: for inequality joins, where it is asked for by name, because it may miss pairs.

    elements 0 and 1     hot keys: each has a B+-Tree of its own          tuples by turns; every tuple looks in both
    all others           cold keys: each has an active sub-index,         tuples at random; every tuple looks in one
                         and all of them have the chain

Every `sync` interval of the streams' time the active sub-indexes become part of the chain, which every cold element
has a copy of. Until then only tuples that happen to come to the same element see what is in them: other pairs are
missed. With sync=0 nothing is, and the join is exact.

Hot is what the filter of a sketch has, 32 keys a side (sketch/asketch.py). A key that falls out of it has cooled: its
tuples leave the trees of the hot elements, for the active sub-index of an element of cold keys.

Reference: STA-Join, sections 3.1 to 3.4, algorithms 1 and 2.
Differs from the paper where that leaves things open (its code archive is empty): the chain is one for all, where the
paper has a copy for each element; a tuple looks for cold partners in the element that would store it if it were cold;
sub-indexes of the chain are expired whole, hot tuples when the window has left them behind, not only when they cool.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.parameters import whole
from watersmeet.query.durations import Duration, duration
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import SIDES, BoundTimeWindow, BoundWindow, Side
from watersmeet.sketch import ASketch

Array = np.ndarray

#: Elements for hot keys.
HOT_ELEMENTS = 2
#: The paper's standard number of elements, and the least that make sense.
ELEMENTS, LEAST = 10, HOT_ELEMENTS + 1
#: Hot keys of a side, and the counters of the sketch behind them: 16 KB.
TOP, WIDTH, DEPTH = 32, 1024, 4


@dataclass(frozen=True)
class STA:
    """route=STA(...): how often cold keys are shared, and whether to find out what is missed.

    sync: a length of time, such as "1 second" or a number where times are; 0: at once, and the join is exact; None: a
        tenth of the window.
    verify: join exactly beside it, and count: `join.completeness()`.
    seed: of the elements that cold tuples go to.
    """

    sync: Any = None
    verify: bool = False
    seed: int = 0
    name = "sta"

    def __post_init__(self) -> None:
        if not isinstance(self.verify, bool):
            raise TypeError(f"verify must be True or False, got {self.verify!r}")
        whole("seed", self.seed, 0)
        if self.sync is not None:
            self.interval()

    def interval(self) -> Duration:
        return duration(self.sync, "sync")

    def ticks(self, window: BoundWindow) -> int:
        """The interval as the window counts time."""
        assert isinstance(window, BoundTimeWindow)
        if self.sync is None:
            return max(max(window.lifetime(side) for side in SIDES) // 10, 1)
        length = self.interval()
        if length.amount and length.unitless != (window.unit is None):
            kind = "a number such as 10" if window.unit is None else "a length such as '10 seconds'"
            raise TypeError(f"sync must be {kind} for time columns of type {window.types[0]}, got {str(length)!r}")
        return window.ticks_of(length)

    def check(self, plan: JoinPlan, how: str, output: str, order: Any, window: BoundWindow) -> None:
        """ValueError for a join that it is not for."""
        wrong = {
            "needs an inequality or band between the two sides, and the predicate has none": plan.range is None,
            f"is for inner joins, not for how={how!r}": how != "inner",
            f"cannot give output={output!r}, for elements do not know positions in the streams": output == "pairs",
            f"has no order, and order={order!r} was asked for": order != "none",
            "shares cold keys by time, and a window of the last n tuples has none": window.counts,
        }
        for rule, broken in wrong.items():
            if broken:
                raise ValueError(f"route 'sta' {rule}; use 'hot_cold'")


class Partitioner:
    """Which tuples of a side are hot, and who gets them."""

    def __init__(self, elements: int, seed: int):
        self._elements = elements
        self._random = np.random.default_rng(seed)
        self._turn = 0
        self._sketches = {side: ASketch(filter=TOP, width=WIDTH, depth=DEPTH) for side in SIDES}
        self.hot: dict[Side, Array] = {side: np.zeros(0, np.int64) for side in SIDES}  # sorted

    def look(self, side: Side, keys: Array) -> Array:
        """Keys that are about to be stored; gives those that have cooled."""
        before = self.hot[side]
        if keys.size:
            self._sketches[side].add(np.ascontiguousarray(keys))
            top = self._sketches[side].top(TOP)
            # The filter takes in the first keys that it meets: they are hot from the second time on.
            self.hot[side] = np.sort(np.array([key for key, count in top if count > 1], np.int64))
        return before[~np.isin(before, self.hot[side])]

    def elements(self, side: Side, keys: Array, live: Array | None) -> tuple[Array, Array]:
        """(hot or not, element that stores it) of tuples."""
        hot = np.isin(keys, self.hot[side])
        if live is not None:
            hot &= live
        where = self.at_random(keys.size)
        turns = self._turn + np.arange(int(hot.sum()))
        self._turn = int(self._turn + turns.size) % HOT_ELEMENTS
        where[hot] = turns % HOT_ELEMENTS
        return hot, where

    def at_random(self, count: int) -> Array:
        return self._random.integers(HOT_ELEMENTS, self._elements, count)

    def shares(self, side: Side) -> dict[int, float]:
        """Hot keys, and their shares of all tuples of the side."""
        sketch = self._sketches[side]
        hot = set(self.hot[side].tolist())
        return {key: count / max(sketch.total, 1) for key, count in sketch.top(TOP) if key in hot}

    def save(self) -> Any:
        sketches = {side: sketch.copy() for side, sketch in self._sketches.items()}
        return self._random.bit_generator.state, self._turn, sketches, dict(self.hot)

    def restore(self, saved: Any) -> None:
        self._random.bit_generator.state, self._turn, sketches, hot = saved
        self._sketches = {side: sketch.copy() for side, sketch in sketches.items()}
        self.hot = dict(hot)


def lines(sta: STA, elements: int, interval: str) -> list[str]:
    """For explain()."""
    exact = sta.sync is not None and sta.interval().amount == 0
    what = "shared at once, so nothing is missed" if exact else f"shared every {interval}: MAY MISS PAIRS until then"
    checked = "counted against an exact join: completeness()" if sta.verify else "not counted; STA(verify=True) does"
    return [f"route: sta over {elements} elements, simulated in one process",
            "  stored: hot keys in elements 0 and 1 by turns, a cold one in any other",
            "  probes: a row looks in elements 0 and 1, in one other and in the chain",
            f"  cold keys: {what}",
            f"  completeness: {checked}"]  # fmt: skip
