"""Cells: every tuple goes to exactly the cores whose cells its range touches, however wide the range is.

The cells here are far narrower than the bands, so that ranges touch many of them and a tuple goes to many cores.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing import Cells
from watersmeet.routing.base import hashed
from watersmeet.routing.cells import CellSize

LEAST, GREATEST = -(2**63), 2**63 - 1
WIDTH = 4


def core_of(cell: int, cores: int) -> int:
    return int(hashed(np.array([cell], np.int64), cores)[0])


def placed(on, kind, values, cores, anchor=None, side="left", width=WIDTH):
    """Home of each row, and the further cores it goes to."""
    schema = pa.schema([("x", kind)])
    plan = compile_plan(parse(on), schema, schema)
    size = CellSize(width, pa.types.is_floating(kind))
    sizes = (size if anchor != "right" else None, size if anchor != "left" else None)
    batch = pa.record_batch({"x": pa.array(values, kind)})
    side_plan = plan.left if side == "left" else plan.right
    ticks = np.arange(len(values), dtype=np.int64)
    places = Cells(cores, sizes, anchor).places(side, side_plan.of(batch), ticks)
    away = [[] for _ in values]
    for row, core in zip(places.rows.tolist(), places.cores.tolist(), strict=True):
        away[row].append(core)
    return places.home.tolist(), away


def cores_of(value, ranges, cores):
    """The cores of all cells that ranges around a value touch; they end with int64."""
    found = set()
    for low, high in ranges:
        first, last = (min(max(value + edge, LEAST), GREATEST) // WIDTH for edge in (low, high))
        found |= {core_of(cell, cores) for cell in range(first, last + 1)}
        if last - first >= 4 * cores:  # so many that all cores are taken without a look
            found |= set(range(cores))
    return found


PREDICATES = {
    "abs(l.x - r.x) <= 1": [(-1, 1)],
    "abs(l.x - r.x) <= 9": [(-9, 9)],
    "abs(l.x - r.x) <= 30": [(-30, 30)],
    "r.x between l.x - 2 and l.x + 17": [(-2, 17)],
    "abs(l.x - r.x) <= 2 or r.x = l.x + 40": [(-2, 2), (40, 40)],
}
NUMBERS = st.one_of(
    st.integers(-20, 20), st.sampled_from([LEAST, LEAST + 3, GREATEST - 3, GREATEST, -(2**53), 2**53]), st.none()
)


@pytest.mark.parametrize("on", PREDICATES)
@pytest.mark.parametrize("cores", [2, 3, 7, 16])
@given(values=st.lists(NUMBERS, min_size=1, max_size=12))
def test_a_tuple_goes_to_the_cores_of_all_cells_that_its_range_touches(on, cores, values):
    homes, away = placed(on, pa.int64(), values, cores)
    for value, home, others in zip(values, homes, away, strict=True):
        assert len(others) == len(set(others)), "each core once"
        assert home not in others
        if value is None:
            assert others == [], "nothing matches null"
            continue
        assert home == core_of(value // WIDTH, cores)
        assert {home, *others} == {home} | cores_of(value, PREDICATES[on], cores)


@pytest.mark.parametrize("anchor, side", [("left", "right"), ("right", "left")])
@given(values=st.lists(NUMBERS, min_size=1, max_size=12), cores=st.sampled_from([2, 5, 16]))
def test_beside_an_anchor_a_tuple_is_stored_in_all_cores_of_its_range_and_in_no_other(anchor, side, values, cores):
    homes, away = placed("abs(l.x - r.x) <= 9", pa.int64(), values, cores, anchor, side)
    for value, home, others in zip(values, homes, away, strict=True):
        assert len({home, *others}) == 1 + len(others)
        if value is None:
            assert others == []
        else:
            assert {home, *others} == cores_of(value, [(-9, 9)], cores)
    at_home, copies = placed("abs(l.x - r.x) <= 9", pa.int64(), values, cores, anchor, anchor)
    assert copies == [[] for _ in values]
    assert [home for home, value in zip(at_home, values, strict=True) if value is not None] == [
        core_of(value // WIDTH, cores) for value in values if value is not None
    ]


FLOATS = st.sampled_from([0.0, -0.0, 0.3, -0.3, 7.9, 8.0, -8.1, 1e9, -1e9, 1e300, math.inf, -math.inf, math.nan, None])


@given(left=FLOATS, right=FLOATS, cores=st.sampled_from([2, 7, 16]), reach=st.sampled_from([0.5, 3.0, 25.0]))
def test_doubles_that_match_meet(left, right, cores, reach):
    """Each of two partners probes the other's home."""
    on = f"abs(l.x - r.x) <= {reach}"
    (l_home,), (l_away,) = placed(on, pa.float64(), [left], cores, side="left", width=2.0)
    (r_home,), (r_away,) = placed(on, pa.float64(), [right], cores, side="right", width=2.0)
    if left is not None and right is not None and abs(left - right) <= reach:
        assert r_home in {l_home, *l_away} and l_home in {r_home, *r_away}
    else:
        assert (left is not None or not l_away) and (right is not None or not r_away)


