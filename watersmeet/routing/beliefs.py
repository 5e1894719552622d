"""Which keys are hot, as far as is known, and over which cores they have been spread.

Beliefs come from a sketch of each stream (sketch/asketch.py), fed with a sample of every batch before the batch is
sent on, so that a key is hot from the batch on in which it becomes so. They age: half of what is known is forgotten
while four large batches come.

A key is hot when its tuples would burden a core with a noticeable part of an average core's load, and cold again when
they are half as many. It gets cores in proportion to its share, its home first and then those that have least of what
is hot already. As long as a tuple of it may be stored it keeps all of them, hot or not: that is the ledger.

    a side's tuples of a key, of all     0.5%      1%      2%      4%      8%
    of 8 cores                           cold       2       2       3       8     if more than half of them, all

More cores mean more visits of probes, but each makes a smaller part of the key's results, and the hottest keys make
most of all results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.query.plan import JoinPlan, SidePlan
from watersmeet.query.windows import SIDES, Side
from watersmeet.routing.base import Array, hashed
from watersmeet.routing.hot_cold import Guide, HotCold, guide_of
from watersmeet.sketch import ASketch

#: Hot: a side's tuples of a key are so large a part of an average core's load.
HOT = 1 / 16
#: And have been seen so often, so that a few rows make nothing hot.
SEEN = 64
#: Cores for a key, to each core's worth of load.
CORES = 8
#: Rows of a batch that are looked at.
SAMPLE = 1 << 14
#: Keys of a side that may be spread at a time; others stay at home.
MOST = 1 << 12


@dataclass(frozen=True)
class Entry:
    """A key or cell that has been spread."""

    cores: tuple[int, ...]
    share: float  # of all tuples of both sides; 0: cold
    last: int | None  # the greatest tick of a batch in which it was hot
    text: str


@dataclass
class _Known:
    """What is known of one side."""

    sketch: ASketch
    ledger: dict[int, Entry]
    expired_below: int | None = None


class Beliefs:
    """For a route, as all of its cores are to share them. plan: how tuples get their keys."""

    def __init__(self, route: HotCold, plan: JoinPlan):
        self._route = route
        self._plans: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self._columns = {side: sorted(name for one, name in plan.columns if one == side[0]) for side in SIDES}
        room = min(max(8 * route.cores, 64), 1 << 13)
        self._known = {side: _Known(ASketch(filter=room, window=4 * SAMPLE), {}) for side in SIDES}
        self._cold: list[int] = []
        self.rows = 0  # that have been routed
        self.hot_rows = 0

    # -- looking -----------------------------------------------------------------------------------------------------

    def look(self, arrived: dict[Side, tuple[pa.RecordBatch, int]]) -> dict[Side, Guide]:
        """Look at batches that are about to be sent on, each with its greatest tick; gives what routers must know."""
        sampled = {side: self._sampled(side, batch) for side, (batch, _) in arrived.items()}
        for side, (_, units) in sampled.items():
            self._known[side].sketch.add(units)
        for side in SIDES:
            self._forget(side)
            self._believe(side, self.believed(side), sampled.get(side))
        if self._route.home == "anywhere":
            self._deal()
        for side, (_, greatest) in arrived.items():
            ledger = self._known[side].ledger
            for unit, entry in ledger.items():
                if entry.share and (entry.last is None or entry.last < greatest):
                    ledger[unit] = replace(entry, last=greatest)
        return {side: self._guide(side) for side in SIDES}

    def let_go(self, expired_below: dict[Side, int | None]) -> None:
        """Tuples below these ticks are not looked for any more."""
        for side, tick in expired_below.items():
            if tick is not None:
                self._known[side].expired_below = tick

    def believed(self, side: Side) -> dict[int, float]:
        """The keys that are hot, and their shares of all tuples of both sides, the greatest first."""
        total = sum(known.sketch.total for known in self._known.values())
        known, least = self._known[side], HOT / self._route.cores
        found = {}
        for unit, count in known.sketch.top():
            entry = known.ledger.get(unit)
            share = count / total
            if count >= SEEN and share >= (least / 2 if entry is not None and entry.share else least):
                found[unit] = share
        return found

    def _sampled(self, side: Side, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Array]:
        """Some rows, and their units."""
        batch = batch.select(self._columns[side])
        if batch.num_rows > SAMPLE:
            rows = np.random.default_rng(self.rows).integers(0, batch.num_rows, SAMPLE)
            batch = batch.take(pa.array(np.sort(rows)))
        units, live = self._route.units(side, self._plans[side].of(batch))
        if units is None:
            return batch.slice(0, 0), np.zeros(0, np.int64)
        if live is not None:
            batch, units = batch.filter(pa.array(live)), units[live]
        return batch, units

    def _believe(self, side: Side, believed: dict[int, float], sampled: tuple[pa.RecordBatch, Array] | None) -> None:
        """Give hot units their cores, and note which are cold now."""
        ledger = self._known[side].ledger
        for unit, entry in ledger.items():
            if unit not in believed and entry.share:
                ledger[unit] = replace(entry, share=0.0)
        planned = np.zeros(self._route.cores)
        for known in self._known.values():
            for entry in known.ledger.values():
                planned[list(entry.cores)] += entry.share
        for unit, share in believed.items():
            known_as = ledger.get(unit)
            if known_as is None:
                if len(ledger) >= MOST:
                    continue
                home = int(hashed(np.array([unit]), self._route.cores)[0])
                known_as = Entry((home,), 0.0, None, self._text(side, unit, sampled))
            more = self._width(share) - len(known_as.cores)
            cores = known_as.cores
            if more > 0:
                others = [int(core) for core in np.argsort(planned, kind="stable") if core not in cores]
                cores += tuple(others[:more])
            planned[list(cores)] += share - known_as.share
            ledger[unit] = replace(known_as, cores=cores, share=share)

    def _width(self, share: float) -> int:
        """Cores for a key."""
        cores = self._route.cores
        wanted = max(math.ceil(share * cores * CORES), 2)
        return min(wanted, cores) if 2 * wanted <= cores else cores

    def _deal(self) -> None:
        """Where probes visit all cores anyway: some cores for all hot keys, the others for all cold ones, and one for
        both where it does not come out even."""
        cores = self._route.cores
        ledgers = [known.ledger for known in self._known.values()]
        hot = min(sum(entry.share for ledger in ledgers for entry in ledger.values()), 1.0) * cores
        self._cold = list(range(min(math.floor(hot), cores - 1), cores))
        into = tuple(range(min(max(math.ceil(hot), 1), cores)))
        for ledger in ledgers:
            for unit, entry in ledger.items():
                ledger[unit] = replace(entry, cores=into)

    def _forget(self, side: Side) -> None:
        """Units that are cold, and of which nothing is stored away from home any more."""
        known = self._known[side]
        for unit, entry in list(known.ledger.items()):
            gone = entry.last is None or (known.expired_below is not None and entry.last < known.expired_below)
            if not entry.share and (gone or self._route.home == "anywhere"):
                del known.ledger[unit]

    def _guide(self, side: Side) -> Guide:
        ledger = self._known[side].ledger
        entries = list(ledger.values())
        cores = [list(entry.cores) for entry in entries]
        return guide_of(list(ledger), cores, [entry.share > 0 for entry in entries], self._cold)

    # -- undoing -----------------------------------------------------------------------------------------------------

    def save(self) -> Any:
        """O(counters and ledger)."""
        known = {
            side: _Known(one.sketch.copy(), dict(one.ledger), one.expired_below) for side, one in self._known.items()
        }
        return known, self._cold, self.rows, self.hot_rows

    def restore(self, saved: Any) -> None:
        """As it was saved; what was saved may be needed again."""
        known, self._cold, self.rows, self.hot_rows = saved
        self._known = {
            side: _Known(one.sketch.copy(), dict(one.ledger), one.expired_below) for side, one in known.items()
        }

    # -- saying ------------------------------------------------------------------------------------------------------

    @property
    def hot_share(self) -> float:
        """Of all rows so far."""
        return self.hot_rows / self.rows if self.rows else 0.0

    def hot(self) -> dict[str, float]:
        """Keys that are hot now, as "left k = 7", and their shares of all tuples; the greatest first."""
        found = {
            f"{side} {entry.text}": entry.share
            for side in SIDES
            for entry in self._known[side].ledger.values()
            if entry.share
        }
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    def lines(self) -> list[str]:
        """For explain()."""
        hot = self.hot()
        spread = sum(len(known.ledger) for known in self._known.values())
        lines = [f"  hot now: {len(hot)}, {self.hot_share:.0%} of the rows so far were; {spread} spread over cores"]
        lines += [f"    {text}: {share:.1%}" for text, share in list(hot.items())[:8]]
        return lines + ["    ..."] * (len(hot) > 8)

    def _text(self, side: Side, unit: int, sampled: tuple[pa.RecordBatch, Array] | None) -> str:
        """A unit in the user's words: the columns that are the same in all of its tuples."""
        parts = []
        if sampled is not None and len(self._known[side].ledger) < 64:
            batch, units = sampled
            rows = batch.filter(pa.array(units == unit)).slice(0, 16)
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                values = column.to_pylist()
                if values and all(value == values[0] for value in values):
                    parts.append(f"{name} = {values[0]!r}")
        what = {"key": "key", "cell": "cell", "anywhere": "key"}[self._route.home]
        return " and ".join(parts) or f"{what} {unit}"
