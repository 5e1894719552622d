"""The contract's sentences one by one, with answers worked out by hand (an oracle may share a misreading)."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm


def times(*values, name="ts", type_=None):
    return pa.table({name: pa.array(values, type_ or pa.int64())})


SCHEMA = times().schema


def pairs(join, **push):
    table = join.push(**push)
    return sorted(zip(table["left"].to_pylist(), table["right"].to_pylist(), strict=True), key=str)


def everything(window, how="inner", **options):
    given = {"output": "pairs", "left_schema": SCHEMA, "right_schema": SCHEMA}
    return wm.StreamJoin("true", window, how, **(given | options))


def as_pairs(table):
    right = table["right"].to_pylist() if "right" in table.column_names else [None] * table.num_rows
    return sorted(zip(table["left"].to_pylist(), right, strict=True), key=str)


# --------------------------------------------------------------------------------------------- windows


def test_within_includes_both_ends():
    join = everything(wm.within(3, 1))
    assert pairs(join, left=times(10)) == []
    assert pairs(join, right=times(6, 7, 8, 10, 11, 12)) == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_within_looks_as_far_after_as_before_if_not_told_otherwise():
    join = everything(wm.within(3))
    join.push(left=times(10))
    assert pairs(join, right=times(6, 7, 13, 14)) == [(0, 1), (0, 2)]


def test_within_zero_pairs_equal_times_only():
    join = everything(wm.within(0))
    join.push(left=times(9, 10, 11))
    assert pairs(join, right=times(10)) == [(1, 0)]


def test_within_can_look_one_way_only():
    join = everything(wm.within(0, 5, lateness=100))
    join.push(left=times(10))
    assert pairs(join, right=times(9, 10, 15, 16)) == [(0, 1), (0, 2)]
    assert pairs(join, left=times(4, 5)) == [(1, 0), (2, 0), (2, 1)]


def test_last_counts_each_stream_by_itself():
    join = everything(wm.last(2, 1))
    assert pairs(join, left=times(0, 0, 0)) == []
    assert pairs(join, right=times(0, 0)) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert pairs(join, left=times(0)) == [(3, 1)]
    assert pairs(join, right=times(0)) == [(2, 2), (3, 2)]


def test_last_takes_the_left_rows_of_a_push_before_its_right_rows():
    join = everything(wm.last(1))
    assert pairs(join, left=times(0, 0), right=times(0, 0)) == [(1, 0), (1, 1)]
    assert pairs(join, left=times(0, 0), right=times(0)) == [(2, 1), (3, 1), (3, 2)]


def test_tumbling_pairs_within_an_aligned_interval():
    join = everything(wm.tumbling(10))
    join.push(left=times(-1, 0, 9, 10))
    assert pairs(join, right=times(-10, -1, 5, 19)) == [(0, 0), (0, 1), (1, 2), (2, 2), (3, 3)]


def test_hopping_produces_a_pair_once_however_many_windows_share_it():
    # windows ..., [-4, 6), [0, 10), [4, 14), [8, 18), ...
    join = everything(wm.hopping(10, 4))
    join.push(left=times(8))
    assert pairs(join, right=times(0, 1, 8, 9, 17, 18)) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4)]


def test_hopping_with_a_slide_greater_than_the_size_leaves_gaps():
    # windows [0, 3), [5, 8), [10, 13), ...
    join = everything(wm.hopping(3, 5))
    join.push(left=times(2, 3, 4, 5))
    assert pairs(join, right=times(0, 3, 4, 7)) == [(0, 0), (3, 3)]


END = 2**63  # a multiple of 8


@pytest.mark.parametrize(
    ("window", "t", "together"),
    [
        (wm.within(10), END - 1, True),
        (wm.within(10), -END, True),
        (wm.hopping(1, 8), END - 8, True),
        (wm.hopping(1, 8), END - 5, False),
        (wm.hopping(1, 8), END - 1, False),
        (wm.hopping(1, 8), -END, True),
        (wm.hopping(1, 8), -END + 3, False),
        (wm.hopping(12, 8), END - 1, True),
        (wm.hopping(12, 8), -END, True),
        (wm.tumbling(7), END - 1, True),
        (wm.tumbling(7), -END, True),
    ],
    ids=str,
)
def test_a_window_may_begin_or_end_beyond_int64(window, t, together):
    join = everything(window, "full")
    found = as_pairs(join.push(left=times(t), right=times(t))) + as_pairs(join.close())
    assert found == ([(0, 0)] if together else [(0, None), (None, 0)])


@pytest.mark.parametrize(("width", "expected"), [(END - 1, 5), (END, 7), (2 * END - 1, 9), (10**30, 9)])
def test_a_window_may_be_wider_than_int64(width, expected):
    join = everything(wm.within(width))
    ends = times(-END, 0, END - 1)
    assert join.push(left=ends, right=ends).num_rows == expected


# -------------------------------------------------------------------------------------- time and lateness


def test_nothing_is_late_before_both_streams_have_a_tuple():
    join = everything(wm.within(5))
    join.push(left=times(100, 1, 50))
    assert join.metrics.late_left == 0
    assert pairs(join, right=times(3)) == [(1, 0)]
    # now the join watermark is 3 (the right stream)
    assert pairs(join, left=times(2, 4)) == [(4, 0)]
    assert join.take_late("left").to_pydict() == {"ts": [2]}


def test_a_late_tuple_is_left_out_counted_and_kept_for_the_caller():
    join = everything(wm.within(5, lateness=2))
    join.push(left=times(10), right=times(10))
    # the join watermark is 8
    assert pairs(join, left=times(8, 7)) == [(1, 0)]
    assert join.metrics.late_left == 1
    assert join.take_late("left").to_pydict() == {"ts": [7]}
    assert join.take_late("left").num_rows == 0
    assert join.metrics.late_left == 1
    # positions count late tuples too
    assert pairs(join, left=times(9)) == [(3, 0)]


def test_lateness_is_judged_tuple_by_tuple_in_a_push():
    join = everything(wm.within(100))
    join.push(right=times(50))
    assert pairs(join, left=times(10, 30, 20, 30)) == [(0, 0), (1, 0), (3, 0)]
    assert join.take_late("left").to_pydict() == {"ts": [20]}


def test_each_stream_may_have_its_own_lateness():
    join = everything(wm.within(100, lateness=(0, 20)))
    join.push(left=times(50), right=times(50))
    # left watermark 50, right watermark 30, join watermark 30
    join.push(left=times(30), right=times(30))
    assert (join.metrics.late_left, join.metrics.late_right) == (0, 0)
    join.push(left=times(29), right=times(29))
    assert (join.metrics.late_left, join.metrics.late_right) == (1, 1)


def test_the_slower_stream_holds_the_join_watermark_back():
    join = everything(wm.within(5))
    join.push(left=times(1000), right=times(10))
    assert pairs(join, left=times(10, 15, 16)) == [(1, 0), (2, 0)]


def test_advance_moves_time_without_data():
    join = everything(wm.within(5), "left")
    join.push(left=times(10, 20))
    assert as_pairs(join.advance(right=15)) == []
    assert as_pairs(join.advance(right=16)) == [(0, None)]
    join.push(right=times(15))
    assert join.metrics.late_right == 1


def test_advance_never_moves_time_back():
    join = everything(wm.within(5), "left")
    join.push(left=times(10, 50), right=times(40))
    join.advance(right=1)
    join.push(right=times(39))
    assert join.metrics.late_right == 1


def test_the_two_sides_may_name_their_time_differently():
    join = wm.StreamJoin("true", wm.within(1, time=("sent", "seen")), output="pairs")
    join.push(left=times(5, name="sent"))
    assert pairs(join, right=times(6, 7, name="seen")) == [(0, 0)]


@pytest.mark.parametrize(
    ("type_", "span", "inside", "outside"),
    [
        (pa.int32(), 2, (10, 12), (10, 13)),
        (pa.uint32(), 2, (2**32 - 3, 2**32 - 1), (2**32 - 4, 2**32 - 1)),
        (pa.int8(), 2, (125, 127), (124, 127)),
        (pa.timestamp("s"), "2 seconds", (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 2)), None),
        (
            pa.timestamp("ms"),
            "2 minutes",
            (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 2)),
            (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 2, 0, 1000)),
        ),
        (
            pa.timestamp("us", tz="UTC"),
            timedelta(hours=2),
            (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, 1, tzinfo=UTC)),
            (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ),
        (
            pa.timestamp("ns"),
            "2 microseconds",
            (datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 2)),
            None,
        ),
        (pa.date32(), "2 days", (date(2024, 2, 28), date(2024, 3, 1)), (date(2024, 2, 27), date(2024, 3, 1))),
        (pa.date64(), "2 days", (date(2024, 2, 28), date(2024, 3, 1)), (date(2024, 2, 27), date(2024, 3, 1))),
    ],
    ids=str,
)
@pytest.mark.parametrize("early_side", ["left", "right"])
def test_time_columns_of_every_type(type_, span, inside, outside, early_side):
    for moments, expected in ((inside, [(0, 0)]), (outside, [])):
        if moments is None:
            continue
        join = wm.StreamJoin("true", wm.within(span), output="pairs")
        early, late = (times(moment, type_=type_) for moment in moments)
        sides = {"left": early, "right": late} if early_side == "left" else {"left": late, "right": early}
        assert pairs(join, **sides) == expected
        assert join.close().num_rows == 0


def test_times_of_different_units_meet():
    join = wm.StreamJoin("true", wm.within("1 second"), output="pairs")
    left = times(datetime(2024, 1, 1), type_=pa.timestamp("s"))
    right = times(datetime(2024, 1, 1, 0, 0, 1), datetime(2024, 1, 1, 0, 0, 1, 1), type_=pa.timestamp("ns"))
    assert pairs(join, left=left, right=right) == [(0, 0)]


# ------------------------------------------------------------------------------------------ join types


def keyed(*rows):
    return pa.table(
        {
            "ts": pa.array([row[0] for row in rows], pa.int64()),
            "k": pa.array([row[1] for row in rows], pa.int64()),
        }
    )


def keyed_join(how, window=None, **options):
    given = {"output": "pairs", "left_schema": keyed().schema, "right_schema": keyed().schema}
    return wm.StreamJoin("l.k = r.k", window or wm.within(5), how, **(given | options))


def test_a_row_without_partner_comes_out_once_the_watermark_passes_its_window():
    join = keyed_join("full")
    assert as_pairs(join.push(left=keyed((10, 1)), right=keyed((10, 2)))) == []
    assert as_pairs(join.push(left=keyed((15, 3)), right=keyed((15, 4)))) == []  # 15 may still meet 10
    assert as_pairs(join.push(left=keyed((16, 3)))) == []  # the right stream stands at 15
    assert as_pairs(join.push(right=keyed((16, 4)))) == [(0, None), (None, 0)]
    assert as_pairs(join.close()) == [(1, None), (2, None), (None, 1), (None, 2)]


def test_an_asymmetric_window_decides_the_two_sides_at_different_times():
    join = keyed_join("full", wm.within(0, 10))  # a left tuple waits for later right ones, not the reverse
    join.push(left=keyed((10, 1)), right=keyed((10, 2)))
    assert as_pairs(join.push(left=keyed((11, 3)), right=keyed((11, 4)))) == [(None, 0)]
    assert as_pairs(join.push(left=keyed((20, 3)), right=keyed((20, 4)))) == [(None, 1)]
    last = as_pairs(join.push(left=keyed((21, 3)), right=keyed((21, 3))))
    assert last == [(0, None), (1, 3), (2, 3), (3, 3), (None, 2)]


def test_a_matched_row_is_not_null_extended_when_it_leaves():
    join = keyed_join("left")
    assert as_pairs(join.push(left=keyed((10, 1), (10, 2)), right=keyed((10, 1)))) == [(0, 0)]
    assert as_pairs(join.advance(left=100, right=100)) == [(1, None)]
    assert as_pairs(join.close()) == []


def test_a_null_key_never_matches_but_its_row_stays_in_an_outer_join():
    join = keyed_join("full")
    assert as_pairs(join.push(left=keyed((1, None)), right=keyed((1, None)))) == []
    assert as_pairs(join.close()) == [(0, None), (None, 0)]


def test_semi_gives_a_row_once_at_its_first_match():
    join = keyed_join("semi")
    assert as_pairs(join.push(left=keyed((10, 1), (10, 2)))) == []
    assert as_pairs(join.push(right=keyed((10, 1), (10, 1)))) == [(0, None)]
    assert as_pairs(join.push(right=keyed((11, 1)))) == []
    assert as_pairs(join.push(left=keyed((12, 1)))) == [(2, None)]
    assert as_pairs(join.close()) == []


def test_anti_gives_a_row_when_no_match_can_come():
    join = keyed_join("anti")
    assert as_pairs(join.push(left=keyed((10, 1), (10, 2)), right=keyed((10, 1)))) == []
    assert as_pairs(join.push(left=keyed((16, 1)), right=keyed((16, 3)))) == [(1, None)]
    assert as_pairs(join.close()) == [(2, None)]


def test_last_decides_a_row_when_it_leaves_the_last_n_of_its_own_stream():
    join = keyed_join("full", wm.last(2, 1))
    assert as_pairs(join.push(left=keyed((0, 1), (0, 2)))) == []
    assert as_pairs(join.push(right=keyed((0, 9)))) == []
    assert as_pairs(join.push(left=keyed((0, 3)))) == [(0, None)]
    assert as_pairs(join.push(right=keyed((0, 2)))) == [(1, 1), (None, 0)]
    assert as_pairs(join.close()) == [(2, None)]


def test_a_one_sided_term_filters_matches_not_rows():
    schema = keyed().schema
    options = {"output": "pairs", "left_schema": schema, "right_schema": schema}
    join = wm.StreamJoin("l.k > 1 and l.k = r.k", wm.within(5), "left", **options)
    assert as_pairs(join.push(left=keyed((0, 1), (0, 2)), right=keyed((0, 1), (0, 2)))) == [(1, 1)]
    assert as_pairs(join.close()) == [(0, None)]


# --------------------------------------------------------------------------------------------- columns


def test_left_columns_come_first_and_a_colliding_right_name_gets_the_suffix():
    left = pa.table({"ts": [1], "k": [1], "a": ["x"]})
    right = pa.table({"k": [1], "ts": [2], "b": [1.5]})
    expected = {"ts": [1], "k": [1], "a": ["x"], "k_right": [1], "ts_right": [2], "b": [1.5]}
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    assert join.push(left=left, right=right).to_pydict() == expected
    join = wm.StreamJoin("l.k = r.k", wm.within(5), suffix=".r")
    assert join.push(left=left, right=right).column_names == ["ts", "k", "a", "k.r", "ts.r", "b"]


def test_semi_and_anti_have_the_left_columns_only():
    left = pa.table({"ts": [1, 1], "k": [1, 2], "a": ["x", "y"]})
    right = pa.table({"ts": [1], "k": [1], "b": [1.5]})
    semi = wm.StreamJoin("l.k = r.k", wm.within(5), "semi")
    assert semi.push(left=left, right=right).to_pydict() == {"ts": [1], "k": [1], "a": ["x"]}
    anti = wm.StreamJoin("l.k = r.k", wm.within(5), "anti")
    assert anti.push(left=left, right=right).num_rows == 0
    assert anti.close().to_pydict() == {"ts": [1], "k": [2], "a": ["y"]}


def test_a_side_that_never_comes_needs_its_schema():
    left, right = pa.table({"ts": [1, 50]}), pa.schema({"ts": pa.int64(), "b": pa.string()})
    join = wm.StreamJoin("true", wm.within(5), "left", right_schema=right)
    assert join.push(left=left).num_rows == 0
    assert join.advance(right=20).to_pydict() == {"ts": [1], "ts_right": [None], "b": [None]}
    assert join.close().to_pydict() == {"ts": [50], "ts_right": [None], "b": [None]}


def test_close_may_be_the_only_call():
    schema = pa.schema({"ts": pa.int64()})
    with wm.StreamJoin("true", wm.within(5), "full", left_schema=schema, right_schema=schema) as join:
        assert join.close().num_rows == 0


def test_a_batch_of_many_windows_may_end_with_int64():
    ticks = END - 1 - np.arange(20_000, dtype=np.int64)[::-1] * 1000
    batch = pa.table({"ts": ticks})
    join = wm.StreamJoin("true", wm.within(999), output="pairs")
    got = join.push(left=batch, right=batch)
    assert got["left"].to_pylist() == got["right"].to_pylist()
    assert sorted(got["left"].to_pylist()) == list(range(20_000))
