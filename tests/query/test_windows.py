"""Windows' arithmetic: lengths and times as users give them, ticks, partners and expiry, all against the oracle."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta

import numpy as np
import oracle
import pandas as pd
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet import hopping, last, tumbling, within
from watersmeet.query.durations import UNIT_NS, duration

TOP, BOTTOM = 2**63 - 1, -(2**63)
ONE = pa.schema([("ts", pa.timestamp("us"))])


def bound(window, arrow, other=None):
    return window.bind(pa.schema([("ts", arrow)]), pa.schema([("ts", other or arrow)]))


# ---------------------------------------------------------------------------------------------- lengths

FIVE = ["5 seconds", "5000 ms", timedelta(seconds=5), np.timedelta64(5, "s"), np.timedelta64(5000, "ms")]
FIVE += [np.timedelta64(5 * 10**9, "ns"), np.timedelta64(5 * 10**12, "ps"), pd.Timedelta(5, "s"), pd.Timedelta("5s")]


@pytest.mark.parametrize("length", FIVE, ids=repr)
def test_a_length_may_be_text_or_any_timedelta(length):
    assert within(length) == within("5 seconds")
    assert tumbling(length, lateness=length) == tumbling("5 seconds", lateness="5 seconds")


def test_lengths_keep_their_nanoseconds():
    assert duration(pd.Timedelta(1_000_000_001, "ns"), "before").amount == 1_000_000_001
    assert duration(np.timedelta64(7, "ns"), "before").amount == 7
    assert duration(np.timedelta64(2, "W"), "before") == duration("14 days", "before")


@pytest.mark.parametrize("number", [np.int64(5), np.int8(5), np.uint64(5)], ids=repr)
def test_whole_numbers_of_numpy_are_whole_numbers(number):
    assert within(number) == within(5) and last(number, number) == last(5)
    assert type(last(number).n) is int


@pytest.mark.parametrize(
    "length",
    [np.timedelta64("NaT"), np.timedelta64(5), np.timedelta64(5, "Y"), pd.NaT, 5.0, True, np.bool_(True), None],
)
def test_what_is_no_length_is_refused(length):
    with pytest.raises((ValueError, TypeError), match="before"):
        within(length)


@pytest.mark.parametrize("number", [5.0, True, "5", np.float64(5), np.bool_(True)], ids=repr)
def test_what_is_no_number_of_tuples_is_refused(number):
    with pytest.raises(TypeError, match="n must be a whole number"):
        last(number)


WRITTEN = [
    "within('10 seconds', time='ts', lateness='2 seconds')",
    "within('1500 microseconds', '0 seconds', time=('a', 'b'))",
    "within(10, 5, time='t', lateness=(1, 2))",
    "tumbling('1 minute', time='ts')",
    "hopping('1 hour', '5 minutes', time='ts', lateness=('1 second', '2 seconds'))",
    "last(100)",
    "last(100, 50)",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_window_shows_as_it_is_written(text):
    assert repr(eval(text)) == text


# ------------------------------------------------------------------------------------------------ times

MOMENT = datetime(2024, 2, 29, 13, 14, 15)
SAME = [MOMENT, "2024-02-29 13:14:15", np.datetime64(MOMENT), np.datetime64(MOMENT, "s"), np.datetime64(MOMENT, "ns")]
SAME += [pd.Timestamp(MOMENT), pa.scalar(MOMENT, pa.timestamp("s")), pa.scalar(MOMENT, pa.timestamp("ns"))]


@pytest.mark.parametrize("unit", UNIT_NS)
@pytest.mark.parametrize("value", SAME, ids=repr)
def test_a_time_may_be_given_in_any_way(value, unit):
    tick = bound(within("1 second"), pa.timestamp(unit)).tick(value, "left")
    assert tick == 1709212455 * 10**9 // UNIT_NS[unit]


def test_days_months_and_years_are_their_beginning():
    window = bound(within("1 second"), pa.timestamp("s"))
    for value in (date(2024, 1, 1), np.datetime64("2024"), np.datetime64("2024-01"), np.datetime64("2024-01-01")):
        assert window.tick(value, "left") == 1704067200
    assert window.tick(pa.scalar(date(2024, 1, 1)), "left") == 1704067200
    assert window.tick(np.datetime64(2_999_999_999_999, "ps"), "left") == 2
    assert window.tick(np.datetime64("1969-12-31T23:59:59.5"), "left") == -1  # downwards, also before 1970


def test_a_time_beyond_the_ticks_is_refused():
    nanos, seconds = (bound(within("1 second"), pa.timestamp(unit)) for unit in ("ns", "s"))
    for value in (datetime(9999, 1, 1), np.datetime64("2500-01-01"), np.datetime64("1000-01-01", "us"), "0001-01-01"):
        assert seconds.tick(value, "left") == int(np.datetime64(value, "s").astype(np.int64))
        with pytest.raises(ValueError, match="left.*int64 ns"):
            nanos.tick(value, "left")
    with pytest.raises(ValueError, match="left"):
        seconds.tick(np.datetime64(TOP, "h"), "left")
    with pytest.raises(ValueError, match="left"):
        seconds.tick(np.datetime64(TOP // 2, "Y"), "left")
    whole = bound(within(1), pa.int64())
    assert whole.tick(TOP, "left") == TOP and whole.tick(np.int64(BOTTOM), "left") == BOTTOM
    for value in (TOP + 1, BOTTOM - 1, np.uint64(2**63)):
        with pytest.raises(ValueError, match="left.*int64"):
            whole.tick(value, "left")


NO_TIMES = [np.datetime64("NaT"), pd.NaT, pa.scalar(None, pa.timestamp("us")), "noon", "", 5, 5.0, True, b"x"]
NO_TIMES += [MOMENT.replace(tzinfo=UTC), pa.scalar(5), pa.scalar("2024-01-01"), timedelta(1), np.timedelta64(1, "s")]


@pytest.mark.parametrize("value", NO_TIMES, ids=repr)
def test_what_is_no_time_is_refused(value):
    with pytest.raises((ValueError, TypeError), match="left must be a time") as error:
        bound(within("1 second"), pa.timestamp("us")).tick(value, "left")
    assert type(error.value) in (ValueError, TypeError)


def test_durations_as_times():
    window = bound(within("1 second"), pa.duration("ms"))
    for value in (
        timedelta(seconds=-2),
        np.timedelta64(-2, "s"),
        pd.Timedelta(-2, "s"),
        pa.scalar(timedelta(seconds=-2)),
    ):
        assert window.tick(value, "left") == -2000
    for value in (np.timedelta64("NaT"), pd.NaT, MOMENT, 5):
        with pytest.raises((ValueError, TypeError), match="left"):
            window.tick(value, "left")


def test_advance_refuses_what_is_no_time_and_changes_nothing():
    join = wm.StreamJoin("true", within("1 second"), how="anti", left_schema=ONE, right_schema=ONE)
    join.push(left=pa.table({"ts": [MOMENT]}, schema=ONE))
    for value in (np.datetime64("NaT"), pd.NaT, np.datetime64(TOP, "D")):
        with pytest.raises(ValueError, match="right"):
            join.advance(right=value)
    assert join.metrics.watermark is None
    assert len(join.advance(left="2024-03-01 00:00:00", right=np.datetime64("2024-03-01"))) == 1


@pytest.mark.parametrize(
    "arrow", [pa.timestamp(unit) for unit in UNIT_NS] + [pa.duration("s"), pa.timestamp("us", "UTC")]
)
@pytest.mark.parametrize("lateness", ["1 second", "3000 days", "1000000 weeks", "99999999999999 weeks"])
def test_any_lateness_has_a_watermark_that_shows(arrow, lateness):
    values = pa.array([0, 10**9, 2 * 10**9], pa.int64()).cast(arrow)
    batch = pa.table({"ts": values})
    join = wm.StreamJoin("true", within("1 second", lateness=lateness), how="full", output="count")
    join.push(left=batch)
    join.push(right=batch)
    shown = join.metrics.watermark
    assert str(shown) and repr(join.metrics)
    if lateness == "1 second":
        assert shown.value == 2 * 10**9 - 10**9 // UNIT_NS[arrow.unit]
    join.close()


# ------------------------------------------------------------------------------------- partners, expiry

WINDOWS = [
    (within("1500 us"), "ms"),
    (within("1500 us", "2999 us"), "ms"),
    (within("999 ns"), "us"),
    (within("1500 ms"), "s"),
    (hopping("1500 ms", "500 ms"), "s"),
    (hopping("1500 ms", "400 ms"), "s"),
    (hopping("2500 us", "1 ms"), "ms"),
    (hopping("500 ms", "1500 ms"), "s"),  # gaps
    (tumbling("1500 ms"), "s"),
    (tumbling("3 s"), "s"),
    (hopping("10 s", "4 s"), "s"),
]


def in_nanoseconds(window):
    if isinstance(window, type(within(1))):
        return oracle.Within(window.before.amount, window.after.amount)
    return oracle.Hopping(window.size.amount, window.slide.amount)


@pytest.mark.parametrize("window, unit", WINDOWS, ids=lambda part: str(part))
def test_lengths_finer_than_the_columns_unit_are_kept_exactly(window, unit):
    true = in_nanoseconds(window)
    spec = bound(window, pa.timestamp(unit))
    step = UNIT_NS[unit]
    times = list(range(-9, 10))
    batch = pa.record_batch({"ts": pa.array(times, pa.int64()).cast(pa.timestamp(unit))})
    ticks = {side: spec.read(batch, side) for side in ("left", "right")}
    low, high = spec.partners("left", ticks["left"])
    back, ahead = spec.partners("right", ticks["right"])
    for i, j in itertools.product(range(len(times)), repeat=2):
        expected = true.together(times[i] * step, times[j] * step)
        assert (low[i] <= ticks["right"][j] <= high[i]) == expected, (times[i], times[j])
        assert (back[j] <= ticks["left"][i] <= ahead[j]) == expected, (times[i], times[j])
    for side, greatest in (("left", high), ("right", ahead)):
        assert (np.diff(greatest) >= 0).all()
        for watermark in range(int(ticks[side][0]), int(ticks[side][-1])):
            gone = ticks[side] < spec.expired_below(side, watermark)
            kept = greatest >= watermark
            in_a_window = greatest >= ticks[side]  # one in a gap may go at once
            assert (gone == ~kept)[in_a_window].all(), watermark


@pytest.mark.parametrize("window, unit", [(within("1500 us"), "ms"), (hopping("1500 ms", "500 ms"), "s")], ids=str)
def test_so_does_a_join(window, unit):
    true, step = in_nanoseconds(window), UNIT_NS[unit]
    times = list(range(8))
    batch = pa.table({"ts": pa.array(times, pa.int64()).cast(pa.timestamp(unit))})
    found = wm.StreamJoin("true", window, output="pairs").push(left=batch, right=batch)
    pairs = set(zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True))
    expected = {(i, j) for i, j in itertools.product(times, repeat=2) if true.together(i * step, j * step)}
    assert pairs == expected


@pytest.mark.parametrize("delta", [0, 1, 5, TOP, 3 * TOP, 10**30])
def test_partners_stop_at_the_ends_of_int64(delta):
    ticks = np.array([BOTTOM, BOTTOM + 1, -1, 0, 1, TOP - 1, TOP])
    low, high = bound(within(delta), pa.int64()).partners("left", ticks)
    assert low.tolist() == [max(t - delta, BOTTOM) for t in ticks.tolist()]
    assert high.tolist() == [min(t + delta, TOP) for t in ticks.tolist()]


def test_both_sides_may_have_their_own_unit():
    window = bound(within("1500 us", "500 us"), pa.timestamp("ms"), pa.timestamp("us"))
    left = window.read(pa.record_batch({"ts": pa.array([1, 2], pa.int64()).cast(pa.timestamp("ms"))}), "left")
    assert left.tolist() == [1000, 2000]
    assert [each.tolist() for each in window.partners("left", left)] == [[-500, 500], [1500, 2500]]
    assert [each.tolist() for each in window.partners("right", left)] == [[500, 1500], [2500, 3500]]


# ---------------------------------------------------------------------------------------- reading ticks

COLUMNS = [
    pa.timestamp("us"),
    pa.timestamp("ms"),
    pa.timestamp("us", "UTC"),
    pa.duration("us"),
    pa.date32(),
    pa.date64(),
]
COLUMNS += [pa.int64(), pa.int32(), pa.uint64(), pa.uint8()]


@pytest.mark.parametrize("arrow", COLUMNS, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("finer", [False, True])
def test_ticks_of_a_slice_are_those_of_its_rows(arrow, nulls, finer):
    """The rows before and after the slice may be null; they are not read."""
    day = 86_400_000 if arrow == pa.date64() else 1
    values = [None if nulls else 9 * day, 1 * day, 2 * day, 3 * day, 4 * day, None if nulls else 8 * day]
    width = pa.int32() if arrow == pa.date32() else pa.int64()
    raw = pa.array(values, width)
    column = raw.cast(arrow) if pa.types.is_integer(arrow) else raw.view(arrow)
    assert (column.null_count > 0) == nulls
    whole = pa.types.is_integer(arrow)
    zone = getattr(arrow, "tz", None)
    other = (
        arrow if whole or not finer else pa.duration("ns") if pa.types.is_duration(arrow) else pa.timestamp("ns", zone)
    )
    window = bound(within(1 if whole else "1 second"), arrow, other)
    batch = pa.record_batch({"ts": column}).slice(1, 4).slice(1, 3)
    unit = 1 if whole else {pa.date32(): 86_400 * 10**9, pa.date64(): 10**6}.get(arrow) or UNIT_NS[arrow.unit]
    tick = 1 if whole else UNIT_NS[window.unit]
    assert window.read(batch, "left").tolist() == [v * day * unit // tick for v in (2, 3, 4)]
    assert window.read(batch.slice(3), "left").tolist() == []
    if nulls:
        with pytest.raises(ValueError, match="null in row 3"):
            window.read(pa.record_batch({"ts": column}).slice(2), "left")


@pytest.mark.parametrize(
    "arrow, factor", [(pa.timestamp("s"), 10**9), (pa.date32(), 86_400 * 10**9), (pa.date64(), 10**6)], ids=str
)
def test_times_that_the_finer_unit_cannot_hold_are_refused(arrow, factor):
    window = bound(within("1 second"), arrow, pa.timestamp("ns"))
    limit = TOP // factor

    def read(value):
        width = pa.int32() if arrow == pa.date32() else pa.int64()
        return window.read(pa.record_batch({"ts": pa.array([0, value], width).view(arrow)}), "left").tolist()

    assert read(limit) == [0, limit * factor] and read(-limit) == [0, -limit * factor]
    for value in (limit + 1, -limit - 1):
        with pytest.raises(ValueError, match="left.*beyond int64 ns"):
            read(value)


def test_unsigned_times_beyond_int64_are_refused():
    window = bound(within(1), pa.uint64())
    assert window.read(pa.record_batch({"ts": pa.array([TOP], pa.uint64())}), "left").tolist() == [TOP]
    with pytest.raises(ValueError, match="right.*beyond int64"):
        window.read(pa.record_batch({"ts": pa.array([TOP + 1], pa.uint64())}), "right")


@pytest.mark.parametrize("window", [within(3, 7), within(0, 4), within(9), tumbling(5), hopping(6, 2)], ids=repr)
def test_a_tuple_waits_as_long_as_partners_may_come(window):
    spec = bound(window, pa.int64())
    ticks = np.arange(1000, 1060)
    for side in ("left", "right"):
        _, high = spec.partners(side, ticks)
        longest = int((high - ticks).max())
        fixed_ends = not isinstance(window, type(within(1)))  # from its first tick to its end, which is not in it
        assert spec.lifetime(side) == longest + fixed_ends
