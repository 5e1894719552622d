"""Kafka's messages as rows, and rows as messages.

    value                                 schema "id bigint, price double"
    {"id": 1, "price": 10.5}      ->      1, 10.5
    {"id": 2}                     ->      2, null         a column that a message does not have is null
    {"id": "x"}, no JSON, nothing ->      bad             it does not fit the schema

A message that cannot be read is not lost on its way to the join, whatever `where` and `select` say: it either ends the
query, with an error that tells which it was, or goes on as a row of nulls. Without a time such a row cannot be joined,
so that the join leaves it out and counts it as it does all others (bad_rows.py).

JSON is read by Spark. An Arrow value is a stream of the IPC format with any number of rows; its columns are taken by
name, and cast where no value is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from watersmeet.query.windows import Side
from watersmeet.spark.schemas import arrow_schema

#: The column with Kafka's own columns (key, topic, partition, offset, timestamp), for `where` and `select`.
KAFKA = "kafka"
#: The column that says what is wrong with a message; null if nothing is.
BAD = "_watersmeet_bad"
SHOWN = 200  # characters of a message in an error
#: Options of Spark's JSON that are ours to set.
_OWN = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
#: All that there is of a time, and a time zone that needs no explanation.
_WRITTEN = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
REMEDY = '; bad_rows = "drop" leaves such messages out and counts them'
#: Of Arrow messages that are handed on at a time; an Arrow array ends at 2 GiB of text.
PORTION_ROWS, PORTION_BYTES = 1 << 16, 64 << 20


def rows(messages: Any, side: Side, value: str, schema: str, options: dict[str, str]) -> Any:
    """What the messages hold, with the columns KAFKA (unless the schema has one of that name) and BAD."""
    columns = messages.select(F.from_json(F.lit(""), schema).alias("row")).schema["row"].dataType
    named = [name for name in messages.columns if name != "value"]
    beside = messages.select(F.struct(*named).alias(KAFKA), "value")
    if value == "json":
        found = _from_json(beside, side, columns, _json_options(options))
    else:
        found = _from_arrow(beside, side, columns)
    own = [] if KAFKA in columns.names else [F.col(KAFKA).alias(KAFKA, metadata={BAD: True})]
    return found.select(*(F.col("row")[name].alias(name) for name in columns.names), *own, BAD)


def where(found: Any, condition: str) -> Any:
    """The rows for which this is true, and the bad ones."""
    return found.where(F.col(BAD).isNotNull() | F.coalesce(F.expr(condition), F.lit(False)))


def select(found: Any, expressions: tuple[str, ...]) -> Any:
    """These columns; if there are none, those of the schema."""
    if not expressions:
        return found.select(*(_column(field.name) for field in found.schema if BAD not in (field.metadata or {})))
    return found.selectExpr(*expressions, BAD)


def settled(found: Any, drop: bool) -> Any:
    """Without BAD. A bad message is a row of nulls, or an error."""
    bad = F.col(BAD).isNotNull()
    columns = []
    for field in found.schema.fields[:-1]:
        column = _column(field.name)
        # In every column: the stage behind may look at some of them only.
        instead = F.lit(None) if drop else F.raise_error(F.concat(F.col(BAD), F.lit(REMEDY)))
        columns.append(F.when(bad, instead.cast(field.dataType)).otherwise(column).alias(field.name))
    return found.select(*columns)


def as_json(result: Any, key: str | None, columns: tuple[str, ...], options: dict[str, str]) -> Any:
    """Rows as messages, for the sink."""
    value = F.to_json(F.struct(*map(F.expr, columns or ("*",))), _WRITTEN | _json_options(options)).alias("value")
    if key is None:
        return result.select(value)
    kind = result.select(F.expr(key).alias("key")).schema["key"].dataType
    found = F.expr(key) if isinstance(kind, BinaryType) else F.expr(key).cast("string")
    return result.select(found.alias("key"), value)


def _column(name: str) -> Any:
    return F.col(f"`{name.replace('`', '``')}`")


def _text(value: Any) -> Any:
    return F.make_valid_utf8(value.cast("string"))


def _json_options(options: dict[str, str]) -> dict[str, str]:
    """Those of a source or a sink that may be meant for JSON (timestampFormat, say); Spark leaves others alone."""
    return {name: value for name, value in options.items() if "." not in name}


def _from_json(messages: Any, side: Side, columns: StructType, options: dict[str, str]) -> Any:
    whole = StructType([*columns.fields, StructField(BAD, StringType())])
    row = F.from_json(F.col("value").cast("string"), whole, options | _OWN)
    # As a list of one: else Spark would put the parser into every place where a condition mentions a column.
    read = messages.select(KAFKA, "value", F.explode(F.array(row)).alias("row"))
    fits = F.col("row").isNotNull() & F.col(f"row.{BAD}").isNull()
    text = F.when(F.col("value").isNull(), "it has no value").otherwise(
        F.concat(F.lit("it is not JSON of this schema: "), F.substring(_text(F.col("value")), 1, SHOWN))
    )
    place = [F.col(f"{KAFKA}.{name}").cast("string") for name in ("offset", "partition", "topic")]
    why = F.concat(
        F.lit(f"{side}: message "), place[0], F.lit(" of partition "), place[1], F.lit(" of topic "), place[2],
        F.lit(" cannot be read: "), text,
    )  # fmt: skip
    return read.select(F.when(fits, F.col("row")).alias("row"), KAFKA, F.when(~fits, why).alias(BAD))


def _from_arrow(messages: Any, side: Side, columns: StructType) -> Any:
    row = StructField("row", columns)
    decoded = StructType([row, messages.schema[KAFKA], StructField(BAD, StringType())])
    return messages.mapInArrow(Decoder(side, arrow_schema(columns, side)), decoded)


class Decoder:
    """A function for `mapInArrow`: messages with Arrow values become rows."""

    def __init__(self, side: Side, schema: pa.Schema):
        self._side, self._schema = side, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            held: list[tuple[pa.StructArray, str | None]] = []
            start = count = size = 0
            for number, value in enumerate(batch.column("value")):
                held.append(self._rows(value, batch.column(KAFKA)[number]))
                count += len(held[-1][0])
                size += held[-1][0].nbytes
                if count >= PORTION_ROWS or size >= PORTION_BYTES:
                    yield self._batch(held, batch.column(KAFKA).slice(start, len(held)))
                    held, start, count, size = [], number + 1, 0, 0
            if held:
                yield self._batch(held, batch.column(KAFKA).slice(start, len(held)))

    def _rows(self, value: pa.Scalar, message: pa.Scalar) -> tuple[pa.StructArray, str | None]:
        """The rows of a message, or one without anything, and what is wrong with it."""
        try:
            return decoded(value, self._schema), None
        except (pa.ArrowException, ValueError, TypeError, OSError, OverflowError) as error:
            reason = str(error).partition("\n")[0][:SHOWN]
            place = message.as_py()
            why = f"message {place['offset']} of partition {place['partition']} of topic {place['topic']}"
            return pa.nulls(1, pa.struct(self._schema)), f"{self._side}: {why} cannot be read: {reason}"

    def _batch(self, held: list[tuple[pa.StructArray, str | None]], kafka: pa.Array) -> pa.RecordBatch:
        counts = np.array([len(found) for found, _ in held], np.int64)
        which = pa.array(np.repeat(np.arange(len(held)), counts))
        why = pa.array([reason for _, reason in held], pa.string())
        columns = [pa.concat_arrays([found for found, _ in held]), kafka.take(which), why.take(which)]
        return pa.RecordBatch.from_arrays(columns, names=["row", KAFKA, BAD])


def decoded(value: pa.Scalar, schema: pa.Schema) -> pa.StructArray:
    """An Arrow stream as rows of this schema; ValueError (Arrow's are such) if it is none."""
    if not value.is_valid:
        raise ValueError("it has no value")
    with pa.ipc.open_stream(value.as_buffer()) as stream:
        table = stream.read_all()
    table.validate(full=True)  # whatever came over the wire: offsets and texts must be sound before they are used
    columns = []
    for field in schema:
        places = table.schema.get_all_field_indices(field.name)
        if len(places) > 1:
            raise ValueError(f"it has {len(places)} columns {field.name!r}")
        if not places:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        found = table.column(places[0])
        if isinstance(found.type, pa.DictionaryType):
            found = found.cast(found.type.value_type)
        columns.append(found.cast(field.type).combine_chunks())
    return pa.StructArray.from_arrays(columns, fields=list(schema))
