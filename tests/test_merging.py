"""Merging on several threads gives what one thread gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.index import INDEXES, BISort
from watersmeet.index.sorted import merging
from watersmeet.workers import ALONE, Workers

INT64 = np.iinfo(np.int64)
KEYS = {
    "narrow": st.integers(-3, 3),
    "packed": st.integers(-(10**6), 10**6),
    "not packed": st.one_of(st.sampled_from([INT64.min, INT64.max]), st.integers(INT64.min, INT64.max)),
}


@pytest.fixture(autouse=True)
def small_runs(monkeypatch):
    monkeypatch.setattr(merging, "SMALL", 4)
    monkeypatch.setattr(merging, "FEW", 8)


def filled(batches, composite, workers):
    index = BISort(buffer_rows=0, partition_rows=3)
    structure = index.structure(workers=workers)
    first = 0
    for keys in batches:
        keys = np.array(keys, np.int64)
        equal, ordered = (keys // 3, keys) if composite else (None, keys)
        structure.insert(index.entries(equal, ordered, None, keys.size, ALONE), first)
        structure.check_invariants()
        first += keys.size
    return structure


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), threads=st.integers(2, 5))
def test_any_number_of_threads_merges_alike(kind, composite, data, threads):
    batches = data.draw(st.lists(st.lists(KEYS[kind], max_size=40), min_size=1, max_size=5))
    workers = Workers(threads)
    one, many = filled(batches, composite, ALONE), filled(batches, composite, workers)
    workers.stop()
    for mine, theirs in zip(one.entries(), many.entries(), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("where", ["all below", "all above", "one place", "spread"])
@pytest.mark.parametrize("rows", [1, 7, 50, 400])
def test_batches_that_fall_into_one_part(where, rows):
    run = np.arange(0, 1000, 10)
    batch = {
        "all below": np.full(rows, -1),
        "all above": np.full(rows, 10_000),
        "one place": np.full(rows, 495),
        "spread": np.linspace(-5, 1005, rows).astype(np.int64),
    }[where]
    workers = Workers(4)
    structure = filled([run, batch], False, workers)
    workers.stop()
    assert np.array_equal(structure.entries().ordered, np.sort(np.concatenate([run, batch])))


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("width", [2**20, 2**62])
@pytest.mark.parametrize("sizes", [(3000, 700, 1), (200, 3000, 40), (1000, 1000, 1000)])
def test_large_runs_are_merged_by_several_threads(sizes, width, composite, monkeypatch):
    """Parts of hundreds of keys, which move by many places; rows stay with their keys."""
    monkeypatch.setattr(merging, "SMALL", 100)
    random = np.random.default_rng(sum(sizes))
    batches = [random.integers(-width, width, size) for size in sizes]
    workers = Workers(4)
    one, many = filled(batches, composite, ALONE), filled(batches, composite, workers)
    workers.stop()
    keys = np.concatenate(batches)
    for structure in (one, many):
        entries = structure.entries()
        assert np.array_equal(entries.ordered, keys[entries.rows])
        assert np.array_equal(entries.ordered, np.sort(keys))
        assert np.array_equal(np.sort(entries.rows), np.arange(keys.size))


@pytest.mark.parametrize("index", [index.name for index in INDEXES if index.needs == "order"])
def test_joins_find_the_same_pairs_on_any_number_of_threads(index, monkeypatch):
    monkeypatch.setattr("watersmeet.engine.finder.SMALL", 16)
    random = np.random.default_rng(5)
    batches = [pa.table({"x": random.integers(0, 300, rows)}) for rows in (500, 40, 40, 1, 700, 40, 300, 40)]

    def pairs(threads):
        join = wm.StreamJoin("abs(l.x - r.x) <= 1", wm.last(600), index=index, output="pairs", cores=threads)
        found = [join.push(**{side: batch}) for batch in batches for side in ("left", "right")]
        return sorted(pa.concat_tables(found).to_pylist(), key=lambda pair: (pair["left"], pair["right"]))

    assert pairs(1) == pairs(2) == pairs(5)


def test_a_thread_of_the_pool_may_hand_out_work_itself():
    workers = Workers(2)
    nested = workers.map(lambda n: workers.map(lambda m: n * m, range(4)), range(8))
    workers.stop()
    assert nested == [[n * m for m in range(4)] for n in range(8)]
