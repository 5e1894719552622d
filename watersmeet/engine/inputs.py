"""What users push, as one Arrow record batch of the stream's schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from watersmeet.engine.columns import Place, recast, stored_type, untyped
from watersmeet.query.windows import Side

#: The labels of the rows of a pandas frame whose index has no name.
_ROW_LABELS = re.compile(r"__index_level_\d+__")


def as_batch(data: Any, side: Side, known: pa.Schema | None = None) -> pa.RecordBatch:
    """Anything that speaks Arrow, as one record batch; by reference where it is in one piece already."""
    if known is not None and isinstance(data, pa.RecordBatch) and data.schema.equals(known):
        return data
    batch = _read(data, side)
    labels = [name for name in batch.schema.names if _ROW_LABELS.fullmatch(name)]
    wanted = known.names if known is not None else []
    if labels and b"pandas" in (batch.schema.metadata or {}):
        batch = batch.drop_columns([name for name in labels if name not in wanted])
    return batch


def _read(data: Any, side: Side) -> pa.RecordBatch:
    if isinstance(data, pa.RecordBatch):
        return data
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatchReader):
        table = data.read_all()
    elif hasattr(data, "__arrow_c_array__"):
        try:
            return pa.record_batch(data)
        except (pa.ArrowInvalid, TypeError) as error:
            raise TypeError(f"{side} must hold columns, got {type(data).__name__}: {error}") from None
    elif hasattr(data, "__arrow_c_stream__"):
        try:
            table = pa.RecordBatchReader.from_stream(data).read_all()
        except (pa.ArrowInvalid, TypeError) as error:
            raise TypeError(f"{side} must hold columns, got {type(data).__name__}: {error}") from None
        table = _with_named_range(table, data)
    else:
        raise TypeError(
            f"{side} must be a pyarrow Table or RecordBatch, or anything that speaks the Arrow C stream interface "
            f"(pandas, Polars, DuckDB results), got {type(data).__name__}; build a table with pyarrow.table(...)"
        )
    if not table.num_columns:
        raise ValueError(f"{side} has no columns")
    columns = [_one_array(table.column(i), Place(side, name)) for i, name in enumerate(table.column_names)]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _with_named_range(table: pa.Table, data: Any) -> pa.Table:
    """pandas hands over a named index as a column, except for ranges: these, too, so that all pushes have it."""
    index: Any = getattr(data, "index", None)
    name = getattr(index, "name", None)
    if type(index).__name__ != "RangeIndex" or not isinstance(name, str) or name in table.column_names:
        return table
    return table.append_column(name, pa.array(range(index.start, index.stop, index.step), pa.int64()))


def _one_array(column: pa.ChunkedArray, place: Place) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    if not column.num_chunks:
        return pa.nulls(0, column.type)
    try:
        joined = column.combine_chunks()
    except pa.ArrowInvalid:
        joined = column
    if isinstance(joined, pa.ChunkedArray):  # more text than 32-bit offsets can address
        raise ValueError(f"{place} has more than 2 GiB of text; push smaller batches")
    return joined


def check_schema(schema: pa.Schema, side: Side) -> pa.Schema:
    """A schema that a stream may have, of the types that it is kept in; metadata and nullability do not matter."""
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"{side}_schema must be a pyarrow.Schema, got {type(schema).__name__}")
    _check_names(schema.names, f"the {side} stream")
    return pa.schema([(field.name, stored_type(field.type, Place(side, field.name))) for field in schema])


def _check_names(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} has two columns named {name!r}; rename one")


def first_schema(batch: pa.RecordBatch, side: Side) -> pa.Schema:
    """The schema of a stream, by its first batch."""
    schema = check_schema(batch.schema, side)
    for field in schema:
        if untyped(field.type):
            raise ValueError(
                f"column {field.name!r} of this first {side} batch is {field.type}: it holds nothing but nulls, which "
                f"does not tell the type of what is to come; give {side}_schema= to StreamJoin, or cast the column"
            )
    return schema


def conform(batch: pa.RecordBatch, schema: pa.Schema, side: Side) -> pa.RecordBatch:
    """The batch with the stream's schema, or an error that says what differs.

    Columns may be in another order, and of another type if the stream's has room for all of their values.
    """
    if batch.schema.equals(schema):
        return batch
    names = batch.schema.names
    _check_names(names, f"this {side} batch")
    missing = [name for name in schema.names if name not in names]
    extra = [name for name in names if name not in schema.names]
    if missing or extra:
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"not expected: {', '.join(extra)}"] if extra else []
        raise ValueError(
            f"this {side} batch has other columns than the stream ({'; '.join(parts)}); the stream has "
            f"{', '.join(schema.names)}: select them before the push"
        )
    columns = [recast(batch.column(field.name), field.type, Place(side, field.name)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
