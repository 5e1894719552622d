"""Self joins: one stream, one window, and the answer of the stream joined with a copy of itself.

The oracle knows two streams, so it gets the stream twice: every push as `Push(rows, rows)`. Only lateness differs: a
tuple with one time is judged once, as if it were a push of its own, so the oracle gets such pushes in single rows.
"""

import gc
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from failures import Injected, Lines
from harness import VALUE_COLUMNS, check_batched, check_timing, moment, positions, same, window
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from oracle import Advance, Close, Expected, Flush, Last, Push, Result, expect
from predicates import FAMILIES, servable_by
from strategies import HOWS, INT64_MAX, INT64_MIN, WINDOW_KINDS, capacities, self_scenarios

import watersmeet as wm

INDEXES = ("nested_loop", "hash", "bisort", "auto")  # the others differ within structures only
TIMED = [kind for kind in WINDOW_KINDS if kind != "last"]


def answer(scenario):
    """What the self join has to give, and when."""
    if isinstance(scenario.window, Last) or scenario.time[0] != scenario.time[1]:
        return doubled(scenario)
    single, origin = [], []
    for number, step in enumerate(scenario.steps):
        pieces = [step]
        if isinstance(step, Push) and len(step.left) > 1:
            pieces = [Push([row], [row]) for row in step.left]
        single += pieces
        origin += [number] * len(pieces)
    never_idle = replace(scenario.window, idle_after=(None, None))  # one stream is never behind itself
    expected = doubled(replace(scenario, steps=single, window=never_idle))
    assert expected.late_left == expected.late_right
    results = [Result(r.left, r.right, origin[r.step], origin[r.earliest]) for r in expected.results]
    return Expected(results, expected.late_left, expected.late_right, len(scenario.steps))


def doubled(scenario):
    """What joining the stream with a copy of itself gives."""
    return expect(scenario.steps, scenario.window, scenario.how, scenario.predicate.holds, scenario.time)


# --------------------------------------------------------------------------------------------- running


def schema(scenario):
    time = pa.timestamp("us") if scenario.timestamps else pa.int64()
    return pa.schema({"id": pa.int64(), "ts": time, "rts": time, **VALUE_COLUMNS})


def batch(scenario, rows):
    data = {name: [row[name] for row in rows] for name in schema(scenario).names}
    for name in ("ts", "rts"):
        data[name] = [moment(scenario, t) for t in data[name]]
    return pa.RecordBatch.from_pydict(data, schema=schema(scenario))


def make_join(scenario, twice, **options):
    if not scenario.learn:
        options["left_schema"] = schema(scenario)
        if twice:
            options["right_schema"] = schema(scenario)
    return wm.StreamJoin(scenario.predicate.sql, window(scenario), scenario.how, self_join=not twice, **options)


def apply(join, scenario, step, twice):
    if isinstance(step, Push):
        rows = batch(scenario, step.left)
        return join.push(left=rows, right=rows) if twice else join.push(rows)
    if isinstance(step, Advance):
        time = moment(scenario, step.left)
        return join.advance(left=time, right=time) if twice else join.advance(time)
    return join.flush() if isinstance(step, Flush) else join.close()


def run(scenario, output="pairs", twice=False, **options):
    """What every step returned, as Counters of positions or, for output="count", numbers."""
    returned = []
    with make_join(scenario, twice, output=output, **options) as join:
        for step in scenario.steps:
            result = apply(join, scenario, step, twice)
            if output != "count":
                result.validate(full=True)
                if output == "rows":
                    check_rows(scenario, result)
                result = positions(scenario, output, result)
            returned.append(result)
            join.check_invariants()
        if not twice:
            check_books(join, scenario, returned)
    return returned


def check_rows(scenario, result):
    pushed = {row["id"]: row for step in scenario.steps if isinstance(step, Push) for row in step.left}
    for row in result.to_pylist():
        for suffix in ("",) if scenario.how in ("semi", "anti") else ("", "_right"):
            original = pushed.get(row["id" + suffix])
            for name in schema(scenario).names:
                expected = None if original is None else original[name]
                if name in ("ts", "rts"):
                    expected = moment(scenario, expected)
                assert same(row[name + suffix], expected), (row, name + suffix, expected)


