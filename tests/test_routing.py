"""Routes: tuples that are partners meet, in the core where one of them is at home, and copies are few."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicates import PREDICATES, Predicate
from strategies import HOWS, INT64_MAX, INT64_MIN, VALUES

from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing.base import hashed
from watersmeet.routing.cells import CELL_BANDS, Cells, CellSize, cell_size, doubles
from watersmeet.routing.choose import choose_route, copies_lines

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "f": pa.float64(), "s": pa.string()})
ROWS = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=12)
ANCHORS = {"inner": None, "left": "left", "semi": "left", "anti": "left", "right": "right", "full": None}


def plan_of(sql):
    return compile_plan(parse(sql), SCHEMA, SCHEMA)


def batch_of(rows):
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def places_of(route, side, plan, rows, ticks):
    """A tuple's home, and all cores it goes to."""
    placed = route.places(side, getattr(plan, side).of(batch_of(rows)), np.array(ticks))
    assert placed.home.size == len(rows) and placed.rows.size == placed.cores.size
    assert np.all((placed.home >= 0) & (placed.home < route.cores))
    assert np.all((placed.cores >= 0) & (placed.cores < route.cores))
    goes = [set(range(route.cores)) if placed.everywhere else {int(core)} for core in placed.home]
    if placed.visits is not None:
        for row, words in enumerate(placed.visits.tolist()):
            goes[row] |= {core for core in range(route.cores) if words[core // 64] >> core % 64 & 1}
    for row, core in zip(placed.rows, placed.cores, strict=True):
        assert core not in goes[row], f"row {row} is sent to core {core} twice"
        goes[row].add(int(core))
    return placed.home.tolist(), goes


TRIPLED = Predicate(
    "l.x between 3 * r.x and 3 * r.x + 1",
    lambda left, right: None not in (left["x"], right["x"]) and 3 * right["x"] <= left["x"] <= 3 * right["x"] + 1,
    "x",
    ordered=True,
)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("wanted", ["auto", "hash", "cells", "split", "broadcast", "hot_cold", "single"])
@given(data=st.data(), lefts=ROWS, rights=ROWS, cores=st.sampled_from([1, 2, 3, 7, 64]), talk=st.booleans())
def test_partners_meet(wanted, how, data, lefts, rights, cores, talk):
    predicate = data.draw(st.sampled_from([TRIPLED, *PREDICATES]))
    plan = plan_of(predicate.sql)
    try:
        route, _ = choose_route(wanted, plan, SCHEMA, SCHEMA, how, cores, talk)
    except ValueError as error:
        assert wanted in ("hash", "cells", "split", "broadcast", "hot_cold"), error
        return
    ticks = [range(100, 100 + len(rows)) for rows in (lefts, rights)]
    left_home, left_goes = places_of(route, "left", plan, lefts, ticks[0])
    right_home, right_goes = places_of(route, "right", plan, rights, ticks[1])
    if route.anchor == "left":
        assert all(len(goes) == 1 for goes in left_goes)
    if route.anchor == "right":
        assert all(len(goes) == 1 for goes in right_goes)
    if route.name == "hash" or route.cores == 1:
        assert all(len(goes) == 1 for goes in left_goes + right_goes)
    elif (how != "inner" or route.name not in ("cells", "broadcast")) and route.name != "hot_cold":
        assert route.anchor == ANCHORS[how]
    assert not route.visits or (route.anchor is None and (how == "inner" or talk or route.cores == 1))
    for i, left in enumerate(lefts):
        for j, right in enumerate(rights):
            if predicate.holds(left, right):
                if route.anchor != "right":
                    assert left_home[i] in right_goes[j]
                if route.anchor != "left":
                    assert right_home[j] in left_goes[i]
    for side, rows, home, goes in (("left", lefts, left_home, left_goes), ("right", rights, right_home, right_goes)):
        one_by_one = [places_of(route, side, plan, rows[i : i + 1], [100 + i]) for i in range(len(rows))]
        assert [one[0][0] for one in one_by_one] == home, "a tuple's home depends on its batch"
        assert [one[1][0] for one in one_by_one] == goes, "a tuple's copies depend on its batch"


BAND = "abs(l.x - r.x) <= 5"
CHOICES = [
    # predicate, how, cores, route, anchor
    ("l.k = r.k", "inner", 4, "hash", None),
    ("l.k = r.k and abs(l.x - r.x) <= 5", "full", 4, "hash", None),
    (BAND, "inner", 4, "cells", None),
    (BAND, "left", 4, "cells", "left"),
    (BAND, "semi", 4, "cells", "left"),
    (BAND, "anti", 4, "cells", "left"),
    (BAND, "right", 4, "cells", "right"),
    (BAND, "full", 4, "single", None),
    (BAND, "inner", 1, "single", None),
    ("abs(l.f - r.f) <= 0.5", "inner", 4, "cells", None),
    ("l.x < r.x", "inner", 4, "split", None),
    ("l.x < r.x", "left", 4, "split", "left"),
    ("l.x < r.x", "right", 4, "split", "right"),
    ("l.x < r.x", "full", 4, "single", None),
    ("l.x between 3 * r.x and 3 * r.x + 1", "inner", 4, "cells", "left"),  # left tuples look for 0 or 1 keys
    ("l.x between 3 * r.x and 3 * r.x + 1", "left", 4, "cells", "left"),
    ("l.x between 3 * r.x and 3 * r.x + 1", "right", 4, "split", "right"),
    ("3 * l.x between r.x and r.x + 1", "inner", 4, "cells", "right"),
    ("3 * l.x between r.x and r.x + 1", "left", 4, "split", "left"),
    ("abs(l.x - r.x) <= r.k", "inner", 4, "split", None),
    ("abs(l.x - r.x) <= 4611686018427387904", "inner", 4, "split", None),
]


@pytest.mark.parametrize(("sql", "how", "cores", "name", "anchor"), CHOICES)
def test_the_route_that_a_predicate_takes_by_itself(sql, how, cores, name, anchor):
    route, reason = choose_route("auto", plan_of(sql), SCHEMA, SCHEMA, how, cores)
    assert (route.name, route.anchor, route.cores) == (name, anchor, 1 if name == "single" else cores)
    assert reason and reason != "as asked for"


AWAY = "  stored: the left side at home, the other wherever it may have partners"
TO_TWO = "  copies: a row goes to one core, one in 8 to two"


@pytest.mark.parametrize(
    ("wanted", "sql", "how", "lines"),
    [
        ("hash", "l.k = r.k", "left", []),
        ("single", BAND, "left", []),
        ("cells", BAND, "inner", ["  stored: at home only", TO_TWO]),
        ("cells", BAND, "left", [AWAY, TO_TWO]),
        ("split", BAND, "inner", ["  stored: at home only", "  copies: every row goes to all 4 cores"]),
        ("split", BAND, "left", [AWAY, "  copies: every right row goes to all 4 cores"]),
    ],
)
def test_explain_says_where_rows_are_stored_and_how_many_copies_there_are(wanted, sql, how, lines):
    route, _ = choose_route(wanted, plan_of(sql), SCHEMA, SCHEMA, how, 4)
    assert copies_lines(route) == lines


@pytest.mark.parametrize(
    ("wanted", "sql", "how", "says"),
    [
        ("hash", BAND, "inner", "needs an equality"),
        ("cells", "l.x < r.x", "inner", "needs a band"),
        ("cells", BAND, "full", "cannot do a full join"),
        ("broadcast", BAND, "full", "cannot do a full join"),
        ("split", BAND, "full", "cannot do a full join"),
        ("round robin", BAND, "inner", "route must be one of"),
    ],
)
def test_a_route_that_is_not_exact_is_refused(wanted, sql, how, says):
    with pytest.raises(ValueError, match=says):
        choose_route(wanted, plan_of(sql), SCHEMA, SCHEMA, how, 4)


@pytest.mark.parametrize("wanted", ["hash", "cells", "split", "broadcast", "single"])
def test_a_route_that_is_asked_for_is_taken(wanted):
    plan = plan_of("l.k = r.k and abs(l.x - r.x) <= 5" if wanted == "hash" else BAND)
    route, reason = choose_route(wanted, plan, SCHEMA, SCHEMA, "inner", 4)
    assert route.name == wanted and reason == "as asked for"


@pytest.mark.parametrize(("sql", "name"), [(BAND, "cells"), ("l.x < r.x", "split"), ("abs(l.x - r.x) <= r.k", "split")])
def test_full_joins_are_spread_where_cores_talk(sql, name):
    for wanted in ("auto", name):
        route, _ = choose_route(wanted, plan_of(sql), SCHEMA, SCHEMA, "full", 4, talk=True)
        assert (route.name, route.visits, route.cores) == (name, True, 4)
    for wanted, says in (("broadcast", "cannot do a full join"), ("cells", "needs a band")):
        with pytest.raises(ValueError, match=says):
            choose_route(wanted, plan_of("abs(l.x - r.x) <= r.k"), SCHEMA, SCHEMA, "full", 4, talk=True)


@pytest.mark.parametrize("how", [how for how in HOWS if how != "full"])
def test_broadcast_sends_one_side_everywhere_and_splits_the_other_evenly(how):
    plan = plan_of(BAND)
    route, _ = choose_route("broadcast", plan, SCHEMA, SCHEMA, how, 4)
    for side in ("left", "right"):
        home, goes = places_of(route, side, plan, rows_of(4000, 1), range(4000))
        assert all(len(each) == (1 if side == route.anchor else 4) for each in goes)
        assert all(600 < home.count(core) < 1400 for core in range(4))


def rows_of(n, seed):
    values = np.random.default_rng(seed).integers(0, 10_000, n)
    return [{"k": 0, "x": int(x), "f": float(x) / 10, "s": ""} for x in values]


@pytest.mark.parametrize("sql", [BAND, "abs(l.f - r.f) <= 0.5"])
def test_cells_send_one_copy_in_eight_and_spread_tuples_evenly(sql):
    plan = plan_of(sql)
    route, _ = choose_route("cells", plan, SCHEMA, SCHEMA, "inner", 4)
    home, goes = places_of(route, "left", plan, rows_of(4000, 1), range(4000))
    copies = sum(len(each) - 1 for each in goes)
    assert 0.6 * 4000 / CELL_BANDS < copies < 1.1 * 4000 / CELL_BANDS
    assert all(600 < np.sum(np.array(home) == core) < 1400 for core in range(4))


@pytest.mark.parametrize("keys", [[INT64_MIN, INT64_MIN + 1, -81, -80, -1, 0, 79, 80, INT64_MAX - 1, INT64_MAX]])
def test_cells_of_whole_keys_are_those_of_division(keys):
    assert CellSize(80, False).cells(np.array(keys)).tolist() == [key // 80 for key in keys]


def test_cells_of_doubles_are_monotone_and_go_to_the_ends():
    from watersmeet.query.kernels import float_keys

    values = [-np.inf, -1e308, -8.1, -8.0, -0.5, -0.0, 0.0, 5e-324, 7.9, 8.0, 1e308, np.inf, np.nan]
    keys = float_keys(pa.array(values).to_numpy(), False)
    back = doubles(keys)
    assert back[:-1].tolist() == values[:-1] and np.isnan(back[-1])
    ends = doubles(np.array([INT64_MIN, INT64_MAX]))
    assert ends[0] == -np.inf and np.isnan(ends[1])
    cells = CellSize(8.0, True).cells(keys)
    assert np.all(np.diff(cells) >= 0) and cells[-1] > cells[-2]
    assert cells[2:10].tolist() == [-2, -1, -1, 0, 0, 0, 0, 1]


def test_the_size_of_cells_is_eight_bands_and_none_where_widths_differ():
    batch = batch_of([{"k": k, "x": 10 * k, "f": float(k), "s": ""} for k in range(5)])
    size = cell_size(plan_of(BAND).left, batch, False)
    assert size == CellSize(CELL_BANDS * 11, False)
    assert cell_size(plan_of("abs(l.x - r.x) <= l.k").left, batch, False) is None
    assert cell_size(plan_of("l.x < r.x").left, batch, False) is None
    assert cell_size(plan_of("l.k = r.k").left, batch, False) is None
    assert cell_size(plan_of(BAND).left, batch.slice(0, 0), False) is None


def test_bands_around_infinities_have_no_cells_and_warn_of_nothing():
    batch = batch_of([{"k": 0, "x": 0, "f": f, "s": ""} for f in (1.0, np.inf, -np.inf)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cell_size(plan_of("l.f between r.f and r.f").left, batch, True) is None


def test_a_range_over_very_many_cells_goes_to_all_cores_once():
    plan = plan_of("abs(l.x - r.x) <= r.k")
    route = Cells(5, (CellSize(1, False), CellSize(1, False)))
    rows = [{"k": k, "x": 0, "f": 0.0, "s": ""} for k in (0, 1, 9, 10, 11, 1_000_000_000, -1)]
    home, goes = places_of(route, "right", plan, rows, range(7))
    homes_of_left = hashed(np.arange(-11, 12), 5)
    for row, width in ((0, 0), (1, 1), (2, 9), (3, 10), (4, 11)):
        assert goes[row] >= {int(core) for core in homes_of_left[11 - width : 12 + width]}
    assert goes[5] == set(range(5))
    assert goes[6] == {home[6]}, "an empty range has no partners"
