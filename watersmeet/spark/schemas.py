"""Spark's schemas as Arrow's, and batches as the plan expects them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from watersmeet.engine.inputs import check_schema
from watersmeet.query.windows import Side


def arrow_schema(schema: StructType, side: Side) -> pa.Schema:
    """The Arrow schema of a DataFrame; timestamps are in UTC, whatever the session's time zone is."""
    if not schema.fields:
        raise ValueError(f"{side} has no columns")
    try:
        found = to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # Spark 4.0 takes no time zone, and gives UTC
        found = to_arrow_schema(schema)
    except Exception as error:
        raise TypeError(
            f"{side} has a column of a type that Arrow does not know: {error}; drop it, or cast it (to a string, say)"
        ) from None
    return check_schema(found, side)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch as Spark hands it over, with the schema of the plan: time zones and large types may differ."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def result_schema(names: list[str], left: StructType, right: StructType | None) -> StructType:
    """Spark's schema of the results. All may be null: Spark does not look into joins of others."""
    fields = [*left.fields, *(right.fields if right is not None else ())]
    return StructType([StructField(name, field.dataType, True) for name, field in zip(names, fields, strict=True)])
