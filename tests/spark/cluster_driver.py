"""A driver on two executors whose tasks are run more than once: joins the streams of a folder, restarts, joins on.

    python -m spark.cluster_driver FOLDER MASTER fails|twice 1|2

fails   behind the join, in the same task, is a stage that fails the first time in two micro-batches, in one of two
        tasks, when the state has been committed; the task is tried again on the other executor. So the second time it
        is back on the first, which has a state of its own from the attempt that failed
twice   foreachBatch with two actions, each of which runs the join

The last is the format of the state's checkpoints. Streams, checkpoint and results are in the folder; what is in `later`
joins them for the restart.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq

from watersmeet.spark.session import session

from .cases import joined, run
from .crash_driver import CASES, CONF

MISHAPS = (1, 2)  # micro-batches
SETTINGS = {
    # No snapshots, which would hide what is wrong with a changelog.
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000",
    "spark.excludeOnFailure.enabled": "true",  # so that another executor tries again
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "9",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "9",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "99",
    "spark.excludeOnFailure.application.maxFailedExecutorsPerNode": "9",
}


class Mishap:
    """A stage behind the join: a task fails in its first attempt, when it has seen all results."""

    def __init__(self, folder: Path):
        self._folder = folder

    def __call__(self, batches):
        from pyspark import TaskContext

        yield from batches
        task = TaskContext.get()
        batch = int(task.getLocalProperty("streaming.sql.batchId"))
        mark = self._folder / f"{batch}-{task.partitionId()}"
        if batch in MISHAPS and task.partitionId() == 0 and not mark.exists():
            mark.touch()
            raise RuntimeError("a mishap")


def main(folder: Path, master: str, kind: str, version: str) -> None:
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": version,
    }
    spark = session(master, conf=CONF | SETTINGS | own)
    (folder / "mishaps").mkdir(exist_ok=True)

    def once() -> None:
        frame = joined(spark, folder, [CASES["left"]])
        if kind != "twice":
            run(frame.mapInArrow(Mishap(folder / "mishaps"), frame.schema), folder)
            return

        def sink(batch, number: int) -> None:
            batch.count()
            batch.write.mode("overwrite").parquet(str(folder / "out" / f"batch={number}"))

        query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    once()
    files = list(folder.rglob("watersmeet"))
    assert files
    for path in files:  # so that nothing is left but the checkpoint
        shutil.rmtree(path)
    for path in sorted((folder / "later").rglob("*.parquet")):
        path.rename(folder / path.parent.name / path.name)
    once()
    answer = spark.read.parquet(str(folder / "out")).select("case", "l", "r")
    pq.write_table(answer.toArrow(), folder / "answer.parquet")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
