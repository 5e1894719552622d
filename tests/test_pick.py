# ruff: noqa: E741  (`l` and `r` are what the SQL calls them)
"""One partner for each left row, against the oracle, Polars' join_asof and DuckDB's ASOF JOIN."""

import runpy
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from harness import answer, check_batched, check_timing, make_join, run
from hypothesis import given, settings
from hypothesis import strategies as st
from logic import absolute, sub
from oracle import Close, Pick, Within
from predicates import EQUALITY, ONE_SIDED, PREDICATES, RESIDUAL, Predicate
from strategies import INT64_MAX, INT64_MIN, WINDOW_KINDS, Scenario, capacities, scenarios

import watersmeet as wm
from watersmeet.engine import pick as engine_pick
from watersmeet.query import keys
from watersmeet.window import asof

WAYS = ("latest", "earliest", "nearest")
KINDS = [kind for kind in WINDOW_KINDS if kind != "last"]
HOWS = st.sampled_from(["inner", "left"])
ALWAYS = Predicate("true", lambda l, r: True, "")
MERGED = [*EQUALITY, *ONE_SIDED, ALWAYS]
#: Values by which to pick, and the columns that they read.
VALUES = [
    ("r.x", lambda l, r: r["x"], "x"),
    ("abs(l.x - r.x)", lambda l, r: absolute(sub(l["x"], r["x"])), "x"),  # beyond int64, too
    ("r.f", lambda l, r: r["f"], "f"),
    ("l.k > r.k", lambda l, r: None if l["k"] is None or r["k"] is None else l["k"] > r["k"], "k"),
    ("7", lambda l, r: 7, ""),
]


@st.composite
def picks(draw, way=None, by_value=False, predicates=PREDICATES, **options):
    """A scenario of a join that picks."""
    way = way or draw(st.sampled_from(WAYS))
    kind = options.pop("kind", None) or draw(st.sampled_from(KINDS))
    if by_value:
        sql, value, columns = draw(st.sampled_from(VALUES))
        fitting = [each for each in predicates if set(columns) <= set(each.columns)]
        predicates, pick = fitting, Pick(way, value, sql)
    else:
        pick = Pick(way)
    scenario = draw(scenarios(kind=kind, how=draw(HOWS), predicates=predicates, **options))
    return replace(scenario, pick=pick)


def found_by(join):
    return next(line for line in join.explain().splitlines() if line.startswith("  found by"))


