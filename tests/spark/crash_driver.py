"""A driver to be killed: joins the streams of a folder to their end, from wherever its checkpoint says.

    python -m spark.crash_driver FOLDER MASTER inner,left|count,three [SETTINGS, as JSON [SINK]]

Streams, checkpoint and results are in the folder; left streams are parquet_files, right ones DataFrames. The sink is
Spark's own of Parquet files; or, as "batches", a function that writes a folder for each micro-batch (docs/clusters.md).
At the end what Spark reads from it, which of Spark's files only those are that count, goes to answer.parquet.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

from watersmeet.spark.session import session

from .behind import BEHIND, behind
from .cases import Case, joined, run

CASES = {
    "inner": Case("abs(l.x - r.x) <= 2", "within", "inner", "cells"),
    "hot": Case("l.s = r.s and abs(l.x - r.x) <= 9", "within", "inner", "hot_cold", "hot_cold"),
    "left": Case("l.k = r.k and l.x = r.x", "long", "left", "hash"),
}
JOINING = "the query starts"
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    # Snapshots of the state often, so that restarts begin with one and go on with a changelog.
    "spark.sql.streaming.stateStore.maintenanceInterval": "3s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}


def run_by_batch(frame, folder: Path) -> None:
    """As `run`, into a sink of our own that is exact because it takes the number of a micro-batch once."""

    def write(batch, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder / 'out'}/batch={number}")

    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def main(folder: Path, master: str, hows: str, settings: str = "{}", sink: str = "files") -> None:
    spark = session(master, conf=CONF | {"spark.local.dir": str(folder / "local")} | json.loads(settings))
    names = tuple(hows.split(","))
    cases = [CASES[how] for how in names] if names != BEHIND else []
    frame = joined(spark, folder, cases, files=["left"]) if cases else behind(spark, folder)
    print(JOINING, flush=True)
    (run_by_batch if sink == "batches" else run)(frame, folder)
    pq.write_table(spark.read.parquet(str(folder / "out")).toArrow(), folder / "answer.parquet")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
