"""Streams of Parquet files whose rows do not pass through the JVM on their way into a join.

    DataFrame         files -> JVM: rows -> Arrow -> Python: packs -> JVM: shuffle
    parquet_files     files                       -> Python: packs -> JVM: shuffle

Spark still finds the files: its own source of files gives a row for each (as "binaryFile", of whose columns only the
path is asked for), with its log, its limits and its checkpoints. The task that would have been given rows opens the
file itself.

Columns are found by name as Spark finds them: in any case, null where a file has none. A value is what Spark would read
or the query ends with an error that names file and column; nothing is converted that could change on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.spark.event_time import quoted
from watersmeet.spark.schemas import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LISTED = "path string, modificationTime timestamp, length bigint, content binary"
#: Rows that are read at a time, and their bytes: a portion of the router's (router.py).
ROWS = 1 << 19
BYTES = 64 << 20
#: By which files of Spark's say that their early times are of another calendar; those of versions before 3 always are.
_LEGACY = (b"org.apache.spark.legacyINT96", b"org.apache.spark.legacyDateTime")
_VERSION = b"org.apache.spark.version"
_YEAR_1900 = np.datetime64("1900-01-01", "us")


class ParquetFiles:
    """A stream of Parquet files, for `stream_join`: what a join asks of a DataFrame, and no more."""

    def __init__(self, listed: DataFrame, schema: StructType):
        self.listed = listed  # the paths
        self.schema = schema
        self.sparkSession = listed.sparkSession

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def mapInArrow(self, function: Callable[[Iterator[Any]], Iterator[Any]], schema: Any) -> DataFrame:
        """A DataFrame of what a function makes of the rows of each task's files."""
        own = arrow_schema(self.schema, "left")  # of either side: stream_join has named what is wrong with it
        return self.listed.mapInArrow(_Reader(function, own), schema)

    def __repr__(self) -> str:
        return f"ParquetFiles[{', '.join(f'{each.name}: {each.dataType.simpleString()}' for each in self.schema)}]"


def parquet_files(spark: SparkSession, path: str, schema: Any = None, **options: Any) -> ParquetFiles:
    """A folder of Parquet files that others are added to, as one side of a `stream_join`: as
    `spark.readStream.schema(schema).parquet(path)`, about twice as fast.

    path: a folder, or a pattern of folders, that every worker can open as files of its machine. Folders that are
        partitioned by columns (`day=2026-01-01/`), and what lies in object stores, is for `spark.readStream`.
    schema: a StructType, or text such as "ts timestamp, price double"; unless given that of the files which are there.
    options: of Spark's source of files: `maxFilesPerTrigger=8`, `pathGlobFilter="*.parquet"`, ...

    Numbers of input rows in the query's own progress are of files then; rows are in its counters (`rows_left`, ...).
    """
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    if schema is None:
        found = spark.read.options(**given).parquet(path).schema
    else:
        found = spark.readStream.schema(schema).options(**given).parquet(path).schema
    listed = spark.readStream.format("binaryFile").schema(LISTED).options(**given).load(path).select("path")
    return ParquetFiles(listed, found)


def frame_of(stream: Any) -> Any:
    """The DataFrame beneath."""
    return stream.listed if isinstance(stream, ParquetFiles) else stream


def column_of(stream: Any, name: str) -> Any:
    """The same stream with one column only."""
    if isinstance(stream, ParquetFiles):
        return ParquetFiles(stream.listed, StructType([stream.schema[name]]))
    return stream.select(F.col(quoted(name)))


class _Reader:
    """A function for `mapInArrow`: hands the rows of the files it is given to another such function."""

    def __init__(self, function: Callable[[Iterator[Any]], Iterator[Any]], schema: pa.Schema):
        self._function = function
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        paths = (path for batch in batches for path in batch.column(0).to_pylist())
        return self._function(rows for path in paths for rows in read(path, self._schema))


