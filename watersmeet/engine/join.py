"""StreamJoin: the join that users hold in their hands.

It checks what it is given, waits until the schemas of both streams are known, collects in batch mode, and hands the
rest to the core. What can be wrong with a push is found before anything changes; and should a call fail in the middle
(no memory, Ctrl-C), all that it has changed is undone, so that the join is as if it had not been called.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, TypeVar, Unpack, overload

import pyarrow as pa

from watersmeet.aggregates.options import Emit
from watersmeet.engine import show
from watersmeet.engine.arrivals import Clock, Collected, Reached
from watersmeet.engine.asked import checked
from watersmeet.engine.bound import bound
from watersmeet.engine.calls import Calls
from watersmeet.engine.cores.spread import Spread
from watersmeet.engine.cores.team import Team
from watersmeet.engine.explain import bound_lines, waiting_lines
from watersmeet.engine.inputs import as_batch, check_schema, conform, first_schema
from watersmeet.engine.late import LateRows
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.options import DeviceName, IndexName, Options, RouteName
from watersmeet.engine.order import Order
from watersmeet.engine.results import (
    How,
    Output,
    Results,
    combined,
    empty_table,
    pairs_schema,
)
from watersmeet.engine.run import Progress, Run, run, run_async
from watersmeet.engine.shared import SharedCore
from watersmeet.index import Index
from watersmeet.interrupts import uninterrupted
from watersmeet.parameters import MOST_CORES, one_of, whole
from watersmeet.query.pick import PickName
from watersmeet.query.predicate import On
from watersmeet.query.windows import SIDES, BoundTimeWindow, Hopping, Last, Side, Window, Within
from watersmeet.routing.sta import STA
from watersmeet.workers import Workers

if TYPE_CHECKING:
    from watersmeet.page.page import Page

#: What a push returns: a table, or for output="count" a number.
Answer = TypeVar("Answer")


class StreamJoin(Generic[Answer]):
    """Join two streams over a window.

    on: the predicate, SQL over the columns `l.…` and `r.…`; or a function of two rows, such as
        `lambda l, r: (l.price - r.price).abs() <= 0.05`; or an expression of `watersmeet.query`.
    window: `within`, `last`, `tumbling` or `hopping`.
    how: inner, left, right, full, semi or anti; inner unless given.
    per, aggregate, emit: one row for each row of a side, with aggregates over its partners and no pairs:
        `per="left", aggregate={"n": "count(*)", "total": "sum(r.amount)"}`. Rows come out when they are complete
        ("final"), or with each push that changes them ("updates"); those without partners, too, unless how is "inner"
        (docs/aggregates.md).
    pick: one partner for each left row, the "latest", "earliest" or "nearest" in time (docs/asof.md).
    pick_by: an expression that counts instead of the time: the greatest by "latest", the least by the others.
    self_join: both sides are one stream, pushed and kept once: `push(batch)` finds what `push(left=batch, right=batch)`
        would. Its schema is `left_schema`, its rows are counted as left.
    output: "rows" (all columns), "pairs" (positions of both tuples in their streams) or "count".
    index: "auto", "nested_loop", "hash", "bisort", "rap_table", "wib_tree", "adaptive", "btree", "frozen_btree",
        "im_tree", "pim_tree", or a configured object of `watersmeet.index`.
    cores: how many of the machine's cores to use, by default all. A join of large pushes moves to as many processes.
    route: which core gets a tuple: "auto", "hash" (by an equality), "cells" (by a band), "split" (any predicate),
        "broadcast" (any predicate, one side small), "hot_cold" (keys that come very often are spread over several
        cores), "shared": threads share one PIM-Tree a window, or "single": one core has all, and others help it with
        large pushes. "sta", or `STA(sync=..., verify=...)`, is a study: `cores` are simulated, and it may miss pairs.
    order: of the results: "none", "outer" (those of an earlier tuple first), "inner" (and of one tuple, those with its
        oldest partner first), or `punctuate(every=n)` (those of n tuples before those of the next n).
    device: "cpu", or "gpu": the keys of the windows are kept and searched on an NVIDIA GPU (docs/gpu.md).
    suffix: for right columns whose name the left has too.
    batch_rows, batch_delay: collect pushes until so many rows wait, or the first has waited so long (checked at the
        next push), then process them together.
    left_schema, right_schema: needed only when a side may stay empty, or results must have all columns from the start.
    keep_late: how many late tuples of each side are kept for `take_late`.
    subwindows, subwindow_rows: cut a window into so many pieces, of at most so many rows, instead of letting the index
        decide.

    Threads may share a join: their calls take turns. A call that raises has changed nothing.
    """

    @overload
    def __init__(
        self: StreamJoin[pa.Table], on: On, window: Window, how: How | None = ..., *,
        output: Literal["rows", "pairs"] = ..., **options: Unpack[Options],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: StreamJoin[int], on: On, window: Window, how: How | None = ..., *,
        output: Literal["count"], **options: Unpack[Options],
    ) -> None: ...  # fmt: skip
    @overload
    def __init__(
        self: StreamJoin[Any], on: On, window: Window, how: How | None = ..., *,
        output: Output = ..., **options: Unpack[Options],
    ) -> None: ...  # fmt: skip
    def __init__(
        self,
        on: On,
        window: Within | Hopping | Last,
        how: How | None = None,
        *,
        per: Side | None = None,
        aggregate: Mapping[str, str] | None = None,
        emit: Emit | None = None,
        pick: PickName | None = None,
        pick_by: On | None = None,
        self_join: bool = False,
        output: Output = "rows",
        index: IndexName | Index = "auto",
        cores: SupportsIndex | None = None,
        route: RouteName | STA = "auto",
        order: Order = "none",
        device: DeviceName = "cpu",
        suffix: str = "_right",
        batch_rows: SupportsIndex | None = None,
        batch_delay: Any = None,
        left_schema: pa.Schema | None = None,
        right_schema: pa.Schema | None = None,
        keep_late: SupportsIndex = 100_000,
        subwindows: SupportsIndex | None = None,
        subwindow_rows: SupportsIndex | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        asked = self._asked = checked(
            on, window, how, per=per, aggregate=aggregate, emit=emit, pick=pick, pick_by=pick_by, self_join=self_join,
            output=output, index=index, cores=cores, route=route, order=order, device=device, suffix=suffix,
            batch_rows=batch_rows, batch_delay=batch_delay, keep_late=keep_late, subwindows=subwindows,
            subwindow_rows=subwindow_rows,
        )  # fmt: skip
        self._now = clock
        self._collecting_since: float | None = None
        self._workers = Workers(asked.cores)
        self._spread = Spread(asked.cores, asked.route, self._workers)
        self._metrics = Metrics()
        self._closed = False
        self._calls = Calls(self._check_open, self._saved)
        self._schemas: dict[Side, pa.Schema | None] = {"left": None, "right": None}
        self._held: list[tuple[Side, pa.RecordBatch | Reached]] = []  # pushes before both schemas are known
        self._late = {side: LateRows(asked.keep_late) for side in SIDES}
        self._core: Any = None  # a JoinCore, Team, AggregateCore or PickCore
        self._clock: Clock  # from `_bind` on, as all that follows
        self._collected: Collected
        self._schema: pa.Schema
        self._why: str
        for side, schema in self._roles(left_schema, right_schema, "right_schema", "left_schema=").items():
            if schema is not None:
                self._schemas[side] = check_schema(schema, side)
        self._bind_if_known()

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, left: Any = None, right: Any = None) -> Answer:
        """New tuples of one or both streams; returns the results that they complete. In a self join: `push(batch)`."""
        given = self._roles(left, right, "right", "push(batch)")
        if self._asked.self_join:
            given["right"] = None
        # Before the turn: reading may run whatever code makes the data, for as long as that takes.
        read = {side: as_batch(data, side, self._schemas[side]) for side, data in given.items() if data is not None}
        return self._calls.whole("push", self._push, read)

    def _push(self, read: dict[Side, pa.RecordBatch]) -> Any:
        batches: dict[Side, pa.RecordBatch] = {}
        schemas = dict(self._schemas)
        for side, batch in read.items():
            known = schemas[side]
            if known is None:
                known = schemas[side] = first_schema(batch, side)
            batches[side] = conform(batch, known, side)
        if self._asked.self_join and batches:
            batches["right"], schemas["right"] = batches["left"], schemas["left"]
        return self._push_unbound(batches, schemas) if self._core is None else self._push_bound(batches)

    def advance(self, left: Any = None, right: Any = None) -> Answer:
        """Say that a stream has reached a time, as if a tuple of that time had been seen; returns what that completes.

        For a side that is idle: without it, the other side's tuples wait for it. In a self join: `advance(time)`.
        """
        if isinstance(self._asked.window, Last):
            raise ValueError("advance is for windows over time; a window of the last n tuples has no time")
        given = self._roles(left, right, "right", "advance(time)")
        return self._calls.whole("advance", self._advance, given)

    def _advance(self, given: dict[Side, Any]) -> Any:
        window = self._unbound_window() if self._core is None else self._core.window
        if window is None:
            raise ValueError(
                "advance needs to know the type of the time columns: push first, or give a schema to StreamJoin"
            )
        assert isinstance(window, BoundTimeWindow)
        ticks = {side: window.tick(value, side) for side, value in given.items() if value is not None}
        if self._core is None:
            self._held += [(side, Reached(value)) for side, value in given.items() if value is not None]
            return self._nothing()
        assert self._clock.watermarks is not None
        for side, tick in ticks.items():
            self._clock.watermarks.observe(side, tick)
        return self._process_if_due()

    def flush(self) -> Answer:
        """Process now what batch mode has collected."""
        return self._calls.whole("flush", self._flush)

    def _flush(self) -> Any:
        return self._nothing() if self._core is None else self._process()

    def close(self) -> Answer:
        """The end of both streams: returns what only the end can prove. Later calls return nothing more."""
        if self._closed:
            return self._nothing()
        answer = self._calls.whole("close", self._close)
        with uninterrupted():  # or the answer would be lost
            self._part_with_cores()  # behind the end of the call: there is nothing to be undone any more
        return answer

    def _close(self) -> Any:
        if self._core is None:
            answer = self._close_unbound()
        else:
            results = self._results()
            self._step(results)
            self._core.finish(results)
            self._metrics.rows_out += results.rows
            answer = results.answer()
            self._core.release()
        self._held = []
        self._closed = True
        return answer

    def run(
        self,
        left: Iterable[Any],
        right: Iterable[Any] | None = None,
        *,
        ahead: SupportsIndex = 4,
        progress: Callable[[Progress], None] | None = None,
    ) -> Run[Answer]:
        """Join what two iterators give, batch by batch, to their end: `for table in join.run(left, right)`.

        They are read ahead, by so many batches, while others are joined and results are taken. Results that are empty
        are left out. `progress` is called behind every push. In a self join: `run(batches)`.
        """
        return run(self, *self._iterators(left, right), whole("ahead", ahead), progress)

    def run_async(
        self,
        left: Iterable[Any] | AsyncIterable[Any],
        right: Iterable[Any] | AsyncIterable[Any] | None = None,
        *,
        ahead: SupportsIndex = 4,
        progress: Callable[[Progress], None] | None = None,
    ) -> AsyncIterator[Answer]:
        """As `run`, for `async for`; each of the iterators may be asynchronous or not."""
        return run_async(self, *self._iterators(left, right), whole("ahead", ahead), progress)

    def _iterators(self, left: Any, right: Any) -> tuple[Any, Any]:
        given = {"left": left, "right": right}
        if self._asked.self_join:
            if right is not None:
                raise ValueError("right must not be given in a self join, which has one stream; use run(batches)")
            del given["right"]
        for side, source in given.items():
            if not hasattr(source, "__iter__") and not hasattr(source, "__aiter__"):
                raise TypeError(f"{side} must be an iterator of batches, got {source!r}")
        return left, right

    def __enter__(self) -> StreamJoin[Answer]:
        return self

    def __exit__(self, *exception: object) -> None:
        self._part_with_cores()

    def _part_with_cores(self) -> None:
        with self._calls.turn("the end"), uninterrupted():  # a page may be asking the cores just now
            self._workers.stop()
            if isinstance(self._core, Team):
                self._core.end()

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the results; None for output="count", or while a stream's schema is not known."""
        return None if self._asked.output == "count" or self._core is None else self._schema

    @property
    def cores(self) -> int:
        """How many cores it uses. May be set at any time where these are threads (routes "shared" and "single"); with
        "shared" threads come and go in the middle of a push of another thread, too."""
        return self._workers.threads

    @cores.setter
    def cores(self, cores: SupportsIndex) -> None:
        number = whole("cores", cores, most=MOST_CORES)
        if self._spread.route.cores > 1:
            raise ValueError(
                "cores cannot change where each has its part of the windows; make a new StreamJoin, or use "
                "route='shared'"
            )
        self._workers.threads = self._spread.cores = number
        if isinstance(self._core, SharedCore):
            self._core.wanted(number)

    @property
    def metrics(self) -> Metrics:
        """Rows in, out, late and stored, bytes, watermark, time per step."""
        with self._calls.turn("metrics"):
            return self._measured()

    def _measured(self) -> Metrics:
        metrics = self._metrics
        metrics.waiting = sum(b.num_rows for _, b in self._held if isinstance(b, pa.RecordBatch))
        core = self._core
        if core is not None:
            metrics.waiting = self._collected.rows
            core.measure(metrics)
            if isinstance(core.window, BoundTimeWindow) and self._clock.watermarks is not None:
                tick = self._clock.watermarks.join
                metrics.watermark = None if tick is None else core.window.show(tick)
        return metrics

    def page(self, address: str | int | None = None, *, token: str | None = None) -> Page:
        """A page that shows in a browser how the join goes; its address is `page.url`. See docs/page.md.

        It lives as long as the join, or until its `close()`. address: a port, or "HOST:PORT"; by default port 8321 of
        this machine, or another if that is in use. token: that browsers must show; needed for a host that others can
        reach.
        """
        from watersmeet.page.sampler import page_of

        return page_of(self, address, token)

    def completeness(self) -> float:
        """Of a join by `route=STA(verify=True)`, which may miss pairs: those that it has found, of all there are."""
        with self._calls.turn("completeness"):
            if self._asked.sta is None:
                return 1.0
            core: Any = self._core
            return core.completeness() if core is not None else 1.0

    def take_late(self, side: str | None = None) -> pa.Table:
        """The late tuples of one side, kept since the last call (the newest `keep_late` of them).

        In a self join: `take_late()`. Where its roles have different time columns, a tuple may be late in one of them
        only: "left" and "right" then have those that were late in that role. Before a stream's columns are known, there
        are none.
        """
        if side is None and self._asked.self_join:
            side = "left"
        one_of("side", side, SIDES)
        schema = self._schemas[side]  # type: ignore[index]
        with self._calls.turn("take_late"):
            return empty_table(None) if schema is None else self._late[side].take(schema)  # type: ignore[index]

    def __repr__(self) -> str:
        return show.line("StreamJoin", [*self._identity(), *show.facts(self.metrics)[:5]])

    def _repr_html_(self) -> str:
        return show.table("StreamJoin", [*self._identity(), *show.facts(self.metrics)], self.explain())

    def _identity(self) -> list[tuple[str, str]]:
        known = [side for side in SIDES if self._schemas[side] is not None]
        state = "closed" if self._closed else "open" if len(known) == 2 else "waiting for the columns of both streams"
        asked = self._asked
        how = f"{asked.how} self join" if asked.self_join else asked.how
        return [("on", str(asked.on)), ("window", str(asked.window)), ("how", how), ("output", asked.output),
                ("state", state)]  # fmt: skip

    def __reduce__(self) -> Any:
        raise TypeError(
            "a StreamJoin holds its windows and cores, and cannot be pickled or copied; make a new one in each process"
        )

    def explain(self) -> str:
        """What was chosen, and why; a line a fact."""
        with self._calls.turn("explain"):
            return show.Plan(self._explained())

    def _explained(self) -> str:
        if self._core is None:
            lines = waiting_lines(self._asked, [side for side in SIDES if self._schemas[side] is None])
        else:
            lines = bound_lines(self._asked, self._core, self._why, self._spread)
        return "\n".join(lines)

    def check_invariants(self) -> None:
        """For tests: raise AssertionError if the state is not what it should be."""
        if self._core is not None:
            self._core.check_invariants()

    # -- within ----------------------------------------------------------------------------------------------------

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise ValueError(f"{call} after close(): the streams have ended; make a new StreamJoin")
        if isinstance(self._core, Team) and self._core.ended:
            raise ValueError(f"{call} after the join's `with` block, which has let go of its cores; call it within")

    def _saved(self) -> Callable[[], None]:
        """What undoes all that follows. Cheap to make; only undoing may cost as much as the window is large."""
        fields = dict(self.__dict__)
        held, late = len(self._held), {side: self._late[side].save() for side in SIDES}
        metrics = dict(vars(self._metrics), seconds=dict(self._metrics.seconds))
        parts: list[Any] = [] if self._core is None else [self._core, self._clock, self._collected]
        saved = [part.save() for part in parts]

        def undo() -> None:
            self._workers.stop()
            for part, was in zip(parts, saved, strict=True):
                part.restore(was)
            for side in SIDES:
                fields["_late"][side].restore(late[side])
            del fields["_held"][held:]
            vars(self._metrics).update(metrics)
            self.__dict__.update(fields)

        return undo

    def _roles(self, left: Any, right: Any, parameter: str, remedy: str) -> dict[Side, Any]:
        """What was given for each side; in a self join it is given once, for both."""
        if not self._asked.self_join:
            return {"left": left, "right": right}
        if right is not None:
            raise ValueError(f"{parameter} must not be given in a self join, which has one stream; use {remedy}")
        return {"left": left, "right": left}

    def _bind_if_known(self) -> None:
        """Make the core, once both schemas are known. Raises before anything changes."""
        left, right = self._schemas["left"], self._schemas["right"]
        if left is not None and right is not None:
            self._bind(left, right)

    def _bind(self, left: pa.Schema, right: pa.Schema) -> None:
        asked, window = self._asked, self._asked.window.bind(left, right)
        self._core, self._schema, self._why = bound(asked, window, left, right, self._spread, self._metrics)
        self._clock = Clock(window, asked.self_join)
        self._collected = Collected(window, asked.self_join, flat=asked.device != "cpu")

    def _push_unbound(self, batches: dict[Side, pa.RecordBatch], schemas: dict[Side, pa.Schema | None]) -> Any:
        """A push while the schema of a stream is, or was, not known."""
        if schemas["left"] is None or schemas["right"] is None:
            for side, batch in batches.items():
                self._check_alone(side, batch)
            self._schemas = schemas
            self._held += [(side, batch) for side, batch in batches.items() if batch.num_rows]
            return self._nothing()
        self._schemas = schemas
        self._bind(schemas["left"], schemas["right"])
        held, self._held = self._held, []
        answers = []
        for side, what in held:
            if isinstance(what, pa.RecordBatch):
                answers.append(self._push_bound({side: what}))
            else:
                assert isinstance(self._clock.window, BoundTimeWindow) and self._clock.watermarks is not None
                self._clock.watermarks.observe(side, self._clock.window.tick(what.value, side))
        answers.append(self._push_bound(batches))
        return combined(answers, self._nothing())

    def _check_alone(self, side: Side, batch: pa.RecordBatch) -> None:
        """What can be checked of a batch before the other side is known: its time column."""
        if not isinstance(self._asked.window, Last):
            self._asked.window.bind_one(batch.schema, side).read(batch, side)

    def _unbound_window(self) -> BoundTimeWindow | None:
        """The window as far as one known schema tells: enough to check a time, not to know its tick."""
        assert not isinstance(self._asked.window, Last)
        for side in SIDES:
            schema = self._schemas[side]
            if schema is not None:
                return self._asked.window.bind_one(schema, side)
        return None

    def _push_bound(self, batches: dict[Side, pa.RecordBatch]) -> Any:
        assert self._core is not None
        pushed = self._clock.push(batches)
        metrics = self._metrics
        metrics.pushes += 1
        for side, one in pushed.items():
            self._collected.add(side, one)
            again = self._asked.self_join and side == "right"
            if not again:
                metrics.count_in(side, one.batch.num_rows)
            if one.late is not None and not (again and one.late is pushed["left"].late):
                metrics.count_late(side, int(one.late.sum()))
                self._late[side].add(one.batch, one.late)
        return self._process_if_due()

    def _process_if_due(self) -> Any:
        if self._asked.batch_rows is not None:
            waiting = self._collected.rows
            now = self._now()
            if waiting and self._collecting_since is None:
                self._collecting_since = now
            since = self._collecting_since
            overdue = self._asked.delay is not None and since is not None and now - since >= self._asked.delay
            if waiting and waiting < self._asked.batch_rows and not overdue:
                return self._nothing()
        return self._process()

    def _process(self) -> Any:
        results = self._results()
        self._step(results)
        self._metrics.rows_out += results.rows
        return results.answer()

    def _step(self, results: Results) -> None:
        assert self._core is not None
        self._collecting_since = None
        *before, last = self._collected.take()
        self._core = self._spread.core(self._core, sum(arrival.rows for arrival in last.values()))
        for arrivals in before:  # nothing may go yet: what comes after was pushed when it was still there
            self._core.step(arrivals, {"left": None, "right": None}, results)
        self._core.step(last, self._clock.expired_below(), results)

    def _results(self) -> Results:
        return Results(self._asked.output, self._schema, self._asked.left_only)

    def _nothing(self) -> Any:
        """An empty answer; without columns as long as the streams do not tell which there are."""
        if self._asked.output == "count":
            return 0
        if self._core is not None:
            return empty_table(self._schema)
        left_only = self._asked.left_only
        if self._asked.output == "pairs":
            return empty_table(pairs_schema(left_only))
        return empty_table(self._schemas["left"] if left_only else None)

    def _close_unbound(self) -> Any:
        """The end, though a stream never showed its schema: the other's tuples come out alone, if any do."""
        alone: Any = {"left": ("left",), "right": ("right",), "full": SIDES, "anti": ("left",)}.get(self._asked.how, ())
        held = [batch for side, batch in self._held if side in alone and isinstance(batch, pa.RecordBatch)]
        rows = sum(batch.num_rows for batch in held)
        self._metrics.rows_out += rows
        if self._asked.output == "count" or not rows:
            return rows if self._asked.output == "count" else self._nothing()
        if self._asked.how == "anti" and self._asked.output == "rows":
            return pa.Table.from_batches(held)
        if self._asked.output == "pairs":
            known = "left" if self._schemas["left"] is not None else "right"
            schema = pairs_schema(self._asked.how == "anti")
            return pa.table({name: range(rows) if name == known else [None] * rows for name in schema.names}, schema)
        unknown = next(side for side in SIDES if self._schemas[side] is None)
        raise ValueError(
            f"nothing was ever pushed on the {unknown} stream, so the columns of the result are not known; give "
            f"{unknown}_schema= to StreamJoin"
        )
