"""stream_join: two streaming DataFrames in, one out.

    left  -> router: packs --+
                             +--> union -> joiner, one core a partition -> counters -> unpacker -> results
    right -> router: packs --+

Only the DataFrame API is used, so that it works on Spark Connect as well.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from watersmeet.engine.results import HOWS
from watersmeet.parameters import one_of, whole
from watersmeet.query.expr import Expr
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.query.windows import SIDES, Side, Window, other
from watersmeet.routing import Broadcast, Split
from watersmeet.routing.choose import choose_route, copies_lines
from watersmeet.spark.bad_rows import check_bad_rows
from watersmeet.spark.checks import PARTITIONS, WATERMARK, check_client, check_frame, check_session, check_window
from watersmeet.spark.clock import SparkClock
from watersmeet.spark.cores import core_keys
from watersmeet.spark.joiner import Joiner
from watersmeet.spark.marker import Marker
from watersmeet.spark.packs import COUNTERS, PACK, RESULT
from watersmeet.spark.router import Router
from watersmeet.spark.schemas import arrow_schema, result_schema
from watersmeet.spark.spec import JoinSpec, compile_spec, ordered_plan
from watersmeet.spark.unpacker import unpacked

#: Cores of a join whose rows go to all of them, if nobody says how many: more cost more than they bring.
SPLIT_CORES = 16


def stream_join(
    left: Any,
    right: Any,
    on: str | Expr,
    window: Window,
    how: str = "inner",
    *,
    suffix: str = "_right",
    route: str = "auto",
    cores: int | None = None,
    bad_rows: str = "fail",
    name: str = "watersmeet",
) -> Any:
    """Join two streaming DataFrames over a window, on any predicate; returns a streaming DataFrame.

    on: the predicate, SQL over the columns `l.…` and `r.…`.
    window: `within`, `tumbling` or `hopping`, with the time column and the lateness of each side.
    how: inner, left, right, full, semi or anti.
    suffix: for right columns whose name the left has too.
    route: how the join is spread over cores: "auto", "hash", "cells", "split", "broadcast" or "single";
        `explain_join` shows it.
    cores: in how many parts; at most, and by default, spark.sql.shuffle.partitions (of "split" and
        "broadcast", by default 16 at most).
    bad_rows: what becomes of rows whose time is null, or beyond what Spark can hold: "fail" ends the query with an
        error that names the row; "drop" leaves them out and counts them (`bad_left`, `bad_right`).
    name: under which the counters appear in the query's progress (`observedMetrics`).
    """
    spec, _ = specified(left, right, on, window, how, suffix, route, cores, bad_rows)
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be a text, got {name!r}")
    return assembled(left, right, spec, Joiner(spec), name)


def assembled(left: Any, right: Any, spec: JoinSpec, joiner: Any, name: str) -> Any:
    """The pipeline around a joiner."""
    bound = compile_spec(spec)  # every other error there may be
    clock = SparkClock(bound.window)
    frames = {"left": left, "right": right}

    def packed(side: Side) -> Any:
        packs = frames[side].mapInArrow(Router(spec, side), PACK)
        if clock.idle_after(side) is not None:
            away = other(side)
            time = spec.window.time[SIDES.index(away)].replace("`", "``")
            packs = packs.union(frames[away].select(F.col(f"`{time}`")).mapInArrow(Marker(spec, side), PACK))
        return packs.withWatermark("ts", f"{clock.lateness(side)} milliseconds")

    # Spark would drop a pack whose last tuple is below the watermark, uncounted. So what the joiner has as event time
    # is null, which is never below anything, marked like the column that the watermark was made from.
    never_late = F.lit(None).cast("timestamp").alias("ts", metadata={WATERMARK: 0})
    packs = packed("left").union(packed("right"))
    packs = packs.select("core", "side", "home", "bad", "blob", never_late)
    joined = packs.groupBy("core").transformWithStateInPandas(joiner, RESULT, "append", "EventTime")
    counted = joined.observe(name, *(F.coalesce(F.sum(each), F.lit(0)).alias(each) for each in COUNTERS))
    results = result_schema(bound.results.names, left.schema, None if bound.left_only else right.schema)
    return counted.mapInArrow(unpacked, results)


def explain_join(
    left: Any,
    right: Any,
    on: str | Expr,
    window: Window,
    how: str = "inner",
    *,
    suffix: str = "_right",
    route: str = "auto",
    cores: int | None = None,
    bad_rows: str = "fail",
) -> str:
    """What `stream_join` would do with these arguments, and why; a line a fact."""
    spec, why = specified(left, right, on, window, how, suffix, route, cores, bad_rows)
    bound = compile_spec(spec)
    plan = bound.plan
    lines = [f"predicate: {spec.on}", f"window: {spec.window}", f"how: {spec.how}"]
    if spec.window.idle_after == (None, None):
        lines.append("idle_after: none, so a side that sends nothing holds time back, and the other's rows are kept")
    lines += [f"route: {spec.route.name} over {len(spec.keys)} cores", f"  because {why}", *copies_lines(spec.route)]
    lines.append("index: bisort" + (" (composite)" if plan.equality and plan.range is not None else ""))
    lines.append("terms:")
    lines += [f"  {term.kind:<11} {term.text}" + (f"  -- {term.note}" if term.note else "") for term in plan.terms]
    for side in SIDES:
        residual = bound.side_plan(side).residual
        if residual is not None:
            lines.append(f"checked on candidates found by {side}: {residual.text}")
    return "\n".join(lines)


def specified(
    left: Any, right: Any, on: Any, window: Any, how: str, suffix: str, route: str, cores: int | None,
    bad_rows: str = "fail",
) -> tuple[JoinSpec, str]:
    """The join, checked, and why it takes its route."""
    check_frame(left, "left")
    check_frame(right, "right")
    check_client(left)
    check_window(window)
    one_of("how", how, HOWS)
    check_bad_rows(bad_rows)
    if not isinstance(suffix, str):
        raise TypeError(f"suffix must be text, got {suffix!r}")
    if not isinstance(on, str | Expr):
        raise TypeError(f"on must be SQL text such as 'l.id = r.id', got {on!r}")
    session = left.sparkSession
    check_session(session)
    partitions = int(session.conf.get(PARTITIONS))
    given, cores = cores, whole("cores", partitions if cores is None else cores)
    if cores > partitions:
        raise ValueError(
            f"cores must be at most {PARTITIONS}, which is {partitions}, got {cores}; set both"
        )
    predicate = parse(on) if isinstance(on, str) else on
    schemas = arrow_schema(left.schema, "left"), arrow_schema(right.schema, "right")
    window.bind(*schemas)
    plan = ordered_plan(compile_plan(predicate, *schemas))
    chosen, why = choose_route(route, plan, *schemas, how, cores)
    if isinstance(chosen, Split | Broadcast) and given is None and cores > SPLIT_CORES:
        chosen, why = choose_route(route, plan, *schemas, how, SPLIT_CORES)
        why += f"; over {SPLIT_CORES} of {partitions} partitions, unless cores= says otherwise"
    keys = core_keys(chosen.cores, partitions)
    spec = JoinSpec(predicate, window, how, *schemas, suffix, chosen, keys, partitions, bad_rows)  # type: ignore[arg-type]
    return spec, why
