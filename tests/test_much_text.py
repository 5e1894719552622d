"""More text, or values of lists, than one Arrow array holds: results come in several batches, nothing overflows.

The limit is 2 GiB; here it is a few bytes, except where Arrow itself decides: there lists of nulls, which take no
memory, reach it.
"""

from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from harness import answer, check_batched, check_timing, run
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import HOWS, WINDOW_KINDS, scenarios

import watersmeet as wm
from watersmeet.engine.arrivals import Collected
from watersmeet.window import capacity
from watersmeet.window.capacity import extent, sizes
from watersmeet.window.chunks import Chunks
from watersmeet.window.gather import gather_by_chunk


@contextmanager
def limit(most):
    before = capacity.MOST
    capacity.MOST = most
    try:
        yield
    finally:
        capacity.MOST = before


LONGEST = 40  # of a text in the scenarios


@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_small_arrays_give_the_brute_force_answer(how, data):
    scenario = data.draw(scenarios(how=how))
    with limit(LONGEST):
        check_timing(answer(scenario), run(scenario, "rows"))


@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_what_is_collected_is_processed_in_groups_that_arrays_can_hold(kind, data):
    scenario = data.draw(scenarios(kind=kind, flush=True))
    batch_rows = data.draw(st.sampled_from([3, 7, 1000]))
    with limit(LONGEST):
        check_batched(answer(scenario), scenario, run(scenario, "rows", batch_rows=batch_rows))


def texts(*values, start=0):
    return pa.table({"ts": range(start, start + len(values)), "s": list(values)})


def test_a_collection_is_cut_where_one_array_would_be_too_small(monkeypatch):
    groups = []
    take = Collected.take
    monkeypatch.setattr(Collected, "take", lambda self: groups.append(take(self)) or groups[-1])
    join = wm.StreamJoin("l.s = r.s", wm.within(100), batch_rows=100, output="pairs")
    with limit(10):
        for number in range(4):
            assert join.push(left=texts("four", start=number), right=texts("four", start=number)).num_rows == 0
        assert join.metrics.waiting == 8
        found = join.flush()
    assert [[group[side].rows for side in group] for group in groups[-1]] == [[2, 2], [2, 2]]
    assert found.num_rows == 16
    assert join.metrics.waiting == 0


@pytest.mark.parametrize("column", [pa.array(["four", None, "six"]), pa.array([["a"], None, ["b", "c", "d", "e"]])])
@pytest.mark.parametrize("how", ["inner", "full", "anti", "semi"])
def test_results_come_in_batches_that_arrays_can_hold(how, column):
    left = pa.table({"ts": range(6), "p": pa.chunked_array([column, column])})
    right = pa.table({"ts": range(5), "q": range(5)})

    def results():
        on = "l.ts < 3" if how != "semi" else "true"
        join = wm.StreamJoin(on, wm.within(100), how, left_schema=left.schema, right_schema=right.schema)
        return pa.concat_tables([join.push(left=left), join.push(right=right), join.close()])

    whole = results()
    with limit(4):
        cut = results()
    assert cut.to_pylist() == whole.to_pylist()
    assert len(cut.to_batches()) > len(whole.to_batches())
    for batch in cut.to_batches():
        assert sizes(batch).max() <= 4


def test_a_condition_on_much_text_is_checked_in_parts():
    left, right = texts(*["ab", "b"] * 10), texts(*["b", "ab", "c"] * 5)
    join = wm.StreamJoin("l.s || 'x' >= r.s || 'x'", wm.within(100), index="nested_loop", output="pairs")
    whole = join.push(left=left, right=right)
    with limit(5):
        join = wm.StreamJoin("l.s || 'x' >= r.s || 'x'", wm.within(100), index="nested_loop", output="pairs")
        assert join.push(left=left, right=right) == whole


# ----------------------------------------------------------------------------------- at Arrow's own limit


def lists_of_nulls(*lengths):
    """A table with a column of lists of so many nulls; they take no memory."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.nulls(int(offsets[-1])))
    return pa.table({"ts": pa.array(range(len(lengths)), pa.int64()), "p": column})


MANY = 2**30


def test_small_batches_are_not_joined_where_one_array_would_be_too_small():
    chunks = Chunks(lists_of_nulls().schema)
    for expected in (1, 2, 3):
        chunks.append(lists_of_nulls(MANY).to_batches()[0])
        assert len(chunks._chunks) == expected


def test_lists_are_not_gathered_beyond_what_an_array_holds():
    """Arrow's own `take` would go on, with offsets below zero."""
    column = lists_of_nulls(1, MANY)["p"].chunk(0)
    once, twice = np.zeros(1, np.int32), np.zeros(2, np.int32)
    assert len(gather_by_chunk({0: column}, column.type, once, np.array([0]))) == 1
    with pytest.raises(capacity.TooMuch):
        gather_by_chunk({0: column}, column.type, twice, np.array([1, 1]))


def test_a_table_of_more_than_one_array_is_refused_with_column_and_remedy():
    table = pa.concat_tables([lists_of_nulls(MANY), lists_of_nulls(MANY)])
    join = wm.StreamJoin("true", wm.within(5), left_schema=table.schema)
    with pytest.raises(ValueError, match=r"column 'p' of this left batch has more .*; push smaller batches"):
        join.push(left=table)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["a", "bcd", None, "ef"]), 5),
        (pa.array([b"a", b"bcd", None, b"ef"]), 5),
        (pa.array(["a", "bcd"], pa.large_string()), 0),
        (pa.array([1, 2]), 0),
        (pa.array([["abc", "d"], [], ["e"]]), 1),
        (pa.array([["a"], [], ["bcde"]]), 4),
        (pa.array([["a"], [], ["bcde"]], pa.large_list(pa.string())), 4),
        (pa.array([["a", "b"], ["c", "defg"]], pa.list_(pa.string(), 2)), 5),
        (pa.array([{"s": "a"}, {"s": "bcd"}]), 3),
        (pa.array([[("a", 1)], [("bc", 2), ("d", 3)]], pa.map_(pa.string(), pa.int64())), 3),
        (pa.array(["{}", "[1]"], pa.json_()), 3),
    ],
)
def test_how_much_some_rows_take(array, expected):
    rows = np.arange(1, len(array))
    assert extent(array, rows, rows + 1) == expected
    sliced = array.slice(1)
    assert extent(sliced, rows - 1, rows) == expected
    assert sizes(pa.record_batch([sliced], ["p"])).tolist() == [expected]
