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

import os
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
#: Rows that are read at a time of columns whose size the file does not tell: texts, which it may have once for many.
ROWS_OF_TEXT = 1 << 16
#: What sessions and options may say of how Spark reads Parquet, and the values by which it reads as we do.
_SETTINGS = {
    "spark.sql.caseSensitive": ("false",),
    "spark.sql.parquet.datetimeRebaseModeInRead": ("CORRECTED", "EXCEPTION"),
    "spark.sql.parquet.int96RebaseModeInRead": ("CORRECTED", "EXCEPTION"),
    "spark.sql.parquet.int96TimestampConversion": ("false",),
    "spark.sql.parquet.fieldId.read.enabled": ("false",),
}
_OPTIONS = {"datetimerebasemode": ("CORRECTED", "EXCEPTION"), "int96rebasemode": ("CORRECTED", "EXCEPTION"),
            "ignorecorruptfiles": ("false",), "ignoremissingfiles": ("false",)}  # fmt: skip
_DEFAULT = "EXISTS_DEFAULT"  # in a column's metadata: its value in files that do not have it
#: By which files of Spark's say that their early times are of another calendar; those of old versions always are.
_LEGACY_INT96, _LEGACY = b"org.apache.spark.legacyINT96", b"org.apache.spark.legacyDateTime"
_VERSION = b"org.apache.spark.version"
_YEAR_1900 = np.datetime64("1900-01-01")


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


