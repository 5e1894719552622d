"""Batch mode collects pushes and processes them as one: later, but the same results. The clock is ours."""

from datetime import timedelta

import pyarrow as pa
import pytest
from harness import answer, apply, check_batched, check_books, check_timing, make_join, positions, run
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import HOWS, WINDOW_KINDS, scenarios

import watersmeet as wm


class Clock:
    """A clock that moves when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_batches_of_any_size_give_the_same_results(kind, data):
    scenario = data.draw(scenarios(kind=kind, flush=True))
    batch_rows = data.draw(st.sampled_from([1, 3, 7, 1000]))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    rows = data.draw(st.sampled_from([3, 7]))
    options = {"index": index, "subwindow_rows": rows, "batch_rows": batch_rows}
    check_batched(answer(scenario), scenario, run(scenario, "pairs", **options))


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_batches_give_the_same_rows(how, data):
    scenario = data.draw(scenarios(how=how, flush=True))
    batch_rows = data.draw(st.sampled_from([1, 3, 7, 1000]))
    returned = run(scenario, "rows", batch_rows=batch_rows)
    check_batched(answer(scenario), scenario, returned)
    assert run(scenario, "count", batch_rows=batch_rows) == [step.total() for step in returned]


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_flush_without_batch_mode_finds_nothing_to_do(data):
    scenario = data.draw(scenarios(flush=True))
    check_timing(answer(scenario), run(scenario, "pairs"))


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_delays_of_any_length_give_the_same_results(kind, data):
    scenario = data.draw(scenarios(kind=kind, flush=True))
    clock = Clock()
    returned = []
    options = {"batch_delay": timedelta(seconds=5), "clock": clock, "output": "pairs"}
    if data.draw(st.booleans()):
        options["batch_rows"] = 7
    with make_join(scenario, **options) as join:
        for step in scenario.steps:
            clock.now += data.draw(st.sampled_from([0, 1, 4, 5, 9]))
            returned.append(positions(scenario, "pairs", apply(join, scenario, step)))
            join.check_invariants()
        check_books(join, scenario, returned)
    check_batched(answer(scenario), scenario, returned)


def rows(*times):
    return pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array([0] * len(times), pa.int64())})


def counting(**options):
    schema = rows().schema
    given = {"output": "count", "left_schema": schema, "right_schema": schema}
    return wm.StreamJoin("l.k = r.k", wm.within(10), **(given | options))


def test_rows_are_collected_until_there_are_batch_rows():
    join = counting(batch_rows=4)
    assert join.push(left=rows(1)) == 0
    assert join.push(right=rows(1, 2)) == 0
    assert join.push(left=rows(2)) == 4
    assert join.push(right=rows(3)) == 0
    assert join.flush() == 2
    assert join.flush() == 0
    assert join.push(left=rows(4)) == 0
    assert join.close() == 3


def test_rows_are_collected_until_batch_delay_has_passed_since_the_first():
    clock = Clock()
    join = counting(batch_delay=timedelta(seconds=5), clock=clock)
    assert join.push(left=rows(1)) == 0
    clock.now += 4
    assert join.push(right=rows(1)) == 0
    clock.now += 1
    assert join.push(right=rows(2)) == 2
    clock.now += 4
    assert join.push(right=rows(3)) == 0
    clock.now += 5
    assert join.push(right=rows(4)) == 2
    assert join.close() == 0


def test_a_push_of_no_rows_lets_a_delay_that_has_passed_take_effect():
    clock = Clock()
    join = counting(batch_delay=timedelta(seconds=5), clock=clock)
    assert join.push(left=rows(1), right=rows(1)) == 0
    clock.now += 6
    assert join.push(left=rows()) == 1


def test_batch_delay_may_be_text():
    clock = Clock()
    join = counting(batch_delay="5 seconds", clock=clock)
    assert join.push(left=rows(1), right=rows(1)) == 0
    clock.now += 5
    assert join.push(left=rows(2)) == 2


def test_whichever_of_rows_and_delay_comes_first_ends_a_batch():
    clock = Clock()
    join = counting(batch_rows=3, batch_delay=timedelta(seconds=5), clock=clock)
    assert join.push(left=rows(1), right=rows(1, 2)) == 2
    assert join.push(left=rows(2)) == 0
    clock.now += 5
    assert join.push(left=rows(3)) == 4
