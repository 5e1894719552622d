"""Aggregates over the partners of each row: exact, whatever the window, the predicate and the order of arrival."""

from collections import Counter, defaultdict
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from aggregates import check_row, expect, sql
from duck import window_sql
from harness import apply, make_join
from hypothesis import given
from hypothesis import strategies as st
from oracle import Hopping
from strategies import WINDOW_KINDS, scenarios

import watersmeet as wm
from watersmeet.aggregates import core, runs

SIDES = ("left", "right")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Sizes at which runs are merged, parted, swept and gone through with a handful of rows."""
    monkeypatch.setattr(core, "SMALL", 4)
    monkeypatch.setattr(core, "FEW", 1)
    monkeypatch.setattr(runs, "LEAF", 2)
    monkeypatch.setattr(runs, "PORTION", 3)


def results(scenario, per, how, **options):
    """What each step returns, as rows."""
    options = {"per": per, "aggregate": sql(per), **options}
    changed = scenario.__class__(**{**scenario.__dict__, "how": how})
    answers = []
    with make_join(changed, **options) as join:
        for step in scenario.steps:
            answers.append(apply(join, changed, step).to_pylist())
            join.check_invariants()
    return answers


def check_final(scenario, per, how, answers, exact_steps=True):
    expected = {one.id: one for one in expect(scenario, per, how)}
    out = Counter(row["id"] for rows in answers for row in rows)
    assert out == Counter(expected.keys())
    for step, rows in enumerate(answers):
        for row in rows:
            one = expected[row["id"]]
            check_row(row, one.partners)
            if exact_steps:
                assert one.earliest <= step <= one.step, (row, one)


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_every_row_comes_out_once_when_it_is_complete(kind, data):
    scenario = data.draw(scenarios(kind=kind, how="left"))
    per, how = data.draw(st.sampled_from(SIDES)), data.draw(st.sampled_from([None, "inner"]))
    check_final(scenario, per, how, results(scenario, per, how))


@given(data=st.data())
def test_batches_that_are_collected_change_nothing(data):
    scenario = data.draw(scenarios(how="left", flush=True))
    per = data.draw(st.sampled_from(SIDES))
    answers = results(scenario, per, None, batch_rows=data.draw(st.sampled_from([2, 5, 9])))
    check_final(scenario, per, None, answers, exact_steps=False)


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_updates_tell_what_is_new_or_has_changed_with_each_push(kind, data):
    scenario = data.draw(scenarios(kind=kind, how="left"))
    per, how = data.draw(st.sampled_from(SIDES)), data.draw(st.sampled_from([None, "inner"]))
    answers = results(scenario, per, how, emit="updates")
    expected = {one.id: one for one in expect(scenario, per, how)}
    told = defaultdict(list)
    last = {}
    for step, rows in enumerate(answers):
        for row in rows:
            told[row["id"]].append(step)
            last[row["id"]] = row
    assert set(told) == set(expected)
    for id, one in expected.items():
        assert set(told[id]) == one.found | ({one.came} if how is None else set()), (one, told[id])
        check_row(last[id], one.partners)


# -- many rows, against DuckDB -----------------------------------------------------------------------------------------


def streams(n, seed):
    """Two tables with times in order, but for some; few and many keys, nulls and NaN."""
    rng = np.random.default_rng(seed)

    def table():
        ts = np.maximum.accumulate(np.sort(rng.integers(0, n, n)))
        ts = np.maximum(ts - rng.integers(0, 2, n) * rng.integers(0, 50, n), 0)
        price = np.round(rng.normal(0, 100, n), 3)
        price[rng.integers(0, n, n // 50)] = np.nan
        columns = {
            "id": np.arange(n), "ts": ts, "k": pa.array(rng.integers(0, 8, n), mask=rng.random(n) < 0.05),
            "x": rng.integers(0, n // 4, n), "y": rng.integers(0, n // 4, n), "u": rng.integers(0, n, n) / 8,
            "price": pa.array(price, mask=rng.random(n) < 0.1), "qty": rng.integers(-(2**40), 2**40, n),
            "cash": pa.array(rng.integers(-(10**9), 10**9, n)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(24, 2)),
            "day": pa.array(rng.integers(0, 9999, n).astype("int32"), pa.date32()),
            "name": pa.array([f"name {v}" for v in rng.integers(0, 5, n)]),
        }  # fmt: skip
        return pa.table(columns)

    return table(), table()


MANY = {
    "inequality": "l.x < r.x",
    "equality": "l.k = r.k",
    "equality and inequality": "l.k = r.k and l.x >= r.x",
    "band": "r.x between l.x - 20 and l.x + 20",
    "two bands": "l.x <> r.x and l.k = r.k",
    "either": "abs(l.x - r.x) >= 300",
    "box": "abs(l.x - r.x) <= 90 and abs(l.y - r.y) <= 90",
    "text": "l.name = r.name and l.x < r.x",
    "doubles": "abs(l.u - r.u) <= 4",
    "residual": "l.x < r.x and (l.y + r.y) % 7 = 3",
    "everything": "true",
    "one side": "l.x < r.x and r.y > 100 and l.k > 2",
}
WINDOWS = {
    "within": (wm.within(200, 70, lateness=60), "r.ts - l.ts between -200 and 70"),
    "all": (wm.within(10**6, lateness=60), "true"),
    "none": (wm.within(0, lateness=60), "r.ts = l.ts"),
    "tumbling": (wm.tumbling(128, lateness=60), "r.ts // 128 = l.ts // 128"),
    "hopping": (wm.hopping(90, 40, lateness=60), window_sql(Hopping(90, 40))),
}
SUMS = {
    "n": "count(*)", "np": "count(r.price)", "much": "sum(r.qty)", "money": "sum(r.cash)", "prices": "sum(r.price)",
    "mean": "avg(r.u)", "first": "min(r.day)", "last": "max(r.day)", "low": "min(r.price)", "high": "max(r.price)",
    "value": "sum(r.x * r.y)",
}  # fmt: skip


def pushed(join, left, right, rows):
    """In batches of about so many rows, the two sides cut differently, as far as time has come."""
    out = []
    for start in range(0, left.num_rows, rows):
        out.append(join.push(left=left.slice(start, rows)))
        out.append(join.push(right=right.slice(start, rows - 7)))
        out.append(join.push(right=right.slice(start + rows - 7, 7)))
    return pa.concat_tables([*out, join.close()]).sort_by("id")


def lateral(left, right, on, window):
    """DuckDB's answer."""
    connection = duckdb.connect()
    connection.register("l", left)
    connection.register("r", right)
    sums = ", ".join(f"{text} as {name}" for name, text in SUMS.items())
    found = f"select l.*, s.* from l cross join lateral (select {sums} from r where ({on}) and ({window})) s"
    return connection.execute(f"select * from ({found}) order by id").to_arrow_table()


