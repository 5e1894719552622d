"""Late rows, for those who want them: they come out among the results, marked by a column of their own.

    id   ts         id_right   ts_right   late
    1    12:00:01   7          12:00:02   null     a result
    2    11:58:40   null       null       left     a late row of the left stream
    null null       9          11:58:55   right    a late row of the right stream

So they travel, are committed and are tried again as results are, exactly once: no second place needs to be kept in
step. Each is let out by the one core that it is at home in. In semi and anti joins the right stream has its columns,
too, which are null in results.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.engine.results import rows_schema
from watersmeet.query.windows import Side

LATE = ("drop", "keep")
COLUMN = "late"


def check_late(value: Any) -> bool:
    """Whether late rows are kept."""
    if value not in LATE:
        raise ValueError(f"late must be one of {', '.join(LATE)}, got {value!r}")
    return value == "keep"


def with_late(left: pa.Schema, right: pa.Schema, suffix: str) -> pa.Schema:
    """The columns of results and late rows."""
    schema = rows_schema(left, right, suffix)
    if COLUMN in schema.names:
        raise ValueError(
            f"late='keep' adds a column {COLUMN!r}, and the result has one of that name already; rename it before the "
            f"join"
        )
    return schema.append(pa.field(COLUMN, pa.string()))


def results_among_late(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Results, with null in all columns that they do not have."""
    missing = [pa.nulls(batch.num_rows, field.type) for field in list(schema)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *missing], schema=schema)


def late_rows(side: Side, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Late rows of one side, as they come out."""
    rows = batch.num_rows
    fields = list(schema)[:-1]
    others = fields[batch.num_columns :] if side == "left" else fields[: len(fields) - batch.num_columns]
    nothing = [pa.nulls(rows, field.type) for field in others]
    columns = [*batch.columns, *nothing] if side == "left" else [*nothing, *batch.columns]
    return pa.RecordBatch.from_arrays([*columns, pa.repeat(pa.scalar(side), rows)], schema=schema)
