"""How the progress of a query is added up and shown."""

import io

from pyspark.sql import Row
from rich.console import Console

from watersmeet.spark.progress import Totals, Watch, clock, counters, facts, line, moment, panel, size


def record(batch, rows, took_ms, *, out=None, late=None, watermark="1970-01-01T00:00:00.000Z", sink=-1):
    counted = {} if out is None else {"rows_out": out, "late_left": late[0], "late_right": late[1]}
    counted |= {} if out is None else {"stored_left": 40, "stored_right": 2}
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
    totals = Totals()
    totals.add(record(0, 1000, 500, out=300, late=(0, 1)))
    totals.add(record(1, 2000, 1000, out=100, late=(2, 0), watermark="4026-01-05T14:30:00.120Z"))
    assert (totals.rows_in, totals.rows_out, totals.late, totals.batches) == (3000, 400, (2, 1), 2)
    assert (totals.in_per_s, totals.out_per_s) == (2000, 100)
    assert totals.state_rows == 42
    assert dict(facts(totals)) == {
        "rows in": "3,000  (2,000 rows/s)",
        "rows out": "400  (100 rows/s)",
        "micro-batches": "2",
        "batch time": "1.00 s, 0.75 s on average",
        "watermark": "2026-01-05 14:30:00.120 UTC",
        "state": "1.5 MB, 42 rows",
        "late rows": "2 left, 1 right",
    }
    expected = "batch 1, 2,000 rows/s in, 100 rows/s out, 1.00 s, watermark 2026-01-05 14:30:00.120 UTC"
    assert line(totals) == f"{expected}, state 1.5 MB, late 3"


def test_an_idle_record_changes_only_the_rates():
    totals = Totals()
    totals.add(record(0, 1000, 500, out=300, late=(0, 1)))
    totals.add(record(1, 0, 20, out=0, late=(0, 0)))
    assert (totals.rows_in, totals.batches, totals.in_per_s, totals.seconds) == (1000, 1, 0, [0.5])
    assert dict(facts(totals))["rows in"] == "1,000  (0 rows/s)"
    assert dict(facts(totals, ended=True))["rows in"] == "1,000  (2,000 rows/s)"


def test_rows_out_are_the_sinks_where_nobody_else_counts():
    totals = Totals()
    totals.add(record(0, 10, 100))
    assert totals.rows_out is None
    assert dict(facts(totals))["rows out"] == dict(facts(totals))["late rows"] == "-"
    totals.add(record(1, 10, 100, sink=7))
    assert totals.rows_out == 7


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
    assert moment("-17") == "-17"  # integer times


def test_a_watch_sees_every_batch_of_a_real_query_once(spark, tmp_path):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        watch = Watch(query)
        while query.lastProgress is None or query.lastProgress["batchId"] < 3:  # some go by unwatched
            pass
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
