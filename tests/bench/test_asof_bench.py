"""The benchmark of as-of joins runs, and its contenders agree."""

import pytest

from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.embedded import FULL, Embedded, asof


@pytest.fixture
def bench():
    return Embedded(FULL, judged=True, say=lambda line: None)


def test_every_contender_gives_the_same_answer(bench):
    asof.measure(bench, 2000, (500,), 3, keys=300)
    assert {row["contender"] for row in bench.results} == {"watersmeet", "Polars join_asof", "DuckDB ASOF JOIN"}
    assert len({row["form"] for row in bench.results}) == len(asof.KINDS)
    assert all(len(row["rounds"]) == 3 and row["checked_pairs"] == 1500 for row in bench.results)
    assert len(bench.ratios) == 2 * len(asof.KINDS)


@pytest.mark.parametrize("kind", asof.KINDS)
def test_targets_are_for_joins_with_keys(bench, kind, monkeypatch):
    monkeypatch.setattr("watersmeet.bench.targets.ASOF", {500: 0.001})
    asof.race(bench, asof.Streams(kind, 2000, 300), 500, 2)
    assert [row["ok"] for row in bench.ratios] == [None if kind == "none" else True, None]


def test_another_answer_stops_the_run(bench, monkeypatch):
    push = asof.Ours.push
    monkeypatch.setattr(asof.Ours, "push", lambda self, left, right: push(self, left, right).slice(1))
    with pytest.raises(AnswersDiffer, match="asof, number: Polars join_asof gives other pairs"):
        asof.race(bench, asof.Streams("number", 2000, 300), 500, 2)
