"""The contract: every index, window and join type gives the brute-force answer, each result in its step.

The capacities are tiny: buffers fill, merges happen, subwindows open and expire within a dozen rows.
"""

import pytest
from harness import answer, check_timing, make_join, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Close, Within
from predicates import FAMILIES, PREDICATES, servable_by
from strategies import HOWS, INDEXES, INT64_MAX, INT64_MIN, WINDOW_KINDS, Scenario, capacities, scenarios


def chosen_index(join):
    """The index that explain() names: its first word, as in `index: bisort (composite)`."""
    (line,) = (line for line in join.explain().splitlines() if line.strip().startswith("index:"))
    return line.split()[1]


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@pytest.mark.parametrize("index", INDEXES)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_every_index_and_window_gives_the_brute_force_answer(index, kind, data):
    scenario = data.draw(scenarios(kind=kind, predicates=servable_by(index)))
    options = data.draw(capacities(index))
    check_timing(answer(scenario), run(scenario, "pairs", **options))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_every_window_and_join_type_gives_the_brute_force_answer(kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    check_timing(answer(scenario), run(scenario, "pairs", **options))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_every_family_of_predicates_gives_the_brute_force_answer(family, data):
    scenario = data.draw(scenarios(predicates=FAMILIES[family]))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    options = data.draw(capacities(index))
    check_timing(answer(scenario), run(scenario, "pairs", **options))


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: predicate.sql)
def test_every_predicate_runs_on_the_index_it_is_given(predicate):
    scenario = Scenario(predicate, Within(5, 5), "inner", [Close()])
    for index in predicate.indexes:
        with make_join(scenario, index=index) as join:
            chosen = chosen_index(join)
        assert chosen in INDEXES
        assert index in ("auto", chosen)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_rows_pairs_and_count_agree(how, data):
    scenario = data.draw(scenarios(how=how))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    rows = run(scenario, "rows", **options)
    check_timing(answer(scenario), rows)
    assert run(scenario, "pairs", **options) == rows
    assert run(scenario, "count", **options) == [step.total() for step in rows]


@pytest.mark.parametrize("threads", [1, 2, 4])
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_the_number_of_threads_changes_nothing(threads, data):
    scenario = data.draw(scenarios())
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    check_timing(answer(scenario), run(scenario, "rows", cores=threads, **options))


@pytest.mark.parametrize("start", [INT64_MIN, INT64_MAX - 4], ids=["first", "last"])
@pytest.mark.parametrize("kind", [kind for kind in WINDOW_KINDS if kind != "last"])
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_times_may_be_the_first_and_last_of_int64(kind, start, data):
    how = data.draw(st.sampled_from(["inner", "full"]))
    scenario = data.draw(scenarios(kind=kind, how=how, start=start))
    check_timing(answer(scenario), run(scenario, "pairs", **data.draw(capacities("auto"))))


@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_streams_in_order_have_no_late_tuples(data):
    kind = data.draw(st.sampled_from([kind for kind in WINDOW_KINDS if kind != "last"]))
    scenario = data.draw(scenarios(kind=kind, in_order=True))
    expected = answer(scenario)
    assert not expected.late_left and not expected.late_right
    check_timing(expected, run(scenario, "pairs"))
