"""Nasty columns for the tests of predicates: extremes, duplicates, nulls, neighbours in the last place."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

NAN, INF = float("nan"), float("inf")
TOP, BOTTOM = 2**63 - 1, -(2**63)

INTS = [0, 1, 2, 3, -1, -2, 5, 7, TOP, TOP - 1, BOTTOM, BOTTOM + 1, 2**53, 2**53 + 1]
FLOATS = [
    0.0,
    -0.0,
    1.0,
    1.5,
    2.0,
    -1.0,
    0.05,
    0.1,
    0.15000000000000002,
    5.0,
    NAN,
    INF,
    -INF,
    1.7e308,
    -1.7e308,
    5e-324,
]
FLOATS += [2.0**53, 2.0**53 + 2, 9.3e18]

COLUMNS: dict[str, tuple[pa.DataType, list]] = {
    "a": (pa.int64(), INTS),
    "b": (pa.int32(), [0, 1, 2, 3, -1, 5, 2**31 - 1, -(2**31)]),
    "u": (pa.uint64(), [0, 1, 2, 3, 2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1]),
    "v": (pa.uint8(), [0, 1, 2, 3, 255]),
    "d": (
        pa.decimal128(10, 2),
        [Decimal(v) for v in ("0.00", "1.00", "1.50", "2.00", "-1.00", "0.05", "99999999.99")],
    ),
    "e": (
        pa.decimal128(38, 5),
        [Decimal(v) for v in ("0", "1", "1.50000", "1.49999", "-1", "1e32", "-1e32", "9223372036854775807")],
    ),
    "x": (pa.float64(), FLOATS),
    "y": (pa.float64(), FLOATS),
    "f": (
        pa.float32(),
        [np.float32(v) for v in (0.0, -0.0, 1.0, 1.5, 0.1, 0.2, NAN, INF, -INF, 3.0e38, 16777216.0)],
    ),
    "s": (pa.string(), ["", "a", "b", "ab", "abcdefgh", "abcdefghi", "abcdefgh\0", "é", "\0", "Z"]),
    "k": (pa.dictionary(pa.int32(), pa.string()), ["", "a", "ab", "abcdefgh", "abcdefghj"]),
    "z": (pa.binary(), [b"", b"\0", b"\xff", b"abcdefgh", b"abcdefgh\xff"]),
    "flag": (pa.bool_(), [True, False]),
    "t0": (pa.timestamp("s"), [0, 1, 2, -1, 60, TOP, BOTTOM]),
    "t6": (pa.timestamp("us"), [0, 1, 10**6, 10**6 + 1, -1, 2 * 10**6, TOP, BOTTOM]),
    "t9": (pa.timestamp("ns"), [0, 1, 10**9, 10**9 + 1, -1, 2 * 10**9, TOP, BOTTOM]),
    "zs": (pa.timestamp("ms", "UTC"), [0, 1, 1000, -1, 86_400_000, TOP, BOTTOM]),
    "tod": (pa.time64("us"), [0, 1, 10**6, 86_400 * 10**6 - 1]),
    "d64": (pa.date64(), [0, 86_400_000, -86_400_000, 86_400_000 * 106_751_991_167]),
    "day": (pa.date32(), [0, 1, 2, -1, 19723, 2**31 - 1, -(2**31)]),
    "span": (pa.duration("ms"), [0, 1, 1000, 2000, -1000, 86_400_000, TOP]),
    "none": (pa.null(), [None]),
}
SCHEMA = pa.schema([(name, arrow) for name, (arrow, _) in COLUMNS.items()])


def array(arrow: pa.DataType, values: list) -> pa.Array:
    if pa.types.is_temporal(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        return pa.array(values, width).view(arrow)
    if pa.types.is_dictionary(arrow):
        return pa.array(values, arrow.value_type).dictionary_encode()
    return pa.array(values, arrow)


def batch(columns: dict[str, list]) -> pa.RecordBatch:
    arrays = [array(COLUMNS[name][0], columns[name]) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@st.composite
def batches(draw, most: int = 5) -> pa.RecordBatch:
    size = draw(st.integers(0, most))
    chance = draw(st.sampled_from([0, 0, 4]))
    columns = {}
    seed = np.random.default_rng(draw(st.integers(0, 2**32)))
    for name, (_, pool) in COLUMNS.items():
        picked = [pool[k] for k in seed.integers(0, len(pool), size)]
        columns[name] = [None if chance and seed.integers(0, chance) == 0 else v for v in picked]
    whole = batch(columns)
    cut = draw(st.integers(0, 1))
    return whole.slice(cut) if size else whole  # offsets in every buffer


SECOND = datetime.timedelta(seconds=1)