def check_books(join, scenario, returned):
    """A row counts once, a late one too; only with two times can it be late in one role and not in the other."""
    expected = answer(scenario)
    metrics = join.metrics
    two_times = scenario.time[0] != scenario.time[1]
    late_right = expected.late_right if two_times else []
    assert (metrics.late_left, metrics.late_right) == (len(expected.late_left), len(late_right))
    assert sorted(join.take_late("right")["id"].to_pylist()) == late_right
    assert sorted(join.take_late()["id"].to_pylist()) == expected.late_left
    assert join.take_late("left").num_rows == 0
    assert metrics.rows_in_left == sum(len(step.left) for step in scenario.steps if isinstance(step, Push))
    assert metrics.rows_in_right == 0
    assert metrics.rows_out == sum(r if isinstance(r, int) else r.total() for r in returned)


# -------------------------------------------------------------------------------------------- contract


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@pytest.mark.parametrize("index", INDEXES)
@given(data=st.data())
def test_every_index_and_window_gives_the_answer_of_the_doubled_stream(index, kind, data):
    scenario = data.draw(self_scenarios(kind=kind, predicates=servable_by(index)))
    check_timing(answer(scenario), run(scenario, **data.draw(capacities(index))))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_every_window_and_join_type_gives_the_answer_of_the_doubled_stream(kind, how, data):
    scenario = data.draw(self_scenarios(kind=kind, how=how))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    check_timing(answer(scenario), run(scenario, **data.draw(capacities(index))))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_every_family_of_predicates_gives_the_answer_of_the_doubled_stream(family, data):
    scenario = data.draw(self_scenarios(predicates=FAMILIES[family]))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    check_timing(answer(scenario), run(scenario, **data.draw(capacities(index))))


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_without_late_rows_every_push_gives_what_pushing_both_sides_gives(kind, data):
    scenario = data.draw(self_scenarios(kind=kind, in_order=True))
    assert not doubled(scenario).late_left
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    returned = run(scenario, **data.draw(capacities(index)))
    if kind == "gaps":  # rows in no window may come out early
        assert sum(returned, Counter()) == sum(run(scenario, twice=True, index=index), Counter())
    else:
        assert returned == run(scenario, twice=True, index=index)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_rows_pairs_and_count_agree(how, data):
    scenario = data.draw(self_scenarios(how=how))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    rows = run(scenario, "rows", **options)
    check_timing(answer(scenario), rows)
    assert run(scenario, "pairs", **options) == rows
    assert run(scenario, "count", **options) == [step.total() for step in rows]


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_batches_of_any_size_give_the_same_results(kind, data):
    scenario = data.draw(self_scenarios(kind=kind, flush=True))
    batch_rows = data.draw(st.sampled_from([1, 3, 7, 1000]))
    index = data.draw(st.sampled_from(scenario.predicate.indexes))
    returned = run(scenario, index=index, subwindow_rows=3, batch_rows=batch_rows)
    check_batched(answer(scenario), scenario, returned)


@pytest.mark.parametrize("start", [INT64_MIN, INT64_MAX - 4], ids=["first", "last"])
@pytest.mark.parametrize("kind", TIMED)
@given(data=st.data())
def test_times_may_be_the_first_and_last_of_int64(kind, start, data):
    how = data.draw(st.sampled_from(["inner", "full"]))
    scenario = data.draw(self_scenarios(kind=kind, how=how, start=start))
    check_timing(answer(scenario), run(scenario, **data.draw(capacities("auto"))))


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_how_a_stream_is_cut_into_pushes_changes_nothing_in_windows_over_time(how, data):
    kind = data.draw(st.sampled_from(TIMED))
    scenario = data.draw(self_scenarios(kind=kind, how=how))
    rows = [row for step in scenario.steps if isinstance(step, Push) for row in step.left]
    answers = []
    for _ in range(2):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
        parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        steps = [*(Push(part, part) for part in parts), Close()]
        again = replace(scenario, steps=steps, time=("ts", "ts"))
        answers.append(sum(run(again), Counter()))
    assert answers[0] == answers[1]


