"""What users hold in their hands: types, representations, and errors that say what was meant."""

import copy
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.engine.choose import NAMES
from watersmeet.engine.options import IndexName
from watersmeet.engine.results import HOWS, OUTPUTS, How, Output
from watersmeet.parameters import hint, one_of, whole

ROOT = Path(__file__).parents[1]
TABLE = pa.table({"ts": [1, 2], "k": [1, 2]})


# ----------------------------------------------------------------------------------------- type checkers

TYPED = """
    from typing import assert_type
    import numpy as np
    import pyarrow as pa
    import watersmeet as wm

    count = wm.StreamJoin("true", wm.within(5), "semi", output="count", cores=np.int64(1), index="bisort")
    assert_type(count, wm.StreamJoin[int])
    assert_type(count.push(left=None), int)
    assert_type(count.advance(1), int)
    assert_type(count.flush() + count.close(), int)
    with count as same:
        assert_type(same, wm.StreamJoin[int])

    rows = wm.StreamJoin("true", wm.within(5))
    assert_type(rows, wm.StreamJoin[pa.Table])
    rows.push(left=None).num_rows
    pairs = wm.StreamJoin("true", wm.last(5), how="full", output="pairs", index=wm.index.BISort())
    assert_type(pairs, wm.StreamJoin[pa.Table])
"""
MISTYPED = {
    'wm.StreamJoin("true", wm.within(5), "outer")': "No overload",
    'wm.StreamJoin("true", wm.within(5), output="tuples")': "No overload",
    'wm.StreamJoin("true", wm.within(5), index="r_tree")': "No overload",
    'wm.StreamJoin("true", wm.within(5), thread=5)': "No overload",
    'wm.StreamJoin("true", wm.within(5), output="count").push(left=None).num_rows': '"int" has no attribute "num_rows"',
}


def test_type_checkers_know_what_a_push_returns_and_which_choices_there_are(tmp_path):
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(textwrap.dedent(TYPED))
    bad.write_text("import watersmeet as wm\n" + "\n".join(MISTYPED))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(good), str(bad)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line for line in errors if "good.py" in line] == []
    for number, (code, message) in enumerate(MISTYPED.items(), 2):
        assert any(f"bad.py:{number}: " in line and message in line for line in errors), f"{code}\n{done.stdout}"


def test_the_literals_are_what_is_accepted():
    assert get_args(IndexName) == NAMES
    assert get_args(How) == HOWS
    assert get_args(Output) == OUTPUTS


# -------------------------------------------------------------------------------------------------- choices


@pytest.mark.parametrize(
    ("how", "meant"),
    [
        ("outer", "full"), ("full_outer", "full"), ("FULL OUTER", "full"), ("left_outer", "left"),
        ("leftouter", "left"), ("right_outer", "right"), ("left_anti", "anti"), ("leftanti", "anti"),
        ("left_semi", "semi"),
        ("leftsemi", "semi"), ("left-semi", "semi"), ("INNER", "inner"), (" inner ", "inner"), ("iner", "inner"),
    ],
)  # fmt: skip
def test_other_names_of_join_types_get_a_hint(how, meant):
    with pytest.raises(ValueError, match=rf"how must be one of inner, .*; did you mean '{meant}'\?"):
        wm.StreamJoin("true", wm.within(5), how)


def test_a_cross_join_gets_a_hint():
    with pytest.raises(ValueError, match="got 'cross'; for a cross join use how='inner' with on='true'"):
        wm.StreamJoin("true", wm.within(5), "cross")


def test_where_nobody_can_tell_there_is_no_hint():
    assert hint("zebra", HOWS) == hint(None, HOWS) == hint(5, HOWS) == ""
    with pytest.raises(ValueError, match=r"got \['inner'\]$"):
        one_of("how", ["inner"], HOWS)
    with pytest.raises(ValueError, match=r"did you mean 'pairs'\?"):
        wm.StreamJoin("true", wm.within(5), output="pair")
    with pytest.raises(ValueError, match=r"did you mean 'btree'\?"):
        wm.StreamJoin("true", wm.within(5), index="b_tree")


# -------------------------------------------------------------------------------------------- whole numbers


@pytest.mark.parametrize("number", [np.int64(2), np.uint8(2), np.int32(2)])
def test_whole_numbers_of_numpy_are_whole_numbers(number):
    options = dict.fromkeys(("cores", "batch_rows", "keep_late", "subwindows", "subwindow_rows"), number)
    join = wm.StreamJoin("l.k = r.k", wm.within(5), output="count", **options)
    assert join.push(left=TABLE) + join.push(right=TABLE) + join.close() == 2
    assert type(whole("n", number)) is int


def test_indexes_take_them_too():
    index = wm.index.PIMTree(fan_out=np.int64(4), insertion_depth=np.int32(1))
    join = wm.StreamJoin("l.k <= r.k", wm.within(5), output="count", index=index)
    assert join.push(left=TABLE, right=TABLE) == 3


@pytest.mark.parametrize("parameter", ["cores", "batch_rows", "keep_late", "subwindows", "subwindow_rows"])
@pytest.mark.parametrize("value", [True, np.bool_(True), 1.0, np.float64(1), "1"])
def test_other_things_are_not(parameter, value):
    with pytest.raises(TypeError, match=f"{parameter} must be a whole number"):
        wm.StreamJoin("true", wm.within(5), **{parameter: value})


def test_more_cores_than_anybody_needs_are_refused():
    with pytest.raises(ValueError, match="cores must be at most 1024, got 1000000"):
        wm.StreamJoin("true", wm.within(5), cores=1_000_000)


# ------------------------------------------------------------------------------------------ representations


def test_a_join_says_what_it_is_and_has_done():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    assert "waiting for the columns of both streams" in repr(join)
    join.push(left=TABLE, right=TABLE)
    for fact in ("on: l.k = r.k", "window: within 5", "how: inner", "output: rows", "state: open",
                 "rows in: 2 left, 2 right", "rows out: 2"):  # fmt: skip
        assert fact in repr(join)
    assert "\n" not in repr(join)
    join.close()
    assert "state: closed" in repr(join)
    assert "how: inner self join" in repr(wm.StreamJoin("l.k = r.k", wm.within(5), self_join=True))


def test_metrics_say_what_they_are():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    assert "watermark: none yet" in repr(join.metrics)
    join.push(left=TABLE, right=TABLE)
    text = repr(join.metrics)
    assert text.startswith("<Metrics rows in: 2 left, 2 right; rows out: 2; late: 0 left, 0 right; stored: 2 left")
    assert "watermark: 2" in text and "\n" not in text


def test_html_has_the_same_facts_and_escapes_all_text():
    schema = pa.schema({"ts": pa.int64(), "<b>&'": pa.int64()})
    join = wm.StreamJoin("l.`<b>&'` < r.`<b>&'`", wm.within(5), left_schema=schema, right_schema=schema)
    html = join._repr_html_()
    assert "<td" in html and "rows in" in html and "explain" in html
    assert "&lt;b&gt;&amp;" in html
    assert "<b>&" not in html
    assert "rows out" in join.metrics._repr_html_()
    assert join.metrics._repr_html_().count("<tr>") == 9


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_join_cannot_be_pickled_or_copied_and_says_so(attempt):
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    with pytest.raises(TypeError, match="a StreamJoin holds .*; make a new one in each process"):
        attempt(join)


def test_metrics_can_be_copied():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    join.push(left=TABLE, right=TABLE)
    kept = copy.deepcopy(join.metrics)
    assert kept == pickle.loads(pickle.dumps(kept)) and kept.rows_out == 2
