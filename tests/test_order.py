"""The order of results, checked on every one of them."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from harness import answer, apply, check_timing, make_join, positions
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Push
from strategies import HOWS, WINDOW_KINDS, capacities, scenarios

import watersmeet as wm
from watersmeet.engine.order import by_completion, in_order


def arrived(steps, number):
    """Positions of the tuples that this step pushes, by side."""
    before = [step for step in steps[:number] if isinstance(step, Push)]
    this = steps[number] if isinstance(steps[number], Push) else Push(None, None)
    spans = {}
    for side in ("left", "right"):
        first = sum(len(getattr(step, side) or ()) for step in before)
        spans[side] = range(first, first + len(getattr(this, side) or ()))
    return spans


def rank(pair, now):
    """When a result was completed: left tuples of a push, right ones, then those that come out alone."""
    left, right = pair
    if right is None:
        return (2, left, -1)
    if left is None:
        return (3, right, -1)
    return (1, right, left) if right in now["right"] else (0, left, right)


def listed(table):
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("order", ["outer", "inner", wm.punctuate(3)], ids=str)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_results_are_in_order(kind, order, data):
    how = data.draw(st.sampled_from([how for how in HOWS if how not in ("semi", "anti")]))
    scenario = dataclasses.replace(data.draw(scenarios(kind=kind, how=how)), learn=False)
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    cores = data.draw(st.sampled_from([1, 2]))
    returned = []
    with make_join(scenario, output="pairs", order=order, cores=cores, **options) as join:
        for number, step in enumerate(scenario.steps):
            table = apply(join, scenario, step)
            returned.append(positions(scenario, "pairs", table))
            now = arrived(scenario.steps, number)
            ranks = [rank(pair, now) for pair in listed(table)]
            if isinstance(order, str):
                ranks = ranks if order == "inner" else [one[:2] for one in ranks]
            else:
                ranks = [(phase, position // 3) for phase, position, _ in ranks]
            assert ranks == sorted(ranks), listed(table)
            join.check_invariants()
    check_timing(answer(scenario), returned)


@pytest.mark.parametrize("how", ["semi", "anti"])
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_tuples_come_out_alone_in_the_order_in_which_they_were_completed(how, data):
    scenario = dataclasses.replace(data.draw(scenarios(how=how)), learn=False)
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    options |= {"output": "pairs", "order": "inner"}
    seen = set()
    returned = []
    inner = dataclasses.replace(scenario, how="inner")
    with make_join(scenario, **options) as join, make_join(inner, **options) as pairs:
        for step in scenario.steps:
            table = apply(join, scenario, step)
            returned.append(positions(scenario, "pairs", table))
            came = [left for (left,) in listed(table)]
            firsts = dict.fromkeys(left for left, _ in listed(apply(pairs, scenario, step)) if left not in seen)
            seen |= firsts.keys()
            assert came == (list(firsts) if how == "semi" else sorted(came))
    check_timing(answer(scenario), returned)


@pytest.mark.parametrize("order", ["outer", "inner", wm.punctuate(10_000)], ids=str)
@pytest.mark.parametrize("cores", [1, 2])
def test_large_batches(order, cores):
    """More pairs than are made at a time, on several threads, and rows with all their columns."""
    rng = np.random.default_rng(3)
    n = 50_000

    def rows(start):
        columns = {"ts": np.arange(start, start + n), "x": rng.integers(0, n, n), "p": np.arange(start, start + n)}
        return pa.table({**columns, "s": pa.array(range(start, start + n)).cast(pa.string())})

    with wm.StreamJoin("abs(l.x - r.x) <= 3", wm.within(2 * n), order=order, cores=cores) as join:
        for number in range(3):
            table = join.push(rows(number * n), rows(number * n))
            left, right = table["p"].to_numpy(), table["p_right"].to_numpy()
            assert table.num_rows > 200_000 and table["s"].cast(pa.int64()) == table["p"]
            by_right = right >= number * n
            phase, own, partner = by_right, np.where(by_right, right, left), np.where(by_right, left, right)
            if order == wm.punctuate(10_000):
                own = own // 10_000
            ranks = np.lexsort((partner, own, phase) if order == "inner" else (own, phase))
            assert np.array_equal(ranks, np.arange(ranks.size))


def test_pieces_of_several_subwindows_are_put_in_order():
    pieces = [
        (100, np.array([3, 1], np.int32), np.array([0, 5], np.int32)),
        (40, np.array([1, 3, 0], np.int32), np.array([7, 2, 7], np.int32)),
    ]
    own, stored = in_order("inner", pieces, 1000, 4)
    assert list(zip(own.tolist(), stored.tolist(), strict=True)) == [
        (1000, 47), (1001, 47), (1001, 105), (1003, 42), (1003, 100),
    ]  # fmt: skip
    own, stored = in_order("outer", pieces, 1000, 4)
    assert own.tolist() == [1000, 1001, 1001, 1003, 1003]
    found, by = by_completion(np.array([42, 47, 105]), own, stored)
    assert found.tolist() == sorted([42, 47, 105], key=stored.tolist().index)
    assert by.tolist() == [own[stored.tolist().index(position)] for position in found]
    assert in_order("inner", [], 0, 4)[0].size == 0


@pytest.mark.parametrize("order", ["sorted", 5, None])
def test_unknown_orders_are_refused(order):
    with pytest.raises(ValueError, match=r"order must be one of none, outer, inner or punctuate\(every=n\)"):
        wm.StreamJoin("l.k = r.k", wm.within(5), order=order)


@pytest.mark.parametrize("every", [0, -1, 1.5, "many"])
def test_a_bad_punctuation_is_refused(every):
    with pytest.raises((ValueError, TypeError), match="every"):
        wm.punctuate(every)
