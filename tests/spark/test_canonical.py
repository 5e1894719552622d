"""What a task stores does not depend on how its tuples were packed."""

import decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.query import predicate
from watersmeet.query.plan import compile_plan
from watersmeet.routing.choose import choose_route
from watersmeet.spark.canonical import cut, row_bytes, row_hashes

ROWS = 400


def rows(seed, ties):
    """Of every kind of type, with nulls; some texts are long."""
    pick = np.random.default_rng(seed)
    texts = [None if i % 7 == 0 else "x" * int(pick.integers(0, 60)) for i in range(ROWS)]
    return pa.record_batch({
        "ts": np.sort(pick.integers(0, ties, ROWS)),
        "text": texts,
        "bytes": pa.array([None if i % 5 == 0 else b"y" * (i % 9) for i in range(ROWS)]),
        "flag": pa.array([i % 3 == 0 for i in range(ROWS)]),
        "nothing": pa.nulls(ROWS),
        "price": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(12, 2)),
        "list": pa.array([None if i % 6 == 0 else ["z" * (i % 4)] * (i % 3) for i in range(ROWS)]),
        "map": pa.array([None if i % 4 == 0 else [("k", i)] * (i % 2) for i in range(ROWS)],
                        pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"a": i, "b": "w" * (i % 5)} if i % 2 else None for i in range(ROWS)]),
    })  # fmt: skip


def packed(batch, seed):
    """The same rows, in other packs and another order."""
    pick = np.random.default_rng(seed)
    batch = batch.take(pa.array(pick.permutation(batch.num_rows)))
    cuts = [0, *np.sort(pick.choice(np.arange(1, ROWS), 6, replace=False)).tolist(), ROWS]
    return [batch.slice(start, stop - start) for start, stop in zip(cuts[:-1], cuts[1:], strict=True)]


def contents(portion):
    return sorted(map(repr, pa.Table.from_batches(portion).to_pylist()))


@pytest.mark.parametrize("ties", [1, 3, 40, 10**9])
@pytest.mark.parametrize("most", [1, 100, 3_000, 20_000, 1 << 30])
def test_portions_have_the_same_rows_however_these_were_packed(ties, most):
    batch = rows(1, ties)
    found = [
        [contents(some) for some in cut(packs, [one["ts"].to_numpy() for one in packs], most)]
        for packs in (packed(batch, seed) for seed in (2, 3, 4))
    ]
    assert found[0] == found[1] == found[2]
    assert sorted(row for portion in found[0] for row in portion) == contents([batch])
    assert (len(found[0]) == 1) == (most == 1 << 30)


@pytest.mark.parametrize("ties", [3, 10**9])
def test_portions_follow_each_other_in_time_and_are_not_too_large(ties):
    most = 3_000
    packs = packed(rows(5, ties), 6)
    parts = cut(packs, [one["ts"].to_numpy() for one in packs], most)
    times = [pa.Table.from_batches(part)["ts"].to_numpy() for part in parts]
    assert len(parts) > 5 and all(one.max() <= two.min() for one, two in zip(times[:-1], times[1:], strict=True))
    largest = max(int(row_bytes(one).max()) for one in packs)
    assert all(sum(int(row_bytes(one).sum()) for one in part) <= most + largest for part in parts)


def test_rows_are_never_said_to_be_larger_than_they_are():
    for batch in (rows(7, 40), rows(7, 40).slice(33, 100)):
        assert 0 < row_bytes(batch).sum() <= batch.nbytes
        alone = [row_bytes(batch.slice(i, 1)) for i in range(batch.num_rows)]
        assert np.array_equal(row_bytes(batch), np.concatenate(alone))


def test_hot_tuples_that_share_their_time_are_spread():
    """Logs have times in whole seconds; which of its key's cores keeps a tuple must not follow from them alone."""
    n = 10_000
    batch = pa.record_batch({"ts": np.zeros(n, np.int64), "k": np.full(n, 7), "value": np.arange(n)})
    plan = compile_plan(predicate("l.k = r.k"), batch.schema, batch.schema)
    route, _ = choose_route("hot_cold", plan, batch.schema, batch.schema, "inner", 8)
    spots = route.spots("left", plan.left.of(batch), row_hashes(batch))
    counts = np.bincount(spots.keeper, minlength=8)
    assert len(set(spots.home.tolist())) == 1 and counts.max() < 1.1 * counts.mean()
    again = route.spots("left", plan.left.of(batch.slice(5, 50)), row_hashes(batch.slice(5, 50)))
    assert np.array_equal(again.keeper, spots.keeper[5:55])
