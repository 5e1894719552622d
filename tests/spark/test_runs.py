"""What the state holds: few runs, nothing expired, and no trace of attempts that failed."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark import router
from watersmeet.spark.compact import FAN_IN
from watersmeet.spark.cores import core_keys
from watersmeet.spark.limits import LIMITS, Limits
from watersmeet.spark.packs import joined
from watersmeet.spark.runs import _least_waiting
from watersmeet.spark.spec import VERSION

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


def test_bad_rows_may_be_left_out_of_one_side_only(tmp_path):
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA, bad_rows=("fail", "drop"))
    bad = pa.table({"ts": [1_000, None], "x": [3, 4], "text": ["a", "b"]}, schema=SCHEMA)
    spark = StandIn(spec, tmp_path)
    spark.batch(None, bad)
    assert (spark.counts["rows_right"], spark.counts["bad_right"]) == (1, 1)
    with pytest.raises(ValueError, match="time column 'ts' of the left stream is null"):
        spark.batch(bad, None)


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


# -- limits that are reached -----------------------------------------------------------------------------------------

TINY = Limits(step=400, chunk=300, small=250)


def left_join(left, right, window, width):
    """Brute force, as (ts, x, ts of the partner, x of the partner); and (ts, x, None, None)."""
    found = pairs(left, right, window, width)
    partnered = {pair[:2] for pair in found}
    every = zip(left.column("ts").to_pylist(), left.column("x").to_pylist(), strict=True)
    return Counter([*found, *((*one, None, None) for one in every if one not in partnered)])


def manifests(spark):
    return {key: json.loads(values["value"][0]) for (key, name), values in spark.handle.values.items()
            if name == "manifest" and values}  # fmt: skip


def check_state(spark):
    """What the manifests name is in the state, and nothing else: chunks, flags, and one timer a core."""
    timers = set()
    for key, manifest in manifests(spark).items():
        runs = {id: (side, sum(rows for _, rows in chunks)) for id, side, chunks, _ in manifest["runs"]}
        assert {(id,) for _, _, chunks, _ in manifest["runs"] for id, _ in chunks} == set(
            spark.handle.values[key, "chunks"]
        )
        flagged = {(id,): -(-rows // 8) for id, (side, rows) in runs.items() if side == "left"}
        assert flagged == {id: len(flags) for id, (flags,) in spark.handle.values[key, "flags"].items()}
        timers |= {(key, manifest["timer"])} if manifest["timer"] is not None else set()
    assert spark.handle.timers == timers


@pytest.mark.parametrize("limits", [LIMITS, TINY], ids=["large", "tiny"])
def test_runs_of_several_chunks_survive_merging_and_rebuilding(tmp_path, limits):
    """A left join, whose flags must stay with their tuples; each text tells to which tuple it belongs."""
    spec = specified("l.x = r.x", wm.within(150, lateness=10), "left", SCHEMA, SCHEMA, cores=2)
    spark = StandIn(spec, tmp_path, limits=limits)
    left, right, results, most_chunks, levels = [], [], [], 0, set()
    for number, (a, b) in enumerate(zip(stream(1, 40, 12, 5), stream(2, 40, 12, 5), strict=True)):
        left.append(a)
        right.append(b)
        results.append(spark.batch(a, b, fails=number % 5 == 2))
        check_state(spark)
        runs = [run for manifest in manifests(spark).values() for run in manifest["runs"]]
        most_chunks = max([most_chunks, *(len(run[2]) for run in runs)])
        levels |= {sum(rows for _, rows in run[2]) for run in runs}
        if number % 3 == 0:
            spark.forget_files()
    end = pa.table({"ts": [9_999], "x": [-1], "text": ["-1" * 10]}, schema=SCHEMA)
    results.append(spark.batch(end, None))
    results.append(spark.batch(None, end))
    assert spark.counts["rebuilt_runs"] > 20
    assert max(levels) > 30, "runs were merged"
    assert (most_chunks > 3) == (limits is TINY)
    table = pa.concat_tables(results)
    for ts, text in (("x", "text"), ("x_right", "text_right")):
        xs, texts = table.column(ts).to_pylist(), table.column(text).to_pylist()
        assert texts == [None if x is None else f"{x}" * 10 for x in xs]
    columns = [table.column(name).to_pylist() for name in ("ts", "x", "ts_right", "x_right")]
    found = Counter(row for row in zip(*columns, strict=True) if row[0] != 9_999)
    wanted = left_join(pa.concat_tables(left), pa.concat_tables(right), 150, 0)
    assert sum(row[2] is None for row in wanted) > 50
    assert found == wanted


@pytest.mark.parametrize("limits", [LIMITS, Limits(step=100_000, chunk=50_000)], ids=["one step", "steps"])
def test_a_large_batch_over_many_windows(tmp_path, limits):
    """More than the engine takes in at a time: it makes several runs of it."""
    spec = specified("l.x = r.x", wm.within(40), "left", SCHEMA, SCHEMA, route="single", cores=1)
    spark = StandIn(spec, tmp_path, limits=limits)
    rows = 12_000
    left, right = next(stream(1, 1, rows)), next(stream(2, 1, rows))
    results = [spark.batch(left, right)]
    later = stream(3, 2, rows)
    next(later)
    more = next(later)
    spark.forget_files()
    results.append(spark.batch(more, more))
    check_state(spark)
    table = pa.concat_tables(results)
    both = pa.concat_tables([left, more]), pa.concat_tables([right, more])
    columns = [table.column(name).to_pylist() for name in ("ts", "x", "ts_right", "x_right")]
    wanted = left_join(*both, 40, 0)
    decided = int(more.column("ts").to_numpy().max()) - 41
    assert Counter(row for row in zip(*columns, strict=True) if row[0] < decided) == Counter(
        {row: n for row, n in wanted.items() if row[0] < decided}
    )


def test_a_batch_over_many_windows_is_several_runs(tmp_path):
    spec = specified("l.x = r.x", wm.within(2_000), "inner", SCHEMA, SCHEMA, route="single", cores=1)
    spark = StandIn(spec, tmp_path)
    (one,) = stream(1, 1, 30_000)
    spark.batch(one, None)
    assert spark.last["stored_left"] == 30_000
    assert spark.last["runs"] > 3


def test_the_old_timer_goes_when_another_is_set(tmp_path):
    """A stand-in for Spark's timers: one that is left would fire for nothing, and one too many be an error."""
    spec = specified("l.x = r.x", wm.within(100), "left", SCHEMA, SCHEMA, route="single", cores=1)
    spark = StandIn(spec, tmp_path)
    due = set()
    for one in stream(1, 6, 20):
        spark.batch(one, one)
        check_state(spark)
        due |= spark.handle.timers
    assert len(due) > 3, "they were set again and again"


