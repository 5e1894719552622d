"""One contender of `watersmeet bench spark --only kafka`, in a process and a JVM of its own.

    watersmeet       two topics, JSON, a band join, JSON, a topic
    no join          the same topics, JSON, their union, JSON, a topic: no Python, no state
    discard          as the join up to the joiner, which looks at nothing and returns nothing
    spark, rocksdb   Spark's own join, by an equality with as many results: a stage with state, without Python

A specification comes in on standard input, a line of JSON, then a line for each stream: `{"left": topic, ...}`. To each
it answers with a line when its query runs. A stream that is there already (`"live": false`) is read to its end; a live
one until a line `end` comes, and to its end then. The answer is a line with the times of all micro-batches.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench.spark.data import Part
from watersmeet.bench.spark.pipelines import SPARK, ours, plain, settings
from watersmeet.bench.spark.worker import RETAINED
from watersmeet.bench.workloads import BAND, Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_JOIN = "no join"
SCHEMA = "us bigint, key bigint, value bigint"
NAMES = ("us", "key", "value")
WINDOW_S = 10
LATENESS_US = 2_000_000


def join_at(contender: str, rate: int) -> Part:
    """The join over streams of so many rows/s, about one match for an arriving row."""
    name, band = ("A", 0) if contender == SPARK else ("B", BAND)
    window = rate * WINDOW_S
    workload = Workload("kafka", window, window, band, matches=1.0, spacing_us=1_000_000 // rate)
    return Part(name, workload, workload.on, workload.window_us, lateness_us=LATENESS_US)


def columns(contender: str) -> list[str]:
    """Of the messages that come out."""
    return list(NAMES) if contender == NO_JOIN else [*NAMES, *(f"{name}_right" for name in NAMES)]


def query(spark: SparkSession, spec: dict[str, Any], stream: dict[str, Any]) -> DataFrame:
    """Messages out, as the Kafka sink takes them."""
    from pyspark.sql import functions as F

    def side(topic: str) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", spec["address"])
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        if stream["batch_rows"]:
            reader = reader.option("maxOffsetsPerTrigger", stream["batch_rows"] // 2)
        parsed = reader.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")
        return parsed.select(F.timestamp_micros("us").alias("ts"), "key", "value")

    left, right, contender = side(stream["left"]), side(stream["right"]), spec["contender"]
    join = join_at(contender, stream["rate"])
    if contender == NO_JOIN:
        out = left.union(right)
    elif contender == SPARK:
        out = plain(left, right, join.on, join)
    else:
        out = ours(left, right, join, contender, "auto")
    micros = {"us" + name.removeprefix("ts"): F.unix_micros(name) for name in out.columns if name.startswith("ts")}
    out = out.withColumns(micros)
    return out.select(F.to_json(F.struct(*columns(contender))).alias("value"))


def state_ms(operators: list[dict[str, Any]]) -> dict[str, int]:
    """Milliseconds that state took, of all its partitions together."""
    found: dict[str, int] = {}
    for operator in operators:
        for name, value in (operator | operator.get("customMetrics", {})).items():
            if name.endswith(("TimeMs", "LatencyMs")) and value > 0:
                found[name] = found.get(name, 0) + value
    return found


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
    spark = session(f"local[{spec['cores']}]", conf=own | settings(spec["contender"]))
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
                | {"durations": record["durationMs"], "state": state_ms(record["stateOperators"])}
                for record in records
            ]
            print(json.dumps(found), file=answer_to, flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
