"""What users push, as one Arrow record batch of the stream's schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.query.windows import Side


def as_batch(data: Any, side: Side, known: pa.Schema | None = None) -> pa.RecordBatch:
    """Anything that speaks Arrow, as one record batch; by reference where it is in one piece already."""
    if known is not None and isinstance(data, pa.RecordBatch) and data.schema.equals(known):
        return data
    batch = _read(data, side)
    if any(_has_view(t) for t in batch.schema.types):
        schema = pa.schema([pa.field(f.name, _without_views(f.type)) for f in batch.schema])
        columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
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
    else:
        raise TypeError(
            f"{side} must be a pyarrow Table or RecordBatch, or anything that speaks the Arrow C stream interface "
            f"(pandas, Polars, DuckDB results), got {type(data).__name__}; build a table with pyarrow.table(...)"
        )
    if not table.num_columns:
        raise ValueError(f"{side} has no columns")
    columns = [_one_array(column) for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):  # more text than 32-bit offsets can address
        raise ValueError("a batch holds more than 2 GiB of text in one column; push smaller batches")
    return joined


# Arrow's view types (Polars gives them for text) are stored as plain text and bytes: Arrow itself can hardly compute
# with views, and a view keeps alive the whole buffer that it points into.


def _has_view(t: pa.DataType) -> bool:
    return "view" in str(t)


def _without_views(t: pa.DataType) -> pa.DataType:
    if t == pa.string_view():
        return pa.string()
    if t == pa.binary_view():
        return pa.binary()
    if pa.types.is_struct(t):
        return pa.struct([pa.field(f.name, _without_views(f.type)) for f in t])
    if pa.types.is_map(t):
        return pa.map_(_without_views(t.key_type), _without_views(t.item_type))
    if pa.types.is_fixed_size_list(t):
        return pa.list_(_without_views(t.value_type), t.list_size)
    if pa.types.is_large_list(t) or str(t).startswith("large_list_view"):
        return pa.large_list(_without_views(t.value_type))
    if pa.types.is_list(t) or str(t).startswith("list_view"):
        return pa.list_(_without_views(t.value_type))
    if pa.types.is_dictionary(t):
        return pa.dictionary(t.index_type, _without_views(t.value_type), t.ordered)
    return t


def check_schema(schema: pa.Schema, side: Side) -> pa.Schema:
    """A schema that a stream may have; metadata and nullability do not matter."""
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"{side}_schema must be a pyarrow.Schema, got {type(schema).__name__}")
    names = schema.names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the {side} stream has two columns named {name!r}; rename one")
    return pa.schema([(field.name, _without_views(field.type)) for field in schema])


def conform(batch: pa.RecordBatch, schema: pa.Schema, side: Side) -> pa.RecordBatch:
    """The batch with the stream's schema, or an error that says what differs."""
    if batch.schema.equals(schema):
        return batch
    names = batch.schema.names
    if names != schema.names:
        missing = [name for name in schema.names if name not in names]
        extra = [name for name in names if name not in schema.names]
        what = "; ".join(
            text
            for text in (
                f"missing: {', '.join(missing)}" if missing else "",
                f"not expected: {', '.join(extra)}" if extra else "",
                "the columns are in another order" if not missing and not extra else "",
            )
            if text
        )
        raise ValueError(
            f"this {side} batch has other columns than the stream ({what}); the stream has {', '.join(schema.names)}: "
            f"select them before the push"
        )
    for name, got, expected in zip(names, batch.schema.types, schema.types, strict=True):
        if got != expected:
            raise ValueError(
                f"column {name!r} of this {side} batch is {got}, in the stream it is {expected}; cast it first"
            )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
