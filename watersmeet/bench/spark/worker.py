"""One contender of `watersmeet bench spark`, in a process and a JVM of its own.

A contender that ran before would leave behind a warm JIT, a full heap and open state stores, so each gets a fresh JVM.
It joins the streams, timed, into a sink that keeps nothing but the number of rows and their checksum. The first
micro-batch is cold: it starts Python workers, compiles and plans, so it is not part of the rate (`rates`), and its time
is stored by itself. Specification in on standard input, outcome out on standard output, both JSON:
`python -m watersmeet.bench.spark.worker`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench.spark.checksum import Answer, expressions
from watersmeet.bench.spark.data import FILES_A_BATCH, part
from watersmeet.bench.spark.pipelines import pipeline, settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RETAINED = "10000"  # progress records that Spark keeps


def main() -> None:
    spec = json.load(sys.stdin)
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the JVM prints is not part of the answer
    json.dump(run(spec), answer_to)
    answer_to.close()


def run(spec: dict[str, Any]) -> dict[str, Any]:
    from watersmeet.spark.session import session

    own = {
        "spark.driver.memory": spec["memory"],
        "spark.sql.shuffle.partitions": str(spec["partitions"]),
        "spark.sql.streaming.numRecentProgressUpdates": RETAINED,
        "spark.log.level": "ERROR",
        "spark.local.dir": spec["scratch"],
    }
    start = time.perf_counter()
    spark = session(f"local[{spec['cores']}]", conf=own | settings(spec["contender"]))
    ready = time.perf_counter() - start
    try:
        wanted = part(spec["part"], spec["seconds"])
        joined = pipeline(spark, spec["contender"], wanted, spec["data"], FILES_A_BATCH, spec["route"])
        return execute(joined, Path(spec["scratch"], "checkpoint")) | {"session_s": round(ready, 2)}
    finally:
        spark.stop()


class Sink:
    """Of every micro-batch, how many rows it gave and their checksum."""

    def __init__(self, names: Sequence[str]) -> None:
        self.expressions = expressions(names)
        self.answers: dict[int, Answer] = {}  # by micro-batch

    def __call__(self, rows: DataFrame, batch: int) -> None:
        ((count, checksum),) = rows.selectExpr(*self.expressions).collect()
        self.answers[batch] = Answer(count, checksum)


def execute(joined: DataFrame, checkpoint: Path) -> dict[str, Any]:
    """Join all there is."""
    sink = Sink(joined.columns)
    writer = joined.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    start = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    wall = time.perf_counter() - start
    records = [json.loads(record.json) for record in query.recentProgress]
    operators = [operator for record in records for operator in record["stateOperators"]]
    total = sum(sink.answers.values(), Answer())
    return {
        "rows_in": sum(map(arrived, records)),
        "rows_out": total.rows,
        "checksum": total.checksum,
        "wall_s": round(wall, 3),
        "batches": [
            {
                "rows": arrived(record),
                "rows_out": sink.answers.get(record["batchId"], Answer()).rows,
                "seconds": record["durationMs"]["triggerExecution"] / 1000,
            }
            for record in records
        ],
        "durations": records[-2]["durationMs"] if len(records) > 1 else records[-1]["durationMs"],
        "state_bytes": max((operator["memoryUsedBytes"] for operator in operators), default=0),
    }


def arrived(record: dict[str, Any]) -> int:
    """Rows in: by Spark's own count, or by the join's, where Spark counts files and joiners do join."""
    from watersmeet.spark.progress import rows_in

    return max(record["numInputRows"], rows_in(record))


def rates(outcome: dict[str, Any]) -> dict[str, float]:
    """Rows/s in and out without the first micro-batch, its seconds, and rows/s in with it."""
    cold, *warm = outcome["batches"]
    seconds = sum(batch["seconds"] for batch in warm)
    return {
        "rows_per_s": sum(batch["rows"] for batch in warm) / seconds,
        "results_per_s": sum(batch["rows_out"] for batch in warm) / seconds,
        "cold_s": cold["seconds"],
        "with_cold": outcome["rows_in"] / (seconds + cold["seconds"]),
    }


if __name__ == "__main__":
    main()
