"""Threads: inside a join they change nothing, and joins on different threads do not meet."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm


def rows(start, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 50 * n, n)
    return pa.table(
        {
            "ts": pa.array(np.arange(start, start + n)),
            "k": pa.array(rng.integers(0, n, n), mask=rng.random(n) < 0.01),
            "x": pa.array(x),
            "f": pa.array(x / 10),
            "s": pa.array(rng.integers(0, n, n)).cast(pa.string()),
            "words": pa.array([["a"] * (i % 3) for i in range(n)]),
        }
    )


def canonical(table):
    """The rows in an order of their own."""
    return table.sort_by([("ts", "ascending"), ("ts_right", "ascending")])


PREDICATES = {
    "equality": "l.k = r.k",
    "band": "abs(l.x - r.x) <= 20",
    "float band": "abs(l.f - r.f) <= 2.5",
    "composite": "l.k = r.k and l.x < r.x",
    "string": "l.s = r.s",
    "bands": "l.x between r.x + 5 and r.x + 10 or l.x between r.x - 10 and r.x - 5",
}


@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("name", PREDICATES)
def test_any_number_of_threads_gives_the_same_rows_for_large_batches(name, how):
    n = 100_000
    batches = [("left", rows(0, n, 1)), ("right", rows(0, n, 2))]
    batches += [("left", rows(n, n, 3)), ("right", rows(n, n, 4))]

    def results(threads):
        schemas = {"left_schema": batches[0][1].schema, "right_schema": batches[1][1].schema}
        with wm.StreamJoin(PREDICATES[name], wm.within(n // 2), how, cores=threads, route="single", **schemas) as join:
            steps = [join.push(**{side: batch}) for side, batch in batches]
            steps.append(join.close())
            join.check_invariants()
        return [canonical(step) for step in steps]

    expected = results(1)
    assert sum(step.num_rows for step in expected) > n // 10
    for threads in (2, 4):
        assert results(threads) == expected


def test_pairs_and_count_of_large_batches_agree_with_rows():
    n = 100_000
    left, right = rows(0, n, 1), rows(0, n, 2)
    found = {}
    for output in ("rows", "pairs", "count"):
        with wm.StreamJoin("abs(l.x - r.x) <= 20", wm.within(n), output=output, cores=4, route="single") as join:
            join.push(left=left)
            found[output] = join.push(right=right)
    assert found["count"] == found["rows"].num_rows == found["pairs"].num_rows
    for side, table, name in (("left", left, "x"), ("right", right, "x_right")):
        gathered = table["x"].take(found["pairs"][side])
        assert sorted(found["rows"][name].to_pylist()) == sorted(gathered.to_pylist())


@pytest.mark.parametrize("threads", [1, 4])
def test_joins_on_different_threads_do_not_disturb_each_other(threads):
    def work(seed):
        counts = []
        options = {"how": "full", "output": "count", "cores": threads, "route": "single"}
        with wm.StreamJoin("abs(l.x - r.x) <= 20", wm.within(5000), **options) as join:
            for number in range(20):
                left = rows(number * 1000, 1000, seed + 2 * number)
                right = rows(number * 1000, 1000, seed + 2 * number + 1)
                counts.append(join.push(left=left, right=right))
            counts.append(join.close())
        return counts

    alone = [work(seed) for seed in (0, 1000, 2000)]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, (0, 1000, 2000))) == alone
