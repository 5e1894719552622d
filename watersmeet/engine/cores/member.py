"""What one core does: of every batch it picks what the route gives it, and joins that with what it has stored.

All members see all batches. Each works out the route of its share of the rows, for all to see, then picks its own:
there is no one who would have to deal tuples out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.choose import plan_and_index
from watersmeet.engine.core import JoinCore
from watersmeet.engine.cores.collect import Layout
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.order import Order
from watersmeet.engine.results import How, Output, Results, pairs_schema, rows_schema
from watersmeet.engine.sizes import Sizes
from watersmeet.index import Index
from watersmeet.query.expr import Expr
from watersmeet.query.plan import SidePlan
from watersmeet.query.windows import SIDES, BoundCountWindow, BoundWindow, Side, Window
from watersmeet.routing import HotCold, Route
from watersmeet.routing.hot_cold import Guide, rows_visiting, words
from watersmeet.window.payload import Payload
from watersmeet.window.ticks import span_of
from watersmeet.workers import ALONE

Array = np.ndarray
_NO_ROWS = np.zeros(0, np.int64)

#: A column beside those of a stream: the number of a tuple in it. Where results are pairs, it is all they need; where
#: they are rows in order, it comes out with them.
POSITION = "position in the stream, of watersmeet"
_NUMBER = pa.field(POSITION, pa.int64())


@dataclass(frozen=True)
class Share:
    """The join, as all of its cores know it."""

    on: Expr
    window: Window
    how: How
    output: Output
    index: Index
    suffix: str
    order: Order
    sizes: Sizes
    left: pa.Schema  # of what is sent: only columns that are needed
    right: pa.Schema
    route: Route

    @property
    def schema(self) -> pa.Schema:
        """Of the results."""
        left_only = self.how in ("semi", "anti")
        if self.output == "pairs":
            return pairs_schema(left_only)
        return rows_schema(self.left, None if left_only else self.right, self.suffix)

    @property
    def ordered(self) -> bool:
        return self.order != "none" and self.output != "count"

    @property
    def numbered(self) -> bool:
        """Whether a core must know the positions of its tuples in their streams."""
        return self.ordered or self.output == "pairs"

    @property
    def talks(self) -> bool:
        """Whether tuples that must know of all their partners meet them in several cores, who then have to be told."""
        return self.how != "inner" and self.route.visits

    @property
    def visits_first(self) -> bool:
        """Whether left tuples visit other cores before anything is stored: in a semi join they come out at once if they
        find a partner there, and must not be completed by a right tuple of the same step."""
        return self.how == "semi" and self.talks

    @property
    def layout(self) -> Layout:
        """Of a core's results."""
        fields = list(self.schema)
        kept = list(range(len(fields)))
        left = 0
        right = 1 if self.output == "pairs" and len(fields) > 1 else None
        if self.ordered and self.output == "rows":
            left = len(self.left)
            fields.insert(left, _NUMBER)
            kept = [c + (c >= left) for c in kept]
            if self.how not in ("semi", "anti"):
                right = len(fields)
                fields.append(_NUMBER)
        if self.ordered and self.how == "semi":  # with the right tuples that completed them
            right = len(fields)
            fields.append(_NUMBER)
        return Layout(pa.schema(fields), tuple(kept), left, right)


@dataclass(frozen=True)
class Sent:
    """A batch of one side, as it comes to all members. late: left out. low, high: ticks of partners, or None where the
    window tells. settled: of tuples that are only to be stored, who has found a partner.

    home, copy_rows, copy_cores, visits: the route, once it is worked out. met: rows that have found partners where they
    are not at home, noted by all members.
    """

    batch: pa.RecordBatch
    first: int  # position of its first tuple
    late: Array | None = None
    low: Array | None = None
    high: Array | None = None
    settled: Array | None = None
    home: Array | None = None
    copy_rows: Array | None = None
    copy_cores: Array | None = None
    visits: Array | None = None
    met: Array | None = None


@dataclass(frozen=True)
class SparseCounts:
    """A window of the last n tuples, of which a core has some: ticks are positions in the whole stream."""

    window: BoundCountWindow
    counts = False

    def lifetime(self, side: Side) -> int:
        return self.window.lifetime(side)


@njit(nogil=True, cache=True)
def rows_at_home(home, core, rows):
    """Write the rows that are at home in a core; says how many these are."""
    n = 0
    for i in range(home.size):
        rows[n] = i
        n += home[i] == core
    return n


