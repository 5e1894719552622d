"""What it costs to put the keys of a batch in order, with their rows: ours (index/sorting.py) and NumPy's argsort.

Keys are uniform over 22, 33, 44 and 60 bits: ids, prices in cents, times, hashes. One thread; both must give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.embedded.baselines import baseline
from watersmeet.bench.rounds import median
from watersmeet.index.sorting import in_order

BITS = (22, 33, 44, 60)


def argsorted(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.argsort(keys, kind="stable")
    return keys[rows], rows


def ours(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, found, rows = in_order(None, keys)
    return found, rows


CONTENDERS: dict[str, Callable[[np.ndarray], Any]] = {"watersmeet": ours, "argsort": argsorted}


def measure(bench: Any, batches: tuple[int, ...], rounds: int, seconds: float) -> None:
    """bench: records rows and ratios (embedded.py). seconds: that each is timed in a round."""
    for batch in batches:
        for bits in BITS:
            keys = np.random.default_rng(bits).integers(0, 1 << bits, batch)
            first, second = (sort(keys) for sort in CONTENDERS.values())
            if not all(map(np.array_equal, first, second)):
                raise AnswersDiffer(f"sort: {batch} keys of {bits} bits come in another order than np.argsort's")
            speeds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
            for _ in range(rounds):
                for name, sort in CONTENDERS.items():
                    speeds[name].append(_speed(sort, keys, seconds / 4))
            for name, each in speeds.items():
                row = baseline(name, f"keys of {bits} bits", batch, batch, each)
                bench.record(row | {"workload": "sort", "checked_pairs": batch})
            nanoseconds, best = (1e9 / speed for speed in (median(speeds["watersmeet"]), max(speeds["watersmeet"])))
            goal = next(most for wide, most in targets.SORT.items() if bits <= wide)
            what = f"{goal:g} ns a key of {bits} bits"
            bench.ratio("sort", what, nanoseconds / goal, 1.0, "<", best / goal, window=batch, batch=batch)


def _speed(sort: Callable[[np.ndarray], Any], keys: np.ndarray, seconds: float) -> float:
    """Keys/s."""
    spent, calls = 0.0, 0
    while spent < seconds or calls < 2:
        start = perf_counter()
        sort(keys)
        spent += perf_counter() - start
        calls += 1
    return calls * keys.size / spent
