"""Atomic operations, by many threads at once."""

import threading

import numpy as np
import pytest
from numba import njit

from watersmeet.atomics import compare_and_swap, fence, fetch_add, load, lock, store, try_lock, unlock

THREADS, TIMES = 4, 100_000


def at_once(work):
    """On several threads, as nearly at the same time as can be."""
    start = threading.Barrier(THREADS)

    def go(number):
        start.wait()
        work(number)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@njit(nogil=True)
def _tickets(counters, taken, times):
    for _ in range(times):
        taken[fetch_add(counters, 1, 1)] += 1


def test_everybody_gets_another_ticket():
    counters, taken = np.zeros(3, np.int64), np.zeros(THREADS * TIMES, np.int64)
    at_once(lambda number: _tickets(counters, taken, TIMES))
    assert counters.tolist() == [0, THREADS * TIMES, 0] and np.all(taken == 1)


@njit(nogil=True)
def _locked(locks, values, times, seed):
    state = np.uint64(seed)
    for _ in range(times):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        i = np.int64(state >> np.uint64(33)) % values.size
        lock(locks, i)
        values[i] += 1  # not atomic by itself
        unlock(locks, i)


@pytest.mark.parametrize("size", [1, 7, 1024])
def test_locks_exclude_each_other(size):
    locks, values = np.zeros(size, np.int64), np.zeros(size, np.int64)
    at_once(lambda number: _locked(locks, values, TIMES, number + 1))
    assert values.sum() == THREADS * TIMES and not locks.any()


@njit(nogil=True)
def _increment(values, times):
    failed = 0
    for _ in range(times):
        while True:
            seen = load(values, 0)
            if compare_and_swap(values, 0, seen, seen + 1):
                break
            failed += 1
    return failed


def test_only_one_of_many_swaps():
    values = np.zeros(1, np.int64)
    at_once(lambda number: _increment(values, TIMES))
    assert values[0] == THREADS * TIMES


@njit(nogil=True)
def _publish(flag, data, rounds):
    for n in range(1, rounds + 1):
        while load(flag, 0) != 0:
            pass
        for i in range(data.size):
            data[i] = n
        store(flag, 0, n)


@njit(nogil=True)
def _consume(flag, data, rounds):
    wrong = 0
    for n in range(1, rounds + 1):
        while load(flag, 0) != n:
            pass
        for i in range(data.size):
            wrong += data[i] != n
        store(flag, 0, 0)
    return wrong


def test_what_was_written_before_a_store_is_seen_behind_the_load():
    flag, data = np.zeros(1, np.int64), np.zeros(64, np.int64)
    found = []
    writer = threading.Thread(target=_publish, args=(flag, data, 300))
    reader = threading.Thread(target=lambda: found.append(_consume(flag, data, 300)))
    for thread in (writer, reader):
        thread.start()
    for thread in (writer, reader):
        thread.join()
    assert found == [0]


@njit(nogil=True)
def _announce(flags, other, seen):
    for i in range(flags.size):
        store(flags, i, 1)
        fence()
        seen[i] = load(other, i)


def test_of_two_who_announce_themselves_one_sees_the_other():
    """Without a fence a processor may load before others see what it has stored."""
    for _ in range(5):
        flags, seen = np.zeros((2, TIMES), np.int64), np.zeros((2, TIMES), np.int64)
        at_once(lambda i, flags=flags, seen=seen: i < 2 and _announce(flags[i], flags[1 - i], seen[i]))
        assert np.all(seen.any(axis=0))


@njit
def _all(values):
    before = fetch_add(values, 0, -5)
    swapped = compare_and_swap(values, 1, 11, 99), compare_and_swap(values, 1, 10, 99)
    store(values, 2, -1)
    return before, swapped, load(values, 2), try_lock(values, 3), try_lock(values, 3)


def test_each_alone():
    values = np.array([7, 10, 0, 0], np.int64)
    assert _all(values) == (7, (False, True), -1, True, False)
    assert values.tolist() == [2, 99, -1, 1]
