"""Compile all kernels now, so that no join waits for it: `watersmeet warm`.

Numba compiles a kernel when it is first called, and keeps the machine code beside the source (or in NUMBA_CACHE_DIR).
What is called, and with which types, is known best by joins, so this runs small ones: every index, with keys that fit
into a word with their row and keys that do not, with one key and two, over windows whose edges are checked by row, by
time, and not at all. An index is a job of its own, and all cores take jobs.

For images and machines that start often; a join that is run again finds its kernels compiled in any case.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.engine import finder
from watersmeet.engine.cores.collect import Collector, Layout
from watersmeet.engine.cores.member import rows_at_home
from watersmeet.index import INDEXES, Adaptive, BISort, Index
from watersmeet.index.sorted.merging import shift_keys
from watersmeet.index.sorting import by_leading_bits
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing.base import hashed
from watersmeet.routing.choose import choose_route
from watersmeet.routing.hot_cold import HotCold, guide_of, rows_visiting
from watersmeet.window.gather import values_of_all_widths
from watersmeet.workers import ALONE

ROWS = 48


@dataclass(frozen=True)
class Kernels:
    """Machine code of kernels, one for each combination of types."""

    compiled: int = 0
    loaded: int = 0  # from the cache

    def __add__(self, other: Kernels) -> Kernels:
        return Kernels(self.compiled + other.compiled, self.loaded + other.loaded)


def warm(processes: int | None = None, done: Callable[[str], None] = lambda name: None) -> Kernels:
    """Compile what is not in the cache; `done` hears of each job that is."""
    found = Kernels()
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn")) as pool:
        for future in as_completed([pool.submit(job, name) for name in JOBS]):
            name, kernels = future.result()
            found += kernels
            done(name)
    return found


def job(name: str) -> tuple[str, Kernels]:
    before = kernels()
    JOBS[name]()
    after = kernels()
    return name, Kernels(after.compiled - before.compiled, after.loaded - before.loaded)


def dispatchers() -> list[Any]:
    """All kernels of this process that are called from Python: those that only kernels call need no `nogil`."""
    from numba.core.dispatcher import Dispatcher

    return [
        one for one in gc.get_objects()
        if issubclass(type(one), Dispatcher) and one.py_func.__module__.startswith("watersmeet.")
        and one.targetoptions.get("nogil")
    ]  # fmt: skip


def kernels() -> Kernels:
    stats = [one.stats for one in dispatchers()]
    return Kernels(sum(sum(s.cache_misses.values()) for s in stats), sum(sum(s.cache_hits.values()) for s in stats))


# -- joins that call every kernel ----------------------------------------------------------------------------------


PREDICATES = {
    "equality": "l.k = r.k",
    "band": "abs(l.x - r.x) <= 3",
    "both": "l.k = r.k and abs(l.x - r.x) <= 3",
    "bands": "abs(l.x - r.x) <= 3 or l.x = r.x + 100",
    "texts": "l.s = r.s and l.k <> r.k",
}


#: In all of them rows are checked by other means: not at all, by row, by time. And whether times are in order.
WINDOWS = (
    (wm.within(10**6), True), (wm.within(ROWS), True), (wm.within(ROWS, lateness=ROWS), False),
    (wm.last(2 * ROWS), True),
)  # fmt: skip


def batch(start: int, wide: bool, in_order: bool) -> pa.Table:
    rng = np.random.default_rng(start)
    x = rng.integers(0, 20, ROWS)
    if wide:
        x[:4] = np.iinfo(np.int64).min, np.iinfo(np.int64).max, -(2**62), 2**62
    ts = np.arange(start, start + ROWS)
    return pa.table(
        {
            "ts": ts if in_order else rng.permutation(ts),
            "k": rng.integers(0, 9, ROWS),
            "x": x,
            "f": rng.random(ROWS).astype(np.float32),
            "flag": pa.array(rng.random(ROWS) < 0.5, mask=rng.random(ROWS) < 0.1),
            "id": pa.array([b"abc"] * ROWS, pa.binary(3)),
            "price": pa.array([None, 1] * (ROWS // 2), pa.decimal128(9, 2)),
            "s": pa.array([None, "a", "bc"] * (ROWS // 3)),
        }
    )


def run(on: str, window: Any, how: Any, wide: bool, in_order: bool, **options: Any) -> None:
    schema = batch(0, False, True).schema
    with wm.StreamJoin(on, window, how, left_schema=schema, right_schema=schema, **options) as join:
        for start in range(0, 6 * ROWS, ROWS):
            join.push(left=batch(start, wide, in_order), right=batch(start, wide, in_order))


def with_index(index: Index) -> None:
    """All that may happen to its structures."""
    served = {"nothing": PREDICATES, "order": PREDICATES, "equality": ("equality", "both", "texts")}[index.needs]
    for name in served:
        for wide in (False, True):
            for window, in_order in WINDOWS:
                for output in ("pairs", "count"):
                    run(PREDICATES[name], window, "inner", wide, in_order, index=index, output=output, cores=1)


def results() -> None:
    """Keys and rows of every type, every join type."""
    box = "l.s = r.s and abs(l.x - r.x) <= 3 and abs(l.f - r.f) <= 0.1"
    compared = "l.k = r.k and l.x = r.x and l.f <> r.f"  # by keys
    for on in ("abs(l.f - r.f) <= 0.1", "l.s < r.s", compared, PREDICATES["both"], box):
        for how in ("inner", "full", "semi"):
            for window in (wm.within(ROWS), wm.last(ROWS), wm.tumbling(ROWS)):
                run(on, window, how, False, True, cores=1, order="inner" if how == "semi" else "none")


def counting() -> None:
    """Results that are only counted, where it must be known who is in them; here any number of pairs counts as many."""
    kept, finder.KEPT = finder.KEPT, 0
    try:
        for name in ("equality", "band", "both"):
            for wide in (False, True):
                for window, in_order in WINDOWS:
                    run(PREDICATES[name], window, "semi", wide, in_order, output="count", cores=1)
        window, in_order = WINDOWS[0]
        run(PREDICATES["equality"], window, "semi", False, in_order, output="count", cores=1, index="nested_loop")
    finally:
        finder.KEPT = kept


def large() -> None:
    """Batches that are worth several threads, and routes over several cores."""
    rng = np.random.default_rng(1)
    for high in (1 << 20, 1 << 62):
        rows = pa.table({name: rng.integers(0, high, 1 << 18) for name in ("k", "x")})
        for on in ("abs(l.x - r.x) <= 1", "l.k = r.k", "l.k = r.k and l.x < r.x"):
            with wm.StreamJoin(on, wm.last(rows.num_rows), output="count", cores=2, route="single") as join:
                join.push(left=rows.slice(0, 1000), right=rows)
    for dtype in (np.int64, np.int32):  # a run that several threads merge is larger than these
        shift_keys(np.zeros(ROWS, dtype), ROWS // 2, ROWS // 2)
    some = rows["k"].to_numpy()[:ROWS]  # whichever way to sort is the faster on this machine
    by_leading_bits(some, int(some.min()), 62, 6, np.empty(ROWS, np.int64), np.empty(ROWS, np.int32))
    hashed(rows["k"].to_numpy(), 2)
    rows_at_home(np.zeros(ROWS, np.uint16), np.uint16(0), np.empty(ROWS + 1, np.int64))
    batch = rows.combine_chunks().to_batches()[0].slice(0, ROWS)
    for on in ("abs(l.x - r.x) <= 1", "abs(l.x - r.x) <= 1 and abs(l.k - r.k) <= 1"):
        plan = compile_plan(parse(on), rows.schema, rows.schema)
        route, _ = choose_route("cells", plan, rows.schema, rows.schema, "inner", 2)
        route.places("left", plan.left.of(batch), np.arange(ROWS))
    for on in ("abs(l.x - r.x) <= 1", "l.k = r.k"):
        hot_cold(on, rows.schema, batch)
    pairs = pa.record_batch({"left": [1, 2], "right": [2, 1]})
    layout = Layout(pairs.schema, (0, 1), 0, 1)
    Collector("inner", layout, pairs.schema, False, ALONE).in_order([pairs, pairs], {"left": 0, "right": 0})


def hot_cold(on: str, schema: pa.Schema, batch: pa.RecordBatch) -> None:
    """A route that spreads hot keys."""
    plan = compile_plan(parse(on), schema, schema)
    route, _ = choose_route("hot_cold", plan, schema, schema, "inner", 2, talk=True)
    assert isinstance(route, HotCold)
    guide = guide_of([1], [[0, 1]], [True], [])
    places = route.guided({"left": guide, "right": guide}).places("left", plan.left.of(batch), np.arange(ROWS))
    assert places.visits is not None
    rows_visiting(places.visits.ravel(), 1, places.home.astype(np.uint16), 0, np.empty(ROWS + 1, np.int64))


def shared() -> None:
    """Threads that share an index."""
    for on in ("band", "bands"):
        for output in ("pairs", "count"):
            for window, in_order in ((wm.within(ROWS), True), (wm.within(ROWS, lateness=ROWS), False)):
                run(PREDICATES[on], window, "inner", False, in_order, output=output, cores=1, route="shared")


def as_on_spark() -> None:
    """What the first micro-batches of a join on Spark call, on one core."""
    for name in ("equality", "band", "both"):
        for lateness, in_order in ((0, True), (ROWS, False)):
            for how in ("inner", "full"):
                window = wm.within(ROWS, lateness=lateness)
                run(PREDICATES[name], window, how, False, in_order, index=BISort(), cores=1)
    values_of_all_widths()  # there no columns are kept row by row
    hashed(np.arange(ROWS), 2)


def picks() -> None:
    """One partner for each left row."""
    for on, by in (("l.k = r.k", None), ("l.s = r.s", None), ("abs(l.x - r.x) <= 3", None), ("l.k = r.k", "r.price")):
        for lateness, in_order in ((0, True), (ROWS, False)):
            window = wm.within(ROWS, lateness=lateness)
            for way in ("latest", "nearest"):
                run(on, window, "left", False, in_order, pick=way, pick_by=by, cores=1)


def aggregates() -> None:
    """One row for each of a side."""
    given = {"many": "count(r.k)", "whole": "sum(r.x % 9)", "total": "sum(r.f)", "low": "min(r.x)"}
    for on in (*PREDICATES.values(), "l.x < r.x"):
        for window, in_order in ((wm.within(ROWS), True), (wm.within(3, lateness=ROWS), False), (wm.last(ROWS), True)):
            run(on, window, None, False, in_order, per="left", aggregate=given)


def sketches() -> None:
    """Which keys come most."""
    one, two = wm.sketch.ASketch(), wm.sketch.ASketch()
    one.add([1, 2])
    two.merge(one)
    two.estimate([1])


# Adaptive has no kernels but those of other indexes.
JOBS: dict[str, Callable[[], None]] = {
    index.name: partial(with_index, index()) for index in reversed(INDEXES) if index is not Adaptive
}
JOBS |= {"results": results, "counting": counting, "large": large, "picks": picks, "shared": shared}
JOBS |= {"sketches": sketches, "aggregates": aggregates, "as on Spark": as_on_spark}