class _Numbered(Results):
    """Positions in the stream are in a column; those in the payload are the core's own."""

    def _positions(self, payload: Payload, positions: Array) -> Array | pa.Array:
        return payload.take(positions, [payload.schema.get_field_index(POSITION)])[0]


class _Completed(_Numbered):
    """Of a semi join: with the positions of the right tuples that have let left ones come out."""

    def _marks(self, other: Payload, by: Array | None, rows: int) -> list[Array | pa.Array]:
        return [pa.nulls(rows, pa.int64()) if by is None else pa.array(by)]


class Member:
    """Core number `number` of a join."""

    def __init__(self, share: Share, number: int):
        self._share = share
        self._number = number
        plan, index, _ = plan_and_index(share.on, share.left, share.right, share.index)
        self._plans: dict[Side, SidePlan] = {"left": plan.left, "right": plan.right}
        self._window: BoundWindow = share.window.bind(share.left, share.right)
        window: Any = self._window
        if isinstance(self._window, BoundCountWindow):
            window = SparseCounts(self._window)
        schemas: dict[Side, pa.Schema] = {"left": share.left, "right": share.right}
        if share.numbered:
            schemas = {side: schema.append(_NUMBER) for side, schema in schemas.items()}
        self.metrics = Metrics()
        self.core = JoinCore(
            plan, window, schemas, share.how, index, share.sizes, ALONE, self.metrics, by_row=share.output != "count",
            order=share.order if share.ordered else "none",
        )  # fmt: skip
        self._schema = share.layout.schema
        self._arrived: dict[Side, tuple[Array, int]] = {}  # in a step: rows at home, position of the first of them
        self._probed = 0  # tuples that have looked for partners here
        self._call = -1  # the last that has begun here
        self._undo: Callable[[], None] | None = None

    # -- a call ------------------------------------------------------------------------------------------------------

    def begin(self, call: int) -> None:
        """What follows belongs to this call; if it is another than before, `undo` takes back all that follows."""
        if call == self._call:
            return
        self._call = call
        core, seconds, probed = self.core.save(), dict(self.metrics.seconds), self._probed

        def undo() -> None:
            self.core.restore(core)
            self.metrics.seconds, self._probed = seconds, probed

        self._undo = undo

    def undo(self, call: int) -> None:
        """Take a call back, if it has begun here."""
        if call == self._call and self._undo is not None:
            self._undo()
            self._undo = None

    def route(self, side: Side, sent: Sent, guides: dict[Side, Guide] | None) -> tuple[Array, Array, int]:
        """Note where the rows of this core's share of a batch are at home; gives rows and cores of copies that are not
        noted, and how many rows are hot."""
        assert sent.home is not None
        rows, cores = sent.batch.num_rows, self._share.route.cores
        start, stop = rows * self._number // cores, rows * (self._number + 1) // cores
        tuples = self._plans[side].of(sent.batch.slice(start, stop - start))
        route = self._share.route
        if isinstance(route, HotCold) and guides is not None:
            route = route.guided(guides)
        places = route.places(side, tuples, np.arange(sent.first + start, sent.first + stop))
        sent.home[start:stop] = places.home
        if places.visits is not None:
            assert sent.visits is not None
            wide = words(cores)
            sent.visits[start * wide : stop * wide] = places.visits.ravel()
        return (places.rows + start).astype(np.int32), places.cores.astype(np.uint16), places.hot

    def visit(self, sent: dict[Side, Sent]) -> None:
        """Before a step of a semi join: note which left rows find partners here, where they are not at home."""
        if "left" in sent:
            one = sent["left"]
            _, copies = self._picked("left", one)
            if copies.size:
                assert one.met is not None
                one.met[copies[self.core.visited("left", self._arrival("left", one, copies))]] = 1

    def step(self, sent: dict[Side, Sent], expired_below: dict[Side, int | None]) -> Results:
        """Where cores talk and tuples came, only its first half: see `let_go`."""
        results = self._results()
        arrivals: dict[Side, Arrival] = {}
        visitors: dict[Side, Arrival] = {}
        visiting: dict[Side, Array] = {}
        met_before: dict[Side, Array] = {}
        begin = time.perf_counter()
        for side, one in sent.items():
            home, copies = self._picked(side, one)
            if self._share.route.anchor is not None:
                home, copies = np.sort(np.concatenate([home, copies])), copies[:0]
            self._probed += home.size + copies.size
            if side == "left" and self._share.visits_first:
                assert one.met is not None
                met_before[side] = np.flatnonzero(one.met[home])
                copies = copies[:0]
            for rows, into in ((home, arrivals), (copies, visitors)):
                if rows.size:
                    into[side] = self._arrival(side, one, rows)
            visiting[side] = copies
            self._arrived[side] = home, self.core.payloads[side].end
        self.metrics.took("pick", begin)
        for side, rows in self.core.meet(arrivals, expired_below, results, visitors, met_before).items():
            met = sent[side].met
            if met is not None:
                met[visiting[side][rows]] = 1
        if not (self._share.talks and sent) or self._share.visits_first:
            self.core.let_go(expired_below, results)
        return results

    def let_go(self, sent: dict[Side, Sent], expired_below: dict[Side, int | None]) -> Results:
        """The second half of a step: all members have noted who has found partners."""
        results = self._results()
        for side, one in sent.items():
            home, first = self._arrived[side]
            assert one.met is not None
            self.core.have_met(side, np.flatnonzero(one.met[home]) + first)
        self.core.let_go(expired_below, results)
        return results

    def finish(self) -> Results:
        results = self._results()
        self.core.finish(results)
        return results

    def store(self, side: Side, sent: Sent) -> None:
        """Take over tuples that have met all that came before."""
        home, copies = self._picked(side, sent)
        rows = home if self._share.route.anchor is None else np.sort(np.concatenate([home, copies]))
        if rows.size:
            assert sent.settled is not None
            self.core.put(side, self._arrival(side, sent, rows), sent.settled[rows])

    def held(self) -> dict[str, Any]:
        """For metrics."""
        core = self.core
        return {
            "stored_left": core.chains["left"].stored,
            "stored_right": core.chains["right"].stored,
            "subwindows_left": len(core.chains["left"].subwindows),
            "subwindows_right": len(core.chains["right"].subwindows),
            "index_bytes": sum(core.chains[side].nbytes() for side in SIDES),
            "payload_bytes": sum(core.payloads[side].nbytes() for side in SIDES),
            "seconds": dict(self.metrics.seconds),
            "probed": self._probed,
            "kinds": core.kinds(),
        }

    # -- picking -----------------------------------------------------------------------------------------------------

    def _picked(self, side: Side, sent: Sent) -> tuple[Array, Array]:
        """Rows that are at home here, and rows of which a copy comes here."""
        if sent.home is not None:
            found = np.empty(sent.batch.num_rows + 1, np.int64)
            home, copies = found[: rows_at_home(sent.home, np.uint16(self._number), found)], _NO_ROWS
            if sent.visits is not None:
                rows = np.empty(sent.batch.num_rows + 1, np.int64)
                wide = words(self._share.route.cores)
                copies = rows[: rows_visiting(sent.visits, wide, sent.home, self._number, rows)]
            elif sent.copy_rows is not None and sent.copy_cores is not None:
                copies = sent.copy_rows[sent.copy_cores == self._number].astype(np.int64)
        else:
            positions = np.arange(sent.first, sent.first + sent.batch.num_rows)
            places = self._share.route.places(side, self._plans[side].of(sent.batch), positions)
            mine = places.home == self._number
            copies = np.flatnonzero(~mine) if places.everywhere else places.rows[places.cores == self._number]
            home = np.flatnonzero(mine)
        if sent.late is not None:
            home, copies = home[~sent.late[home]], copies[~sent.late[copies]]
        return home, copies

    def _arrival(self, side: Side, sent: Sent, rows: Array) -> Arrival:
        batch = sent.batch.take(pa.array(rows))  # copied: what was sent is written over
        positions = rows + np.int64(sent.first)
        if self._share.numbered:
            batch = batch.append_column(POSITION, pa.array(positions))
        if isinstance(self._window, BoundCountWindow):
            assert sent.low is not None and sent.high is not None
            bounds = sent.low[rows], sent.high[rows]
            return Arrival(batch, positions, span_of(positions), None, lambda: bounds, positions)
        ticks = self._window.read(batch, side)
        return Arrival(batch, ticks, span_of(ticks), None, partial(self._window.partners, side, ticks), positions)

    def _results(self) -> Results:
        share = self._share
        kind = Results
        if share.numbered:
            kind = _Completed if share.ordered and share.how == "semi" else _Numbered
        return kind(share.output, self._schema, share.how in ("semi", "anti"))