#: Every predicate with two windows, every window with about five predicates; in small and in large batches.
CASES = [
    (on, window, (31, 900)[(i + j) % 2])
    for i, on in enumerate(MANY)
    for j, window in enumerate(WINDOWS)
    if (i + j) % 5 in (0, 3)
]


@pytest.mark.parametrize(("on", "window", "rows"), CASES)
def test_many_rows_have_the_aggregates_that_duckdb_finds(on, window, rows, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(core, "FEW", 64)
    monkeypatch.setattr(core, "SMALL", 256)
    monkeypatch.setattr(runs, "LEAF", 16)
    left, right = streams(1800, 7)
    schemas = {"left_schema": left.schema, "right_schema": right.schema}
    with wm.StreamJoin(MANY[on], WINDOWS[window][0], per="left", aggregate=SUMS, **schemas) as join:
        got = pushed(join, left, right, rows)
    late = join.metrics.late_left + join.metrics.late_right
    assert late == 0
    wanted = lateral(left, right, MANY[on], WINDOWS[window][1])
    assert got.num_rows == left.num_rows
    for name in left.column_names:
        assert name == "price" or got[name].equals(left[name]), name
    for name in SUMS:
        mine, theirs = got[name].to_pylist(), wanted[name].to_pylist()
        if got.schema.field(name).type == pa.float64():
            mine, theirs = (np.array([np.inf if v is None else v for v in some], float) for some in (mine, theirs))
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-6)
        else:
            assert [int(v) if name == "value" and v is not None else v for v in mine] == [
                int(v) if name == "value" and v is not None else v for v in theirs
            ], name


# -- types and errors --------------------------------------------------------------------------------------------------

RIGHT = pa.schema({
    "ts": pa.int64(), "i": pa.int32(), "u": pa.uint64(), "b": pa.bool_(), "f": pa.float32(), "h": pa.float16(),
    "c": pa.decimal128(10, 2), "w": pa.decimal128(38, 3), "d": pa.date32(), "e": pa.date64(), "t": pa.timestamp("ms"),
    "z": pa.timestamp("us", "UTC"), "o": pa.time32("s"), "v": pa.duration("ns"), "s": pa.string(), "q": pa.int64(),
    "x": pa.dictionary(pa.int32(), pa.int64()), "nil": pa.null(),
})  # fmt: skip


