"""Packs: many tuples as one row.

Spark's Python stages cost about a microsecond a row and cell; a row that is the Arrow form of a hundred thousand
tuples costs as much as one. So tuples are packed once, before the shuffle, and stay packed until they are results.

    core     grouping key of the join core it goes to
    side     0 left, 1 right
    home     whether the tuples are at home in that core (HOME), or are copies (COPIES); or those of both (ALL): then
             every core gets the same blob, and finds out which tuples are its own; or hot tuples (HOT): likewise, and
             which of them it keeps where (routing/spread.py)
    ts       greatest event time in it (of the whole portion, for a pack without tuples), as it travels (clock.py)
    bad      rows that were left out beside it, since they have no time (bad_rows.py)
    blob     tuples, with numbers in few bytes (narrow.py); the schema is the plan's
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from watersmeet.query.windows import SIDES, Side
from watersmeet.spark.narrow import narrowed
from watersmeet.spark.spec import JoinSpec

PACK = StructType(
    [
        StructField("core", IntegerType(), False),
        StructField("side", ByteType(), False),
        StructField("home", ByteType(), False),
        StructField("ts", TimestampType(), False),
        StructField("bad", LongType(), False),
        StructField("blob", BinaryType(), False),
    ]
)
PACK_ARROW = pa.schema(
    [
        ("core", pa.int32()),
        ("side", pa.int8()),
        ("home", pa.int8()),
        ("ts", pa.timestamp("us", "UTC")),
        ("bad", pa.int64()),
        ("blob", pa.binary()),
    ]
)
COPIES, HOME, ALL, HOT = range(4)

#: The name under which a join's counters are observed, unless another is given.
OBSERVED = "watersmeet"
#: What the joiner hands to the stage behind it: where the results lie, and what is to be counted.
COUNTERS = (
    "rows_left", "rows_right", "late_left", "late_right", "bad_left", "bad_right", "rows_out", "stored_left",
    "stored_right", "stored_bytes", "runs", "rebuilt_runs", "probes", "hot_left", "hot_right",
)  # fmt: skip
#: The name of what each core tells of its load (stores.py), and of how many cores it is observed.
LOADS = "loads"
SHOWN_CORES = 64
RESULT = StructType(
    [
        StructField("path", StringType(), True),
        *(StructField(name, LongType(), False) for name in COUNTERS),
        StructField("core", LongType(), False),
        StructField("about", StringType(), True),  # a core's load and what is hot there (stores.py)
    ]
)

#: A pack has at most about this many bytes. Packs travel to the joiner in Arrow batches, whose columns of bytes end at
#: 2 GiB: Spark ends a batch at 64 MiB, but 4.0 puts all of a partition's packs of one micro-batch into one.
PACK_BYTES = 16 << 20


def pack(spec: JoinSpec, side: Side, core: int, home: int, micros: int, blob: bytes, bad: int = 0) -> pa.RecordBatch:
    """One pack; its blob by reference."""
    offsets = pa.py_buffer(np.array([0, len(blob)], np.int32))
    columns = [
        pa.array([spec.keys[core]], pa.int32()),
        pa.array([SIDES.index(side)], pa.int8()),
        pa.array([home], pa.int8()),
        pa.array([micros], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([bad], pa.int64()),
        pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(blob)]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACK_ARROW)


def nothing(schema: pa.Schema) -> bytes:
    """The blob of a pack without tuples."""
    return narrowed(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))


def pieces(batch: pa.RecordBatch, most: int = PACK_BYTES) -> Iterator[pa.RecordBatch]:
    """A batch cut into pieces of at most about this many bytes."""
    rows = batch.num_rows
    count = max(1, -(-batch.nbytes // most))
    step = max(1, -(-rows // count))
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def portions(batches: list[pa.RecordBatch], most: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches that follow each other, as many at a time as have at most so many bytes together; at least one."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if held and size + batch.nbytes > most:
            yield held
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield held


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema, at least one, as one."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(arrays) for arrays in zip(*(b.columns for b in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
