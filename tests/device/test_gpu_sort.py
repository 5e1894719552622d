"""GPU-Sort on its own: random inserts, probes and forgetting, against a list of (key, row).

Simulated, a tile is 16 items, so that batches and ranges straddle tiles; on hardware it is 1024, and sizes follow.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from device_model import GREATEST, LEAST, check_steps, modes, sizes, steps
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.device import DeviceFull
from watersmeet.device.constants import constant, constant_difference
from watersmeet.device.cuda import cuda
from watersmeet.device.machine import Machine, machine
from watersmeet.index import GPUSort
from watersmeet.workers import ALONE

SCALE = 1 if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else 100

def index_of(values):
    buffer_rows, partition_rows, portion_rows = values
    return GPUSort(buffer_rows=buffer_rows, partition_rows=partition_rows, portion_rows=portion_rows)


@settings(max_examples=25)
@given(steps, sizes, modes, st.booleans())
def test_a_structure_holds_what_was_inserted_and_not_forgotten(steps, sizes, mode, composite):
    check_steps(index_of(sizes), steps, mode, composite, lambda asked: range(asked.size))  # as they arrived


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("buffer_rows", [0, 30 * SCALE, None])
def test_batches_larger_than_a_tile_are_merged_and_forgotten(buffer_rows, composite):
    """And a probe with more partners than a tile or a portion has."""
    index = GPUSort(buffer_rows=buffer_rows, partition_rows=4, portion_rows=50 * SCALE)
    structure = index.structure()
    rng = np.random.default_rng(7)
    keys, majors = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for size in (40 * SCALE, 3, 25 * SCALE, 70 * SCALE):
        new = rng.integers(0, 20, size)
        equal = rng.integers(0, 2, size) if composite else None
        structure.insert(index.entries(equal, new, None, size, ALONE), keys.size)
        keys = np.concatenate([keys, new])
        majors = np.concatenate([majors, np.zeros(size, np.int64) if equal is None else equal])
        structure.check_invariants()
    gone = 50 * SCALE
    structure.forget(gone)
    structure.check_invariants()
    keys, majors = keys[gone:], majors[gone:]
    assert structure.size == keys.size
    lows, highs = np.array([0, 5, 9, 30, 7]), np.array([19, 5, 3, 40, 12])
    of_probe = np.array([0, 1, 0, 1, 1]) if composite else None
    asked = index.probes(of_probe, (lows,), (highs,), None, 5, ALONE)
    found = [np.stack(one) for one in structure.find(asked, 0, 5, None)]
    pairs = np.concatenate(found, axis=1)
    fits = (keys >= lows[:, None]) & (keys <= highs[:, None])
    if of_probe is not None:
        fits &= majors == of_probe[:, None]
    expected = np.stack(np.nonzero(fits))
    assert len(found) > 1  # in portions
    assert pairs.shape == expected.shape
    assert np.array_equal(pairs[:, np.lexsort(pairs[::-1])], expected)
    assert structure.count(asked, 0, 5, None) == expected.shape[1]


def test_a_band_sends_the_distance_of_its_ends_and_not_the_ends():
    index = GPUSort()
    keys = np.array([5, 1, 9, 3])
    entries = index.entries(None, keys, None, 4, ALONE)
    asked = index.probes(None, (keys - 2,), (keys + 3,), None, 4, ALONE, entries)
    (band,) = asked.bands
    assert band.rows is entries.rows
    assert band.lows.values[:4].tolist() == [-1, 1, 3, 7]
    assert band.highs.values[:4].tolist() == [4, 6, 8, 12]
    equality = index.probes(keys, (), (), None, 4, ALONE, entries)
    assert equality.bands[0].lows is entries.ordered
    other = index.probes(None, (keys * 2,), (keys * 2,), None, 4, ALONE, entries)
    assert other.bands[0].lows.values[:4].tolist() == [10, 2, 18, 6]


def test_rows_that_are_not_live_are_neither_stored_nor_asked():
    index = GPUSort()
    keys, live = np.array([5, 5, 5, 7]), np.array([True, False, True, True])
    structure = index.structure()
    structure.insert(index.entries(None, keys, live, 4, ALONE), 10)
    asked = index.probes(None, (keys,), (keys,), live, 4, ALONE)
    (found,) = structure.find(asked, 0, asked.size, None)
    assert sorted(zip(*(one.tolist() for one in found), strict=True)) == [(0, 10), (0, 12), (2, 10), (2, 12), (3, 13)]


def test_differences_that_wrap_around_are_none():
    keys = np.array([0, GREATEST])
    assert constant_difference(keys, np.array([5, LEAST + 4])) is None
    assert constant_difference(np.array([GREATEST - 5]), np.array([GREATEST])) == 5
    assert constant_difference(np.array([LEAST]), np.array([GREATEST])) is None
    assert constant_difference(np.array([3, 4]), np.array([1, 2])) == -2
    assert constant(np.array([4, 4, 4])) == 4
    assert constant(np.array([4, 4, 5])) is None


def test_a_window_that_outgrows_its_bytes_says_so_and_stays_as_it_was():
    index = GPUSort(most_bytes=2 * 12 * 70)
    structure = index.structure()
    keys = np.arange(60)
    structure.insert(index.entries(None, keys, None, 60, ALONE), 0)
    with pytest.raises(DeviceFull, match=r"a window of 120 rows on the device needs .* most_bytes is 1\.6 KiB"):
        structure.insert(index.entries(None, keys, None, 60, ALONE), 60)
    asked = index.probes(None, (keys,), (keys,), None, 60, ALONE)
    assert structure.count(asked, 0, 60, None) == 60
    structure.check_invariants()


@pytest.mark.parametrize("times", [1, 1000])
def test_memory_that_is_kept_is_given_back_before_a_device_counts_as_full(times, monkeypatch):
    """A device that has no room so many times."""
    gpu = machine()
    keep = gpu.take(100, np.int64)
    del keep
    assert any(gpu._pools.values())
    real, left = cuda.device_array, [times]

    def full(*given, **more):
        left[0] -= 1
        if left[0] >= 0:
            raise RuntimeError("[700] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")
        return real(*given, **more)

    monkeypatch.setattr(cuda, "device_array", full)
    if times == 1:
        assert gpu.allocate(1000, np.int64, "a window").size == 1000
    else:
        with pytest.raises(DeviceFull, match=r"a window: 7\.8 KiB more are needed on the device, which has .* left"):
            gpu.allocate(1000, np.int64, "a window")
    assert not any(gpu._pools.values())


def test_other_faults_of_a_device_are_told_as_they_are(monkeypatch):
    def broken(*given, **more):
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS")

    monkeypatch.setattr(cuda, "device_array", broken)
    with pytest.raises(RuntimeError, match="ILLEGAL_ADDRESS"):
        machine().allocate(1000, np.int64, "a window")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_rows": -1}, "buffer_rows must not be negative, got -1"),
        ({"partition_rows": 1}, "partition_rows must be at least 2, got 1"),
        ({"portion_rows": 0}, "portion_rows must be at least 2, got 0"),
        ({"most_bytes": 0}, "most_bytes must be at least 1, got 0"),
    ],
)
def test_bad_sizes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GPUSort(**options)


def test_results_that_somebody_keeps_do_not_take_all_pinned_memory(monkeypatch):
    monkeypatch.setattr("watersmeet.device.machine._OUT_BYTES", 100)
    lender = object.__new__(Machine)
    lender._out = []
    first, second, third = (np.arange(5) + i for i in range(3))
    assert lender.handed_out(first) is first and lender.handed_out(second) is second
    copied = lender.handed_out(third)
    assert copied is not third and copied.tolist() == third.tolist()
    del first
    assert lender.handed_out(third) is third  # what nobody keeps any more does not count
