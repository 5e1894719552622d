"""Spark's clock and ours: what is late, when timers fire and which times can travel, to the millisecond."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark.clock import SHIFT, SparkClock, Timing, shown

SECOND = 1_000_000
TIMES = {
    "integers": (pa.int64(), 1000),  # type, microseconds of a tick
    "small integers": (pa.int32(), 1000),
    "microseconds": (pa.timestamp("us", "UTC"), 1),
    "milliseconds": (pa.timestamp("ms"), 1000),
    "dates": (pa.date32(), SECOND),  # ticks of dates are seconds
    "durations": (pa.duration("us"), 1),
}


def clock_of(kind, lateness=0):
    schema = pa.schema([("ts", TIMES[kind][0])])
    size = 1 if TIMES[kind][0] in (pa.int64(), pa.int32()) else "1 second"
    return SparkClock(wm.within(size, lateness=lateness).bind(schema, schema), Timing())


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("around", [0, -3_000_000, 7_777_777])
def test_a_tuple_is_late_if_its_time_is_below_the_watermark(kind, around):
    """Compared as fractions of a millisecond, before and after 1970, with watermarks on both sides of every tick."""
    micros = TIMES[kind][1]
    clock = clock_of(kind)
    for tick in range(around - 4, around + 5):
        real = tick * micros  # microseconds since 1970
        for behind in (-2, -1, 0, 1, 2, 500, 999, 1000, 1001):
            millisecond = real // 1000 + behind
            late = tick < clock.watermark("left", SHIFT + millisecond)
            assert late == (real < millisecond * 1000), (tick, millisecond)


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("around", [0, -3_000_000, 7_777_777])
def test_a_timer_is_the_first_millisecond_at_which_the_watermark_is_there(kind, around):
    clock = clock_of(kind)
    for tick in (*range(around - 1003, around - 997), *range(around - 4, around + 5)):
        timer = clock.timer("right", tick)
        assert clock.watermark("right", timer - 1) < tick <= clock.watermark("right", timer)


@pytest.mark.parametrize("kind", TIMES)
def test_times_travel_in_their_order_behind_1970_and_not_a_microsecond_off(kind):
    micros = TIMES[kind][1]
    clock = clock_of(kind)
    for tick in (clock.first, clock.first + 1, -1001, -1, 0, 1, 999, clock.last - 1, clock.last):
        assert clock.micros(tick) == tick * micros + SHIFT * 1000
        assert 1000 <= clock.micros(tick) < 2**63
    # Those beside them do not: their millisecond is not behind 0, or they are beyond what a timestamp holds.
    assert (clock.first - 1) * micros + SHIFT * 1000 < 1000
    assert (clock.last + 1) * micros + SHIFT * 1000 >= 2**63 - 1000


@pytest.mark.parametrize("kind", ["microseconds", "dates"])
def test_every_time_that_spark_knows_can_travel(kind):
    clock = clock_of(kind)
    for year, tick in ((1, clock.first), (9999, clock.last)):
        real = (datetime.datetime(year, 12, 31) - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)
        assert (tick <= real // TIMES[kind][1]) == (year == 1)


def test_nothing_is_late_before_there_is_a_watermark():
    for kind in TIMES:
        assert clock_of(kind).watermark("left", 0) is None
        assert clock_of(kind).watermark("left", -5) is None
        assert clock_of(kind).watermark("left", 1) is not None
        assert clock_of(kind).watermark("left", SHIFT) == 0  # 1970 is a time like any other


@pytest.mark.parametrize(
    "lateness, milliseconds",
    [("0 s", 0), ("1 ns", 1), ("1 us", 1), ("999 us", 1), ("1 ms", 1), ("1001 us", 2), ("2 seconds", 2000)],
)
def test_lateness_is_in_whole_milliseconds_and_never_less_than_asked_for(lateness, milliseconds):
    clock = clock_of("microseconds", (lateness, "5 seconds"))
    assert (clock.lateness("left"), clock.lateness("right")) == (milliseconds, 5000)


def test_integers_count_lateness_as_they_count_time():
    clock = clock_of("integers", (7, 0))
    assert (clock.lateness("left"), clock.lateness("right")) == (7, 0)


def test_a_timer_that_is_never_due_still_fits_into_a_long():
    assert clock_of("integers").timer("left", 2**63 - 1) == 2**63 - 1


def test_the_watermark_of_spark_is_shown_as_the_time_that_it_stands_for():
    for year in (1, 1969, 1970, 2024, 9999):
        assert shown(f"{year + 2000}-02-28T23:59:59.999Z") == f"{year:04}-02-28T23:59:59.999Z"
    assert shown("1970-01-01T00:00:00.000Z") is shown(None) is None  # there is none yet
    assert shown("+13969-12-31T23:59:59.999Z") == "11969-12-31T23:59:59.999Z"


def test_times_since_1970_travel_as_they_are():
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    clock = SparkClock(wm.within("1 second").bind(schema, schema), Timing(later=False))
    assert (clock.first, clock.micros(0), clock.micros(clock.last)) == (0, 0, clock.last)
    assert clock.since_1970 and not SparkClock(wm.within("1 second").bind(schema, schema), Timing()).since_1970
    assert 2**63 - 2000 < clock.last < 2**63
    assert clock.watermark("left", 0) is None and clock.watermark("left", 5) == 5_000
    assert clock.timer("left", 5_001) == 6
    assert shown("2026-01-05T14:30:00.120Z", later=False) == "2026-01-05T14:30:00.120Z"
    assert shown("1970-01-01T00:00:00.000Z", later=False) is None


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("later", [True, False])
def test_a_side_s_watermark_is_ahead_of_spark_s_by_what_that_is_held_back(kind, later):
    schema = pa.schema([("ts", TIMES[kind][0])])
    size = 1 if TIMES[kind][0] in (pa.int64(), pa.int32()) else "1 second"
    window = wm.within(size, lateness=size).bind(schema, schema)
    held, plain = (SparkClock(window, Timing(later, by)) for by in ((7, 2_500), (0, 0)))
    now = 1_700_000_000_000
    for side, by in (("left", 7), ("right", 2_500)):
        assert held.delay(side) - plain.delay(side) == by
        assert held.lateness(side) == plain.lateness(side) == plain.delay(side)
        assert held.watermark(side, now - by) == plain.watermark(side, now)
        tick = plain.watermark(side, now)
        assert held.timer(side, tick) == plain.timer(side, tick) - by
        assert held.watermark(side, held.timer(side, tick) - 1) < tick <= held.watermark(side, held.timer(side, tick))


def test_integers_travel_as_milliseconds_back_to_the_year_minus_29():
    clock = clock_of("integers")
    assert (clock.first, clock.last) == (1 - SHIFT, 2**63 // 1000 - SHIFT - 1)
    assert SHIFT == 63_113_904_000_000
