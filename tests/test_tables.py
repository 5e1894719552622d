"""RaP-Table, WiB+-Tree and the LLAT under both: random operations against a list of (key, row).

Capacities are tiny, so that entries overflow, leaves split and splitters move at once; keys are narrow (many
duplicates), wide, and at the ends of int64, in any order, increasing or decreasing.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.index import NestedLoop, RaPTable, WiBTree
from watersmeet.index.base import TickBounds
from watersmeet.index.tables.llat import LLAT, entry_capacity
from watersmeet.index.tables.rap_table import splitters
from watersmeet.workers import Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ALONE = Workers(1)
NO_TICKS = np.zeros(0, np.int64)

narrow = st.integers(-5, 5)
wide = st.one_of(
    narrow,
    st.integers(-300, 300),
    st.sampled_from([LEAST, LEAST + 1, -(2**62), 2**53 + 1, 2**62, GREATEST - 1, GREATEST]),
)
keys = st.one_of(
    st.lists(narrow, min_size=0, max_size=20),
    st.lists(wide, min_size=0, max_size=20),
    st.lists(wide, min_size=1, max_size=20).map(sorted),
    st.lists(wide, min_size=1, max_size=20).map(lambda keys: sorted(keys, reverse=True)),
    st.tuples(wide, st.integers(1, 30)).map(lambda one: [one[0]] * one[1]),
    st.tuples(st.integers(-500, 500), st.integers(1, 30)).map(lambda one: list(range(one[0], one[0] + one[1]))),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), keys),
        st.tuples(st.just("insert"), keys),
        st.tuples(st.just("probe"), st.lists(st.tuples(wide, wide), min_size=1, max_size=12)),
        st.tuples(st.just("seal"), st.just([])),
    ),
    max_size=25,
)
indexes = st.one_of(
    st.builds(
        RaPTable, st.sampled_from([None, 1, 2, 3, 4, 7, 50]), st.sampled_from([1.01, 1.25, 2.0]), st.booleans()
    ),
    st.builds(WiBTree, st.sampled_from([2, 3, 4, 7, 70]), st.sampled_from([3, 4, 7, 16])),
)


def insert(index, structure, keys, first_row):
    keys = np.array(keys, np.int64)
    structure.insert(index.entries(None, keys, None, keys.size, ALONE), first_row)


def ask(index, ranges):
    lows, highs = np.array(ranges, np.int64).reshape(-1, 2).T
    return index.probes(None, (lows.copy(),), (highs.copy(),), None, len(ranges), ALONE)


def found(structure, probes, bounds, start=0, stop=None):
    stop = probes.size if stop is None else stop
    pieces = structure.find(probes, start, stop, bounds)
    return sorted((int(p), int(row)) for piece in pieces for p, row in zip(*piece, strict=True))


def tick_bounds(kind, n, rows):
    """None, bounds as rows, or bounds on ticks that do not ascend; and a function that says which rows they allow."""
    low, high = np.full(n, rows // 4), np.full(n, rows // 2)
    if kind == "none":
        return None, lambda row: True
    if kind == "rows":
        return TickBounds(low, high, NO_TICKS), lambda row: rows // 4 <= row <= rows // 2
    ticks = np.arange(rows)[::-1].copy()
    if not rows:
        ticks = np.zeros(1, np.int64)
    return TickBounds(low, high, ticks), lambda row: rows // 4 <= ticks[row] <= rows // 2


@settings(max_examples=8 * settings().max_examples)
@given(indexes, steps, st.sampled_from(["none", "rows", "ticks"]))
def test_subwindows_hold_what_was_inserted(index, steps, kind):
    structure = index.structure()
    held: list[tuple[int, int]] = []
    for what, value in steps:
        if what == "insert":
            insert(index, structure, value, len(held))
            held += [(key, len(held) + i) for i, key in enumerate(value)]
        elif what == "seal":
            structure.seal()
            structure.check_invariants()
            structure, held = index.structure(like=structure), []
        else:
            bounds, allowed = tick_bounds(kind, len(value), len(held))
            expected = sorted(
                (p, row) for p, (a, b) in enumerate(value) for key, row in held if a <= key <= b and allowed(row)
            )
            probes = ask(index, value)
            assert found(structure, probes, bounds) == expected
            assert structure.count(probes, 0, len(value), bounds) == len(expected)
        assert structure.size == len(held)
        structure.check_invariants()


SHAPES = {
    "random": lambda rng, n: rng.integers(0, 4 * n, n),
    "wide": lambda rng, n: rng.integers(LEAST, GREATEST, n, endpoint=True),
    "few": lambda rng, n: rng.integers(0, 5, n),
    "one": lambda rng, n: np.full(n, 7),
    "increasing": lambda rng, n: np.arange(n) * 3,
    "decreasing": lambda rng, n: -3 * np.arange(n),
    "zipf": lambda rng, n: np.minimum(rng.zipf(1.3, n), 2**40),
    "zigzag": lambda rng, n: np.where(np.arange(n) % 2, np.arange(n), -np.arange(n)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [1, 70, 1000])
@pytest.mark.parametrize("index", [RaPTable(), RaPTable(7, readjust=False), WiBTree(), WiBTree(4, 3)], ids=repr)
def test_larger_subwindows_agree_with_a_nested_loop(index, batch, shape):
    rng = np.random.default_rng(5)
    loop = NestedLoop()
    structure = None
    for _ in range(2):
        keys = SHAPES[shape](rng, 300 if batch == 1 else 1500).astype(np.int64)
        structure, other = index.structure(like=structure), loop.structure()
        for first in range(0, keys.size, batch):
            insert(index, structure, keys[first : first + batch], first)
            insert(loop, other, keys[first : first + batch], first)
        for sealed in (False, True):
            centres = rng.choice(keys, 40)
            with np.errstate(over="ignore"):
                ranges = np.stack([centres - rng.integers(0, 40, 40), centres + rng.integers(0, 40, 40)], 1)
            expected = found(other, ask(loop, ranges), None)
            probes = ask(index, ranges)
            assert found(structure, probes, None) == expected
            assert structure.count(probes, 0, 40, None) == len(expected)
            parts = [found(structure, probes, None, a, b) for a, b in ((0, 13), (13, 14), (14, 40))]
            assert sorted(pair for part in parts for pair in part) == expected
            structure.check_invariants()
            if not sealed:
                structure.seal()


def test_a_probe_may_have_more_partners_than_are_handed_over_at_once(monkeypatch):
    from watersmeet.index.tables import llat

    monkeypatch.setattr(llat, "PORTION", 10)
    for index in (RaPTable(), RaPTable(40), WiBTree(8, 3)):
        structure = index.structure()
        insert(index, structure, range(2000), 0)
        probes = ask(index, [(0, 1999), (5, 4), (3, 900)])
        pieces = [rows.size for _, rows in structure.find(probes, 0, 3, None)]
        assert sum(pieces) == 2000 + 898 and max(pieces) <= max(2 * structure_capacity(structure), 100)
        assert len(found(structure, probes, None)) == 2898


def structure_capacity(structure):
    return (getattr(structure, "_table", None) or structure._leaves).capacity


# ------------------------------------------------------------------------------------------------- LLAT


def worst_case(partitions, capacity, rows):
    """Fill one partition after the other, each to just beyond its room: the most links for so many rows."""
    sizes = [1] * partitions
    left = rows - partitions
    for p in range(partitions):
        more = min(capacity, left)
        sizes[p] += more
        left -= more
    sizes[0] += left
    return sizes


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 7, 64])
@pytest.mark.parametrize("sigma", [1.001, 1.1, 1.25, 3])
@pytest.mark.parametrize("rows_each", [1, 2, 3, 10, 40])
def test_twice_the_partitions_are_always_enough_entries(partitions, sigma, rows_each):
    expected = partitions * rows_each
    capacity = entry_capacity(sigma, expected, partitions)
    uppers = np.append(np.arange(partitions - 1), GREATEST)
    promised = capacity * partitions  # at least sigma * expected
    rng = np.random.default_rng(partitions)
    shapes = [
        [promised] + [0] * (partitions - 1),
        [0] * (partitions - 1) + [promised],
        rng.multinomial(promised, rng.dirichlet(np.full(partitions, 0.1))).tolist(),
        rng.multinomial(promised, rng.dirichlet(np.full(partitions, 3))).tolist(),
    ]
    if promised > partitions:
        shapes.append(worst_case(partitions, capacity, promised))
    for sizes in shapes:
        assert sum(sizes) == promised
        table = LLAT(uppers, capacity, 2 * partitions)
        heads = rng.permutation(np.repeat(np.arange(partitions, dtype=np.int32), sizes))
        table.append(heads, uppers[heads], np.arange(promised, dtype=np.int32), 0)
        assert table.used <= 2 * partitions
        table.check_invariants()
        assert table.histograms()[0].tolist() == sizes


def test_a_table_that_gets_more_than_expected_keeps_to_twice_its_partitions():
    index = RaPTable(sigma=1.1)
    structure = index.structure()
    for first in range(0, 10_000, 100):
        insert(index, structure, np.random.default_rng(first).integers(0, 10**6, 100), first)
        structure.check_invariants()  # looks at the entries used
    assert structure.uppers.size > 50


def test_a_tree_takes_more_entries_when_it_needs_them():
    """A key with one tuple too many for an entry, and a lone one, again and again: three entries for C + 2 tuples."""
    capacity, groups = 8, 40
    index = WiBTree(capacity, 4)
    like = index.structure()
    rows = groups * (capacity + 2)
    insert(index, like, range(rows), 0)
    structure = index.structure(like)
    for g in range(groups):
        insert(index, structure, [2 * g] * (capacity + 1), g * (capacity + 2))
        insert(index, structure, [2 * g + 1], g * (capacity + 2) + capacity + 1)
    structure.check_invariants()
    assert structure._leaves.used > 2 * rows / capacity


# -------------------------------------------------------------------------------------------- RaP-Table


def test_splitters_divide_as_in_the_docstring():
    found = splitters(np.array([2, 3, 5, 6]), np.array([0, 10, 20, 30]), np.array([9, 19, 30, 40]), 4)
    assert found.tolist() == [16, 26, 33, GREATEST]


def test_splitters_stay_in_the_range_of_int64():
    histograms = [np.array([5]), np.array([LEAST]), np.array([GREATEST])]
    uppers = splitters(*histograms, 4)
    assert uppers.tolist() == pytest.approx([LEAST // 2, 0, GREATEST // 2, GREATEST], abs=4096)
    assert splitters(*histograms, 1000).size == 1000
    assert splitters(np.array([3, 0]), np.array([9, GREATEST]), np.array([9, LEAST]), 5).tolist() == [9, GREATEST]
    assert splitters(np.zeros(1, np.int64), *histograms[1:], 5).tolist() == [GREATEST]


DISTRIBUTIONS = {
    "uniform": lambda rng, n: rng.uniform(0, 2**31, n),
    "Gaussian": lambda rng, n: rng.normal(2**30, 2**22, n),
    "Gamma": lambda rng, n: rng.gamma(3, 2**24, n),
    "rank-size": lambda rng, n: np.minimum(2**12 * (rng.pareto(1, n) + 1), 2**31),
    "multimodal": lambda rng, n: rng.normal(rng.integers(1, 8, n) * 2**28, 2**18),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_splitters_converge_within_three_adjustments(name):
    """From splitters that are even over 32 bits, as in the paper."""
    rng = np.random.default_rng(3)
    n = 1 << 16
    index = RaPTable(partitions=256, readjust=False)
    structure = index.structure()
    insert(index, structure, np.arange(n) << 15, 0)
    errors = []
    for _ in range(5):
        structure = index.structure(like=structure)
        insert(index, structure, DISTRIBUTIONS[name](rng, n).astype(np.int64), 0)
        errors.append(structure.partition_error())
    assert structure.adjustments == 5
    assert errors[3] < 0.35, errors
    assert name == "uniform" or errors[0] > 1, errors


def test_splitters_that_are_far_off_are_put_right_before_the_subwindow_ends():
    def table(readjust):
        index = RaPTable(readjust=readjust)
        rng = np.random.default_rng(1)
        structure = index.structure()
        insert(index, structure, rng.integers(0, 1000, 8192), 0)
        structure = index.structure(like=structure)
        for first in range(0, 8192, 128):
            insert(index, structure, rng.integers(10**6, 10**9, 128), first)
        return structure.partition_error()

    assert table(False) > 1.5
    assert table(True) < 0.7


@pytest.mark.parametrize(
    ("index", "options", "says"),
    [
        (RaPTable, {"partitions": 0}, "partitions.*at least 1.*0"),
        (RaPTable, {"sigma": 1}, "sigma.*above 1.*1.25"),
        (RaPTable, {"sigma": float("nan")}, "sigma.*nan"),
        (WiBTree, {"leaf_rows": 1}, "leaf_rows.*at least 2.*1"),
        (WiBTree, {"fan_out": 2}, "fan_out.*at least 3.*2"),
    ],
)
def test_parameters_are_checked(index, options, says):
    with pytest.raises(ValueError, match=says):
        index(**options)


# ------------------------------------------------------------------------------------------- WiB+-Tree


def test_leaves_are_full_where_keys_increase():
    index = WiBTree(8, 4)
    structure = index.structure()
    for first in range(0, 4000, 5):
        insert(index, structure, range(first, first + 5), first)
    structure.check_invariants()
    assert structure._leaves.used == 500


def test_all_tuples_of_a_key_are_in_one_leaf():
    index = WiBTree(4, 4)
    structure = index.structure()
    rng = np.random.default_rng(2)
    for first in range(0, 3000, 10):
        insert(index, structure, rng.integers(0, 20, 10), first)
    structure.check_invariants()
    _, leasts, greatests = structure._leaves.histograms()
    assert len(leasts) == 20 and np.array_equal(leasts, greatests)


def test_a_table_without_rows_is_divided_as_well_as_can_be():
    index = RaPTable(4)
    structure = index.structure()
    assert structure.partition_error() == 0.0
    insert(index, structure, [], 0)
    assert structure.partition_error() == 0.0
