"""What can be wrong before a query starts, said in the user's words."""

from __future__ import annotations

from typing import Any

import pyspark

from watersmeet.query.windows import Hopping, Last, Side, Within

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
WATERMARK = "spark.watermarkDelayMs"  # the key under which Spark notes a watermark in a column's metadata


def check_frame(frame: Any, side: Side) -> None:
    from pyspark.sql import DataFrame

    if not isinstance(frame, DataFrame) and type(frame).__name__ != "DataFrame":
        raise TypeError(f"{side} must be a Spark DataFrame, or parquet_files, got {type(frame).__name__}")
    if not frame.isStreaming:
        raise ValueError(
            f"{side} is a batch DataFrame; stream_join joins two streams: read it with spark.readStream, or join it "
            f"with DataFrame.join"
        )


def check_client(frame: Any) -> None:
    if not hasattr(frame.groupBy(), "transformWithStateInPandas"):
        raise ValueError(
            f"left and right are DataFrames of Spark Connect, whose Python client has no transformWithStateInPandas in "
            f"PySpark {pyspark.__version__}; use PySpark 4.1 or newer, or classic Spark"
        )


def check_window(window: Any) -> None:
    if isinstance(window, Last):
        raise ValueError(
            "window last(n) counts tuples, and on Spark the two streams have no common order of arrival to count in; "
            "use within, tumbling or hopping"
        )
    if not isinstance(window, Within | Hopping):
        raise TypeError(f"window must be made by within, tumbling or hopping, got {window!r}")


def check_session(session: Any) -> None:
    provider = session.conf.get(PROVIDER)
    if "RocksDB" not in (provider or ""):
        raise ValueError(
            f"{PROVIDER} is {provider}; Spark keeps state of this kind only in RocksDB: set it to {ROCKSDB} before the "
            f"query starts"
        )
    wrong = bad_policy(session.conf.get(POLICY))
    if wrong is not None:
        raise ValueError(f"{wrong} before the query starts")


def bad_policy(value: str | None) -> str | None:
    """What is wrong with this policy for several watermarks; None: nothing, or it is not set."""
    if value is None or value.lower() == "min":
        return None
    return f"{POLICY} is {value}: with it, rows of the slower stream are late and are lost; set it to min"

