"""What the state holds: few runs, nothing expired, and no trace of attempts that failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark import cache
from watersmeet.spark.compact import FAN_IN

from .standin import StandIn, specified

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("text", pa.string())])

CHUNK = pa.record_batch({"x": [1, 2, 3]})


def stream(seed, batches, rows, jitter=0):
    """Micro-batches of a stream with a tuple a tick."""
    random = np.random.default_rng(seed)
    for number in range(batches):
        ts = 1000 + number * rows + np.arange(rows) + random.integers(-jitter, jitter + 1, rows)
        x = random.integers(0, 200, rows)
        yield pa.table({"ts": ts, "x": x, "text": [f"{v}" * 10 for v in x]}, schema=SCHEMA)


def pairs(left, right, window, width):
    """Brute force over all tuples, by their times and keys."""
    l_ts, l_x, r_ts, r_x = (t.column(c).to_numpy() for t in (left, right) for c in ("ts", "x"))
    found = []
    for ts, x in zip(l_ts, l_x, strict=True):
        near = (abs(r_ts - ts) <= window) & (abs(r_x - x) <= width)
        found += [(int(ts), int(x), int(a), int(b)) for a, b in zip(r_ts[near], r_x[near], strict=True)]
    return sorted(found)


@pytest.mark.parametrize("route", ["cells", "split", "single"])
def test_a_long_stream_keeps_few_runs_and_all_results(tmp_path, route):
    window, batches, rows = 400, 120, 10
    spec = specified(
        "abs(l.x - r.x) <= 2", wm.within(window, lateness=10), "inner", SCHEMA, SCHEMA, route=route, cores=2
    )
    spark = StandIn(spec, tmp_path)
    left, right, results, runs, stored, files = [], [], [], [], [], []
    for number, (a, b) in enumerate(zip(stream(1, batches, rows, 5), stream(2, batches, rows, 5), strict=True)):
        left.append(a)
        right.append(b)
        results.append(spark.batch(a, b, fails=number % 7 == 3))
        runs.append(max(1, spark.last["runs"]))
        stored.append(spark.state_bytes())
        files.append(sum(path.is_file() for path in tmp_path.rglob("*")))
        if number == 60:
            spark.forget_files()
    table = pa.concat_tables(results)
    columns = [table.column(name).to_pylist() for name in ("ts", "x", "ts_right", "x_right")]
    assert sorted(zip(*columns, strict=True)) == pairs(pa.concat_tables(left), pa.concat_tables(right), window, 2)
    assert spark.counts["late_left"] == spark.counts["late_right"] == 0
    # Two sides on at most two cores: on each of four levels less than FAN_IN, and what spans too much to be merged.
    assert max(runs) <= 2 * 2 * 4 * FAN_IN
    assert max(stored[80:]) <= 1.2 * max(stored[40:80])
    assert max(files[80:]) <= 1.5 * max(files[40:80])


def test_when_all_has_expired_nothing_is_left(tmp_path):
    spec = specified("l.x = r.x", wm.within(5), "left", SCHEMA, SCHEMA)
    spark = StandIn(spec, tmp_path)
    for a, b in zip(stream(1, 5, 20), stream(2, 5, 20), strict=True):
        spark.batch(a, b)
    end = pa.table({"ts": [9_999], "x": [0], "text": ["end"]}, schema=SCHEMA)
    spark.batch(end, end)
    spark.batch(end, end)
    assert spark.last["stored_left"] + spark.last["stored_right"] <= 4
    chunks = [values for (_, name), values in spark.handle.values.items() if name in ("chunks", "flags")]
    assert sum(map(len, chunks)) <= 6


def test_stored_bytes_are_those_of_the_rows_that_are_kept(tmp_path):
    spark = StandIn(specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA, cores=1), tmp_path)
    sizes = []
    for table in stream(1, 6, 500):
        spark.batch(table, None)  # without the other side nothing expires
        sizes.append(table.nbytes)
        assert spark.last["stored_left"] == 500 * len(sizes)
        assert spark.last["stored_bytes"] == pytest.approx(sum(sizes), rel=0.05)


def test_the_state_of_another_join_is_refused(tmp_path):
    before = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA)
    spark = StandIn(before, tmp_path)
    (batch,) = stream(1, 1, 20)
    spark.batch(batch, batch)
    for changed, what in (
        (specified("l.x = r.x + 1", wm.within(5), "inner", SCHEMA, SCHEMA), "predicate was 'l.x = r.x', now is"),
        (specified("l.x = r.x", wm.within(6), "inner", SCHEMA, SCHEMA), "window was"),
        (specified("l.x = r.x", wm.within(5), "semi", SCHEMA, SCHEMA), "how was 'inner', now is 'semi'"),
        (specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA, cores=3), "cores was '2', now is '3'"),
    ):
        spark.spec = changed
        with pytest.raises(ValueError, match="belongs to another join") as error:
            spark.batch(batch, batch)
        assert what in str(error.value)
        assert "new checkpoint" in str(error.value)
    spark.spec = specified("l.x = r.x", wm.within(5, lateness=3), "inner", SCHEMA, SCHEMA)  # lateness may change
    assert spark.batch(batch, batch).num_rows > 0


def test_core_0_hears_of_every_batch_so_that_it_can_refuse(tmp_path):
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA, cores=8)
    spark = StandIn(spec, tmp_path)
    one = pa.table({"ts": [1_000], "x": [3], "text": ["one"]}, schema=SCHEMA)
    spark.batch(one, None)
    assert (0, "manifest") in spark.handle.values


def test_a_null_time_is_refused(tmp_path):
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA)
    bad = pa.table({"ts": [1_000, None], "x": [3, 4], "text": ["a", "b"]}, schema=SCHEMA)
    with pytest.raises(ValueError, match="time column 'ts' of the left stream is null.*bad_rows='drop'"):
        StandIn(spec, tmp_path).batch(bad, None)


@pytest.mark.parametrize("fails", [0, 1])
def test_rows_without_a_usable_time_are_left_out_and_counted_if_so_asked(tmp_path, fails):
    spec = specified("l.x = r.x", wm.within(5), "full", SCHEMA, SCHEMA, bad_rows="drop")
    spark = StandIn(spec, tmp_path)

    def rows(*times):
        return pa.table({"ts": times, "x": [3] * len(times), "text": ["a"] * len(times)}, schema=SCHEMA)

    found = spark.batch(rows(1_000, None, 2**62, 1_001), rows(None, -(2**62)), fails=fails)
    assert found.num_rows == 0
    assert (spark.counts["bad_left"], spark.counts["bad_right"]) == (2, 2)
    assert (spark.counts["rows_left"], spark.counts["rows_right"]) == (2, 0)
    assert spark.watermark == 0, "a side that has sent only bad rows has sent no time"
    found = spark.batch(None, rows(1_003, -(2**63), 1_002), fails=fails)
    assert sorted(zip(found["ts"].to_pylist(), found["ts_right"].to_pylist(), strict=True)) == [
        (1_000, 1_002), (1_000, 1_003), (1_001, 1_002), (1_001, 1_003),
    ]  # fmt: skip
    assert (spark.counts["bad_left"], spark.counts["bad_right"]) == (2, 3)


def test_a_date_that_does_not_fit_beside_timestamps_is_a_bad_row(tmp_path):
    left = pa.schema([("ts", pa.date32()), ("x", pa.int64()), ("text", pa.string())])
    right = SCHEMA.set(0, pa.field("ts", pa.timestamp("us")))
    spec = specified("l.x = r.x", wm.within("1 day"), "inner", left, right, bad_rows="drop")
    spark = StandIn(spec, tmp_path)
    times = pa.array([10, 2**31 - 1, None, -(2**31)], pa.date32())
    days = pa.table({"ts": times, "x": [1] * 4, "text": [""] * 4}, left)
    spark.batch(days, None)
    assert (spark.counts["rows_left"], spark.counts["bad_left"]) == (1, 3)
    spark.spec = replace(spec, bad_rows="fail")
    with pytest.raises(ValueError, match=r"Spark's clock cannot hold in row \d of this batch, 2147483647 as a number"):
        spark.batch(days.slice(0, 2), None)


def test_folders_of_silent_queries_are_cleared_away(tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    cache.CoreFiles(old, "0").put_chunk("a", CHUNK)
    cache.CoreFiles(new, "0").put_chunk("a", CHUNK)
    cache.sweep(new)
    assert old.exists()
    monkeypatch.setattr(cache, "SILENT_SECONDS", -10.0)
    cache._swept.clear()
    cache.sweep(new)
    assert not old.exists()
    assert cache.CoreFiles(new, "0").chunk("a", CHUNK.schema) == CHUNK


def test_files_of_other_attempts_go_but_not_while_they_may_be_needed(tmp_path, monkeypatch):
    files = cache.CoreFiles(tmp_path, "0")
    files.put_chunk("mine", CHUNK)
    files.put_chunk("failed", CHUNK)
    unfinished = tmp_path / "0" / "other.chunk.1234"  # an attempt that is still being made
    results = tmp_path / "results" / "lost.arrow"  # of one that failed before they were taken
    results.parent.mkdir()
    for path in (unfinished, results):
        path.write_bytes(b"x")
    files.keep({"mine"})
    assert files.chunk("failed", CHUNK.schema) is None
    assert unfinished.exists() and results.exists()
    monkeypatch.setattr(cache, "SILENT_SECONDS", -10.0)
    files.keep({"mine"})
    assert not unfinished.exists() and not results.exists()
    assert files.chunk("mine", CHUNK.schema) == CHUNK
