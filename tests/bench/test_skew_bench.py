"""The benchmark of skewed joins at tiny sizes: every part runs, the paper is quoted, the engine is enough."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from watersmeet.bench import report, skew, targets
from watersmeet.bench.skew import data as skew_data
from watersmeet.bench.skew import elements as skew_elements
from watersmeet.bench.skew import parts as skew_parts
from watersmeet.bench.skew.claims import BASELINES, claims
from watersmeet.cli import app

TINY = skew.Sizes(
    exponents=(0.5, 1.5), sketched=(1.2,), rates=(100, 200), elements=(4, 6), many_elements=12, minutes=(0.05, 0.1),
    draws=20_000, batch=1_000, pushes=3, steps=1, core_window=2_000, core_batch=1_000, completeness_rows=1_000,
    completeness_s=(2.0,), rounds=2,
)  # fmt: skip
PARTS = [part for part in skew.PARTS if part != "pipeline"]
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("skew bench")


def quiet(line):
    pass


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "skew.json"
    return skew.run(out=out, most=2, sizes=TINY, say=quiet), out


def rows(stored, part, **wanted):
    return [
        row for row in stored[0]["results"]
        if row["part"] == part and all(row[name] == value for name, value in wanted.items())
    ]  # fmt: skip


def test_all_parts_run_and_are_stored(stored):
    results, out = stored
    assert json.loads(out.read_text()) == results == report.load(out)
    assert {row["part"] for row in results["results"]} == set(PARTS)
    assert results["quick"] and results["queries"] == list(skew.MEASURED)
    assert "it needs a Kafka broker" in results["skipped"]["pipeline"]
    for row in rows(stored, "elements"):
        assert len(row["insert_rounds"]) == len(row["search_rounds"]) == 2
        assert min(row["insert_rounds"] + row["search_rounds"]) > 0


def test_elements_have_the_paper_s_settings_and_strategies(stored):
    assert {row["contender"] for row in rows(stored, "elements")} == set(skew_elements.STRATEGIES)
    assert set(BASELINES) <= set(skew_elements.STRATEGIES)
    varied = {name: len({row["setting"] for row in rows(stored, "elements", query=name)}) for name in skew.MEASURED}
    assert varied == {"q3": 3, "q4": 3, "q5": 3, "q6": 2, "q7": 6}  # the elements are beside the setting
    assert {row["elements"] for row in rows(stored, "elements", query="q6")} == {4, 6}


def test_hot_keys_are_spread_and_hash_is_not_balanced(stored):
    (ours,) = rows(stored, "balance", contender="hot_cold", join="equality", zipf=1.5, elements=8)
    (theirs,) = rows(stored, "balance", contender="hash", zipf=1.5, elements=8)
    assert ours["stored"] < targets.SKEW_BUSIEST and ours["probes"] < targets.SKEW_BUSIEST
    assert theirs["stored"] > 3 and theirs["visits"] == 1.0 < ours["visits"]


def test_the_paper_s_partitioners():
    found = skew_data.keys(skew_data.ZIPF, 0, 20_000, zipf=1.5)
    for name in skew_parts.PARTITIONERS:
        home = skew_data.partitioned(name, found, 10)
        assert home.shape == found.shape and home.min() == 0 and home.max() == 9
    hot = skew_data.believed(found)
    home = skew_data.partitioned("sta", found, 10)
    assert set(home[hot]) == {8, 9} and set(home[~hot]) == set(range(8)) and 0.7 < hot.mean() < 0.95
    assert abs(int((home[hot] == 8).sum()) - int((home[hot] == 9).sum())) <= 1
    by_hash = skew_data.partitioned("hash", found, 10)
    assert all(np.unique(by_hash[found == key]).size == 1 for key in range(5))


@pytest.mark.parametrize("name", ["q3", "q5"])
def test_windows_of_all_kinds_count_the_same_partners(name):
    setting = skew_elements.Setting(skew_elements.QUERIES[name], 200, 4, 0.1)
    work = skew_elements.Work(setting, 1)
    window, probes = work.keys[: work.size], work.probes[work.size : work.size + 20]
    lows, highs = work.bounds(probes)
    left, right = window[None, :], probes[:, None]
    said = (left < right) if name == "q3" else abs(left - right) < 1000
    kinds = [skew_elements.Scanned(window)]
    kinds += [skew_elements.Chain(index, window, 3) for index in (skew_elements.BTree(), skew_elements.PIMTree())]
    assert {kind.count(lows, highs) for kind in kinds} == {int(said.sum())}
    for kind in kinds:
        kind.insert(probes)
    assert len({kind.count(lows, highs) for kind in kinds}) == 1


def test_completeness_is_whole_where_all_is_shared_and_less_where_it_is_not():
    found = skew_data.keys(skew_data.ZIPF, 0, 4000, zipf=1.0)

    def share(name, sync, elements=10):
        return skew_parts._completeness(found, name, elements, sync, 2.0, 2000)

    for name in ("sta", "chained index"):
        assert share(name, 0.001) > 0.999
        assert share(name, 1.0) < share(name, 0.1) < 1
    assert share("sta", 1.0) > share("chained index", 1.0)
    assert share("chained index", 1.0, elements=1) == 1.0


def test_completeness_of_the_route_itself_follows_its_sync(stored):
    found = rows(stored, "completeness", contender="route sta", elements=10)
    shares = {sync: [row["complete"] for row in found if row["sync"] == sync] for sync in (0.0, 0.5, 1.0, 2.0)}
    assert all(len(each) == 2 for each in shares.values())  # a Zipf each
    assert shares[0.0] == [1.0, 1.0]
    assert all(two < one for one, two in zip(shares[0.0], shares[2.0], strict=True))


@pytest.mark.parametrize("form", [report.text, report.plain, report.markdown])
def test_the_report_has_every_part_and_every_claim(stored, form):
    shown = " ".join(form(stored[0]).split())
    for part in PARTS:
        assert f"{part}: " in shown
    assert "not judged" in shown and "table 7" in shown


def test_there_is_a_claim_for_each_table_and_figure(stored):
    said = {row["claim"].partition(":")[0] for row in stored[0]["claims"]}
    figures = {f"fig. {number}" for number in range(10, 25)} | {f"table {number}" for number in range(4, 8)}
    assert figures == {one.rstrip("abcd") for one in said if one.startswith(("fig", "table"))}


def made(hot=1.0, cold=1.0):
    """Results of q3 in one setting, in which STA is so much faster than all others."""
    about = {"part": "elements", "query": "q3", "zipf": None, "rate": 10_000, "elements": 10, "minutes": 2}
    speeds = dict.fromkeys(("hot_cold", *BASELINES), 100.0) | {"STA, hot": 100 * hot, "STA, cold": 100 * cold}
    return [
        about | {"contender": name, "insert_rounds": [speed], "search_rounds": [speed], "merge_s": 1.0}
        | {"insert_ms": 1 / speed, "search_ms": 1 / speed}
        for name, speed in speeds.items()
    ]  # fmt: skip


@pytest.mark.parametrize(("cold", "holds"), [(7.3, "yes"), (6.6, "yes"), (2.0, "in part"), (0.9, "no")])
def test_claims_are_held_against_each_baseline(cold, holds):
    first = claims(made(cold=cold))[0]
    assert first["claim"].startswith("fig. 10a: STA's cold elements") and first["holds"] == holds
    assert first["paper"] == "PIM 7x, chained index 6.2x, split 7.2x, broadcast 7.3x"
    assert claims(made(cold=cold), judged=False)[0]["holds"] is None
    unknown = claims([])
    assert unknown and {(row["ours"], row["best"], row["holds"]) for row in unknown} == {(None, "-", None)}
    full = skew.run(only=["balance"], sizes=skew.Sizes(pushes=1, batch=500, exponents=(1.5,)), say=quiet)["claims"]
    assert {row["claim"] for row in unknown} < {row["claim"] for row in full}


@pytest.mark.parametrize(
    ("options", "named"),
    [({"only": ["latency"]}, "only"), ({"query": ["q9"]}, "query"), ({"rounds": 0}, "rounds"), ({"most": 0}, "most")],
)
def test_bad_options_are_named_before_anything_runs(options, named, monkeypatch):
    monkeypatch.setattr(skew, "PARTS", dict.fromkeys(skew.PARTS))  # would fail if called
    with pytest.raises(ValueError, match=f"^{named} must"):
        skew.run(**options)


def test_the_command(tmp_path):
    out = tmp_path / "skew.json"
    arguments = ["bench", "skew", "--quick", "--only", "balance", "--only", "pipeline", "--out", str(out)]
    done = CliRunner(env={"BROKER": None}).invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "hot_cold" in done.output and "needs a Kafka broker" in done.output and report.load(out)["most"] >= 1


def test_it_runs_where_only_the_engine_is_installed(tmp_path):
    out = tmp_path / "skew.json"
    arguments = ["--quick", "--query", "q5", "--only", "sketch", "--only", "completeness", "--out", str(out)]
    code = f"""
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in (
            "sqlglot", "typer", "click", "rich", "duckdb", "polars", "pandas", "pyspark", "h5py", "datasketches",
            "confluent_kafka",
        ):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
sys.argv[1:] = {arguments!r}
runpy.run_module("watersmeet.bench.skew", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "ASketch" in done.stdout and "datasketches: it is not installed" in done.stdout
    assert report.load(out)["queries"] == ["q5"]
    assert report.load(out)["command"].startswith(("python -m watersmeet.bench.skew", "watersmeet.bench.skew.run"))
