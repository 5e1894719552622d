"""The benchmarks end to end at tiny sizes: all answers equal brute force, the report has its fields."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.bench import embedded, report, workloads
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.frame import Bench
from watersmeet.bench.peers import PEERS, ArrowBuffer, Polars
from watersmeet.bench.race import HandRolled, Lane, Ours, agree
from watersmeet.bench.symmetric import SymmetricHashJoin

TINY = embedded.Sizes(
    windows=(64, 256),
    last_batches=(16, 128),
    seconds=0.01,
    batches=(100, 500),
    turn=0.0,
    rounds=2,
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
    return Checksum.of(*np.nonzero((abs(key) <= workload.band) & (abs(time) <= workload.window_us)))


def joined(contender, workload, batches):
    total = Checksum()
    for index in range(batches):
        for side in workloads.SIDES:
            total += Checksum.of(*contender.pairs(contender.push(side, workload.batch(side, index))))
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
        if row["workload"] != "band_last":
            assert row["checked_pairs"] > 0
    contenders = {row["contender"] for row in results["results"]}
    assert contenders >= {"watersmeet", "argsort", "nested loop"}
    for peer in (*PEERS, SymmetricHashJoin):
        assert (peer.name in contenders) != (peer.name in results["skipped"])
    assert all(row["value"] > 0 and row["ok"] is None for row in results["ratios"])
    assert "np.argsort" in report.text(results) and "| ---: |" in report.markdown(results)
    assert report.load(out) == results


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


@pytest.mark.parametrize(
    ("options", "named"),
    [({"only": ["C"]}, "only"), ({"rounds": 0}, "rounds"), ({"out": "no/such/a.json"}, "out")],
)
def test_bad_options_are_named_before_anything_runs(options, named):
    with pytest.raises(ValueError, match=f"^{named} must"):
        embedded.run(**options, sizes=TINY)


def test_a_missed_target_is_shown():
    bench = Bench(judged=True, say=lambda line: None)
    bench.ratio("B", "best", 7.9, 8.0, window=500_000)
    bench.ratio("B", "cost", 3.9, 4.0, "<", window=500_000)
    assert [row["ok"] for row in bench.ratios] == [False, True]
    assert [report.verdict(row) for row in bench.ratios] == ["MISS", "ok"]