@settings(max_examples=5)
@given(cores=st.sampled_from([4, 16, 64]))
def test_more_copies_than_there_was_room_for_are_all_there(cores):
    """Room is made for two cores a row; all that do not fit are found in a second pass."""
    values = list(range(0, 5000, 7))
    homes, away = placed("abs(l.x - r.x) <= 60", pa.int64(), values, cores)
    assert sum(map(len, away)) > 2 * len(values)
    for value, home, others in zip(values, homes, away, strict=True):
        assert {home, *others} == {home} | cores_of(value, [(-60, 60)], cores)


POINTS = st.lists(st.tuples(NUMBERS, FLOATS), min_size=1, max_size=9)
BOX = "abs(l.x - r.x) <= 3 and abs(l.f - r.f) <= 0.5"


def placed_points(points, cores, side, anchor=None, width=2):
    """As `placed`, in two dimensions, with cells narrower than the boxes."""
    schema = pa.schema([("x", pa.int64()), ("f", pa.float64())])
    plan = compile_plan(parse(BOX), schema, schema)
    assert [each.doubles for each in plan.boxes[0].dimensions] == [False, True]
    sizes = CellSize(width, False), CellSize(width / 8, True)
    route = Cells(cores, (sizes if anchor != "right" else None, sizes if anchor != "left" else None), anchor)
    batch = pa.record_batch([pa.array([p[i] for p in points], schema.types[i]) for i in (0, 1)], schema=schema)
    plan_of = plan.left if side == "left" else plan.right
    places = route.places(side, plan_of.of(batch), np.arange(len(points), dtype=np.int64))
    cores_of_each = [[home] for home in places.home.tolist()]
    for row, core in zip(places.rows.tolist(), places.cores.tolist(), strict=True):
        cores_of_each[row].append(core)
    return cores_of_each


@pytest.mark.parametrize("anchor", [None, "left", "right"])
@given(left=POINTS, right=POINTS, cores=st.sampled_from([2, 7, 64]))
def test_points_that_match_meet(anchor, left, right, cores):
    """Each of two partners goes to the other's home; beside an anchor, the other side to that of the anchored one."""
    lefts, rights = placed_points(left, cores, "left", anchor), placed_points(right, cores, "right", anchor)
    for places in (*lefts, *rights):
        assert len(places) == len(set(places)), "each core once"
    for (x, f), mine in zip(left, lefts, strict=True):
        for (u, g), theirs in zip(right, rights, strict=True):
            if None not in (x, f, u, g) and abs(x - u) <= 3 and abs(f - g) <= 0.5:
                assert anchor == "right" or mine[0] in theirs
                assert anchor == "left" or theirs[0] in mine


def test_boxes_spread_evenly_where_one_dimension_has_few_cells():
    rng = np.random.default_rng(1)
    points = list(zip(rng.integers(20, 24, 3000).tolist(), (rng.random(3000) * 1000).tolist(), strict=True))
    places = placed_points(points, 16, "left", width=64)
    homes = np.bincount([each[0] for each in places], minlength=16)
    assert homes.min() > 0 and homes.max() < 2.5 * homes.mean()
    assert np.mean([len(each) for each in places]) < 1.4
