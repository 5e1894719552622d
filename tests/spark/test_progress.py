"""How the progress of a query is added up and shown."""

import io
import json
import time
from types import SimpleNamespace

from pyspark.sql import Row
from rich.console import Console

from watersmeet.spark.progress import Totals, Watch, clock, counters, facts, line, moment, panel, size


def record(batch, rows, took_ms, *, out=None, late=None, watermark="1970-01-01T00:00:00.000Z", sink=-1):
    counted = {} if out is None else {"rows_out": out, "late_left": late[0], "late_right": late[1]}
    counted |= {} if out is None else {"stored_left": 40, "stored_right": 2, "stored_bytes": 1_234}
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}.000Z",
        "sources": [{"numInputRows": rows // 2}, {"numInputRows": rows - rows // 2}],
        "durationMs": {"triggerExecution": took_ms},
        "eventTime": {"watermark": watermark},
        "stateOperators": [{"memoryUsedBytes": 1_500_000}],
        "sink": {"numOutputRows": sink},
        "observedMetrics": {"watersmeet": counted} if counted else {},
    }


def test_micro_batches_add_up():
    totals = Totals(before_1970=True)
    totals.add(record(0, 1000, 500, out=300, late=(0, 1)))
    totals.add(record(1, 2000, 1000, out=100, late=(2, 0), watermark="4026-01-05T14:30:00.120Z"))
    assert (totals.rows_in, totals.rows_out, totals.late, totals.batches) == (3000, 400, (2, 1), 2)
    assert (totals.in_per_s, totals.out_per_s) == (2000, 100)
    assert totals.rates == (2000, 100), "without the first, in which Python workers start"
    assert totals.state_rows == 42
    assert dict(facts(totals)) == {
        "rows in": "3,000  (2,000 rows/s)",
        "rows out": "400  (100 rows/s)",
        "micro-batches": "2",
        "batch time": "1.00 s, 1.00 s on average",
        "watermark": "2026-01-05 14:30:00.120 UTC",
        "state": "42 rows, 1.2 kB",
        "late rows": "2 left, 1 right",
    }
    expected = "batch 1, 2,000 rows/s in, 100 rows/s out, 1.00 s, watermark 2026-01-05 14:30:00.120 UTC"
    assert line(totals) == f"{expected}, state 42 rows, 1.2 kB, late 3"


def test_an_idle_record_changes_only_the_rates():
    totals = Totals(before_1970=True)
    totals.add(record(0, 1000, 500, out=300, late=(0, 1)))
    totals.add(record(1, 0, 20, out=0, late=(0, 0)))
    assert (totals.rows_in, totals.batches, totals.in_per_s, totals.seconds) == (1000, 1, 0, [0.5])
    assert dict(facts(totals))["rows in"] == "1,000  (0 rows/s)"
    assert dict(facts(totals, ended=True))["rows in"] == "1,000  (first micro-batch: workers start)"


def test_the_first_micro_batch_is_no_measure_of_speed():
    totals = Totals(before_1970=True)
    totals.add(record(0, 1000, 50_000, out=300, late=(0, 0)))
    assert dict(facts(totals))["rows in"] == "1,000  (first micro-batch: workers start)"
    assert dict(facts(totals))["rows out"] == "300"
    assert line(totals).startswith("batch 0, first micro-batch: workers start, 50.00 s, watermark")
    totals.add(record(1, 2000, 1000, out=100, late=(0, 0)))
    totals.add(record(2, 2000, 3000, out=300, late=(0, 0)))
    assert line(totals).startswith("batch 2, 667 rows/s in, 100 rows/s out, 3.00 s")
    assert dict(facts(totals, ended=True))["rows in"] == "5,000  (1,000 rows/s)"
    assert dict(facts(totals, ended=True))["rows out"] == "700  (100 rows/s)"
    assert dict(facts(totals, ended=True))["batch time"] == "3.00 s, 2.00 s on average"


def test_rows_out_are_the_sinks_where_nobody_else_counts():
    totals = Totals(before_1970=True)
    totals.add(record(0, 10, 100))
    assert totals.rows_out is None
    assert dict(facts(totals))["rows out"] == dict(facts(totals))["late rows"] == "-"
    assert dict(facts(totals))["state"] == "1.5 MB of memory"
    totals.add(record(1, 10, 100, sink=7))
    assert totals.rows_out == 7


def of_sides(batch, left, right, stored, second, bad=0):
    """A record of our join, with its watermark at some second of 2026; None: there is none yet."""
    watermark = "1970-01-01T00:00:00.000Z" if second is None else f"4026-01-01T00:00:{second:02}.000Z"
    one = record(batch, 8 * (left + right), 100, out=0, late=(0, 0), watermark=watermark)
    one["observedMetrics"]["watersmeet"] |= {"rows_left": left, "rows_right": right, "bad_left": bad, "bad_right": 0}
    one["observedMetrics"]["watersmeet"] |= {"stored_left": stored, "stored_right": 0}
    return one


def test_rows_in_are_those_of_the_join_where_it_counts_them():
    """Spark counts rows of a source twice that is read twice."""
    totals = Totals(before_1970=True)
    totals.add(of_sides(0, 10, 5, 0, None, bad=2))
    assert (totals.rows_in, totals.bad) == (17, (2, 0))
    assert dict(facts(totals))["bad rows"] == "2 left, 0 right"
    assert line(totals).endswith("late 0, bad 2")


def test_a_silent_side_that_holds_the_watermark_is_worth_a_warning():
    totals = Totals(before_1970=True)
    totals.add(of_sides(0, 10, 10, 20, None))
    for number in range(1, 4):
        assert totals.warning is None
        totals.add(of_sides(number, 10, 0, 20 + 10_000 * number, 5))  # it moved once more, after the first
    assert totals.warning == (
        "right has sent nothing for 3 micro-batches: the watermark stands still and 30,020 rows wait; "
        "give the window an idle_after, so that it is not waited for"
    )
    console = Console(file=io.StringIO(), width=80)
    console.print(panel(Watch(None, before_1970=True), "job", "running"))
    assert "warning" not in console.file.getvalue()
    watch = Watch(None, before_1970=True)
    watch.totals = totals
    console.print(panel(watch, "job", "running"))
    assert "warning: right has sent nothing for 3 micro-batches" in console.file.getvalue()
    totals.add(of_sides(4, 10, 1, 50_000, 5))
    assert totals.warning is None


def test_a_side_that_never_sent_anything_is_silent_too():
    totals = Totals(before_1970=True)
    for number in range(3):
        totals.add(of_sides(number, 0, 10, 10 * number, None))
    assert totals.warning.startswith("left has sent nothing for 3 micro-batches")


def test_no_warning_while_time_goes_on_or_nothing_piles_up():
    moving, bounded, idle = Totals(), Totals(), Totals()
    for number in range(9):
        moving.add(of_sides(number, 10, 0, 100 * number, number))
        bounded.add(of_sides(number, 10, 0, 0, None))
        idle.add(of_sides(number, 0, 0, 100, None))
    assert moving.warning is bounded.warning is idle.warning is None


def test_counters_are_read_as_classic_and_as_connect_write_them():
    schema = {"type": "struct", "fields": [{"name": "rows_out", "type": "long"}, {"name": "late_left", "type": "long"}]}
    connect = {"values": [7, 1], "schema": schema}
    for row in ({"rows_out": 7, "late_left": 1}, connect, Row(rows_out=7, late_left=1), Row(**connect)):
        assert counters({"observedMetrics": {"watersmeet": row}}) == {"rows_out": 7, "late_left": 1}
    assert counters({"observedMetrics": {}}) == {}


def test_nothing_yet_is_shown_as_such():
    assert dict(facts(Totals()))["batch time"] == "-"
    assert dict(facts(Totals()))["watermark"] == "-"


def test_units():
    assert [size(n) for n in (0, 999, 1500, 2.5e6)] == ["0 B", "999 B", "1.5 kB", "2.5 MB"]
    assert [size(n) for n in (3e9, 4e12)] == ["3.0 GB", "4000.0 GB"]
    assert clock(3725.9) == "1:02:05"
    assert moment("2026-01-05T14:30:00.000Z") == "2026-01-05 14:30:00.000 UTC"


class Told:
    """A query, by what it has told so far."""

    def __init__(self, *records):
        self.recentProgress = [SimpleNamespace(json=json.dumps(one)) for one in records]
        self.lastProgress = self.recentProgress[-1]


def test_a_watch_misses_no_batch_while_a_query_waits():
    """It then tells so under the number of the micro-batch to come."""
    waits = record(1, 0, 5) | {"timestamp": "2026-01-01T00:00:00.500Z"}
    worked = [record(n, 1000 + n, 500) for n in range(4)]
    for one in worked:
        one["durationMs"]["addBatch"] = 400
    watch = Watch(Told(worked[0]))
    told = [worked[0]]
    for more in ([], [waits], worked[1:3], worked[3:]):
        told += more
        watch.query = Told(*told)
        watch.poll()
    assert watch.totals.rows_in == 1000 + 1001 + 1002 + 1003 and watch.totals.batches == 4


def test_a_watch_sees_every_batch_of_a_real_query_once(spark, tmp_path):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        watch = Watch(query, before_1970=True)
        end = time.monotonic() + 300
        while query.lastProgress is None or query.lastProgress["batchId"] < 3:  # some go by unwatched
            assert query.isActive and time.monotonic() < end
            time.sleep(0.02)
        watch.poll()
        query.stop()
        watch.poll()
        assert watch.totals.rows_in == 10 * watch.totals.batches
        assert watch.totals.batches == watch.totals.batch_id + 1
        assert not watch.poll()
        console = Console(file=io.StringIO(), width=100)
        console.print(panel(watch, "job", "running"))
        assert f"rows in        {watch.totals.rows_in}" in console.file.getvalue()
    finally:
        query.stop()
