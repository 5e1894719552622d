"""A window on a device, on its own: random inserts, probes and forgetting, against a list of (key, row)."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from watersmeet.index.base import TickBounds
from watersmeet.workers import ALONE

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NO_TICKS = np.zeros(0, np.int64)

narrow = st.integers(-20, 20)
wide = st.one_of(narrow, st.sampled_from([LEAST, LEAST + 1, -(2**61), 2**61, GREATEST - 1, GREATEST]))


def some(keys, most=24):
    return st.lists(keys, min_size=1, max_size=most)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), some(narrow)),
        st.tuples(st.just("insert"), some(wide)),
        st.tuples(st.just("forget"), st.floats(0, 1)),
        st.tuples(st.just("probe"), st.lists(st.tuples(wide, wide), min_size=1, max_size=12)),
    ),
    max_size=10,
)
sizes = st.tuples(st.sampled_from([None, 0, 5, 40]), st.sampled_from([2, 3, 7, 32]), st.sampled_from([2, 5, 1000]))
modes = st.sampled_from(["unbounded", "rows", "ticks", "constant"])


def check(index, structure, held, equal, ranges, bounds, reach, order):
    """held: (equal, key, row); reach(p, row): whether bounds allow the pair; order(probes): rows of the batch."""
    lows, highs = np.array(ranges, np.int64).T.copy()
    n = len(ranges)
    asked = index.probes(equal, (lows,), (highs,), None, n, ALONE)
    found = [pair for one in structure.find(asked, 0, n, bounds) for pair in zip(*one, strict=True)]
    expected = sorted(
        (p, row)
        for p, (low, high) in enumerate(ranges)
        for major, key, row in held
        if low <= key <= high and (equal is None or equal[p] == major) and reach(p, row)
    )
    assert sorted((int(p), int(row)) for p, row in found) == expected
    assert structure.count(asked, 0, n, bounds) == len(expected)
    later = set(order(asked)[n // 2 : n])
    part = [(p, row) for p, row in expected if p in later]
    assert structure.count(asked, n // 2, n, bounds) == len(part)


def check_steps(index, steps, mode, composite, order):
    """A structure holds what was inserted and not forgotten."""
    structure = index.structure()
    held: list[tuple[int, int, int]] = []
    rows = 0
    ticks = np.zeros(0, np.int64)
    rng = np.random.default_rng(len(steps))
    for what, value in steps:
        if what == "insert":
            keys = np.array(value, np.int64)
            equal = rng.integers(0, 3, keys.size) if composite else None
            structure.insert(index.entries(equal, keys, None, keys.size, ALONE), rows)
            held += [(int(equal[i]) if composite else 0, key, rows + i) for i, key in enumerate(value)]
            rows += len(value)
            ticks = np.concatenate([ticks, rng.integers(0, 50, len(value))])
        elif what == "forget":
            gone = int(value * rows)
            structure.forget(gone)
            held = [(major, key, row - gone) for major, key, row in held if row >= gone]
            rows -= gone
            ticks = ticks[gone:]
        else:
            n = len(value)
            low, high = rng.integers(0, 30, n), rng.integers(10, 40, n)
            if mode == "constant":
                low[:], high[:] = low[0], high[0]
            of_probe = rng.integers(0, 3, n) if composite else None
            bounds, reach = None, lambda p, row: True
            if mode == "ticks" and rows:
                bounds = TickBounds(low, high, ticks)
                reach = lambda p, row, low=low, high=high, ticks=ticks: low[p] <= ticks[row] <= high[p]  # noqa: E731
            elif mode in ("rows", "constant"):
                bounds = TickBounds(low, high, NO_TICKS)
                reach = lambda p, row, low=low, high=high: low[p] <= row <= high[p]  # noqa: E731
            check(index, structure, held, of_probe, value, bounds, reach, order)
        structure.check_invariants()
