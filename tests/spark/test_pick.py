# ruff: noqa: E741  (`l` and `r` are what the SQL calls them)
"""One partner for each left row on Spark: against brute force on the stand-in, and on a real Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import oracle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import EQUALITY, PREDICATES

import watersmeet as wm
from watersmeet.query.parse import parse
from watersmeet.query.pick import Pick
from watersmeet.spark import explain_join, stream_join

from .cases import cut, read, run, tuples, write
from .standin import StandIn, specified
from .test_contract import LIMITED, SCHEMA, WINDOWS, as_user_writes, expected, numbered, routes_for, streams

BY = {"r.x": lambda l, r: r["x"], "r.id": lambda l, r: r["id"]}


def best(batches, window, how, holds, pick):
    """For each left row that the watermark proves complete, all partners that are the best, or None."""
    lefts, rights = ([row for both in batches for row in both[i]] for i in (0, 1))
    pairs, _ = expected(batches, window, "inner", holds)
    alone, _ = expected(batches, window, "left", lambda l, r: False)
    by_id = {row["id"]: row for row in rights}
    answer = {}
    for a in lefts:
        if (a["id"], None) not in alone:
            continue
        partners = [oracle.Arrival(by_id[b], 0, 0, 0, 0) for l, b in pairs if l == a["id"]]
        if partners:
            left = oracle.Arrival(a, 0, 0, 0, 0)
            best = oracle._best(pick, left, partners, ("ts", "ts"))
            equal = [each for each in partners if _equal(pick, left, each, best)]
            answer[a["id"]] = {each.row["id"] for each in equal}
        elif how == "left":
            answer[a["id"]] = {None}
    return answer


def _equal(pick, left, one, other):
    """Whether neither is better than the other: in either order the first is taken."""
    time = ("ts", "ts")
    return oracle._best(pick, left, [one, other], time) is one and oracle._best(pick, left, [other, one], time) is other


@settings(max_examples=5 * settings().max_examples)
@given(data=st.data())
def test_results_are_those_of_brute_force(data):
    predicate = data.draw(st.sampled_from(data.draw(st.sampled_from([PREDICATES, EQUALITY]))))
    window, how = data.draw(WINDOWS), data.draw(st.sampled_from(["inner", "left"]))
    batches = numbered(data.draw(streams(predicate)))
    way = data.draw(st.sampled_from(["latest", "earliest", "nearest"]))
    by = data.draw(st.sampled_from([None, None, *BY]))
    route = data.draw(st.sampled_from(routes_for(predicate, how)))
    cores, limits = data.draw(st.sampled_from([1, 2, 3, 8])), data.draw(st.sampled_from(LIMITED))
    pick = Pick(way, None if by is None else parse(by))
    with tempfile.TemporaryDirectory() as folder:
        spec = specified(predicate.sql, as_user_writes(window), how, SCHEMA, SCHEMA, route, cores, pick=pick)
        spark = StandIn(spec, Path(folder), data.draw(st.integers(0, 99)), limits)
        results = []
        for both in batches:
            tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in both]
            results.append(spark.batch(*tables, fails=data.draw(st.sampled_from([0, 0, 1]))))
            if data.draw(st.sampled_from([False, False, True])):
                spark.forget_files()
    table = pa.concat_tables(results)
    found = list(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    wanted = best(batches, window, how, predicate.holds, oracle.Pick(way, None if by is None else BY[by]))
    assert sorted(left for left, _ in found) == sorted(wanted)
    assert all(right in wanted[left] for left, right in found), (found, wanted)


def test_a_checkpoint_keeps_to_its_pick(tmp_path):
    table = pa.Table.from_pylist([{"id": 1, "ts": 5, "k": 1}], schema=SCHEMA)
    spec = specified("l.k = r.k", wm.within(3), "inner", SCHEMA, SCHEMA, cores=1, pick=Pick("latest"))
    spark = StandIn(spec, tmp_path)
    spark.batch(table, table)
    for other in (None, Pick("nearest")):
        spark.spec = specified("l.k = r.k", wm.within(3), "inner", SCHEMA, SCHEMA, cores=1, pick=other)
        with pytest.raises(ValueError, match="pick was 'latest', now is"):
            spark.batch(table, table)


def test_nothing_is_left_in_the_state_when_all_is_over(tmp_path):
    spec = specified("l.k = r.k", wm.within(3, 5), "left", SCHEMA, SCHEMA, cores=1, pick=Pick("latest"))
    spark = StandIn(spec, tmp_path)
    for now in (0, 1000):
        rows = [{"id": i, "ts": now + i, "k": i % 3} for i in range(20)]
        spark.batch(*(pa.Table.from_pylist(rows, schema=SCHEMA) for _ in range(2)))
    assert spark.last["stored_left"] + spark.last["stored_right"] <= 40


QUERIES = [
    ("l.k = r.k", "left", {"pick": "latest"}, "route: hash over 2 cores", "r.ts desc"),
    ("abs(l.x - r.x) <= 2", "inner", {"pick": "nearest", "pick_by": lambda l, r: (l.d - r.d).abs()},
     "route: cells over 2 cores", "abs(l.d - r.d) nulls last, r.ts desc"),
]  # fmt: skip


@pytest.mark.long
def test_on_a_real_spark(spark, tmp_path):
    from pyspark.sql import functions as F

    rows = {side: tuples(seed, 250) for side, seed in (("left", 1), ("right", 2))}
    for side in rows:
        write(tmp_path / side, cut(rows[side], 3, 5))
    window = wm.within("2 seconds", "1 second", lateness="3 seconds")
    frames = []
    for number, (on, how, options, route, _) in enumerate(QUERIES):
        left, right = read(spark, tmp_path / "left"), read(spark, tmp_path / "right")
        told = explain_join(left, right, on, window, how, **options)
        assert route in told and f"pick: {options['pick']}" in told
        joined = stream_join(left, right, on, window, how, name=f"join{number}", event_time=None, **options)
        frames.append(joined.select(F.lit(number).alias("query"), "id", "id_right"))
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    run(whole, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    connection = duckdb.connect()
    for side in rows:
        connection.execute(f"create table {side}_rows as select * from '{tmp_path / side}/*.parquet' where id >= 0")
    for number, (on, how, _, _, order) in enumerate(QUERIES):
        answered = sorted((row.id, row.id_right) for row in found if row.query == number and row.id >= 0)
        better = connection.execute(
            f"""select l.id, b.ids from left_rows l left join lateral (
                select list(id) as ids from (select r.id, rank() over (order by {order}) as place from right_rows r
                where {on} and epoch_us(r.ts) - epoch_us(l.ts) between -2000000 and 1000000) where place = 1) b
                on true"""
        ).fetchall()
        wanted = {left: ids or [None] for left, ids in better if ids or how == "left"}
        assert [left for left, _ in answered] == sorted(wanted)
        assert all(right in wanted[left] for left, right in answered)


def test_counts_behind_a_pick_have_an_event_time(spark, tmp_path):
    for side in ("left", "right"):
        write(tmp_path / side, [[]])
    left, right = read(spark, tmp_path / "left"), read(spark, tmp_path / "right")
    window = wm.within("2 seconds", "1 second", lateness="3 seconds")
    told = explain_join(left, right, "l.k = r.k", window, pick="latest")
    assert "event time of results: ts, by up to 4 seconds out of order" in told
    with pytest.raises(ValueError, match="with pick, rows come out by the left row's time"):
        stream_join(left, right, "l.k = r.k", window, pick="latest", event_time="ts_right")
    with pytest.raises(ValueError, match="how must be 'inner' or 'left'.*got 'semi'"):
        stream_join(left, right, "l.k = r.k", window, "semi", pick="latest")
