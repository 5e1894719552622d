"""`watersmeet run` on real Spark: results, restarts, errors that name the key, progress, Ctrl-C."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.spark import runner
from watersmeet.spark.job import JobError, load
from watersmeet.spark.session import PackagesMissing, raise_unresolved

JOB = """
[left]
format = "parquet"
path = "left"
options.maxFilesPerTrigger = 1

[right]
format = "parquet"
path = "right"
options.maxFilesPerTrigger = 1

[join]
on = "abs(l.x - r.x) <= 3"
window = "within 2 seconds"
lateness = "1 second"

[sink]
format = "parquet"
path = "out"

[run]
checkpoint = "checkpoint"
trigger = "available now"
"""
EXPECTED = """
    select l.id, epoch_us(l.ts), l.x, r.id, epoch_us(r.ts), r.x from '{0}/left/*.parquet' l join '{0}/right/*.parquet' r
    on abs(l.x - r.x) <= 3 and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 2000000
"""
START_US = 1_767_225_600_000_000


def rows(first, count, stride):
    """Every 10 ms a row; x goes round a circle in some stride."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "ts": pa.array([START_US + n * 10_000 for n in numbers], pa.timestamp("us", "UTC")),
            "x": pa.array([n * stride % 101 for n in numbers], pa.int64()),
        }
    )


def write(folder, number, table):
    folder.mkdir(exist_ok=True)
    path = folder / f"{number:03}.parquet"
    pq.write_table(table, path)
    os.utime(path, (1_700_000_000 + number,) * 2)


@pytest.fixture
def job(tmp_path):
    """A job over three files a side."""
    for number in range(3):
        write(tmp_path / "left", number, rows(500 * number, 500, 7))
        write(tmp_path / "right", number, rows(500 * number, 500, 11))

    def make(**replace):
        text = JOB
        for before, after in replace.get("replace", {}).items():
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "job.toml").write_text(text)
        return load(tmp_path / "job.toml")

    return make


def run(job, spark, terminal=False):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    return runner.run(job, console, spark=spark), console.file.getvalue()


def assert_exact(folder):
    columns = "id, epoch_us(ts), x, id_right, epoch_us(ts_right), x_right"
    got = duckdb.sql(f"select {columns} from '{folder}/out/*.parquet'").fetchall()
    assert sorted(got) == sorted(duckdb.sql(EXPECTED.format(folder)).fetchall())
    return len(got)


def test_a_job_joins_and_a_second_run_goes_on_from_the_checkpoint(job, spark, tmp_path):
    ended, shown = run(job(), spark)
    count = assert_exact(tmp_path)
    assert (ended.totals.rows_in, ended.totals.rows_out, ended.totals.late) == (3000, count, (0, 0))
    assert ended.totals.batches == 3
    assert not ended.stopped
    assert ended.totals.watermark.startswith("2026-01-01T00:00:13.9")
    for fact in ("rows in       3,000", f"rows out      {count:,}", "watermark     2026-01-01 00:00:13.9", "state"):
        assert fact in shown

    # A new file on each side, the left one with a row that is too late.
    late = rows(0, 1, 7)
    write(tmp_path / "left", 3, pa.concat_tables([late, rows(1500, 200, 7)]))
    write(tmp_path / "right", 3, rows(1500, 200, 11))
    ended, shown = run(job(), spark, terminal=True)
    assert ended.totals.rows_in == 401
    assert ended.totals.late == (1, 0)
    assert "1 left, 0 right" in shown
    write(tmp_path / "left", 3, rows(1500, 200, 7))  # what DuckDB is to see
    assert_exact(tmp_path)


def test_workers_may_read_the_files(job, spark, tmp_path):
    source = '[{}]\nformat = "parquet'
    changes = {source.format(side): source.format(side) + "_files" for side in ("left", "right")}
    ended, shown = run(job(replace=changes), spark)
    assert (ended.totals.rows_in, ended.totals.rows_out) == (3000, assert_exact(tmp_path))
    assert ended.totals.batches == 3 and "rows in       3,000" in shown