# -- against the oracle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
def test_every_window_and_way_gives_the_brute_force_answer(way, kind, data):
    scenario = data.draw(picks(way, kind=kind))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    check_timing(answer(scenario), run(scenario, "pairs", **data.draw(capacities(index))))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_a_merge_gives_the_brute_force_answer(way, data):
    scenario = data.draw(picks(way, predicates=MERGED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asof, "_LEAST_ROOM", data.draw(st.sampled_from([1, 3, 1024])))
        patch.setattr(engine_pick, "ROWS", data.draw(st.sampled_from([1, 3, 1000])))
        check_timing(answer(scenario), run(scenario, "pairs"))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_any_value_may_be_what_counts(way, data):
    scenario = data.draw(picks(way, by_value=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_pick, "CANDIDATES", data.draw(st.sampled_from([2, 1000])))
        check_timing(answer(scenario), run(scenario, "pairs"))


@given(data=st.data())
def test_rows_pairs_and_count_agree(data):
    scenario = data.draw(picks())
    rows = run(scenario, "rows")
    check_timing(answer(scenario), rows)
    assert run(scenario, "pairs") == rows
    assert run(scenario, "count") == [step.total() for step in rows]


@given(data=st.data())
def test_batch_mode_has_the_same_rows(data):
    scenario = data.draw(picks(flush=True))
    returned = run(scenario, "pairs", batch_rows=data.draw(st.sampled_from([2, 5, 9])))
    check_batched(answer(scenario), scenario, returned)


@pytest.mark.parametrize("start", [INT64_MIN, INT64_MAX - 4], ids=["first", "last"])
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_times_may_be_the_first_and_last_of_int64(start, data):
    scenario = data.draw(picks(start=start))
    check_timing(answer(scenario), run(scenario, "pairs"))


@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_keys_with_the_same_hash_are_told_apart(data):
    texts = [each for each in EQUALITY if "s" in each.columns]
    scenario = data.draw(picks(predicates=texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "text_hashes", lambda texts: np.zeros(len(texts), np.int64))
        patch.setattr(engine_pick, "CANDIDATES", 2)
        check_timing(answer(scenario), run(scenario, "pairs"))


# -- what is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicate", MERGED, ids=lambda each: each.sql)
def test_equalities_are_merged(predicate):
    scenario = Scenario(predicate, Within(5, 5), "inner", [Close()], pick=Pick("nearest"))
    with make_join(scenario) as join:
        assert "merge" in found_by(join)
    if len(predicate.indexes) > 2:
        with make_join(scenario, index="bisort") as join:
            assert "candidates" in found_by(join)


@pytest.mark.parametrize("predicate", RESIDUAL, ids=lambda each: each.sql)
def test_what_is_more_than_equalities_is_not_merged(predicate):
    scenario = Scenario(predicate, Within(5, 5), "inner", [Close()], pick=Pick("latest"))
    with make_join(scenario) as join:
        assert "candidates" in found_by(join)


def test_null_is_told_apart_from_zero():
    left = pa.table({"ts": [5, 5], "k": [0, None]})
    right = pa.table({"ts": [3, 4], "k": [None, 0]})
    with wm.StreamJoin("l.k <=> r.k", wm.within(5), pick="latest", output="pairs") as join:
        join.push(left, right)
        assert sorted(join.close().to_pylist(), key=str) == [{"left": 0, "right": 1}, {"left": 1, "right": 0}]


# -- when rows come out, and what is kept ------------------------------------------------------------------------------


def test_a_row_comes_out_when_the_watermark_passes_what_its_partners_may_have():
    join = wm.StreamJoin("true", wm.within(10, 2), pick="latest", output="pairs")
    assert join.push(pa.table({"ts": [100]}), pa.table({"ts": [95, 102]})).num_rows == 0
    assert join.advance(left=200).num_rows == 0  # the right may have another at 102
    assert join.advance(right=103).to_pylist() == [{"left": 0, "right": 1}]
    assert join.close().num_rows == 0


@pytest.mark.parametrize("index", ["auto", "bisort"])
@pytest.mark.parametrize("way", WAYS)
def test_memory_stays_flat(way, index):
    join = wm.StreamJoin("l.k = r.k", wm.within(500, 200), pick=way, index=index, how="left")
    sizes = []
    for start in range(0, 60_000, 500):
        ts = np.arange(start, start + 500)
        table = pa.table({"ts": ts, "k": ts // 3})
        join.push(table, table)
        metrics = join.metrics
        sizes.append((metrics.stored_left, metrics.stored_right, metrics.index_bytes, metrics.payload_bytes))
    early, late = np.max(sizes[20:60], axis=0), np.max(sizes[60:], axis=0)
    assert np.all(late <= 1.5 * early), (early, late)
    assert sum(join.metrics.to_dict()[f"stored_{side}"] for side in ("left", "right")) < 6000


# -- Polars and DuckDB -------------------------------------------------------------------------------------------------


def stream(rng, rows, distinct):
    ts = np.sort(rng.choice(10 * rows, rows, replace=not distinct))
    return pa.table({"id": np.arange(rows), "ts": ts, "k": rng.integers(0, 20, rows), "x": rng.integers(0, 50, rows)})


def answered(join, left, right, rows=97):
    """(left id, right id) of all that a join lets out."""
    made = [join.push(left.slice(at, rows), right.slice(at, rows)) for at in range(0, left.num_rows, rows)]
    table = pa.concat_tables([*made, join.close()])
    return sorted(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True), key=str)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by", [None, "k"])
def test_polars_gives_the_same(way, by):
    rng = np.random.default_rng(3)
    # Polars says nothing of ties: no two times of the right are equal, and (0 and 1 modulo 4) no two equally near.
    left, right = stream(rng, 2000, False), stream(rng, 2000, True)
    right = right.set_column(1, "ts", pa.array(right["ts"].to_numpy() * 4 + 1))
    left = left.set_column(1, "ts", pa.array(left["ts"].to_numpy() * 4))
    window = {"latest": wm.within(60, 0), "earliest": wm.within(0, 60), "nearest": wm.within(60)}[way]
    strategy = {"latest": "backward", "earliest": "forward", "nearest": "nearest"}[way]
    frames = [pl.from_arrow(each).set_sorted("ts") for each in (left, right)]
    options = {} if by is None else {"by": by}
    expected = frames[0].join_asof(
        frames[1], on="ts", strategy=strategy, tolerance=60, check_sortedness=False, **options
    )
    rows = sorted(zip(expected["id"].to_list(), expected["id_right"].to_list(), strict=True), key=str)
    for index in ("auto", "nested_loop"):
        join = wm.StreamJoin("true" if by is None else "l.k = r.k", window, "left", pick=way, index=index)
        assert answered(join, left, right) == rows


@pytest.mark.parametrize("way, sign", [("latest", ">="), ("earliest", "<=")])
@pytest.mark.parametrize("how", ["inner", "left"])
def test_duckdb_gives_the_same(way, sign, how):
    rng = np.random.default_rng(4)
    left, right = stream(rng, 2000, False), stream(rng, 2000, True)
    window = wm.within(40, 0) if way == "latest" else wm.within(0, 40)
    connection = duckdb.connect()
    connection.register("l_rows", left)
    connection.register("r_rows", right)
    found = connection.execute(
        f"select l.id, case when abs(l.ts - r.ts) <= 40 then r.id end from l_rows l asof left join r_rows r "
        f"on l.k = r.k and l.ts {sign} r.ts"
    ).fetchall()
    rows = sorted([pair for pair in found if how == "left" or pair[1] is not None], key=str)
    assert answered(wm.StreamJoin("l.k = r.k", window, how, pick=way), left, right) == rows


@pytest.mark.parametrize("on", ["l.k = r.k and l.x < r.x", "abs(l.x - r.x) <= 3", "l.x * 3 > r.x and l.k <> r.k"])
@pytest.mark.parametrize("by, order", [(None, "r.ts desc"), ("abs(l.x - r.x)", "abs(l.x - r.x), r.ts desc")])
def test_duckdb_gives_the_same_of_any_predicate(on, by, order):
    rng = np.random.default_rng(5)
    left, right = stream(rng, 300, False), stream(rng, 300, False)
    connection = duckdb.connect()
    connection.register("l_rows", left)
    connection.register("r_rows", right)
    found = connection.execute(
        f"select l.id, b.id from l_rows l left join lateral (select r.id from r_rows r where {on} and "
        f"r.ts - l.ts between -200 and 100 order by {order}, r.id desc limit 1) b on true"
    ).fetchall()
    way = "latest" if by is None else "nearest"
    join = wm.StreamJoin(on, wm.within(200, 100), "left", pick=way, pick_by=by)
    assert answered(join, left, right) == sorted(found, key=str)


# -- the example -------------------------------------------------------------------------------------------------------


def test_the_latest_quote_of_each_trade(capsys):
    runpy.run_path(str(Path(__file__).parents[1] / "examples" / "latest_quote.py"), run_name="__main__")
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [line.partition(", ")[2] for line in lines] == [
        "187.20 / 187.24", "402.00 / 402.05", "187.31 / 187.34", "187.10 / 187.15", "no quote"
    ]  # fmt: skip


# -- errors ------------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "s": pa.string(), "d": pa.decimal128(38, 0)})
REFUSED = {
    "way": ({"pick": "last"}, r"pick must be one of latest, earliest, nearest, got 'last'; did you mean 'latest'"),
    "by alone": ({"pick": None, "pick_by": "r.k"}, "pick_by is for joins that pick one partner; give pick="),
    "by a text": ({"pick_by": "r.s"}, "pick_by must be a number, a time or a boolean, but r.s is string; cast it"),
    "by nothing": ({"pick_by": "r.none"}, "pick_by names an unknown column r.none"),
    "by no text": ({"pick_by": 3}, "pick_by must be SQL text"),
    "by too much": ({"pick_by": "r.d * l.d"}, "pick_by may be beyond what is compared exactly .*; cast it to double"),
    "last": ({"window": wm.last(3)}, r"pick needs a window over time.*got last\(3\); use within"),
    "self join": ({"self_join": True}, "pick is not for self joins; push"),
    "order": ({"order": "outer"}, "order must be 'none' with pick.*got 'outer'"),
    "gpu": ({"device": "gpu"}, "pick is not for device 'gpu' so far; use device='cpu'"),
    "route": ({"route": "hash"}, "route must be 'auto' or 'single' with pick.*got 'hash'"),
    "shared": ({"route": "shared"}, "route must be 'auto' or 'single' with pick.*got 'shared'"),
} | {how: ({"how": how}, f"how must be 'inner' or 'left'.*got '{how}'; ") for how in ("semi", "anti", "right", "full")}


@pytest.mark.parametrize("options, message", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused(options, message):
    given = {"pick": "latest", "window": wm.within(3)} | options
    if not given.get("self_join"):
        given |= {"left_schema": SCHEMA, "right_schema": SCHEMA}
    with pytest.raises((ValueError, TypeError), match=message):
        wm.StreamJoin("l.k = r.k", **given)


def test_the_default_number_of_cores_simply_works():
    table = pa.table({"ts": np.arange(1000), "k": np.arange(1000) % 7})
    with wm.StreamJoin("l.k = r.k", wm.within(100), pick="latest", output="count", cores=16) as join:
        assert join.push(table, table) + join.close() == 1000
