"""Joiners of the study on a GPU, against brute force, and a run of `watersmeet bench gpu`."""

import numpy as np
import pytest
import study

from watersmeet.bench import gpu as bench
from watersmeet.bench import report
from watersmeet.bench.gpu.study import gpu as joiners
from watersmeet.bench.gpu.study import space, streams
from watersmeet.bench.gpu.study.gpu import GPUJoiner
from watersmeet.bench.gpu.study.space import Variant
from watersmeet.device.cuda import SIMULATED
from watersmeet.device.machine import machine

KB = 1 << 10


@pytest.mark.parametrize("variant", space.variants("gpu"), ids=str)
def test_every_joiner_on_the_gpu_gives_the_brute_force_answer(variant):
    work = study.workload(60, 19, 8, 12, 1.0, machine().pinned)
    wanted = study.expected(work)
    study.check(variant, work, wanted, GPUJoiner(variant, work, [one.pairs for one in wanted]))


@pytest.mark.parametrize("results", ["none", "count_kernel"])
@pytest.mark.parametrize("algorithm", ["hash", "sort_merge", "nested_loop"])
def test_keys_that_travel_alone_give_the_same(algorithm, results):
    work = study.workload(60, 19, 8, 5, 0.5, machine().pinned)
    wanted = study.expected(work)
    variant = Variant(algorithm, results=results, travels="keys")
    study.check(variant, work, wanted, GPUJoiner(variant, work, [one.pairs for one in wanted]))


@pytest.mark.parametrize("algorithm", ["hash", "sort_merge"])
@pytest.mark.parametrize("results", ["count_kernel", "estimated"])
def test_more_pairs_than_a_portion_and_than_expected(algorithm, results, monkeypatch):
    monkeypatch.setattr(joiners, "PORTION", 10)
    work = study.workload(40, 20, 8, 3, 0.0, machine().pinned)
    wanted = study.expected(work)
    variant = Variant(algorithm, results=results)
    study.check(variant, work, wanted, GPUJoiner(variant, work, [3 for _ in wanted]))


def test_many_windows_go_in_one_launch_and_more_groups_than_lanes(monkeypatch):
    monkeypatch.setattr(joiners, "GROUP_BYTES", 2 * 16 * 8)
    work = study.workload(72, 8, 8, 3, 0.0, machine().pinned)
    wanted = study.expected(work)
    for algorithm in ("hash", "sort_merge", "nested_loop"):
        joiner = GPUJoiner(Variant(algorithm), work, [one.pairs for one in wanted])
        assert joiner._group == 2
        study.check(Variant(algorithm), work, wanted, joiner)


@pytest.mark.parametrize(("window", "batch", "recorded"), [(16, 4, True), (18, 4, False)])
def test_steps_of_an_eager_count_are_recorded_where_batches_fit(window, batch, recorded):
    work = study.workload(60, window, batch, 5, 0.5, machine().pinned)
    wanted = study.expected(work)
    variant = Variant(progress="eager", parallel="intra")
    joiner = GPUJoiner(variant, work, [one.pairs for one in wanted])
    study.check(variant, work, wanted, joiner)
    assert joiner._counting.recorded is recorded


def test_a_run_measures_every_part(tmp_path):
    sizes = bench.Sizes(
        stream=1 * KB, windows=(256, 512), small_windows=(256,), batch=128, batches=(64, 128), distinct=(10, 1000),
        zipf=(0.0, 1.0), copies=(4 * KB,), exact=1 << 6, exact_window=16, exact_batch=8,
        joins=(5,), join_batch=16, turn=0.0, rounds=1,
    )  # fmt: skip
    if not SIMULATED:
        sizes = bench.QUICK
    results = bench.run(sizes=sizes, out=tmp_path / "gpu.json", say=lambda line: None)
    parts = {row["part"] for row in results["results"]}
    assert parts | {"energy"} == set(bench.PARTS)
    assert {row["contender"] for row in results["results"] if row["part"] == "systems"} >= {"EcoJoin", "EPHSA"}
    assert any(one["row"] == "G5" for one in results["claims"])
    assert "systems: GB/s of systems as points of the space" in report.plain(results)


@pytest.mark.skipif(SIMULATED, reason="too much for the simulator")
@pytest.mark.parametrize("variant", [one for one in space.variants("gpu") if one.results == "none"], ids=str)
@pytest.mark.parametrize("zipf", [0.0, 1.0])
def test_large_windows_on_hardware(variant, zipf):
    n = 1 << 12 if variant.algorithm == "nested_loop" else 1 << 16
    work = study.workload(4 * n, n, n // 8, 1000, zipf, machine().pinned)
    cuts = [slice(i * n, (i + 1) * n) for i in range(4)]
    wanted = [streams.expected(work.left.keys[cut], work.right.keys[cut]) for cut in cuts]
    study.check(variant, work, wanted, GPUJoiner(variant, work, [one.pairs for one in wanted]))


@pytest.mark.skipif(SIMULATED, reason="too much for the simulator")
@pytest.mark.parametrize("variant", [one for one in space.variants("gpu") if one.results != "none"], ids=str)
def test_many_pairs_on_hardware(variant):
    n = 1 << 13
    work = study.workload(3 * n, n, n // 8, 50, 0.5, machine().pinned)
    cuts = [slice(i * n, (i + 1) * n) for i in range(3)]
    wanted = [streams.expected(work.left.keys[cut], work.right.keys[cut]) for cut in cuts]
    sink = study.check(variant, work, wanted, GPUJoiner(variant, work, [one.pairs for one in wanted]))
    assert sink.written > 10**6
    assert np.all([count > 0 for count in sink.counts.values()])
