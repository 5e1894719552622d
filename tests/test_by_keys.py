"""What the index does not tell is compared by keys that are kept beside the tuples, and nothing is lost or added."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.window.kept import KeptKeys

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NAN, INF = float("nan"), float("inf")

VALUES = {
    pa.int64(): [INT64_MIN, INT64_MIN + 1, -1, 0, 0, 1, INT64_MAX - 1, INT64_MAX, None],
    pa.uint64(): [0, 1, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, None],
    pa.float64(): [-INF, -1e308, -5e-324, -0.0, 0.0, 0.5, 2.0**63, INF, NAN, None],
    pa.float32(): [-INF, -1.5, -0.0, 0.0, 1.5, INF, NAN, None],
    pa.decimal128(38, 2): [Decimal(f"{sign}{n}.50") for sign in ("-", "") for n in (0, 1, 10**18, 10**35)] + [None],
    pa.decimal128(15, 2): [Decimal(f"{sign}{n}.50") for sign in ("-", "") for n in (0, 1, 10**11)] + [None],
    pa.timestamp("ns"): [*(datetime.datetime(year, 12, 31) for year in (1900, 1969, 1970, 2026)), None],
    pa.bool_(): [True, False, None],
}  # fmt: skip


def compare(sign, a, b):
    """SQL's, with NaN the greatest."""
    if a is None or b is None:
        return False
    a, b = ((x != x, 0 if x != x else x) for x in (a, b))
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "<>": a != b, "=": a == b}[sign]


def pairs(on, left, right, **options):
    with wm.StreamJoin(on, options.pop("window", wm.last(10_000)), output="pairs", **options) as join:
        found = []
        for start in range(0, max(left.num_rows, right.num_rows), 5):
            out = join.push(left=left.slice(start, 5), right=right.slice(start, 5))
            found += zip(out["left"].to_pylist(), out["right"].to_pylist(), strict=True)
            join.check_invariants()
        return sorted(found), join.explain()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "<>", "="])
@pytest.mark.parametrize("type_", VALUES, ids=str)
def test_columns_of_all_types_are_compared_by_keys(type_, sign, cores):
    some = VALUES[type_] * 2
    left = pa.table({"k": [n % 2 for n in range(len(some))], "v": pa.array(some, type_)})
    right = left.slice(3)
    found, explained = pairs(f"l.k = r.k and l.v {sign} r.v", left, right, index="hash", cores=cores)
    too_wide = pa.types.is_decimal(type_) and type_.precision > 18 and sign != "="  # for a key of 64 bits
    assert ("by keys" in explained) == (not too_wide)
    rights = right.to_pylist()
    expected = [
        (i, j)
        for i, one in enumerate(left.to_pylist())
        for j, other in enumerate(rights)
        if one["k"] == other["k"] and compare(sign, one["v"], other["v"])
    ]
    assert found == sorted(expected)


@pytest.mark.parametrize(
    ("on", "by_keys", "rest"),
    [
        ("l.x < r.x and l.y > r.y", "l.y > r.y", None),
        ("l.k = r.k and l.y <> r.y and l.s <> r.s", "l.y <> r.y", "l.s <> r.s"),
        ("l.k = r.k and l.x = r.x and l.y * r.y > 3", "l.k = r.k and l.x = r.x", "l.y * r.y > 3"),
        ("l.k = r.k and abs(l.x - r.x) <= l.y", None, None),
        ("l.k = r.k and l.x < r.x and l.y <> r.y and l.f * r.f > 0.5e0", "l.y <> r.y", "l.f * r.f > 0.5e0"),
        ("l.s = r.s and (l.x < r.x or l.y < r.y)", None, "l.s = r.s and (l.x < r.x or l.y < r.y)"),
    ],
)
def test_explain_says_what_is_checked_how(on, by_keys, rest):
    schema = pa.schema({"k": pa.int64(), "x": pa.int64(), "y": pa.int64(), "f": pa.float64(), "s": pa.string()})
    lines = wm.StreamJoin(on, wm.last(9), left_schema=schema, right_schema=schema).explain().splitlines()
    keyed = [line.split(": ")[1] for line in lines if line.startswith("checked on candidates found by left, by keys")]
    others = [line.split(": ")[1] for line in lines if line.startswith("checked on candidates found by left:")]
    assert keyed == ([] if by_keys is None else [by_keys])
    if rest is None:
        assert not others
    elif by_keys is not None:
        assert others == [rest]
    else:
        assert len(others) == 1


