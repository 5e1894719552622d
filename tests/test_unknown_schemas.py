"""Before the columns of both streams are known: answers, late rows and times that a stream has reached."""

from datetime import datetime

import pyarrow as pa
import pytest

import watersmeet as wm

LEFT = pa.table({"ts": [1, 2], "k": [1, 2]})
RIGHT = pa.table({"ts": [1, 2], "k": [2, 3], "x": ["a", "b"]})


@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_early_and_later_answers_go_together(how, first):
    pushes = [{"left": LEFT}, {"right": RIGHT}]
    join = wm.StreamJoin("l.k = r.k", wm.within(5), how)
    answers = [join.flush()]
    answers += [join.push(**push) for push in (pushes if first == "left" else pushes[::-1])]
    answers.append(join.close())
    whole = pa.concat_tables(answers, promote_options="default")
    assert whole.schema == join.schema
    together = wm.StreamJoin("l.k = r.k", wm.within(5), how, left_schema=LEFT.schema, right_schema=RIGHT.schema)
    expected = [together.push(left=LEFT), together.push(right=RIGHT), together.close()]
    key = repr
    assert sorted(whole.to_pylist(), key=key) == sorted(pa.concat_tables(expected).to_pylist(), key=key)


@pytest.mark.parametrize("options", [{"output": "pairs"}, {"how": "semi"}, {"how": "anti"}, {"self_join": True}])
def test_where_the_columns_are_known_plain_concatenation_will_do(options):
    join = wm.StreamJoin("l.k = r.k", wm.within(5), **options)
    answers = [join.push(LEFT)]
    answers.append(join.flush())
    if not options.get("self_join"):
        answers.append(join.push(right=RIGHT))
    answers.append(join.close())
    assert pa.concat_tables(answers).schema == join.schema


def test_an_answer_before_the_columns_are_known_has_none():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    for answer in (join.push(right=RIGHT), join.advance(left=1), join.flush()):
        assert (answer.num_rows, answer.num_columns) == (0, 0)


def test_take_late_before_the_first_push():
    join = wm.StreamJoin("l.k = r.k", wm.within(5), right_schema=RIGHT.schema)
    assert join.take_late("left").num_columns == 0
    assert join.take_late("right") == RIGHT.slice(0, 0)
    join.push(left=LEFT)
    assert join.take_late("left") == LEFT.slice(0, 0)
    assert wm.StreamJoin("l.k = r.k", wm.within(5), self_join=True).take_late().num_rows == 0


def seconds(*times):
    return pa.table({"ts": pa.array(times, pa.timestamp("s")), "a": list(times)})


def micros(*times):
    return pa.table({"ts": pa.array([int(1e6 * t) for t in times], pa.timestamp("us")), "b": list(times)})


@pytest.mark.parametrize(
    "reached",
    [datetime(1970, 1, 1, 0, 3, 20), pa.scalar(200, pa.timestamp("s")), "1970-01-01T00:03:20"],
    ids=["datetime", "scalar", "text"],
)
@pytest.mark.parametrize("coarse", ["left", "right"])
def test_a_time_reached_before_the_units_are_known_makes_rows_late(coarse, reached):
    fine = "right" if coarse == "left" else "left"
    join = wm.StreamJoin("true", wm.within("1 hour"))
    join.push(**{coarse: seconds(200)})
    join.advance(**{fine: reached})
    found = join.push(**{fine: micros(100, 199.999999, 200)})
    assert found["b"].to_pylist() == [200]
    assert join.take_late(fine)["b"].to_pylist() == [100, 199.999999]
    assert getattr(join.metrics, f"late_{fine}") == 2


def test_a_time_reached_is_as_fine_as_the_finer_column_though_the_coarser_was_known():
    join = wm.StreamJoin("true", wm.within("1 hour"))
    join.push(left=seconds(201))
    join.advance(right=datetime(1970, 1, 1, 0, 3, 20, 500_000))
    assert join.push(right=micros(200.499999, 200.5))["b"].to_pylist() == [200.5]


def test_a_time_that_is_none_is_refused_at_once():
    join = wm.StreamJoin("true", wm.within("1 hour"))
    join.push(left=seconds(200))
    for bad in (5, "noon", pa.scalar(None, pa.timestamp("s"))):
        with pytest.raises((ValueError, TypeError)):
            join.advance(right=bad)
    assert join.push(right=micros(100)).num_rows == 1


@pytest.mark.parametrize("how, side", [("left", "left"), ("right", "right"), ("full", "left"), ("full", "right")])
def test_pairs_of_a_stream_whose_other_side_never_came(how, side):
    join = wm.StreamJoin("l.k = r.k", wm.last(5), how, output="pairs")
    join.push(**{side: pa.table({"k": [7, 8, 9]})})
    alone = {"left": [None] * 3, "right": [None] * 3, side: [0, 1, 2]}
    assert join.close().to_pydict() == alone


@pytest.mark.parametrize("output", ["rows", "pairs", "count"])
def test_left_rows_without_a_partner_come_out_though_the_right_stream_never_came(output):
    """Those of an anti join: the other stream's columns are not in the answer."""
    join = wm.StreamJoin("l.k = r.k", wm.within(5), "anti", output=output)
    join.push(left=LEFT)
    found = join.close()
    assert found == 2 if output == "count" else found.to_pydict() == (
        {"left": [0, 1]} if output == "pairs" else LEFT.to_pydict()
    )  # fmt: skip
    never = wm.StreamJoin("l.k = r.k", wm.within(5), "anti", output=output)
    never.push(right=RIGHT)
    none = never.close()
    assert (none if output == "count" else none.num_rows) == 0


def test_numbers_have_no_schema():
    join = wm.StreamJoin("l.k = r.k", wm.within(5), output="count")
    assert join.schema is None
    batch = pa.table({"ts": [1], "k": [1]})
    assert join.push(batch, batch) == 1
    assert join.schema is None
