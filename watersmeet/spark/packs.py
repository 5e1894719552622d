"""Packs: many tuples as one row.

Spark's Python stages cost about a microsecond a row and cell; a row that is the Arrow form of a hundred thousand
tuples costs as much as one. So tuples are packed once, before the shuffle, and stay packed until they are results.

    core     grouping key of the join core it goes to
    side     0 left, 1 right
    home     whether the tuples are at home in that core; else they are copies
    ts       greatest event time in it (of the whole portion, for a pack without tuples)
    blob     tuples, with numbers in few bytes (narrow.py); the schema is the plan's
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

PACK = StructType(
    [
        StructField("core", IntegerType(), False),
        StructField("side", ByteType(), False),
        StructField("home", BooleanType(), False),
        StructField("ts", TimestampType(), False),
        StructField("blob", BinaryType(), False),
    ]
)
PACK_ARROW = pa.schema(
    [
        ("core", pa.int32()),
        ("side", pa.int8()),
        ("home", pa.bool_()),
        ("ts", pa.timestamp("us", "UTC")),
        ("blob", pa.binary()),
    ]
)

#: What the joiner hands to the stage behind it: where the results lie, and what is to be counted.
COUNTERS = (
    "rows_left", "rows_right", "late_left", "late_right", "rows_out", "stored_left", "stored_right", "runs",
    "rebuilt_runs",
)  # fmt: skip
RESULT = StructType(
    [StructField("path", StringType(), True), *(StructField(name, LongType(), False) for name in COUNTERS)]
)

#: A pack has at most about this many bytes. Packs travel to the joiner in Arrow batches, whose columns of bytes end at
#: 2 GiB: Spark ends a batch at 64 MiB, but 4.0 puts all of a partition's packs of one micro-batch into one.
PACK_BYTES = 16 << 20


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
