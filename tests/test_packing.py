"""Sorting a batch: keys at the ends of int64, and spans at the very width that still packs with a row number."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.index import sorting
from watersmeet.index.sorting import in_order

LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.fixture(autouse=True, params=[(0, False), (0, True), (1 << 10, False)], ids=["passes", "words", "small"])
def few(request, monkeypatch):
    monkeypatch.setattr(sorting, "FEW", request.param[0])
    monkeypatch.setattr(sorting, "numpy_is_faster", lambda: request.param[1])


def check(major, minor):
    majors, minors, rows = in_order(major, minor)
    keys = list(zip(([0] * len(minor) if major is None else major.tolist()), minor.tolist(), strict=True))
    assert sorted(rows.tolist()) == list(range(len(keys)))
    assert [keys[row] for row in rows.tolist()] == sorted(keys)
    assert minors.tolist() == minor[rows].tolist()
    assert majors.tolist() == ([] if major is None else major[rows].tolist())


def spread(base: int, span: int, n: int) -> np.ndarray:
    """n keys from base to base + span, both ends among them, not in order, some of them equal."""
    step = [0, span, span // 2, 1 if span else 0, span - 1 if span else 0, span, 0]
    return np.array([base + step[i % len(step)] for i in range(n)], np.int64)


@pytest.mark.parametrize("n", [2, 3, 16, 17, 33])
@pytest.mark.parametrize("bits", [0, 1, 30, "widest - 1", "widest", "widest + 1", 64])
@pytest.mark.parametrize("end", ["least", "greatest", "middle"])
def test_keys_of_any_span_at_any_place(n, bits, end):
    row_bits = (n - 1).bit_length()
    if isinstance(bits, str):
        bits = 64 - row_bits + int(bits[6:].replace(" ", "") or 0)
    span = 2**bits - 1
    base = {"least": LEAST, "greatest": GREATEST - span, "middle": -(span // 2) - 1}[end]
    minor = spread(base, span, n)
    check(None, minor)


@pytest.mark.parametrize("n", [5, 17])
@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("end", ["least", "greatest"])
def test_two_keys_that_just_fit_one_word(n, extra, end):
    room = 64 - (n - 1).bit_length() + extra
    for major_bits in (0, 1, room // 2, room - 1, room):
        major_span, minor_span = 2**major_bits - 1, 2 ** (room - major_bits) - 1
        major = spread(LEAST if end == "least" else GREATEST - major_span, major_span, n)
        minor = spread(LEAST if end == "least" else GREATEST - minor_span, minor_span, n)[::-1].copy()
        check(major, minor)
