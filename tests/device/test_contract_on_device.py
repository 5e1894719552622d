"""The contract of every index (tests/test_contract.py), held by joins on a device."""

import pyarrow as pa
import pytest
from harness import answer, check_timing, make_join, run
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Close, Within
from predicates import PREDICATES
from strategies import HOWS, WINDOW_KINDS, Scenario, scenarios

import watersmeet as wm
from watersmeet.device import DeviceFull

SERVED = [predicate for predicate in PREDICATES if predicate.equality or predicate.ordered]


@st.composite
def devices(draw):
    """Options that make structures small."""
    if draw(st.booleans()):
        return {"device": "gpu"}
    sizes = st.sampled_from([3, 4, 7])
    small = wm.index.GPUSort(buffer_rows=draw(sizes), partition_rows=draw(sizes), portion_rows=draw(sizes))
    options = {"device": "gpu", "index": small}
    for name, values in (("subwindows", [None, 1, 3]), ("subwindow_rows", [None, 3, 7])):
        value = draw(st.sampled_from(values))
        if value is not None:
            options[name] = value
    return options


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=4)
@given(data=st.data())
def test_every_window_and_join_type_gives_the_brute_force_answer(kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how, predicates=SERVED))
    check_timing(answer(scenario), run(scenario, "pairs", **data.draw(devices())))


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
@settings(max_examples=5)
@given(data=st.data())
def test_rows_pairs_and_count_agree(how, data):
    scenario = data.draw(scenarios(how=how, predicates=SERVED))
    options = data.draw(devices())
    rows = run(scenario, "rows", **options)
    check_timing(answer(scenario), rows)
    assert run(scenario, "pairs", **options) == rows
    assert run(scenario, "count", **options) == [step.total() for step in rows]


@pytest.mark.parametrize("predicate", SERVED, ids=lambda predicate: predicate.sql)
def test_every_predicate_with_a_key_runs_on_the_device(predicate):
    with make_join(Scenario(predicate, Within(5, 5), "inner", [Close()]), device="gpu") as join:
        lines = join.explain().splitlines()
    assert any(line.startswith("index: gpu_sort") for line in lines)
    assert any(line.startswith("device: gpu (") for line in lines)
    assert any(line.startswith("  the study's guideline: ") for line in lines)
    assert not any(line.startswith("cores:") and "as asked for" in line for line in lines)


@pytest.mark.parametrize("predicate", ["true", "l.x % r.x = 1"])
def test_a_predicate_without_a_key_is_refused(predicate):
    schema = pa.schema({"x": pa.int64()})
    with pytest.raises(ValueError, match="device 'gpu' needs an equality, band or inequality"):
        wm.StreamJoin(predicate, wm.last(5), device="gpu", left_schema=schema, right_schema=schema)


@pytest.mark.parametrize("order", ["outer", "inner"])
def test_results_come_in_the_order_that_was_asked_for(order):
    batch = pa.table({"x": [3, 1, 2, 1]})
    answers = []
    for device in ("cpu", "gpu"):
        with wm.StreamJoin("l.x <= r.x", wm.last(5), device=device, order=order, output="pairs") as join:
            answers.append([join.push(left=batch, right=batch).to_pylist() for _ in range(3)])
    if order == "inner":
        assert answers[0] == answers[1]
    else:
        key = lambda row: (row["left"], row["right"])  # noqa: E731
        assert [sorted(one, key=key) for one in answers[0]] == [sorted(one, key=key) for one in answers[1]]


def test_a_self_join_on_the_device():
    batch = pa.table({"x": [3, 1, 2, 1], "k": [1, 1, 2, 2]})
    answers = []
    for device in ("cpu", "gpu"):
        options = {"self_join": True, "device": device, "output": "pairs"}
        with wm.StreamJoin("l.k = r.k and l.x < r.x", wm.last(6), **options) as join:
            found = [join.push(batch).to_pylist() for _ in range(3)]
            answers.append([sorted(one, key=lambda row: (row["left"], row["right"])) for one in found])
    assert answers[0] == answers[1]


def test_a_window_that_outgrows_the_device_leaves_the_join_as_it_was():
    index = wm.index.GPUSort(most_bytes=2 * 12 * 40)
    with wm.StreamJoin("abs(l.x - r.x) <= 0", wm.last(1000), device="gpu", index=index, output="count") as join:
        few = pa.table({"x": list(range(30))})
        assert join.push(left=few, right=few) == 30
        with pytest.raises(DeviceFull, match="a window of 130 rows on the device needs"):
            join.push(left=pa.table({"x": list(range(100))}))
        join.check_invariants()
        assert join.metrics.stored_left == join.metrics.stored_right == 30
        assert join.push(right=pa.table({"x": [3, 4]})) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be one of cpu, gpu, got 'tpu'"),
        ({"device": "gpu", "index": "hash"}, "index 'hash' is not one for device 'gpu'"),
        ({"device": "gpu", "route": "hash"}, "route 'hash' is not for device 'gpu'"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        wm.StreamJoin("l.x = r.x", wm.last(5), **options)
