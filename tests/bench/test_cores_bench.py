"""The benchmark of joins on many cores at tiny sizes: every part runs, all answers agree, the paper is quoted."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from watersmeet.bench import cores, machine, report
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.cores import topology_parts
from watersmeet.bench.cores.claims import claims
from watersmeet.bench.cores.topologies import TOPOLOGIES, within
from watersmeet.cli import app

TINY = cores.Sizes(
    windows=(64, 128), tree_window=1 << 12, tree_batch=1 << 10, tree_batches=(1 << 9, 1 << 10), turn=0.0, rounds=2
)
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.xdist_group("cores bench"), pytest.mark.long]  # `stored` takes long


def quiet(line):
    pass


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "cores.json"
    return cores.run(out=out, most=4, sizes=TINY, say=quiet), out


def test_all_parts_run_and_are_stored(stored):
    results, out = stored
    assert json.loads(out.read_text()) == results == report.load(out)
    assert {row["part"] for row in results["results"]} == set(cores.PARTS)
    assert results["quick"] and results["most"] == 4 and results["machine"]["cores"] == machine.cores()
    for row in results["results"]:
        assert row["checked_pairs"] > 0 or row["part"] != "latency"  # few partners
        if "latency" in row:
            for rounds in row["latency"].values():
                assert len(rounds) == 2
                assert all(0 < one["median"] <= one["p90"] <= one["p99"] and one["count"] > 0 for one in rounds)
        else:
            assert len(row["rounds"]) == 2 and row["tuples_per_s"] == max(row["rounds"]) > 0
            assert row["tuples"] >= row["window"]


def test_parts_have_the_contenders_they_are_about(stored):
    def contenders(part):
        return {row["contender"] for row in stored[0]["results"] if row["part"] == part}

    assert contenders("topologies") == contenders("latency") == set(TOPOLOGIES)
    assert contenders("fan_out") == {"fan-out 2"}  # two of four cores are for joining
    assert contenders("windows") == {"by number", "by time"}
    assert contenders("ordering") == {"none", "every 100", "every 10", "outer", "inner"}
    assert contenders("shared") == {"shared", "blocking merge", "Bw-Tree", "round-robin"}
    for part in ("routes", "batches", "partners"):
        assert contenders(part) == {"single", "shared", "cells", "split"}
    settings = {row["part"]: set() for row in stored[0]["results"]}
    for row in stored[0]["results"]:
        settings[row["part"]].add((row["setting"], row["checked_pairs"]))
    assert {setting for setting, _ in settings["batches"]} == {"batches of 512", "batches of 1,024"}
    pairs = dict(settings["partners"])
    assert pairs["0.125 partners"] * 8 < pairs["2 partners"] * 4 < pairs["32 partners"]
    assert contenders("ordered") == {"none", "outer", "inner"}
    assert any(row["part"] == "ordering" and row["checked_pairs"] for row in stored[0]["results"])
    for part in ("topologies", "latency"):
        assert {row["cores"] for row in stored[0]["results"] if row["part"] == part} == {1, 2, 4}


@pytest.mark.parametrize(
    ("most", "counts", "many"), [(1, [1], 1), (2, [1, 2], 1), (6, [1, 2, 4, 6], 4), (16, [1, 2, 4, 8, 14, 16], 14)]
)
def test_cores_that_are_tried(most, counts, many):
    run = cores.Cores(TINY, most, False, quiet)
    assert run.counts == counts and run.many == many


def test_a_range_of_values_has_a_partner_or_two_for_a_tuple():
    window = 256
    outcome = topology_parts.joined("split", {}, window, 2, 4000, topology_parts.crowded(window))
    assert len(outcome) / 4000 == pytest.approx(topology_parts.PARTNERS, rel=0.25)


def test_windows_by_number_and_by_time_are_the_same_here():
    found = [
        topology_parts.checked(topology_parts.joined("split", options, 64, 2, 1000, topology_parts.crowded(64)))
        for options in ({}, {"window": within(127)}, {"window": within(128)}, {"window": within(125)})
    ]
    assert found[0] == found[1] == found[2] != found[3] and found[0].pairs > 1000


@pytest.mark.parametrize("form", [report.text, report.plain, report.markdown])
def test_the_report_has_every_part_and_every_claim(stored, form):
    shown = " ".join(form(stored[0]).split())
    for part in cores.PARTS:
        assert f"{part}: " in shown
    assert "visiting p99" in shown.replace("│", " ") or form is report.text  # a terminal may break it
    assert "not judged" in shown and "S7" in shown


# --- claims ---------------------------------------------------------------------------------------------------


def made(split=100.0, llhj=60.0, outer=0.97, inner=0.96, growth=(1.5, 5.0)):
    """Results of 16 cores, with rounds around these figures."""
    rows = []

    def add(part, contender, count, speed, window=1 << 12, setting=""):
        about = {"part": part, "contender": contender, "cores": count, "window": window, "setting": setting}
        rounds = [speed * share for share in (0.9, 1.0, 1.2)]
        rows.append(about | {"rounds": rounds, "tuples_per_s": max(rounds)})

    for window in (1 << 12, 1 << 16):
        for count in (1, 4, 14, 16):
            share = (1 << 12) / window
            add("topologies", "split", count, split * count * share, window)
            add("topologies", "llhj", count, llhj * count * share, window)
            add("topologies", "handshake", count, llhj * count * share, window)
    add("windows", "by number", 14, split)
    add("windows", "by time", 14, split / 1.2)
    orders = {"none": 1.0, "every 100": 1.0, "every 10": 1.0, "outer": outer, "inner": inner * outer}
    for name, share in orders.items():
        add("ordering", name, 14, split * share, setting="few results")
    for count, grown in ((1, (1, 1)), (4, (1, 1)), (14, growth), (16, (9, 9))):
        for name, value in (("split", grown[0]), ("llhj", grown[1]), ("handshake", 1000)):
            rounds = [{"mean": 1e-6 * value * share} for share in (0.8, 1.0, 1.5)]
            latency = {"visiting": rounds, "processing": rounds}
            rows.append(
                {"part": "latency", "contender": name, "cores": count, "window": 1 << 12, "setting": ""}
                | {"rate": 1.0, "latency": latency}
            )
    return rows


def held(results):
    return {row["claim"]: row["holds"] for row in claims(results)}


def test_claims_hold_where_figures_are_the_papers():
    found = held(made())
    (inner,) = [claim for claim in found if "inner order" in claim]
    assert found.pop(inner) == "no" and set(found.values()) == {"yes", "-"}
    assert held(made(inner=0.5))[inner] == "yes"


@pytest.mark.parametrize(
    ("figures", "claim", "holds"),
    [
        ({"llhj": 80.0}, "over low-latency handshake join's, 14 cores, all", "in part"),
        ({"llhj": 120.0}, "over low-latency handshake join's, 14 cores, all", "no"),
        ({"outer": 0.5}, "strict outer order", "no"),
        ({"growth": (3.0, 5.0)}, "SplitJoin's visiting latency, 14 cores to 4", "no"),
        ({"growth": (3.0, 5.0)}, "visiting latency over SplitJoin's", "in part"),
        ({"growth": (1.5, 0.9)}, "low-latency handshake join's visiting latency, 14", "no"),
    ],
)
def test_claims_do_not_hold_where_they_are_not(figures, claim, holds):
    found = [verdict for says, verdict in held(made(**figures)).items() if claim in says]
    assert found == [holds]


def test_claims_are_by_the_medians_with_the_best_beside_them():
    (first, *_) = claims(made(split=100.0, llhj=50.0))
    assert first["ours"] == "2x" and first["best"] == "2x" and first["values"] == [2.0]
    assert {row["holds"] for row in claims(made(), judged=False)} == {None}
    assert claims([]) == []


def test_the_latch_free_tree_is_held_against_what_the_paper_has():
    speeds = {"shared": (1.0, 4.4), "blocking merge": (1.0, 4.0), "Bw-Tree": (0.5, 2.0), "round-robin": (1.0, 2.0)}
    rows = [
        {"part": "shared", "contender": name, "cores": cores, "rounds": [speed]}
        for name, both in speeds.items() for cores, speed in zip((1, 8), both, strict=True)
    ]  # fmt: skip
    found = {row["claim"]: (row["ours"], row["holds"]) for row in claims(rows) if "Bw-Tree" in row["claim"]}
    assert found == {
        "PIM-Trees that 8 threads share, to Bw-Trees": ("2.2x", "yes"),
        "Bw-Trees that 8 threads share, to PIM-Trees and one thread": ("2x", "yes"),
        "Bw-Trees that 8 threads share, to round-robin partitioning": ("1x", "yes"),
    }
    older = [row for row in rows if row["contender"] != "Bw-Tree"]  # results that have none are still understood
    assert claims(older) and not any("Bw-Tree" in row["claim"] for row in claims(older))


# --- what goes wrong ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["ordering", "latency"])
def test_a_topology_with_wrong_answers_stops_the_run(part, monkeypatch):
    join, wrong = topology_parts.join, {"ordering": lambda job: job.order == "inner", "latency": lambda job: job.timed}

    def forgetful(topology, job):
        outcome = join(topology, job)
        if wrong[part](job) and (topology == "llhj" or part == "ordering"):
            return replace(outcome, later=np.roll(outcome.later, 1))  # as many, but others
        return outcome

    monkeypatch.setattr(topology_parts, "join", forgetful)
    with pytest.raises(AnswersDiffer, match="inner" if part == "ordering" else "llhj"):
        cores.run(only=[part], most=4, sizes=TINY, say=quiet)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"only": ["latencies"]}, "only"),
        ({"rounds": 0}, "rounds"),
        ({"most": 0}, "most"),
        ({"out": "no/such/a.json"}, "out"),
    ],
)
def test_bad_options_are_named_before_anything_runs(options, named, monkeypatch):
    monkeypatch.setattr(cores, "PARTS", dict.fromkeys(cores.PARTS))  # would fail if called
    with pytest.raises(ValueError, match=f"^{named} must"):
        cores.run(**options)


# --- commands -------------------------------------------------------------------------------------------------


def test_the_command(tmp_path):
    out = tmp_path / "cores.json"
    done = CliRunner().invoke(app, ["bench", "cores", "--quick", "--only", "fan_out", "--most", "4", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "fan-out 2" in done.output and report.load(out)["most"] == 4
    strict = CliRunner().invoke(app, ["bench", "cores", "--quick", "--strict"])
    assert strict.exit_code == 2 and "strict must be given for a run at full size" in strict.output


def test_it_runs_where_only_the_engine_is_installed(tmp_path):
    out = tmp_path / "cores.json"
    arguments = ["--quick", "--only", "latency", "--most", "2", "--out", str(out)]
    code = f"""
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sqlglot", "typer", "click", "rich", "pydantic", "duckdb", "polars", "pandas"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
sys.argv[1:] = {arguments!r}
runpy.run_module("watersmeet.bench.cores", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "visiting" in done.stdout and "llhj" in done.stderr
    assert report.load(out)["command"].startswith(("python -m watersmeet.bench.cores", "watersmeet.bench.cores.run"))
