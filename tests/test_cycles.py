"""The processor's clock inside kernels."""

import threading
from time import perf_counter, sleep

import numpy as np
from numba import njit

from watersmeet.atomics import load, store
from watersmeet.cycles import cycles, now, per_second


@njit(nogil=True)
def _many(taken):
    for i in range(taken.size):
        taken[i] = cycles()


def test_it_never_goes_back_and_is_read_each_time():
    taken = np.zeros(10_000, np.int64)
    _many(taken)
    steps = np.diff(taken)
    assert steps.min() >= 0 and np.count_nonzero(steps) > 5_000


def test_it_agrees_with_the_clock_of_the_system():
    speed = per_second()
    earliest, begin, latest = perf_counter(), now(), perf_counter()
    sleep(0.2)
    least, taken, most = perf_counter() - latest, now() - begin, perf_counter() - earliest
    assert 0.95 * least <= taken / speed <= 1.05 * most


@njit(nogil=True)
def _answer(flag, sent, seen, me):
    """Two threads take times in turn, each after it has seen that the other did."""
    for i in range(me, sent.size, 2):
        while load(flag, 0) != i:
            pass
        seen[i] = cycles()
        sent[i] = cycles()
        store(flag, 0, i + 1)


def test_all_cores_show_the_same():
    flag, sent, seen = np.zeros(1, np.int64), np.zeros(300, np.int64), np.zeros(300, np.int64)
    _answer(np.full(1, 9, np.int64), sent[:0], seen[:0], 0)  # compiled
    threads = [threading.Thread(target=_answer, args=(flag, sent, seen, me)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    behind = (sent[:-1] - seen[1:]) / per_second()  # seconds by which an effect was seen before its cause
    assert behind.max() < 1e-6