# --------------------------------------------------------------------------------------- large batches


def stream(n, step=1, jitter=0, seed=1):
    rng = np.random.default_rng(seed)
    times = np.arange(n) * step + rng.integers(0, jitter + 1, n)
    return pa.table({"ts": times, "k": rng.integers(0, 50, n), "x": rng.integers(0, 4 * n, n)})


ONS = {
    "one index": "l.x - r.x between 1 and 2000",
    "equality": "l.k = r.k and l.x <> r.x",
    "two indexes": "l.k < r.k and r.x < 1000",
}


def pairs_of(on, spec, how, pieces, twice, **options):
    found = Counter()
    with wm.StreamJoin(on, spec, how, output="pairs", self_join=not twice, **options) as join:
        for piece in pieces:
            part = join.push(piece, piece) if twice else join.push(piece)
            join.check_invariants()
            found += Counter(zip(*(column.to_pylist() for column in part.columns), strict=True))
        found += Counter(zip(*(column.to_pylist() for column in join.close().columns), strict=True))
    return found


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("on", ONS)
@pytest.mark.parametrize("how", HOWS)
def test_batches_that_span_many_windows_are_joined_once_on_any_number_of_threads(how, on, threads):
    """Such batches are cut into slices, and large enough for several threads."""
    data = stream(40_000, jitter=30)
    pieces = [data.slice(0, 3000), data.slice(3000, 17_000), data.slice(20_000)]
    spec = wm.within(20, 35, lateness=30)
    expected = pairs_of(ONS[on], spec, how, pieces, twice=True, cores=2)
    assert expected
    assert pairs_of(ONS[on], spec, how, pieces, twice=False, cores=threads) == expected


@pytest.mark.parametrize("how", HOWS)
def test_last_windows_of_two_sizes_forget_what_neither_role_needs(how):
    data = stream(6000)
    pieces = [data.slice(start, 170) for start in range(0, 6000, 170)]
    for spec in (wm.last(200), wm.last(70, 500), wm.last(500, 70)):
        expected = pairs_of(ONS["one index"], spec, how, pieces, twice=True)
        assert pairs_of(ONS["one index"], spec, how, pieces, twice=False) == expected


# ---------------------------------------------------------------------------------------- what is kept


def explained(on, spec=None, **options):
    join = wm.StreamJoin(on, spec or wm.within(5), self_join=True, **options)
    join.push(pa.table({"ts": [1], "u": [2], "k": [1], "x": [1], "f": [0.5], "s": ["a"]}))
    (line,) = (line for line in join.explain().splitlines() if line.startswith("self join:"))
    return line


@pytest.mark.parametrize(
    "on",
    [
        "l.k = r.k",
        "l.s = r.s and l.x = r.x",
        "l.k + l.x = r.k + r.x",
        "l.s <=> r.s",
        "abs(l.x - r.x) <= 3",
        "abs(l.f - r.f) <= 0.1",
        "l.f between r.f - 0.1 and r.f + 0.1",
        "l.x < r.x",
        "l.x <> r.x",
        "l.k = r.k and abs(l.f - r.f) < 1",
        "abs(l.x - r.x) <= 3 and l.k < r.k",
        "l.k > 0 and r.k > 0 and l.x = r.x",
        "l.k * r.x > 5",
        "true",
    ],
)
def test_like_keys_share_one_index(on):
    assert explained(on) == "self join: one window, one index"


@pytest.mark.parametrize(
    ("on", "why"),
    [
        ("l.k = r.x", "an equality compares two different keys"),
        ("l.k < r.x", "the ordered keys differ (l.k, r.x)"),
        ("l.k > 0 and l.x = r.x", "the conditions on one side alone differ"),
    ],
)
def test_unlike_keys_get_an_index_each_and_explain_says_why(on, why):
    assert explained(on) == f"self join: one window, two indexes, because {why}"


def test_two_time_columns_get_an_index_each():
    assert "time columns" in explained("l.x = r.x", wm.within(5, time=("ts", "u")))