def one_row(aggregate, rights, on="true", schema=RIGHT, **options):
    left = pa.table({"ts": [0]})
    with wm.StreamJoin(on, wm.within(0), per="left", aggregate=aggregate, right_schema=schema, **options) as join:
        join.push(left, pa.Table.from_pylist(rights, schema=schema))
        return join.close()


def test_types_are_those_of_spark():
    rows = [
        {"ts": 0, "i": i, "u": i, "b": i > 0, "f": i / 2, "h": np.float16(i), "c": Decimal(i) / 4, "w": Decimal(i),
         "d": date(2026, 1, 1 + i), "e": date(2026, 1, 1 + i), "t": datetime(2026, 1, 1 + i), "q": i, "x": i,
         "z": datetime(2026, 1, 1 + i, tzinfo=UTC), "o": time(i), "v": timedelta(i), "s": "x"}
        for i in (2, 0, 5)
    ]  # fmt: skip
    rows.append(dict.fromkeys(RIGHT.names) | {"ts": 0})
    names = [name for name in RIGHT.names if name not in ("s", "ts")]
    for function, pick in (("min", 1), ("max", 2)):
        table = one_row({name: f"{function}(r.{name})" for name in names}, rows)
        for name in names:
            wanted = RIGHT.field(name).type
            assert table[name].type == (pa.int64() if name == "x" else wanted), name
            if name == "nil":
                assert table[name].to_pylist() == [None]
            else:
                source = pa.Table.from_pylist(rows, schema=RIGHT)[name]
                assert table[name].to_pylist()[0] == source.to_pylist()[pick], name
    table = one_row({name: f"sum(r.{name})" for name in "iufcwqx"} | {f"a{n}": f"avg(r.{n})" for n in "ifc"}, rows)
    assert table.schema.types[1:] == [
        pa.int64(), pa.int64(), pa.float64(), pa.decimal128(20, 2), pa.decimal128(38, 3), pa.int64(), pa.int64(),
        pa.float64(), pa.float64(), pa.decimal128(14, 6),
    ]  # fmt: skip
    assert table.to_pylist()[0] | {"af": 0, "ai": 0} == {
        "ts": 0, "i": 7, "u": 7, "f": 3.5, "c": Decimal("1.75"), "w": Decimal(7), "q": 7, "x": 7, "ai": 0, "af": 0,
        "ac": Decimal("0.583333"),
    }  # fmt: skip


def test_a_sum_is_exact_up_to_the_ends_of_its_type():
    most = 2**63 - 1
    assert one_row({"n": "sum(r.q)"}, [{"ts": 0, "q": q} for q in (most, most, -most)])["n"].to_pylist() == [most]
    least = [{"ts": 0, "q": -(2**62)}, {"ts": 0, "q": -(2**62)}]
    assert one_row({"n": "sum(r.q)"}, least)["n"].to_pylist() == [-(2**63)]
    with pytest.raises(ValueError, match="aggregate 'n', sum\\(r.q\\), is a sum that bigint does not hold; cast"):
        one_row({"n": "sum(r.q)"}, [*least, {"ts": 0, "q": -1}])
    wide = [{"ts": 0, "c": Decimal("99999999.99")}] * 3
    assert one_row({"n": "sum(r.c)"}, wide)["n"].to_pylist() == [Decimal("299999999.97")]
    assert one_row({"n": "avg(r.q)"}, [{"ts": 0, "q": most}] * 4)["n"].to_pylist() == [float(most)]


