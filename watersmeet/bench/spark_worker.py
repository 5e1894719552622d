"""One contender of `watersmeet bench spark`, in a process and a JVM of its own.

A contender that ran before would leave behind a warm JIT, a full heap and open state stores, so each gets a fresh JVM.
It first joins a small stream, which warms it up and whose results are checked by count and checksum, then the
measured one, timed, into a sink that throws rows away, checked by count. Specification in on standard input, outcome
out on standard output, both JSON: `python -m watersmeet.bench.spark_worker`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench.spark_data import CHECKSUM, FILES_A_BATCH, part
from watersmeet.bench.spark_pipelines import pipeline, settings
from watersmeet.spark.session import session

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
    """Check on the small streams, then measure on the large ones."""
    own = {
        "spark.driver.memory": spec["memory"],
        "spark.sql.shuffle.partitions": str(spec["cores"]),
        "spark.sql.streaming.numRecentProgressUpdates": RETAINED,
        "spark.log.level": "ERROR",
        "spark.local.dir": spec["scratch"],
    }
    start = time.perf_counter()
    spark = session(f"local[{spec['cores']}]", conf=own | settings(spec["contender"]))
    ready = time.perf_counter() - start
    try:
        outcome: dict[str, Any] = {"spark": spark.version, "session_s": round(ready, 2)}
        for name, seconds in (("check", spec["check_seconds"]), ("measured", spec["seconds"])):
            joined = pipeline(spark, spec["contender"], part(spec["part"], seconds), spec[name], FILES_A_BATCH)
            outcome[name] = execute(joined, Path(spec["scratch"], f"checkpoint-{name}"), checksum=name == "check")
    finally:
        spark.stop()
    return outcome


def execute(joined: DataFrame, checkpoint: Path, checksum: bool) -> dict[str, Any]:
    """Join all there is into a sink that throws it away."""
    from pyspark.sql import functions as F

    if checksum:
        joined = joined.observe("bench", F.expr(f"{CHECKSUM} as checksum"))
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    start = time.perf_counter()
    query = writer.start()
    query.awaitTermination()
    wall = time.perf_counter() - start
    records = [json.loads(record.json) for record in query.recentProgress]
    sums = [((record.get("observedMetrics") or {}).get("bench") or {}).get("checksum") or 0 for record in records]
    operators = [operator for record in records for operator in record["stateOperators"]]
    return {
        "rows_in": sum(record["numInputRows"] for record in records),
        "rows_out": sum(record["sink"]["numOutputRows"] for record in records),
        "checksum": sum(sums) if checksum else None,
        "wall_s": round(wall, 3),
        "seconds": sum(record["durationMs"]["triggerExecution"] for record in records) / 1000,
        "batches": [
            {"rows": record["numInputRows"], "seconds": record["durationMs"]["triggerExecution"] / 1000}
            for record in records
        ],
        "durations": records[-2]["durationMs"] if len(records) > 1 else records[-1]["durationMs"],
        "state_bytes": max((operator["memoryUsedBytes"] for operator in operators), default=0),
    }


if __name__ == "__main__":
    main()
