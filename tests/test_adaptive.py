"""Adaptive: the rule, and that a chain follows it from subwindow to subwindow. Exactness is in the contract suite."""

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.index.adaptive import Adaptive, Seen, choose
from watersmeet.workers import ALONE


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, "rap_table"),
        ({"batch_rows": 8191}, "rap_table"),
        ({"batch_rows": 8192}, "bisort"),
        ({"batch_rows": 512, "rows": 1 << 15}, "bisort"),  # small, but not beside the subwindow
        ({"batch_rows": 511, "rows": 1 << 15}, "rap_table"),
        ({"partners": 64}, "bisort"),
        ({"rising": 0.5}, "wib_tree"),
        ({"rising": 0.4, "drift": 0.2}, "rap_table"),
        ({"drift": 0.25}, "wib_tree"),
        ({"drift": 1, "partners": 100}, "bisort"),
        ({"rows": 0, "batch_rows": 1}, "bisort"),  # nothing is known
    ],
    ids=str,
)
def test_the_rule(change, kind):
    seen = {"rows": 1 << 20, "batch_rows": 100.0, "partners": 2.0, "rising": 0.0, "drift": 0.0} | change
    assert choose(Seen(**seen)).name == kind


def kinds(join):
    """Those of the left window's subwindows, oldest first."""
    (line,) = (text for text in join.explain().splitlines() if text.startswith("  left now:"))
    return line.split(": ")[1].split(", ")


def test_a_chain_follows_the_stream():
    """Keys without order; then they increase; then they have many partners; then batches are large."""
    rng = np.random.default_rng(1)
    join = wm.StreamJoin("abs(l.x - r.x) <= 1", wm.last(4000), index="adaptive", output="count")
    position = 0

    def push(keys):
        nonlocal position
        join.push(left=pa.table({"x": keys}), right=pa.table({"x": keys}))
        join.check_invariants()
        position += keys.size

    def fill(keys, batch=16):
        for _ in range(8000 // batch):
            push(keys(batch))
        return set(kinds(join)[1:])  # the oldest may be from before

    first = rng.integers(0, 100_000, 16)
    push(first)
    assert kinds(join) == ["bisort"]
    assert fill(lambda n: rng.integers(0, 100_000, n)) == {"rap_table"}
    assert fill(lambda n: 1_000_000 + np.arange(position, position + n)) == {"wib_tree"}
    assert fill(lambda n: rng.integers(0, 20, n)) == {"bisort"}
    assert fill(lambda n: rng.integers(0, 100_000, n)) == {"rap_table"}
    assert fill(lambda n: rng.integers(0, 100_000, n), 400) == {"bisort"}


def test_subwindows_of_all_kinds_are_searched_together():
    """The answer while the chain changes is that of BI-Sort."""
    rng = np.random.default_rng(2)
    joins = [wm.StreamJoin("abs(l.x - r.x) <= 3", wm.last(2000), index=index) for index in ("adaptive", "bisort")]
    seen = set()
    for step in range(1200):
        low, width = (0, 20_000) if step < 400 else (100 * step, 100) if step < 800 else (0, 20)
        keys = {side: low + rng.integers(0, width, 8) for side in ("left", "right")}
        tables = {side: pa.table({"x": x}) for side, x in keys.items()}
        order = [("x", "ascending"), ("x_right", "ascending")]
        mine, expected = (join.push(**tables).sort_by(order) for join in joins)
        assert mine == expected
        seen.add(tuple(kinds(joins[0])))
    assert {kind for one in seen for kind in one} == {"bisort", "rap_table", "wib_tree"}
    assert any(len(set(one)) > 1 for one in seen)


def test_what_a_subwindow_has_shown():
    """Three batches, of which the second lies above the first; probes that find two rows each; keys that moved."""
    index = Adaptive()
    first = index.structure()
    first.insert(index.entries(None, np.arange(0, 10), None, 10, ALONE), 0)
    structure = index.structure(first)
    rows = 0
    for keys in (np.arange(100, 110), np.arange(110, 120), np.arange(105, 115)):
        structure.insert(index.entries(None, keys, None, 10, ALONE), rows)
        rows += 10
    probes = index.probes(None, (np.arange(100, 120),), (np.arange(100, 120),), None, 20, ALONE)
    for start, stop in ((0, 5), (5, 15), (15, 20)):
        assert structure.count(probes, start, stop, None) == sum(
            rows.size for _, rows in structure.find(probes, start, stop, None)
        )
    seen = structure.seen()
    assert (seen.rows, seen.batch_rows, seen.partners, seen.rising) == (30, 10, 30 / 20, 1 / 2)
    middle = (105 + 115 + 110) / 3
    assert seen.drift == pytest.approx((middle - 5) / (119 - 100))
