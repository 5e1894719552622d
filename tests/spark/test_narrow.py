"""Batches come back from their narrow form as they were."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.spark.narrow import narrowed, widened

INT64 = np.iinfo(np.int64)
EDGES = [INT64.min, INT64.max, 0, -1, 255, 256, 65535, 65536, 2**32 - 1, 2**32]
KINDS = [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("ms"), pa.time64("us")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(
    base=st.sampled_from([0, 10**9, INT64.min, INT64.max - 2**33]),
    offsets=st.lists(st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**33]), max_size=8),
    cut=st.integers(0, 3),
)
def test_64_bits_of_any_range_come_back(kind, base, offsets, cut):
    values = np.array([base + offset for offset in offsets], np.int64)
    column = pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)])
    batch = pa.record_batch([column], names=["a"]).slice(cut)
    assert widened(narrowed(batch), batch.schema) == batch


@given(values=st.lists(st.one_of(st.none(), st.sampled_from(EDGES)), max_size=8))
def test_nulls_and_extremes_come_back(values):
    batch = pa.record_batch([pa.array(values, pa.int64())], names=["a"])
    assert widened(narrowed(batch), batch.schema) == batch


def test_all_other_columns_come_back_beside():
    batch = pa.record_batch(
        {
            "a": pa.array([1, 2, 3]),
            "text": ["x", None, "z"],
            "list": [[1], [], None],
            "struct": [{"p": 1}, {"p": None}, None],
            "day": [datetime.date(2026, 1, 1)] * 3,
            "price": [decimal.Decimal("1.25")] * 3,
            "f": [1.5, float("nan"), None],
            "u": pa.array([0, 2**64 - 1, 7], pa.uint64()),
            "b": [True, None, False],
        }
    )
    for part in (batch, batch.slice(1), batch.slice(0, 0)):
        back = widened(narrowed(part), part.schema)
        assert back.schema == part.schema and str(back.to_pylist()) == str(part.to_pylist())


def test_it_is_narrower():
    ticks = 1_767_225_600_000_000 + 20 * np.arange(100_000)
    batch = pa.record_batch({"ts": ticks, "key": np.arange(100_000) % 1000, "wide": ticks * 1_000_000})
    wide, narrow = batch.serialize().size, len(narrowed(batch))
    assert narrow < wide * (4 + 2 + 8) / 24 + 1000
