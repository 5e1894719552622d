"""Three streams joined in one query on Spark, and counted by the minute behind the joins: copy, change, run.

    python examples/three_streams.py

Orders meet payments whose amount is within 5 cents, up to 10 seconds later; nobody has told the two which belong
together. Then they meet their shipments, up to a minute later. How many orders of each minute were shipped unpaid?
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.spark import stream_join

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ORDERS = "order_id bigint, ts timestamp, amount double"
PAYMENTS = "payment_id bigint, ts timestamp, amount double"
SHIPMENTS = "order_id bigint, ts timestamp"


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python; only needed on your own machine
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)  # the join's state needs it
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.shuffle.partitions", 2)  # as many join cores
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with tempfile.TemporaryDirectory() as folder:
        write_files(spark, folder)

        # ---- the part to copy -----------------------------------------------------------------------------
        # Orders have a watermark already, as where they are used elsewhere, too: the join takes it as it is.
        orders = spark.readStream.schema(ORDERS).parquet(f"{folder}/orders").withWatermark("ts", "2 seconds")
        payments = spark.readStream.schema(PAYMENTS).parquet(f"{folder}/payments")
        shipments = spark.readStream.schema(SHIPMENTS).parquet(f"{folder}/shipments")

        soon = wm.within(0, "10 seconds", time="ts", lateness=(None, "2 seconds"))
        same = lambda order, payment: (order.amount - payment.amount).abs() <= 0.05  # noqa: E731
        paid = stream_join(orders, payments, same, soon, "left")

        later = wm.within(0, "1 minute", time="ts", lateness=(None, "2 seconds"))
        shipped = stream_join(paid, shipments, "l.order_id = r.order_id", later, suffix="_shipped")

        # Results have an event time, the order's: so they can be counted by it, exactly.
        unpaid = shipped.where("payment_id is null").groupBy(F.window("ts", "1 minute")).count()
        query = (
            unpaid.select("window.start", "count").writeStream.format("parquet")
            .option("path", f"{folder}/unpaid")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)  # all there is, then stop; leave it out to go on for ever
            .start()
        )  # fmt: skip
        query.awaitTermination()
        # ----------------------------------------------------------------------------------------------------

        print("orders that were shipped unpaid:")
        spark.read.parquet(f"{folder}/unpaid").orderBy("start").show(truncate=False)


def write_files(spark: SparkSession, folder: str) -> None:
    """A few rows of each stream, as files; the last of each are an hour later, which ends all waiting."""
    hour, end = "2026-01-05 14:", "2026-01-05 15:00:00"
    orders = [
        (1, f"{hour}30:01", 20.00),
        (2, f"{hour}30:02", 99.90),
        (3, f"{hour}30:59", 35.50),
        (4, f"{hour}31:00", 12.25),
        (5, f"{hour}31:10", 12.25),
        (6, end, 1.00),
    ]
    payments = [
        (1, f"{hour}30:05", 20.03),  # for order 1
        (2, f"{hour}30:30", 99.90),  # 28 seconds after order 2: too late
        (3, f"{hour}31:09", 35.50),  # for order 3
        (4, f"{hour}31:12", 12.28),  # for order 5; order 4 is 12 seconds ago
        (5, end, 500.00),
    ]
    shipments = [
        (1, f"{hour}30:40"),
        (2, f"{hour}30:50"),  # unpaid
        (3, f"{hour}31:58"),
        (4, f"{hour}31:20"),  # unpaid
        (99, end),
    ]
    for name, rows, schema in (
        ("orders", orders, ORDERS), ("payments", payments, PAYMENTS), ("shipments", shipments, SHIPMENTS)
    ):  # fmt: skip
        rough = spark.createDataFrame(rows, schema.replace("ts timestamp", "ts string"))
        rough.withColumn("ts", rough.ts.cast("timestamp")).write.parquet(f"{folder}/{name}")


if __name__ == "__main__":
    main()
