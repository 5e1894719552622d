"""`watersmeet run --page`: what the page of a job shows, and how it is asked for."""

import json
import socket
import time
import urllib.request

import pytest
from rich.console import Console
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.page.page import Page
from watersmeet.page.spark import JobPage, behind, sample_of
from watersmeet.spark import runner
from watersmeet.spark.progress import Totals

from .test_job import job  # noqa: F401  a fixture

RECORD = {
    "batchId": 0,
    "durationMs": {"triggerExecution": 2000},
    "sources": [],
    "eventTime": {"watermark": "4026-01-05T14:30:00.120Z"},
    "observedMetrics": {
        "watersmeet": {
            "rows_left": 100, "rows_right": 60, "late_left": 1, "late_right": 2, "bad_left": 3, "bad_right": 0,
            "rows_out": 50, "stored_left": 70, "stored_right": 40, "stored_bytes": 4096, "runs": 5, "rebuilt_runs": 0,
        }
    },
}  # fmt: skip


def test_a_sample_has_what_the_records_told():
    totals = Totals(before_1970=True)
    totals.add(RECORD)
    totals.add(RECORD | {"batchId": 1})
    found = sample_of(totals, "running", "the plan", 5.0, [1.0, 2.0], 1767623401.62)
    figures = {name: value for name, value in found["figures"].items() if value is not None}
    assert figures == {
        "in_left": 50.0, "in_right": 30.0, "out": 25.0, "p50": 2.0, "lag": 1.5, "rows": 110, "runs": 5, "bytes": 4096,
        "late": 1.0, "bad": 2.0,
    }  # fmt: skip
    assert found["totals"] == {"rows_in": 326, "rows_out": 100, "calls": 2, "late": 6, "bad": 6, "mean": 2.0}
    assert found["sides"] == {
        "left": {"rows_in": 200, "late": 2, "bad": 6}, "right": {"rows_in": 120, "late": 4, "bad": 0},
    }  # fmt: skip
    assert found["watermark"] == "2026-01-05 14:30:00.120 UTC" and found["plan"] == "the plan"
    assert found["loads"] == [] and found["hot"] == {} and found["hot_share"] == 0


def test_cores_and_hot_keys_are_in_a_sample():
    told = [json.dumps({"stored": rows, "probes": 9, "hot": {f"left k = {rows}": rows}}) for rows in (30, 80)]
    counted = RECORD["observedMetrics"]["watersmeet"] | {"hot_left": 30, "hot_right": 10, "probes": 18, "loads": told}
    totals = Totals()
    totals.add(RECORD | {"observedMetrics": {"watersmeet": counted}})
    found = sample_of(totals, "running", "the plan", 5.0, [1.0, 2.0], 1767623401.62)
    assert found["loads"] == [30, 80] and found["probes"] == [9, 9]
    assert found["hot"] == {"left k = 80": 80, "left k = 30": 30} and found["hot_share"] == 40 / totals.rows_in


def test_before_the_first_record_there_is_nothing_to_show():
    found = sample_of(Totals(), "starting", "", 0.0, [0.0, 0.0], 0.0)
    assert found["watermark"] is None and found["sides"] == {} and found["totals"]["mean"] is None
    assert found["figures"]["lag"] is found["figures"]["p50"] is found["figures"]["out"] is None


def test_times_that_are_not_of_the_clock_have_no_lag():
    assert behind("1970-01-01T00:16:40.000Z", 1767623401.62) is None
    assert behind("0026-01-05T14:30:00.120Z", 1767623401.62) is None


def test_a_query_is_looked_at_once_a_second_and_at_its_end():
    shown = []

    class Kept(Page):
        def __init__(self):
            pass

        def send(self, sample):
            shown.append(sample)
            return True

    feed = JobPage(Kept(), "plan")
    for _ in range(5):
        feed.show(Totals(), "running")
    feed.show(Totals(late=(3, 4)), "ended", now=True)
    assert [one["state"] for one in shown] == ["running", "ended"]
    assert shown[0]["figures"]["late"] == 0 and shown[1]["figures"]["late"] > 0


def ran(*arguments, **env):
    return CliRunner().invoke(app, ["run", *map(str, arguments)], env={"COLUMNS": "200"} | env)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--page", "0.0.0.0:0"], "--page: at 0.0.0.0 others than the users of this machine can see the page"),
        (["--page", "0.0.0.0:0"], "give a --page-token"),
        (["--page", "host"], "--page must be a port (0 to 65535; 0: any that is free) or HOST:PORT, got 'host'"),
        (["--page=99999"], "--page must be a port"),
        (["--page", "--page-token", "short"], "--page-token must be at least 16 letters"),
        (["--page-token", "0123456789abcdef"], "--page-token is for a page; add --page"),
    ],
)
def test_options_of_a_page_are_checked_before_spark_starts(job, tmp_path, options, message):  # noqa: F811
    job()
    for arguments in ([tmp_path / "job.toml", *options], [*options, tmp_path / "job.toml"]):
        result = ran(*arguments)
        assert result.exit_code == 2 and message in result.output.replace("\n", "")


def test_a_port_in_use_is_named(job, tmp_path):  # noqa: F811
    job()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = ran(tmp_path / "job.toml", "--page", port)
    assert result.exit_code == 2 and f"--page: port {port} of 127.0.0.1 is in use" in result.output


def test_the_page_of_a_job_shows_how_it_ended(job, spark):  # noqa: F811
    wanted = job(replace={"abs(l.x - r.x) <= 3": "abs(l.x - r.x) <= 3 and '<script>' <> '</script>'"})
    with Page("a job", "spark", 0) as page:
        ended = runner.run(wanted, Console(quiet=True), spark=spark, page=page)
        found, end = {}, time.monotonic() + 60
        while (found.get("sample") or {}).get("state") != "ended":
            with urllib.request.urlopen(page.url + "data", timeout=20) as answer:
                found = json.load(answer)
            assert time.monotonic() < end
            time.sleep(0.05)
    sample = found["sample"]
    assert sample["totals"]["rows_in"] == ended.totals.rows_in == 3000
    assert sample["totals"]["rows_out"] == ended.totals.rows_out
    assert sample["sides"]["left"]["rows_in"] == sample["sides"]["right"]["rows_in"] == 1500
    assert sample["figures"]["runs"] == ended.totals.runs
    assert "'<script>'" in sample["plan"] and "band" in sample["plan"]
    assert len(found["points"]) >= 2
