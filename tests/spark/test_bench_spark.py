"""`watersmeet bench spark` at tiny sizes: every contender's results are DuckDB's, and the report has its fields."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from watersmeet.bench import report, targets
from watersmeet.bench import spark as bench
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.spark.checksum import Answer, expressions, xxhash64
from watersmeet.bench.spark.data import END, FILES_A_BATCH, JOINS, answer, part, write
from watersmeet.bench.spark.flat import compared
from watersmeet.bench.spark.pipelines import (
    CELLS,
    CONTENDERS,
    DISCARD,
    IDENTITY,
    ON_REQUEST,
    OURS,
    OURS_FILES,
    RETURNED,
    SPARK,
    SPARK_DEFAULT,
    SPARK_HDFS,
    TUNED,
    TWICE,
    pipeline,
    settings,
)
from watersmeet.bench.spark.worker import execute, rates
from watersmeet.cli import app

TINY = bench.Sizes(rows=4000, batch_rows=4000, seconds=0.02, memory="1g", rounds=1)
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
# Each kind of contender once, each kind of join once.
CHECKED = [
    ("A", OURS), ("A", DISCARD), ("A", SPARK_HDFS), ("B", OURS), ("B", CELLS), ("C", OURS), ("D", OURS),
    ("D", OURS_FILES), ("A", TWICE), ("D", IDENTITY), ("D", SPARK),
]  # fmt: skip


def brute_force(name, seconds, rows, how=None):
    """Count and checksum over all pairs, and left rows without one if the join has them, in NumPy."""
    wanted = part(name, seconds)
    left, right = (wanted.rows(side, 0, rows) for side in ("left", "right"))
    time = right["ts"].cast(pa.int64()).to_numpy()[None, :] - left["ts"].cast(pa.int64()).to_numpy()[:, None]
    if name == "D":
        match = np.array(left["device"].to_pylist())[:, None] == np.array(right["device"].to_pylist())[None, :]
    else:
        key = left["key"].to_numpy()[:, None] - right["key"].to_numpy()[None, :]
        match = {"A": key == 0, "L": key == 0, "C": key > 0}.get(name, abs(key) <= 2)
    match &= abs(time) <= wanted.window_us
    a, b = np.nonzero(match)
    alone = np.flatnonzero(~match.any(axis=1)) if (how or wanted.how) == "left" else []
    left_rows = left.take(pa.array(np.concatenate([a, alone]).astype(np.int64)))
    right_rows = right.take(pa.array([*b.tolist(), *(None for _ in alone)], pa.int64()))
    columns = [column.combine_chunks() for table in (left_rows, right_rows) for column in table.columns]
    return Answer.of(columns)


@pytest.mark.parametrize("name", [*JOINS, "L"])
def test_duckdb_agrees_with_brute_force_and_matches_are_about_as_many_as_said(name, tmp_path):
    seconds, rows = (2, 3000) if name == "C" else (0.02, 3000)
    write(part(name, seconds), tmp_path, rows, 1000)
    assert len(list((tmp_path / "left").iterdir())) == 12
    found = answer(part(name, seconds), tmp_path)
    assert found == brute_force(name, seconds, rows)
    # The first and the last of the rows have but half a window around them.
    window = part(name, seconds).window_us // 20
    expected = {"B17": 17, "D": 1.1, "L": 1.1}.get(name, 2) * (2 * rows - window)
    assert found.rows == pytest.approx(expected, rel=0.2)


def test_the_rows_of_d_are_out_of_order_within_the_lateness_and_some_match_nothing(tmp_path):
    wanted = part("D", 0.02)
    rows = wanted.rows("left", 0, 3000)
    times = rows["ts"].cast(pa.int64()).to_numpy()
    behind = np.maximum.accumulate(times) - times
    assert (np.diff(times) < 0).mean() > 0.4 and 0.5 * wanted.lateness_us < behind.max() < wanted.lateness_us
    assert pc.min(pc.utf8_length(rows["device"])).as_py() == pc.max(pc.utf8_length(rows["device"])).as_py() == 15
    assert wanted.end("left", 3000)["value"].to_pylist() == [END]
    joined, inner = brute_force("D", 0.02, 3000), brute_force("D", 0.02, 3000, how="inner")
    assert 200 < joined.rows - inner.rows < 1000


@pytest.mark.parametrize("name", ["D", "L"])
def test_the_rows_that_end_left_joins_meet_nobody(name):
    wanted = part(name, 0.02)
    left, right = (wanted.end(side, 3000) for side in ("left", "right"))
    column = "device" if name == "D" else "key"
    assert left["ts"] == right["ts"] and left[column].to_pylist() != right[column].to_pylist()
    last = wanted.rows("left", 2990, 10)
    assert last["ts"].to_numpy().max() + wanted.window_us < left["ts"].to_numpy()[0].astype("M8[us]")
    for side in ("left", "right"):
        ends = {"left": left, "right": right}[side][column].to_pylist()
        assert ends[0] not in wanted.rows(side, 0, 3000)[column].to_pylist()


def test_the_checksum_is_sparks(spark):
    texts = ["", "a", "four", "device-00000017", "exactly 16 bytes", "x" * 31, None]
    table = pa.table({
        "n": pa.array([0, -1, 2**63 - 1, -(2**63), 5, 6, None], pa.int64()),
        "s": pa.array(texts),
        "ts": pa.array([0, 1, 1_767_225_600_000_000, 3, 4, None, 5], pa.timestamp("us", "UTC")),
    })  # fmt: skip
    frame = spark.createDataFrame(table)
    hashes = [row[0] for row in frame.selectExpr("xxhash64(n, s, ts)").collect()]
    columns = [column.combine_chunks() for column in table.columns]
    assert xxhash64(columns).view(np.int64).tolist() == hashes
    ((rows, total),) = frame.selectExpr(*expressions(table.column_names)).collect()
    assert Answer(rows, total) == Answer.of(columns)
    head, tail = ([column.slice(*where) for column in columns] for where in ((0, 2), (2,)))
    assert Answer.of(head) + Answer.of(tail) == Answer(rows, total)
    with pytest.raises(ValueError, match="fewer than 32 bytes, got 32"):
        xxhash64([pa.array(["x" * 32])])


@pytest.mark.long
@pytest.mark.parametrize(("name", "contender"), CHECKED, ids=lambda value: value.replace(", ", "-"))
def test_every_contender_finds_duckdbs_results(spark, tmp_path, name, contender):
    seconds = 2 if name == "C" else 0.02
    wanted = part(name, seconds)
    write(wanted, tmp_path / "data", 2000, 2000)
    own = settings(contender)
    before = {key: spark.conf.get(key, None) for key in own}
    try:
        for key, value in own.items():
            spark.conf.set(key, value)
        outcome = execute(
            pipeline(spark, contender, wanted, str(tmp_path / "data"), FILES_A_BATCH), tmp_path / "checkpoint"
        )
    finally:
        for key, value in before.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    assert outcome["rows_in"] == 4000 + 2 * (name == "D")
    assert len([batch for batch in outcome["batches"] if batch["rows"]]) == 2
    assert sum(batch["rows_out"] for batch in outcome["batches"]) == outcome["rows_out"]
    expected = answer(wanted, tmp_path / "data")
    assert expected.rows > 1000
    bench.OnSpark(TINY, judged=False, say=print).check(name, contender, outcome, expected)
    if contender not in RETURNED:
        assert Answer(outcome["rows_out"], outcome["checksum"]) == expected


@pytest.mark.long
def test_a_run_measures_in_a_process_of_its_own_and_stores_what_it_shows(tmp_path):
    out = tmp_path / "results.json"
    results = bench.run(only=["A"], contenders=[OURS], out=out, sizes=TINY, say=lambda line: None)
    assert json.loads(out.read_text()) == results
    (row,) = results["results"]
    assert row["rows_per_s"] == max(row["rounds"]) > 0
    assert row["checksum"].startswith(f"{row['rows_out']}:") and row["rows_out"] > 1000
    assert len(row["runs"]) == len(row["cold_s"]) == 1 and row["cold_s"][0] > 0
    assert results["machine"]["versions"]["pyspark"] and results["machine"]["dirty"] in (True, False)
    assert "A on Spark" in report.text(results) and "| watersmeet |" in report.markdown(results)


def outcome(batches, answer=None, **more):
    """As a worker gives it: seconds and rows of each micro-batch."""
    made = [{"rows": rows, "rows_out": results, "seconds": seconds} for rows, results, seconds in batches]
    answer = answer or Answer(sum(results for _, results, _ in batches), 1)
    found = {"rows_in": sum(rows for rows, _, _ in batches), "rows_out": answer.rows, "checksum": answer.checksum}
    return found | {"batches": made, "state_bytes": 10, "session_s": 1, "wall_s": 9, "durations": {}} | more


def test_the_first_micro_batch_is_not_in_the_rate_but_beside_it():
    found = rates(outcome([(100, 50, 10.0), (100, 300, 1.0), (100, 300, 2.0), (0, 0, 1.0)]))
    assert found == {"rows_per_s": 50.0, "results_per_s": 150.0, "cold_s": 10.0, "with_cold": 300 / 14}


def test_wrong_answers_are_not_timed():
    run = bench.OnSpark(TINY, judged=False, say=print)
    right = Answer(5, 9)
    batches = [(3, 2, 1.0), (3, 3, 1.0)]
    run.check("A", SPARK, outcome(batches, right), right)
    for wrong in (Answer(5, 10), Answer(4, 9)):
        with pytest.raises(AnswersDiffer, match="A.*spark, rocksdb gives"):
            run.check("A", SPARK, outcome(batches, wrong), right)
    run.check("A", DISCARD, outcome(batches, Answer(0, 0)), right)
    run.check("D", IDENTITY, outcome(batches, Answer(6, 1)), right)
    for idle in (DISCARD, IDENTITY):
        with pytest.raises(AnswersDiffer, match=f"{idle} gives 5 rows for 6"):
            run.check("D", idle, outcome(batches, right), right)


def test_sparks_own_join_is_tuned_and_slow_extras_run_only_when_named(monkeypatch):
    assert settings(SPARK) == settings(CELLS) == TUNED and not settings(SPARK_DEFAULT) and not settings(OURS)
    ran = []
    monkeypatch.setattr(bench.OnSpark, "part", lambda self, name, contenders: ran.append((name, contenders)))
    bench.run(only=["A"], sizes=TINY)
    bench.run(only=["A"], contenders=[SPARK_DEFAULT], sizes=TINY)
    assert ran == [("A", [OURS, OURS_FILES, IDENTITY, DISCARD, SPARK, SPARK_HDFS]), ("A", [SPARK_DEFAULT])]
    assert all(contender in CONTENDERS[name] for name, contender in ON_REQUEST)
    assert all(contender in CONTENDERS[name] for name, contender in targets.INPUT_ROWS)


def measured(speeds):
    """Results as `record` leaves them: input rows/s of each round, result rows/s."""
    run = bench.OnSpark(bench.FULL, judged=True, say=lambda line: None)
    for (name, contender), (rounds, results) in speeds.items():
        run.record(name, contender, [outcome([(10, 0, 5.0), (speed, results, 1.0)]) for speed in rounds])
    for name in JOINS:
        run.compare_speeds(name)
    return run


@pytest.mark.parametrize("seconds, ok", [(1.2, True), (1.4, False)])
def test_skewed_micro_batches_are_held_against_even_ones(monkeypatch, seconds, ok):
    def took(self, name, contender, data, scratch, sizes, partitions, route):
        right = answer(part(name, sizes.seconds), data)
        slow = seconds if (name, route) == ("Z", "hot_cold") else 1.0
        return outcome([(10, 0, 9.0), (10, 0, slow), (10, 0, slow), (0, 0, 5.0)], right)

    monkeypatch.setattr(bench.OnSpark, "measure", took)
    monkeypatch.setattr(bench, "FULL", TINY)
    results = bench.run(only=["skew"], say=lambda line: None)
    judged = [(row["value"], row["ok"]) for row in results["ratios"] if row["ok"] is not None]
    assert judged == 2 * [(seconds, ok)]  # with few partitions, and with more
    assert "by hot_cold, of uniform keys: 8 partitions" in report.text(results)


def test_skewed_and_even_streams_have_as_many_results(tmp_path):
    found = []
    for name in ("Z", "U"):
        write(part(name), tmp_path / name, 100_000, 50_000)
        found.append(answer(part(name), tmp_path / name).rows / 200_000)
    assert found == pytest.approx([2.0, 2.0], rel=0.15)
    keys = part("Z").rows("left", 0, 100_000)["key"].value_counts()
    assert max(count.as_py() for count in keys.field("counts")) == pytest.approx(38_500, rel=0.05)


def test_ratios_are_held_against_the_targets_by_the_medians():
    run = measured({
        ("A", OURS): ([1490, 1500, 9000], 0),
        ("A", SPARK): ([100], 0),
        ("A", SPARK_HDFS): ([400], 0),
        ("A", IDENTITY): ([2000, 2100, 2200], 0),
        ("A", DISCARD): ([1500, 1600, 1700], 0),
        ("B", OURS): ([1000], 0),
        ("B", "cells, hdfs"): ([10], 0),
        ("B17", OURS): ([100], 4_999_999),
    })  # fmt: skip
    ratios = {(row["workload"], row["against"]): row for row in run.ratios}
    assert {where: row["ok"] for where, row in ratios.items()} == {
        ("A", "spark, rocksdb: input rows/s"): True,
        ("A", "spark, hdfs: input rows/s"): False,
        ("A", "identity: input rows/s"): True,
        ("A", "discard: input rows/s"): None,
        ("B", "cells, hdfs: input rows/s"): None,
        ("B17", "million result rows/s"): False,
    }
    row = ratios["A", "spark, rocksdb: input rows/s"]
    assert (row["value"], row["best"]) == (15.0, 90.0)
    assert row["with_cold"] == pytest.approx((1510 / 6) / (110 / 6))
    assert report.missed({"ratios": run.ratios}) == [
        "3.75 of 5 (A; spark, hdfs: input rows/s)",
        "4.999999 of 5 (B17; million result rows/s)",
    ]


def from_topic_to_topic(monkeypatch, seconds):
    """A run of the part "kafka" that takes so long."""
    import contextlib

    from watersmeet.bench.spark import kafka as spark_kafka

    def took(bench, kafka, contender, scratch):
        scale = seconds if contender == OURS else 1.0
        whats = {"small": ["micro-batch"]} | ({"5k": ["p50", "p99"]} if contender != DISCARD else {})
        return {
            stream: {"seconds": dict.fromkeys(names, scale), "rows_out": 7, "batches": []}
            for stream, names in whats.items()
        }

    monkeypatch.setattr(spark_kafka, "broker", lambda folder: contextlib.nullcontext())
    monkeypatch.setattr(spark_kafka, "measure", took)
    return bench.run(only=["kafka"], sizes=bench.FULL, say=lambda line: None)


def test_kafka_is_held_against_the_same_query_without_a_join(monkeypatch):
    results = from_topic_to_topic(monkeypatch, 2.1)
    assert {row["against"]: (row["value"], row["ok"]) for row in results["ratios"]} == {
        "no join: micro-batch of small": (2.1, False),
        "no join: p50 of 5k": (2.1, True),
        "no join: p99 of 5k": (2.1, True),
        "discard: micro-batch of small": (2.1, None),
        "spark, rocksdb: micro-batch of small": (2.1, None),
        "spark, rocksdb: p50 of 5k": (2.1, None),
        "spark, rocksdb: p99 of 5k": (2.1, None),
    }
    assert "From topic to topic" in report.text(results) and "| no join |" in report.markdown(results)


def test_kafka_without_a_broker_is_skipped_with_the_reason(monkeypatch, tmp_path):
    from watersmeet.bench.spark import kafka_clients

    monkeypatch.setattr(kafka_clients, "TOOL", tmp_path / "broker.py")
    results = bench.run(only=["kafka"], sizes=TINY, say=lambda line: None)
    assert results["skipped"] == {"kafka": "the broker is started by tools/broker.py of the source tree"}
    assert report.text(results)


@pytest.mark.long
@pytest.mark.xdist_group("kafka")
def test_kafka_measures_with_a_real_broker(monkeypatch):
    from watersmeet.bench.spark import kafka as spark_kafka
    from watersmeet.bench.spark import kafka_clients as spark_kafka_clients

    assert spark_kafka_clients.TOOL.exists()
    pytest.importorskip("confluent_kafka")
    tiny = [spark_kafka.Stream("small", 1000, 3000, 1, 2000), spark_kafka.live("200", 200, 1, 2)]
    monkeypatch.setattr(spark_kafka, "streams", lambda full: tiny)
    results = bench.run(only=["kafka"], sizes=TINY, say=print)
    if "kafka" in results["skipped"]:
        pytest.skip(results["skipped"]["kafka"])
    assert [row["contender"] for row in results["results"]] == [OURS, spark_kafka.NO_JOIN, DISCARD, SPARK]
    for row in results["results"]:
        small, live = row["streams"]["small"], row["streams"].get("200")
        assert small["seconds"]["micro-batch"] > 0 and len([b for b in small["batches"] if b["rows"]]) == 3
        assert (live is None) == (small["rows_out"] == 0) == (row["contender"] == DISCARD)
        assert live is None or (0 < live["seconds"]["p50"] <= live["seconds"]["p99"] and live["rows_out"] > 0)
    assert len(results["ratios"]) == 7


def test_long_streams_are_compared_batch_by_batch():
    long = {"batches": [{"rows": 1, "seconds": n} for n in range(40)] + [{"rows": 0, "seconds": 99}]}
    large = {"batches": [{"rows": 1, "seconds": n} for n in range(100, 120)]}
    assert compared(long, large) == (list(range(10, 20)), list(range(30, 40)), list(range(110, 120)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"only": ["E"]}, "only"),
        ({"contenders": ["flink"]}, "contenders"),
        ({"rounds": 0}, "rounds"),
        ({"rows": 10}, "rows"),
        ({"out": "no/such/a.json"}, "out"),
    ],
)
def test_bad_options_are_named_before_anything_runs(options, named):
    with pytest.raises(ValueError, match=f"^{named} must"):
        bench.run(**options, sizes=TINY)


def test_the_command_names_a_part_that_does_not_exist(tmp_path):
    result = CliRunner().invoke(app, ["bench", "spark", "--only", "E", "--out", str(tmp_path / "x.json")])
    assert result.exit_code == 2
    assert "A; B; B17; C; D; flat; first; kafka; skew" in result.stderr
