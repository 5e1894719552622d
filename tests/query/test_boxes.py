"""Bands over several keys as one: nothing is lost, nothing found twice, few looked at in vain."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query import data
from query.rows import planned, truth_table
from watersmeet.query import compile_plan, parse
from watersmeet.query.boxes import MOST_RANGES, PLACE_BITS, STEP_BITS
from watersmeet.query.types import decimal

MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
TOP, BOTTOM, NAN, INF = data.TOP, data.BOTTOM, float("nan"), float("inf")
CIRCLE = 1 << STEP_BITS  # steps after which an ordered dimension begins again
PLACES = 1 << PLACE_BITS


def same(on, left, right):
    plan = compile_plan(on, left.schema, right.schema)
    assert plan.range == "box", plan.terms
    expected = truth_table(parse(on), left, right)
    for by_left in (True, False):
        found = planned(plan, left, right, by_left)
        assert (found == expected).all(), f"{on}\n{left.to_pydict()}\n{right.to_pydict()}\n{found}\n{expected}"
    return plan, int(expected.sum())


def around(*places):
    """Whole numbers at and beside the ends of cells of 5 and 7, of the circle of steps, and of int64."""
    return sorted({min(max(place + step, BOTTOM), TOP) for place in places for step in range(-8, 9)})


INTS = around(0, -35, CIRCLE // 2, -CIRCLE // 2, 5 * PLACES, 2**53, BOTTOM, TOP)
DOUBLES = [0.0, -0.0, 0.05, 0.1, 0.15000000000000002, 0.2, -0.1, 1.0, 1.0999999999999999, 1.1, 1.2, -1.0, 1e16,
           1e16 + 2, 1e300, -1e300, 5e-324, NAN, INF, -INF, 0.1 * CIRCLE, 819.2, 819.3, -819.2]  # fmt: skip


def rows_of(**pools):
    """Batches of a few rows whose values are drawn from these pools, with nulls among them."""
    types = {name: pool[0] for name, pool in pools.items()}

    def build(rows):
        return pa.record_batch([data.array(types[name], [row[i] for row in rows]) for i, name in enumerate(types)],
                               names=list(types))  # fmt: skip

    values = [st.none() | st.sampled_from(pool[1]) for pool in pools.values()]
    return st.lists(st.tuples(*values), min_size=1, max_size=8).map(build)


TWO_INTS = rows_of(x=(pa.int64(), INTS), y=(pa.int64(), INTS))
TWO_DOUBLES = rows_of(x=(pa.float64(), DOUBLES), y=(pa.float64(), DOUBLES))


@MANY
@given(left=TWO_INTS, right=TWO_INTS)
def test_whole_numbers_at_the_ends_of_cells_of_circles_and_of_int64(left, right):
    same("abs(l.x - r.x) <= 2 and abs(l.y - r.y) <= 3", left, right)
    same("abs(l.x - r.x) <= 0 and l.y between r.y - 3 and r.y + 1", left, right)
    same("abs(l.x - r.x) <= 1000 and abs(l.y - r.y) < 1", left, right)
    same("l.x - r.y between -1 and 5 and abs(2 * l.y - r.x) <= 4", left, right)


def test_each_band_of_a_box_is_told_its_own_place():
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    plan = compile_plan("abs(l.x - r.x) < 1 and l.y >= r.y and l.y < r.y + 3", schema, schema)
    assert [term.note for term in plan.terms] == ["in cells of 1", "in order"]


@MANY
@given(left=TWO_DOUBLES, right=TWO_DOUBLES)
def test_doubles_at_the_ends_of_cells_infinities_and_nan(left, right):
    same("abs(l.x - r.x) <= 0.1 and abs(l.y - r.y) <= 0.1", left, right)
    same("abs(l.x - r.x) < 0.1 and l.y - r.y between -0.1 and 0.2", left, right)
    same("abs(r.x - l.y) <= 0.1e0 and abs(r.y - l.x) <= 1e15", left, right)


@pytest.mark.parametrize("kind", ["int", "double"])
def test_every_pair_of_nasty_values(kind):
    pool, near = (INTS, 2) if kind == "int" else (DOUBLES, 0.1)
    x = [a for a in pool for _ in range(3)]
    y = [pool[(i + step) % len(pool)] for i in range(len(pool)) for step in range(3)]
    batch = pa.record_batch({"x": pa.array(x), "y": pa.array(y)})
    plan = compile_plan(f"abs(l.x - r.x) <= {near} and abs(l.y - r.y) <= {near}", batch.schema, batch.schema)
    assert plan.range == "box"

    def within(values):
        with np.errstate(all="ignore"):
            numbers = np.array(values, object if kind == "int" else float)
            return (abs(numbers[:, None] - numbers[None, :]) <= near).astype(bool)

    expected = within(x) & within(y)
    assert expected.sum() > len(x)
    for by_left in (True, False):
        assert (planned(plan, batch, batch, by_left) == expected).all()


@MANY
@given(data_=st.data())
def test_four_dimensions_of_different_types_with_equalities(data_):
    pools = {
        "x": (pa.int64(), around(0, TOP)),
        "y": (pa.float64(), DOUBLES),
        "d": (pa.decimal128(10, 2), [Decimal(v) for v in ("0", "0.05", "0.1", "0.11", "-0.05", "99999999.99")]),
        "t": (pa.timestamp("us"), [0, 1, 10**6, 10**6 + 1, -(10**6), -(10**6) - 1, TOP, BOTTOM]),
        "s": (pa.string(), ["a", "b"]),
        "k": (pa.int32(), [0, 1]),
    }  # fmt: skip
    left, right = data_.draw(rows_of(**pools)), data_.draw(rows_of(**pools))
    dimensions = [
        "abs(l.x - r.x) <= 2", "abs(l.y - r.y) <= 0.1", "abs(l.d - r.d) <= 0.05",
        "l.t between r.t - interval 1 second and r.t + interval 1 second",
    ]  # fmt: skip
    rest = ["l.s = r.s", "l.k = r.k", "l.x <> r.k", "l.y < 1000"]
    some = data_.draw(st.permutations(dimensions))[: data_.draw(st.integers(2, 4))]
    more = data_.draw(st.lists(st.sampled_from(rest), unique=True, max_size=4))
    plan, _ = same(" and ".join(data_.draw(st.permutations(some + more))), left, right)
    assert len(plan.boxes[0].dimensions) == len(some)


@pytest.mark.parametrize("type_", [pa.decimal128(2, 2), pa.decimal128(38, 5), pa.decimal256(60, 3)], ids=str)
def test_decimals_of_any_size(type_):
    most = 10**type_.precision - 1
    pool = [0, 1, most, -most, most - 2, None]
    pairs = [(x, y) for x in pool for y in pool]

    def values(i):
        return pa.array([None if p[i] is None else decimal(p[i], type_.scale) for p in pairs], type_)

    batch = pa.record_batch([values(0), values(1)], names=["x", "y"])
    one, two = (f"{decimal(n, type_.scale):f}" for n in (1, 2))
    plan = compile_plan(f"abs(l.x - r.x) <= {two} and abs(l.y - r.y) <= {one}", batch.schema, batch.schema)
    assert plan.range == "box"
    for by_left in (True, False):
        found = planned(plan, batch, batch, by_left)
        for i, (x, y) in enumerate(pairs):
            for j, (u, v) in enumerate(pairs):
                hit = None not in (x, y, u, v) and abs(x - u) <= 2 and abs(y - v) <= 1
                assert found[i, j] == hit, (x, y, u, v)


def candidates(plan, left, right):
    """Pairs that the keys alone let through when left tuples probe."""
    keys, probe = plan.right.of(right).keys(), plan.left.of(left).probe()
    stored = np.sort(keys.ordered)
    total = 0
    for low, high in zip(probe.lows, probe.highs, strict=True):
        some = low <= high
        total += int((np.searchsorted(stored, high[some], "right") - np.searchsorted(stored, low[some])).sum())
    return total


@pytest.mark.parametrize("kind", ["int", "double"])
@pytest.mark.parametrize("dimensions, domain", [(2, 200), (3, 40), (4, 14)])
@pytest.mark.parametrize("shift", [0, 10**9, -(10**12)])
def test_few_candidates_a_result(kind, dimensions, domain, shift):
    rng = np.random.default_rng(dimensions)
    names = "xyzw"[:dimensions]
    n = 20_000

    def batch():
        if kind == "double":
            return pa.record_batch({name: rng.random(n) * domain + shift for name in names})
        return pa.record_batch({name: rng.integers(0, 100 * domain, n) + shift for name in names})

    left, right = batch(), batch()
    on = " and ".join(f"abs(l.{name} - r.{name}) <= {'1e0' if kind == 'double' else 100}" for name in names)
    plan = compile_plan(on, left.schema, right.schema)
    expected = n * n * np.prod([2 / domain] * dimensions)
    assert candidates(plan, left, right) <= 1.15 * plan.boxes[0].candidates * expected
    assert plan.boxes[0].candidates <= 1.04 * 2 ** (dimensions - 1)


def test_a_box_of_too_many_cells_looks_at_everything():
    """Widths are guessed from a few values; a tolerance that is far wider than those is found all the same."""
    width = "case when l.x > 1000 then 500 else 1 end"
    on = f"r.x between l.x - {width} and l.x + {width} and r.y between l.y - {width} and l.y + {width}"
    on = f"{on} and abs(l.x - r.x) <= 600 and abs(l.y - r.y) <= 600"
    x = np.array([0, 1, 2, 1400, 1800, 5000])
    batch = pa.record_batch({"x": x, "y": x[::-1].copy()})
    plan = compile_plan(on, batch.schema, batch.schema)
    expected = truth_table(parse(on), batch, batch)
    assert plan.range == "box" and expected.sum() > len(batch)
    for by_left in (True, False):
        assert (planned(plan, batch, batch, by_left) == expected).all()
    assert len(plan.left.of(batch).probe().lows) < MOST_RANGES


@pytest.mark.parametrize(
    "on, range_",
    [
        ("abs(l.x - r.x) <= 1 and abs(l.x + 1 - r.x) <= 1", "band"),  # one key
        ("abs(l.x - r.x) <= 1 and abs(l.y - r.y) <= l.x", "band"),  # of no fixed width
        ("abs(l.x - r.x) <= 1 and l.y <= r.y", "band"),
        ("abs(l.x - r.x) <= 1 or abs(l.y - r.y) <= 1", None),
        ("abs(l.x - r.x) <= 1 and l.y >= r.y - 2 and l.y < r.y + 2", "box"),
        ("l.s between r.s and r.s and abs(l.x - r.x) <= 1", "band"),
        ("abs(l.x - r.x) <= 1 and abs(l.y - r.y) <= 1 and l.s > r.s", "box"),
    ],
)
def test_what_makes_a_box(on, range_):
    schema = pa.schema({"x": pa.int64(), "y": pa.int64(), "s": pa.string()})
    assert compile_plan(on, schema, schema).range == range_


def test_the_dimension_in_order_is_one_with_something_to_order():
    schema = pa.schema({"x": pa.int64(), "y": pa.int64(), "t": pa.timestamp("s")})
    plan = compile_plan("abs(l.x - r.x) <= 0 and abs(l.y - r.y) <= 5 and l.t = r.t", schema, schema)
    assert plan.boxes[0].text() == "l.y in order, l.x in cells of 1"
    assert plan.unlike is None
    plan = compile_plan("abs(l.x - r.y) <= 1 and abs(l.y - r.x) <= 1", schema, schema)
    assert plan.unlike == "the dimensions of their boxes differ"


def test_timestamps_of_different_units():
    left = pa.record_batch({"t": pa.array([0, 1, 2, None], pa.timestamp("s")), "x": [1, 2, 3, 4]})
    right = pa.record_batch({"t": pa.array([0, 10**6, 1999999, 3 * 10**6], pa.timestamp("us")), "x": [1, 1, 3, 3]})
    same("l.t - r.t between interval '-1' second and interval '1' second and abs(l.x - r.x) <= 1", left, right)


def test_a_band_of_whole_numbers_may_differ_in_width_by_one():
    """Twice a number lies within 4 of another for five numbers, or for four."""
    rows = pa.record_batch({"a": [0, 1, 2, 3, 4, 5, 10, 11], "b": [0, 1, 2, 3, 3, 2, 1, 0]})
    plan, found = same("2 * l.a between r.a - 4 and r.a + 4 and abs(l.b - r.b) <= 1", rows, rows)
    assert found > 0 and {each.width for each in plan.boxes[0].dimensions} == {5, 3}
    apart = compile_plan("l.a between 3 * r.a - 9 and 5 * r.a + 9 and abs(l.b - r.b) <= 1", rows.schema, rows.schema)
    assert apart.boxes is None, "ranges that differ more have no cells"
