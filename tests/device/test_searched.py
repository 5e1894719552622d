"""Runs in host memory that are searched on the device; and the joiner of Spark, which has such (without Spark)."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.device.searched import SearchedOnGPU, SearchedStructure
from watersmeet.index import BISort
from watersmeet.index.base import TickBounds
from watersmeet.workers import ALONE

pytest.importorskip("pyspark")

from spark.standin import StandIn, specified

import watersmeet as wm
from watersmeet.spark import gpu, joiner

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("x", pa.int64())])


@pytest.mark.parametrize("composite", [False, True])
def test_what_is_found_there_is_what_is_found_here(composite):
    rng = np.random.default_rng(3)
    indexes = BISort(buffer_rows=20), SearchedOnGPU(buffer_rows=20)
    structures = [index.structure() for index in indexes]
    rows = 0
    for n in (40, 5, 6):  # the last two stay in the buffer
        keys, equal = rng.integers(0, 30, n), rng.integers(0, 3, n) if composite else None
        for index, structure in zip(indexes, structures, strict=True):
            structure.insert(index.entries(equal, keys, None, n, ALONE), rows)
        rows += n
        lows, equal = rng.integers(0, 30, 10), rng.integers(0, 3, 10) if composite else None
        bounds = TickBounds(np.full(10, 3), rng.integers(20, rows + 1, 10), np.zeros(0, np.int64))
        answers = []
        for index, structure in zip(indexes, structures, strict=True):
            asked = index.probes(equal, (lows,), (lows + 3,), None, 10, ALONE)
            found = sorted(pair for one in structure.find(asked, 0, 10, bounds) for pair in zip(*one, strict=True))
            assert structure.count(asked, 0, 10, bounds) == len(found) > 0
            answers.append(found)
        assert answers[0] == answers[1]
        assert structures[1].sent is not None


def test_an_adopted_run_is_sent_once():
    index = SearchedOnGPU()
    keys = np.arange(10)
    structure = index.structure()
    structure.insert(index.entries(None, keys, None, 10, ALONE), 0)
    structure.seal()
    asked = index.probes(None, (keys,), (keys,), None, 10, ALONE)
    assert structure.count(asked, 0, 10, None) == 10
    again = index.adopt(structure.sealed())
    assert isinstance(again, SearchedStructure) and again.sent is None
    again.was_sent(structure.sent)
    assert again.count(asked, 0, 10, None) == 10 and again.sent is structure.sent


def stream(seed, batches, rows):
    rng = np.random.default_rng(seed)
    for number in range(batches):
        ts = 1000 + number * rows + np.arange(rows) + rng.integers(-3, 4, rows)
        yield pa.table({"ts": ts, "k": rng.integers(0, 3, rows), "x": rng.integers(0, 20, rows)}, schema=SCHEMA)


@pytest.mark.parametrize(
    ("on", "how", "route"), [("abs(l.x - r.x) <= 1", "inner", "cells"), ("l.k = r.k and l.x < r.x", "full", "hash")]
)
def test_the_joiner_gives_the_same_and_keeps_runs_on_the_device(tmp_path, monkeypatch, on, how, route):
    monkeypatch.setattr(joiner, "use_gpu_of_task", lambda: None)
    monkeypatch.setattr(gpu.KEPT, "_runs", type(gpu.KEPT._runs)())
    hits = []
    find = gpu.KEPT.find
    monkeypatch.setattr(gpu.KEPT, "find", lambda *key: hits.append(find(*key)) or hits[-1])
    window = wm.within(15, lateness=6)
    answers = []
    for device in ("cpu", "gpu"):
        spec = specified(on, window, how, SCHEMA, SCHEMA, route=route, cores=2, device=device)
        spark = StandIn(spec, tmp_path / device)
        batches = zip(stream(1, 6, 8), stream(2, 6, 8), strict=True)
        answers.append([spark.batch(a, b, fails=number == 3) for number, (a, b) in enumerate(batches)])
    names = [(name, "ascending") for name in answers[0][0].column_names]
    for one, other in zip(*answers, strict=True):
        assert one.sort_by(names).equals(other.sort_by(names))
    assert sum(one.num_rows for one in answers[0]) > 20
    assert sum(hit is not None for hit in hits) > 5 and gpu.KEPT._runs


def test_runs_that_were_not_asked_for_longest_go_first(monkeypatch):
    kept = gpu.Kept()
    monkeypatch.setattr(kept, "_most", lambda: 25)
    ten = SimpleNamespace(nbytes=lambda: 10)
    kept.keep("core 1", [("a", ten), ("b", ten)])
    assert kept.find("core 1", "a") is ten
    kept.keep("core 2", [("a", ten)])
    assert kept.find("core 1", "b") is None and kept.find("core 1", "a") is ten
    kept.keep("core 1", [("c", ten)])
    assert kept.find("core 1", "a") is None and kept.find("core 2", "a") is ten
