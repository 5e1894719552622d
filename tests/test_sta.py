"""STA as in its paper: it may miss pairs until cold keys are shared, and never invents one; with sync=0 it is exact."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm

WINDOW = wm.within(40, 25)


def stream(seed: int, rows: int = 500, drift: bool = False) -> pa.Table:
    """Zipf keys, some null; with drift, others are hot in every third of it. Times are in order, many shared."""
    pick = np.random.default_rng(seed)
    keys = np.minimum(pick.zipf(1.6, rows), 300)
    if drift:
        keys = (keys + 97 * (np.arange(rows) * 3 // rows)) % 301
    ts = np.sort(pick.integers(0, 300, rows))
    nulls = pick.random(rows) < 0.02
    return pa.table({"id": np.arange(rows), "ts": ts, "k": pa.array(keys, mask=nulls)})


def found(on, left, right, route, step=125, self_join=False, **options):
    pairs: Counter = Counter()
    with wm.StreamJoin(on, WINDOW, route=route, self_join=self_join, **options) as join:
        for start in range(0, left.num_rows, step):
            one, other = left.slice(start, step), right.slice(start, step)
            answer = join.push(one) if self_join else join.push(left=one, right=other)
            pairs.update(zip(answer["id"].to_pylist(), answer["id_right"].to_pylist(), strict=True))
            join.check_invariants()
        return pairs, join.completeness(), join.metrics, join.explain()


def truth(on, left, right):
    holds = {"l.k > r.k": np.greater, "abs(l.k - r.k) <= 2": lambda a, b: np.abs(a - b) <= 2}[on]
    (a, b), (s, t) = ([np.asarray(side[name].fill_null(0)) for side in (left, right)] for name in ("k", "ts"))
    some = np.asarray(left["k"].is_valid())[:, None] & np.asarray(right["k"].is_valid())[None, :]
    apart = t[None, :] - s[:, None]
    where = np.nonzero(holds(a[:, None], b[None, :]) & some & (apart >= -40) & (apart <= 25))
    return Counter(zip(*(each.tolist() for each in where), strict=True))


@pytest.mark.parametrize("on", ["l.k > r.k", "abs(l.k - r.k) <= 2"])
@pytest.mark.parametrize("drift", [False, True])
def test_shared_at_once_it_is_exact(on, drift):
    left, right = stream(1, drift=drift), stream(2, drift=drift)
    pairs, complete, metrics, text = found(on, left, right, wm.STA(sync=0, verify=True), cores=5)
    assert pairs == truth(on, left, right) and pairs.total() > 3_000
    assert complete == 1.0
    assert "route: sta over 5 elements" in text and "so nothing is missed" in text
    assert sum(metrics.loads) == 1000 and metrics.probes[:2] == [1000, 1000]
    assert sum(metrics.probes[2:]) == 1000, "and one other each"


@pytest.mark.parametrize("drift", [False, True])
def test_shared_later_it_misses_pairs_and_says_how_many(drift):
    left, right = stream(3, drift=drift), stream(4, drift=drift)
    right_answer = truth("l.k > r.k", left, right)
    completes = []
    for sync in (0, 30, 1000):
        pairs, complete, metrics, text = found("l.k > r.k", left, right, wm.STA(sync=sync, verify=True), cores=10)
        assert not pairs - right_answer, "invented"
        assert complete == pairs.total() / right_answer.total()
        assert ("MAY MISS PAIRS" in text) == (sync > 0)
        assert abs(metrics.loads[0] - metrics.loads[1]) <= 1, "hot ones by turns"
        assert metrics.hot_share > 0.5
        completes.append(complete)
    assert completes[0] == 1.0 and completes == sorted(completes, reverse=True)
    assert completes[-1] < 0.97


def test_a_self_join_by_name():
    left = stream(5)
    pairs, *_ = found("l.k > r.k", left, left, wm.STA(sync=0, verify=True), self_join=True)
    assert pairs == truth("l.k > r.k", left, left)
    some, _, metrics, _ = found("l.k > r.k", left, left, wm.STA(verify=True), self_join=True)
    assert not some - pairs and len(metrics.loads) == 10, "the paper's standard"
    with wm.StreamJoin("l.k > r.k", WINDOW, route="sta") as join:
        join.push(left=left, right=left)
        with pytest.raises(ValueError, match=r"use route=STA\(verify=True\)"):
            join.completeness()


def test_a_push_that_fails_changes_nothing(monkeypatch):
    left, right = stream(6), stream(7)
    with wm.StreamJoin("l.k > r.k", WINDOW, route=wm.STA(sync=7, seed=3), output="count") as join:
        first = join.push(left=left.slice(0, 200), right=right.slice(0, 200))
        second = join.push(left=left.slice(200), right=right.slice(200))
        assert first > 0 and second > 0
    with wm.StreamJoin("l.k > r.k", WINDOW, route=wm.STA(sync=7, seed=3), output="count") as join:
        assert join.push(left=left.slice(0, 200), right=right.slice(0, 200)) == first
        step, share = join._core.step, join._core._share
        for at in (1, 2, 5):  # within its work
            calls = iter(range(at))

            def fails(calls=calls):
                if next(calls, None) is None:
                    raise MemoryError
                return share()

            monkeypatch.setattr(join._core, "_share", fails)
            with pytest.raises(MemoryError):
                join.push(left=left.slice(200), right=right.slice(200))
            monkeypatch.setattr(join._core, "_share", share)
            join.check_invariants()
        # And behind all of it.
        monkeypatch.setattr(join._core, "step", lambda *arguments: (step(*arguments), 1 / 0))
        with pytest.raises(ZeroDivisionError):
            join.push(left=left.slice(200), right=right.slice(200))
        monkeypatch.setattr(join._core, "step", step)
        assert join.push(left=left.slice(200), right=right.slice(200)) == second, "as if none had been"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"how": "left"}, "is for inner joins, not for how='left'"),
        ({"output": "pairs"}, "cannot give output='pairs'"),
        ({"order": "outer"}, "has no order"),
        ({"on": "l.k = r.k"}, "needs an inequality or band"),
        ({"window": wm.last(5)}, "a window of the last n tuples has none"),
        ({"cores": 2}, "cores >= 3, got 2"),
    ],
)
def test_what_it_is_not_for(options, message):
    schema = stream(1).schema
    given = {"on": "l.k > r.k", "window": WINDOW, "route": "sta", "left_schema": schema, "right_schema": schema}
    with pytest.raises(ValueError, match=message):
        wm.StreamJoin(**(given | options))


def test_sync_is_a_length_of_time():
    schema = stream(1).schema
    with pytest.raises(TypeError, match="sync must be a number such as 10 for time columns of type int64"):
        wm.StreamJoin("l.k > r.k", WINDOW, route=wm.STA(sync="1 second"), left_schema=schema, right_schema=schema)
    with pytest.raises(ValueError, match="sync"):
        wm.STA(sync=-1)