def test_rows_may_be_filtered_and_computed_on_the_way_in_and_out(job, spark, tmp_path):
    changes = {
        '[left]\nformat = "parquet"': '[left]\nformat = "parquet"\nwhere = "id % 2 = 0"\nselect = ["ts", "x as y"]',
        '[sink]\nformat = "parquet"': '[sink]\nformat = "parquet"\nwhere = "id > 100"\nselect = ["id", "y + 1 as z"]\n'
        'partition_by = ["z"]',
        "l.x": "l.y",
    }
    run(job(replace=changes), spark)
    got = duckdb.sql(f"select id, z from read_parquet('{tmp_path}/out/*/*.parquet', hive_partitioning = true)")
    want = duckdb.sql(f"""select r.id, l.x + 1 from '{tmp_path}/left/*.parquet' l join '{tmp_path}/right/*.parquet' r
        on abs(l.x - r.x) <= 3 and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 2000000 and l.id % 2 = 0 and r.id > 100""")
    assert sorted(got.fetchall()) == sorted(want.fetchall())


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('[left]\nformat = "parquet"', '[left]\nformat = "parkett"', "left.format: "),
        ('path = "right"', 'path = "nowhere"', "right.path: "),
        ('"parquet"\npath = "right"', '"parquet_files"\npath = "nowhere"', "right.path: "),
        ('"parquet"\npath = "right"', '"parquet_files"\npath = "right"\nschema = "id strange"', "right.schema: "),
        ('path = "right"', 'path = "right"\nschema = "id strange"', "right.schema: "),
        ('path = "right"', 'path = "right"\nwhere = "q > 1"', "right.where: "),
        ('path = "right"', 'path = "right"\nselect = ["q"]', "right.select: "),
        ("l.x - r.x", "l.q - r.x", "join: "),
        ("l.x - r.x", "l.x - ", "join: on is not valid SQL"),
        ('lateness = "1 second"', 'time = "when"', "join: time column 'when' is not in the left stream"),
        ('lateness = "1 second"', 'route = "bus"', "join: route must be"),
        ('lateness = "1 second"', 'bad_rows = "skip"', "join: bad_rows must be one of fail, drop"),
        ('path = "out"', 'path = "out"\nselect = ["q"]', "sink.select: "),
        ('[sink]\nformat = "parquet"', '[sink]\nformat = "parkett"', "sink.format: "),
        ('path = "out"', "", "sink"),
    ],
)
def test_a_mistake_that_spark_finds_names_the_key_before_anything_runs(job, spark, tmp_path, before, after, message):
    wanted = job(replace={before: after})
    with pytest.raises(JobError) as error:
        run(wanted, spark)
    assert str(error.value).startswith(f"{tmp_path / 'job.toml'}: {message}")
    assert "\tat " not in str(error.value)
    assert not (tmp_path / "out").exists()


BROKER = 'format = "kafka"\nservers = "127.0.0.1:1"\ntopic = "t"\nvalue = "json"'
KAFKA = f'[left]\n{BROKER}\nschema = "id long, ts timestamp, x long"'
LEFT = '[left]\nformat = "parquet"\npath = "left"'


def test_without_the_connector_the_package_to_add_is_named(job, spark):
    sink = '[sink]\nformat = "parquet"\npath = "out"'
    for side, before, after in (("left", LEFT, KAFKA), ("sink", sink, f"[sink]\n{BROKER}")):
        wanted = job(replace={before: after})
        with pytest.raises(JobError) as error:
            run(wanted, spark)
        assert f"job.toml: {side}.format: Spark {spark.version} has no Kafka connector here" in str(error.value)
        assert f'packages = ["org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"]' in str(error.value)
    with pytest.raises(JobError, match="left.format: Spark .* has no Kafka connector here"):  # as Spark itself says it
        runner.read(job(replace={LEFT: KAFKA}), "left", spark)


