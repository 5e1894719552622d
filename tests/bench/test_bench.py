"""The benchmarks end to end at tiny sizes: all answers equal brute force, the report has its fields."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from watersmeet.bench import embedded, report, targets, workloads
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.cores import phases as core_phases
from watersmeet.bench.embedded import baselines, core_counts
from watersmeet.bench.embedded.symmetric import SymmetricHashJoin
from watersmeet.bench.frame import Bench
from watersmeet.bench.peers import PEERS, ArrowBuffer, Polars
from watersmeet.bench.race import HandRolled, Lane, Ours, agree
from watersmeet.cli import app

TINY = embedded.Sizes(
    windows=(64, 256),
    last_batches=(16, 128),
    seconds=0.01,
    batches=(100, 500),
    turn=0.0,
    rounds=2,
    push_pairs=5,
    by_hand_window=3000,
    by_hand_batches=(300, 700),
    by_hand_rounds=2,
    page_turn=0.05,
    page_rounds=1,
)
FORMS = [(peer, form) for peer in PEERS for form in peer.forms]


def installed(peer):
    if peer.missing():
        pytest.skip(peer.missing())


def brute_force(workload, rows):
    """All pairs among the first rows of both streams, for a time window."""
    left, right = (workload.rows(side, 0, rows) for side in workloads.SIDES)
    key = left["key"].to_numpy()[:, None] - right["key"].to_numpy()[None, :]
    time = right["ts"].cast(pa.int64()).to_numpy()[None, :] - left["ts"].cast(pa.int64()).to_numpy()[:, None]
    pairs = np.nonzero((abs(key) <= workload.band) & (abs(time) <= workload.window_us))
    columns = [table[name].cast(pa.int64()).to_numpy() for table in (left, right) for name in ("ts", "key", "value")]
    return Checksum.of(*(column[pairs[i // 3]] for i, column in enumerate(columns)))


def joined(contender, workload, batches):
    total = Checksum()
    for index in range(batches):
        for side in workloads.SIDES:
            total += contender.check(contender.push(side, workload.batch(side, index)))
    return total


def test_rows_do_not_depend_on_the_batch_size():
    small, large = workloads.b(100), workloads.b(300)
    parts = [small.batch("left", i) for i in range(3)]
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([large.batch("left", 0)])
    assert small.batch("left", 1) != small.batch("right", 1)
    assert replace(small, seed=8).batch("left", 1) != small.batch("left", 1)


@pytest.mark.parametrize("make", [workloads.a2, workloads.b])
def test_an_arriving_tuple_finds_about_two_partners(make):
    workload = make(1000, seconds=0.02)  # 1,000 rows a window
    long, short = brute_force(workload, 4000), brute_force(workload, 2000)
    assert (long.pairs - short.pairs) / 4000 == pytest.approx(2, rel=0.1)


def test_a_checksum_sees_pairs_and_not_their_order():
    left, right = np.array([1, 2, 3]), np.array([4, 5, 6])
    whole = Checksum.of(left, right)
    assert whole == Checksum.of(left[::-1], right[::-1])
    assert whole == Checksum.of(left[:1], right[:1]) + Checksum.of(left[1:], right[1:])
    assert whole != Checksum.of(right, left)
    assert whole != Checksum.of(left, np.array([4, 6, 5]))
    assert Checksum.of(left, right, left) != Checksum.of(left, right, right)
    table = pa.table({"a": left, "ts": pa.array([4, 5, 6], pa.timestamp("ms"))})
    assert Checksum.of_table(table, ["a", "ts"]) == Checksum.of(left, 1000 * right)
    assert whole - Checksum.of(left[:1], right[:1]) == Checksum.of(left[1:], right[1:])


@pytest.mark.parametrize(("peer", "form"), FORMS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("make", [workloads.a2, workloads.b])
def test_every_form_of_every_peer_equals_brute_force(peer, form, make):
    installed(peer)
    workload = make(100, seconds=0.01)
    keep = workload.window_rows + workload.batch_rows
    contender = HandRolled(peer(workload, keep, form))
    for side in workloads.SIDES:  # streams start with an empty batch, so that both buffers exist
        contender.load(side, workload.batch(side, 0).slice(0, 0))
    assert joined(contender, workload, 25) == brute_force(workload, 2500)


@pytest.mark.parametrize("make", [workloads.a2, workloads.b])
def test_ours_equals_brute_force(make):
    workload = make(100, seconds=0.01)
    assert joined(Ours(workload), workload, 25) == brute_force(workload, 2500)


@pytest.mark.parametrize("form", SymmetricHashJoin.forms)
def test_symmetric_hash_join_equals_brute_force(form):
    installed(SymmetricHashJoin)
    workload = workloads.a2(100, seconds=0.01)
    symmetric = SymmetricHashJoin(workload, 2500)
    try:
        assert symmetric.run(100, form).check == brute_force(workload, 2500)
    finally:
        symmetric.close()


def test_an_arrow_buffer_keeps_exactly_its_rows(monkeypatch):
    monkeypatch.setattr("watersmeet.bench.peers.MERGE_ROWS", 7)
    workload = workloads.a2(3)
    for keep in (2, 3, 5, 20):
        buffer = ArrowBuffer(keep)
        for index in range(20):
            buffer.add(workload.batch("left", index))
            kept = pa.Table.from_batches(buffer.batches)["value"].to_pylist()
            assert kept == list(range(3 * index + 3))[-keep:]


def test_all_parts_run_and_agree(tmp_path):
    out = tmp_path / "results.json"
    results = embedded.run(out=out, sizes=TINY, say=lambda line: None)
    assert json.loads(out.read_text()) == results
    assert results["machine"]["cores"] >= 1 and results["machine"]["versions"]["numpy"]
    parts = {row["workload"] for row in results["results"]}
    assert parts == set(embedded.PARTS)
    for row in results["results"]:
        assert row["tuples_per_s"] == max(row["rounds"]) > 0
        if row["contender"] != "argsort" and not row["contender"].startswith("nested loop"):
            assert row["workload"] == "aggregates" or row["checked_pairs"] > 0
        if row["workload"] != "band_last" or row["contender"] in ("watersmeet", "argsort"):
            assert len(row["rounds"]) == (TINY.page_rounds if row["workload"] == "page" else TINY.rounds)
    contenders = {row["contender"] for row in results["results"]}
    assert contenders >= {"watersmeet", "argsort", "nested loop"}
    for peer in (*PEERS, SymmetricHashJoin):
        assert (peer.name in contenders) != (peer.name in results["skipped"])
    for row in results["ratios"]:
        assert row["ok"] is None  # not judged
        if "a core's time" not in row["against"]:  # counted in ticks: none may fall into so short a run
            assert row["value"] > 0 and row["best"] > 0
    assert results["command"] and results["machine"]["dirty"] in (True, False, None)
    assert "np.argsort" in report.text(results) and "| ---: |" in report.markdown(results)
    assert report.load(out) == results


def test_cores_tell_how_the_time_of_a_push_divides(threads, monkeypatch):
    monkeypatch.setattr(core_counts, "all_cores", lambda: 2)
    monkeypatch.setattr(targets, "CORES", {(2, "rows", 500): 0.0, (4, "rows", 500): 0.0, (2, "positions", 128): 1e9})
    monkeypatch.setattr(embedded, "FULL", TINY)
    results = embedded.run(only=["cores"], rounds=1, most=4, say=lambda line: None)
    for row in results["results"]:
        several = row["form"].endswith(("hash", "cells"))
        spent = row["milliseconds"]
        assert (spent["step"] > 0, spent["busiest"] > 0, spent["core"] > 0) == (several,) * 3
        assert spent["busiest"] >= spent["core"] and spent["core.keys"] > 0
    judged = [row for row in results["ratios"] if row["ok"] is not None]
    assert [(row["against"].split(": ")[0], row["batch"], row["ok"]) for row in judged] == [
        ("A2, one core", 500, True), ("B, one core", 500, True), ("band_last, one core", 128, False)
    ]  # fmt: skip
    assert all(": 2, " in row["against"] for row in judged)
    assert results["skipped"] == {"targets of 4 cores": "it ran on 2"}, "of 4 there were figures, but they do not count"
    assert core_counts.counts_to_try(1) == [1] and core_counts.counts_to_try(12) == [1, 2, 4, 8, 12]


def test_phases_are_printed(threads, capsys):
    assert core_phases.main(["--cores", "1", "2", "--batch", "500", "--pairs", "2", "--seconds", "0.01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and lines[2].startswith("A2, 2 cores, batches of 500: ")
    assert " write " in lines[2] and " busiest " in lines[2] and " hand " in lines[3]


def test_a_peer_that_is_not_installed_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(Polars, "package", "no_such_package")
    results = embedded.run(only=["B"], sizes=TINY, rounds=1, say=lambda line: None)
    assert "pip install 'watersmeet[bench]'" in results["skipped"]["Polars"]
    assert "Skipped: Polars" in report.text(results)
    assert "Polars" not in {row["contender"] for row in results["results"]}


class Forgetful(Ours):
    """Loses a result now and then."""

    def push(self, side, batch):
        return super().push(side, batch).slice(1)


def test_ctrl_c_leaves_what_was_measured_until_then(monkeypatch, tmp_path):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded.Embedded, "page", interrupted)
    out = tmp_path / "results.json"
    results = embedded.run(sizes=TINY, only=["sort", "page"], out=out, say=lambda line: None)
    assert {row["workload"] for row in results["results"]} == {"sort"} and report.load(out) == results
    assert results["skipped"] == {"what was to follow": "interrupted by Ctrl-C"}
    with pytest.raises(KeyboardInterrupt):
        embedded.run(sizes=TINY, only=["page"], say=lambda line: None)


def test_an_error_leaves_what_was_measured_until_then_and_is_raised(monkeypatch, tmp_path):
    def wrong(self):
        raise AnswersDiffer("page: 1 is not 2")

    monkeypatch.setattr(embedded.Embedded, "page", wrong)
    out = tmp_path / "results.json"
    with pytest.raises(AnswersDiffer, match="1 is not 2"):
        embedded.run(sizes=TINY, only=["sort", "page"], out=out, say=lambda line: None)
    assert {row["workload"] for row in report.load(out)["results"]} == {"sort"}
    assert report.load(out)["skipped"] == {"what was to follow": "AnswersDiffer: page: 1 is not 2"}


def test_wrong_answers_stop_the_run(monkeypatch, capsys):
    workload = workloads.b(100, seconds=0.01)
    right, wrong = (
        Lane("right", "", workload, Ours(workload)),
        Lane("wrong", "", workload, Forgetful(workload)),
    )
    for lane in (right, wrong):
        lane.step()
    with pytest.raises(AnswersDiffer, match="wrong"):
        agree([right, wrong])
    monkeypatch.setattr(embedded, "Ours", Forgetful)
    monkeypatch.setattr(embedded, "QUICK", TINY)
    with pytest.raises(AnswersDiffer):
        embedded.run(quick=True, only=["B"])


class OffByOne(Ours):
    """As many results as there should be, one column wrong."""

    column = "ts_right"

    def push(self, side, batch):
        table = super().push(side, batch)
        index = table.column_names.index(self.column)
        wrong = pc.add(table.column(index).cast(pa.int64()), 1).cast(table.column(index).type)
        return table.set_column(index, self.column, wrong)


def test_a_wrong_column_is_seen_though_all_pairs_are_right():
    workload = workloads.b(100, seconds=0.01)
    lanes = [Lane(name, "", workload, make(workload)) for name, make in (("right", Ours), ("wrong", OffByOne))]
    for lane in lanes:
        lane.turn(0.0, least_pairs=3)
    assert lanes[0].checks[-1].pairs == lanes[1].checks[-1].pairs > 0
    with pytest.raises(AnswersDiffer, match="wrong"):
        agree(lanes)


class OffByOnePairs(OffByOne):
    column = "right"


@pytest.mark.parametrize(("window", "batch"), [(64, 16), (64, 200), (500, 7)])
def test_the_last_rows_of_a_timed_lane_are_searched_for(window, batch, monkeypatch):
    monkeypatch.setattr(baselines, "CHECKED_ROWS", 40)
    workload = workloads.band_last(window, batch)
    for make, right in ((Ours, True), (OffByOnePairs, False)):
        lane = Lane("lane", "", workload, make(workload, output="pairs", cores=1))
        lane.fill(window + window // 4)
        lane.turn(0.0, least_pairs=20)
        if right:
            assert baselines.last_rows(lane).pairs > 0
        else:
            with pytest.raises(AnswersDiffer, match="by searching"):
                baselines.last_rows(lane)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"only": ["C"]}, "only"), ({"rounds": 0}, "rounds"), ({"out": "no/such/a.json"}, "out")],
)
def test_bad_options_are_named_before_anything_runs(options, named):
    with pytest.raises(ValueError, match=f"^{named} must"):
        embedded.run(**options, sizes=TINY)


def test_a_missed_target_is_shown():
    bench = Bench(judged=True, say=lambda line: None)
    bench.ratio("B", "by hand", 7.9, 8.0, best=8.5, window=500_000, batch=5_000)
    bench.ratio("B", "cost", 3.9, 4.0, "<", window=500_000)
    bench.ratio("band_last", "cost", 4.5, 4.0, "<", window=1 << 23, batch=1 << 15)
    assert [row["ok"] for row in bench.ratios] == [False, True, False]
    assert [report.verdict(row) for row in bench.ratios] == ["MISS", "ok", "MISS"]
    assert report.missed({"ratios": bench.ratios}) == [
        "7.9 of 8 (B, batches of 5,000; by hand)",
        "4.5, not less than 4 (band_last, window 2^23, batches of 2^15; cost)",
    ]


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 1)])
def test_a_strict_run_that_misses_a_target_says_so_and_fails(ok, code, monkeypatch, tmp_path):
    """Measured at tiny sizes and judged as if they were full; the target is one that must be met, or cannot be."""
    monkeypatch.setattr(embedded, "FULL", replace(TINY, batches=(100,)))
    monkeypatch.setattr(targets, "BY_HAND", {("B", 100): 0.0 if ok else 1e9})
    arguments = ["bench", "embedded", "--only", "B", "--rounds", "1", "--out", str(tmp_path / "b.json")]
    result = CliRunner().invoke(app, [*arguments, "--strict"])
    assert result.exit_code == code, result.output
    assert ("targets met" in result.stdout) == ok
    assert ("Missed: 1 of 1 targets" in result.stdout and "of 1e+09" in result.stdout) == (not ok)
    if not ok:
        assert CliRunner().invoke(app, arguments).exit_code == 0  # not asked


@pytest.mark.parametrize("more", [["embedded", "--quick"], ["index", "--largest", "12"], ["spark", "--rows", "5000"]])
def test_a_small_run_cannot_be_strict(more):
    result = CliRunner().invoke(app, ["bench", *more, "--strict"])
    assert result.exit_code == 2 and "strict must be given for a run at full size only" in result.stderr
