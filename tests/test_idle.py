"""A stream that falls silent: `idle_after` says how far it may be behind before the other waits no longer.

That the answer is the brute-force one is tested by the contract, whose windows have it, too.
"""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import INFINITY, joint_watermark

import watersmeet as wm
from watersmeet.window.ticks import span_of
from watersmeet.window.watermark import Watermarks

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])


def rows(*times):
    return pa.table({"ts": pa.array(times, pa.int64()), "k": pa.array([1] * len(times), pa.int64())})


def join(**window):
    schemas = {"left_schema": SCHEMA, "right_schema": SCHEMA}
    return wm.StreamJoin("l.k = r.k", wm.within(3, **window), "left", subwindow_rows=10, **schemas)


@pytest.mark.parametrize(
    "left, right, idle_after, expected",
    [
        (100, 95, (10, 10), 95),  # not idle
        (100, 90, (10, 10), 90),  # just not
        (100, 89, (10, 10), 90),
        (89, 100, (10, 10), 90),
        (100, None, (10, 10), 90),  # has shown nothing yet
        (None, 100, (10, 10), 90),
        (None, None, (10, 10), None),
        (100, 3, (0, 0), 100),
        (100, 3, (10, None), 3),  # the right one is waited for, however long it takes
        (3, 100, (10, None), 90),
        (100, None, (10, None), None),
        (100, None, (None, 7), 93),
    ],
)
def test_the_watermark_of_the_join(left, right, idle_after, expected):
    marks = Watermarks({"left": 0, "right": 0}, dict(zip(("left", "right"), idle_after, strict=True)))
    for side, time in (("left", left), ("right", right)):
        if time is not None:
            marks.observe(side, time)
    assert marks.join == expected
    by_definition = joint_watermark(*(-INFINITY if t is None else t for t in (left, right)), idle_after)
    assert by_definition == (-INFINITY if expected is None else expected)


def test_state_stays_bounded_while_one_side_is_silent():
    """Without it, every row of the side that goes on is kept for ever."""
    for idle_after, kept in ((10, 40), (None, 1000)):
        with join(idle_after=idle_after) as one:
            out = sum(one.push(left=rows(*range(start, start + 10))).num_rows for start in range(0, 1000, 10))
            assert one.metrics.stored_left <= kept
            assert one.metrics.watermark == (989 if idle_after else None)
            assert out == (986 if idle_after else 0)  # null-extended, once 3 below the watermark


def test_what_comes_too_late_when_the_silent_side_wakes_up_is_counted_and_kept():
    with join(idle_after=10) as one:
        one.push(left=rows(*range(100)))
        matched = one.push(right=rows(50, 88, 89, 95))
        assert sorted(matched["ts_right"].to_pylist()) == [89] * 7 + [95] * 7
        assert one.metrics.late_right == 2
        assert one.take_late("right")["ts"].to_pylist() == [50, 88]


@given(
    ticks=st.lists(st.integers(-9, 9), min_size=1, max_size=9),
    start=st.sampled_from([0, -(2**63) + 9, 2**63 - 10]),
    seen=st.none() | st.integers(-9, 9),
    there=st.none() | st.integers(-30, 30),
    lateness=st.tuples(st.sampled_from([0, 3, 2**64]), st.sampled_from([0, 3])),
    idle_after=st.tuples(*[st.sampled_from([None, 0, 2, 12, 2**64])] * 2),
)
def test_lateness_is_judged_tuple_by_tuple(ticks, start, seen, there, lateness, idle_after):
    least, greatest = -(2**63), 2**63 - 1
    ticks = [start + tick for tick in ticks]
    marks = Watermarks(
        dict(zip(("left", "right"), lateness, strict=True)), dict(zip(("left", "right"), idle_after, strict=True))
    )
    known = {"left": -INFINITY, "right": -INFINITY}
    for side, offset, late_by in (("left", seen, lateness[0]), ("right", there, lateness[1])):
        if offset is not None:
            time = min(max(start + offset, least), greatest)
            marks.observe(side, time)
            known[side] = time - late_by
    expected = []
    for tick in ticks:
        expected.append(tick < joint_watermark(known["left"], known["right"], idle_after))
        known["left"] = max(known["left"], tick - lateness[0])
    array = np.array(ticks, np.int64)
    late = marks.late("left", array, span_of(array))
    assert expected == ([False] * len(ticks) if late is None else late.tolist())


def test_it_shows_travels_and_is_checked():
    window = wm.hopping("6 s", "2 s", idle_after=("1 minute", None))
    assert str(window) == "hopping 6 seconds every 2 seconds (time ts, lateness 0, idle after 1 minute and never)"
    assert pickle.loads(pickle.dumps(window)) == window
    assert str(wm.tumbling("6 s", idle_after="90 s")).endswith("idle after 90 seconds)")
    assert "idle" not in str(wm.within(5))
    with pytest.raises(ValueError, match="idle_after must not be negative, got -1"):
        wm.within(5, idle_after=-1)
    with pytest.raises(TypeError, match="idle_after must be a length of time, None, or a pair of them"):
        wm.within(5, idle_after=(1, 2, 3))
    with pytest.raises(ValueError, match="idle_after is not a length of time: 'soon'"):
        wm.within("5 s", idle_after="soon")
    with pytest.raises(TypeError, match=r"idle_after \(right\) must be a number such as 10"):
        join(idle_after=(None, "1 minute"))