def test_packages_come_too_late_for_a_spark_that_runs(job, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # as spark-submit sets it
    wanted = job(replace={"[run]": '[spark]\npackages = ["a:b:1", "c:d:2"]\n[run]'})
    with pytest.raises(JobError, match="spark: packages are loaded by .* with --packages a:b:1,c:d:2"):
        run(wanted, None)


def test_packages_that_were_not_fetched_are_named_with_the_end_of_the_log():
    thrown = "Exception: [unresolved dependency: a#b;1: not found, download failed: c#d;2!d.jar]"
    log = "\n".join([*(f"line {n}" for n in range(100)), thrown, "\tat x.Y"])
    with pytest.raises(PackagesMissing, match="^Spark could not fetch a:b:1, c:d:2:d.jar; look for") as error:
        raise_unresolved(log)
    assert "line 99\nException" in str(error.value) and "line 50" not in str(error.value)
    assert "x.Y" not in str(error.value)
    assert raise_unresolved("java: command not found") is None


def test_a_query_that_fails_says_what_our_worker_said(job, spark, tmp_path):
    wanted = job()
    times = pa.array([None], pa.timestamp("us", "UTC"))
    write(tmp_path / "left", 0, rows(0, 1, 1).set_column(1, "ts", times))
    with pytest.raises(runner.JobFailed, match="^time column 'ts' of the left stream is null"):
        run(wanted, spark)


def test_check_shows_plan_and_columns_and_starts_nothing(job, spark, tmp_path):
    console = Console(file=io.StringIO(), width=120)
    runner.check(job(), console, spark=spark)
    shown = console.file.getvalue()
    assert "route: cells" in shown
    assert "  id_right: bigint" in shown
    assert not (tmp_path / "out").exists()


def test_the_command_reports_a_bad_job_with_exit_code_2(tmp_path):
    (tmp_path / "job.toml").write_text("[left]\n")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "job.toml")])
    assert result.exit_code == 2
    assert "left.format: is missing" in result.stderr


@pytest.mark.long
def test_ctrl_c_stops_the_command_cleanly(tmp_path):
    side = 'format = "rate"\nselect = ["timestamp as ts", "value as x"]\noptions.rowsPerSecond = 500\n'
    text = f'[left]\n{side}[right]\n{side}[join]\non = "abs(l.x - r.x) <= 1"\nwindow = "within 2 seconds"\n'
    text += '[sink]\nformat = "parquet"\npath = "out"\n[run]\ncheckpoint = "checkpoint"\ntrigger = "1 second"\n'
    (tmp_path / "job.toml").write_text(text + '[spark]\nmaster = "local[2]"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "watersmeet", "run", str(tmp_path / "job.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        commits = tmp_path / "checkpoint" / "commits"
        deadline = time.monotonic() + 600
        while not (commits / "1").exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the command and all that it started
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "stopped after" in out
    assert "Traceback" not in out + err
    # Every batch that was begun has ended, and its results are whole.
    assert len(list(commits.glob("[0-9]*"))) >= 2
    files = [  # that count: of a micro-batch that was cut off there may be others
        json.loads(line)["path"].removeprefix("file://")
        for log in (tmp_path / "out" / "_spark_metadata").glob("[0-9]*") for line in log.read_text().splitlines()[1:]
    ]  # fmt: skip
    ids = duckdb.sql(f"select x, x_right, count(*) from read_parquet({files}) group by all").fetchall()
    assert ids and all(abs(left - right) <= 1 and count == 1 for left, right, count in ids)


@pytest.mark.long
def test_the_first_ctrl_c_says_what_it_waits_for_and_the_second_stops_at_once(job, tmp_path):
    """The micro-batch sleeps for minutes: only the second may end it."""
    slow = """path = "left"\nwhere = "length(reflect('java.lang.Thread', 'sleep', 300000L)) > 0" """
    job(replace={'path = "left"': slow, "[run]": '[spark]\nmaster = "local[2]"\n[run]'})
    command = [sys.executable, "-u", "-m", "watersmeet", "run", str(tmp_path / "job.toml")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            begun = tmp_path / "checkpoint" / "offsets" / "0"
            deadline = time.monotonic() + 600
            while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(1)
            os.killpg(process.pid, signal.SIGINT)
            said = process.stdout.readline()
            assert said == "stopping after this micro-batch (Ctrl-C again: at once)\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            os.killpg(process.pid, signal.SIGINT)
            out, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, out
    assert "stopped after" in out and "Traceback" not in out
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
