"""Tuples come back as they were pushed, by row or by reference, whatever has been let go of."""

import gc

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.window import chunks
from watersmeet.window.payload import Payload
from watersmeet.window.rows import MOST_WORDS, Rows
from watersmeet.workers import ALONE, Workers

SCHEMA = pa.schema({
    "a": pa.int64(), "b": pa.float64(), "c": pa.timestamp("us"), "d": pa.int32(), "e": pa.string(), "f": pa.bool_(),
    "g": pa.list_(pa.int64()), "h": pa.uint64(), "i": pa.decimal128(30, 2),
})  # fmt: skip


def batch(first, n, nulls, schema=SCHEMA):
    """Rows that tell their positions; of these columns every third is null."""
    at = np.arange(first, first + n)
    make = {
        "b": lambda: at / 2, "d": lambda: at % 1000, "e": lambda: [f"text {p}" for p in at], "f": lambda: at % 2 == 0,
        "g": lambda: [[int(p)] * (p % 3) for p in at],
    }  # fmt: skip
    columns = []
    for field in schema:
        column = pa.array(make.get(field.name, lambda: at)()).cast(field.type)
        if field.name in nulls:
            column = pc.if_else(pa.array(at % 3 == 0), pa.scalar(None, field.type), column)
        columns.append(column)
    padded = pa.RecordBatch.from_arrays([pa.concat_arrays([c[:1], c]) for c in columns], schema=schema)
    return padded.slice(1)  # buffers that do not begin with the first row


def ranges(positions):
    """Ascending positions as (first, one behind the last)."""
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [(int(run[0]), int(run[-1]) + 1) for run in runs if run.size]


steps = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 500, 1023, 1024, 1025, 3000]),
        st.sets(st.sampled_from("abceg"), max_size=2),
        st.lists(st.floats(0, 1), min_size=2, max_size=4, unique=True),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=steps, by_row=st.booleans(), seed=st.integers(0, 100))
def test_what_is_kept_comes_back(steps, by_row, seed):
    rng = np.random.default_rng(seed)
    payload = Payload(SCHEMA, ALONE, by_row)
    whole, held = [], np.arange(0)
    for n, nulls, cuts, expire in steps:
        new = batch(payload.end, n, nulls)
        whole.append(new)
        held = np.append(held, np.arange(payload.end, payload.end + n))
        payload.append(new)
        if expire:  # all but some ranges of what is held
            edges = sorted(int(cut * (held.size - 1)) for cut in cuts[: len(cuts) // 2 * 2])
            held = np.concatenate([held[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)])
            payload.retain(ranges(held))
        if held.size:
            positions = rng.choice(held, 50).astype(np.int64)
            expected = pa.Table.from_batches(whole).take(positions)
            found = payload.take(positions)
            for name, column in zip(SCHEMA.names, found, strict=True):
                column.validate(full=True)
                assert column.to_pylist() == expected.column(name).to_pylist(), name
            some = payload.take(positions, [3, 0])
            assert [column.to_pylist() for column in some] == [found[3].to_pylist(), found[0].to_pylist()]


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_over_many_huge_pages(threads):
    schema = pa.schema([SCHEMA.field(name) for name in "ab"])
    payload = Payload(schema, Workers(threads), by_row=True)
    n = 300_000
    for first in range(0, 10 * n, n):
        payload.append(batch(first, n, "b" if first == 4 * n else "", schema))
        payload.retain([(max(first - n, 0), first + n)])
        assert payload.nbytes() <= 3 * n * 24 + (4 << 20)  # half again is spare, and a slab of each is cut
        positions = np.random.default_rng(first).integers(max(first - n, 0), first + n, 50_000)
        a, b = payload.take(positions)
        assert np.array_equal(a.to_numpy(), positions)
        null = (4 * n <= positions) & (positions < 5 * n) & (positions % 3 == 0)
        assert b.equals(pa.array(positions / 2, mask=null))
    payload.retain([])
    assert payload.nbytes() == 0


def test_rows_go_though_a_tuple_far_behind_is_kept():
    payload = Payload(pa.schema([SCHEMA.field("a")]), ALONE, by_row=True)
    for first in range(0, 2_000_000, 20_000):
        payload.append(batch(first, 20_000, "", payload.schema))
        payload.retain([(7, 8), (max(first - 20_000, 8), first + 20_000)])
    assert payload.nbytes() < 2_000_000
    assert payload.take(np.array([7, 1_999_999]))[0].to_pylist() == [7, 1_999_999]


def test_wide_tables_are_not_copied():
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(MOST_WORDS + 1)])
    values = np.arange(5000)
    wide = pa.record_batch([pa.array(values)] * len(schema), schema=schema)
    payload = Payload(schema, ALONE, by_row=True)
    gc.collect()
    before = pa.total_allocated_bytes()
    payload.append(wide)
    assert pa.total_allocated_bytes() <= before
    assert payload.take(np.array([4999]))[-1].to_pylist() == [4999]


def test_a_small_stream_takes_little_memory():
    rows = Rows(3)
    columns = [np.arange(10, dtype=np.int64)] * 3
    rows.append(np.array([c.ctypes.data for c in columns]), 10)
    assert sum(slab.memory.nbytes for _, slab in rows._slabs) <= 24 * 1024


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("together", [1, 3])
def test_a_single_row_keeps_its_slab(offset, together):
    """The last of a block, the first, the second: they stay what they were while what is let go of is used again."""
    schema = pa.schema([SCHEMA.field(name) for name in "ab"])
    payload = Payload(schema, ALONE, by_row=True)
    kept: list[int] = []
    for step in range(24):
        first = payload.end
        payload.append(batch(first, 1024 * together, "", schema))
        kept += [p + offset for p in range(first + 1024, payload.end, 1024)] + [payload.end - 1]
        kept = kept[len(kept) // 2 :: 2] if step % 6 == 5 else kept
        positions = np.unique(np.array(kept, np.int64))
        payload.retain([(int(p), int(p) + 1) for p in positions])
        a, b = payload.take(positions)
        assert a.to_pylist() == positions.tolist()
        assert b.to_pylist() == (positions / 2).tolist()


def test_small_batches_are_joined_as_they_come_without_copying_all_of_them_every_time(monkeypatch):
    copied = []

    def joined(first, second):
        copied.append(first.num_rows + second.num_rows)
        return plain(first, second)

    plain = chunks._joined
    monkeypatch.setattr(chunks, "_joined", joined)
    kept = chunks.Chunks(pa.schema({"x": pa.int64()}))
    n = 3000
    for i in range(n):
        kept.append(pa.record_batch({"x": [i]}))
    assert n <= sum(copied) <= 2 * n * n.bit_length() and len(kept._chunks) <= 2 * n.bit_length()
    (column,) = kept.take(np.arange(n), [0], ALONE)
    assert column.to_pylist() == list(range(n))
