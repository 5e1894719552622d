"""What a predicate becomes: the kinds of its terms, what is indexed, and what is left to check."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from query import data
from query.rows import planned, truth_table
from watersmeet.query import Call, Column, Constant, compile_plan, parse

SCHEMA = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int64()), ("v", pa.int32()), ("i", pa.int32()), ("x", pa.float64()),
        ("y", pa.float64()), ("tol", pa.float64()), ("price", pa.float64()), ("symbol", pa.string()),
        ("s", pa.string()), ("ts", pa.timestamp("us")), ("d", pa.decimal128(10, 2)), ("flag", pa.bool_()),
        ("u", pa.uint64()), ("day", pa.date32()),
    ]
)  # fmt: skip

EXAMPLES = [
    # predicate, equality?, range, kinds, residual of (left probes, right probes)?
    ("l.a = r.a", True, None, ["equality"], (False, False)),
    ("l.symbol = r.symbol", True, None, ["equality"], (True, True)),
    ("l.x = r.x", True, None, ["equality"], (False, False)),
    ("l.u = r.a", True, None, ["equality"], (False, False)),
    ("l.u = r.u", True, None, ["equality"], (False, False)),
    ("l.a = r.d", True, None, ["equality"], (False, False)),
    ("l.a * l.b = r.a * r.b", True, None, ["equality"], (True, True)),
    ("l.a = r.a and l.b = r.b", True, None, ["equality", "equality"], (True, True)),
    ("(l.a, l.b) = (r.a, r.b)", True, None, ["equality", "equality"], (True, True)),
    ("l.a = r.a and l.a = r.a", True, None, ["equality"], (False, False)),
    ("l.a + r.a = 3", True, None, ["equality"], (False, False)),
    ("l.v * l.i > r.v * r.i", False, "inequality", ["inequality"], (False, False)),
    ("l.a * l.b > r.a * r.b", False, "inequality", ["inequality"], (True, True)),
    ("abs(l.a - r.a) < 5", False, "band", ["band"], (False, False)),
    ("abs(l.x - r.x) < 5", False, "band", ["band"], (True, True)),
    ("l.a between r.b - 3 and r.b + 7", False, "band", ["band"], (False, False)),
    ("l.x between r.x - 3 and r.x + 7", False, "band", ["band"], (True, False)),
    ("l.a + r.a > 3", False, "inequality", ["inequality"], (False, False)),
    ("not (l.a < r.a)", False, "inequality", ["inequality"], (False, False)),
    ("l.a - r.b between -3 and 7", False, "band", ["band"], (False, False)),
    ("l.a > r.a - 3 and l.a < r.a + 3", False, "band", ["band"], (False, False)),
    ("2 * l.a < 3 * r.a + 1", False, "inequality", ["inequality"], (False, False)),
    ("l.a <> r.a", False, "not-equal", ["not-equal"], (False, False)),
    ("l.a < r.a or l.a > r.a + 5", False, "bands", ["bands"], (False, False)),
    ("abs(l.a - r.a) >= 4", False, "bands", ["bands"], (False, False)),
    ("abs(l.a - r.a) <= 2 or abs(l.a - r.a - 100) <= 2", False, "bands", ["bands"], (False, False)),
    ("l.a in (r.a, r.a + 10)", False, "bands", ["bands"], (False, False)),
    ("l.a = r.a and l.b <> r.b", True, None, ["equality", "residual"], (True, True)),
    (
        "l.symbol = r.symbol and abs(l.price - r.price) <= 0.05",
        True,
        "band",
        ["equality", "band"],
        (True, True),
    ),
    ("l.x < r.x and l.y > r.y", False, "inequality", ["inequality", "residual"], (True, True)),
    ("l.s < r.s", False, "inequality", ["inequality"], (True, True)),
    ("l.ts >= r.ts and l.ts < r.ts + interval 5 seconds", False, "band", ["band"], (False, False)),
    ("l.day + 3 >= r.day", False, "inequality", ["inequality"], (False, False)),
    ("l.a * r.a > 5", False, None, ["residual"], (True, True)),
    ("l.a > 3 and r.b is null", False, None, ["one-sided", "one-sided"], (False, False)),
    ("l.flag", False, None, ["one-sided"], (False, False)),
    ("true", False, None, ["one-sided"], (False, False)),
    ("1 = 0", False, None, ["one-sided"], (False, False)),
    ("l.a <=> r.a", True, None, ["equality"], (True, True)),
    ("not (l.a < r.a or l.b <> r.b)", True, "inequality", ["inequality", "equality"], (False, False)),
]


@pytest.mark.parametrize("text, equality, range_, kinds, residual", EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_kinds(text, equality, range_, kinds, residual):
    plan = compile_plan(text, SCHEMA, SCHEMA)
    assert [term.kind for term in plan.terms] == kinds
    assert (plan.equality, plan.range) == (equality, range_)
    assert (plan.left.residual is not None, plan.right.residual is not None) == residual


def test_a_tolerance_of_one_side_bounds_the_other_side_twice():
    plan = compile_plan("abs(l.a - r.a) < l.b", SCHEMA, SCHEMA)
    assert plan.range == "band"
    assert plan.left.residual is None and plan.right.residual is not None


def test_plain_columns_are_keys_without_a_copy():
    values = np.arange(10)
    batch = pa.record_batch({"a": values})
    plan = compile_plan("l.a between r.a and r.a + 1", batch.schema, batch.schema)
    assert np.shares_memory(plan.left.of(batch).keys().ordered, values)
    assert np.shares_memory(plan.right.of(batch).probe().lows[0], values)


def test_bounds_stop_at_the_ends_of_int64():
    batch = pa.record_batch({"a": pa.array([data.BOTTOM, data.BOTTOM + 1, 0, data.TOP - 1, data.TOP])})
    for text in [
        "abs(l.a - r.a) <= 1",
        "l.a < r.a",
        "l.a > r.a",
        "l.a between r.a - 2 and r.a + 2",
        "l.a <> r.a",
    ]:
        plan = compile_plan(text, batch.schema, batch.schema)
        expected = truth_table(parse(text), batch, batch)
        assert (planned(plan, batch, batch, True) == expected).all(), text
        assert (planned(plan, batch, batch, False) == expected).all(), text


UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@pytest.mark.parametrize("one", UNSIGNED, ids=str)
@pytest.mark.parametrize("other", [*UNSIGNED, pa.int64()], ids=str)
def test_differences_of_unsigned_columns_are_signed(one, other):
    def edges(arrow):
        most = 2**arrow.bit_width - 1 if pa.types.is_unsigned_integer(arrow) else data.TOP
        return pa.record_batch({"a": pa.array([0, 1, 2, most - 2, most - 1, most, None], arrow)})

    left, right = edges(one), edges(other)
    for text in [
        "l.a - r.a < 2",
        "r.a - l.a < 2",
        "abs(l.a - r.a) <= 1",
        "l.a + r.a >= 255",
        "l.a = r.a - 1",
        "l.a + 2 = r.a + 1",
        "l.a <> r.a",
        "2 * l.a > 3 * r.a",
        "l.a <=> r.a - 1",
    ]:
        plan = compile_plan(text, left.schema, right.schema)
        expected = truth_table(parse(text), left, right)
        for by_left in (True, False):
            assert (planned(plan, left, right, by_left) == expected).all(), text


@pytest.mark.parametrize(
    "text",
    [
        "l.a >= r.a and l.a >= r.b",
        "l.a <= r.a and l.a <= r.b",
        "l.a > r.a and l.a > r.b and l.a > r.a - r.b",
        "l.a between r.a and r.b",
        "l.a >= r.a or l.a >= r.b",
        "l.a <> r.a and l.a <> r.b",
        "l.x >= r.x and l.x >= r.y",
        "l.s >= r.s and l.s >= r.t",
    ],
)
def test_a_bound_that_is_null_is_no_bound_and_no_match(text):
    """Of two bounds on one key each may be null, the first, the second, or both."""
    numbers = [(1, None), (None, 1), (None, None), (1, 2), (2, 1), (3, 3)]
    first, second = [a for a, _ in numbers], [b for _, b in numbers]

    def real(values):
        return [None if v is None else float(v) for v in values]

    def texts(values):
        return [None if v is None else str(v) for v in values]

    batch = pa.record_batch(
        {
            "a": first, "b": second, "x": real(first), "y": real(second), "s": texts(first), "t": texts(second),
        }
    )  # fmt: skip
    plan = compile_plan(text, batch.schema, batch.schema)
    expected = truth_table(parse(text), batch, batch)
    assert expected.any()
    for by_left in (True, False):
        assert (planned(plan, batch, batch, by_left) == expected).all()


def test_the_absolute_value_of_the_least_integer_is_exact():
    left = pa.record_batch({"a": pa.array([data.BOTTOM, data.BOTTOM + 1, -1, 0, data.TOP, None])})
    right = pa.record_batch(
        {
            "a": pa.array([data.TOP, data.BOTTOM, 0, 1], pa.int64()),
            "u": pa.array([2**63, 2**63 - 1, 2**64 - 1, 0], pa.uint64()),
        }
    )
    for text in [
        "abs(l.a) = r.u", "abs(l.a) > r.a", "abs(l.a) <= r.u", "abs(l.a - r.a) <= r.u", "abs(l.a) - 1 = r.a",
        "-l.a = r.u", "abs(l.a - r.a) >= 9223372036854775808", "l.a * -1 > r.a", "l.a div -1 = r.u", "abs(l.a) <=> r.u",
    ]:  # fmt: skip
        plan = compile_plan(text, left.schema, right.schema)
        expected = truth_table(parse(text), left, right)
        assert expected.any(), text
        for by_left in (True, False):
            assert (planned(plan, left, right, by_left) == expected).all(), text


@pytest.mark.parametrize("name", [name for name in data.COLUMNS if name != "none"])
def test_a_slice_of_any_column_is_keyed_by_its_own_rows(name):
    arrow, pool = data.COLUMNS[name]
    values = [pool[0], None, *pool, None, pool[-1], *reversed(pool)]
    whole = pa.record_batch({name: data.array(arrow, values)})
    left, right = whole.slice(len(pool) - 1), whole.slice(2, len(pool))  # all values on both sides, in other places
    for sign in ("=", "<=", "<>", "<=>"):
        text = f"l.{name} {sign} r.{name}"
        plan = compile_plan(text, whole.schema, whole.schema)
        expected = truth_table(parse(text), left, right)
        for by_left in (True, False):
            assert (planned(plan, left, right, by_left) == expected).all(), text


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_moment_has_a_day_and_a_year(unit):
    """Also those near the ends of int64, far beyond what Python or Spark call a date."""
    counts = [data.BOTTOM, data.BOTTOM + 1, -1, 0, data.TOP - 1, data.TOP]
    batch = pa.record_batch({"t": data.array(pa.timestamp(unit), counts)})
    day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    same_day = [[a // day == b // day for b in counts] for a in counts]
    for text in ["to_date(l.t) = to_date(r.t)", "datediff(l.t, r.t) = 0", "cast(l.t as date) <=> cast(r.t as date)"]:
        plan = compile_plan(text, batch.schema, batch.schema)
        for by_left in (True, False):
            assert planned(plan, batch, batch, by_left).tolist() == same_day, text
    for text in ["year(l.t) = year(r.t)", "date_trunc('year', l.t) = date_trunc('year', r.t)"]:
        plan = compile_plan(text, batch.schema, batch.schema)
        found = planned(plan, batch, batch, True)
        assert found.diagonal().all() and not found[0, -1], text


def test_a_null_key_or_a_failed_filter_is_not_live():
    left = pa.record_batch({"a": pa.array([1, None, 3, 4])})
    plan = compile_plan("l.a <= r.a and l.a < 4", left.schema, left.schema)
    assert plan.left.of(left).keys().live.tolist() == [True, False, True, False]
    assert plan.left.of(left).probe().live.tolist() == [True, False, True, False]
    assert plan.right.of(left).probe().live.tolist() == [True, False, True, True]


def test_overlapping_bands_are_made_disjoint():
    batch = pa.record_batch({"a": pa.array([5, 7]), "b": pa.array([6, 100])})
    plan = compile_plan("abs(l.a - r.a) <= 3 or abs(l.a - r.b) <= 3", batch.schema, batch.schema)
    probe = plan.right.of(batch).probe()
    ranges = [sorted((lo[i], hi[i]) for lo, hi in zip(probe.lows, probe.highs, strict=True)) for i in range(2)]
    assert ranges == [[(2, 8), (9, 9)], [(4, 10), (97, 103)]]


def test_names_are_matched_as_written_first_then_without_case():
    left = pa.schema([("Id", pa.int64()), ("ID", pa.int64()), ("only", pa.int64())])
    right = pa.schema([("key", pa.int64())])
    batch = pa.record_batch({"Id": [1], "ID": [2], "only": [3]})
    assert compile_plan("l.ID = r.KEY", left, right).left.of(batch).keys().equal.tolist() == [2]
    assert compile_plan("ONLY = key", left, right).left.of(batch).keys().equal.tolist() == [3]
    with pytest.raises(ValueError, match="several columns"):
        compile_plan("l.id = r.key", left, right)


def test_plans_from_objects_need_no_parser(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sqlglot", None)
    on = Call("<", (Call("abs", (Call("-", (Column("l", "a"), Column("r", "a"))),)), Constant(5)))
    assert compile_plan(on, SCHEMA, SCHEMA).range == "band"
    with pytest.raises(ImportError, match="sqlglot"):
        parse("l.a = r.a")


ERRORS = [
    ("l.nope = r.a", ValueError, "unknown column l.nope.*Columns of the left stream: l.a"),
    ("l.pryce = r.a", ValueError, "did you mean l.price"),
    ("a = 3", ValueError, "write l.a or r.a"),
    ("q.a = r.a", ValueError, "called l and r"),
    ("l.a = r.symbol", TypeError, "l.a .int64. and r.symbol .string.*cast.r.symbol as bigint"),
    ("l.flag = r.a", TypeError, "cast"),
    ("l.a + 1", TypeError, "must be a predicate.*integer"),
    ("l.a and r.flag", TypeError, "needs a boolean"),
    ("frobnicate(l.a) = 1", ValueError, "unknown function frobnicate.*supported: abs"),
    ("sum(l.a) > 1", ValueError, "aggregate"),
    ("l.a in (select 1)", ValueError, "subquery"),
    ("row_number() over (order by l.a) = 1", ValueError, "window function"),
    ("l.a >", ValueError, r"line 1, column 5"),
    ("l.a = = 3", ValueError, r"not valid SQL"),
    ("", ValueError, "empty"),
    ("l.a = 1; l.b = 2", ValueError, "one predicate"),
    ("l.ts > 5", TypeError, "l.ts .timestamp.us.*cast"),
    ("l.ts + 5 > r.ts", TypeError, "interval"),
    ("abs(l.symbol) > 1", TypeError, "number"),
    ("l.ts > timestamp '2024-01-01 00:00:00+00:00'", TypeError, "zone"),
    ("round(l.x, r.a) = 1", ValueError, "whole constant"),
    ("cast(l.a as array<int>) = 1", ValueError, "unknown type"),
    ("pow(l.a) = 1", ValueError, "pow"),
    ("l.d / 3 = r.d", TypeError, r"divides decimals.*cast.l.d as double"),
    ("l.a / 2.5 = r.a", TypeError, "divides decimals"),
    ("l.a / cast(r.a as decimal(5,0)) = 1", TypeError, "divides decimals"),
    ("cast(l.x as string) = r.s", TypeError, "l.x .double. to string.*before the join"),
    ("cast(l.ts as string) = r.s", TypeError, "before the join"),
    ("cast(l.day as string) = r.s", TypeError, "before the join"),
    ("cast(l.s as timestamp) = r.ts", TypeError, "before the join"),
    ("cast(l.s as float) = r.x", TypeError, "before the join"),
    ("cast(l.d as float) = r.x", TypeError, "before the join"),
    ("l.ts > r.s", TypeError, "literal as in timestamp.*before the join"),
    ("l.ts > '20240101'", TypeError, "literal as in timestamp"),
    ("l.day = date '20240101'", ValueError, "bad date literal.*date '2026-01-05'"),
    ("trim(l.s, r.s) = 'x'", ValueError, "constant string"),
    ("substring(l.s, cast(null as int)) = 'x'", ValueError, "whole constant"),
]


@pytest.mark.parametrize("text, error, message", ERRORS, ids=[e[0] for e in ERRORS])
def test_errors_name_the_part_and_the_remedy(text, error, message):
    with pytest.raises(error, match=message):
        compile_plan(text, SCHEMA, SCHEMA)


def test_a_column_of_a_nested_type_is_refused_only_where_it_is_used():
    schema = pa.schema([("a", pa.int64()), ("list", pa.list_(pa.int64()))])
    compile_plan("l.a = r.a", schema, schema)
    with pytest.raises(TypeError, match="l.list"):
        compile_plan("l.list = r.list", schema, schema)


def test_decimals_of_different_scales_are_found_by_an_ordered_key():
    schema = pa.schema({"d": pa.decimal128(10, 2), "e": pa.decimal128(12, 5)})
    for text in ("abs(l.d - r.e) <= 1.5", "l.d between r.e - 1 and r.e + 1", "l.e < r.d"):
        plan = compile_plan(text, schema, schema)
        assert plan.range in ("band", "inequality") and [term.kind for term in plan.terms] == [plan.range]


def test_two_equalities_of_which_one_compares_different_columns_need_two_indexes():
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    assert compile_plan("l.a = r.a and l.b = r.b", schema, schema).unlike is None
    for text in ("l.a = r.a and l.a = r.b", "l.a = r.b and l.b = r.b"):
        assert compile_plan(text, schema, schema).unlike == "an equality compares two different keys"
