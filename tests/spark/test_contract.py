"""Every route, window and join type against brute force, on the stand-in for Spark.

Micro-batches of a few tuples, out of order and sometimes late, cut into random tasks; attempts that fail and are run
again; cached files that vanish. Real Spark runs a part of this in test_on_spark.py.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import oracle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import FAMILIES
from strategies import idle_after, key_pools

import watersmeet as wm
from watersmeet.spark.limits import LIMITS, Limits

from .standin import StandIn, specified

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()),
     ("s", pa.string())]
)  # fmt: skip
BEGINS = (1_000, 0, -5, -6 * 10**13, 9 * 10**15)  # before and after 1970, and the last that Spark's clock holds
LIMITED = [LIMITS, Limits(step=100, chunk=60, small=40), Limits(step=1, chunk=1, small=0)]
HOWS = ("inner", "left", "right", "full", "semi", "anti")


def spans():
    return st.sampled_from([0, 1, 3, 5])


WINDOWS = st.one_of(
    st.builds(oracle.Within, spans(), spans(), st.tuples(spans(), spans()), idle_after()),
    st.builds(
        lambda sizes, late, idle: oracle.Hopping(*sizes, late, idle),
        st.sampled_from([(1, 1), (4, 4), (7, 7), (2, 1), (6, 1), (6, 4)]),
        st.tuples(spans(), spans()),
        idle_after(),
    ),
)


def as_user_writes(window):
    options = {"lateness": window.lateness, "idle_after": window.idle_after}
    if isinstance(window, oracle.Within):
        return wm.within(window.before, window.after, **options)
    return wm.hopping(window.size, window.slide, **options)


@st.composite
def streams(draw, predicate):
    """Micro-batches of (left rows, right rows); the time goes on, with a jitter."""
    pool = draw(key_pools(predicate))
    batches, now = [], draw(st.sampled_from(BEGINS))
    for _ in range(draw(st.integers(1, 6))):
        both = []
        for _ in range(2):
            rows = draw(st.lists(st.tuples(st.integers(-4, 4), st.sampled_from(pool)), max_size=6))
            both.append([{"ts": now + jitter} | row for jitter, row in rows])
        batches.append(tuple(both))
        now += draw(st.sampled_from([0, 1, 3, 20]))
    return batches


def expected(batches, window, how, holds):
    """(left id, right id) of every result that the watermark proves, and the number of late tuples."""
    left, right, late = [], [], 0
    greatest = {}
    watermark = -oracle.INFINITY
    for both in batches:
        for rows, kept in zip(both, (left, right), strict=True):
            late += sum(row["ts"] < watermark for row in rows)
            kept += [row for row in rows if row["ts"] >= watermark]
        for side, rows in zip(("left", "right"), both, strict=True):
            if rows:
                greatest[side] = max(greatest.get(side, rows[0]["ts"]), max(row["ts"] for row in rows))
        marks = [
            greatest.get(side, -oracle.INFINITY) - late_by
            for side, late_by in zip(("left", "right"), window.lateness, strict=True)
        ]
        watermark = max(watermark, oracle.joint_watermark(*marks, window.idle_after))
    pairs = [(a["id"], b["id"]) for a in left for b in right
             if window.together(a["ts"], b["ts"]) and holds(a, b) is True]  # fmt: skip
    decided = {
        side: {row["id"] for row in rows if window.greatest_partner(row["ts"], side) < watermark}
        for side, rows in (("left", left), ("right", right))
    }
    results = Counter()
    if how in ("inner", "left", "right", "full"):
        results.update(pairs)
    matched = {a for a, _ in pairs}, {b for _, b in pairs}
    if how == "semi":
        results.update((a, None) for a in matched[0])
    if how in ("left", "full", "anti"):
        results.update((a["id"], None) for a in left if a["id"] not in matched[0] and a["id"] in decided["left"])
    if how in ("right", "full"):
        results.update((None, b["id"]) for b in right if b["id"] not in matched[1] and b["id"] in decided["right"])
    return results, late


def numbered(batches):
    answer, counts = [], [0, 0]
    for both in batches:
        rows = []
        for i, side in enumerate(both):
            rows.append([{"id": counts[i] + n} | row for n, row in enumerate(side)])
            counts[i] += len(side)
        answer.append(tuple(rows))
    return answer


def routes_for(predicate, how):
    """Whatever the predicate can take; where it cannot, `auto` takes what is left."""
    everywhere = ["split", "broadcast"] if how != "full" else []
    return ["auto", "single", *everywhere, *(["hash"] if predicate.equality else [])]


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_results_are_those_of_brute_force(how, data):
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    predicate = data.draw(st.sampled_from(FAMILIES[family]))
    window = data.draw(WINDOWS)
    batches = numbered(data.draw(streams(predicate)))
    route = data.draw(st.sampled_from(routes_for(predicate, how)))
    cores = data.draw(st.sampled_from([1, 2, 3, 8]))
    limits = data.draw(st.sampled_from(LIMITED))
    with tempfile.TemporaryDirectory() as folder:
        spec = specified(predicate.sql, as_user_writes(window), how, SCHEMA, SCHEMA, route, cores)
        spark = StandIn(spec, Path(folder), data.draw(st.integers(0, 99)), limits)
        results = []
        for both in batches:
            tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in both]
            results.append(spark.batch(*tables, fails=data.draw(st.sampled_from([0, 0, 1]))))
            if data.draw(st.sampled_from([False, False, True])):
                spark.forget_files()
    table = pa.concat_tables(results)
    ids = ("id",) if how in ("semi", "anti") else ("id", "id_right")
    columns = [table.column(name).to_pylist() for name in ids]
    found = Counter(zip(columns[0], columns[1] if len(columns) > 1 else [None] * len(columns[0]), strict=True))
    wanted, late = expected(batches, window, how, predicate.holds)
    assert found == wanted
    assert spark.counts["late_left"] + spark.counts["late_right"] == late
