"""Aggregates on Spark: every route and window against brute force on the stand-in, and a query on a real Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aggregates import check_row, sql
from hypothesis import given, settings
from hypothesis import strategies as st
from predicates import FAMILIES

import watersmeet as wm
from watersmeet.aggregates.options import per_row
from watersmeet.spark import explain_join, stream_join

from .cases import cut, read, run, tuples, write
from .standin import StandIn, specified
from .test_contract import LIMITED, SCHEMA, WINDOWS, as_user_writes, expected, numbered, routes_for, streams


@pytest.mark.parametrize("per", ["left", "right"])
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_rows_come_out_once_with_the_aggregates_of_brute_force(per, data):
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    predicate = data.draw(st.sampled_from(FAMILIES[family]))
    window = data.draw(WINDOWS)
    how = data.draw(st.sampled_from([None, "inner"]))
    batches = numbered(data.draw(streams(predicate)))
    route = data.draw(st.sampled_from(routes_for(predicate, per)))
    cores = data.draw(st.sampled_from([1, 2, 3, 8]))
    limits = data.draw(st.sampled_from(LIMITED))
    wanted = per_row(per, sql(per), None, how)
    with tempfile.TemporaryDirectory() as folder:
        spec = specified(predicate.sql, as_user_writes(window), per, SCHEMA, SCHEMA, route, cores, per=wanted)
        spark = StandIn(spec, Path(folder), data.draw(st.integers(0, 99)), limits)
        results = []
        for both in batches:
            tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in both]
            results.append(spark.batch(*tables, fails=data.draw(st.sampled_from([0, 0, 1]))))
            if data.draw(st.sampled_from([False, False, True])):
                spark.forget_files()
    found = pa.concat_tables(results).to_pylist()

    # An outer join has all pairs, and who is alone; who has partners comes out when nobody else can come.
    pairs, _ = expected(batches, window, "inner", predicate.holds)
    alone, _ = expected(batches, window, per, lambda left, right: False)
    own, away = (0, 1) if per == "left" else (1, 0)
    complete = {pair[own] for pair in alone}
    partners = {id: [] for id in complete}
    rows = {row["id"]: row for both in batches for row in both[away]}
    for pair in pairs:
        if pair[own] in complete:
            partners[pair[own]].append(rows[pair[away]])
    if how == "inner":
        partners = {id: some for id, some in partners.items() if some}
    assert sorted(row["id"] for row in found) == sorted(partners)
    for row in found:
        check_row(row, partners[row["id"]])


AGGREGATE = {"n": "count(*)", "total": "sum(r.x)", "money": "sum(r.d)", "last": "max(r.ts)", "low": "min(r.f)"}


@pytest.mark.long
def test_a_query_gives_what_sparks_own_join_and_group_by_give(spark, tmp_path):
    data = {side: tuples(seed, 300) for side, seed in (("left", 1), ("right", 2))}
    for side, rows in data.items():
        write(tmp_path / side, cut(rows, 3, len(side)))
    left, right = read(spark, tmp_path / "left"), read(spark, tmp_path / "right")
    window = wm.within("2 seconds", "1 second", lateness=("3 seconds", "2 seconds"))
    given = {"per": "left", "aggregate": AGGREGATE}
    assert "per: left, n = count(*), total = sum(r.x)" in explain_join(left, right, "l.x < r.x", window, **given)
    run(stream_join(left, right, "l.x < r.x", window, **given), tmp_path)
    names = ["id", *AGGREGATE]
    found = pq.read_table(tmp_path / "out").select(names).sort_by("id").to_pylist()
    for name in ("left", "right"):
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(name[0])
    aggregates = ", ".join(f"{text.replace('*', 'r.id')} as {name}" for name, text in AGGREGATE.items())
    between = "r.ts between l.ts - interval '2' second and l.ts + interval '1' second"
    frame = spark.sql(
        f"select l.id, {aggregates} from l left join r on l.x < r.x and {between} where l.id >= 0 group by l.id "
        f"order by l.id"
    )
    wanted = frame.toArrow().select(names) if hasattr(frame, "toArrow") else pa.Table.from_pandas(frame.toPandas())
    assert len(found) == 300
    for row, other in zip(found, wanted.to_pylist(), strict=True):
        for one in (row, other):  # Spark's is in the zone of the session
            one["last"] = one["last"] and one["last"].timestamp()
        assert repr(row) == repr({name: other[name] for name in names})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emit": "updates"}, "emit='updates' is for StreamJoin"),
        ({"late": "keep"}, "late='keep' does not go with aggregate="),
        ({"how": "full"}, "how must be 'left'"),
        ({"aggregate": {"n": "sum(l.x)"}}, "looks at l"),
        ({"aggregate": {"id": "count(*)"}}, "has the name of a column"),
    ],
)
def test_what_cannot_be_is_refused_before_the_query_starts(spark, tmp_path, options, message):
    for side in ("left", "right"):
        write(tmp_path / side, [tuples(1, 3)])
    left, right = read(spark, tmp_path / "left"), read(spark, tmp_path / "right")
    with pytest.raises(ValueError, match=message):
        options = {"per": "left", "aggregate": AGGREGATE, **options}
        stream_join(left, right, "l.k = r.k", wm.within("1 second"), **options)
