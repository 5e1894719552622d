"""One contender of `watersmeet bench spark --only kafka`, in a process and a JVM of its own.

    join      two topics, JSON, a band join, JSON, a topic
    no join   the same topics, JSON, their union, JSON, a topic: no Python at all

A specification comes in on standard input, a line of JSON, then a line for each stream: `{"left": topic, ...}`. To each
it answers with a line when its query runs. A stream that is there already (`"live": false`) is read to its end; a live
one until a line `end` comes, and to its end then. The answer is a line with the seconds of all micro-batches.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench.spark.worker import RETAINED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOIN, NO_JOIN = "watersmeet", "no join"
SCHEMA = "us bigint, key bigint, value bigint"
NAMES = ("us", "key", "value")
LATENESS = "2 seconds"


def columns(contender: str) -> list[str]:
    """Of the messages that come out."""
    return [*NAMES, *(f"{name}_right" for name in NAMES)] if contender == JOIN else list(NAMES)


def query(spark: SparkSession, spec: dict[str, Any], stream: dict[str, Any]) -> DataFrame:
    """Messages out, as the Kafka sink takes them."""
    from pyspark.sql import functions as F

    import watersmeet as wm
    from watersmeet.spark import stream_join

    def side(topic: str) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spec["address"])
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        if stream["batch_rows"]:
            reader = reader.option("maxOffsetsPerTrigger", stream["batch_rows"] // 2)
        parsed = reader.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        return parsed.withColumn("ts", F.timestamp_micros("us"))

    left, right = side(stream["left"]), side(stream["right"])
    if spec["contender"] == JOIN:
        window = wm.within(f"{stream['window_us']} us", time="ts", lateness=LATENESS)
        out = stream_join(left, right, stream["on"], window)
    else:
        out = left.union(right)
    return out.select(F.to_json(F.struct(*columns(spec["contender"]))).alias("value"))


def main() -> None:
    from watersmeet.spark.session import session

    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is not part of the answer
    spec = json.loads(sys.stdin.readline())
    own = {
        "spark.driver.memory": spec["memory"],
        "spark.sql.shuffle.partitions": str(spec["cores"]),
        "spark.sql.streaming.numRecentProgressUpdates": RETAINED,
        "spark.log.level": "ERROR",
        "spark.local.dir": spec["scratch"],
        "spark.jars": spec["jars"],
    }
    spark = session(f"local[{spec['cores']}]", conf=own)
    try:
        for number, line in enumerate(iter(sys.stdin.readline, "")):
            stream = json.loads(line)
            checkpoint = str(Path(spec["scratch"], f"checkpoint-{number}"))
            writer = query(spark, spec, stream).writeStream.format("kafka").option("topic", stream["out"])
            writer = writer.option("kafka.bootstrap.servers", spec["address"]).option("checkpointLocation", checkpoint)
            running = (writer if stream["live"] else writer.trigger(availableNow=True)).start()
            print("running", file=answer_to, flush=True)
            if stream["live"]:
                assert sys.stdin.readline().strip() == "end"
                running.processAllAvailable()
                running.stop()
            else:
                running.awaitTermination()
            records = [json.loads(record.json) for record in running.recentProgress]
            found = [
                {"rows": record["numInputRows"], "seconds": record["durationMs"]["triggerExecution"] / 1000}
                | {"durations": record["durationMs"]}
                for record in records
            ]
            print(json.dumps(found), file=answer_to, flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
