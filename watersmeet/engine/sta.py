"""The elements of an STA join (routing/sta.py), in one process.

Each element is a join core of its own, and so is the chain that the cold ones share. What is simulated is that they are
apart: who stores a tuple, who looks for its partners, and what each knows when.

    step:  cut at the ends of sync intervals
           for each piece:  what has cooled moves  ->  tuples arrive in their elements and visit the others
           at an end:       active sub-indexes move into the chain
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import Results
from watersmeet.engine.sizes import Sizes
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side
from watersmeet.routing.sta import ELEMENTS, HOT_ELEMENTS, LEAST, STA, Partitioner, lines
from watersmeet.window.ticks import span_of
from watersmeet.workers import ALONE

Array = np.ndarray
Ticks = dict[Side, int | None]
Arrivals = dict[Side, Arrival]

_NOTHING_EXPIRES: Ticks = {"left": None, "right": None}
#: Tuples that are moved at a time.
_MOVED_ROWS = 1 << 16
#: Sub-indexes of the chain, a window.
_CHAIN = Sizes(subwindows=8)


class StaCore:
    """make: a join core with such sizes. truth: an exact one, to count what is missed."""

    kinds: Callable[[], list[Any]] = staticmethod(list)

    def __init__(
        self, sta: STA, elements: int, make: Callable[[Sizes], JoinCore], sizes: Sizes, truth: JoinCore | None
    ):
        self._make = make
        self._hot = [make(sizes) for _ in range(HOT_ELEMENTS)]
        self._cold = [make(sizes) for _ in range(HOT_ELEMENTS, elements)]
        self._chain = make(replace(_CHAIN, subwindow_rows=sizes.subwindow_rows))
        self._sizes = sizes
        self._truth = truth
        self.plan: JoinPlan = self._chain.plan
        self.index, self.keeps_keys = self._chain.index, self._chain.keeps_keys
        window = self._chain.window
        assert isinstance(window, BoundTimeWindow)
        self.window = window
        self.self_join = False
        self.sta = sta
        self.elements = elements
        self.sync = sta.ticks(window)
        self._partitioner = Partitioner(elements, sta.seed)
        self._interval: int | None = None  # the number of the sync interval
        self._stored = np.zeros(elements, np.int64)
        self._probes = np.zeros(elements, np.int64)
        self._rows = self._hot_rows = 0
        self.found = self.true = 0

    # -- a step ------------------------------------------------------------------------------------------------------

    def step(self, arrivals: Arrivals, expired_below: Ticks, results: Results) -> None:
        """As JoinCore's."""
        before = results.rows
        live = {side: _on_time(arrival) for side, arrival in arrivals.items()}
        for number, pieces in self._pieces(live):
            if self._interval is not None and number > self._interval:
                self._share()
            self._interval = number if self._interval is None else max(number, self._interval)
            self._meet(pieces, results)
        for core in self._all:
            core.let_go(expired_below, results)
        self.found += results.rows - before
        if self._truth is not None:
            counted = Results("count", pa.schema([]), False)
            self._truth.step(arrivals, expired_below, counted)
            self.true += counted.rows

    def _pieces(self, arrivals: Arrivals) -> list[tuple[int, Arrivals]]:
        """(number of the interval, what arrives in it), in order. A tuple is in the interval that its stream has
        reached when it comes."""
        if not self.sync:
            return [(0, arrivals)]
        numbers = {
            side: np.maximum.accumulate(arrival.ticks // self.sync)
            for side, arrival in arrivals.items()
            if arrival.rows
        }
        found = []
        for number in sorted({int(each) for some in numbers.values() for each in np.unique(some)}):
            rows = {side: np.flatnonzero(some == number) for side, some in numbers.items()}
            found.append((number, {side: _some(arrivals[side], which) for side, which in rows.items() if which.size}))
        return found

    def _meet(self, arrivals: Arrivals, results: Results) -> None:
        """Tuples find partners wherever they look, and are stored."""
        to: dict[Side, tuple[Array, Array, Array]] = {}  # hot or not, where it is stored, the cold element it looks in
        for side, arrival in arrivals.items():
            keys = getattr(self.plan, side).of(arrival.batch).keys()
            assert keys.ordered is not None
            cooled = self._partitioner.look(side, keys.ordered if keys.live is None else keys.ordered[keys.live])
            self._move_cooled(side, cooled)
            hot, where = self._partitioner.elements(side, keys.ordered, keys.live)
            looks = where.copy()
            looks[hot] = self._partitioner.at_random(int(hot.sum()))
            to[side] = hot, where, looks
            self._count(hot, where, looks)
        for element, core in enumerate(self._hot):
            self._at(core, arrivals, {side: hot & (where == element) for side, (hot, where, _) in to.items()}, results)
        shared = {side: ~hot if not self.sync else np.zeros(hot.size, bool) for side, (hot, _, _) in to.items()}
        self._at(self._chain, arrivals, shared, results)
        if not self.sync:
            return  # nothing is in an element that is not in the chain
        for element, core in enumerate(self._cold, HOT_ELEMENTS):
            here = {side: looks == element for side, (_, _, looks) in to.items()}
            mine = {side: _some(arrivals[side], np.flatnonzero(rows)) for side, rows in here.items() if rows.any()}
            self._at(core, mine, {side: ~to[side][0][here[side]] for side in mine}, results)

    def _at(self, core: JoinCore, arrivals: Arrivals, stored: dict[Side, Array], results: Results) -> None:
        """In one element: tuples look for partners, and some of them are stored."""
        kept: Arrivals = {}
        guests: Arrivals = {}
        for side, arrival in arrivals.items():
            for into, rows in ((kept, stored[side]), (guests, ~stored[side])):
                if rows.any():
                    into[side] = arrival if rows.all() else _some(arrival, np.flatnonzero(rows))
        if kept or guests:
            core.meet(kept, _NOTHING_EXPIRES, results, guests)

    def _count(self, hot: Array, where: Array, looks: Array) -> None:
        self._stored += np.bincount(where, minlength=self.elements)
        self._probes += np.bincount(looks, minlength=self.elements)
        self._probes[:HOT_ELEMENTS] += where.size
        self._rows += where.size
        self._hot_rows += int(hot.sum())

    # -- moving ------------------------------------------------------------------------------------------------------

    def _share(self) -> None:
        """What the cold elements have for themselves becomes part of the chain."""
        for number, core in enumerate(self._cold):
            if any(core.chains[side].stored for side in SIDES):
                for one in core.stored(_MOVED_ROWS):
                    self._put(self._chain, one.side, one.batch)
                self._cold[number] = self._make(self._sizes)

    def _move_cooled(self, side: Side, cooled: Array) -> None:
        """Tuples of these keys leave the hot elements."""
        if not cooled.size:
            return
        for number, core in enumerate(self._hot):
            if not core.chains[side].stored:
                continue
            kept = self._make(self._sizes)
            for one in core.stored(_MOVED_ROWS):
                leave = np.zeros(one.batch.num_rows, bool)
                if one.side == side:
                    keys = getattr(self.plan, side).of(one.batch).keys()
                    leave = np.isin(keys.ordered, cooled)
                self._put(kept, one.side, one.batch.filter(pa.array(~leave)))
                if leave.any():
                    self._cool(side, one.batch.filter(pa.array(leave)))
            self._hot[number] = kept

    def _cool(self, side: Side, batch: pa.RecordBatch) -> None:
        """To the active sub-indexes of cold elements; if these are shared at once, to the chain."""
        if not self.sync:
            self._put(self._chain, side, batch)
            return
        where = self._partitioner.at_random(batch.num_rows)
        for element in np.unique(where):
            self._put(self._cold[element - HOT_ELEMENTS], side, batch.filter(pa.array(where == element)))

    def _put(self, core: JoinCore, side: Side, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            ticks = self.window.read(batch, side)
            arrival = Arrival(batch, ticks, span_of(ticks), None, partial(self.window.partners, side, ticks))
            core.put(side, arrival, np.zeros(batch.num_rows, bool))

    # -- the rest of what a core is -----------------------------------------------------------------------------------

    @property
    def _all(self) -> list[JoinCore]:
        return [*self._hot, *self._cold, self._chain]

    def save(self) -> Any:
        cores = self._all if self._truth is None else [*self._all, self._truth]
        counts = self._interval, self._stored.copy(), self._probes.copy(), self._rows, self._hot_rows
        lists = list(self._hot), list(self._cold), self._chain
        return [(core, core.save()) for core in cores], counts, lists, self._partitioner.save(), (self.found, self.true)

    def restore(self, saved: Any) -> None:
        cores, counts, lists, partitioner, both = saved
        self._hot, self._cold, self._chain = list(lists[0]), list(lists[1]), lists[2]
        for core, was in cores:
            core.restore(was)
        self._interval, stored, probes, self._rows, self._hot_rows = counts
        self._stored, self._probes = stored.copy(), probes.copy()
        self._partitioner.restore(partitioner)
        self.found, self.true = both

    def finish(self, results: Results) -> None:
        """Inner joins have nothing left."""

    def release(self) -> None:
        for core in self._all if self._truth is None else [*self._all, self._truth]:
            core.release()

    def measure(self, metrics: Metrics) -> None:
        parts = [Metrics() for _ in self._all]
        for core, part in zip(self._all, parts, strict=True):
            core.measure(part)
        for name in ("stored_left", "stored_right", "index_bytes", "payload_bytes"):
            setattr(metrics, name, sum(getattr(part, name) for part in parts))
        metrics.loads, metrics.probes = self._stored.tolist(), self._probes.tolist()
        metrics.hot_share = self._hot_rows / self._rows if self._rows else 0.0
        shares = {f"{side} key {key}": share for side in SIDES for key, share in self._partitioner.shares(side).items()}
        metrics.hot = dict(sorted(shares.items(), key=lambda one: -one[1]))

    def completeness(self) -> float:
        """Pairs found, of all that there are so far."""
        if self._truth is None:
            raise ValueError("completeness is known only of a join that is verified; use route=STA(verify=True)")
        return self.found / self.true if self.true else 1.0

    def lines(self) -> list[str]:
        """For explain()."""
        window = self.window
        interval = str(self.sta.interval()) if self.sta.sync is not None else f"{self.sync} {window.unit or 'ticks'}"
        share = self._hot_rows / self._rows if self._rows else 0.0
        return [*lines(self.sta, self.elements, interval), f"  hot: {share:.0%} of the rows so far"]

    def check_invariants(self) -> None:
        for core in self._all:
            core.check_invariants()


def check_elements(cores: int | None) -> int:
    if cores is not None and cores < LEAST:
        raise ValueError(f"route 'sta' has two elements for hot keys and at least one for others: cores >= {LEAST}, "
                         f"got {cores}")  # fmt: skip
    return cores or ELEMENTS


def sta_core(
    sta: STA, elements: int, core: JoinCore, sizes: Sizes, schemas: dict[Side, pa.Schema], output: str
) -> Any:
    """The elements of a join that would have this core if it were exact; ValueError if there is no such thing."""
    sta.check(core.plan, core.how, output, core.order, core.window)

    def make(sizes: Sizes, metrics: Metrics = core.metrics) -> JoinCore:
        by_row = output == "rows"
        return JoinCore(core.plan, core.window, schemas, core.how, core.index, sizes, ALONE, metrics, by_row=by_row)

    return StaCore(sta, elements, make, sizes, make(sizes, Metrics()) if sta.verify else None)


def sta_lines(core: Any) -> list[str]:
    assert isinstance(core, StaCore)
    return core.lines()


def _on_time(arrival: Arrival) -> Arrival:
    return arrival if arrival.late is None else _some(arrival, np.flatnonzero(~arrival.late))


def _some(arrival: Arrival, rows: Array) -> Arrival:
    """Some of the rows, in their order; none of them is late."""
    ticks = arrival.ticks[rows]
    return Arrival(
        arrival.batch.take(pa.array(rows)), ticks, span_of(ticks) if rows.size else arrival.span, None,
        lambda: (arrival.low[rows], arrival.high[rows]),
    )  # fmt: skip
