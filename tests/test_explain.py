"""explain() and metrics: what the join says about itself is true, and stays where a reader looks for it."""

import json

import pyarrow as pa
import pytest

import watersmeet as wm

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), "x": pa.float64(), "s": pa.string()})


def join(on="l.k = r.k", window=None, how="inner", **options):
    given = {"left_schema": SCHEMA, "right_schema": SCHEMA}
    return wm.StreamJoin(on, window or wm.within(5), how, **(given | options))


def line(explained, name):
    (found,) = (text for text in explained.splitlines() if text.strip().startswith(f"{name}:"))
    return found.split(":", 1)[1].strip()


@pytest.mark.parametrize(
    ("on", "index", "expected"),
    [
        ("l.k = r.k", "auto", "hash"),
        ("l.k = r.k", "bisort", "bisort"),
        ("abs(l.x - r.x) <= 1", "auto", "bisort"),
        ("l.x < r.x", "auto", "bisort"),
        ("l.k = r.k and abs(l.x - r.x) <= 1", "bisort", "bisort (composite)"),
        ("l.k = r.k and abs(l.x - r.x) <= 1", "hash", "hash"),
        ("l.k = r.k and abs(l.x - r.x) <= 1", "nested_loop", "nested_loop"),
        ("l.k * r.k > l.x + r.x", "auto", "nested_loop"),
        ("true", "auto", "nested_loop"),
    ],
)
def test_explain_names_the_index(on, index, expected):
    chosen = line(join(on, index=index).explain(), "index")
    assert chosen.startswith(expected)
    assert ("(composite)" in chosen) == ("(composite)" in expected)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (wm.within(3, 4, lateness=2), ["within", "3", "4", "2"]),
        (wm.last(5, 6), ["last", "5", "6"]),
        (wm.tumbling(7), ["tumbling", "7"]),
        (wm.hopping(7, 2), ["hopping", "7", "2"]),
    ],
    ids=str,
)
def test_explain_names_predicate_window_and_join_type(window, words):
    explained = join("l.k = r.k and l.x < r.x", window, "full").explain()
    assert "l.k = r.k" in line(explained, "predicate")
    assert all(word in line(explained, "window") for word in words)
    assert "full" in line(explained, "how")


def test_explain_says_what_each_term_is_used_for():
    on = "l.k = r.k and abs(l.x - r.x) <= 1 and l.s > 'a' and l.s || r.s <> 'ab'"
    lines = [text.split() for text in join(on).explain().splitlines()]
    kinds = {words[0] for words in lines if words}
    assert {"equality", "band", "one-sided", "residual"} <= kinds


def test_explain_works_before_the_schemas_are_known():
    assert "l.k = r.k" in wm.StreamJoin("l.k = r.k", wm.within(5)).explain()


def rows(*times):
    n = len(times)
    return pa.table({"ts": times, "k": [1] * n, "x": [0.0] * n, "s": ["a"] * n}, schema=SCHEMA)


def test_metrics_count_what_happened():
    running = join(how="left")
    assert running.metrics.watermark is None
    running.push(left=rows(10, 11), right=rows(10))
    running.push(left=rows(30, 9), right=rows(29, 28))
    metrics = running.metrics
    assert (metrics.rows_in_left, metrics.rows_in_right) == (4, 3)
    assert (metrics.late_left, metrics.late_right) == (1, 1)
    assert metrics.rows_out == 2 + 1
    assert metrics.watermark == 29
    assert (metrics.stored_left, metrics.stored_right) >= (1, 1)
    assert metrics.index_bytes > 0 and metrics.payload_bytes > 0
    assert {"keys", "probe", "store", "gather", "expire"} <= set(metrics.seconds)
    assert all(seconds >= 0 for seconds in metrics.seconds.values())


def test_metrics_can_be_written_as_json():
    running = join()
    running.push(left=rows(1), right=rows(1))
    written = json.loads(json.dumps(running.metrics.to_dict()))
    assert written["rows_out"] == 1
    assert written["rows_in_left"] == 1
