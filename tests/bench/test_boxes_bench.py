"""The benchmark of boxes runs, its contenders agree, and few candidates are looked at for a result."""

import pytest

from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.embedded import FULL, Embedded
from watersmeet.bench.embedded.boxes import KDTree, race, splitjoin, uniform

OTHERS = {"DuckDB, cells", "watersmeet, one band"}


@pytest.fixture
def bench():
    return Embedded(FULL, judged=True, say=lambda line: None)


@pytest.mark.parametrize(
    "box, most, others",
    [
        (uniform(2, 3000), 2.4, OTHERS | {"cKDTree"}),
        (uniform(3, 3000), 5.0, OTHERS),
        (splitjoin(3000), 4.0, OTHERS),
    ],
)
def test_every_contender_gives_the_same_answer(bench, box, most, others):
    race(bench, box, 700, 4)
    assert {row["contender"] for row in bench.results} == {"watersmeet"} | others
    assert all(len(row["rounds"]) == 4 and row["checked_pairs"] > 0 for row in bench.results)
    *speeds, candidates = bench.ratios
    assert {row["against"].partition(":")[0] for row in speeds} == others
    assert candidates["against"].startswith("candidates a result") and 1 <= candidates["value"] < most


def test_a_wrong_answer_stops_the_run(bench, monkeypatch):
    joined = KDTree._joined
    monkeypatch.setattr(KDTree, "_joined", lambda self, *args: joined(self, *args).slice(1))
    with pytest.raises(AnswersDiffer, match="boxes, plane"):
        race(bench, uniform(2, 3000), 700, 2)
