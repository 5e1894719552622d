"""The hash index and the nested loop on their own: random batches and probes, against a list of (key, row).

Tables begin with two buckets, so that chains are long and tables double at once.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.index import Hash, NestedLoop
from watersmeet.index import hash as hashing
from watersmeet.index.base import Marking, TickBounds
from watersmeet.workers import ALONE, Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NO_TICKS = np.zeros(0, np.int64)
INDEXES = {"hash": Hash(2), "nested_loop": NestedLoop()}

narrow = st.integers(-4, 4)
wide = st.one_of(narrow, st.integers(LEAST, GREATEST), st.sampled_from([LEAST, LEAST + 1, GREATEST - 1, GREATEST]))
lists = st.one_of(st.lists(narrow, max_size=40), st.lists(wide, max_size=40), st.lists(st.just(GREATEST), max_size=90))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), lists), st.tuples(st.just("insert"), lists),
        st.tuples(st.just("probe"), st.lists(wide, max_size=90)), st.tuples(st.just("seal"), st.just([])),
    ),
    max_size=12,
)  # fmt: skip


class Model:
    def __init__(self, index):
        self.index = index
        self.structure = index.structure()
        self.held: list[tuple[int, int]] = []
        self.rows = 0

    def insert(self, keys, live=None):
        given = np.array(keys, np.int64)
        mask = None if live is None else np.array(live, bool)
        self.structure.insert(self.index.entries(given, None, mask, given.size, ALONE), self.rows)
        self.held += [(int(key), self.rows + i) for i, key in enumerate(keys) if live is None or live[i]]
        self.rows += len(keys)

    def probe(self, keys, bounded="", live=None):
        n = len(keys)
        mask = None if live is None else np.array(live, bool)
        probes = self.index.probes(np.array(keys, np.int64), (), (), mask, n, ALONE)
        low = np.arange(n) * 5 % (self.rows // 4 + 1)  # another for each probe
        high = low + self.rows // 2
        ticks = (np.arange(self.rows) * 7 + 3) % max(self.rows, 1) if bounded == "ticks" else NO_TICKS
        bounds = TickBounds(low, high, ticks) if bounded and self.rows else None
        expected = sorted(
            (p, row)
            for p, key in enumerate(keys)
            for held, row in self.held
            if held == key and (live is None or live[p])
            and (bounds is None or low[p] <= (ticks[row] if ticks.size else row) <= high[p])
        )  # fmt: skip
        found = self.found(probes, 0, probes.size, bounds)
        assert found == expected
        assert self.structure.count(probes, 0, probes.size, bounds) == len(expected)
        middle = probes.size // 3
        halves = [self.found(probes, *part, bounds) for part in ((0, middle), (middle, probes.size))]
        assert sorted(halves[0] + halves[1]) == expected
        assert sum(self.structure.count(probes, *part, bounds) for part in ((0, middle), (middle, probes.size))) == len(
            expected
        )
        if isinstance(self.structure, Marking):
            for parts in ([(0, probes.size)], [(middle, probes.size), (0, middle)]):
                probes_met, met = np.zeros(n, np.uint8), np.zeros(self.rows, np.uint8)
                pairs = [self.structure.mark(probes, *part, bounds, probes_met, met) for part in parts]
                assert sum(pairs) == len(expected)
                assert set(np.flatnonzero(probes_met)) == {p for p, _ in expected}
                assert set(np.flatnonzero(met)) == {row for _, row in expected}

    def found(self, probes, start, stop, bounds):
        portions = self.structure.find(probes, start, stop, bounds)
        return sorted((int(p), int(row)) for portion in portions for p, row in zip(*portion, strict=True))


@pytest.mark.parametrize("name", INDEXES)
@settings(max_examples=3 * settings().max_examples)
@given(steps=steps, bounded=st.sampled_from(["", "rows", "ticks"]), data=st.data())
def test_a_structure_holds_what_was_inserted(name, steps, bounded, data):
    model = Model(INDEXES[name])
    for what, keys in steps:
        flags = st.one_of(st.none(), st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
        if what == "insert":
            model.insert(keys, data.draw(flags))
        elif what == "probe":
            model.probe(keys, bounded, data.draw(flags))
        else:
            model.structure.seal()
        model.structure.check_invariants()
    model.probe([key for key, _ in model.held], bounded)


@pytest.mark.parametrize("bounded", ["", "rows", "ticks"])
@pytest.mark.parametrize("probes", [1, 3, 64, 65, 200])
@pytest.mark.parametrize("name", INDEXES)
def test_a_probe_may_have_more_partners_than_there_is_room_for(name, probes, bounded):
    """In rounds, while many walk, and one after the other, when few are left; both stop and go on where they were."""
    model = Model(INDEXES[name])
    partners = 50 * hashing._LEAST_ROOM if probes < 3 else 256
    model.insert([7] * partners + [8, 9] * 50)
    keys = [7] * probes
    asked = model.index.probes(np.array(keys), (), (), None, probes, ALONE)
    low, high = partners // 3, 2 * partners // 3
    ticks = np.arange(model.rows)[::-1].copy() if bounded == "ticks" else NO_TICKS
    bounds = TickBounds(np.full(probes, low), np.full(probes, high), ticks) if bounded else None
    rows = [row for row in range(partners) if not bounded or low <= (ticks[row] if ticks.size else row) <= high]
    found = model.found(asked, 0, probes, bounds)
    assert found == [(p, row) for p in range(probes) for row in rows]
    assert model.structure.count(asked, 0, probes, bounds) == probes * len(rows)
    assert isinstance(model.structure, Marking) == (name == "hash")


@pytest.mark.parametrize("bounded", ["", "rows", "ticks"])
def test_batches_of_more_probes_than_are_walked_at_once(bounded, monkeypatch):
    """And of more pairs than there is room for, so that a walk is broken off and goes on."""
    monkeypatch.setattr(hashing, "PORTION", hashing._TOGETHER + 1)
    model = Model(Hash(2))
    model.insert([key % 50 for key in range(400)])
    model.probe([key % 60 for key in range(2 * hashing._TOGETHER + 300)], bounded)


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("domain", [1, 50, 1 << 40])
def test_any_number_of_threads_sorts_alike(domain, threads, monkeypatch):
    monkeypatch.setattr(hashing, "_SMALL", 8)
    rng = np.random.default_rng(domain)
    keys = rng.integers(-domain, domain, 5000)
    workers = Workers(threads)
    for live in (None, rng.random(keys.size) < 0.5, np.zeros(keys.size, bool)):
        one, many = (Hash().entries(keys, None, live, keys.size, each) for each in (ALONE, workers))
        assert np.array_equal(one.keys, many.keys) and np.array_equal(one.rows, many.rows)
        assert sorted(one.rows.tolist()) == (list(range(keys.size)) if live is None else np.flatnonzero(live).tolist())
    workers.stop()


@pytest.mark.parametrize("keys", [np.full(9, LEAST), np.full(9, GREATEST), np.arange(LEAST, LEAST + 900)])
def test_keys_at_one_end_of_int64(keys):
    model = Model(Hash(2))
    model.insert(keys.tolist())
    model.probe([LEAST, LEAST + 1, LEAST + 899, LEAST + 900, -1, 0, GREATEST - 1, GREATEST])


def test_a_table_takes_as_many_buckets_as_rows_and_gives_back_what_it_does_not_need():
    structure = Model(Hash(16))
    assert structure.structure._heads.size == 16
    structure.insert(range(1000))
    assert structure.structure._heads.size == 1024
    like = Hash(16).structure(structure.structure)
    assert like._heads.size == 1024 and like._slots.size >= 2 * 1000
    like.insert(Hash().entries(np.arange(10), None, None, 10, ALONE), 0)
    like.seal()
    assert like._heads.size <= 16 and like._slots.size == 20
    like.check_invariants()
    before = structure.structure._slots
    structure.structure.seal()  # nearly full: it stays as it is
    assert structure.structure._slots is before or structure.structure._slots.size < before.size


def test_probes_with_the_keys_that_are_stored_are_not_sorted_again():
    keys, others = np.arange(100), np.arange(100)
    index = Hash()
    workers = Workers(1)
    entries = index.entries(keys, None, None, 100, workers)
    assert index.probes(keys, (), (), None, 100, workers, entries) is entries
    assert index.probes(others, (), (), None, 100, workers, entries) is not entries


@pytest.mark.parametrize("buckets", [-2, 0, 1, 3, 6, 1000])
def test_buckets_are_a_power_of_two(buckets):
    with pytest.raises(ValueError, match=f"buckets must be a power of two, at least 2, not {buckets}"):
        Hash(buckets)


@pytest.mark.parametrize("bands", [1, 2])
@pytest.mark.parametrize("composite", [False, True])
def test_a_nested_loop_compares_all_keys(composite, bands):
    random = np.random.default_rng(bands)
    index = NestedLoop()
    structure = index.structure()
    ordered, equal = random.integers(0, 40, 700), random.integers(0, 3, 700)
    structure.insert(index.entries(equal if composite else None, ordered, None, 700, ALONE), 0)
    lows = tuple(random.integers(0, 40, 50) for _ in range(bands))
    highs = tuple(low + 3 for low in lows)
    of_probe = random.integers(0, 3, 50)
    probes = index.probes(of_probe if composite else None, lows, highs, None, 50, ALONE)
    expected = [
        (p, row)
        for p in range(50)
        for row in range(700)
        if any(low[p] <= ordered[row] <= high[p] for low, high in zip(lows, highs, strict=True))
        and (not composite or of_probe[p] == equal[row])
    ]
    pairs = [pair for portion in structure.find(probes, 0, 50, None) for pair in zip(*portion, strict=True)]
    assert [(int(p), int(row)) for p, row in pairs] == expected
    assert structure.count(probes, 0, 50, None) == len(expected)
