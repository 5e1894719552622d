"""The report of benchmarks: its plots are what runs stored, its page loads nothing, bad files get a message."""

import copy
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from watersmeet.bench import plots, targets
from watersmeet.bench.plots import page, runs, vega, verdicts
from watersmeet.bench.plots.runs import Run
from watersmeet.cli import app

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "docs" / "figures").glob("*.json"))


@pytest.fixture(scope="module")
def stored():
    return runs.load(STORED)


@pytest.fixture
def embedded(stored):
    (run,) = [run for run in stored if run.name == "embedded"]
    return Run(run.name, run.path, copy.deepcopy(run.data))


def report(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


# -- plots ---------------------------------------------------------------------------------------------------------


def test_points_are_medians_with_their_spread(embedded):
    (plot,) = [plot for plot in plots.plots(embedded) if plot.name == "embedded-batches-band"]
    rows = {(row["contender"], row["batch"]): row["rounds"] for row in embedded.part("B")}
    assert {point.series for point in plot.points} == {"watersmeet", "DuckDB", "Polars", "DataFusion"}
    for point in plot.points:
        speeds = [speed / 1e6 for speed in rows[point.series, point.x]]
        assert (point.y, point.low, point.high) == pytest.approx((median(speeds), min(speeds), max(speeds)))


def test_the_stored_figures_have_all_plots_that_we_promise(stored):
    made = [plot for run in stored for plot in plots.plots(run)]
    assert {"Throughput", "Cost growth", "Latency", "Cores", "Spark", "Indexes"} <= {plot.section for plot in made}
    assert {plot.section for plot in made} <= set(plots.SECTIONS) == set(page.SECTION_WORDS)
    assert len({plot.name for plot in made}) == len(made)
    share = next(plot for plot in made if plot.name == "spark-share")
    assert share.line is not None and share.line[0] == targets.INPUT_ROWS["A", "identity"]
    assert all(plot.y.log for plot in made if plot.section in ("Throughput", "Cores"))


@pytest.mark.parametrize("name", [path.stem for path in STORED])
def test_a_run_of_some_parts_has_their_plots(stored, name):
    run = next(run for run in stored if run.name == name)
    whole = {plot.name: plot for plot in plots.plots(run)}
    for part in dict.fromkeys((row.get("part") or row.get("workload")) for row in run.results):
        some = Run(run.name, run.path, run.data | {"results": run.part(part), "ratios": [], "claims": []})
        made = plots.plots(some)
        assert all(set(plot.points) <= set(whole[plot.name].points) for plot in made)
    assert plots.plots(Run(run.name, run.path, run.data | {"results": [], "ratios": []})) == []


def test_what_rows_lack_is_left_out(embedded):
    for row in embedded.results:
        for key in ("rounds", "batch", "window"):
            if row["contender"] == "Polars":
                row[key] = None
    made = {plot.name: plot for plot in plots.plots(embedded)}
    assert "Polars" not in made["embedded-batches-band"].series and "DuckDB" in made["embedded-batches-band"].series


SKEWED = [
    {"part": "balance", "join": "equality", "contender": route, "zipf": zipf, "elements": 8, "stored": stored,
     "loads": loads}
    for route, stored, loads in (("hash", 3.8, [30, 5, 5]), ("hot_cold", 1.01, [13, 14, 13])) for zipf in (0.0, 1.5)
] + [
    {"part": "elements", "query": "q7", "setting": setting, "elements": 10, "contender": name,
     "insert_rounds": [1e6, 2e6, 4e6], "search_rounds": [1e3]}
    for setting in ("10,000/s", "30,000/s") for name in ("sta", "split")
] + [
    {"part": "completeness", "contender": "sta", "zipf": 1.0, "sync": 2.0, "window_s": 60.0, "complete": 0.93},
    {"part": "cores", "setting": "count", "elements": 8, "contender": "Zipf 1.5, hot_cold", "rounds": [2e6]},
    {"part": "pipeline", "query": "q3", "contender": "hash", "rounds": [50.0, 70.0]},
    {"part": "sketch", "contender": "ASketch", "zipf": 1.2, "rounds": [5e7]},
]  # fmt: skip


def test_skew_shows_load_by_core_and_speed_by_skew():
    run = Run("skew", Path("skew.json"), {"benchmark": "skew", "results": SKEWED, "ratios": []})
    made = {plot.name: plot for plot in plots.plots(run)}
    assert list(made) == [
        "skew-balance-equality", "skew-loads-0", "skew-loads-1-5", "skew-cores", "skew-sketch", "skew-elements-insert",
        "skew-elements-search", "skew-completeness-60-2", "skew-pipeline",
    ]  # fmt: skip
    assert [(p.series, p.x, p.y) for p in made["skew-balance-equality"].points if p.x] == [
        ("hash", 1.5, 3.8), ("hot_cold", 1.5, 1.01),
    ]  # fmt: skip
    loads = made["skew-loads-1-5"]
    assert [point.y for point in loads.points if point.series == "hash"] == pytest.approx([2.25, 0.375, 0.375])
    assert [(p.series, p.y, p.low, p.high) for p in made["skew-elements-insert"].points] == [
        ("sta", 2000, 1000, 4000), ("split", 2000, 1000, 4000),
    ]  # fmt: skip
    assert [point.y for point in made["skew-completeness-60-2"].points] == [93.0]
    for plot in made.values():
        assert plot.title in vega.svg(plot)


def test_colours_differ_and_ours_is_the_same_everywhere():
    names = ["DuckDB", "watersmeet", "x", "y", "Polars", "z"]
    found = vega.colours(names)
    assert len(set(found)) == len(names) and found[1] == vega.OURS == vega.colours(["watersmeet"])[0]


def test_svgs_are_for_light_and_dark_pages(embedded):
    text = vega.svg(plots.plots(embedded)[0])
    assert text.startswith("<svg") and "prefers-color-scheme: dark" in text and "Equality join by batch size" in text
    assert f'fill="{vega.INK}"' in text and "http://www.w3.org" in text and "https://" not in text


def test_committed_svgs_are_those_of_the_stored_figures():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    drawn, there = figures.pictures(), ROOT / "docs" / "plots"
    assert sorted(drawn) == sorted(path.name for path in there.iterdir()), "run tools/figures.py"
    for name, text in drawn.items():
        assert (there / name).read_text() == text, f"docs/plots/{name}: run tools/figures.py"


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_page_is_whole_and_loads_nothing(tmp_path, stored):
    out = tmp_path / "page.html"
    ran = report(*STORED, "-o", out)
    assert ran.exit_code == 0, ran.output
    text = out.read_text()
    for plot in (plot for run in stored for plot in plots.plots(run)):
        assert f'data-plot="{plot.name}"' in text
    head = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)""", head) == [] and "@import" not in head and "url(" not in head
    for run in stored:
        assert run.machine["commit"] in text
    for target in verdicts.targets(stored):
        assert target.met or f"<li>{page.escape(target.line)}</li>" in text
    assert text.count("<tr data-paper=") == sum(len(run.data["claims"]) for run in stored)


def test_missed_targets_come_first_and_all_are_listed(stored):
    judged = verdicts.targets(stored)
    assert len(judged) == sum(row["ok"] is not None for run in stored for row in run.data["ratios"])
    assert [one.met for one in judged] == sorted(one.met for one in judged)


def test_texts_of_a_results_file_are_shown_as_text(tmp_path, embedded):
    evil = "</script><script>alert(1)</script>"
    for row in embedded.results:
        row["contender"] = row["contender"].replace("Polars", evil)
    embedded.data["command"] = embedded.data["machine"]["cpu"] = evil
    embedded.data["claims"] = [{"row": "P1", "claim": evil, "paper": evil, "ours": evil, "holds": evil}]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(embedded.data))
    text = page.page(runs.load([path]))
    assert "alert(1)" in text and evil not in text and "<script>alert" not in text


def test_two_runs_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "a").mkdir()
    other = tmp_path / "a" / "cores.json"
    first = ROOT / "docs" / "figures" / "cores.json"
    other.write_text(first.read_text())
    both = runs.load([first, other])
    assert [run.name for run in both] == ["cores", "cores-2"]
    names = [plot.name for run in both for plot in plots.plots(run)]
    assert len(set(names)) == len(names) >= 4


def test_a_run_of_an_unknown_benchmark_is_listed(tmp_path):
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"benchmark": "tomorrow", "machine": {}, "results": [{"part": "x", "rounds": [1]}]}))
    ran = report(path, "-o", tmp_path / "page.html")
    assert ran.exit_code == 0, ran.output
    text = (tmp_path / "page.html").read_text()
    assert "nothing to plot" in text and "vegaEmbed" in text and len(text) < 100_000


# -- what can be wrong ---------------------------------------------------------------------------------------------

GOOD = {"benchmark": "embedded", "machine": {"cores": 2}, "results": [], "ratios": []}
ROW = {"workload": "B", "batch": 5, "contender": "x", "rounds": [1.0]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: the run that should have written it has not ended"),
        (" \n", "is empty"),
        (json.dumps(GOOD)[:-20], "is not JSON (line 1: "),
        ("[1, 2]", "it is a list, not an object"),
        ("{}", "its 'benchmark' is missing"),
        (json.dumps(GOOD | {"results": None}), "its 'results' is None"),
        (json.dumps(GOOD | {"results": [3]}), "results[0] is 3, not an object"),
        (json.dumps(GOOD | {"results": [ROW | {"rounds": "fast"}]}), "the rounds of results[0] are 'fast', not"),
        (json.dumps(GOOD | {"results": [ROW | {"rounds": [1, float("nan")]}]}), "not numbers"),
        (json.dumps(GOOD | {"ratios": [{"value": 1}]}), "ratios[0] has no 'workload'"),
        (json.dumps(GOOD | {"ratios": [{"workload": "B", "against": "y", "value": "1"}]}), "not a number"),
        (json.dumps(GOOD | {"results": [ROW | {"batch": "many"}, ROW]}), "cannot be plotted"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_gets_a_message(tmp_path, text, message):
    path = tmp_path / "run.json"
    path.write_text(text)
    ran = report(path, "-o", tmp_path / "page.html")
    assert ran.exit_code == 2 and ran.exception.__class__ is SystemExit, ran.output
    assert f"error: {path}" in ran.output and message in ran.output.replace("\n", " ")
    assert not (tmp_path / "page.html").exists()


def test_files_that_are_not_there(tmp_path, monkeypatch):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name, message in (("none.json", "does not exist"), (".", "is a folder"), ("binary.json", "is not text")):
        ran = report(tmp_path / name)
        assert ran.exit_code == 2 and message in ran.output.replace("\n", " ")
    ran = report(STORED[0], "-o", tmp_path / "no" / "page.html")
    assert ran.exit_code == 2 and "there is no folder" in ran.output
    monkeypatch.chdir(tmp_path)
    ran = report()
    assert ran.exit_code == 2 and "results must be given where there are neither docs/figures" in ran.output


def test_without_arguments_the_stored_figures_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    ran = report("-o", tmp_path / "page.html")
    assert ran.exit_code == 0 and f"{len(STORED)} runs" in ran.output


def test_without_the_extra_there_is_a_message():
    code = (
        "import sys\n"
        "sys.modules['vl_convert'] = None\n"
        "from watersmeet.cli import app\n"
        f"app(['report', {str(STORED[0])!r}, '-o', '/dev/null'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2 and ran.stderr == "error: plots need vl-convert: pip install 'watersmeet[report]'\n"


def test_the_package_itself_does_not_import_what_draws():
    code = "import sys, watersmeet, watersmeet.cli, watersmeet.bench.plots\nassert 'vl_convert' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
