"""State stays bounded: what leaves the window leaves memory, index, payload and bookkeeping alike."""

import gc
import os
import weakref

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm

WINDOWS = 200  # windows' worth of data in a run
PER_WINDOW = 1000  # rows a side in one window
PUSHES = 2  # pushes a side in one window


def rows(start, n, seed, payload=16):
    """n rows from time `start`, one per unit of time."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(np.arange(start, start + n)),
            "k": pa.array(rng.integers(0, 500, n)),
            "x": pa.array(rng.integers(0, 100_000, n)),
            "note": pa.array([f"{i:0{payload}}" for i in range(n)], pa.string()),
        }
    )


def resident():
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


SPECS = {
    "within": lambda: wm.within(PER_WINDOW),
    "within one way": lambda: wm.within(0, PER_WINDOW),
    "within late": lambda: wm.within(PER_WINDOW // 2, lateness=PER_WINDOW // 2),
    "last": lambda: wm.last(PER_WINDOW),
    "tumbling": lambda: wm.tumbling(PER_WINDOW),
    "hopping": lambda: wm.hopping(PER_WINDOW, PER_WINDOW // 3),
}


def sample(join):
    gc.collect()
    metrics = join.metrics
    return {
        "stored": metrics.stored_left + metrics.stored_right,
        "index": metrics.index_bytes,
        "payload": metrics.payload_bytes,
        "arrow": pa.total_allocated_bytes(),
        "resident": resident(),
    }


def run_for_long(join, push):
    """Samples taken in the first fifth (after warming up) and in the last fifth of a run."""
    early, late = [], []
    for number in range(WINDOWS):
        for part in range(PUSHES):
            push(join, number * PER_WINDOW + part * PER_WINDOW // PUSHES, PER_WINDOW // PUSHES)
        if number % 5 == 0 and WINDOWS // 10 <= number < WINDOWS // 5:
            early.append(sample(join))
        elif number % 5 == 0 and number >= WINDOWS - WINDOWS // 10:
            late.append(sample(join))
    return early, late


def assert_flat(early, late):
    # a subwindow more or less, as the window's edge moves over the pushes; a leak would be a hundred windows
    slack = {
        "stored": PER_WINDOW,
        "index": 64 << 10,
        "payload": 64 << 10,
        "arrow": 1 << 20,
        "resident": 24 << 20,
    }
    for what, bytes_ in slack.items():
        first = max(taken[what] for taken in early)
        last = max(taken[what] for taken in late)
        assert last <= first * 1.1 + bytes_, f"{what} grew from {first:,} to {last:,}"
    # and it is the window that is kept, not a multiple of it
    assert max(taken["stored"] for taken in late) <= 2 * 4 * PER_WINDOW


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "how"),
    [(spec, "full") for spec in SPECS] + [("within", "inner"), ("last", "semi")],
)
def test_memory_is_flat_over_200_windows(spec, how):
    pool = {seed: rows(0, PER_WINDOW // PUSHES, seed) for seed in range(4)}

    def push(join, start, n):
        for side, seed in (("left", start % 2), ("right", 2 + start % 2)):
            ts = pa.array(np.arange(start, start + n))
            # fresh copies: shared buffers would hide a leak of payload
            batch = pool[seed].set_column(0, "ts", ts).take(np.arange(n))
            join.push(**{side: batch})

    with wm.StreamJoin("l.k = r.k and abs(l.x - r.x) <= 500", SPECS[spec](), how, cores=1) as join:
        assert_flat(*run_for_long(join, push))
        join.check_invariants()


@pytest.mark.parametrize(("idle", "how"), [("left", "full"), ("right", "inner")])
def test_memory_is_flat_while_one_side_is_idle_and_its_time_is_advanced(idle, how):
    busy = "right" if idle == "left" else "left"
    data = rows(0, PER_WINDOW // PUSHES, 0)

    def push(join, start, n):
        ts = pa.array(np.arange(start, start + n))
        join.push(**{busy: data.set_column(0, "ts", ts).take(np.arange(n))})
        join.advance(**{idle: start + n})

    schemas = {"left_schema": data.schema, "right_schema": data.schema}
    with wm.StreamJoin("l.k = r.k", wm.within(PER_WINDOW), how, cores=1, **schemas) as join:
        assert_flat(*run_for_long(join, push))


def test_late_tuples_are_kept_up_to_a_limit():
    schema = rows(0, 0, 0).schema
    options = {"left_schema": schema, "right_schema": schema, "keep_late": 100, "output": "count"}
    join = wm.StreamJoin("l.k = r.k", wm.within(10), **options)
    join.advance(left=10_000, right=10_000)
    for number in range(50):
        join.push(left=rows(number, 10, number))
    assert join.metrics.late_left == 500
    assert join.take_late("left").num_rows == 100


@pytest.mark.parametrize("index", ["hash", "bisort", "btree", "frozen_btree", "im_tree", "pim_tree", "nested_loop"])
@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize("window", [wm.within(10**9), wm.last(200_000)], ids=["within", "last"])
@pytest.mark.parametrize("output", ["count", "rows"])
def test_a_stored_tuple_costs_at_most_40_bytes_beyond_its_payload_and_a_compared_key(index, how, window, output):
    n, batch = 200_000, 20_000
    rng = np.random.default_rng(1)
    join = wm.StreamJoin("l.k = r.k and abs(l.x - r.x) <= 1", window, how, index=index, output=output)
    live = pa.total_allocated_bytes()
    for start in range(0, n, batch):
        for side, sign in (("left", 1), ("right", -1)):  # keys that never meet
            if index == "nested_loop" and start >= batch:
                continue  # it would take for ever
            columns = {"ts": np.arange(start, start + batch), "k": sign * (1 + rng.permutation(batch))}
            columns["x"] = sign * rng.integers(1, 10**9, batch)
            join.push(**{side: pa.table(columns)})
    metrics = join.metrics
    stored = metrics.stored_left + metrics.stored_right
    assert stored == 2 * (n if index != "nested_loop" else batch)
    compared = "by keys" in join.explain()  # which is in the index, or beside it
    assert metrics.index_bytes <= (48 if compared else 40) * stored
    payload = stored * 3 * 8
    assert metrics.payload_bytes <= 1.1 * payload
    assert pa.total_allocated_bytes() - live <= 1.1 * payload + (1 << 20)


@pytest.mark.parametrize("width", [32, 64])
def test_payload_is_kept_by_reference_and_freed_as_its_subwindow_expires(width):
    """Of 8-byte columns only a copy is kept."""
    n = 20_000  # small batches may be copied together, large ones are kept as they are
    integer = {32: pa.int32(), 64: pa.int64()}[width]
    schema = pa.schema({"ts": integer, "x": integer})
    options = {"left_schema": schema, "right_schema": schema, "subwindow_rows": n}
    join = wm.StreamJoin("l.x = r.x", wm.within(10 * n), **options)
    references = []
    for number in range(20):
        values = np.arange(number * n, number * n + n, dtype=integer.to_pandas_dtype())
        references.append(weakref.ref(values))
        join.push(left=pa.table({"ts": values, "x": pa.array(values)}))
        join.advance(right=number * n)
        del values
    gc.collect()
    alive = [reference() is not None for reference in references]
    # the watermark stands at 19 n: only times from 9 n on can still meet anything
    assert not any(alive[: 7 if width == 32 else 20])
    assert width == 64 or all(alive[10:])


def test_a_closed_join_holds_nothing():
    big = rows(0, 50_000, 0, payload=100)
    gc.collect()
    live = pa.total_allocated_bytes()
    join = wm.StreamJoin("l.k = r.k", wm.within(10**6), "left", right_schema=big.schema)
    join.push(left=big.take(np.arange(50_000)))
    assert pa.total_allocated_bytes() - live > 5_000_000
    assert join.close().num_rows == 50_000
    gc.collect()
    assert pa.total_allocated_bytes() - live < 1_000_000
    assert join.metrics.stored_left == 0


def test_results_do_not_hold_the_window():
    """A caller may keep a small result for ever without keeping the batches it came from."""
    big = rows(0, 50_000, 0, payload=100)
    live = pa.total_allocated_bytes()
    join = wm.StreamJoin("l.x = r.x and l.ts = r.ts", wm.within(10))
    join.push(left=big.take(np.arange(50_000)))
    kept = join.push(right=big.slice(49_995, 5).take(np.arange(5)))
    assert kept.num_rows == 5
    join.close()
    del join
    gc.collect()
    assert pa.total_allocated_bytes() - live < 1_000_000