def parquet_files(spark: SparkSession, path: str | os.PathLike, schema: Any = None, **options: Any) -> ParquetFiles:
    """A folder of Parquet files that others are added to, as one side of a `stream_join`: as
    `spark.readStream.schema(schema).parquet(path)`, and faster where a micro-batch has several files.

    path: a folder, or a pattern of folders, that every worker can open as files of its machine. Folders that are
        partitioned by columns (`day=2026-01-01/`), and what lies in object stores, is for `spark.readStream`.
    schema: a StructType, or text such as "ts timestamp, price double"; unless given that of the files which are there.
    options: of Spark's source of files: `maxFilesPerTrigger=8`, `pathGlobFilter="*.parquet"`, ...

    Numbers of input rows in the query's own progress are of files then; rows are in its counters (`rows_left`, ...).
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a folder of Parquet files, got {type(path).__name__}")
    folder = os.fspath(path)
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    _check_settings(spark, given)
    if schema is None:
        found = spark.read.options(**given).parquet(folder).schema
    else:
        found = spark.readStream.schema(schema).options(**given).parquet(folder).schema
    listed = spark.readStream.format("binaryFile").schema(LISTED).options(**given).load(folder)
    _check_columns(folder, found, listed.columns)
    return ParquetFiles(listed.select("path"), found)


def _check_settings(spark: SparkSession, options: dict[str, Any]) -> None:
    said = [(f"option {name!r}", str(value), _OPTIONS.get(name.lower())) for name, value in options.items()]
    for name, fine in _SETTINGS.items():
        said.append((name, spark.conf.get(name) or fine[0], fine))
    for what, value, allowed in said:
        if allowed is not None and value.lower() not in [each.lower() for each in allowed]:
            raise ValueError(
                f"{what} is {value!r}, by which Spark reads Parquet in a way that parquet_files does not know: leave "
                f"it at {allowed[0]!r}, or read with spark.readStream.parquet"
            )


def _check_columns(folder: str, schema: StructType, listed: list[str]) -> None:
    """listed: columns of files as such; those of partitioned folders come with them."""
    own = {field.partition(" ")[0] for field in LISTED.split(", ")}
    for name in listed:
        if name not in own:
            raise ValueError(
                f"{folder} is partitioned by column {name!r}, which is in the names of its folders: read it with "
                f"spark.readStream.parquet"
            )
    for field in schema:
        if _DEFAULT in (field.metadata or {}):
            raise ValueError(
                f"column {field.name!r} has a default value for files that do not have it, which parquet_files does "
                f"not know: read them with spark.readStream.parquet"
            )


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
        for batch in _batches(path, file, names):
            columns = []
            for field in schema:
                place = places[field.name]
                if place is None:
                    columns.append(pa.nulls(batch.num_rows, field.type))
                    continue
                name = found.field(place).name
                column = batch.column(batch.schema.get_field_index(name))
                if _of_another_calendar(about, any(f"{path}.".startswith(f"{name}.") for path in int96)):
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
        # Not buffered ahead, which would hold a whole file, and with checks of what lay on a disk, as Hadoop has some.
        return pq.ParquetFile(
            local, coerce_int96_timestamp_unit="us", pre_buffer=False, page_checksum_verification=True
        )
    except FileNotFoundError:
        raise FileNotFoundError(f"{local}, which Spark has found, is not there for this worker") from None
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{local} cannot be read as Parquet: {error}") from None


def _batches(path: str, file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    if not names:  # of no column here, but its rows count
        for start in range(0, file.metadata.num_rows, ROWS):
            rows = min(ROWS, file.metadata.num_rows - start)
            yield pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
        return
    try:
        for batch in file.iter_batches(_rows_at_a_time(file, names), columns=names, use_threads=False):
            parts = max(1, -(-batch.nbytes // BYTES))
            step = max(1, -(-batch.num_rows // parts))
            for start in range(0, batch.num_rows, step):
                yield batch.slice(start, step)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from None


def _rows_at_a_time(file: pq.ParquetFile, names: list[str]) -> int:
    """By the bytes of these columns; in files they may be fewer than in memory."""
    wanted = tuple(f"{name}." for name in names)
    groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    size = sum(chunk.total_uncompressed_size for chunk in chunks if f"{chunk.path_in_schema}.".startswith(wanted))
    fixed = all(pa.types.is_primitive(file.schema_arrow.field(name).type) for name in names)
    most = ROWS if fixed else ROWS_OF_TEXT
    return max(1, min(most, BYTES * file.metadata.num_rows // max(size, 1)))


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
    if isinstance(column.type, pa.BaseExtensionType):  # JSON, say, which is text
        column = column.storage
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
    except pa.ArrowException as error:
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
    if kinds.is_uint64(found):  # what Spark takes it for
        return wanted == pa.decimal128(20, 0)
    if kinds.is_fixed_size_binary(found):
        return kinds.is_binary(wanted)
    if kinds.is_list(wanted) and (kinds.is_list(found) or kinds.is_large_list(found)):
        return _holds(wanted.value_type, found.value_type)
    if kinds.is_map(wanted) and kinds.is_map(found):
        return _holds(wanted.key_type, found.key_type) and _holds(wanted.item_type, found.item_type)
    if kinds.is_struct(wanted) and kinds.is_struct(found):
        same = [field.name for field in wanted] == [field.name for field in found]
        return same and all(_holds(a.type, b.type) for a, b in zip(wanted, found, strict=True))
    text = (kinds.is_string, kinds.is_large_string), (kinds.is_binary, kinds.is_large_binary)
    return any(first(wanted) and large(found) for first, large in text)


def _of_another_calendar(about: dict[bytes, bytes], int96: bool) -> bool:
    """Whether the writer of a file, by what it says of itself, counted early times otherwise."""
    key, since = (_LEGACY_INT96, (3, 1)) if int96 else (_LEGACY, (3, 0))
    version = re.match(rb"(\d+)\.(\d+)", about.get(_VERSION, b""))
    return key in about or (version is not None and tuple(map(int, version.groups())) < since)


def _check_calendar(path: str, name: str, column: pa.Array) -> None:
    """Of files whose writer counted early times by another calendar: there must be none before 1900."""
    kind = column.type
    if not _has_times(kind):
        return
    if not pa.types.is_nested(kind):
        counted, unit = (pa.int32(), "D") if pa.types.is_date(kind) else (pa.int64(), kind.unit)
        least = pc.min(column.cast(counted)).as_py()
        if least is None or least >= _YEAR_1900.astype(f"datetime64[{unit}]").astype(np.int64):
            return
    raise ValueError(
        f"column {name!r} of {path} has times before 1900, or in lists or structs, of a calendar that Spark has given "
        f"up since: read it with spark.readStream.parquet"
    )


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(n).type) for n in range(kind.num_fields))
    return pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
