"""Numbers in as few bytes as they need.

Tuples are copied some twenty times on their way through the shuffle and into the state store, so bytes are time. Of a
pack's 64-bit columns (integers, times) the least value is kept apart and the rest as differences from it, of 1, 2 or 4
bytes: a few minutes of microseconds take 4, and so do most keys.

    ts    [1767225600000020, 1767225600000000, 1767225600000040]
          least 1767225600000000, differences [20, 0, 40] of one byte

    head     of each column: width of its differences (0: it is as it was) and its least value; a multiple of 64 bytes
    message  the columns so changed, as one Arrow IPC message

Columns with nulls, and those whose differences need more than 4 bytes, stay as they are. Cost: two passes a column.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

_COLUMN = struct.Struct("<Bq")
_WIDTHS = ((1, np.uint8), (2, np.uint16), (4, np.uint32))
_NARROW = {1: pa.uint8(), 2: pa.uint16(), 4: pa.uint32()}


def narrowed(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes."""
    columns, codes = [], []
    for column in batch.columns:
        width, least, column = _narrowed(column)
        columns.append(column)
        codes.append(_COLUMN.pack(width, least))
    changed = pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch
    return b"".join((b"".join(codes).ljust(_head(len(codes)), b"\0"), changed.serialize()))


def widened(blob: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The batch again; by reference where it has not been changed."""
    buffer = pa.py_buffer(blob)
    codes = list(_COLUMN.iter_unpack(buffer[: _COLUMN.size * len(schema)]))
    changed = [
        field.with_type(_NARROW[width]) if width else field for (width, _), field in zip(codes, schema, strict=True)
    ]
    batch = pa.ipc.read_record_batch(buffer[_head(len(schema)) :], pa.schema(changed))
    columns = [
        _widened(column, least, field.type) if width else column
        for (width, least), column, field in zip(codes, batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema) if columns else batch


def _head(columns: int) -> int:
    """Bytes before the message, whose arrays are to lie as aligned as the whole."""
    return -(-_COLUMN.size * columns // 64) * 64


def _narrowed(column: pa.Array) -> tuple[int, int, pa.Array]:
    """(width, least value, column)."""
    if not _has_int64s(column.type) or column.null_count or not len(column):
        return 0, 0, column
    values = column.view(pa.int64()).to_numpy()
    least, span = int(values.min()), int(values.max()) - int(values.min())
    for width, dtype in _WIDTHS:
        if span < 1 << 8 * width:
            differences = np.empty(values.size, dtype)
            np.subtract(values, least, out=differences, casting="unsafe")
            return width, least, pa.array(differences)
    return 0, 0, column


def _widened(column: pa.Array, least: int, kind: pa.DataType) -> pa.Array:
    values = np.add(column.to_numpy(), np.int64(least), dtype=np.int64)
    return pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)])


def _has_int64s(kind: pa.DataType) -> bool:
    is_a = pa.types
    return is_a.is_int64(kind) or is_a.is_timestamp(kind) or is_a.is_duration(kind) or is_a.is_time64(kind)
