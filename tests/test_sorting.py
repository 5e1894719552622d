"""Batches in order: small and large, with keys that pack with their rows into one word and keys that do not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.index import batches, sorting
from watersmeet.index.batches import SortedBatches
from watersmeet.index.sorting import sorted_rows, sorted_values, taken
from watersmeet.workers import ALONE, Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
KEYS = {
    "narrow": st.integers(-3, 3),
    "least": st.integers(LEAST, LEAST + 3),
    "greatest": st.integers(GREATEST - 3, GREATEST),
    "wide": st.one_of(st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 0])),
}


@pytest.fixture(params=[0, 1 << 10], ids=["kernels", "numpy"])
def few(request, monkeypatch):
    """Whether batches of these tests are small."""
    monkeypatch.setattr(sorting, "FEW", request.param)
    monkeypatch.setattr(batches, "FEW", request.param)
    monkeypatch.setattr(sorting, "_SMALL", 5)


def array(values):
    return np.array(values, np.int64)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=30)
@given(data=st.data())
def test_rows_are_in_order_of_their_keys(kind, threads, data):
    workers = Workers(threads)
    pairs = data.draw(st.lists(st.tuples(KEYS[data.draw(st.sampled_from(list(KEYS)))], KEYS[kind]), max_size=60))
    major, minor = (array([pair[i] for pair in pairs]) for i in (0, 1))
    by_one, by_two = sorted_rows(None, minor, workers), sorted_rows(major, minor, workers)
    assert sorted(by_one) == sorted(by_two) == list(range(minor.size))
    assert np.array_equal(taken(minor, by_one, workers), np.sort(minor))
    assert [(major[row], minor[row]) for row in by_two] == sorted(zip(major, minor, strict=True))
    assert np.array_equal(sorted_values(minor.copy(), workers), np.sort(minor))
    workers.stop()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("bits", [0, 1])
@pytest.mark.parametrize("rows", [2, 5, 8, 9])
@pytest.mark.parametrize("low", [LEAST, -5, GREATEST - (1 << 59) - 9])
def test_keys_that_just_fit_into_a_word_with_their_row_and_keys_that_just_do_not(low, rows, bits):
    row_bits = (rows - 1).bit_length()
    for major_bits in (0, 2):
        top = min((1 << (63 - row_bits - major_bits + bits)) - 1, GREATEST - low)
        minor = array([low + top - i * (top // rows) for i in range(rows)])
        major = array([i % 4 for i in range(rows)])
        assert np.array_equal(sorted_rows(None, minor, ALONE), np.arange(rows)[::-1])
        order = sorted_rows(major, minor, ALONE)
        assert [(major[row], minor[row]) for row in order] == sorted(zip(major, minor, strict=True))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("composite", [False, True])
@settings(max_examples=40)
@given(data=st.data())
def test_probes_are_in_order_whatever_the_order_of_their_batch(composite, data):
    """The order of the entries is taken over only where it is that of the probes."""
    keys = array(data.draw(st.lists(KEYS["narrow"], max_size=12)))
    equal = array(data.draw(st.lists(st.integers(0, 2), min_size=keys.size, max_size=keys.size))) if composite else None
    lows = {"band": keys - 2, "down": -keys, "any": array(data.draw(st.permutations(range(keys.size))))}
    index = SortedBatches()
    entries = index.entries(equal, keys, None, keys.size, ALONE)
    for low in lows.values():
        found = index.probes(equal, (low,), (low + 4,), None, keys.size, ALONE, entries)
        ((of_equal, of_low, of_high, rows),) = found.bands
        assert sorted(rows) == list(range(keys.size))
        assert rows.flags.c_contiguous, "kernels would be compiled once more for rows that are not"
        assert np.array_equal(of_low, low[rows]) and np.array_equal(of_high, low[rows] + 4)
        ranks = of_low if equal is None else list(zip(equal[rows], of_low, strict=True))
        assert list(ranks) == sorted(ranks)
        assert of_equal.size == (keys.size if composite else 0)


@pytest.mark.parametrize("wrong", [None, 1, 700, 1023, 1024, 1025, 2999])
@pytest.mark.parametrize("composite", [False, True])
def test_one_key_out_of_order_is_seen_wherever_it_is(composite, wrong):
    for n in (1000, 3000):
        low = np.arange(n) // 2
        if wrong is not None and wrong < n:
            low[wrong] = low[wrong - 1] - 1
        equal = np.full(n, 7) if composite else np.zeros(0, np.int64)
        in_order = wrong is None or wrong >= n
        assert batches._in_order(equal, low) == batches._all_in_order(equal, low) == in_order
        if composite:
            assert batches._in_order(np.arange(n), low) and batches._all_in_order(np.arange(n), low)
            assert not batches._all_in_order(np.arange(n)[::-1].copy(), low)
            assert not batches._in_order(np.arange(n)[::-1].copy(), low)


@pytest.mark.parametrize("size", [1, 2, 10, 63, 64, 65, 300])
def test_groups_of_any_size_are_sorted(size):
    random = np.random.default_rng(size)
    major = np.repeat(random.permutation(9) - 4, random.integers(1, size + 1, 9))
    minor = random.integers(LEAST, GREATEST, major.size)
    minor[::3] = minor[0]
    shuffled = random.permutation(major.size)
    major, minor = major[shuffled] * 2**60, minor[shuffled]
    order = sorted_rows(major, minor, ALONE)
    assert np.array_equal(np.sort(order), np.arange(major.size))
    expected = np.lexsort((minor, major))
    assert np.array_equal(major[order], major[expected]) and np.array_equal(minor[order], minor[expected])
