"""The command line, as its users see it."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import watersmeet
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.cli import app
from watersmeet.cli.explain import parse_columns
from watersmeet.demo import check, embedded, streams


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})


def explain(*arguments):
    result = run("explain", *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_help_names_the_commands():
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.output for command in ("demo", "run", "explain", "bench"))


def test_version():
    assert run("--version").output.strip() == f"watersmeet {watersmeet.__version__}"


def test_runs_as_a_module_and_help_imports_only_what_it_needs():
    code = "import sys; sys.argv[1:] = ['--help']; import runpy\n"
    code += "try: runpy.run_module('watersmeet', run_name='__main__')\n"
    code += "except SystemExit: print('heavy:', {'duckdb', 'pyspark', 'sqlglot', 'watersmeet.demo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "explain" in done.stdout
    assert "heavy: set()" in done.stdout


# --- explain ------------------------------------------------------------------------------------------------


def test_explain_shows_terms_and_index():
    text = explain("l.id = r.id and abs(l.x - r.x) < 5")
    assert "index: bisort (composite)" in text
    assert "equality" in text
    assert "band" in text


def test_explain_says_what_it_assumed_of_undeclared_columns():
    text = explain("l.id = r.id", "--left", "id:int64")
    assert "assumed: l.ts timestamp[us], r.ts timestamp[us], r.id double" in text
    text = explain("l.id = r.id", "--window", "within 10", "--time", "t, u")
    assert "l.t int64, r.u int64" in text
    assert "assumed" not in explain("l.id = r.id", "--left", "id:int64", "--right", "id:int64", "--window", "last 9")


@pytest.mark.parametrize(
    "window",
    ["within 10 seconds", "within 0, 1 hour", "10 seconds", "last 1000", "last 10, 20", "tumbling 1 minute"]
    + ["hopping 1 hour, 5 minutes", "within 10", "tumbling 60"],
)
def test_explain_takes_every_window(window):
    assert "window:" in explain("l.x = r.x", "--window", window)


@pytest.mark.parametrize(
    "kind",
    ["int8", "uint64", "float", "double", "string", "binary", "bool", "date", "date64", "time", "time32[ms]"]
    + ["timestamp", "timestamp[ns]", "timestamp[us, UTC]", "timestamp[ms, tz=Europe/Paris]", "duration"]
    + ["decimal(10,2)", "decimal(38, 0)"],
)
def test_explain_takes_every_type(kind):
    assert "index: hash" in explain("l.x = r.x", "--left", f"a:int8, x: {kind}", "--right", f"x:{kind}, b:int8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["l.a ="], "on is not valid SQL"),
        (["l.a + r.a"], "on must be a predicate"),
        (["l.a = r.a", "--left", "a"], '--left must read "name:type, name:type"'),
        (["l.a = r.a", "--right", "a:strange"], "--right: no type 'strange'"),
        (["l.a = r.a", "--left", "a:string"], "string"),
        (["l.a = r.a", "--window", "sliding 5"], "--window must begin with one of within, last"),
        (["l.a = r.a", "--window", "last"], '--window must read for instance "last 1000"'),
        (["l.a = r.a", "--window", "last 1, 2, 3"], "not 'last 1, 2, 3'"),
        (["l.a = r.a", "--window", "hopping 1 hour"], '"hopping 1 hour, 5 minutes"'),
        (["l.a = r.a", "--window", "within 10 parsecs"], "parsecs"),
        (["l.a = r.a", "--window", "last -4"], "-4"),
        (["l.a = r.a", "--time", "a,b,c"], "--time must be one column or two"),
        (["l.a = r.a", "--how", "sideways"], "sideways"),
        (["l.a = r.a", "--index", "skip_list"], "skip_list"),
        (["l.a < r.a", "--index", "hash"], "hash"),
    ],
)
def test_a_mistake_gets_one_clear_message(arguments, message):
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_columns_may_hold_types_with_commas():
    columns = parse_columns("a:decimal(10,2), b:timestamp[us, UTC],c:int8", "--left")
    assert columns == {"a": pa.decimal128(10, 2), "b": pa.timestamp("us", "UTC"), "c": pa.int8()}


# --- demo ---------------------------------------------------------------------------------------------------


def test_demo_joins_and_checks_every_result():
    result = run("demo", "--embedded", "--rows", 30_000, "--cores", 2, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert "correct: DuckDB finds the same" in result.output
    assert "index: bisort (composite)" in result.output
    assert "rows/s" in result.output


def test_demo_without_duckdb_checks_a_sample(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = run("demo", "--embedded", "--rows", 5_000)
    assert result.exit_code == 0, result.output
    assert "correct: NumPy finds the same" in result.output


def test_demo_of_a_single_row():
    assert run("demo", "--embedded", "--rows", 1).exit_code == 0


def test_demo_finds_a_wrong_result(monkeypatch):
    monkeypatch.setattr(embedded, "BAND", 0.04)  # what the check expects; the join's predicate keeps its own
    result = run("demo", "--embedded", "--rows", 5_000)
    assert result.exit_code == 1
    assert "wrong:" in result.output


def test_demo_refuses_bad_options():
    assert run("demo", "--embedded", "--rows", 0).exit_code == 2
    assert run("demo", "--embedded", "--cores", 0).exit_code == 2
    both = run("demo", "--embedded", "--kafka", "127.0.0.1:1")
    assert both.exit_code == 2 and "--kafka and --embedded cannot both be given" in both.stderr


def test_demo_streams_are_out_of_order_complete_and_repeatable():
    trades, quotes = streams.generate(10_000, seed=5)
    pushes = list(streams.deliveries(trades, quotes))
    assert sum(left.num_rows for left, _ in pushes) == sum(right.num_rows for _, right in pushes) == 10_000
    assert np.any(np.diff(check.microseconds(trades.rows)) < 0)
    assert trades.rows.equals(streams.generate(10_000, seed=5)[0].rows)


def test_both_checks_of_the_demo_agree():
    trades, quotes = (stream.rows for stream in streams.generate(2_000, seed=7))
    everything = check.all_pairs(trades, quotes, 5.0, 10_000)
    assert len(everything) > 0
    assert np.array_equal(check.pairs_of(trades, quotes, 5.0, 10_000), everything)


# --- bench --------------------------------------------------------------------------------------------------


def test_bench_help_shows_its_options():
    output = run("bench", "embedded", "--help").output
    assert all(option in output for option in ("--quick", "--out", "--only", "--rounds", "--markdown"))


def fake_bench(monkeypatch, outcome):
    """Measurements take long: only what the command does around them is tested here."""

    def measure(quick, only, out, rounds, *, say):
        say("measuring")
        out.write_text(json.dumps(outcome(quick, only, rounds)))
        return json.loads(out.read_text())

    monkeypatch.setattr("watersmeet.bench.embedded.run", measure)
    monkeypatch.setattr("watersmeet.bench.report.text", str)
    monkeypatch.setattr("watersmeet.bench.report.markdown", lambda results: f"| {results} |")


def test_bench_runs_prints_and_stores(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    about = {"benchmark": "embedded", "machine": {"cpu": "some", "cores": 2}, "results": [], "ratios": []}
    fake_bench(monkeypatch, lambda *given: about | {"given": given})
    result = run("bench", "embedded", "--quick", "--only", "A2", "--only", "B", "--rounds", 2)
    assert result.exit_code == 0, result.output
    assert "[True, ['A2', 'B'], 2]" in result.stdout
    (stored,) = (tmp_path / "bench-results").iterdir()
    assert stored.name in result.stderr
    told = run("bench", "report", stored, "--markdown").stdout.strip()
    assert told.startswith("| {") and "[True, ['A2', 'B'], 2]" in told


def test_bench_reports_wrong_answers(monkeypatch, tmp_path):
    def differ(*_):
        raise AnswersDiffer("DuckDB has 3 rows, watersmeet 4")

    fake_bench(monkeypatch, differ)
    result = run("bench", "embedded", "--out", tmp_path / "x.json")
    assert result.exit_code == 1
    assert "wrong answers: DuckDB has 3 rows" in result.stderr


def test_bench_refuses_a_part_that_does_not_exist(tmp_path):
    result = run("bench", "embedded", "--only", "C", "--out", tmp_path / "x.json")
    assert result.exit_code == 2
    assert "band_last; A2; B" in result.stderr
