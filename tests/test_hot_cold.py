"""The hot/cold route: exact whatever is believed to be hot, and balanced where keys are skewed."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import test_self_join
from harness import run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Close, Last, Push, Within
from predicates import PREDICATES
from strategies import FILLER, HOWS, INDEXES, VALUES, WINDOW_KINDS, Scenario, capacities, scenarios, self_scenarios
from test_cores import ORDERS, SCHEMA, check_cores, check_order, outcome
from test_failures import NO_SHRINKING, check_with_failures
from test_routing import SCHEMA as SCHEMA_OF_ROUTES
from test_routing import batch_of, places_of, plan_of

import watersmeet as wm
from watersmeet.engine.cores import spread
from watersmeet.engine.cores.team import Team
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing import beliefs
from watersmeet.routing.beliefs import Beliefs
from watersmeet.routing.choose import choose_route

pytestmark = [pytest.mark.xdist_group("cores"), pytest.mark.usefixtures("threads")]

SOME = settings(max_examples=settings().max_examples if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 5)
CORES = (1, 2, 3, 4, 8)


# -- what is believed --------------------------------------------------------------------------------------------------


def eager(self, side):
    """What the sketch says, though it has seen next to nothing."""
    return BELIEVED(self, side)


def everything(self, side):
    return {unit: 1.0 for unit, _ in self._known[side].sketch.top()}


def nothing(self, side):
    return {}


def random(self, side):
    """Something else at each step, keys that never come among them."""
    rng = np.random.default_rng(self.rows + 7 * (side == "left") + self._known[side].sketch.total)
    units = [unit for unit, _ in self._known[side].sketch.top()] + [12345, -1]
    return {unit: float(rng.random()) + 1e-9 for unit in units if rng.random() < 0.5}


BELIEVED = Beliefs.believed
WRONG = {each.__name__: each for each in (eager, everything, nothing, random)}


@contextmanager
def believing(belief):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beliefs, "SEEN", 1)
        patch.setattr(Beliefs, "believed", WRONG[belief])
        yield


def check(belief, scenario, cores, order, output="pairs", options=None):
    with believing(belief):
        check_cores(scenario, "hot_cold", cores, order, output, options or {})


whatever_is_believed = pytest.mark.parametrize("belief", WRONG)


def serves(predicate):
    """Whether the route can."""
    plan = compile_plan(parse(predicate.sql), SCHEMA, SCHEMA)
    return plan.boxes is None and (plan.equality or plan.range is not None)


SERVED = [predicate for predicate in PREDICATES if serves(predicate)]


# -- exact -------------------------------------------------------------------------------------------------------------


@st.composite
def cases(draw, **given):
    """What is believed, a scenario, and the options of its join."""
    scenario = draw(scenarios(predicates=SERVED, **given))
    options = draw(st.sampled_from(scenario.predicate.indexes).flatmap(capacities))
    return draw(st.sampled_from(sorted(WRONG))), scenario, options, draw(st.sampled_from(ORDERS))


@pytest.mark.parametrize("how", HOWS)
@given(case=cases(), cores=st.sampled_from(CORES), output=st.sampled_from(["rows", "pairs"]))
def test_every_join_type_whatever_is_believed(how, case, cores, output):
    belief, scenario, options, order = case
    check(belief, replace(scenario, how=how), cores, order, output, options)


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data(), cores=st.sampled_from(CORES))
def test_every_window_whatever_is_believed(kind, data, cores):
    belief, scenario, options, order = data.draw(cases(kind=kind))
    check(belief, scenario, cores, order, options=options)


@pytest.mark.long
@whatever_is_believed
@pytest.mark.parametrize("cores", [*range(1, 9), 70])
@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_every_join_type_and_number_of_cores(belief, how, cores, data):
    _, scenario, options, order = data.draw(cases(how=how))
    check(belief, scenario, cores, order, options=options)


@pytest.mark.long
@whatever_is_believed
@pytest.mark.parametrize("index", INDEXES)
@given(data=st.data())
def test_every_index_whatever_is_believed(belief, index, data):
    scenario = data.draw(scenarios(predicates=[each for each in SERVED if index in each.indexes]))
    check(belief, scenario, data.draw(st.sampled_from(CORES)), "none", options=data.draw(capacities(index)))


def changing(sql, how, window, seed, late=0):
    """Many tuples find many partners; which keys are frequent changes every two pushes."""
    rng = np.random.default_rng(seed)
    (predicate,) = (one for one in PREDICATES if one.sql == sql)
    steps, ends = [], {"left": 0, "right": 0}

    def made(side, n, hot):
        values = np.where(rng.random((n, 2)) < 0.7, hot, rng.integers(0, 9, (n, 2))).tolist()
        rows = [FILLER | {"id": ends[side] + i, "ts": max(ends[side] + i - int(rng.integers(0, late + 1)), 0),
                          "note": "", "k": k, "x": x} for i, (k, x) in enumerate(values)]  # fmt: skip
        ends[side] += n
        return rows

    for number in range(14):
        hot = 11 * (number // 2 % 4)
        left, right = [(5, 9), (9, 0), (0, 9), (8, 8), (1, 7), (12, 6), (6, 6)][number % 7]
        steps.append(Push(made("left", left, hot) if left else None, made("right", right, hot) if right else None))
    return Scenario(predicate, window, how, [*steps, Close()])


CHANGING = ["l.k = r.k", "abs(l.x - r.x) < 2", "l.x < r.x"]


def check_changing(belief, how, sql, cores):
    windows = [(Last(12, 9), 0), (Within(9, 5, lateness=(3, 3)), 3), (Within(300, 300), 0)]
    for seed, (window, late) in enumerate(windows):
        for number, order in zip(cores, ("none", "inner", wm.punctuate(4)), strict=False):
            check(belief, changing(sql, how, window, seed, late), number, order)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("sql", "belief"), [*zip(CHANGING, ("eager", "random", "everything"), strict=True)])
def test_hot_keys_that_change_every_few_pushes(how, sql, belief):
    check_changing(belief, how, sql, [3, 2])


@pytest.mark.long
@whatever_is_believed
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("sql", CHANGING)
def test_hot_keys_that_change_on_more_cores(belief, how, sql):
    check_changing(belief, how, sql, [2, 8, 5])
    check_changing(belief, how, sql, [4, 3, 7])


@pytest.mark.parametrize("how", HOWS)
@SOME
@given(data=st.data(), belief=st.sampled_from(sorted(WRONG)))
def test_self_joins_whatever_is_believed(belief, how, data):
    scenario = replace(data.draw(self_scenarios(how=how, predicates=SERVED)), learn=False)
    order, cores = data.draw(st.sampled_from(ORDERS)), data.draw(st.sampled_from(CORES))
    options = {"output": data.draw(st.sampled_from(["rows", "pairs"])), "order": order}
    completed = test_self_join.answer(replace(scenario, how="inner")).by_step()
    with (
        believing(belief),
        test_self_join.make_join(scenario, False, cores=cores, route="hot_cold", **options) as join,
        test_self_join.make_join(scenario, False, cores=1, **options) as alone,
    ):
        for number, step in enumerate(scenario.steps):
            found = [test_self_join.apply(each, scenario, step, False) for each in (join, alone)]
            pairs = [outcome(scenario, options["output"], each) for each in found]
            check_order(scenario, order, number, *pairs, completed)


@given(data=st.data(), belief=st.sampled_from(sorted(WRONG)))
def test_counts_and_batch_mode(belief, data):
    scenario = data.draw(scenarios(flush=True, predicates=SERVED))
    many = {"cores": data.draw(st.sampled_from(CORES)), "route": "hot_cold"}
    expected = run(scenario, "pairs", cores=1)
    with believing(belief):
        assert run(scenario, "count", **many) == [step.total() for step in expected]


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=5, phases=NO_SHRINKING)
@given(data=st.data(), belief=st.sampled_from(["eager", "random"]))
def test_a_step_that_fails_leaves_no_trace(belief, how, data):
    scenario = data.draw(scenarios(how=how, predicates=SERVED))
    options = {"cores": 2, "route": "hot_cold", "order": data.draw(st.sampled_from(ORDERS))}
    with believing(belief):
        check_with_failures(scenario, options, data.draw)


# -- where tuples go ---------------------------------------------------------------------------------------------------

BAND = "abs(l.x - r.x) <= 5"
ROWS = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=12)


def guided(route, plan, belief, batches):
    """The route when these batches have been looked at, one after the other."""
    with believing(belief):
        known = Beliefs(route, plan)
        for number, (lefts, rights) in enumerate(batches):
            route = route.guided(known.look({"left": (batch_of(lefts), number), "right": (batch_of(rights), number)}))
            yield route


@whatever_is_believed
@given(data=st.data(), batches=st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=4), cores=st.sampled_from([2, 70]))
def test_partners_visit_where_tuples_have_been_stored(belief, data, batches, cores):
    """Also where the two were routed by other beliefs: the later one knows what was written down for the earlier."""
    predicate = data.draw(st.sampled_from(SERVED))
    plan = plan_of(predicate.sql)
    route, _ = choose_route("hot_cold", plan, SCHEMA_OF_ROUTES, SCHEMA_OF_ROUTES, "inner", cores, talk=True)
    stored = {"left": [], "right": []}
    for number, (now, rows) in enumerate(zip(guided(route, plan, belief, batches), batches, strict=True)):
        for side, mine in zip(("left", "right"), rows, strict=True):
            home, goes = places_of(now, side, plan, mine, range(100 * number, 100 * number + len(mine)))
            for row, to in zip(mine, goes, strict=True):
                for partner, where in stored["right" if side == "left" else "left"]:
                    pair = (row, partner) if side == "left" else (partner, row)
                    assert not predicate.holds(*pair) or where in to
            stored[side] += zip(mine, home, strict=True)


@pytest.mark.parametrize(
    ("sql", "home"), [("l.k = r.k", "key"), (BAND, "cell"), ("l.x < r.x", "anywhere"), ("l.x <> r.x", "anywhere"),
                      ("l.x between 3 * r.x and 3 * r.x + 1", "anywhere"), ("l.k = r.k and l.x < r.x", "key")],
)  # fmt: skip
def test_the_home_of_a_predicate(sql, home):
    for how in HOWS:
        route, why = choose_route("hot_cold", plan_of(sql), SCHEMA_OF_ROUTES, SCHEMA_OF_ROUTES, how, 4, talk=True)
        assert (route.name, route.home, why) == ("hot_cold", home, "as asked for")


def test_what_it_cannot_do_is_refused():
    for talk in (True, False):
        with pytest.raises(ValueError, match="needs keys that may be hot"):
            choose_route("hot_cold", plan_of("true"), SCHEMA_OF_ROUTES, SCHEMA_OF_ROUTES, "inner", 4, talk)


# -- balance -----------------------------------------------------------------------------------------------------------

ON = {"key": "l.k = r.k", "cell": "abs(l.k - r.k) <= 2", "anywhere": "l.k < r.k"}
N = 4_000


def streams(exponent, pushes, changes=None, cells=False):
    """Batches of both sides with skewed keys; the frequent ones are others every so many batches."""
    shares = np.cumsum(np.arange(1, 100_001) ** -float(exponent))
    for number in range(pushes):
        names = np.random.default_rng(number // changes if changes else 0).permutation(100_000)
        batches = []
        for side in range(2):
            draws = np.random.default_rng([number, side]).random(N) * shares[-1]
            keys = names[np.searchsorted(shares, draws)] * (1000 if cells else 1)
            batches.append(pa.table({"ts": np.arange(number * N, (number + 1) * N), "k": keys}))
        yield batches


def pushed(home, route, cores=8, exponent=1.5, pushes=8, **options):
    """The metrics of a join of skewed streams, and what it says of itself."""
    window = wm.within(10**9)  # nothing expires: that happens subwindow by subwindow, and not in all cores at once
    with wm.StreamJoin(ON[home], window, output="count", cores=cores, route=route, **options) as join:
        for left, right in streams(exponent, pushes, cells=home == "cell"):
            join.push(left, right)
        return join.metrics, join.explain()


def busiest(loads):
    """The greatest load, to the average."""
    return max(loads) / np.mean(loads)


@pytest.mark.parametrize("home", ON)
def test_skewed_keys_burden_all_cores_alike(home):
    metrics, text = pushed(home, "hot_cold")
    assert len(metrics.loads) == len(metrics.probes) == 8
    assert busiest(metrics.loads) <= 1.2 and busiest(metrics.probes) <= 1.2
    assert 0.5 < metrics.hot_share < 0.95 and 4 <= len(metrics.hot) <= 40
    what = "cell" if home == "cell" else "key"
    assert f"route: hot_cold\n  because as asked for\n  stored: a row of a hot {what} in one of several cores" in text
    assert "\n  hot now: " in text and f"{metrics.hot_share:.0%} of the rows so far were" in text
    first, share = next(iter(metrics.hot.items()))
    assert f"\n    {first}: {share:.1%}" in text and 0.15 < share < 0.23  # 38% of a side
    assert first.startswith(("left k = ", "right k = "))


def test_hash_burdens_one_core_with_a_hot_key():
    metrics, _ = pushed("key", "hash")
    assert busiest(metrics.loads) > 3 and busiest(metrics.probes) > 3 and metrics.hot == {}


@pytest.mark.parametrize("cores", [2, 3, 8])
@pytest.mark.parametrize("exponent", [1.2, 2.0])
def test_other_skews_and_numbers_of_cores(cores, exponent):
    metrics, _ = pushed("key", "hot_cold", cores, exponent, pushes=5)
    assert busiest(metrics.loads) <= 1.25 and busiest(metrics.probes) <= 1.25


def test_keys_that_are_not_skewed_go_as_by_hash():
    metrics, text = pushed("key", "hot_cold", exponent=0.0, pushes=4)
    assert metrics.hot == {} and metrics.hot_share == 0.0 and "hot now: 0" in text
    assert sum(metrics.probes) == 2 * 4 * N  # each row looks in one core


def test_nulls_burden_no_core():
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64()})
    batch = pa.table({"ts": np.arange(N), "k": pa.nulls(N, pa.int64())}, schema=schema)
    options = {"left_schema": schema, "right_schema": schema, "cores": 8}
    with wm.StreamJoin("l.k = r.k", wm.within(N), "left", route="hot_cold", **options) as join:
        join.push(batch, batch)
        assert busiest(join.metrics.loads) < 1.1 and sum(join.metrics.probes) == 2 * N
        assert join.close().num_rows == N


def test_what_has_been_spread_is_forgotten_when_it_expires():
    with wm.StreamJoin(ON["key"], wm.within(2 * N), output="count", cores=4, route="hot_cold") as join:
        sizes = []
        for left, right in streams(1.2, 40, changes=5):
            join.push(left, right)
            sizes.append(sum(len(known.ledger) for known in join._core._beliefs._known.values()))
    assert sizes[3] >= 8 and max(sizes[20:]) <= 4 * sizes[3], sizes


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("home", ON)
def test_large_batches(home, how, monkeypatch):
    """In processes of their own."""
    monkeypatch.undo()
    rows = 300 if home == "anywhere" else 1_000
    options = {"order": "inner", "output": "pairs"}
    with (
        wm.StreamJoin(ON[home], wm.within(2 * rows), how, cores=3, route="hot_cold", **options) as join,
        wm.StreamJoin(ON[home], wm.within(2 * rows), how, cores=1, **options) as alone,
    ):
        for number, (left, right) in enumerate(streams(1.2, 6, changes=2, cells=home == "cell")):
            moments = pa.array(np.arange(number * rows, (number + 1) * rows))
            batches = [one.slice(0, rows).set_column(0, "ts", moments) for one in (left, right)]
            assert join.push(*batches) == alone.push(*batches)
        assert join.metrics.hot and join.metrics.hot_share > 0.1
        assert join.close() == alone.close()


# -- by itself ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("home", "how", "exponent", "route"),
    [("key", "inner", 1.5, "hot_cold"), ("cell", "inner", 1.5, "hot_cold"), ("key", "inner", 0.0, "hash"),
     ("cell", "inner", 0.0, "cells"), ("key", "left", 1.5, "hash")],
)  # fmt: skip
def test_a_join_spreads_hot_keys_by_itself_where_keys_are_skewed(home, how, exponent, route, monkeypatch):
    monkeypatch.setattr(spread, "LARGE", N)
    monkeypatch.setattr(spread, "ENOUGH", 3 * N)
    monkeypatch.setattr(Team, "ready", lambda self: self._settle() is not None)
    options = {"window": wm.within(N), "how": how, "output": "count"}
    with wm.StreamJoin(ON[home], cores=8, **options) as join, wm.StreamJoin(ON[home], cores=1, **options) as alone:
        for number, batches in enumerate(streams(exponent, 5, cells=home == "cell")):
            assert join.push(*batches) == alone.push(*batches)
            assert isinstance(join._core, Team) == (number > 0)
        text = join.explain()
        assert f"route: {route}\n" in text
        usual = {"key": "hash", "cell": "cells"}[home]
        assert (f"because by '{usual}' the busiest core would get " in text) == (route == "hot_cold")
        assert bool(join.metrics.hot) == (route == "hot_cold")
        assert join.close() == alone.close()
