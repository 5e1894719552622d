"""A join that gives each left row one partner, the best.

Rows of both sides are only stored when they arrive. A left row comes out once, when the watermark (or the end) proves
that its partners are complete: it then looks for them, together with all others that are complete, and the best is
taken. So no answer is ever taken back, and every left row is looked up once.

    arrive: store      l l l   r r r r
    watermark moves    l l complete -> partners in the window -> the best of each -> out

Right rows are kept as long as a left row that waits, or one that may come, can have them as partner.

There are two ways to find the best. Where equalities and times tell all, a merge in order of time (window/asof.py):
O(1) a row, whatever the window holds. Else the right side's index gives candidates, some at a time; what the keys do
not tell is checked, and a kernel keeps the best of each row: O(candidates).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore, Saved, Ticks, both
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.results import How, Results
from watersmeet.engine.sizes import Sizes
from watersmeet.index import Index
from watersmeet.query.keys import frozen
from watersmeet.query.pick import BoundPick, by_merging
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side
from watersmeet.window.asof import WAYS, Merge
from watersmeet.window.capacity import in_parts
from watersmeet.window.chain import Subwindow
from watersmeet.window.ticks import span_of
from watersmeet.workers import ALONE, Workers

Array = np.ndarray
Columns = dict[str, pa.Array]

#: Left rows that look for partners together.
ROWS = 1 << 17
#: Candidates whose columns are taken together.
CANDIDATES = 1 << 16
_NONE = -1
_NOTHING = np.zeros(0, np.int64)


class _Best(NamedTuple):
    """The best partner of each left row so far; what is greater is better."""

    positions: Array
    known: Array  # whether its value is not null
    high: Array  # of the value
    low: Array
    ticks: Array

    @classmethod
    def of(cls, rows: int) -> _Best:
        return cls(np.full(rows, _NONE), np.zeros(rows, bool), *(np.zeros(rows, np.int64) for _ in range(3)))


@njit(nogil=True, cache=True)
def _keep_best(rows, partners, base, ticks, own, way, high, low, valid, best):
    """Compare candidates with the best of their rows: by value, then by time, then by arrival.

    high, low, valid: of the values; empty: the time counts. By "earliest" all is turned round by `~`.
    """
    turn = np.int64(-1 if way == 1 else 0)
    for i in range(rows.size):
        row = rows[i]
        tick = ticks[partners[i]]
        position = np.int64(partners[i]) + base
        known = valid[i] if valid.size else True
        first = np.int64(0)
        second = np.int64(0)
        if high.size:
            if known:
                first = high[i] ^ (turn if way != 2 else np.int64(-1))
                second = low[i] ^ (turn if way != 2 else np.int64(-1))
        elif way == 2:
            after = tick >= own[row]
            apart = np.uint64(tick) - np.uint64(own[row]) if after else np.uint64(own[row]) - np.uint64(tick)
            second = ~(np.int64(apart) ^ np.int64(-9223372036854775808))
        turned = tick ^ turn
        if best.positions[row] != _NONE:
            if known != best.known[row]:
                if not known:
                    continue
            elif first != best.high[row]:
                if first < best.high[row]:
                    continue
            elif second != best.low[row]:
                if second < best.low[row]:
                    continue
            elif turned != best.ticks[row]:
                if turned < best.ticks[row]:
                    continue
            elif (position ^ turn) < (best.positions[row] ^ turn):
                continue
        best.positions[row] = position
        best.known[row] = known
        best.high[row] = first
        best.low[row] = second
        best.ticks[row] = turned


class PickCore(JoinCore):
    """merges: whether a merge may be used where it can; if not, candidates are looked for in the index."""

    def __init__(
        self,
        plan: JoinPlan,
        window: BoundTimeWindow,
        schemas: dict[Side, pa.Schema],
        how: How,
        index: Index,
        sizes: Sizes,
        workers: Workers,
        metrics: Metrics,
        pick: BoundPick,
        merges: bool = True,
        by_row: bool = False,
    ):
        super().__init__(
            plan, window, schemas, "left", index, sizes, workers, metrics, by_row=by_row, keeps_keys=False
        )
        self.how = how
        self._times = window
        self._pick = pick
        self.merges = merges and by_merging(pick, plan)
        self._merge: Merge | None = None  # made from the right side's window when it is needed first
        self._numbers = {side: self._looked_at(side) for side in SIDES}

    def _looked_at(self, side: Side) -> list[int]:
        """The columns that keys, checks and values are made of, and the time."""
        schema = self.payloads[side].schema
        names = {name for one, name in self.plan.columns | self._pick.columns if one == side[0]}
        names.add(self._times.spec.time[SIDES.index(side)])
        return [i for i, name in enumerate(schema.names) if name in names]

    def restore(self, saved: Saved) -> None:
        self._merge = None
        super().restore(saved)

    def lines(self) -> list[str]:
        """For explain()."""
        return pick_lines(self._pick, self.merges)

    # -- a step ------------------------------------------------------------------------------------------------------

    def _process(
        self,
        arrivals: dict[Side, Arrival],
        visitors: dict[Side, Arrival],
        unneeded: Ticks,
        results: Results,
        met_before: dict[Side, Array],
    ) -> dict[Side, Array]:
        assert not visitors, "left rows stay at home, and right ones are stored wherever they may have partners"
        for side in SIDES:
            if side in arrivals:
                self._keep(side, arrivals[side])
        return {}

    def _keep(self, side: Side, arrival: Arrival) -> None:
        """Store tuples that have arrived."""
        payload, chain = self.payloads[side], self.chains[side]
        first = payload.end
        payload.append(arrival.batch)
        indexed = side == "right" and not self.merges
        live = equal = ordered = None
        begin = time.perf_counter()
        if side == "right":
            keys = self._sides[side].of(arrival.batch).keys()
            equal, ordered, live = keys.equal, keys.ordered, both(keys.live, arrival.on_time)
            if self._merge is not None:
                self._add(self._merge, arrival.ticks, first, equal, live, arrival.span.in_order)
        begin = self.metrics.took("keys", begin)
        if not indexed:
            zeros, live = np.zeros(arrival.rows, np.int64), np.zeros(arrival.rows, bool)  # nobody looks for them
            equal = zeros if self.plan.equality and self.plan.range != "box" else None
            ordered = zeros if self.plan.range is not None or (equal is None and self.index.needs == "order") else None
        entries = self.index.entries(equal, ordered, live, arrival.rows, self._workers)
        begin = self.metrics.took("sort", begin)
        settled = None
        if chain.keeps_settled:
            settled = np.zeros(arrival.rows, np.uint8)
            if arrival.late is not None:
                settled[arrival.late] = 0xFF
        chain.append(first, arrival.ticks, arrival.span, entries, settled, arrival.late)
        self.metrics.took("store", begin)

    def _unneeded_below(self, expired_below: Ticks) -> Ticks:
        """Right rows are needed by left ones that wait, too."""
        left, right = expired_below["left"], expired_below["right"]
        if left is None or right is None:
            return {"left": left, "right": None}
        ends = np.iinfo(np.int64)
        least = np.array([min(max(left, ends.min), ends.max)])
        return {"left": left, "right": min(right, int(self._times.partners("left", least)[0][0]))}

    def _come_out(self, side: Side, tick: int | None, results: Results) -> None:
        """Left rows below this tick are complete."""
        positions = self.chains[side].settle_below(tick, self._role[side])
        if not positions.size:
            return
        ticks = self._ticks_of(positions)
        if self.merges and not span_of(ticks).in_order:
            order = np.argsort(ticks, kind="stable")
            positions, ticks = positions[order], ticks[order]
        for start in range(0, positions.size, ROWS):
            stop = min(start + ROWS, positions.size)
            in_parts(lambda a, b: self._look_up(positions[a:b], ticks[a:b], results), start, stop)

    def _ticks_of(self, positions: Array) -> Array:
        payload = self.payloads["left"]
        number = payload.schema.get_field_index(self._times.spec.time[0])
        (column,) = payload.take(positions, [number])
        return self._times.read(pa.RecordBatch.from_arrays([column], [payload.schema.names[number]]), "left")

    def _look_up(self, positions: Array, ticks: Array, results: Results) -> None:
        """Let out left rows with their partners."""
        begin = time.perf_counter()
        batch = self._batch("left", positions)
        low, high = self._times.partners("left", ticks)
        asking = _Asking(batch, ticks, low, high, dict(zip(batch.schema.names, batch.columns, strict=True)))
        found = self._merged(asking) if self.merges else self._probed(asking).positions
        begin = self.metrics.took("probe", begin)
        has = found != _NONE
        if has.all():
            own, stored = positions, found
        else:
            own, stored = positions[has], found[has]
            if self.how == "left":
                results.alone("left", self.payloads["left"], positions[~has], self.payloads["right"])
        if own.size:
            made = [] if results.counts_only else results.pairs("left", own, stored, self.payloads, self._workers)
            results.add(own.size, made)
        self.metrics.took("gather", begin)

    def _batch(self, side: Side, positions: Array) -> pa.RecordBatch:
        """Tuples at these positions, with the columns that are looked at."""
        payload, numbers = self.payloads[side], self._numbers[side]
        columns = payload.take(positions, numbers, ALONE)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([payload.schema.field(i) for i in numbers]))

    # -- by a merge --------------------------------------------------------------------------------------------------

    def _merged(self, asking: _Asking) -> Array:
        keys = self._sides["left"].of(asking.batch).keys()
        rows = asking.ticks.size
        merge = self._merge
        if merge is None:
            merge = self._made(int(asking.low[0]))
        self._merge = None  # should this fail, it is made anew
        equal = np.zeros(rows, np.int64) if keys.equal is None else keys.equal
        live = np.ones(rows, bool) if keys.live is None else keys.live
        found = merge.partners(asking.ticks, asking.low, asking.high, equal, live)
        if self._sides["left"].residual is not None:
            self._correct(asking, found)
        self._merge = merge
        return found

    def _correct(self, asking: _Asking, found: Array) -> None:
        """Where a partner has another key with the same hash, find the right one."""
        has = np.flatnonzero(found != _NONE)
        wrong = has[~self._holds(asking, has, found[has])]
        if wrong.size:
            best = _Best.of(found.size)
            for sub in self.chains["right"].subwindows:
                self._look_through(asking, wrong, sub, best)
            found[wrong] = best.positions[wrong]

    def _made(self, low: int) -> Merge:
        """From all that the right side's window holds from a tick on."""
        merge = Merge(self._pick.way)
        for sub in self.chains["right"].subwindows:
            if sub.span.greatest >= low:
                for start in range(0, sub.size, ROWS):
                    in_parts(lambda a, b, sub=sub: self._add_stored(merge, sub, a, b), start,  # type: ignore[misc]
                             min(start + ROWS, sub.size))  # fmt: skip
        return merge

    def _add_stored(self, merge: Merge, sub: Subwindow, start: int, stop: int) -> None:
        keys = self._sides["right"].of(self._batch("right", np.arange(sub.base + start, sub.base + stop))).keys()
        live = both(keys.live, sub.live(start, stop))
        self._add(merge, sub.ticks[start:stop], sub.base + start, keys.equal, live, sub.in_order)

    def _add(
        self, merge: Merge, ticks: Array, first: int, equal: Array | None, live: Array | None, in_order: bool
    ) -> None:
        """Right rows, one after the other in their stream."""
        rows = np.arange(ticks.size) if live is None else np.flatnonzero(live)
        if rows.size:
            keys = np.zeros(rows.size, np.int64) if equal is None else equal[rows]
            merge.add(ticks[rows], rows + first, keys, in_order)

    def _look_through(self, asking: _Asking, rows: Array, sub: Subwindow, best: _Best) -> None:
        """All partners that left rows have in a subwindow, without an index."""
        ticks = sub.ticks
        for row in rows:
            near = np.flatnonzero((ticks >= asking.low[row]) & (ticks <= asking.high[row]) & sub.live(0, sub.size))

            def weigh(start: int, stop: int, near: Array = near, row: int = row) -> None:
                partners = near[start:stop]
                live = self._sides["right"].of(self._batch("right", partners + sub.base)).keys().live
                partners = (partners if live is None else partners[live]).astype(np.int32)
                self._weigh(asking, np.full(partners.size, row, np.int32), sub, partners, best)

            for part in _parts(near.size):
                in_parts(weigh, part.start, part.stop)

    # -- by the index ------------------------------------------------------------------------------------------------

    def _probed(self, asking: _Asking) -> _Best:
        best = _Best.of(asking.ticks.size)
        if self.payloads["right"].end:
            probe = self._sides["left"].of(asking.batch).probe()
            probes = self.index.probes(
                probe.equal, probe.lows, probe.highs, probe.live, asking.ticks.size, self._workers, None
            )
            targets = self.chains["right"].targets(asking.low, asking.high, span_of(asking.ticks).in_order)
            for sub, bounds in targets:
                for rows, partners in sub.structure.find(probes, 0, probes.size, bounds):
                    for part in _parts(rows.size):
                        self._weigh(asking, rows[part], sub, partners[part], best)
        return best

    def _weigh(self, asking: _Asking, rows: Array, sub: Subwindow, partners: Array, best: _Best) -> None:
        """Keep the best of these candidates and of those before."""
        if self._sides["left"].residual is not None:
            keep = self._holds(asking, rows, partners + np.int64(sub.base))
            rows, partners = rows[keep], partners[keep]
        if not rows.size:
            return
        high, low, valid = _NOTHING, _NOTHING, None
        if not self._pick.by_time:
            positions = partners + np.int64(sub.base)
            values = in_parts(
                lambda a, b: self._pick.values(*self._columns_of(asking, rows[a:b], positions[a:b])), 0, rows.size
            )
            high, low = (np.concatenate([each[i] for each in values]) for i in (0, 1))
            if any(each[2] is not None for each in values):
                valid = np.concatenate([np.ones(v[0].size, bool) if v[2] is None else v[2] for v in values])
        flags = frozen(np.zeros(0, bool) if valid is None else valid)
        rows, partners, ticks, own, high, low = map(frozen, (rows, partners, sub.ticks, asking.ticks, high, low))
        _keep_best(rows, partners, sub.base, ticks, own, WAYS[self._pick.way], high, low, flags, best)

    def _holds(self, asking: _Asking, rows: Array, positions: Array) -> Array:
        """Which of these pairs satisfy what the keys do not tell."""
        residual = self._sides["left"].residual
        assert residual is not None

        def check(start: int, stop: int) -> Array:
            return residual.keep(*self._columns_of(asking, rows[start:stop], positions[start:stop]))

        kept = [part for some in _parts(rows.size) for part in in_parts(check, some.start, some.stop)]
        return np.concatenate(kept) if kept else np.zeros(0, bool)

    def _columns_of(self, asking: _Asking, rows: Array, positions: Array) -> tuple[Columns, Columns, int]:
        """The columns of pairs, and how many these are."""
        left = {name: column.take(pa.array(rows)) for name, column in asking.columns.items()}
        batch = self._batch("right", positions)
        return left, dict(zip(batch.schema.names, batch.columns, strict=True)), rows.size

    # -- looking -----------------------------------------------------------------------------------------------------

    def measure(self, metrics: Metrics) -> None:
        super().measure(metrics)
        if self._merge is not None:
            metrics.index_bytes += self._merge.nbytes()

    def check_invariants(self) -> None:
        super().check_invariants()
        if self._merge is not None:
            self._merge.check_invariants()


def pick_lines(pick: BoundPick, merges: bool) -> list[str]:
    """For explain(): what is picked, and how."""
    found = "probes of the right side's index by left rows that are complete, the best of the candidates kept"
    if merges:
        found = "a merge of both sides in order of time, which needs no index"
    return [f"pick: {pick.pick}", f"  found by {found}"]


class _Asking(NamedTuple):
    """Left rows that look for their partners."""

    batch: pa.RecordBatch
    ticks: Array
    low: Array
    high: Array
    columns: Columns


def _parts(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + CANDIDATES, rows)) for start in range(0, rows, CANDIDATES))
