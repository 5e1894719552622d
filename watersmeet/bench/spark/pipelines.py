"""The contenders of `watersmeet bench spark`: what each does with the two streams.

    watersmeet        stream_join
    watersmeet, files the same of parquet_files
    discard           the same pipeline up to the joiner, which looks at nothing and returns nothing
    identity          both streams through a Python function that returns what it gets, and their union: no join at all
    identity, twice   the same with as much coming out as of a join with two results a row: each row twice, with the
                      columns of both sides
    spark, rocksdb    Spark's own stream-stream join (it needs an equality: A and D), state in RocksDB, set up as who
                      cares for its speed would: it does not count its rows (`TUNED`)
    spark, rocksdb, default   the same as Spark comes
    spark, hdfs       the same with the state in maps on the JVM's heap
    cells, rocksdb    what people do about a band: every right row copied into the cells it may match in, an equality on
                      the cell, the band as a filter; set up as above
    cells, hdfs       the same on the heap
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from watersmeet.bench.spark.data import Part
from watersmeet.bench.workloads import BAND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, OURS_FILES, DISCARD, IDENTITY, TWICE = (
    "watersmeet", "watersmeet, files", "discard", "identity", "identity, twice",
)  # fmt: skip
SPARK, SPARK_DEFAULT, SPARK_HDFS = "spark, rocksdb", "spark, rocksdb, default", "spark, hdfs"
CELLS, CELLS_HDFS = "cells, rocksdb", "cells, hdfs"
CONTENDERS = {
    "A": (OURS, OURS_FILES, IDENTITY, TWICE, DISCARD, SPARK, SPARK_DEFAULT, SPARK_HDFS),
    "B": (OURS, OURS_FILES, IDENTITY, TWICE, DISCARD, CELLS, CELLS_HDFS),
    "B17": (OURS, DISCARD),
    "C": (OURS, DISCARD),
    "D": (OURS, OURS_FILES, IDENTITY, DISCARD, SPARK, SPARK_HDFS),
    "flat": (OURS,),
    "first": (OURS,),
    "skew": (OURS,),
    "kafka": (OURS,),  # and the same without a join: kafka.py
}
JOINERS = (OURS, OURS_FILES, SPARK, SPARK_DEFAULT, SPARK_HDFS, CELLS, CELLS_HDFS)  # all of these give the same answer
SLOW = (SPARK, SPARK_DEFAULT, SPARK_HDFS, CELLS, CELLS_HDFS)  # take minutes: measured once
RETURNED = {DISCARD: 0, IDENTITY: 1, TWICE: 2}  # rows for each that comes, of those that do not join
# Measured only where named.
ON_REQUEST = {("A", TWICE), ("B", TWICE), ("A", SPARK_DEFAULT), ("B", CELLS_HDFS), ("D", SPARK_HDFS)}
HDFS_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
TUNED = {"spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false"}
CELL = 4 * BAND  # width of a cell: wider means fewer copies and more candidates


def settings(contender: str) -> dict[str, str]:
    """What the contender needs of the session beyond what all have."""
    if contender.endswith("hdfs"):
        return {"spark.sql.streaming.stateStore.providerClass": HDFS_STORE}
    return TUNED if contender in (SPARK, CELLS) else {}


def pipeline(
    spark: SparkSession, contender: str, part: Part, folder: str, files_a_batch: int, route: str = "auto"
) -> DataFrame:
    """The joined stream: all columns of the left, then those of the right with _right; ours by this route."""
    from watersmeet.spark import parquet_files

    schema = ", ".join(f"{name} {kind}" for name, kind in part.types.items())

    def side(name: str) -> Any:
        if contender == OURS_FILES:
            return parquet_files(spark, f"{folder}/{name}", schema, maxFilesPerTrigger=files_a_batch)
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_a_batch)
        return reader.parquet(f"{folder}/{name}")

    left, right = side("left"), side("right")
    if contender in (OURS, OURS_FILES, DISCARD):
        return ours(left, right, part, contender, route)
    if contender == IDENTITY:
        return left.mapInArrow(identity, schema).union(right.mapInArrow(identity, schema))
    if contender == TWICE:
        both = schema + "".join(f", {name}_right {kind}" for name, kind in part.types.items())
        return left.mapInArrow(twice, both).union(right.mapInArrow(twice, both))
    if contender.startswith("cells"):
        return cells(left, right, part)
    return plain(left, right, part.on, part)


def identity(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def twice(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        names = [*batch.schema.names, *(f"{name}_right" for name in batch.schema.names)]
        doubled = pa.RecordBatch.from_arrays(2 * batch.columns, names)
        yield doubled
        yield doubled


def ours(left: Any, right: Any, part: Part, contender: str, route: str) -> DataFrame:
    import watersmeet as wm
    from watersmeet.bench.spark.discard import discarding_join
    from watersmeet.spark import stream_join

    window = wm.within(f"{part.window_us} us", time="ts", lateness=f"{part.lateness_us} us")
    if contender == DISCARD:
        return discarding_join(left, right, part.on, window, part.how)
    return stream_join(left, right, part.on, window, part.how, route=route)


def plain(left: DataFrame, right: DataFrame, on: str, part: Part) -> DataFrame:
    """Spark's own join, with the time range that lets it forget."""
    from pyspark.sql import functions as F

    span, lateness = f"interval {part.window_us} microseconds", f"{part.lateness_us} microseconds"
    near = f"r.ts >= l.ts - {span} and r.ts <= l.ts + {span}"
    l_side = left.withWatermark("ts", lateness).alias("l")
    r_side = right.withWatermark("ts", lateness).alias("r")
    joined = l_side.join(r_side, F.expr(f"({on}) and {near}"), part.how)
    columns = [F.col(f"l.{name}").alias(name) for name in part.types]
    return joined.select(*columns, *(F.col(f"r.{name}").alias(f"{name}_right") for name in part.types))


def cells(left: DataFrame, right: DataFrame, part: Part) -> DataFrame:
    """A band by an equality on cells of the key."""
    from pyspark.sql import functions as F

    low, high = (F.floor((F.col("key") + edge) / F.lit(CELL)) for edge in (-BAND, BAND))
    left = left.withColumn("cell", F.floor(F.col("key") / F.lit(CELL)))
    right = right.withColumn("cell", F.explode(F.sequence(low, high)))
    return plain(left, right, f"l.cell = r.cell and ({part.on})", part)
