"""What the state holds: few runs, nothing expired, and no trace of attempts that failed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark.compact import FAN_IN

from .standin import StandIn, specified

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("text", pa.string())])


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
    with pytest.raises(ValueError, match="time column 'ts' of the left stream is null"):
        StandIn(spec, tmp_path).batch(bad, None)