def test_explain_names_the_self_join_before_the_schema_is_known():
    text = wm.StreamJoin("l.k = r.k", wm.within(5), self_join=True).explain()
    assert "self join" in text and "the schema of the stream is not known" in text


@pytest.mark.parametrize("index", ["bisort", "hash", "nested_loop"])
@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("spec", [wm.last(20_000), wm.within(20_000)], ids=str)
def test_one_window_takes_half_the_memory_of_two(spec, how, index):
    data = stream(60_000)
    joins = {}
    for twice in (False, True):
        with wm.StreamJoin("l.x = r.x", spec, how, index=index, output="count", self_join=not twice) as join:
            for start in range(0, 60_000, 5000):
                piece = data.slice(start, 5000).to_batches()[0]
                join.push(piece, piece) if twice else join.push(piece)
            joins[twice] = join.metrics.to_dict()
    one, two = joins[False], joins[True]
    assert (one["stored_left"], one["stored_right"]) == (two["stored_left"], 0)
    assert one["stored_left"] >= 20_000
    assert 0.4 < one["index_bytes"] / two["index_bytes"] < 0.6
    assert 2 * one["payload_bytes"] == two["payload_bytes"]
    assert one["rows_out"] == two["rows_out"]


def test_two_indexes_share_one_copy_of_the_tuples():
    data = stream(10_000)
    joins = []
    for twice in (False, True):
        join = wm.StreamJoin("l.k < r.x", wm.last(1000), output="count", self_join=not twice)
        join.push(data, data) if twice else join.push(data)
        joins.append(join.metrics)
    assert 2 * joins[0].payload_bytes == joins[1].payload_bytes
    assert joins[0].stored_right == joins[1].stored_right > 0


@pytest.mark.parametrize(
    "spec", [wm.last(1000), wm.last(100, 1000), wm.within(500, 0), wm.within(0, 500), wm.tumbling(300)], ids=str
)
@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.x - r.x) <= 5", "l.k < r.x"])
def test_state_stays_bounded(spec, on):
    join = wm.StreamJoin(on, spec, "full", output="count", self_join=True)
    data = stream(100_000)
    sizes = []
    for start in range(0, 100_000, 500):
        join.push(data.slice(start, 500))
        metrics = join.metrics
        sizes.append((metrics.stored_left, metrics.stored_right, metrics.index_bytes, metrics.payload_bytes))
    assert max(sizes[100:]) <= max(sizes[:100])
    assert all(stored < 6000 for stored, *_ in sizes)


def test_a_closed_join_holds_nothing():
    gc.collect()
    live = pa.total_allocated_bytes()
    join = wm.StreamJoin("l.k = r.k and l.x < r.x", wm.within(10**6), "anti", self_join=True)
    join.push(stream(5000).append_column("s", pa.array(["text"] * 5000)).take(np.arange(5000)))
    assert pa.total_allocated_bytes() > live
    assert join.metrics.payload_bytes > 0
    join.close()
    gc.collect()
    assert pa.total_allocated_bytes() <= live
    assert join.metrics.payload_bytes == 0
    assert join.metrics.stored_left == 0


# ------------------------------------------------------------------------------------------- in person


def test_a_tuple_meets_itself_and_both_orders_of_a_pair():
    join = wm.StreamJoin("abs(l.x - r.x) <= 1", wm.last(10), output="pairs", self_join=True)
    assert join.push(pa.table({"x": [1]})).to_pylist() == [{"left": 0, "right": 0}]
    found = join.push(left=pa.table({"x": [2]})).to_pylist()
    assert sorted((row["left"], row["right"]) for row in found) == [(0, 1), (1, 0), (1, 1)]


def test_a_late_tuple_is_late_once_and_in_both_roles():
    join = wm.StreamJoin("true", wm.within(100, lateness=2), output="pairs", self_join=True)
    found = join.push(pa.table({"ts": [10, 20, 17, 18]}))
    assert {row["left"] for row in found.to_pylist()} == {row["right"] for row in found.to_pylist()} == {0, 1, 3}
    assert (join.metrics.late_left, join.metrics.late_right) == (1, 0)
    assert join.take_late().to_pylist() == [{"ts": 17}]
    assert join.take_late("right").num_rows == 0


