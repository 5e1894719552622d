"""On a real Spark: DataFrames that have watermarks, and what comes behind a join in the same query.

Streams are out of order, and time makes jumps, so that null-extended rows come out far below the watermark of their
micro-batch. Every query is stopped half-way and goes on from its checkpoint.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.spark import explain_join, stream_join
from watersmeet.spark.event_time import end_of_wait
from watersmeet.spark.progress import counters
from watersmeet.spark.watermark import Declared, declared

from .cases import BEGIN, SECOND, cut, read, run, tuples, write

LATENESS = ("3 seconds", "2 seconds")
BEFORE, AFTER = 2 * SECOND, SECOND
NEAR = wm.within("2 seconds", "1 second", lateness=LATENESS)


def jumping(seed, count=240):
    """Half of the rows come a minute later than they would."""
    rows = tuples(seed, count)
    return [row | {"ts": row["ts"] + (60 * SECOND if row["id"] >= count // 2 else 0)} for row in rows]


@pytest.fixture(scope="module")
def data():
    return {name: jumping(seed) for seed, name in enumerate(("left", "right", "third"), 1)}


def in_two_runs(folder, data, query):
    """The query over the first half of all micro-batches, and again, from its checkpoint, over all of them."""
    batches = {name: cut(rows, 4, len(name)) for name, rows in data.items()}
    for half in (slice(0, 2), slice(2, None)):
        for name, each in batches.items():
            write(folder / name, each[half])
        done = run(query(), folder)
    return done


def near(a, b, on="k"):
    return a[on] is not None and a[on] == b[on] and -BEFORE <= b["ts"] - a["ts"] <= AFTER


def outer(left, right, on="k", how="left"):
    """Pairs, and where the join is outer rows without a partner."""
    pairs = [(a, b) for a in left for b in right if near(a, b, on)]
    if how in ("left", "full"):
        pairs += [(a, None) for a in left if not any(near(a, b, on) for b in right)]
    if how == "full":
        pairs += [(None, b) for b in right if not any(near(a, b, on) for a in left)]
    return pairs


def decided(a, b):
    if b is None:
        return a["ts"] + AFTER
    return b["ts"] + BEFORE if a is None else max(a["ts"], b["ts"])


def counted(folder):
    rows = pq.read_table(folder / "out").to_pylist()
    assert len({row["start"] for row in rows}) == len(rows), "a window comes out once"
    return {round(row["start"].timestamp()): row["count"] for row in rows}


def by_second(frame, column):
    return frame.groupBy(F.window(column, "1 second")).count().select("window.start", "count")


def seconds(times):
    return dict(Counter(time // SECOND for time in times))


def dropped(query):
    return sum(each["numRowsDroppedByWatermark"] for one in query.recentProgress for each in one["stateOperators"])


def test_a_windowed_count_behind_a_left_join_is_exact(spark, tmp_path, data):
    def query():
        frames = (read(spark, tmp_path / name) for name in ("left", "right"))
        return by_second(stream_join(*frames, lambda l, r: l.k == r.k, NEAR, "left"), "ts")  # noqa: E741

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    assert counted(tmp_path) == seconds(a["ts"] for a, _ in outer(data["left"], data["right"]))
    assert dropped(done) == 0


def test_a_result_that_is_used_twice_has_a_watermark_in_both_uses(spark, tmp_path, data):
    """Spark would shuffle what both joiners get once only, and give the second no watermark: no row without a partner
    would come out there, and none would ever be let go of."""

    def query():
        left, right = (read(spark, tmp_path / name) for name in ("left", "right"))
        both = stream_join(left, right, "l.k = r.k", NEAR, "left")
        uses = [both.select(F.lit(number).alias("use"), "id", "id_right") for number in (1, 2)]
        return uses[0].union(uses[1])

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    rows = Counter(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist())
    right = [(a["id"], b and b["id"]) for a, b in outer(data["left"], data["right"])]
    assert rows == Counter((use, *pair) for use in (1, 2) for pair in right)
    assert all(one["numRowsTotal"] < 10 for one in done.lastProgress["stateOperators"])


@pytest.mark.long
def test_three_streams_are_joined_in_one_query(spark, tmp_path, data):
    """The first join is a left one, whose rows without partners come to the second below its watermark."""

    def query():
        left, right, third = (read(spark, tmp_path / name) for name in ("left", "right", "third"))
        both = stream_join(left, right, "l.k = r.k", NEAR, "left")
        window = wm.within("2 seconds", "1 second", lateness=(None, "2 seconds"))
        frame = stream_join(both, third, "l.x = r.x", window, "left", suffix="_third")
        assert frame.schema["ts"].metadata["spark.watermarkDelayMs"] == 5000  # of the first, and the second's window
        return frame.select("id", "id_right", "id_third")

    done = in_two_runs(tmp_path, data, query)
    both = [(a, b) for a, b in outer(data["left"], data["right"])]
    wanted = Counter()
    for a, b in both:
        thirds = [c["id"] for c in data["third"] if near(a, c, "x")] or [None]
        wanted.update((a["id"], b and b["id"], c) for c in thirds)
    found = Counter(tuple(row.values()) for row in pq.read_table(tmp_path / "out").to_pylist())
    assert found == wanted and len(wanted) > 1000
    for name in ("watersmeet", "watersmeet_2"):
        found = [counters(one, name) for one in done.recentProgress]
        assert found and not any(one["late_left"] + one["late_right"] for one in found)


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_watermarks_are_taken_as_they_are_and_results_count_by_when_they_were_decided(spark, tmp_path, data, how):
    window = wm.within("2 seconds", "1 second")

    def query():
        left = read(spark, tmp_path / "left").withWatermark("ts", "3 seconds")
        right = read(spark, tmp_path / "right").withColumnRenamed("ts", "at").withWatermark("at", "2 seconds")
        assert "left has a watermark on 'ts' with a delay of 3 seconds" in explain_join(left, right, "true", window)
        return by_second(stream_join(left, right, "l.k = r.k", window, how, event_time="decided"), "decided")

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    assert counted(tmp_path) == seconds(decided(a, b) for a, b in outer(data["left"], data["right"], how=how))
    assert dropped(done) == 0


@pytest.mark.long
@pytest.mark.parametrize("how", ["inner", "anti", "semi"])
def test_hopping_windows_and_a_watermark_on_one_side(spark, tmp_path, data, how):
    """Windows of 4 seconds that begin with each second: two rows share one if their seconds are less than 4 apart."""
    window = wm.hopping("4 seconds", "1 second", lateness=(None, "2 seconds"))

    def query():
        left = read(spark, tmp_path / "left").withWatermark("ts", "3 seconds")
        joined = stream_join(left, read(spark, tmp_path / "right"), "l.k = r.k", window, how)
        return by_second(joined, "ts")

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    wanted = []
    for a in data["left"]:
        partners = sum(
            a["k"] is not None and a["k"] == b["k"] and abs(a["ts"] // SECOND - b["ts"] // SECOND) < 4
            for b in data["right"]
        )
        wanted += [a["ts"]] * {"inner": partners, "anti": partners == 0, "semi": partners > 0}[how]
    assert counted(tmp_path) == seconds(wanted)
    assert dropped(done) == 0


@pytest.mark.long
def test_duplicates_behind_a_join_are_dropped_within_the_watermark(spark, tmp_path, data):
    def query():
        frames = (read(spark, tmp_path / name) for name in ("left", "right"))
        joined = stream_join(*frames, "l.k = r.k", NEAR, "left").select("id", "ts")
        return joined.dropDuplicatesWithinWatermark(["id"])

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    found = sorted(pq.read_table(tmp_path / "out").column("id").to_pylist())
    assert found == [row["id"] for row in data["left"]]
    assert dropped(done) == 0


@pytest.mark.long
def test_what_spark_s_own_operators_let_out_is_never_late(spark, tmp_path, data):
    """Windowed counts of both streams, joined: a count comes out when the watermark has passed its window."""
    window = wm.within("2 seconds", "1 second")

    def query():
        counts = []
        for name in ("left", "right"):
            frame = read(spark, tmp_path / name).withWatermark("ts", "3 seconds")
            counts.append(
                frame.groupBy(F.window("ts", "1 second")).count()
                .withColumn("ts", F.window_time("window")).select("ts", "count")
            )  # fmt: skip
        assert declared(counts[0], "left").let_out
        return stream_join(*counts, "true", window, "left").select("ts", "ts_right", "count", "count_right")

    done = in_two_runs(tmp_path, {name: data[name] for name in ("left", "right")}, query)
    counts = [seconds(row["ts"] for row in data[name]) for name in ("left", "right")]
    wanted = Counter()
    for second, count in counts[0].items():
        partners = [(at, n) for at, n in counts[1].items() if -2 <= at - second <= 1] or [(None, None)]
        wanted.update((second, at, count, n) for at, n in partners)
    found = Counter()
    for row in pq.read_table(tmp_path / "out").to_pylist():
        start, right = ((row[name] and int(row[name].timestamp() // 1)) for name in ("ts", "ts_right"))
        found[start, right, row["count"], row["count_right"]] += 1
    assert found == wanted
    assert sum(counters(one)["late_left"] + counters(one)["late_right"] for one in done.recentProgress) == 0


@pytest.mark.long
def test_late_rows_come_out_among_the_results_and_say_so(spark, tmp_path, data):
    """A stream with one micro-batch that is an hour too late, and rows of the other side, too."""
    early = [row | {"id": 1000 + row["id"], "ts": row["ts"] - 3600 * SECOND} for row in data["left"][:7]]
    other = [row | {"id": 1000 + row["id"], "ts": row["ts"] - 3600 * SECOND} for row in data["right"][:5]]
    for name, late in (("left", early), ("right", other)):
        batches = cut(data[name], 2, len(name))
        write(tmp_path / name, [batches[0], [*late, *batches[1]], batches[2]])
    frames = [read(spark, tmp_path / name) for name in ("left", "right")]
    for how in ("left", "anti"):
        joined = stream_join(*frames, "l.k = r.k", NEAR, how, late="keep")
        assert joined.columns[-2:] == ["s_right", "late"]
        done = run(joined.select("id", "ts", "id_right", "s_right", "late"), tmp_path / how)
        rows = pq.read_table(tmp_path / how / "out").to_pylist()
        late = [row for row in rows if row["late"] is not None]
        assert sorted(row["id"] for row in late if row["late"] == "left") == [row["id"] for row in early]
        found = {row["id_right"]: row["s_right"] for row in late if row["late"] == "right"}
        assert found == {row["id"]: row["s"] for row in other}
        assert all((row["id"] is None) != (row["id_right"] is None) for row in late)
        pairs = outer(data["left"], data["right"])
        wanted = Counter((a["id"], b and b["id"]) for a, b in pairs if how == "left" or b is None)
        assert Counter((row["id"], row["id_right"]) for row in rows if row["late"] is None) == wanted
        assert sum(counters(one)["rows_out"] for one in done.recentProgress) == wanted.total()
        assert sum(counters(one)["late_left"] for one in done.recentProgress) == 7


@pytest.fixture
def streams(spark, tmp_path):
    (tmp_path / "left").mkdir()
    return read(spark, tmp_path / "left"), read(spark, tmp_path / "left")


def test_the_watermark_of_a_frame_is_known(streams):
    left, _ = streams
    assert declared(left, "left") is None
    marked = left.withWatermark("ts", "1 minute")
    found = declared(marked, "left")
    assert str(found) == "a watermark on 'ts' with a delay of 1 minute" and not found.let_out
    assert declared(marked.withColumnRenamed("ts", "at").where("k > 1"), "left") == Declared("at", found.delay, False)
    static = left.sparkSession.createDataFrame([(1,)], "k int")
    assert not declared(marked.join(static, "k"), "left").let_out
    assert declared(marked.dropDuplicatesWithinWatermark(["id"]), "left").let_out
    assert declared(marked.join(left.select("k"), "k"), "left").let_out
    assert not declared(marked.union(marked), "left").let_out


@pytest.mark.parametrize(
    "change, message",
    [
        ({"window": wm.within("1 second", time="f")}, "left has a watermark on 'ts' with a delay of 5 seconds, but the "
         "window's time of that side is 'f'; leave time out"),
        ({"window": wm.within("1 second", lateness="2 seconds")}, "delay of 5 seconds, but the window's lateness of "
         "that side is 2 seconds; leave lateness out"),
        ({"window": wm.within("1 second", lateness=("2 seconds", None))}, "lateness of that side is 2 seconds"),
        ({"window": wm.within("1 second", idle_after="1 minute")}, "with idle_after, leave withWatermark out"),
        ({"before_1970": True}, "knows no times before 1970"),
        ({"event_time": "ts_right", "how": "left"}, "'ts_right' cannot be: .*have not always a right row.*new column"),
        ({"event_time": "ts_right"}, "'ts_right' cannot be: left has a watermark.*leave withWatermark out of left"),
        ({"event_time": "k"}, "'k' is a column of the result, but not its time; give 'ts' or 'ts_right'"),
        ({"event_time": 3}, "event_time must be 'auto', None, or the name of a column"),
        ({"event_time": "ts", "late": "keep"}, "'ts' cannot be: late='keep' puts rows below the watermark"),
        ({"late": "take"}, "late must be one of drop, keep, got 'take'"),
        ({"before_1970": 1}, "before_1970 must be True or False"),
        ({"left": "hidden"}, "left has a watermark.*none of its columns is marked.*event_time="),
        ({"left": "mixed"}, "left unites rows of a source with rows that an operator with state has let out"),
        ({"left": "window"}, r"watermark on 'window', which is a window.*F.window_time\('window'\)"),
    ],
)  # fmt: skip
def test_contradictions_are_named_before_the_query_starts(streams, change, message):
    left, right = streams
    marked = left.withWatermark("ts", "5 seconds")
    frames = {
        "hidden": marked.drop("ts").withColumn("ts", F.current_timestamp()),
        "mixed": marked.dropDuplicatesWithinWatermark(["id"]).union(marked),
        "window": marked.groupBy(F.window("ts", "1 second")).count(),
    }
    given = {"left": marked, "right": right, "on": "true", "window": wm.within("1 second", "1 second")} | change
    given["left"] = frames.get(given["left"], given["left"]) if isinstance(given["left"], str) else given["left"]
    for call in (stream_join, explain_join):
        with pytest.raises((ValueError, TypeError), match=message):
            call(**given)


def test_what_the_window_says_of_a_watermark_may_be_said_again(streams):
    left, right = streams
    marked = left.withWatermark("ts", "5 seconds")
    text = explain_join(marked, right, "true", wm.within("1 second", time="ts", lateness=("5 seconds", "1 s")))
    assert "window: within 1 second (time ts, lateness 5 seconds and 1 second)\n" in text
    assert "  left has a watermark on 'ts' with a delay of 5 seconds, taken as it is\n" in text
    assert "event time of results: ts, by up to 6 seconds out of order\n" in text
    both = explain_join(marked, right.withWatermark("ts", "1 second"), "true", wm.within("1 second"))
    assert "event time of results: none" in both


def test_a_result_without_event_time_is_not_joined_again(streams):
    left, right = streams
    first = stream_join(left, right, "true", wm.within("1 second"), "full", suffix="_2")
    with pytest.raises(ValueError, match="result of a stream_join, name its event time there, with event_time="):
        stream_join(first, right, "true", wm.within("1 second"), suffix="_3")


def test_joins_behind_joins_have_names_of_their_own(streams):
    left, right = streams
    window = wm.within("1 second")
    first = stream_join(left, right, "true", window, suffix="_2")
    assert declared(first, "left").joins == ("watersmeet",)
    third = stream_join(stream_join(first, right, "true", window, suffix="_3"), right, "true", window, suffix="_4")
    assert declared(third, "left").joins == ("watersmeet", "watersmeet_2", "watersmeet_3")
    with pytest.raises(ValueError, match="name 'watersmeet' is that of a stream_join before this one; give another"):
        stream_join(first, right, "true", window, suffix="_3", name="watersmeet")
    with pytest.raises(ValueError, match="left and right both come from a stream_join named 'watersmeet'"):
        stream_join(first, first, "true", window, suffix="_3")


@pytest.mark.parametrize(
    "window",
    [
        wm.within("2 seconds", "1500 ms"),
        wm.tumbling("3 seconds"),
        wm.hopping("4 seconds", "1 second"),
        wm.hopping("2 seconds", "3 seconds"),  # with gaps: a row in none has nothing to wait for
        wm.hopping("1001 us", "7 us"),
    ],
    ids=repr,
)
def test_the_end_of_a_wait_is_what_the_window_says(spark, window):
    beside = [n * SECOND + d for n in range(4) for d in (-1, 0, 1, 6, 7)]
    times = [BEGIN + n for n in beside]
    frame = spark.createDataFrame([(time,) for time in times], "t long").select(F.timestamp_micros("t").alias("ts"))
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    for side in ("left", "right"):
        found = frame.select(F.unix_micros(end_of_wait(window, side, F.col("ts")))).collect()
        last = window.bind(schema, schema).partners(side, np.array(times))[1]
        assert [row[0] for row in found] == np.maximum(last, times).tolist()


def test_times_that_are_no_timestamps_have_no_event_time(streams):
    left, right = (frame.withColumn("ts", F.col("ts").cast("timestamp_ntz")) for frame in streams)
    assert "event time of results: none" in explain_join(left, right, "true", wm.within("1 second"))
    with pytest.raises(ValueError, match="event_time 'ts' cannot be: the time columns are not timestamps; cast them"):
        stream_join(left, right, "true", wm.within("1 second"), event_time="ts")


def test_times_before_1970_are_refused_with_a_remedy(spark, tmp_path, data):
    old = [[row | {"ts": -row["id"] - 1} for row in data["left"][:3]]]
    write(tmp_path / "left", old)
    write(tmp_path / "right", old)
    frames = [read(spark, tmp_path / name) for name in ("left", "right")]
    with pytest.raises(Exception, match="years 1970 to 290,000 .times before 1970 are taken with before_1970=True."):
        run(stream_join(*frames, "l.k = r.k", NEAR), tmp_path)
