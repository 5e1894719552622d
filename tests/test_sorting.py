"""Batches in order: small and large, with keys that pack with their rows into one word and keys that do not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.index import batches, sorting
from watersmeet.index.batches import SortedBatches, _all_in_order, _are_in_order
from watersmeet.index.sorting import digits, in_order, taken
from watersmeet.workers import ALONE, Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
KEYS = {
    "narrow": st.integers(-3, 3),
    "least": st.integers(LEAST, LEAST + 3),
    "greatest": st.integers(GREATEST - 3, GREATEST),
    "wide": st.one_of(st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 0])),
}


@pytest.fixture(params=[(0, False), (0, True), (1 << 10, False)], ids=["passes", "words by numpy", "small"])
def few(request, monkeypatch):
    """Whether batches of these tests are small, and who sorts words."""
    monkeypatch.setattr(sorting, "FEW", request.param[0])
    monkeypatch.setattr(sorting, "numpy_is_faster", lambda: request.param[1])


def array(values):
    return np.array(values, np.int64)


def check_order(major, minor):
    """Rows with equal keys stay in their order, so there is one answer."""
    majors, minors, rows = in_order(major, minor)
    expected = np.lexsort((minor,) if major is None else (minor, major))
    assert rows.dtype == np.int32 and np.array_equal(rows, expected)
    assert np.array_equal(minors, minor[expected])
    assert majors.size == 0 if major is None else np.array_equal(majors, major[expected])


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=60)
@given(data=st.data())
def test_rows_are_in_order_of_their_keys(kind, data):
    pairs = data.draw(st.lists(st.tuples(KEYS[data.draw(st.sampled_from(list(KEYS)))], KEYS[kind]), max_size=60))
    major, minor = (array([pair[i] for pair in pairs]) for i in (0, 1))
    check_order(None, minor)
    check_order(major, minor)


@pytest.mark.parametrize("n", [1023, 1024, 4095, 4096, 70_000])
@pytest.mark.parametrize("bits", [1, 8, 11, 12, 22, 33, 44, 47, 48, 53, 54, 55, 63, 64])
@pytest.mark.parametrize("by_numpy", [False, True])
def test_large_batches_of_keys_that_differ_in_any_number_of_bits(by_numpy, bits, n, monkeypatch):
    monkeypatch.setattr(sorting, "numpy_is_faster", lambda: by_numpy)
    random = np.random.default_rng(bits * n)
    keys = random.integers(0, 2**bits, n, dtype=np.uint64, endpoint=False) if bits < 64 else random.bytes(8 * n)
    wide = np.frombuffer(keys, np.int64).copy()
    narrow = random.integers(-7, 9, n)
    for low in (0, -12345, LEAST) if bits < 64 else (0,):
        check_order(None, wide + low)
        check_order(narrow, wide + low)
        check_order(wide + low, narrow)
    check_order(wide << (63 - min(bits, 63)), wide)
    check_order(None, wide[:1].repeat(n))


@pytest.mark.parametrize("spread", [1, 3, 1000, 2**20, 2**44])
def test_keys_far_from_one_another_but_for_many_that_are_near(spread, monkeypatch):
    """They begin with the same bits, and are in order only behind those."""
    monkeypatch.setattr(sorting, "numpy_is_faster", lambda: True)
    random = np.random.default_rng(spread)
    keys = random.integers(0, spread, 5000)
    keys[:2] = LEAST, GREATEST
    check_order(None, random.permutation(keys))


@pytest.mark.parametrize("threads", [1, 3])
def test_values_are_taken_by_row(threads, monkeypatch):
    monkeypatch.setattr(sorting, "_SMALL", 500)
    workers = Workers(threads)
    values = np.arange(5000) * 3
    for n in (0, 1, 1023, 1024, 5000):
        rows = np.random.default_rng(n).permutation(5000)[:n].astype(np.int32)
        assert np.array_equal(taken(values, rows, workers), values[rows])
    workers.stop()


@pytest.mark.parametrize("n", [10, 10**6])
def test_digits_hold_all_bits_and_none_is_too_wide(n):
    for bits in range(65):
        passes, width = digits(bits, n)
        assert passes * width >= bits and width <= 11
        assert passes == 0 or (passes - 1) * 11 < bits or n < 1 << 12
    assert digits(33, 10**6) == (3, 11) and digits(16, 10) == (2, 8)


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
        check_order(None, minor)
        check_order(major, minor)


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
        assert batches._are_in_order(equal, low) == in_order
        if composite:
            assert batches._are_in_order(np.arange(n), low)
            assert not batches._are_in_order(np.arange(n)[::-1].copy(), low)


def test_who_sorts_words_is_found_out_once():
    first = sorting.numpy_is_faster()
    before = sorting.numpy_is_faster.cache_info().misses  # threads may have begun to find out at the same time
    assert first in (True, False) and sorting.numpy_is_faster() is first
    assert sorting.numpy_is_faster.cache_info().misses == before


@pytest.mark.parametrize("n", [2, 3, 255, 256, 257, 5000])
@pytest.mark.parametrize("equal", [False, True])
def test_whether_a_batch_is_in_order_is_seen_from_its_own_rows(equal, n):
    """And not from what lies behind them."""
    behind = np.concatenate([np.arange(n), np.arange(20_000)[::-1]])
    none = np.zeros(0, np.int64)
    for keys in (behind[:n], np.zeros(n, np.int64)):
        assert _are_in_order(behind[:n] if equal else none, keys)
        assert _all_in_order(behind[:n] if equal else none, keys)
    swapped = np.append(np.arange(n - 1), -1)
    assert not _all_in_order(swapped if equal else none, swapped) and not _are_in_order(none, swapped)
