"""The contenders of `watersmeet bench spark`: what each does with the two streams.

    watersmeet        stream_join
    discard           the same pipeline up to the joiner, which looks at nothing and returns nothing
    spark, rocksdb    Spark's own stream-stream join (it needs an equality: A only), state in RocksDB
    spark, hdfs       the same with the state in maps on the JVM's heap
    cells, rocksdb    what people do about a band: every right row copied into the cells it may match in, an equality on
                      the cell, the band as a filter
    cells, hdfs       the same on the heap
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from watersmeet.bench.spark_data import Part
from watersmeet.bench.workloads import BAND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, DISCARD = "watersmeet", "discard"
SPARK, SPARK_HDFS = "spark, rocksdb", "spark, hdfs"
CELLS, CELLS_HDFS = "cells, rocksdb", "cells, hdfs"
CONTENDERS = {
    "A": (OURS, DISCARD, SPARK, SPARK_HDFS),
    "B": (OURS, DISCARD, CELLS, CELLS_HDFS),
    "B17": (OURS, DISCARD),
    "C": (OURS, DISCARD),
    "flat": (OURS,),
}
SLOW = (SPARK, CELLS, CELLS_HDFS)  # take many minutes
HDFS_STORE = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
CELL = 4 * BAND  # width of a cell: wider means fewer copies and more candidates
SCHEMA = "ts timestamp, key bigint, value bigint"


def settings(contender: str) -> dict[str, str]:
    """What the contender needs of the session beyond what all have."""
    if contender in (OURS, DISCARD):
        return {}
    own = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"}  # Spark's default
    if contender.endswith("hdfs"):
        own["spark.sql.streaming.stateStore.providerClass"] = HDFS_STORE
    return own


def pipeline(spark: SparkSession, contender: str, part: Part, folder: str, files_a_batch: int) -> DataFrame:
    """The joined stream: ts, key, value, ts_right, key_right, value_right."""

    def side(name: str) -> DataFrame:
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_a_batch)
        return reader.parquet(f"{folder}/{name}")

    left, right = side("left"), side("right")
    if contender in (OURS, DISCARD):
        return ours(left, right, part, contender)
    if contender.startswith("cells"):
        return cells(left, right, part)
    return plain(left, right, part.on, part)


def ours(left: DataFrame, right: DataFrame, part: Part, contender: str) -> DataFrame:
    import watersmeet as wm
    from watersmeet.bench.spark_discard import discarding_join
    from watersmeet.spark import stream_join

    window = wm.within(f"{part.window_us} us", time="ts")
    join = stream_join if contender == OURS else discarding_join
    return join(left, right, part.on, window)


def plain(left: DataFrame, right: DataFrame, on: str, part: Part) -> DataFrame:
    """Spark's own join, with the time range that lets it forget."""
    from pyspark.sql import functions as F

    span = f"interval {part.window_us} microseconds"
    near = f"r.ts >= l.ts - {span} and r.ts <= l.ts + {span}"
    l_side = left.withWatermark("ts", "0 seconds").alias("l")
    r_side = right.withWatermark("ts", "0 seconds").alias("r")
    joined = l_side.join(r_side, F.expr(f"({on}) and {near}"))
    names = ("ts", "key", "value")
    columns = [F.col(f"l.{name}").alias(name) for name in names]
    return joined.select(*columns, *(F.col(f"r.{name}").alias(f"{name}_right") for name in names))


def cells(left: DataFrame, right: DataFrame, part: Part) -> DataFrame:
    """A band by an equality on cells of the key."""
    from pyspark.sql import functions as F

    low, high = (F.floor((F.col("key") + edge) / F.lit(CELL)) for edge in (-BAND, BAND))
    left = left.withColumn("cell", F.floor(F.col("key") / F.lit(CELL)))
    right = right.withColumn("cell", F.explode(F.sequence(low, high)))
    return plain(left, right, f"l.cell = r.cell and ({part.on})", part)