def test_the_greater_lateness_counts():
    join = wm.StreamJoin("true", wm.within(100, lateness=(0, 5)), output="count", self_join=True)
    join.push(pa.table({"ts": [10, 5, 4]}))
    assert join.take_late().to_pylist() == [{"ts": 4}]
    assert join.metrics.watermark == 5


def test_batch_rows_count_a_row_once():
    join = wm.StreamJoin("true", wm.last(10), output="count", self_join=True, batch_rows=3)
    row = pa.table({"x": [1]})
    assert (join.push(row), join.push(row), join.metrics.waiting) == (0, 0, 2)
    assert join.push(row) == 9


def test_advance_moves_both_roles():
    join = wm.StreamJoin("l.x < r.x", wm.within(5), "full", output="pairs", self_join=True)
    assert join.push(pa.table({"ts": [1], "x": [1]})).num_rows == 0
    assert join.advance(7).to_pylist() == [{"left": 0, "right": None}, {"left": None, "right": 0}]
    assert join.metrics.stored_left == 0


def test_closing_a_join_that_saw_nothing_is_fine():
    assert wm.StreamJoin("l.x = r.x", wm.last(3), "full", self_join=True).close().num_rows == 0


SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64()})
ROWS = pa.table({"ts": [1], "k": [1]})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda join: join.push(ROWS, ROWS), ["right", "self join", "push(batch)"]),
        (lambda join: join.push(right=ROWS), ["right", "self join", "push(batch)"]),
        (lambda join: join.advance(right=5), ["right", "self join", "advance(time)"]),
    ],
)
def test_the_right_side_of_a_self_join_is_not_given(call, words):
    join = wm.StreamJoin("l.k = r.k", wm.within(5), self_join=True, left_schema=SCHEMA, output="count")
    with pytest.raises(ValueError) as error:
        call(join)
    assert all(word in str(error.value) for word in words)
    assert join.push(ROWS) == 1


def test_a_self_join_has_one_schema():
    with pytest.raises(ValueError, match="right_schema must not be given in a self join.*left_schema="):
        wm.StreamJoin("l.k = r.k", wm.within(5), self_join=True, left_schema=SCHEMA, right_schema=SCHEMA)


def test_self_join_is_true_or_false():
    with pytest.raises(TypeError, match="self_join must be True or False, got 'yes'"):
        wm.StreamJoin("l.k = r.k", wm.within(5), self_join="yes")


def test_a_bad_push_changes_nothing():
    join = wm.StreamJoin("l.k = r.k", wm.within(5), "left", output="count", self_join=True)
    with pytest.raises(ValueError, match="null"):
        join.push(pa.table({"ts": pa.array([None], pa.int64()), "k": [1]}))
    assert join.push(ROWS) == 1
    with pytest.raises(ValueError, match="not expected: z"):
        join.push(pa.table({"ts": [1], "k": [1], "z": [1]}))
    assert join.metrics.rows_in_left == 1


def test_two_sided_joins_must_name_the_side_of_late_rows():
    with pytest.raises(ValueError, match="side must be one of left, right, got None"):
        wm.StreamJoin("l.k = r.k", wm.within(5), left_schema=SCHEMA, right_schema=SCHEMA).take_late()


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(data=st.data())
def test_a_push_that_fails_at_any_line_leaves_no_trace(how, data):
    scenario = data.draw(self_scenarios(how=how))
    options = {**data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes)))), "cores": 1}

    def run(failing):
        returned = []
        with make_join(scenario, False, output="pairs", **options) as join:
            for step in scenario.steps:
                at = data.draw(st.integers(1, 800)) if failing else None
                try:
                    result = Lines(at).run(lambda step=step: apply(join, scenario, step, False))
                except Injected:
                    join.check_invariants()
                    result = apply(join, scenario, step, False)
                returned.append(positions(scenario, "pairs", result))
        return returned

    assert run(failing=True) == run(failing=False)
