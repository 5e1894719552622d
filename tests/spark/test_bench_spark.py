"""`watersmeet bench spark` at tiny sizes: every contender's results are DuckDB's, and the report has its fields."""

import json

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from watersmeet.bench import report
from watersmeet.bench import spark as bench
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.spark_data import FILES_A_BATCH, JOINS, Answer, answer, compare, part, write
from watersmeet.bench.spark_flat import compared
from watersmeet.bench.spark_pipelines import CELLS, CONTENDERS, DISCARD, OURS, pipeline, settings
from watersmeet.bench.spark_worker import execute
from watersmeet.cli import app

TINY = bench.Sizes(rows=4000, batch_rows=4000, seconds=0.02, check_rows=1000, check_seconds=0.01, memory="1g", rounds=1)
# Each kind of contender once, each kind of join once.
CHECKED = [("A", contender) for contender in CONTENDERS["A"]] + [("B", OURS), ("B", CELLS), ("C", OURS)]


def brute_force(name, seconds, rows):
    """Count and checksum over all pairs, in NumPy."""
    wanted = part(name, seconds)
    left, right = (wanted.rows(side, 0, rows) for side in ("left", "right"))
    key = left["key"].to_numpy()[:, None] - right["key"].to_numpy()[None, :]
    time = right["ts"].cast(pa.int64()).to_numpy()[None, :] - left["ts"].cast(pa.int64()).to_numpy()[:, None]
    match = {"A": key == 0, "C": key > 0}.get(name, abs(key) <= 2)
    a, b = np.nonzero(match & (abs(time) <= wanted.window_us))
    total = ((((a * 31 + 7) % 999983) * ((b * 17 + 3) % 999979)) % 1000003).sum()
    return Answer(len(a), int(total))


@pytest.mark.parametrize("name", JOINS)
def test_duckdb_agrees_with_brute_force_and_matches_are_about_as_many_as_said(name, tmp_path):
    seconds, rows = (2, 3000) if name == "C" else (0.02, 3000)
    write(part(name, seconds), tmp_path, rows, 1000)
    assert len(list((tmp_path / "left").iterdir())) == 12
    found = answer(part(name, seconds), tmp_path)
    assert found == brute_force(name, seconds, rows)
    # The first and the last of the rows have but half a window around them.
    window = part(name, seconds).window_us // 20
    expected = (17 if name == "B17" else 2) * (2 * rows - window)
    assert found.rows == pytest.approx(expected, rel=0.2)


@pytest.mark.parametrize(("name", "contender"), CHECKED, ids=lambda value: value.replace(", ", "-"))
def test_every_contender_finds_duckdbs_results(spark, tmp_path, name, contender):
    seconds = 2 if name == "C" else 0.02
    wanted = part(name, seconds)
    write(wanted, tmp_path / "data", 2000, 2000)
    wants = settings(contender)
    before = {setting: spark.conf.get(setting) for setting in wants}
    try:
        for setting, value in wants.items():
            spark.conf.set(setting, value)
        joined = pipeline(spark, contender, wanted, str(tmp_path / "data"), FILES_A_BATCH)
        outcome = execute(joined, tmp_path / "checkpoint", checksum=True)
    finally:
        for setting, value in before.items():
            spark.conf.set(setting, value)
    assert outcome["rows_in"] == 4000
    assert len([batch for batch in outcome["batches"] if batch["rows"]]) == 2
    expected = answer(wanted, tmp_path / "data")
    if contender == DISCARD:
        assert outcome["rows_out"] == 0
    else:
        assert expected.rows > 1000
        assert Answer(outcome["rows_out"], outcome["checksum"]) == expected


def test_a_run_measures_in_a_process_of_its_own_and_stores_what_it_shows(tmp_path):
    out = tmp_path / "results.json"
    results = bench.run(only=["A"], contenders=[OURS], out=out, sizes=TINY, say=lambda line: None)
    assert json.loads(out.read_text()) == results
    (row,) = results["results"]
    assert row["rows_per_s"] > 0 and row["checked_rows"] == row["rows_out"] > 1000
    assert results["machine"]["versions"]["pyspark"]
    assert "A on Spark" in report.text(results) and "| watersmeet |" in report.markdown(results)


def test_wrong_answers_are_not_timed():
    right = {"check": Answer(3, 14), "measured": Answer(5, 9)}
    good = {"check": {"rows_out": 3, "checksum": 14}, "measured": {"rows_out": 5}}
    compare("A", OURS, good, right)
    for wrong in ({"check": {"rows_out": 3, "checksum": 15}}, {"measured": {"rows_out": 4}}):
        with pytest.raises(AnswersDiffer, match="A.*watersmeet gives"):
            compare("A", OURS, good | wrong, right)


def measured(speeds):
    """Results as `record` leaves them."""
    run = bench.OnSpark(bench.FULL, judged=True, say=lambda line: None)
    for (name, contender), (speed, results) in speeds.items():
        batches = [{"rows": 10, "seconds": 1.0}, {"rows": 0, "seconds": 0.1}]
        outcome = {"rows_in": speed, "rows_out": results, "seconds": 1.0, "batches": batches, "state_bytes": 10}
        answers = {"check": Answer(1, 1), "measured": Answer(results, 1)}
        run.record(name, contender, [{"measured": outcome, "session_s": 1}], answers)
    for name in JOINS:
        run.compare_speeds(name)
    return run


def test_ratios_are_held_against_the_targets():
    speeds = {
        ("A", OURS): (1200, 0),
        ("A", "spark, rocksdb"): (100, 0),
        ("A", "spark, hdfs"): (400, 0),
        ("A", DISCARD): (1500, 0),
        ("B", OURS): (1000, 0),
        ("B", "cells, hdfs"): (10, 0),
        ("B17", OURS): (100, 4_999_999),
    }
    ratios = {(row["workload"], row["against"]): row["ok"] for row in measured(speeds).ratios}
    assert ratios == {
        ("A", "spark, rocksdb: input rows/s"): True,
        ("A", "spark, hdfs: input rows/s"): False,
        ("A", "discard: input rows/s"): True,
        ("B", "cells, hdfs: input rows/s"): None,
        ("B17", "million result rows/s"): False,
    }


def test_long_streams_are_compared_batch_by_batch():
    long = {"batches": [{"rows": 1, "seconds": n} for n in range(40)] + [{"rows": 0, "seconds": 99}]}
    large = {"batches": [{"rows": 1, "seconds": n} for n in range(100, 120)]}
    assert compared(long, large) == (list(range(10, 20)), list(range(30, 40)), list(range(110, 120)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"only": ["D"]}, "only"),
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
    result = CliRunner().invoke(app, ["bench", "spark", "--only", "D", "--out", str(tmp_path / "x.json")])
    assert result.exit_code == 2
    assert "A; B; B17; C; flat" in result.stderr
