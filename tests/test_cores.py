"""One join on several cores: the same results at any number, on any route, in any order.

Cores are threads here; `test_core_processes.py` has what only processes can show.
"""

import functools
import os
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import test_self_join
from harness import (
    VALUE_COLUMNS,
    answer,
    apply,
    check_batched,
    check_books,
    check_rows,
    check_timing,
    make_join,
    positions,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from large import batches, join_of
from oracle import Close, Last, Push
from predicates import PREDICATES, servable_by
from strategies import FILLER, HOWS, INDEXES, WINDOW_KINDS, Scenario, capacities, scenarios, self_scenarios
from test_order import arrived, rank

import watersmeet as wm
from watersmeet.engine.cores.collect import Collector, Layout, merge
from watersmeet.engine.cores.team import Team
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing.choose import choose_route
from watersmeet.workers import ALONE

#: Fewer examples than elsewhere, but of many tests.
SOME = settings(max_examples=settings().max_examples if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 5)
CORES = (2, 3, 4, 8)
ROUTES = ("hash", "cells", "split", "broadcast")
ORDERS = ("none", "outer", "inner", wm.punctuate(3))
SCHEMA = pa.schema(VALUE_COLUMNS)


@functools.cache
def possible(predicate, how):
    """The routes that a join may ask for."""
    found = []
    for route in ROUTES:
        try:
            choose_route(route, compile_plan(parse(predicate.sql), SCHEMA, SCHEMA), SCHEMA, SCHEMA, how, 4, talk=True)
            found.append(route)
        except ValueError:
            pass
    return found


def on(route, how):
    """The predicates that this route can serve."""
    return [predicate for predicate in PREDICATES if route in possible(predicate, how)]


def structures(predicate, route):
    """Options for an index that serves it. Cells need one that has the order of the band, too."""
    if route == "cells" and predicate.equality:
        return capacities("bisort")
    return st.sampled_from(predicate.indexes).flatmap(capacities)


def outcome(scenario, output, table):
    """Results as (left, right) positions, in their order."""
    one_sided = scenario.how in ("semi", "anti")
    if output == "rows":
        table = table.select(["id"] if one_sided else ["id", "id_right"])
    columns = [column.to_pylist() for column in table.columns]
    return [(row[0], None if one_sided else row[1]) for row in zip(*columns, strict=True)]


def completions(scenario, number, pairs, completed):
    """Which tuple completed each of these results of a step; of those that come out alone, who they are."""
    now = arrived(scenario.steps, number)
    if scenario.how == "semi":
        return [min(rank(pair, now)[:2] for pair in completed[number] if pair[0] == left) for left, _ in pairs]
    return [rank(pair, now)[:2] for pair in pairs]


def check_order(scenario, order, number, found, expected, completed):
    """The results of a step on several cores, against those of one core."""
    assert sorted(found, key=str) == sorted(expected, key=str)
    if order == "inner":
        assert found == expected
    elif order != "none":
        both = [completions(scenario, number, pairs, completed) for pairs in (found, expected)]
        if order != "outer":
            both = [[(phase, position // order.every) for phase, position in one] for one in both]
        assert both[0] == both[1] == sorted(both[0])


def check_cores(scenario, route, cores, order, output, options):
    """Every result of every step: that it is the oracle's, and in the order in which one core would give it."""
    scenario = replace(scenario, learn=False)
    options |= {"order": order, "output": output}
    completed = answer(replace(scenario, how="inner")).by_step()
    returned = []
    with (
        make_join(scenario, cores=cores, route=route, **options) as join,
        make_join(scenario, cores=1, **options) as alone,
    ):
        for number, step in enumerate(scenario.steps):
            table = apply(join, scenario, step)
            table.validate(full=True)
            if output == "rows":
                check_rows(scenario, table)
            pairs = [outcome(scenario, output, each) for each in (table, apply(alone, scenario, step))]
            check_order(scenario, order, number, *pairs, completed)
            returned.append(Counter(pairs[0]))
            join.check_invariants()
        assert isinstance(join._core, Team) == (cores > 1)
        check_books(join, scenario, returned)
    check_timing(answer(scenario), returned)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("route", ROUTES)
@SOME
@given(data=st.data())
def test_every_route_and_join_type_in_any_order(route, how, data):
    if not on(route, how):
        assert (route, how) == ("broadcast", "full")
        return
    scenario = data.draw(scenarios(how=how, predicates=on(route, how)))
    options = data.draw(structures(scenario.predicate, route))
    order, output = data.draw(st.sampled_from(ORDERS)), data.draw(st.sampled_from(["rows", "pairs"]))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, output, options)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@SOME
@given(data=st.data())
def test_every_window_in_every_order(kind, order, data):
    scenario = data.draw(scenarios(kind=kind))
    route = data.draw(st.sampled_from(possible(scenario.predicate, scenario.how)))
    output = data.draw(st.sampled_from(["rows", "pairs"]))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, output, {})


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("index", INDEXES)
@SOME
@given(data=st.data())
def test_every_index(index, data):
    scenario = data.draw(scenarios(predicates=servable_by(index)))
    routes = possible(scenario.predicate, scenario.how)
    route = data.draw(st.sampled_from(routes if "hash" not in routes else ["hash", "split"]))
    order = data.draw(st.sampled_from(ORDERS))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, "pairs", data.draw(capacities(index)))


def dense(sql, how, seed):
    """Steps in which many tuples find partners, some of them in the same push."""
    rng = np.random.default_rng(seed)
    (predicate,) = (one for one in PREDICATES if one.sql == sql)
    steps, ends = [], {"left": 0, "right": 0}

    def made(side, n):
        rows = [FILLER | {"id": ends[side] + i, "ts": ends[side] + i, "note": "", "k": k, "x": x}
                for i, (k, x) in enumerate(rng.integers(0, 9, (n, 2)).tolist())]  # fmt: skip
        ends[side] += n
        return rows

    for left, right in ((5, 9), (9, 0), (0, 9), (8, 8), (1, 7), (12, 6)):
        steps.append(Push(made("left", left) if left else None, made("right", right) if right else None))
    return Scenario(predicate, Last(12, 9), how, [*steps, Close()])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("order", [*ORDERS[1:], wm.punctuate(100)], ids=str)
@pytest.mark.parametrize("how", HOWS)
def test_many_partners(how, order):
    for seed, (sql, route) in enumerate(
        [("l.k = r.k", "hash"), ("abs(l.x - r.x) < 2", "cells"), ("l.x < r.x", "split"), ("l.x < r.x", "broadcast")]
    ):
        scenario = dense(sql, how, seed)
        if route in possible(scenario.predicate, how):
            check_cores(scenario, route, 3, order, "pairs", {})


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("route", ["cells", "split"])
def test_batches_longer_than_windows(route):
    """They are taken in slices, each stored in another subwindow before it is known who has met whom."""
    options = {"order": "inner", "window": wm.within(500), "subwindows": 2}
    with (
        join_of("cells", cores=2, route=route, **options) as join,
        join_of("cells", cores=1, route="single", **options) as alone,
    ):
        for number in range(2):
            assert join.push(*batches(number)) == alone.push(*batches(number))
            join.check_invariants()
        assert join.close() == alone.close()


@pytest.mark.long
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("cores", [1, *CORES])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("route", ROUTES)
@given(data=st.data())
def test_every_route_join_type_order_and_number_of_cores(route, how, order, cores, data):
    if on(route, how):
        scenario = data.draw(scenarios(how=how, predicates=on(route, how)))
        options = data.draw(structures(scenario.predicate, route))
        check_cores(scenario, route, cores, order, data.draw(st.sampled_from(["rows", "pairs"])), options)


@pytest.mark.usefixtures("threads")
@given(data=st.data())
def test_counts_and_batch_mode(data):
    scenario = data.draw(scenarios(flush=True))
    route = data.draw(st.sampled_from(possible(scenario.predicate, scenario.how)))
    options = data.draw(structures(scenario.predicate, route))
    many = {"cores": data.draw(st.sampled_from(CORES)), "route": route}
    expected = run(scenario, "pairs", cores=1, **options)
    order = data.draw(st.sampled_from(ORDERS))  # counts have none
    assert run(scenario, "count", order=order, **many, **options) == [step.total() for step in expected]
    options |= {"batch_rows": data.draw(st.sampled_from([2, 5, 9])), "output": "pairs", "order": "inner"}
    returned = []
    with make_join(scenario, **many, **options) as join, make_join(scenario, cores=1, **options) as alone:
        for step in scenario.steps:
            table = apply(join, scenario, step)
            assert table == apply(alone, scenario, step)
            returned.append(positions(scenario, "pairs", table))
    check_batched(answer(scenario), scenario, returned)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("how", HOWS)
@SOME
@given(data=st.data())
def test_self_joins(how, data):
    """Whose two roles may look at different columns, and have different windows."""
    scenario = replace(data.draw(self_scenarios(how=how)), learn=False)
    route = data.draw(st.sampled_from(possible(scenario.predicate, how)))
    options = data.draw(structures(scenario.predicate, route))
    options |= {"batch_rows": data.draw(st.sampled_from([None, 5]))}
    options |= {"output": data.draw(st.sampled_from(["rows", "pairs", "count"]))}
    options |= {"order": data.draw(st.sampled_from(ORDERS))}
    cores = data.draw(st.sampled_from(CORES))
    completed = test_self_join.answer(replace(scenario, how="inner")).by_step()
    with (
        test_self_join.make_join(scenario, False, cores=cores, route=route, **options) as join,
        test_self_join.make_join(scenario, False, cores=1, **options) as alone,
    ):
        for number, step in enumerate(scenario.steps):
            found, expected = (test_self_join.apply(each, scenario, step, False) for each in (join, alone))
            if options["output"] == "count":
                assert found == expected
                continue
            pairs = [outcome(scenario, options["output"], each) for each in (found, expected)]
            order = options["order"]
            if options["batch_rows"] is not None and order != "inner":
                order = "none"  # which pushes a step has taken together is not seen here
            check_order(scenario, order, number, *pairs, completed)


@given(runs=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9).map(sorted), min_size=1, max_size=9))
def test_runs_are_merged(runs):
    words = np.array([word for run in runs for word in run], np.uint64)
    starts = np.cumsum([0, *map(len, runs[:-1])])
    order = np.full(words.size, -1)
    merge(words, starts, order)
    assert sorted(order) == list(range(words.size))
    assert words[order].tolist() == sorted(words.tolist())


