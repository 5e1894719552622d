"""Spark's schemas as Arrow's, and batches as the plan expects them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from watersmeet.engine.inputs import check_schema
from watersmeet.query.windows import Side
from watersmeet.spark.spec import Compiled


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


def result_schema(join: Compiled, left: StructType, right: StructType) -> StructType:
    """Spark's schema of what comes out. All may be null: Spark does not look into joins of others."""
    types = [field.dataType for field in (*left.fields, *right.fields)]
    if join.spec.per is not None:
        own = left if join.spec.per.side == "left" else right
        types = [field.dataType for field in own.fields]
        types += [from_arrow_type(field.type) for field in list(join.results)[len(types) :]]
    if join.spec.keep_late:
        types.append(StringType())
    elif join.left_only:
        types = types[: len(left.fields)]
    return StructType([StructField(name, type, True) for name, type in zip(join.filed.names, types, strict=True)])
