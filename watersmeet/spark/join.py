"""stream_join: two streaming DataFrames in, one out.

    left  -> router: packs --+
                             +--> union -> joiner, one core a partition -> counters -> unpacker -> results
    right -> router: packs --+

Only the DataFrame API is used, so that it works on Spark Connect as well; that of a client without a JVM, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from watersmeet.aggregates.options import check_alone, per_row
from watersmeet.engine.choose import DEVICES, box_lines, check_keyed, index_text
from watersmeet.engine.order import Order, check_order
from watersmeet.engine.pick import pick_lines
from watersmeet.engine.results import HOWS
from watersmeet.engine.show import Plan
from watersmeet.parameters import one_of, whole
from watersmeet.query.durations import Duration
from watersmeet.query.pick import PickName, by_merging, checked_pick
from watersmeet.query.plan import compile_plan
from watersmeet.query.predicate import On, predicate
from watersmeet.query.windows import SIDES, Side, Window, other
from watersmeet.routing import Broadcast, Cells, Hashed, Split, Spread
from watersmeet.routing.choose import choose_route, copies_lines
from watersmeet.spark.bad_rows import check_bad_rows
from watersmeet.spark.checks import PARTITIONS, WATERMARK, check_client, check_frame, check_session, check_window
from watersmeet.spark.cores import core_keys
from watersmeet.spark.event_time import AUTO, EventTime, Given, chosen, marked, travels_later
from watersmeet.spark.gpu import check_settings
from watersmeet.spark.joiner import Joiner
from watersmeet.spark.late import check_late
from watersmeet.spark.marker import Marker
from watersmeet.spark.packs import COUNTERS, LOADS, PACK, RESULT, SHOWN_CORES
from watersmeet.spark.parquet import column_of, frame_of
from watersmeet.spark.router import Router
from watersmeet.spark.schemas import arrow_schema, result_schema
from watersmeet.spark.spec import Compiled, JoinSpec, compile_spec, ordered_plan
from watersmeet.spark.unpacker import unpacked
from watersmeet.spark.watermark import check_clock, declared, own_name, taken

#: Cores of a join whose rows go to all of them, if nobody says how many: more cost more than they bring.
SPLIT_CORES = 16


def stream_join(
    left: Any,
    right: Any,
    on: On,
    window: Window,
    how: str | None = None,
    *,
    per: str | None = None,
    aggregate: Mapping[str, str] | None = None,
    emit: str | None = None,
    pick: PickName | None = None,
    pick_by: On | None = None,
    suffix: str = "_right",
    route: str = "auto",
    cores: int | None = None,
    order: Order = "none",
    device: str = "cpu",
    event_time: str | None = AUTO,
    late: str = "drop",
    bad_rows: str | tuple[str, str] = "fail",
    before_1970: bool = False,
    name: str | None = None,
) -> Any:
    """Join two streaming DataFrames over a window, on any predicate; returns a streaming DataFrame.

    left, right: one that has a watermark is taken as it is: its column and delay are the window's time and lateness.
        Files of Parquet are read faster as `parquet_files`.
    on: the predicate, SQL over the columns `l.…` and `r.…`; or a function of two rows, such as
        `lambda l, r: (l.price - r.price).abs() <= 0.05`.
    window: `within`, `tumbling` or `hopping`, with the time column and the lateness of each side.
    how: inner, left, right, full, semi or anti; inner unless given.
    per, aggregate, emit: one row for each row of a side, with aggregates over its partners, when it is complete:
        `per="left", aggregate={"n": "count(*)", "total": "sum(r.amount)"}`; those without partners, too, unless how is
        "inner" (docs/aggregates.md).
    pick: one partner for each left row, the "latest", "earliest" or "nearest" in time (docs/asof.md).
    pick_by: an expression that counts instead of the time: the greatest by "latest", the least by the others.
    suffix: for right columns whose name the left has too.
    route: how the join is spread over cores: "auto", "hash", "cells", "split", "broadcast", "hot_cold" or
        "single"; `explain_join` shows it.
    cores: in how many parts; at most, and by default, spark.sql.shuffle.partitions (of "split" and
        "broadcast", by default 16 at most).
    order: of the results of a micro-batch in each partition, by event time: "none", "outer" (those of an earlier tuple
        first), "inner" (and of one tuple, those with its oldest partner first), or `punctuate(every=n)`; what a
        result belongs to is the later of its two tuples by event time (order.py).
    device: "cpu", or "gpu": partners are looked for on the GPUs that Spark gives to its tasks (docs/spark.md).
    event_time: the column of the result that is its event time for what comes behind it in the same query: windowed
        counts, dropDuplicatesWithinWatermark, another stream_join. The left's or the right's time column; or the name
        of a new column, with the time at which a result was decided; "auto": the left's if it can be, else the right's
        if it can be; None: there is none, and Spark's watermark is the join's.
    late: what becomes of rows that come too late: "drop" leaves them out and counts them (`late_left`, `late_right`);
        "keep" also lets them out among the results, where a column `late` says of which side they are.
    bad_rows: what becomes of rows whose time is null, or beyond what Spark can hold: "fail" ends the query with an
        error that names the row; "drop" leaves them out and counts them (`bad_left`, `bad_right`). A pair: left, right.
    before_1970: times may lie before 1970; the join then has a clock of its own, and its result no event time.
    name: under which the counters appear in the query's progress (`observedMetrics`); "watersmeet" unless given, and
        "watersmeet_2", ... of a join behind another.
    """
    join = specified(
        left, right, on, window, how, suffix, route, cores, event_time, late, bad_rows, before_1970,
        aggregates=(per, aggregate, emit), pick=pick, pick_by=pick_by, order=order, device=device,
    )  # fmt: skip
    return assembled(left, right, join, Joiner(join.spec), own_name(name, join.given.watermarks))


def assembled(left: Any, right: Any, join: Specified, joiner: Any, name: str) -> Any:
    """The pipeline around a joiner."""
    spec, bound = join.spec, join.bound
    clock = bound.clock
    frames = {"left": left, "right": right}

    def packed(side: Side) -> Any:
        packs = frames[side].mapInArrow(Router(spec, side), PACK)
        if clock.idle_after(side) is not None:
            away = other(side)
            time = spec.window.time[SIDES.index(away)]
            packs = packs.union(column_of(frames[away], time).mapInArrow(Marker(spec, side), PACK))
        if join.given.watermarks[side] is not None:
            return packs  # Spark allows no other
        return packs.withWatermark("ts", f"{clock.delay(side)} milliseconds")

    # Spark would drop a pack whose last tuple is below the watermark, uncounted. So what the joiner has as event time
    # is null, which is never below anything, marked like the column that the watermark was made from.
    never_late = F.lit(None).cast("timestamp").alias("ts", metadata={WATERMARK: 0})
    packs = packed("left").union(packed("right"))
    # Where a result is used twice in a query, Spark would shuffle its packs once, and find no watermark in front of the
    # second joiner: it would be 0 there for ever. With a random number in them no two plans are the same to it.
    packs = packs.select("core", "side", "home", "bad", "blob", never_late, F.rand().alias("apart"))
    joined = packs.groupBy("core").transformWithStateInPandas(joiner, RESULT, "append", "EventTime")
    sums = [F.coalesce(F.sum(each), F.lit(0)).alias(each) for each in COUNTERS]
    counted = joined.observe(name, *sums, *_loads(spec))
    results = counted.mapInArrow(unpacked, result_schema(bound, left.schema, right.schema))
    return results if join.event_time is None else marked(results, join.event_time, join.given, name)


def _could_spread(spec: JoinSpec) -> bool:
    usual = spec.route
    free = isinstance(usual, Hashed) or (isinstance(usual, Cells) and usual.anchor is None)
    return free and spec.how == "inner" and usual.cores > 1


def _loads(spec: JoinSpec) -> list[Any]:
    """What each core tells of itself, where the route depends on skew; of so many cores as one can look at."""
    if not isinstance(spec.route, Spread):
        return []
    told = [F.max(F.when(F.col("core") == core, F.col("about"))) for core in range(min(len(spec.keys), SHOWN_CORES))]
    return [F.array(*told).alias(LOADS)]


def explain_join(
    left: Any,
    right: Any,
    on: On,
    window: Window,
    how: str | None = None,
    *,
    per: str | None = None,
    aggregate: Mapping[str, str] | None = None,
    emit: str | None = None,
    pick: PickName | None = None,
    pick_by: On | None = None,
    suffix: str = "_right",
    route: str = "auto",
    cores: int | None = None,
    order: Order = "none",
    device: str = "cpu",
    event_time: str | None = AUTO,
    late: str = "drop",
    bad_rows: str | tuple[str, str] = "fail",
    before_1970: bool = False,
) -> str:
    """What `stream_join` would do with these arguments, and why; a line a fact."""
    join = specified(
        left, right, on, window, how, suffix, route, cores, event_time, late, bad_rows, before_1970,
        aggregates=(per, aggregate, emit), pick=pick, pick_by=pick_by, order=order, device=device,
    )  # fmt: skip
    spec, bound, why = join.spec, join.bound, join.why
    plan = bound.plan
    lines = [f"predicate: {spec.on}", f"window: {spec.window}", f"how: {spec.how}"]
    if spec.per is not None:
        lines.append(f"per: {spec.per.side}, {spec.per.text()}")
    lines += [f"  {side} has {found}, taken as it is" for side, found in join.given.watermarks.items() if found]
    lines.append(f"event time of results: {_event_time(join)}")
    if spec.window.idle_after == (None, None):
        lines.append("idle_after: none, so a side that sends nothing holds time back, and the other's rows are kept")
    lines += [f"route: {spec.route.name} over {len(spec.keys)} cores", f"  because {why}", *copies_lines(spec.route)]
    if route == "auto" and _could_spread(spec):
        lines.append("  if a few keys come very often: route='hot_cold' spreads them over several cores")
    if spec.order != "none":
        lines.append(f"order: {spec.order}, by event time, in each partition of a micro-batch")
    merged = bound.pick is not None and by_merging(bound.pick, plan)
    lines += [] if bound.pick is None else pick_lines(bound.pick, merged)
    lines += [] if merged else [f"index: {index_text(bound.index, plan)}", *box_lines(plan)]
    if spec.device == "gpu":
        lines.append("device: gpu, that of each task")
        lines.append("  there: the keys of the state's runs, sorted, to be searched; a worker keeps what it has sent")
        lines.append("  here: the runs, which are sorted and merged as without a GPU")
    lines.append("terms:")
    lines += [f"  {term.kind:<11} {term.text}" + (f"  -- {term.note}" if term.note else "") for term in plan.terms]
    for side in SIDES:
        residual = bound.side_plan(side).residual
        if residual is not None:
            lines.append(f"checked on candidates found by {side}: {residual.text}")
    return Plan("\n".join(lines))


def _event_time(join: Specified) -> str:
    found = join.event_time
    if found is None:
        return "none, so operators with state behind the join have no watermark"
    return f"{found.column}, by up to {Duration(found.delay * 1_000_000)} out of order"


class Specified(NamedTuple):
    """A join, checked."""

    spec: JoinSpec
    bound: Compiled
    why: str  # it takes its route
    event_time: EventTime | None
    given: Given


def specified(
    left: Any, right: Any, on: Any, window: Any, how: str | None, suffix: str = "_right", route: str = "auto",
    cores: int | None = None, event_time: str | None = AUTO, late: str = "drop",
    bad_rows: str | tuple[str, str] = "fail", before_1970: bool = False, aggregates: tuple[Any, Any, Any] = (None,) * 3,
    pick: PickName | None = None, pick_by: On | None = None, order: Order = "none", device: str = "cpu",
) -> Specified:  # fmt: skip
    """ValueError or TypeError for every mistake that can be found before the query starts."""
    check_frame(frame_of(left), "left")
    check_frame(frame_of(right), "right")
    check_client(frame_of(left))
    check_window(window)
    per = per_row(*aggregates, how)
    how = "inner" if how is None else how
    one_of("how", how, HOWS)
    picked = checked_pick(pick, pick_by, how, window)
    check_bad_rows(bad_rows)
    keep_late = check_late(late)
    check_order(order)
    check_alone(per, pick=(pick, None), order=(order, "none"), device=(device, "cpu"))
    if picked is not None and order != "none":
        raise ValueError(f"order must be 'none' with pick, whose rows come out as they are complete, got {order!r}")
    if per is not None:
        how = per.side  # each row of the side sees all its partners in one core
        if per.updates:
            raise ValueError("emit='updates' is for StreamJoin; on Spark rows come out when they are complete")
        if keep_late:
            raise ValueError("late='keep' does not go with aggregate=; leave it out")
    if not isinstance(suffix, str):
        raise TypeError(f"suffix must be text, got {suffix!r}")
    if not isinstance(before_1970, bool):
        raise TypeError(f"before_1970 must be True or False, got {before_1970!r}")
    one_of("device", device, DEVICES)
    session = left.sparkSession
    check_session(session)
    if device == "gpu":
        check_settings(session)
    partitions = int(session.conf.get(PARTITIONS))
    given_cores, cores = cores, whole("cores", partitions if cores is None else cores)
    if cores > partitions:
        raise ValueError(
            f"cores must be at most {PARTITIONS}, which is {partitions}, got {cores}; set both"
        )
    expr = predicate(on)
    watermarks = {side: declared(frame_of(stream), side) for side, stream in zip(SIDES, (left, right), strict=True)}
    window = taken(window, *watermarks.values())
    schemas = arrow_schema(left.schema, "left"), arrow_schema(right.schema, "right")
    bound_window = window.bind(*schemas)
    plan = compile_plan(expr, *schemas)
    if device == "gpu":
        if picked is not None:
            raise ValueError("pick is not for device 'gpu' so far; use device='cpu'")
        check_keyed(device, plan)
    plan = ordered_plan(plan)
    routed = how if picked is None else "left"  # a left row sees all of its partners in one core
    chosen_route, why = choose_route(route, plan, *schemas, routed, cores)
    if isinstance(chosen_route, Split | Broadcast) and given_cores is None and cores > SPLIT_CORES:
        chosen_route, why = choose_route(route, plan, *schemas, routed, SPLIT_CORES)
        why += f"; over {SPLIT_CORES} of {partitions} partitions, unless cores= says otherwise"
    keys = core_keys(chosen_route.cores, partitions)
    spec = JoinSpec(expr, window, how, *schemas, suffix, chosen_route, keys, partitions, bad_rows)  # type: ignore[arg-type]
    spec = replace(spec, keep_late=keep_late, per=per, pick=picked, order=order, device=device)
    columns = compile_spec(spec).filed.names  # and every other error there may be
    names = {"left": window.time[0]}
    if per is not None:
        names = {per.side: window.time[SIDES.index(per.side)]}
    elif how not in ("semi", "anti"):
        names["right"] = columns[len(schemas[0]) + schemas[1].get_field_index(window.time[1])]
    types = [frame.schema[time].dataType for frame, time in zip((left, right), window.time, strict=True)]
    given = Given(bound_window, how, columns, names, watermarks, types, picked is not None)  # type: ignore[arg-type]
    later = travels_later(bound_window, before_1970)
    check_clock(watermarks, later)
    found, timing = chosen(event_time, given, later, keep_late)
    spec = replace(spec, timing=timing)
    return Specified(spec, compile_spec(spec), why, found, given)
