"""On a real Spark: everything that the stand-in cannot tell."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys

import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.spark import explain_join, stream_join
from watersmeet.spark.clock import shown
from watersmeet.spark.cores import core_keys, murmur3

from . import cases
from .cases import BEGIN, SECOND, read, run, write
from .conftest import ROOT, spark_environment

WINDOW = wm.within("2 seconds", lateness="1 second")


FEW = [cases.CASES[i] for i in (1, 4, 8, 11)]  # by hash, cells, hot_cold and split


@pytest.mark.parametrize("some", [FEW, pytest.param(cases.CASES, marks=pytest.mark.long)], ids=["few", "all"])
def test_results_are_those_of_spark_and_duckdb(spark, tmp_path, some):
    cases.check(spark, tmp_path, some)


@pytest.mark.long
@pytest.mark.xdist_group("kafka")  # where another server of Connect is started: both have the same port
def test_the_same_on_spark_connect(tmp_path):
    """In a process of its own: one process cannot have both kinds of session."""
    program = (
        "from pathlib import Path; from watersmeet.spark.session import session; from spark import cases;"
        "spark = session(remote='local', conf={'spark.sql.shuffle.partitions': '2'});"
        f"cases.check(spark, Path({str(tmp_path)!r}), cases.CASES[1::2])"
    )
    environment = os.environ | spark_environment() | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    if pyspark.__version__.startswith("4.0."):  # it cannot, on Connect
        assert "use PySpark 4.1 or newer, or classic Spark" in done.stderr
    else:
        assert done.returncode == 0, done.stderr[-3000:]


def test_our_hash_is_sparks(spark):
    numbers = [*range(100), -1, 2**31 - 1]
    frame = spark.createDataFrame([(n,) for n in numbers], "n int").selectExpr("hash(n)")
    assert [murmur3(n) for n in numbers] == [row[0] for row in frame.collect()]


@pytest.mark.parametrize("cores, partitions", [(1, 1), (2, 2), (7, 7), (3, 200), (200, 200)])
def test_every_core_has_a_partition_of_its_own(cores, partitions):
    keys = core_keys(cores, partitions)
    assert keys[0] == 0
    assert len({murmur3(key) % partitions for key in keys}) == len(keys) == cores


def at(second, id, **values):
    nothing = dict.fromkeys(cases.SCHEMA.names)
    return nothing | {"id": id, "ts": BEGIN + int(second * SECOND), "k": 1} | values


def counters(query, name="watersmeet"):
    total = {}
    for progress in query.recentProgress:
        for key, value in progress["observedMetrics"][name].asDict().items():
            total[key] = total.get(key, 0) + value
    return total


def joined(spark, folder, on="l.k = r.k", window=WINDOW, how="left", **options):
    return stream_join(read(spark, folder / "left"), read(spark, folder / "right"), on, window, how, **options)


def ids(folder):
    table = pq.read_table(folder / "out")
    return sorted(
        zip(*(table.column(name).to_pylist() for name in ("id", "id_right")), strict=True), key=lambda pair: str(pair)
    )


def test_late_tuples_are_counted_and_a_restart_goes_on(spark, tmp_path):
    """The second micro-batch has the watermark of the first: 10 s - 1 s."""
    write(tmp_path / "left", [[at(0, 1), at(10, 2)], [at(8.9, 3), at(9, 4), at(8, 5, k=2)]])
    write(tmp_path / "right", [[at(1, 1), at(10, 2)], [at(3, 3), at(11, 4)]])
    query = run(joined(spark, tmp_path), tmp_path)
    found = counters(query)
    assert (found["late_left"], found["late_right"]) == (2, 1)
    assert (found["rows_left"], found["rows_right"]) == (5, 4)
    first = [(1, 1), (2, 2), (2, 4), (4, 2), (4, 4)]
    assert ids(tmp_path) == first
    # A new query on the same checkpoint; nothing of the first but the state.
    write(tmp_path / "left", [[at(12, 6), at(12, 7, k=2)], [at(60, 8)]])
    write(tmp_path / "right", [[at(12, 6)], [at(60, 8)]])
    query = run(joined(spark, tmp_path), tmp_path)
    assert counters(query)["rebuilt_runs"] == 0, "the files of the first run are still good"
    assert ids(tmp_path) == sorted([*first, (2, 6), (6, 2), (6, 4), (6, 6), (7, None), (8, 8)], key=str)
    with pytest.raises(StreamingQueryException, match="belongs to another join: predicate was 'l.k = r.k', now is"):
        write(tmp_path / "left", [[at(61, 9)]])
        run(joined(spark, tmp_path, on="l.k = r.k and l.x = r.x"), tmp_path)


def test_times_before_1970_are_over_like_any_other(spark, tmp_path):
    """State is freed, and a row without partner comes out, while all there is lies before 1970."""
    before = -BEGIN / SECOND - 1000  # 1969-12-31 23:43:20
    write(tmp_path / "left", [[at(before, 1), at(before, 2, k=2)], [at(before + 60, 3)], [at(before + 120, 4)]])
    write(tmp_path / "right", [[at(before + 1, 1)], [at(before + 60, 2)], [at(before + 120, 3)]])
    query = run(joined(spark, tmp_path, before_1970=True), tmp_path)
    assert ids(tmp_path) == [(1, 1), (2, None), (3, 2), (4, 3)]
    last = query.recentProgress[-1]
    assert last["observedMetrics"]["watersmeet"]["stored_left"] <= 2
    assert shown(last["eventTime"]["watermark"]) == "1969-12-31T23:45:19.000Z"


def test_integer_times_travel_as_milliseconds_before_and_after_zero(spark, tmp_path):
    write(tmp_path / "left", [[at(0, 1, x=-1000), at(0, 2, x=-900, k=2)], [at(0, 3, x=-1)], [at(0, 4, x=500)]])
    write(tmp_path / "right", [[at(0, 1, x=-998)], [at(0, 2, x=2)], [at(0, 3, x=500)]])
    frames = [read(spark, tmp_path / side).selectExpr("id", "x as ts", "k") for side in ("left", "right")]
    query = run(stream_join(*frames, "l.k = r.k", wm.within(5, lateness=1), "left"), tmp_path)
    assert ids(tmp_path) == [(1, 1), (2, None), (3, 2), (4, 3)]
    assert shown(query.recentProgress[-1]["eventTime"]["watermark"]) == "1970-01-01T00:00:00.499Z"
    assert counters(query)["late_left"] == counters(query)["late_right"] == 0


def test_a_silent_side_holds_time_back_only_until_it_is_idle(spark, tmp_path):
    """The right side sends one row, then nothing; then it wakes up, with rows that are too late by now."""
    minutes = [[at(60 * n, n), at(60 * n + 30, 100 + n)] for n in range(6)]
    write(tmp_path / "left", minutes)
    write(tmp_path / "right", [[at(0, 0)]])
    window = wm.within("2 seconds", lateness=("1 second", "3 seconds"), idle_after="45 seconds")
    frame = joined(spark, tmp_path, window=window, event_time=None)
    query = run(frame, tmp_path)
    alone = [(100, None), *((n, None) for n in range(1, 5)), *((100 + n, None) for n in range(1, 5))]
    assert ids(tmp_path) == sorted([(0, 0), *alone], key=str)
    assert query.recentProgress[-1]["eventTime"]["watermark"] == moment(330 - 1 - 45)
    assert query.recentProgress[-1]["observedMetrics"]["watersmeet"]["stored_left"] <= 4
    assert counters(query)["rows_left"] == 12, "rows are read twice for their time, and counted once"
    write(tmp_path / "right", [[at(283.9, 1), at(285, 2), at(331, 3)]])
    query = run(frame, tmp_path)
    assert (counters(query)["late_right"], counters(query)["rows_right"]) == (1, 3)
    # Its length may change. (Spark remembers the join's watermark at a restart, not each side's.)
    write(tmp_path / "left", [[at(360, 6)], [at(420, 7)]])
    window = wm.within("2 seconds", lateness=("1 second", "3 seconds"), idle_after="10 seconds")
    query = run(joined(spark, tmp_path, window=window, event_time=None), tmp_path)
    assert query.recentProgress[-1]["eventTime"]["watermark"] == moment(420 - 1 - 10)
    assert ids(tmp_path) == sorted([(0, 0), *alone, (105, 3), (5, None), (6, None)], key=str)


def moment(second):
    return f"{datetime.datetime.fromtimestamp(BEGIN // SECOND + second, datetime.UTC):%Y-%m-%dT%H:%M:%S}.000Z"


def test_a_null_time_fails_the_query_and_says_what_to_do_or_is_left_out_and_counted(spark, tmp_path):
    far = 2**63 - 1  # microseconds
    write(tmp_path / "left", [[at(0, 1), at(0, 2, ts=None)], [at(1, 3, ts=None)]])
    write(tmp_path / "right", [[at(0, 1), at(0, 2, ts=far)], [at(1, 3, ts=-far), at(1, 4)]])
    with pytest.raises(StreamingQueryException) as error:
        run(joined(spark, tmp_path), tmp_path)
    assert "time column 'ts' of the left stream is null in row 1" in str(error.value) or (
        f"time column 'ts' of the right stream has a time that Spark's clock cannot hold in row 1 of this batch, {far}"
    ) in str(error.value)
    assert "filter such rows out before the join" in str(error.value) and "bad_rows='drop'" in str(error.value)
    # The same checkpoint goes on, where another remedy is chosen.
    query = run(joined(spark, tmp_path, bad_rows="drop"), tmp_path)
    found = counters(query)
    assert (found["bad_left"], found["bad_right"]) == (2, 2)
    assert (found["rows_left"], found["rows_right"]) == (1, 2)
    assert ids(tmp_path) == [(1, 1), (1, 4)]


def test_values_of_every_type_come_through_unchanged(spark, tmp_path):
    """Times without a zone join; times with one, nested values and nulls are carried along."""
    rows = spark.range(40).selectExpr(
        "id",
        "timestamp_ntz '2024-03-10 01:59:50' + make_dt_interval(0, 0, 0, id) as at",
        "timestamp '2024-03-10 01:59:50' + make_dt_interval(0, 0, 0, id) as zoned",
        "if(id % 5 = 0, null, array(string(id), null)) as tags",
        "struct(int(id) as a, timestamp '2024-01-01 00:00:00' as b) as nested",
        "map('k', id) as m",
        "binary(string(id)) as bytes",
        "id % 2 = 0 as even",
        "date '2024-01-01' + int(id) as day",
        "decimal(id) / 8 as part",
        "float(id) as small",
        "make_dt_interval(0, 0, int(id)) as span",
    )
    rows.coalesce(1).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows"))
    window = wm.within("1 second", time="at")
    run(stream_join(stream, stream, "l.even <> r.even", window), tmp_path)
    left, right = rows.alias("l"), rows.toDF(*(f"{name}_right" for name in rows.columns)).alias("r")
    expected = left.join(right, F.expr("l.even <> r.even_right and abs(id - id_right) <= 1"))
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.dtypes == expected.dtypes
    order = ("id", "id_right")
    assert found.orderBy(*order).collect() == expected.orderBy(*order).collect()


@pytest.fixture
def streams(spark, tmp_path):
    (tmp_path / "left").mkdir()
    return read(spark, tmp_path / "left"), read(spark, tmp_path / "left")


def test_columns_are_all_of_the_left_then_all_of_the_right(spark, streams):
    left, right = streams
    frame = stream_join(left, right.withColumnRenamed("x", "y"), "l.x = r.y", WINDOW, suffix="_2")
    assert frame.isStreaming
    assert frame.columns == ["id", "ts", "k", "x", "f", "d", "s", "id_2", "ts_2", "k_2", "y", "f_2", "d_2", "s_2"]
    assert frame.schema["d_2"].dataType.simpleString() == "decimal(9,2)"
    assert stream_join(left, right, "l.x = r.x", WINDOW, "semi").columns == left.columns


@pytest.mark.parametrize(
    "change, message",
    [
        ({"left": "batch"}, "left is a batch DataFrame.*readStream"),
        ({"right": "marked"}, "right has a watermark on 'ts' with a delay of 5 seconds, but .* is 1 second; leave"),
        ({"right": 3}, "right must be a Spark DataFrame"),
        ({"window": wm.last(5)}, "last.*use within, tumbling or hopping"),
        ({"window": wm.within("2 seconds", time="when")}, "time column 'when' is not in the left stream"),
        ({"window": wm.within(5)}, "before must be a length such as '10 seconds'"),
        ({"on": "l.k = r.nothing"}, "nothing"),
        ({"on": "l.k + r.k"}, "on must be a predicate"),
        ({"on": "column"}, r"on is a column of Spark.*such as on=lambda l, r: "),
        ({"how": "outer"}, r"how must be one of .*; did you mean 'full'\?"),
        ({"how": "left_anti"}, r"how must be one of .*; did you mean 'anti'\?"),
        ({"route": "hash", "on": "l.x < r.x"}, "route 'hash' needs an equality"),
        ({"route": "cells", "on": "l.x < r.x"}, "route 'cells' needs a band"),
        ({"route": "split", "on": "l.x < r.x", "how": "full"}, "cannot do a full join"),
        ({"cores": 3}, "cores must be at most spark.sql.shuffle.partitions, which is 2"),
        ({"cores": 0}, "cores must be at least 1"),
        ({"bad_rows": "skip"}, "bad_rows must be one of fail, drop, got 'skip'"),
        ({"bad_rows": ("drop", "skip")}, r"bad_rows must be one of fail, drop, got \('drop', 'skip'\)"),
        ({"suffix": ""}, "suffix '' gives two result columns"),
    ],
)
def test_mistakes_are_found_before_the_query_starts(spark, streams, change, message):
    left, right = streams
    given = {"left": left, "right": right, "on": "l.k = r.k", "window": WINDOW} | change
    if given["on"] == "column":
        given["on"] = F.expr("l.k = r.k")
    if given["left"] == "batch":
        given["left"] = spark.createDataFrame([(1,)], "id int")
    if isinstance(given["right"], str):
        given["right"] = right.withWatermark("ts", "5 seconds")
    for call in (stream_join, explain_join):
        with pytest.raises((ValueError, TypeError), match=message):
            call(**given)


def test_another_state_store_is_refused(spark, streams):
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(ValueError, match=f"{name} is .*HDFSBacked.*RocksDBStateStoreProvider"):
            stream_join(*streams, "l.k = r.k", WINDOW)
    finally:
        spark.conf.set(name, before)


def test_explain_says_route_and_reason(streams):
    text = explain_join(*streams, "abs(l.x - r.x) <= 5", WINDOW, "left")
    assert "route: cells over 2 cores\n  because the predicate is a band of fixed width" in text
    assert "stored: the left side at home" in text
    assert "copies: a row goes to one core, one in 8 to two" in text
    assert "idle_after: none, so a side that sends nothing holds time back" in text
    window = wm.within("2 seconds", idle_after="1 minute")
    assert "idle_after: none" not in explain_join(*streams, "l.k = r.k", window)


def test_rows_that_go_to_every_core_take_few_of_many_partitions_unless_told_otherwise(spark, streams):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 200)
    try:
        text = explain_join(*streams, "l.x < r.x", WINDOW)
        assert "route: split over 16 cores\n" in text
        assert "over 16 of 200 partitions, unless cores= says otherwise" in text
        assert "copies: every row goes to all 16 cores" in text
        assert "copies: every right row goes to all 16 cores" in explain_join(*streams, "l.x < r.x", WINDOW, "left")
        assert "route: split over 40 cores\n" in explain_join(*streams, "l.x < r.x", WINDOW, cores=40)
        assert "route: hash over 200 cores\n" in explain_join(*streams, "l.k = r.k", WINDOW)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
