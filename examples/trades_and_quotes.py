"""Trades meet the quotes that were near them in price and time, on Spark: copy, change, run.

    python examples/trades_and_quotes.py

Two folders of Parquet files stand for the two streams. Trades say at what price something was bought; quotes say at
what price somebody offered it. Which quotes of its symbol was each large trade within 5 cents and half a second of? An
equality, a band, a condition on one side, and a window of time.
"""

import os
import sys
import tempfile

from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.spark import explain_join, stream_join

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TRADES = "trade_id bigint, ts timestamp, symbol string, price decimal(10,2), quantity bigint"
QUOTES = "quote_id bigint, ts timestamp, symbol string, price decimal(10,2), venue string"


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

        print("before: the trades ...")
        spark.read.parquet(f"{folder}/trades").orderBy("trade_id").show(truncate=False)
        print("... and the quotes")
        spark.read.parquet(f"{folder}/quotes").orderBy("quote_id").show(truncate=False)

        # ---- the part to copy -----------------------------------------------------------------------------
        trades = spark.readStream.schema(TRADES).parquet(f"{folder}/trades")
        quotes = spark.readStream.schema(QUOTES).parquet(f"{folder}/quotes")
        on = "l.symbol = r.symbol and abs(l.price - r.price) <= 0.05 and l.quantity >= 100"
        window = wm.within("500 milliseconds", time="ts", lateness="2 seconds")
        matches = stream_join(trades, quotes, on, window)
        query = (
            matches.writeStream.format("parquet")
            .option("path", f"{folder}/matches")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)  # all there is, then stop; leave it out to go on for ever
            .start()
        )
        query.awaitTermination()
        # ----------------------------------------------------------------------------------------------------

        print("how:")
        print(explain_join(trades, quotes, on, window))
        print("\nafter: the matches")
        shown = "trade_id", "ts", "symbol", "price", "quantity", "quote_id", "ts_right", "price_right", "venue"
        spark.read.parquet(f"{folder}/matches").select(*shown).orderBy("trade_id", "quote_id").show(truncate=False)


def write_files(spark: SparkSession, folder: str) -> None:
    """A few rows of each stream, as files."""
    day = "2026-01-05 14:30:0"
    trades = [
        (1, f"{day}0.100", "AAPL", 187.20, 100),
        (2, f"{day}0.250", "MSFT", 402.11, 300),
        (3, f"{day}1.400", "AAPL", 187.31, 50),  # too few
        (4, f"{day}2.000", "AAPL", 187.28, 200),
    ]
    quotes = [
        (1, f"{day}0.000", "AAPL", 187.22, "NYSE"),
        (2, f"{day}0.150", "MSFT", 402.30, "IEX"),  # 19 cents away
        (3, f"{day}0.600", "AAPL", 187.25, "BATS"),  # exactly 500 ms after trade 1, and 5 cents above
        (4, f"{day}0.700", "MSFT", 402.08, "NYSE"),
        (5, f"{day}2.300", "AAPL", 187.30, "IEX"),
        (6, f"{day}2.600", "AAPL", 187.28, "IEX"),  # 600 ms after trade 4
    ]
    for name, rows, schema in (("trades", trades, TRADES), ("quotes", quotes, QUOTES)):
        simple = schema.replace("ts timestamp", "ts string").replace("decimal(10,2)", "double")
        rough = spark.createDataFrame(rows, simple)
        exact = rough.withColumns({"ts": rough.ts.cast("timestamp"), "price": rough.price.cast("decimal(10,2)")})
        exact.write.parquet(f"{folder}/{name}")


if __name__ == "__main__":
    main()
