"""The study of joins on GPUs: joiners on the CPU, the frame around them, the run; GPUs are in tests/device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
import study
from typer.testing import CliRunner

import watersmeet as wm
from watersmeet.bench import gpu, plots, report
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.gpu import exact as gpu_exact
from watersmeet.bench.gpu.known_pairs import KnownPairs
from watersmeet.bench.gpu.study import space, streams
from watersmeet.bench.gpu.study.cpu import CPUJoiner
from watersmeet.bench.gpu.study.manager import Workload
from watersmeet.bench.gpu.study.sink import Sink, pair_sum
from watersmeet.bench.gpu.study.space import SYSTEMS, Variant
from watersmeet.cli import app
from watersmeet.engine.join import StreamJoin
from watersmeet.workers import Workers

ROOT = Path(__file__).parents[2]
KB = 1 << 10
TINY = gpu.Sizes(
    stream=16 * KB, windows=(1 * KB, 4 * KB), small_windows=(1 * KB,), batch=512, batches=(256, 512),
    distinct=(10, 1000), zipf=(0.0, 1.0), copies=(4 * KB,), exact=1 << 8, exact_window=32,
    exact_batch=12, joins=(6, 7), join_batch=32, turn=0.0, rounds=1,
)  # fmt: skip


@pytest.mark.parametrize("variant", space.variants("cpu"), ids=str)
@pytest.mark.parametrize(("distinct", "zipf"), [(1, 0.0), (7, 1.0), (5000, 0.0)])
def test_every_joiner_on_the_cpu_gives_the_brute_force_answer(variant, distinct, zipf):
    work = study.workload(100, 30, 8, distinct, zipf)
    wanted = study.expected(work)
    study.check(variant, work, wanted, CPUJoiner(variant, work, 3, [one.pairs for one in wanted]))


@pytest.mark.parametrize("results", ["none", "count_kernel"])
@pytest.mark.parametrize("progress", ["lazy", "eager"])
def test_hash_tables_grow(progress, results):
    work = study.workload(40_000, 20_000, 5_000, 1 << 20)
    variant = Variant("hash", progress, "intra", results, "cpu")
    wanted = [
        streams.expected(work.left.keys[i : i + 20_000], work.right.keys[i : i + 20_000]) for i in (0, 20_000)
    ]
    study.check(variant, work, wanted, CPUJoiner(variant, work, 1, [one.pairs for one in wanted]))


def test_an_estimate_that_is_too_low_costs_time_and_no_results():
    work = study.workload(60, 30, 8, 3)
    wanted = study.expected(work)
    variant = Variant("hash", results="estimated", device="cpu")
    study.check(variant, work, wanted, CPUJoiner(variant, work, 2, [0 for _ in wanted]))


def test_what_is_expected_is_what_brute_force_finds():
    work = study.workload(90, 30, 8, 5, 0.5)
    fast = [streams.expected(work.left.keys[i : i + 30], work.right.keys[i : i + 30]) for i in (0, 30, 60)]
    assert fast == study.expected(work)


def test_tuples_are_16_bytes_and_keys_are_skewed_as_asked_for():
    even, skewed = streams.make(20_000, 100, 0.0, 1), streams.make(20_000, 100, 1.0, 1)
    assert even.words.nbytes == 16 * even.size
    assert np.array_equal(even.words[::4], even.keys)
    assert np.unique(even.keys).size == np.unique(skewed.keys).size == 100
    often = [np.bincount(one.keys).max() / one.size for one in (even, skewed)]
    assert often[0] < 0.02 and often[1] == pytest.approx(1 / sum(1 / k for k in range(1, 101)), rel=0.05)


@pytest.mark.parametrize("fault", ["count", "pair"])
def test_the_sink_notices_what_is_wrong(fault):
    sink = Sink()
    sink.add(0, 2)
    sink.write(0, np.array([1, 2], np.int32), np.array([3, 4], np.int32))
    good = streams.Expected(2, sink.sums[0])
    sink.check(0, good, True)
    wrong = streams.Expected(3, good.checksum) if fault == "count" else streams.Expected(2, good.checksum ^ 1)
    with pytest.raises(AnswersDiffer):
        sink.check(0, wrong, True)


def test_every_joiner_that_is_not_refused_is_a_variant():
    found = space.variants("cpu")
    assert len(found) == len(set(found)) == 48
    eager = [one for one in found if one.progress == "eager"]
    assert len(eager) == 12 and {one.parallel for one in eager} == {"intra"}


def test_eager_joins_have_one_window_at_a_time():
    with pytest.raises(ValueError, match="parallel must be intra where progress is eager, got 'inter': batches come"):
        Variant(progress="eager")
    with pytest.raises(ValueError, match="algorithm must be one of nested_loop, hash, sort_merge, got 'merge'"):
        Variant("merge")


def test_a_workload_must_have_a_window():
    stream = streams.make(10, 3, 0.0, 1)
    with pytest.raises(ValueError, match="windows of 11"):
        Workload(stream, stream, 11, 2)


def test_systems_are_points_of_the_space():
    assert list(SYSTEMS) == ["HELLS-join", "SABER", "FineStream", "EcoJoin", "EPHSA"]
    assert SYSTEMS["EcoJoin"] == Variant("hash", "eager", "intra", "none")


# -- exactness -----------------------------------------------------------------------------------------------------


def test_pairs_are_summed_up_on_threads_and_sides_matter():
    rng = np.random.default_rng(3)
    left, right = rng.integers(0, 1 << 20, (2, 50_000))
    workers = Workers(3)
    assert len(workers.parts(left.size)) > 1
    found = pair_sum(left, right, workers)
    workers.stop()
    order = rng.permutation(left.size)
    assert found == pair_sum(left[order].astype(np.int32), right[order].astype(np.int32))
    assert found == sum(study.mixed(int(i)) * study.mixed(~int(j)) for i, j in zip(left, right)) % (1 << 64)
    assert found != pair_sum(right, left)
    right[7] += 1
    assert found != pair_sum(left, right)


@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("window", [1, 7, 40])
def test_known_pairs_of_last_are_those_that_brute_force_finds(window, width):
    rng = np.random.default_rng(window)
    known, kept = KnownPairs(window, 9, width), ([], [])
    for n, m in ((5, 8), (0, 3), (30, 1), (12, 12)):
        pairs = []
        keys = rng.integers(0, 9, n), rng.integers(0, 9, m)
        for side, arriving in enumerate(keys):
            for key in arriving:
                others = list(enumerate(kept[1 - side]))[-window:]
                found = [position for position, other in others if abs(other - key) <= width]
                pairs += [(len(kept[0]), p) if side == 0 else (p, len(kept[1])) for p in found]
                kept[side].append(key)
        total = sum(study.mixed(i) * study.mixed(~j) for i, j in pairs) % (1 << 64)
        assert known.pushed(*keys) == Checksum(len(pairs), total)
        known.check_invariants()


class Forgetful(StreamJoin):
    """Gives one pair for another in its fourth push."""

    pushes = 0

    def push(self, *given):
        answer = super().push(*given)
        self.pushes += 1
        if self.pushes != 4:
            return answer
        left = answer["left"].to_numpy().copy()
        left[-1] -= 1
        return pa.table({"left": left, "right": answer["right"]})


def test_one_wrong_pair_is_missed_at_its_push():
    bench = gpu.Gpu(TINY, 2, False, lambda line: None)
    gpu_exact.compared(bench, "equality", gpu_exact.EQUALITY, 0)
    (row,) = bench.results
    assert row["pairs"] >= TINY.exact and "the keys" in row["contender"]
    with pytest.raises(AnswersDiffer, match="equality, push 3 on the [cg]pu: "):
        gpu_exact.compared(bench, "equality", gpu_exact.EQUALITY, 0, join_of=Forgetful)


def test_a_joiner_that_swaps_sides_is_named(monkeypatch):
    class Swapped(CPUJoiner):
        def execute(self, first, count, sink):
            write = sink.write
            sink.write = lambda window, left, right: write(window, right, left)
            super().execute(first, count, sink)

    variant = Variant("sort_merge", results="atomic", device="cpu")
    bench = gpu.Gpu(TINY, 2, False, lambda line: None)
    monkeypatch.setattr(bench, "joiner", lambda variant, work, pairs: Swapped(variant, work, 2, pairs))
    work = study.workload(90, 30, 8, 5)
    with pytest.raises(AnswersDiffer, match="CPU sort merge, lazy, inter, results: atomic: the pairs of window 0"):
        gpu_exact.checked(bench, variant, work, study.expected(work))


def test_every_joiner_is_in_the_exact_part():
    bench = gpu.Gpu(TINY, 2, False, lambda line: None)
    gpu_exact.exact(bench)
    found = {row["contender"] for row in bench.results}
    assert found >= {str(one) for one in space.variants("cpu")}
    assert all(row["pairs"] >= TINY.exact // 16 for row in bench.results)


def test_a_joiner_that_is_wrong_does_not_keep_the_others_from_being_looked_at(monkeypatch):
    lines, checked = [], gpu_exact.checked

    def faulty(bench, variant, work, wanted):
        if variant.algorithm == "hash" and variant.results == "atomic":
            raise AnswersDiffer("3 and 4") if variant.progress == "eager" else OSError("no luck")
        checked(bench, variant, work, wanted)

    monkeypatch.setattr(gpu_exact, "checked", faulty)
    bench = gpu.Gpu(TINY, 2, False, lines.append)
    with pytest.raises(AnswersDiffer, match="3 and 4"):
        gpu_exact.exact(bench)
    assert len([row for row in bench.results if row["contender"].startswith("CPU")]) == 44
    assert "exact: CPU hash, eager, intra, results: atomic failed: AnswersDiffer: 3 and 4" in lines


# -- advice --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, ("gpu", "hash", "lazy", "inter", "none")),
        ({"early_results": True}, ("gpu", "hash", "eager", "intra", "none")),
        ({"early_results": True, "batch_bytes": 4096}, ("cpu", "hash", "eager", "intra", "none")),
        ({"gpu": False}, ("cpu", "hash", "lazy", "inter", "none")),
        ({"gpu": False, "window_bytes": 16 << 20}, ("cpu", "hash", "lazy", "inter", "none")),
        ({"equality": False}, ("gpu", "sort_merge", "lazy", "inter", "none")),
        ({"pairs": True, "zipf": 1.0}, ("gpu", "sort_merge", "lazy", "inter", "count_kernel")),
        ({"pairs": True}, ("gpu", "hash", "lazy", "inter", "count_kernel")),
        ({"distinct_keys": 1 << 24}, ("gpu", "sort_merge", "lazy", "inter", "none")),
        ({"objective": "energy"}, ("cpu", "hash", "lazy", "inter", "none")),
    ],
)
def test_advice_follows_query_data_and_hardware(given, said):
    assert wm.device.advise(**given) == said


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zipf": -1}, "zipf must not be negative, got -1"),
        ({"window_bytes": 0}, "window_bytes must be at least 1, got 0"),
        ({"objective": "speed"}, "objective must be one of throughput, energy, got 'speed'"),
    ],
)
def test_bad_questions_get_no_advice(given, message):
    with pytest.raises(ValueError, match=message):
        wm.device.advise(**given)


def test_advice_reads_well():
    assert str(wm.device.advise()) == "hash join on the gpu, lazy, inter-window, results: none"


# -- the run -------------------------------------------------------------------------------------------------------

NO_GPU = pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")


@NO_GPU
def test_a_run_without_a_gpu_measures_the_cpu_and_says_so(tmp_path):
    lines: list[str] = []
    results = gpu.run(sizes=TINY, out=tmp_path / "gpu.json", say=lines.append)
    assert json.loads((tmp_path / "gpu.json").read_text())["results"] == json.loads(json.dumps(results["results"]))
    assert {row["part"] for row in results["results"]} == {
        "distinct", "skew", "parallel", "progress", "results", "advice", "exact", "joins", "exact_joins",
    }  # fmt: skip
    assert all(row["variant"]["device"] == "cpu" for row in results["results"] if "variant" in row)
    assert "device 'gpu' needs an NVIDIA GPU" in results["skipped"]["GPU"]
    assert all(one["holds"] is None for one in results["claims"])
    for text in (report.text(results), report.plain(results), report.markdown(results)):
        assert "distinct: GB/s by distinct keys and windows" in text and "Skipped: GPU" in text


@NO_GPU
def test_a_run_is_plotted(tmp_path):
    out = tmp_path / "gpu.json"
    gpu.run(sizes=TINY, only=["distinct", "progress"], out=out, say=lambda line: None)
    ran = CliRunner().invoke(app, ["bench", "report", str(out), "--plots", str(tmp_path / "plots")])
    assert ran.exit_code == 0, ran.output
    files = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert files == ["gpu-distinct-10-keys.svg", "gpu-distinct-1000-keys.svg", "gpu-progress.svg"]
    drawn = (tmp_path / "plots" / "gpu-distinct-10-keys.svg").read_text()
    assert drawn.count('class="mark-symbol role-mark layer_2_marks"') == 1 and "CPU hash" in drawn
    ElementTree.fromstring(drawn)


def test_joins_on_a_gpu_are_plotted_against_the_link():
    row = {"setting": "", "window": 1 << 20, "rounds": [50.0, 52.0]}
    results = [row | {"part": "link", "contender": name} for name in ("to", "back")]
    results += [row | {"part": "distinct", "setting": "1000 keys", "contender": name} for name in ("CPU", "GPU")]
    run = plots.Run("gpu", Path("gpu.json"), {"benchmark": "gpu", "results": results, "ratios": []})
    (plot,) = plots.plots(run)
    assert plot.line == (51.0, "the link, 51 GB/s") and plot.series == ["CPU", "GPU"]


def test_a_part_that_fails_does_not_take_the_others_with_it(tmp_path, monkeypatch):
    def broken(bench):
        raise OSError("no luck")

    def differs(bench):
        raise AnswersDiffer("3 and 4")

    monkeypatch.setitem(gpu.PARTS, "skew", broken)
    results = gpu.run(sizes=TINY, only=["skew", "progress"], say=lambda line: None)
    assert results["skipped"]["skew"] == "failed: OSError: no luck"
    assert {row["part"] for row in results["results"]} == {"progress"}
    monkeypatch.setitem(gpu.PARTS, "skew", differs)
    out = tmp_path / "gpu.json"
    with pytest.raises(AnswersDiffer, match="3 and 4"):
        gpu.run(sizes=TINY, only=["skew", "progress"], out=out, say=lambda line: None)
    assert {row["part"] for row in json.loads(out.read_text())["results"]} == {"progress"}


@NO_GPU
def test_the_command_runs(tmp_path):
    out = tmp_path / "gpu.json"
    ran = CliRunner().invoke(app, ["bench", "gpu", "--quick", "--only", "progress", "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    assert out.exists() and "eager" in ran.output


def test_it_runs_where_sqlglot_and_typer_are_not_installed(tmp_path):
    code = (
        "import sys\n"
        "for name in ('sqlglot', 'typer', 'rich'): sys.modules[name] = None\n"
        "from watersmeet.bench import gpu\n"
        "sys.exit(gpu.main(['--quick', '--only', 'joins', '--rounds', '1']))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "StreamJoin" in ran.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [({"only": ["size"]}, "only must name some of link"), ({"rounds": 0}, "rounds must be at least 1"),
     ({"cores": 0}, "cores must be at least 1")],
)  # fmt: skip
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gpu.run(**options)
