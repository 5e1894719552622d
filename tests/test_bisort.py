"""BI-Sort on its own: random inserts, probes and forgetting, against a list of (key, row).

Keys are drawn narrow (they pack with their rows into one word), wide (they do not) and at the ends of int64, so that
runs are packed, unpacked and packed again.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.index import BISort
from watersmeet.index.base import TickBounds
from watersmeet.index.sorted.run import _code_for
from watersmeet.index.sorted.run_kernels import PACKED, SINGLE, forget, sentinels
from watersmeet.workers import Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ALONE = Workers(1)
NO_TICKS = np.zeros(0, np.int64)

narrow = st.integers(-20, 20)
wide = st.one_of(narrow, st.sampled_from([LEAST, LEAST + 1, -(2**61), 2**61, GREATEST - 1, GREATEST]))


def some(keys):
    return st.lists(keys, min_size=1, max_size=12)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), some(narrow)),
        st.tuples(st.just("insert"), some(wide)),
        st.tuples(st.just("forget"), st.floats(0, 1)),
        st.tuples(st.just("probe"), st.lists(st.tuples(wide, wide), min_size=1, max_size=12)),
    ),
    max_size=25,
)


def probes(index: BISort, ranges: list[tuple[int, int]]):
    lows, highs = np.array(ranges, np.int64).T
    return index.probes(None, (lows.copy(),), (highs.copy(),), None, len(ranges), ALONE)


def marked(structure, asked, start, stop, rows, bounds):
    """Pairs, batch rows that are in any, rows here that are."""
    probes_met, rows_met = np.zeros(asked.size, np.uint8), np.zeros(rows, np.uint8)
    pairs = structure.mark(asked, start, stop, bounds, probes_met, rows_met)
    return pairs, np.flatnonzero(probes_met).tolist(), np.flatnonzero(rows_met).tolist()


def met(pairs):
    return len(pairs), sorted({int(p) for p, _ in pairs}), sorted({int(row) for _, row in pairs})


@given(steps, st.integers(2, 9), st.sampled_from([None, 0, 5, 40]), st.booleans())
def test_a_structure_holds_what_was_inserted_and_not_forgotten(steps, width, buffer_rows, bounded):
    index = BISort(buffer_rows=buffer_rows, partition_rows=width)
    structure = index.structure()
    held: list[tuple[int, int]] = []
    rows = 0
    for what, value in steps:
        if what == "insert":
            keys = np.array(value, np.int64)
            structure.insert(index.entries(None, keys, None, keys.size, ALONE), rows)
            held += [(key, rows + i) for i, key in enumerate(value)]
            rows += len(value)
        elif what == "forget":
            gone = int(value * rows)
            structure.forget(gone)
            held = [(key, row - gone) for key, row in held if row >= gone]
            rows -= gone
        else:
            n = len(value)
            low, high = rows // 4 - np.arange(n) % 3, rows // 2 + np.arange(n) % 4
            bounds = TickBounds(low, high, NO_TICKS) if bounded else None
            expected = sorted(
                (p, row)
                for p, (a, b) in enumerate(value)
                for key, row in held
                if a <= key <= b and (not bounded or low[p] <= row <= high[p])
            )
            asked = probes(index, value)
            found = [pair for one in structure.find(asked, 0, n, bounds) for pair in zip(*one, strict=True)]
            assert sorted((int(p), int(row)) for p, row in found) == expected
            assert structure.count(asked, 0, n, bounds) == len(expected)
            assert marked(structure, asked, 0, n, rows, bounds) == met(expected)
        structure.check_invariants()


def test_runs_are_packed_while_they_can_be():
    index = BISort(buffer_rows=0)
    structure = index.structure()

    def insert(keys, first_row):
        keys = np.array(keys, np.int64)
        structure.insert(index.entries(None, keys, None, keys.size, ALONE), first_row)

    insert([3, 1, 2], 0)
    main = structure._runs[0]
    assert main._kind == PACKED
    insert([2**40], 3)
    assert main._kind == PACKED
    insert([LEAST], 4)
    assert main._kind == SINGLE
    insert([7], 5)
    structure.forget(5)
    assert main._kind == PACKED
    structure.check_invariants()


@pytest.mark.parametrize("rows", [1, 2**16, 2**30])
@pytest.mark.parametrize("ends", [(LEAST, LEAST + 9), (GREATEST - 9, GREATEST), (-5, 2**31)])
def test_a_code_holds_its_keys(rows, ends):
    base, span, shift = _code_for(*ends, rows)
    assert LEAST <= base <= ends[0] and ends[1] <= base + span <= GREATEST
    assert rows <= 1 << shift
    assert (span << shift) + (1 << shift) <= 1 << 62


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("jump", [0, 3, 1 << 30, 1 << 50])
def test_keys_that_increase_go_straight_to_main(composite, jump):
    """Behind its keys, which stay where they are; with a jump they must be packed anew, or not at all."""
    index = BISort(partition_rows=4)
    structure = index.structure()
    rng = np.random.default_rng(1)
    rows = least = 0
    for step in range(120):
        keys = least + rng.integers(-3, 40, 16)
        equal = np.full(16, step // 50) if composite else None
        structure.insert(index.entries(equal, keys, None, 16, ALONE), rows)
        structure.check_invariants()
        rows += 16
        least += 40 + (jump if step % 10 == 0 else 0)
        if step == 90:
            structure.forget(rows // 2)
            rows -= rows // 2
            structure.check_invariants()
    main, buffer = structure._runs
    assert (main.size, buffer.size) == (rows, 0)


def test_other_keys_go_through_the_buffer():
    index = BISort()
    structure = index.structure()
    rng = np.random.default_rng(1)
    for rows in range(0, 100_000, 100):
        structure.insert(index.entries(None, rng.integers(0, 1 << 20, 100), None, 100, ALONE), rows)
    assert structure._runs[1].size > 0


@pytest.mark.parametrize("end", ["least", "greatest", "middle"])
@pytest.mark.parametrize("bits", [0, 1, 40, *range(50, 65)])
def test_keys_at_the_ends_of_int64_and_at_the_edge_of_a_word(end, bits):
    """However wide the keys are, packed with their rows or not, probes that end at them find them."""
    span = 2**bits - 1
    base = {"least": LEAST, "greatest": GREATEST - span, "middle": -(span // 2) - 1}[end]
    few = sorted({base, base + min(1, span), base + span // 2, base + max(0, span - 1), base + span})
    index = BISort(buffer_rows=4, partition_rows=3)
    structure = index.structure()
    held: list[int] = []
    for step in range(4):
        keys = (few * 2)[step : step + 6]
        structure.insert(index.entries(None, np.array(keys, np.int64), None, len(keys), ALONE), len(held))
        held += keys
        structure.check_invariants()
        ends = sorted({min(max(key + by, LEAST), GREATEST) for key in few for by in (-1, 0, 1)} | {LEAST, GREATEST})
        ranges = [(low, high) for low in ends for high in ends]
        asked = probes(index, ranges)
        found = {
            (int(p), int(row))
            for one in structure.find(asked, 0, len(ranges), None)
            for p, row in zip(*one, strict=True)
        }
        expected = {(p, row) for p, (a, b) in enumerate(ranges) for row, key in enumerate(held) if a <= key <= b}
        assert found == expected
        assert structure.count(asked, 0, len(ranges), None) == len(expected)
    structure.forget(7)
    structure.check_invariants()


@pytest.mark.parametrize("gone", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 9])
def test_forgetting_takes_as_many_samples_as_there_is_room_for(size, gone):
    """A run of one partition has none, also where all of it stays."""
    width, shift = 4, 4
    room = size // width if size > width else 0
    ordered = (np.arange(size) << shift) | np.arange(size)
    samples = np.full(8, -1)
    left = forget(shift, NO_TICKS, ordered, np.zeros(0, np.int32), size, gone, width, NO_TICKS, samples[:room])
    kept = np.arange(gone, size)
    assert np.array_equal(ordered[:left], (kept << shift) | (kept - gone))
    taken = min(room, left // width)
    assert np.array_equal(samples[:taken], ordered[width - 1 : taken * width : width])
    assert np.all(samples[taken:] == -1)


def around(keys):
    """All ranges between these keys and their neighbours, as far as int64 goes."""
    ends = sorted({key + step for key in keys for step in (-1, 0, 1) if LEAST <= key + step <= GREATEST})
    return [(low, high) for low in ends for high in ends]


def check(index, structure, held):
    ranges = around([LEAST, GREATEST, *(key for key, _ in held)][:9])
    asked = probes(index, ranges)
    found = [pair for one in structure.find(asked, 0, len(ranges), None) for pair in zip(*one, strict=True)]
    expected = sorted((p, row) for p, (a, b) in enumerate(ranges) for key, row in held if a <= key <= b)
    assert sorted((int(p), int(row)) for p, row in found) == expected
    assert structure.count(asked, 0, len(ranges), None) == len(expected)
    structure.check_invariants()


@pytest.mark.parametrize("rows", [2, 3, 4, 5, 8, 9, 33])
@pytest.mark.parametrize("wider", [-1, 0, 1])
@pytest.mark.parametrize("end", ["least", "middle", "greatest"])
def test_keys_that_just_fit_into_a_word_with_their_row_and_keys_that_just_do_not(rows, wider, end):
    bits = 62 - max(rows - 1, 1).bit_length()
    span = (1 << bits) - 1 + wider
    low = {"least": LEAST, "middle": -(span // 2), "greatest": GREATEST - span}[end]
    keys = [low, low + span, *(low + i * (span // rows) for i in range(1, rows - 1))]
    index = BISort(buffer_rows=0, partition_rows=4)
    structure = index.structure()
    held: list[tuple[int, int]] = []

    def insert(some):
        given = np.array(some, np.int64)
        first = len(held)
        structure.insert(index.entries(None, given, None, given.size, ALONE), first)
        held.extend((key, first + i) for i, key in enumerate(some))

    insert(keys)
    main = structure._runs[0]
    assert main._kind == (PACKED if wider <= 0 else SINGLE)
    check(index, structure, held)
    insert(keys[::-1])  # twice the rows: one bit more
    assert main._kind == (PACKED if wider < 0 and span.bit_length() < bits else SINGLE)
    check(index, structure, held)
    structure.forget(rows)
    check(index, structure, [(key, row - rows) for key, row in held if row >= rows])


@pytest.mark.parametrize("buffer_rows", [0, 5, None])
@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("end", [LEAST, GREATEST])
def test_all_keys_at_one_end_of_int64(end, composite, buffer_rows):
    index = BISort(buffer_rows=buffer_rows, partition_rows=4)
    structure = index.structure()
    step = 1 if end == LEAST else -1
    keys = [end, end, end + step, end, end + 2 * step, end, end + 9 * step] * 5
    equal = np.full(7, end) if composite else None
    for first in range(0, 35, 7):
        given = np.array(keys[first : first + 7])
        structure.insert(index.entries(equal, given, None, 7, ALONE), first)
        structure.check_invariants()
    ranges = around([LEAST, GREATEST, end + 2 * step])
    lows, highs = np.array(ranges, np.int64).T.copy()
    of_probe = np.full(len(ranges), end) if composite else None
    asked = index.probes(of_probe, (lows,), (highs,), None, len(ranges), ALONE)
    found = [pair for one in structure.find(asked, 0, len(ranges), None) for pair in zip(*one, strict=True)]
    expected = sorted((p, row) for p, (a, b) in enumerate(ranges) for row, key in enumerate(keys) if a <= key <= b)
    assert sorted((int(p), int(row)) for p, row in found) == expected
    assert structure.count(asked, 0, len(ranges), None) == len(expected)


@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_a_sealed_structure_answers_as_before_and_so_does_one_made_of_its_arrays(wide, composite):
    random = np.random.default_rng(4)
    index = BISort(partition_rows=4)
    structure = index.structure()
    for first in range(0, 300, 60):
        keys = random.integers(LEAST if wide else 0, GREATEST if wide else 50, 60)
        equal = random.integers(0, 5, 60) if composite else None
        structure.insert(index.entries(equal, keys, None, 60, ALONE), first)
    lows = random.integers(LEAST if wide else 0, GREATEST // 2 if wide else 50, 40)
    asked = index.probes(
        random.integers(0, 5, 40) if composite else None, (lows,), (lows + (GREATEST // 2 if wide else 9),), None, 40,
        ALONE,
    )  # fmt: skip

    def answer(one):
        pairs = [pair for portion in one.find(asked, 0, 40, None) for pair in zip(*portion, strict=True)]
        assert one.count(asked, 0, 40, None) == len(pairs)
        one.check_invariants()
        return sorted((int(p), int(row)) for p, row in pairs)

    before = answer(structure)
    structure.seal()
    assert structure._runs[0].ordered.size == 300 + sentinels(4) and structure._runs[1].size == 0
    assert answer(structure) == before and len(before) > 40
    assert answer(index.adopt(structure.sealed())) == before


@pytest.mark.parametrize("ticks", ["none", "rows", "times"])
@pytest.mark.parametrize("keys", ["narrow", "wide", "composite"])
@pytest.mark.parametrize("seed", range(6))
def test_who_is_in_pairs_is_marked_over_many_blocks(seed, keys, ticks):
    """Ranges that overlap, bounds that differ from probe to probe; some rows are out of the reach of all."""
    rng = np.random.default_rng(seed)
    n, size = 150, 1500
    spread = (1 << 62) // 400 if keys == "wide" else 1
    index = BISort(buffer_rows=200)
    structure = index.structure()
    equal = rng.integers(0, 3, size) if keys == "composite" else None
    ordered = rng.integers(-200, 200, size) * spread
    for start in range(0, size, 300):
        part = slice(start, start + 300)
        some = None if equal is None else equal[part]
        structure.insert(index.entries(some, ordered[part], None, 300, ALONE), start)
    lows = rng.integers(-220, 200, n) * spread
    highs = lows + rng.choice([0, 5, 100, 400], n) * spread
    asked_equal = None if equal is None else rng.integers(0, 3, n)
    asked = index.probes(asked_equal, (lows,), (highs,), None, n, ALONE)
    times = np.arange(size) if ticks == "rows" else rng.permutation(size)
    least = rng.integers(100, [200, 900][seed % 2], n)
    most = least + rng.integers(0, 700, n)
    bounds = None if ticks == "none" else TickBounds(least, most, times if ticks == "times" else NO_TICKS)
    pairs = (lows[:, None] <= ordered) & (ordered <= highs[:, None])
    if equal is not None:
        pairs &= asked_equal[:, None] == equal
    if bounds is not None:
        pairs &= (least[:, None] <= times) & (times <= most[:, None])
    assert pairs.sum() > 1000
    for start, stop in ((0, n), (0, 40), (40, n)):
        asking = np.zeros(n, bool)
        asking[asked.bands[0].rows[start:stop]] = True
        assert marked(structure, asked, start, stop, size, bounds) == met(np.argwhere(pairs & asking[:, None]))
