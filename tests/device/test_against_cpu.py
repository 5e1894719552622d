"""Random streams through the same join on the device and on the CPU: large on hardware, tiny on the simulator.

Predicates are objects, so that this also runs where sqlglot is not installed.
"""

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.device.cuda import SIMULATED
from watersmeet.engine.join import StreamJoin
from watersmeet.query.expr import Call, Column, Constant
from watersmeet.query.windows import hopping, last, tumbling, within

ROWS, BATCH = (60, 10) if SIMULATED else (300_000, 30_000)
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int64(), "k": pa.int64(), "f": pa.float64()})


def column(side, name):
    return Column(side, name)


def close(name, by):
    distance = Call("abs", (Call("-", (column("l", name), column("r", name))),))
    return Call("<=", (distance, Constant(by)))


EQUAL = Call("=", (column("l", "k"), column("r", "k")))
ON = {
    "equality": Call("=", (column("l", "x"), column("r", "x"))),
    "band": close("x", 1),
    "band of doubles": close("f", 0.4),
    "equality and band": Call("and", (EQUAL, close("x", 40))),
    "inequalities": Call(
        "and", (Call("<", (column("l", "x"), column("r", "x"))), Call(">=", (column("l", "k"), column("r", "k"))))
    ),
}
WINDOWS = {
    "last": last(ROWS // 5, ROWS // 4),
    "within": within(ROWS // 6, ROWS // 8),
    "within, out of order": within(ROWS // 6, ROWS // 8, lateness=ROWS // 20),
    "tumbling": tumbling(ROWS // 5),
    "hopping": hopping(ROWS // 4, ROWS // 12),
}


def stream(seed, late):
    """Keys are few enough for some partners a tuple."""
    rng = np.random.default_rng(seed)
    ts = np.arange(ROWS) - (rng.integers(0, late + 1, ROWS) if late else 0)
    x = rng.integers(0, ROWS // 8, ROWS)
    columns = {"ts": ts, "x": x, "k": rng.integers(0, 50, ROWS), "f": x + rng.random(ROWS)}
    table = pa.RecordBatch.from_arrays([pa.array(columns[name]) for name in SCHEMA.names], schema=SCHEMA)
    return [table.slice(start, BATCH) for start in range(0, ROWS, BATCH)]


def outcome(device, on, window, how, batches, output="pairs"):
    options = {"left_schema": SCHEMA, "right_schema": SCHEMA, "output": output, "device": device}
    answers = []
    with StreamJoin(on, window, how, **options) as join:
        for left, right in batches:
            answers.append(join.push(left=left, right=right))
        if device == "gpu":
            join.check_invariants() if SIMULATED else None
            assert "device: gpu" in join.explain()
        answers.append(join.close())
    return answers


def in_order(table):
    columns = [table.column(name).fill_null(-1).to_numpy() for name in table.column_names]
    return np.stack(columns)[:, np.lexsort(columns[::-1])]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("on", [name for name in ON if name != "inequalities"])
def test_inner_joins_are_the_same(on, window):
    late = ROWS // 20 if "out of order" in window else 0
    batches = list(zip(stream(1, late), stream(2, late), strict=True))
    ours, theirs = (outcome(device, ON[on], WINDOWS[window], "inner", batches) for device in ("gpu", "cpu"))
    assert sum(one.num_rows for one in theirs) > ROWS // 10
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(in_order(one), in_order(other))


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("window", ["last", "within, out of order"])
def test_other_joins_are_the_same(how, window):
    late = ROWS // 20 if "out of order" in window else 0
    batches = list(zip(stream(3, late), stream(4, late), strict=True))
    on = ON["equality and band"]
    ours, theirs = (outcome(device, on, WINDOWS[window], how, batches) for device in ("gpu", "cpu"))
    assert sum(one.num_rows for one in theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(in_order(one), in_order(other))


@pytest.mark.parametrize("on", ON)
def test_counts_and_rows_are_the_same(on):
    few = 3 if on == "inequalities" else None  # these have very many results
    batches = list(zip(stream(5, 0), stream(6, 0), strict=True))[:few]
    window = last(ROWS // 5 if few is None else min(ROWS // 5, 2000))
    counts = [outcome(device, ON[on], window, "inner", batches, "count") for device in ("gpu", "cpu")]
    assert counts[0] == counts[1] and sum(counts[0]) > 0
    if few is None:
        rows = [outcome(device, ON[on], window, "inner", batches, "rows") for device in ("gpu", "cpu")]
        names = [(name, "ascending") for name in rows[0][0].column_names]
        for one, other in zip(*rows, strict=True):
            assert one.sort_by(names).equals(other.sort_by(names))


@pytest.mark.skipif(SIMULATED, reason="too much for the simulator")
def test_a_thousand_million_results_are_the_same_in_number():
    on = Call("<", (column("l", "x"), column("r", "x")))
    batches = list(zip(stream(7, 0), stream(8, 0), strict=True))[:4]
    counts = [outcome(device, on, last(30_000), "inner", batches, "count") for device in ("gpu", "cpu")]
    assert counts[0] == counts[1]
    assert sum(counts[0]) > 10**9


@pytest.mark.skipif(SIMULATED, reason="too much for the simulator")
def test_small_batches_beside_a_large_window_go_through_the_buffer():
    rng = np.random.default_rng(9)
    schema = pa.schema({"x": pa.int64()})

    def some(n):
        return pa.record_batch({"x": rng.integers(0, 1 << 23, n)})

    pushes = [(some(5_000_000), some(5_000_000)), *((some(2000), some(1000)) for _ in range(30))]
    answers = []
    for device in ("gpu", "cpu"):
        options = {"left_schema": schema, "right_schema": schema, "output": "pairs", "device": device}
        with StreamJoin(close("x", 1), last(5_010_000), **options) as join:
            join.push(*pushes[0])
            answers.append([in_order(join.push(*push)) for push in pushes[1:]])
            if device == "gpu":
                structure = join._core.chains["left"].subwindows[-1].structure
                assert structure._runs[1].size > 0
    for one, other in zip(*answers, strict=True):
        assert np.array_equal(one, other)
