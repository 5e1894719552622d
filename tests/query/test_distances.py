"""distance and haversine: their values, and that the boxes around them lose nothing."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from query.rows import planned
from watersmeet.query import compile_plan
from watersmeet.query.distances import EARTH_METRES

NAN, INF = float("nan"), float("inf")
NASTY = [0.0, -0.0, 3.0, 4.0, 1e-170, 1e-320, 5e-324, 1e200, -1e200, 1.7e308, INF, -INF, NAN, None, 0.1]


def length(*gaps):
    """math.hypot, but NaN where any gap is."""
    return NAN if any(math.isnan(gap) for gap in gaps) else math.hypot(*gaps)


@pytest.mark.parametrize("limit", ["0", "5", "5e-324", "1e-170", "1e200", "0.2e0", "cast('Infinity' as double)"])
@pytest.mark.parametrize("sign", ["<=", "<", ">="])
def test_distances_of_nasty_numbers(limit, sign):
    pairs = [(a, b) for a in NASTY for b in NASTY]
    batch = pa.record_batch([pa.array([p[i] for p in pairs], pa.float64()) for i in (0, 1)], names=["x", "y"])
    on = f"distance(l.x, l.y, r.x, r.y) {sign} {limit}"
    plan = compile_plan(on, batch.schema, batch.schema)
    every = compile_plan(f"({on}) or false", batch.schema, batch.schema, ordered=False)  # pair by pair
    expected = planned(every, batch, batch, True)
    for by_left in (True, False):
        assert (planned(plan, batch, batch, by_left) == expected).all()
    bound = {"cast('Infinity' as double)": INF}.get(limit) or float(limit)
    for i in range(0, len(pairs), 7):  # every seventh, as this is slow
        for j in range(len(pairs)):
            if None in pairs[i] + pairs[j]:
                assert not expected[i, j]
                continue
            value = length(pairs[i][0] - pairs[j][0], pairs[i][1] - pairs[j][1])
            if value == bound or abs(value - bound) > 1e-15 * bound:
                hit = {"<=": value <= bound, "<": value < bound, ">=": value >= bound or math.isnan(value)}[sign]
                assert expected[i, j] == hit, (pairs[i], pairs[j], value)


@pytest.mark.parametrize(
    "on, range_",
    [
        ("distance(l.x, l.y, r.x, r.y) <= 5", "box"),
        ("5 > distance(l.x, l.y, r.x, r.y)", "box"),
        ("not (distance(l.x, l.y, r.x, r.y) > 5)", "box"),
        ("distance(l.x, l.y, r.x, r.y) between 1 and 5", "box"),
        ("distance(l.x, l.y, l.k, r.x, r.y, r.k) <= 5", "box"),
        ("haversine(l.x, l.y, r.x, r.y) < 100", "box"),
        ("haversine(l.x, l.y, r.x, r.y) < 100 and l.k = r.k", "box"),
        ("distance(l.x, l.y, r.x, r.y) <= l.k", "band"),  # of no fixed width, but confined all the same
        ("distance(l.x, l.y, r.x, r.y) >= 5", None),
        ("distance(l.x, r.x, l.y, r.y) <= 5", None),  # points of both sides
        ("distance(l.x, l.y, r.x, r.y) <= 5 or l.k = r.k", None),
    ],
)
def test_what_makes_a_box(on, range_):
    schema = pa.schema({"x": pa.float64(), "y": pa.float32(), "k": pa.int64()})
    plan = compile_plan(on, schema, schema)
    assert plan.range == range_
    if range_ is not None:
        assert [term.kind for term in plan.terms][0] == "distance"


def metres(a, b):
    """By the angle between two vectors, which has no trouble with small angles, large ones, poles or longitudes."""

    def vector(lat, lon):
        lat, lon = math.radians(lat), math.radians(lon)
        return np.array([math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)])

    u, v = vector(*a), vector(*b)
    return EARTH_METRES * math.atan2(np.linalg.norm(np.cross(u, v)), u @ v)


LATS = [0.0, 1e-9, 45.0, 89.9999, 90.0, -90.0, -89.9999, 90.00001, NAN, None]
LONS = [0.0, 1e-9, 90.0, 179.9999, 180.0, -180.0, -179.9999, 360.0, -360.0, 0.0001, 360.1, INF, None]


@pytest.mark.parametrize("limit", [0, 0.001, 1, 30, 1000, 10_000_000, 20_015_100, 30_000_000])
def test_poles_and_the_antimeridian(limit):
    points = [(lat, lon) for lat in LATS for lon in LONS]
    batch = pa.record_batch([pa.array([p[i] for p in points], pa.float64()) for i in (0, 1)], names=["lat", "lon"])
    plan = compile_plan(f"haversine(l.lat, l.lon, r.lat, r.lon) <= {limit}", batch.schema, batch.schema)
    assert plan.range == "box"
    there = [None not in p and abs(p[0]) <= 90 and abs(p[1]) <= 360 for p in points]
    found = [planned(plan, batch, batch, by_left) for by_left in (True, False)]
    assert (found[0] == found[1]).all()
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            if not (there[i] and there[j]):
                assert not found[0][i, j], (a, b)
            else:
                exact = metres(a, b)
                if abs(exact - limit) > 1e-6 + 1e-8 * exact or (i == j and limit):
                    assert found[0][i, j] == (exact <= limit), (a, b, exact)


def test_points_all_over_the_earth():
    rng = np.random.default_rng(7)
    n = 900

    def some():
        everywhere, poles = np.degrees(np.arcsin(rng.uniform(-1, 1, n))), rng.choice([90, -90, 89.9, -89.95], n // 3)
        lat = np.concatenate([everywhere, poles])
        lon = np.concatenate([rng.uniform(-180, 180, n), rng.choice([180, -180, 179.9, -179.95, 0], n // 3)])
        return pa.table({"lat": lat, "lon": lon, "k": rng.integers(0, 2, len(lat))})

    left, right = some(), some()
    lat1, lon1 = (np.radians(left[name].to_numpy())[:, None] for name in ("lat", "lon"))
    lat2, lon2 = (np.radians(right[name].to_numpy())[None] for name in ("lat", "lon"))
    square = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    far = 2 * EARTH_METRES * np.arcsin(np.sqrt(np.minimum(square, 1)))
    same = left["k"].to_numpy()[:, None] == right["k"].to_numpy()[None]
    for limit in (150_000.5, 3_000_000.5):
        for rest, expected in (("", far <= limit), (" and l.k = r.k", (far <= limit) & same)):
            on = f"haversine(l.lat, l.lon, r.lat, r.lon) <= {limit}{rest}"
            with wm.StreamJoin(on, wm.last(10_000), output="pairs") as join:
                pairs = join.push(left=left, right=right)
            found = np.zeros(far.shape, int)
            np.add.at(found, (pairs["left"].to_numpy(), pairs["right"].to_numpy()), 1)
            assert (found == expected).all()
            assert expected.any()


def test_coordinates_must_come_in_pairs():
    schema = pa.schema({"x": pa.float64()})
    with pytest.raises(ValueError, match="coordinates of one point, then as many of the other"):
        compile_plan("distance(l.x, l.x, l.x, r.x, r.x) < 1", schema, schema)
    with pytest.raises(ValueError, match="takes 4"):
        compile_plan("haversine(l.x, r.x) < 1", schema, schema)