def read(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with these columns."""
    with _opened(path) as file:
        found = file.schema_arrow
        places = {field.name: _place(path, found, field.name) for field in schema}
        names = [found.field(place).name for place in places.values() if place is not None]
        int96 = {column.path for column in map(file.schema.column, range(len(file.schema)))
                 if column.physical_type == "INT96"}  # fmt: skip
        about = file.metadata.metadata or {}
        legacy = any(key in about for key in _LEGACY) or int(about.get(_VERSION, b"3").partition(b".")[0]) < 3
        size = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
        most = max(1, min(ROWS, BYTES * file.metadata.num_rows // max(size, 1)))
        for batch in _batches(path, file, most, names):
            columns = []
            for field in schema:
                place = places[field.name]
                if place is None:
                    columns.append(pa.nulls(batch.num_rows, field.type))
                    continue
                name = found.field(place).name
                column = batch.column(batch.schema.get_field_index(name))
                if legacy:
                    _check_calendar(path, name, column)
                columns.append(_as(path, name, column, field.type, name in int96))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _opened(path: str) -> pq.ParquetFile:
    scheme, colon, rest = path.partition(":")
    if not colon or scheme != "file":
        raise ValueError(
            f"parquet_files opens files of the worker's own machine, and {path} is not one: read it with "
            f"spark.readStream.parquet"
        )
    local = "/" + rest.lstrip("/")
    try:
        return pq.ParquetFile(local, coerce_int96_timestamp_unit="us")
    except FileNotFoundError:
        raise FileNotFoundError(f"{local}, which Spark has found, is not there for this worker") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{local} cannot be read as Parquet: {error}") from None


def _batches(path: str, file: pq.ParquetFile, most: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    if not names:  # of no column here, but its rows count
        for start in range(0, file.metadata.num_rows, most):
            rows = min(most, file.metadata.num_rows - start)
            yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
        return
    try:
        yield from file.iter_batches(most, columns=names, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None


def _place(path: str, schema: pa.Schema, name: str) -> int | None:
    """Where a file has a column; None: it has none."""
    exact = schema.get_all_field_indices(name)
    found = exact or [n for n, field in enumerate(schema) if field.name.lower() == name.lower()]
    if len(found) > 1:
        raise ValueError(f"{path} has several columns {name!r}: {', '.join(repr(schema.field(n).name) for n in found)}")
    if not found and f"/{name.lower()}=" in path.lower():
        raise ValueError(
            f"column {name!r} is in the names of folders ({path}), which parquet_files does not read: read it with "
            f"spark.readStream.parquet"
        )
    return found[0] if found else None


def _as(path: str, name: str, column: pa.Array, wanted: pa.DataType, int96: bool) -> pa.Array:
    """A column as Spark would read it."""
    found = column.type
    if int96:  # how Spark writes its times: in UTC, which Arrow does not say
        column, found = column.cast(pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC")
    if found == wanted:
        return column
    if not _holds(wanted, found):
        hint = ""
        if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
            hint = ": one has a time zone, and the other has none (timestamp_ntz)"
        raise TypeError(f"column {name!r} of {path} has type {found}, and the schema says {wanted}{hint}")
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid as error:
        raise ValueError(f"column {name!r} of {path}, of type {found}, is not {wanted}: {error}") from None


def _holds(wanted: pa.DataType, found: pa.DataType) -> bool:
    """Whether a type has all values of another (times: those that end in it), by the same names."""
    kinds = pa.types
    if found == wanted or kinds.is_null(found):
        return True
    if kinds.is_dictionary(found):
        return _holds(wanted, found.value_type)
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(found):
        return (wanted.tz is None) == (found.tz is None)
    if kinds.is_integer(wanted) and kinds.is_integer(found):
        room = wanted.bit_width - kinds.is_signed_integer(wanted)
        fits = room >= found.bit_width - kinds.is_signed_integer(found)
        return fits and (kinds.is_signed_integer(wanted) or kinds.is_unsigned_integer(found))
    if kinds.is_floating(wanted) and kinds.is_floating(found):
        return wanted.bit_width >= found.bit_width
    if kinds.is_decimal(wanted) and kinds.is_decimal(found):
        whole = wanted.precision - wanted.scale
        return wanted.scale >= found.scale and whole >= found.precision - found.scale
    if kinds.is_list(wanted) and (kinds.is_list(found) or kinds.is_large_list(found)):
        return _holds(wanted.value_type, found.value_type)
    if kinds.is_map(wanted) and kinds.is_map(found):
        return _holds(wanted.key_type, found.key_type) and _holds(wanted.item_type, found.item_type)
    if kinds.is_struct(wanted) and kinds.is_struct(found):
        same = [field.name for field in wanted] == [field.name for field in found]
        return same and all(_holds(a.type, b.type) for a, b in zip(wanted, found, strict=True))
    text = (kinds.is_string, kinds.is_large_string), (kinds.is_binary, kinds.is_large_binary)
    return any(first(wanted) and large(found) for first, large in text)


def _check_calendar(path: str, name: str, column: pa.Array) -> None:
    """Of files whose writer counted early times by another calendar: there must be none before 1900."""
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        least = pc.min(column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))).value
        if least is None or np.datetime64(least, "us") >= _YEAR_1900:
            return
    elif not pa.types.is_nested(column.type) or not re.search("timestamp|date", str(column.type)):
        return
    raise ValueError(
        f"column {name!r} of {path} has times before 1900, or in lists or structs, of a calendar that Spark has given "
        f"up since: read it with spark.readStream.parquet"
    )