def test_state_of_another_version_is_refused(tmp_path):
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA)
    spark = StandIn(spec, tmp_path)
    (batch,) = stream(1, 1, 20)
    spark.batch(batch, batch)
    for (_, name), values in spark.handle.values.items():
        if name == "manifest" and values:
            values["value"] = (json.dumps(json.loads(values["value"][0]) | {"version": VERSION - 1}),)
    told = f"state of version {VERSION - 1}, this release of Watersmeet reads version {VERSION}; start with a new"
    with pytest.raises(ValueError, match=told):
        spark.batch(batch, batch)


def test_state_of_other_partitions_is_refused(tmp_path):
    """The second line of defence: tasks compare the setting of the query before."""
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA)
    spark = StandIn(spec, tmp_path)
    (batch,) = stream(1, 1, 20)
    spark.batch(batch, batch)
    spark.spec = replace(spec, keys=core_keys(2, 8), partitions=8)
    with pytest.raises(ValueError, match="spark.sql.shuffle.partitions was '2', now is '8'"):
        spark.batch(batch, batch)


@pytest.mark.parametrize("route", ["cells", "split"])
def test_a_pair_is_found_once_whether_its_cores_take_one_step_or_several(tmp_path, route):
    """Visitors and stored tuples of one micro-batch: all cores must agree on who comes first."""
    spec = specified("abs(l.x - r.x) <= 9", wm.within(50), "inner", SCHEMA, SCHEMA, route=route, cores=3)
    spark = StandIn(spec, tmp_path, limits=Limits(step=150))
    left, right, results = [], [], []
    for a, b in zip(stream(1, 30, 10), stream(2, 30, 10), strict=True):
        left.append(a)
        right.append(b)
        results.append(spark.batch(a, b))
    table = pa.concat_tables(results)
    columns = [table.column(name).to_pylist() for name in ("ts", "x", "ts_right", "x_right")]
    assert sorted(zip(*columns, strict=True)) == pairs(pa.concat_tables(left), pa.concat_tables(right), 50, 9)


def test_the_router_joins_no_more_than_an_array_can_hold(monkeypatch):
    """As with rows of many megabytes: here, with more than 100 bytes."""
    spec = specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA, route="single", cores=1)
    (one,) = stream(1, 1, 20)
    sizes = []
    monkeypatch.setattr(router, "joined", lambda batches: sizes.append(len(batches)) or joined(batches))
    for most, expected in ((1 << 30, [5]), (100, [1] * 5)):
        monkeypatch.setattr(router, "MOST_BYTES", most)
        sizes.clear()
        packs = list(router.Router(spec, "left")(iter(one.to_batches(max_chunksize=4))))
        assert len(packs) == 2 * len(expected)  # each portion is a pack, and an empty one for core 0
        assert sizes == expected


@pytest.mark.parametrize("lost, told", [("chunks", "lost chunk"), ("flags", "lost the flags")])
def test_state_that_is_not_there_any_more_is_named(tmp_path, lost, told):
    spark = StandIn(specified("l.x = r.x", wm.within(500), "left", SCHEMA, SCHEMA), tmp_path)
    one, another = stream(1, 2, 20)
    spark.batch(one, one)
    for (_, name), values in spark.handle.values.items():
        if name == lost:
            values.clear()
    spark.forget_files()
    with pytest.raises(RuntimeError, match=f"the state has {told} .* its checkpoint is damaged"):
        spark.batch(another, another)


@pytest.mark.parametrize(
    "settled, least", [([0, 0, 0, 0], 3), ([0, 1, 0, 1], 5), ([1, 1, 1, 0], 8), ([1, 1, 1, 1], None)]
)
def test_the_tuple_that_waits_longest_says_when_to_wake_up(settled, least):
    """Whether ticks are in order or not."""
    ticks, settled = np.array([5, 3, 9, 8]), np.array(settled, np.uint8)
    order = np.argsort(ticks)
    assert _least_waiting(SimpleNamespace(in_order=False, ticks=ticks, settled=settled)) == least
    assert _least_waiting(SimpleNamespace(in_order=True, ticks=ticks[order], settled=settled[order])) == least
