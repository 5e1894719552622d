"""The benchmarks of indexes end to end at tiny sizes: every part runs, all answers agree, the papers are quoted."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import watersmeet as wm
from watersmeet.bench import index, report
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.claims import verdict
from watersmeet.bench.index import joins as index_joins
from watersmeet.bench.index.claims import adjustments, claims
from watersmeet.bench.index.data import DISTRIBUTIONS, INCREASING, KEYS, Streams, band_for, keys
from watersmeet.bench.index.joins import Joined
from watersmeet.bench.index.structures import Subwindow, convergence, filled, found
from watersmeet.index.tables.rap_table import RaPTableStructure

TINY = index.Sizes(largest=10, turn=0.0, rounds=1)
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.xdist_group("index bench"), pytest.mark.long]  # `stored` takes long


def quiet(line):
    pass


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "index.json"
    return index.run(out=out, sizes=TINY, say=quiet), out


# --- streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", [*DISTRIBUTIONS, INCREASING])
def test_keys_depend_on_seed_side_and_position_only(distribution):
    streams = Streams("test", 64, 8, distribution)
    whole = streams.keys("left", 0, 30)
    assert np.array_equal(np.concatenate([streams.keys("left", 0, 10), streams.keys("left", 10, 20)]), whole)
    assert not np.array_equal(streams.keys("right", 0, 30), whole)
    assert not np.array_equal(Streams("test", 64, 8, distribution, seed=8).keys("left", 0, 30), whole)


def test_distributions_are_what_they_are_called():
    sample = {name: keys(name, np.arange(100_000), 0) / KEYS for name in DISTRIBUTIONS}
    assert np.mean(sample["uniform"]) == pytest.approx(0.5, abs=0.01)
    assert np.mean(sample["gaussian"]) == pytest.approx(0.5, abs=0.01)
    assert np.std(sample["gaussian"]) == pytest.approx(0.125, rel=0.02)
    assert np.mean(sample["gamma 3, 3"]) == pytest.approx(9 / 64, rel=0.02)
    assert np.std(sample["gamma 1, 5"]) == pytest.approx(5 / 64, rel=0.02)
    assert np.mean(sample["rank-size"] < 1e-4) == pytest.approx(0.99, abs=0.001)
    assert np.unique(np.round(sample["multimodal"] * 8 - 0.5)).size == 8
    assert np.all(np.diff(keys(INCREASING, np.arange(1000), 0)) > 0)


@pytest.mark.parametrize("distribution", [name for name in DISTRIBUTIONS if name != "rank-size"])
def test_a_band_finds_about_as_many_partners_as_wanted(distribution):
    rows, matches = 1 << 14, 4.0
    band = band_for(distribution, rows, matches)
    stored, probes = np.sort(keys(distribution, np.arange(rows), 5)), keys(distribution, np.arange(rows), 6)
    inside = np.searchsorted(stored, probes + band, "right") - np.searchsorted(stored, probes - band)
    assert inside.mean() == pytest.approx(matches, rel=0.1)


def test_drift_moves_keys_by_r_of_their_range_and_then_stops():
    streams = Streams("test", 64, 8, "gaussian", drift=0.5, drift_from=10_000, drift_rows=10_000)
    means = [streams.keys("left", start, 10_000).mean() / KEYS for start in (0, 10_000, 20_000, 30_000)]
    assert means == pytest.approx([0.5, 0.75, 1.0, 1.0], abs=0.01)


@pytest.mark.parametrize(
    "streams",
    [
        Streams("band", 50, 7),
        Streams("equality", 50, 7, equality=True),
        Streams("windows", 50, 7, right_rows=9),
        Streams("rates", 50, 7, rate=3),
    ],
    ids=lambda streams: streams.name,
)
def test_joins_equal_brute_force(streams):
    joined, got = Joined(streams, "auto"), set()
    arrived = {"left": [], "right": []}
    expected = set()
    sizes = {"left": streams.window.n, "right": streams.window.n_right}
    for batch in range(12):
        for side, other in (("left", "right"), ("right", "left")):
            rows = streams.rows(side, 7 * batch, 7)
            got |= set(zip(*(column.tolist() for column in joined.pairs(joined.push(side, rows)))))
            held = list(enumerate(arrived[other]))[-sizes[other] :]
            for key in rows.column("key").to_pylist():
                own = len(arrived[side])
                near = [position for position, partner in held if abs(partner - key) <= streams.band]
                expected |= {(own, at) if side == "left" else (at, own) for at in near}
                arrived[side].append(key)
    assert got == expected and expected


# --- the parts ----------------------------------------------------------------------------------------------


def test_all_parts_run_and_are_stored(stored):
    results, out = stored
    assert json.loads(out.read_text()) == results
    assert report.load(out) == results
    assert {row["part"] for row in results["results"]} == set(index.PARTS)
    assert results["quick"] and results["largest"] == 10
    for row in results["results"]:
        values = [row.get(name) for name in ("tuples_per_s", "ns_per_tuple", "bytes_per_tuple") if row.get(name)]
        assert all(value > 0 for value in values)
        assert values or row.get("errors") or row.get("ns")
    contenders = {row["contender"] for row in results["results"]}
    assert contenders >= {one.name for one in wm.index.INDEXES} | {"auto"}


def test_answers_are_checked_in_every_join(stored):
    joins = [row for row in stored[0]["results"] if "checked_pairs" in row]
    assert {row["part"] for row in joins} >= {"windows", "equality", "chains", "merging", "steps", "drift"}
    assert all(row["checked_pairs"] > 0 for row in joins)


def test_auto_is_compared_in_every_race_that_has_it(stored):
    results = stored[0]
    assert {race["part"] for race in results["autos"]} == {
        "windows", "equality", "matches", "asymmetric", "distributions"
    }  # fmt: skip
    assert {race["picks"] for race in results["autos"]} >= {"hash", "bisort"}
    against = [row["against"] for row in results["ratios"]]
    assert any(text.startswith("the best index") for text in against)
    assert any(text.startswith("nested loop") for text in against)


def test_steps_add_up_and_show_merges(stored):
    for row in stored[0]["results"]:
        if row["part"] == "steps":
            assert min(row["ns"].values()) >= 0
            assert sum(row["ns"].values()) == pytest.approx(1e9 / row["tuples_per_s"], rel=0.01)
            assert (row["ns"]["merge"] > 0) == (row["contender"] != "btree")


def test_partitions_get_more_even_by_adjustments():
    rows = list(convergence(1 << 12, 64, 1 << 9))
    assert [row["setting"] for row in rows] == ["uniform", "gaussian", "gamma 3, 3", "rank-size", "multimodal"]
    errors = {row["setting"]: row["errors"] for row in rows}
    assert errors["rank-size"][0] > 1.5 > 0.5 > errors["rank-size"][-1]
    assert errors["gaussian"][0] > 0.5 > 0.2 > errors["gaussian"][3]


def test_reports_print(stored):
    results = stored[0]
    for shown in (report.text(results), report.markdown(results), report.plain(results)):
        assert all(f"{part}: " in shown for part in index.PARTS)
        assert "What the papers say" in shown and "not judged" in shown


# --- claims -------------------------------------------------------------------------------------------------


def test_claims_are_judged_at_full_size_only(stored):
    results = stored[0]
    assert results["claims"] and all(row["holds"] is None for row in results["claims"])
    judged = claims(results["results"])
    assert {row["holds"] for row in judged} <= {"yes", "in part", "no", "-"}
    assert {row["row"] for row in judged} == {"P3", "P5", "P6", "P11", "M2", "M4", "M5", "M9"}
    assert claims([]) == []


def test_claims_are_made_by_the_medians_with_the_best_beside():
    def row(name, rounds):
        sizes = {"window": 1 << 23, "batch": 1 << 15, "setting": ""}
        return {"part": "windows", "contender": name, "tuples_per_s": max(rounds), "rounds": rounds} | sizes

    trees = dict.fromkeys(("btree", "im_tree", "pim_tree"), [1e6])
    names = {"bisort": [5e6, 2e6, 1e6], "nested_loop": [1000.0, 1500.0]} | trees
    first = claims([row(name, rounds) for name, rounds in names.items()])[0]
    assert (first["ours"], first["best"]) == ("1,600x", "3,333x")


def test_claims_of_runs_without_rounds_are_by_the_best_only():
    phases = {"before": 2e6, "during": 1e6, "after": 2e6}
    rows = [
        {"part": "drift", "contender": "pim_tree", "drift": drift, "phases": phases}
        for drift in (0.2, 0.6, 1.0)
    ]
    made = claims(rows)
    assert [(row["ours"], row["best"]) for row in made] == [(None, "50%")] * 3 + [(None, "100%")]
    rounds = {phase: [speed, speed / 2] for phase, speed in phases.items()}
    assert claims([row | {"phase_rounds": rounds} for row in rows])[0]["ours"] == "50%"


def test_auto_is_compared_by_the_medians():
    rounds = {"bisort": [10.0, 4.0, 3.0], "hash": [6.0, 5.0, 5.0]}
    found = index_joins.auto_ratios(rounds, "bisort")
    assert found == {"to_best": 0.8, "to_bisort": 1.0, "best_to_best": 1.0, "best_to_bisort": 1.0}


def test_the_slowest_index_is_judged_in_windows_above_4k():
    run = index.Indexes(TINY, judged=True, say=quiet)
    for window in (1 << 12, 1 << 13):
        for name, rounds in (("nested_loop", [10.0, 20.0, 30.0]), ("btree", [150.0, 190.0, 900.0])):
            about = {"part": "windows", "window": window, "batch": 8, "contender": name}
            run.results.append(about | {"tuples_per_s": max(rounds), "rounds": rounds})
    run.compare()
    assert [(row["window"], row["value"], row["best"], row["ok"]) for row in run.ratios] == [
        (1 << 12, 9.5, 30.0, None), (1 << 13, 9.5, 30.0, False)
    ]  # fmt: skip


def test_the_page_has_every_claim(stored):
    page = (ROOT / "docs" / "reproduction.md").read_text()
    assert [row["claim"] for row in stored[0]["claims"] if f"| {row['claim']} |" not in page] == []


@pytest.mark.parametrize(
    ("ours", "low", "high", "holds"),
    [
        ([4.0], 3.5, None, "yes"),
        ([3.2], 3.5, None, "yes"),  # within a tenth
        ([3.0], 3.5, None, "in part"),  # faster, as the paper says, but not as much
        ([0.8], 3.5, None, "no"),
        ([1.2, 4.0], 3.5, None, "in part"),
        ([0.8, 4.0], 3.5, None, "in part"),
        ([2.0, 3.0], None, 3, "yes"),
        ([4.0], None, 3, "no"),
        ([0.4], None, 0.16, "no"),
        ([1 << 13], 1 << 15, 1 << 17, "in part"),
        ([1.3], None, None, "-"),
    ],
)
def test_verdicts(ours, low, high, holds):
    assert verdict(ours, low, high) == holds


def test_adjustments_are_counted_until_nothing_is_gained():
    assert adjustments([1.9, 0.6, 0.2, 0.11, 0.1, 0.1]) == 3
    assert adjustments([0.1, 0.11, 0.1]) == 0


# --- what goes wrong ----------------------------------------------------------------------------------------


def test_a_structure_with_wrong_answers_stops_the_run(monkeypatch):
    find = RaPTableStructure.find

    def forgetful(self, *given):
        return ((rows[1:], partners[1:]) for rows, partners in find(self, *given))

    monkeypatch.setattr(RaPTableStructure, "find", forgetful)
    for part in ("structures", "windows"):
        with pytest.raises(AnswersDiffer, match="rap_table"):
            index.run(only=[part], sizes=TINY, say=quiet)


def test_a_nested_loop_with_wrong_answers_stops_the_run(monkeypatch):
    class Forgetful(Joined):
        def push(self, side, batch):
            pairs = super().push(side, batch)
            return pairs.slice(1) if self.chosen.name == "nested_loop" else pairs

    monkeypatch.setattr(index_joins, "Joined", Forgetful)
    with pytest.raises(AnswersDiffer, match="nested loop"):
        index.run(only=["windows"], sizes=TINY, say=quiet)


def test_pairs_that_are_wrong_but_as_many_are_noticed():
    subwindow = Subwindow(64)
    structure = filled(wm.index.BISort(), subwindow.entries(16))[0]
    asked = subwindow.probes(16, 16, KEYS // 8)
    pairs = found(structure, asked)[0]
    right, wrong = index.Structures(1, quiet), {("a", ""): structure, ("b", ""): Shifted(structure)}
    assert pairs == found(wrong["b", ""], asked)[0]
    with pytest.raises(AnswersDiffer, match="b"):
        right.lookups("test", subwindow, 16, KEYS // 8, 16.0, "band", wrong, 16)


class Shifted:
    """Gives every pair the next row."""

    def __init__(self, structure):
        self.structure = structure
        self.count = structure.count

    def find(self, *given):
        return ((rows, partners + 1) for rows, partners in self.structure.find(*given))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"only": ["window"]}, "only"),
        ({"rounds": 0}, "rounds"),
        ({"largest": 9}, "largest"),
        ({"out": "no/such/a.json"}, "out"),
    ],
)
def test_bad_options_are_named_before_anything_runs(options, named, monkeypatch):
    monkeypatch.setattr(index, "PARTS", dict.fromkeys(index.PARTS))  # would fail if called
    with pytest.raises(ValueError, match=f"^{named} must"):
        index.run(**options)


# --- where only the engine is installed -----------------------------------------------------------------------


def bare(*arguments):
    """The module in a Python that has no sqlglot, typer or rich."""
    code = f"""
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sqlglot", "typer", "click", "rich", "duckdb", "polars", "datafusion", "pandas"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
sys.argv[1:] = {[str(argument) for argument in arguments]!r}
runpy.run_module("watersmeet.bench.index", run_name="__main__")
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_it_runs_where_only_the_engine_is_installed(tmp_path):
    out = tmp_path / "index.json"
    done = bare("--quick", "--largest", 10, "--only", "convergence", "--only", "matches", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "rank-size" in done.stdout and "matches, 2^10" in done.stderr
    assert report.load(out)["largest"] == 10


def test_its_command_line_names_what_is_wrong(capsys):
    with pytest.raises(SystemExit) as error:
        index.main(["--largest", "3"])
    assert error.value.code == 2 and "largest must be at least 10, got 3" in capsys.readouterr().err
