"""A driver on two executors whose tasks are run more than once: joins the streams of a folder, restarts, joins on.

    python -m spark.cluster_driver FOLDER MASTER left|inner fails|twice|dies|lags 1|2 [SETTINGS, as JSON]

fails   behind the join, in the same task, is a stage that fails the first time in two micro-batches, in one of two
        tasks, when the state has been committed; the task is tried again on the other executor. So the second time it
        is back on the first, which has a state of its own from the attempt that failed
dies    likewise, but it takes its whole executor along (kill -9), the second time before it has read anything
lags    likewise, but it goes no further until it is killed: for a second attempt to get ahead of it (speculation); the
        second time only where that one was, so that what counts then is on the executor that lagged at first
twice   foreachBatch with two actions, each of which runs the join

The number is the format of the state's checkpoints. Streams, checkpoint and results are in the folder; what is in
`later` joins them for the restart. `mishaps` has a file for each mishap, and one for each attempt that got through
after it: both hold the process id of the executor.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from watersmeet.spark.session import session

from .cases import joined, run
from .crash_driver import CASES, CONF
from .processes import kill, parent

MISHAPS = (1, 2)  # micro-batches
PATIENCE = 120  # seconds that an attempt lags at most
SETTINGS = {
    # No snapshots, which would hide what is wrong with a changelog.
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000",
    # Executors begin sooner: their Python workers have Watersmeet when they start, and are of one kind.
    "spark.python.daemon.module": "watersmeet.spark.daemon",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
FAILS = {
    "spark.excludeOnFailure.enabled": "true",  # so that another executor tries again
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "9",
    "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode": "9",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "99",
    "spark.excludeOnFailure.application.maxFailedExecutorsPerNode": "9",
}


class Mishap:
    """A stage behind the join: in some micro-batches the first attempt of a task does not get through."""

    def __init__(self, folder: Path, kind: str):
        self._folder = folder
        self._kind = kind

    def __call__(self, batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        batch = int(task.getLocalProperty("streaming.sql.batchId"))
        if batch not in MISHAPS or task.partitionId() != 0:
            yield from batches
            return
        executor = parent(os.getppid())  # this worker's daemon is its child
        mark = self._folder / "mishaps" / f"{batch}"
        again = mark.exists()
        if self._kind == "lags" and batch == MISHAPS[1]:
            again = again or executor != int(mark.with_name(f"{MISHAPS[0]}.through").read_text())
        if not again and self._kind == "dies" and batch == MISHAPS[1]:
            self._die(mark, executor)
        yield from batches
        if again:
            mark.with_suffix(".through").write_text(str(executor))
            return
        self._wait_for_state(batch)
        if self._kind == "dies":
            self._die(mark, executor)
        if self._kind == "fails":
            mark.write_text(str(executor))
            raise RuntimeError("a mishap")
        try:
            with mark.open("x") as file:
                file.write(str(executor))
        except FileExistsError:  # the second attempt began before the first was here
            mark.with_suffix(".through").write_text(str(executor))
            return
        time.sleep(PATIENCE)  # it is killed
        raise RuntimeError("a mishap")

    def _wait_for_state(self, batch: int) -> None:
        """Until this attempt has committed it, which is before the task ends."""
        end = time.monotonic() + PATIENCE
        while not [*self._folder.glob(f"checkpoint/state/0/0/{batch + 1}*.changelog")]:
            assert time.monotonic() < end, "there is no state"
            time.sleep(0.01)

    @staticmethod
    def _die(mark: Path, executor: int) -> None:
        mark.write_text(str(executor))
        kill(executor)
        time.sleep(PATIENCE)  # Spark's Python processes go with it


def main(folder: Path, master: str, how: str, kind: str, version: str, settings: str = "{}") -> None:
    own = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.streaming.stateStore.checkpointFormatVersion": version,
    }
    retries = FAILS if kind == "fails" else {}
    spark = session(master, conf=CONF | SETTINGS | retries | own | json.loads(settings))
    (folder / "mishaps").mkdir(exist_ok=True)

    def once() -> None:
        frame = joined(spark, folder, [CASES[how]])
        if kind != "twice":
            run(frame.mapInArrow(Mishap(folder, kind), frame.schema), folder)
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