def test_values_that_int64_does_not_hold_are_refused_before_anything_changes():
    left, right = pa.schema({"ts": pa.int64()}), pa.schema({"ts": pa.int64(), "q": pa.int64()})
    options = {"left_schema": left, "right_schema": right, "per": "left", "aggregate": {"n": "sum(r.q * r.q)"}}
    with wm.StreamJoin("true", wm.within(5), **options) as join:
        join.push(right=pa.table({"ts": [0], "q": [3]}))
        with pytest.raises(ValueError, match="meets 1267650600228229401496703205376, which int64 does not hold"):
            join.push(right=pa.table({"ts": [1], "q": [2**50]}))
        join.push(left=pa.table({"ts": [1]}))
        assert join.close().to_pylist() == [{"ts": 1, "n": 9}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per": "left"}, "per='left' needs aggregate="),
        ({"aggregate": {"n": "count(*)"}}, "aggregate needs per='left'"),
        ({"emit": "final"}, "emit='final' is for aggregates"),
        ({"per": "both", "aggregate": {"n": "count(*)"}}, "per must be"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "emit": "now"}, "emit must be"),
        ({"per": "left", "aggregate": {}}, "aggregate must be names"),
        ({"per": "left", "aggregate": "count(*)"}, "aggregate must be names"),
        ({"per": "left", "aggregate": {"n": "median(r.x)"}}, "unknown function median.*known: count, sum"),
        ({"per": "left", "aggregate": {"n": "r.x"}}, "aggregate 'n' must be one function"),
        ({"per": "left", "aggregate": {"n": 5}}, "aggregate 'n' must be text"),
        ({"per": "left", "aggregate": {"n": "sum(*)"}}, "only count takes"),
        ({"per": "left", "aggregate": {"n": "count(distinct r.x)"}}, "distinct is not supported"),
        ({"per": "left", "aggregate": {"n": "sum(r.x"}}, "aggregate 'n' must be one function"),
        ({"per": "left", "aggregate": {"n": "sum(r.x +)"}}, "aggregate 'n'"),
        ({"per": "left", "aggregate": {"n": "sum(l.x)"}}, "looks at l, of which each row has one; use columns of r"),
        ({"per": "right", "aggregate": {"n": "sum(r.x)"}}, "looks at r, of which each row has one; use columns of l"),
        ({"per": "left", "aggregate": {"n": "sum(r.nope)"}}, "aggregate 'n' names an unknown column r.nope"),
        ({"per": "left", "aggregate": {"n": "sum(r.s)"}}, "adds up string; it must be a number"),
        ({"per": "left", "aggregate": {"n": "min(r.s)"}}, "compares string"),
        ({"per": "left", "aggregate": {"x": "count(*)"}}, "aggregate 'x' has the name of a column of the left"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "how": "full"}, "how must be 'left'"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "how": "right"}, "how must be 'left'"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "output": "pairs"}, "output='pairs' does not go with aggreg"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "output": "count"}, "output='count' does not go with aggreg"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "device": "gpu"}, "device='gpu' does not go with aggregate"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "route": "hash"}, "route='hash' does not go with aggregate"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "route": "shared"}, "route='shared' does not go with"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "index": "bisort"}, "index='bisort' does not go with"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "order": "outer"}, "order='outer' does not go with"),
        ({"per": "left", "aggregate": {"n": "count(*)"}, "subwindows": 3}, "subwindows=3 does not go with"),
    ],
)
def test_mistakes_are_named(options, message):
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64(), "s": pa.string()})
    with pytest.raises((ValueError, TypeError), match=message):
        wm.StreamJoin("l.x < r.x", wm.within(5), left_schema=schema, right_schema=schema, **options)


def test_explain_tells_what_is_made_and_what_not():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    given = {"left_schema": schema, "right_schema": schema, "per": "left", "aggregate": {"n": "count(*)"}}
    assert "no pairs are made" in wm.StreamJoin("l.x < r.x", wm.within(5), **given).explain()
    explained = wm.StreamJoin("l.x < r.x and (l.x + r.x) % 2 = 0", wm.within(5), emit="updates", **given).explain()
    assert "pairs are made, in portions" in explained and "emit: updates" in explained


def test_a_stream_that_shows_nothing_leaves_rows_alone():
    left = pa.table({"ts": [1, 2]})
    with wm.StreamJoin("true", wm.within(5), per="left", aggregate={"n": "count(*)"}) as join:
        assert join.push(left).num_rows == 0
        with pytest.raises(ValueError, match="give right_schema="):
            join.close()
    options = {"right_schema": pa.schema({"ts": pa.int64()}), "per": "left", "aggregate": {"n": "count(*)"}}
    with wm.StreamJoin("true", wm.within(5), **options) as join:
        join.push(left)
        assert join.close().to_pylist() == [{"ts": 1, "n": 0}, {"ts": 2, "n": 0}]


def test_memory_stays_flat_over_a_long_stream():
    with wm.StreamJoin("l.x < r.x", wm.within(500), per="left", aggregate={"n": "count(*)", "s": "sum(r.x)"}) as join:
        seen = []
        for step in range(60):
            ts = np.arange(step * 100, (step + 1) * 100)
            join.push(pa.table({"ts": ts, "x": ts % 37}), pa.table({"ts": ts, "x": ts % 41}))
            seen.append((join.metrics.stored_left, join.metrics.stored_right, len(join._core._state.runs)))
        assert max(left for left, _, _ in seen) <= 700
        assert max(right for _, right, _ in seen) <= 1400
        assert max(runs for _, _, runs in seen) <= 40