def test_the_end_of_a_join_waits_for_who_is_looking_at_it(threads):
    """A page, say: both ask the cores."""
    join = wm.StreamJoin("l.k = r.k", wm.last(10), cores=2, route="hash")
    join.push(left=pa.table({"k": [1]}), right=pa.table({"k": [1]}))
    team = join._core
    assert isinstance(team, Team)
    looking, looked = threading.Event(), threading.Event()

    def look():
        looking.set()
        looked.wait()

    looker = threading.Thread(target=join._calls.if_free, args=[look], daemon=True)
    ender = threading.Thread(target=join.__exit__, args=[None, None, None], daemon=True)
    try:
        looker.start()
        assert looking.wait(60)
        ender.start()
        ender.join(0.2)
        assert ender.is_alive() and not team.ended
    finally:
        looked.set()
    for thread in (looker, ender):
        thread.join(60)
    assert team.ended


def test_results_that_are_too_far_apart_for_a_word_are_not_put_in_a_wrong_order():
    numbers = pa.schema({"left": pa.int64(), "right": pa.int64()})
    collector = Collector("inner", Layout(numbers, (0, 1), 0, 1), numbers, False, ALONE)
    near = pa.record_batch({"left": [0, 1 << 30], "right": [1 << 30, 3]}, schema=numbers)
    (found,) = collector.in_order([near.slice(0, 1), near.slice(1, 1)], {"left": 0, "right": 0})
    assert found.to_pydict() == {"left": [1 << 30, 0], "right": [3, 1 << 30]}
    far = pa.record_batch({"left": [0, 1 << 40], "right": [1 << 40, 3]}, schema=numbers)
    with pytest.raises(AssertionError, match="apart"):
        collector.in_order([far.slice(0, 1), far.slice(1, 1)], {"left": 0, "right": 0})
