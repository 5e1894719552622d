"""Arrivals are cut, and late rows kept, as if they were plain lists."""

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.engine.arrival import Arrival
from watersmeet.engine.arrivals import Clock, Collected
from watersmeet.engine.late import LateRows
from watersmeet.window.ticks import span_of


@pytest.mark.parametrize("late", [False, True])
def test_a_slice_has_its_rows_and_no_others(late):
    n = 7
    ticks = np.array([3, 1, 4, 1, 5, 9, 2])
    batch = pa.record_batch({"row": np.arange(n)})
    mask = np.arange(n) % 3 == 0 if late else None
    whole = Arrival(batch, ticks, span_of(ticks), mask, lambda: (ticks - 10, ticks + 10))
    for start in range(n):
        for stop in range(start + 1, n + 1):
            cut = whole.slice(start, stop)
            rows = list(range(start, stop))
            assert cut.batch["row"].to_pylist() == rows and cut.ticks.tolist() == ticks[rows].tolist()
            assert (cut.low.tolist(), cut.high.tolist()) == ((ticks - 10)[rows].tolist(), (ticks + 10)[rows].tolist())
            assert cut.span == span_of(ticks[rows])
            assert (cut.late is None) == (mask is None) and (mask is None or cut.late.tolist() == mask[rows].tolist())


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 8, 100])
def test_the_newest_late_rows_are_kept_up_to_the_limit(limit):
    kept = LateRows(limit)
    schema = pa.schema({"x": pa.int64()})
    rows, taken = [], []
    rng = np.random.default_rng(limit)
    for step in range(60):
        saved = kept.save()
        new = [int(x) for x in rng.integers(0, 100, rng.integers(1, 7))]
        late = rng.random(len(new)) < 0.7
        kept.add(pa.record_batch({"x": [-1, -2]}), np.array([True, True]))
        kept.restore(saved)  # as if it had not been added
        kept.add(pa.record_batch({"x": new}), late)
        rows = [*rows, *(x for x, is_late in zip(new, late, strict=True) if is_late)][-limit:] if limit else []
        if step % 7 == 6:
            taken.append(kept.take(schema)["x"].to_pylist())
            assert taken[-1] == rows
            rows = []
    assert any(taken) == (limit > 0)


def test_a_time_beyond_int64_is_refused_wherever_it_stands():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    for times in ([1, 2**63, 3], [2**64 - 1, 1], [1, 2**63]):
        with pytest.raises(ValueError, match="values beyond int64"):
            join.push(left=pa.table({"ts": pa.array(times, pa.uint64()), "k": [1] * len(times)}))


@pytest.mark.parametrize("sizes", [(2,), (2, 3), (4, 1), (100,)])
@pytest.mark.parametrize("order", ["left right", "right left", "right left right", "left right left", "left", "right"])
def test_bounds_that_are_told_as_one_value_are_the_same(order, sizes):
    schema = pa.schema({"x": pa.int64()})
    window = wm.last(*sizes).bind(schema, schema)
    clock = Clock(window)
    both = Collected(window), Collected(window, flat=True)
    for side in order.split():
        batch = pa.record_batch({"x": range(5)})
        for name, pushed in clock.push({side: batch}).items():
            for collected in both:
                collected.add(name, pushed)
    plain, flat = ({side: (one.low.tolist(), one.high.tolist()) for side, one in group.items()} for group in (
        both[0].take()[0], both[1].take()[0]
    ))  # fmt: skip
    assert plain == flat and set(plain) == set(order.split())
