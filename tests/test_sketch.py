"""ASketch: never below the truth, the right keys on top, whatever comes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import INT64_MAX, INT64_MIN

import watersmeet as wm

KEYS = st.one_of(st.integers(0, 5), st.integers(0, 40), st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, INT64_MAX]))
BATCHES = st.lists(st.lists(KEYS, max_size=40), max_size=8)
SHAPES = st.fixed_dictionaries(
    {"filter": st.sampled_from([1, 2, 3, 7]), "width": st.sampled_from([1, 2, 3, 7]), "depth": st.sampled_from([1, 3])}
)


def zipf(exponent, n, seed=1, keys=1_000_000):
    """Draws of keys in no order of their own."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(np.arange(1, keys + 1) ** -float(exponent))
    return rng.permutation(keys)[np.searchsorted(steps / steps[-1], rng.random(n))].astype(np.int64)


def filled(batches, **shape):
    sketch = wm.sketch.ASketch(**shape)
    for batch in batches:
        sketch.add(batch)
        sketch.check_invariants()
    return sketch


def aged(batches, window):
    """Counts, where one of a window ago counts half."""
    counts: Counter = Counter()
    for number, key in enumerate(key for batch in batches for key in batch):
        if window is not None and number and number % window == 0:
            counts = Counter({each: count / 2 for each, count in counts.items()})
        counts[key] += 1
    return counts


@given(batches=BATCHES, shape=SHAPES, window=st.sampled_from([None, 1, 2, 5, 17]))
def test_estimates_are_never_below_the_truth(batches, shape, window):
    sketch, truth = filled(batches, window=window, **shape), aged(batches, window)
    keys = sorted({*truth, 0, 99, INT64_MAX})
    assert all(found >= truth[key] for key, found in zip(keys, sketch.estimate(keys).tolist(), strict=True))
    assert sketch.total >= sum(truth.values())
    assert dict(sketch.top()) == {key: n for key, n in zip(keys, sketch.estimate(keys).tolist(), strict=True)
                                  if sketch.hot([key])[0]}  # fmt: skip


@given(batches=BATCHES)
def test_keys_that_all_fit_into_the_filter_are_counted_exactly(batches):
    sketch, truth = filled(batches, filter=50, width=3), aged(batches, None)
    assert sketch.top() == sorted(truth.items(), key=lambda one: (-one[1], one[0]))
    assert sketch.estimate([98, 99]).tolist() == [0, 0] and not sketch.hot([98, 99]).any()


@given(one=BATCHES, two=BATCHES, shape=SHAPES)
def test_merged_sketches_have_counted_what_both_have(one, two, shape):
    sketch, truth = filled(one, **shape), aged(one + two, None)
    sketch.merge(filled(two, **shape))
    sketch.check_invariants()
    keys = sorted({*truth, 99})
    assert all(found >= truth[key] for key, found in zip(keys, sketch.estimate(keys).tolist(), strict=True))
    assert sketch.total == sum(truth.values())
    sketch.add([5] * 50)
    assert sketch.hot([5]).all() and sketch.estimate([5])[0] >= truth[5] + 50


@given(batches=BATCHES, more=BATCHES, shape=SHAPES, window=st.sampled_from([None, 3]))
def test_bytes_and_copies_go_on_as_the_sketch_itself(batches, more, shape, window):
    sketch = filled(batches, window=window, **shape)
    others = [wm.sketch.ASketch.from_bytes(sketch.to_bytes()), sketch.copy()]
    before = sketch.to_bytes()
    for batch in more:
        sketch.add(batch)
    for other in others:
        assert other.to_bytes() == before
        for batch in more:
            other.add(batch)
        other.check_invariants()
        assert other.to_bytes() == sketch.to_bytes()


@pytest.mark.parametrize("exponent", [1.2, 1.5, 2.0])
@pytest.mark.parametrize("filter", [32, 64])
def test_the_most_frequent_of_a_million_are_on_top(exponent, filter):
    for seed in (1, 2, 3):
        keys = zipf(exponent, 1_000_000, seed)
        sketch = filled(np.array_split(keys, 7), filter=filter)
        truth = np.bincount(keys)
        least = np.sort(truth)[-32]
        assert sum(truth[key] >= least for key, _ in sketch.top(32)) >= 31
        present = np.unique(keys)
        assert np.all(sketch.estimate(present) >= truth[present])
        hot = sketch.hot(present, share=0.02)
        assert set(present[hot]) == set(np.flatnonzero(truth >= 0.02 * keys.size))


def test_keys_that_come_no_more_are_forgotten():
    sketch = wm.sketch.ASketch(filter=4, width=64, window=1000)
    for turn in range(6):
        sketch.add(np.random.default_rng(turn).permutation(np.repeat([turn, 100 + turn, 200], [2000, 1500, 500])))
        assert [key for key, _ in sketch.top(2)] == [turn, 100 + turn]
        assert sketch.total <= 2001
    assert sketch.estimate([0])[0] <= sketch.estimate([200])[0]


def test_keys_of_any_whole_type():
    sketch = wm.sketch.ASketch()
    batches = [
        [1, 2], np.array([1, 2], np.int8), np.array([1, 2], np.uint32), pa.array([1, 2], pa.int16()), range(1, 3),
        pa.chunked_array([[1], [2]]), np.arange(4)[1::1][:2], np.array([[1, 9], [2, 9]])[:, 0], [], (),
    ]  # fmt: skip
    for batch in batches:
        sketch.add(batch)
    assert sketch.top() == [(1, 8), (2, 8)]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: wm.sketch.ASketch(filter=0), ValueError, "filter must be at least 1"),
        (lambda: wm.sketch.ASketch(width=1.5), TypeError, "width must be a whole number"),
        (lambda: wm.sketch.ASketch(window=0), ValueError, "window must be at least 1"),
        (lambda: wm.sketch.ASketch().add([1.5]), TypeError, "whole numbers that fit into int64, got float64"),
        (lambda: wm.sketch.ASketch().add(["a"]), TypeError, "whole numbers"),
        (lambda: wm.sketch.ASketch().add(np.array([1], np.uint64)), TypeError, "whole numbers"),
        (lambda: wm.sketch.ASketch().add(np.zeros((2, 2), int)), TypeError, "whole numbers"),
        (lambda: wm.sketch.ASketch().add(pa.array([1, None])), ValueError, "must not be null"),
        (lambda: wm.sketch.ASketch().top(65), ValueError, "k must be at most 64"),
        (lambda: wm.sketch.ASketch().merge(3), TypeError, "other must be an ASketch"),
        (lambda: wm.sketch.ASketch().merge(wm.sketch.ASketch(width=9)), ValueError, "must be alike"),
        (lambda: wm.sketch.ASketch.from_bytes(b"no"), ValueError, "does not begin like it"),
        (lambda: wm.sketch.ASketch.from_bytes(wm.sketch.ASketch().to_bytes()[:-1]), ValueError, "bytes, got"),
    ],
)
def test_bad_values_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