def test_a_range_between_columns_of_the_stored_side_is_two_keys():
    rng = np.random.default_rng(5)
    left = pa.table({"t": rng.integers(0, 50, 200), "w": rng.integers(-2, 9, 200)})
    right = pa.table({"a": rng.integers(0, 50, 200), "b": rng.integers(0, 50, 200)})
    t, w, a, b = (table[name].to_numpy() for table, name in ((left, "t"), (left, "w"), (right, "a"), (right, "b")))
    for on, holds in (
        ("l.t between r.a and r.b", (t[:, None] >= a) & (t[:, None] <= b)),
        ("abs(l.t - r.a) < l.w and l.t <> r.b", (np.abs(t[:, None] - a) < w[:, None]) & (t[:, None] != b)),
    ):
        found, explained = pairs(on, left, right)
        assert "by keys" in explained
        assert found == sorted(zip(*(each.tolist() for each in np.nonzero(holds)), strict=True))


@pytest.mark.parametrize(
    ("on", "kept"), [("l.x <= r.x and l.y < r.y", True), ("l.x <= r.x and l.y < r.z", False)], ids=["alike", "unlike"]
)
def test_a_self_join_keeps_keys_where_both_roles_have_the_same(on, kept):
    rng = np.random.default_rng(6)
    rows = pa.table({name: pa.array(rng.integers(0, 9, 60), mask=rng.random(60) < 0.1) for name in "xyz"})
    found, explained = [], ""
    with wm.StreamJoin(on, wm.last(10_000), output="pairs", self_join=True) as join:
        for start in range(0, 60, 7):
            out = join.push(rows.slice(start, 7))
            found += zip(out["left"].to_pylist(), out["right"].to_pylist(), strict=True)
            join.check_invariants()
        explained = join.explain()
    assert "one window, one index" in explained and ("by keys" in explained) == kept
    name = "y" if kept else "z"
    every = rows.to_pylist()
    expected = [
        (i, j)
        for i, one in enumerate(every)
        for j, other in enumerate(every)
        if compare("<=", one["x"], other["x"]) and compare("<", one["y"], other[name])
    ]
    assert sorted(found) == sorted(expected)


def test_keys_go_with_their_tuples():
    rng = np.random.default_rng(7)
    with wm.StreamJoin("l.x < r.x and l.y < r.y", wm.last(3000), output="count", cores=1) as join:
        held = []
        for _ in range(30):
            batch = pa.table({name: rng.integers(0, 9, 1000) for name in "xy"})
            join.push(left=batch.slice(0, 10), right=batch)
            held.append(join._core.kept["right"].nbytes())
        assert 8 * 3000 <= max(held[5:]) <= 4 * 8 * 3000, held


@pytest.mark.parametrize("bands", [1, 2, 3])
def test_pairs_within_limits_are_those_that_numpy_finds(bands):
    rng = np.random.default_rng(bands)
    ends = np.array([INT64_MIN, INT64_MIN + 1, -1, 0, 1, 5, INT64_MAX - 1, INT64_MAX])
    columns = [rng.choice(ends, 5000) for _ in range(3)]
    kept = KeptKeys(3, begin=1 << 20)
    for start in range(0, 5000, 700):
        kept.store([np.ascontiguousarray(column[start : start + 700]) for column in columns])
    limits = rng.choice(ends, (100, 2 * bands))
    rows, partners = rng.integers(0, 100, 9000).astype(np.int32), rng.integers(0, 4000, 9000).astype(np.int32)
    out = np.empty(9000, np.int32), np.empty(9000, np.int32)
    for place, column in enumerate(columns):
        key = column[partners + 1000]
        low, high = limits[rows, ::2], limits[rows, 1::2]
        hits = ((low <= key[:, None]) & (key[:, None] <= high)).any(axis=1)
        found = kept.within(place, limits, (1 << 20) + 1000, rows, partners, out)
        assert np.array_equal(found[0], rows[hits]) and np.array_equal(found[1], partners[hits])
    again = kept.within(0, limits, (1 << 20) + 1000, found[0], found[1], out)  # in place
    assert again[0].size <= found[0].size
