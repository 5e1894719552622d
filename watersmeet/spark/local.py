"""What Spark on this machine is given beyond what a join needs anywhere.

Workers that are ready when they start: daemon.py. The daemon itself is started beside whatever the caller does next
(`start_daemon`), not with the first task.

Checkpoints without forks: Spark writes a checkpoint's files through one of two interfaces of Hadoop's. The one that it
takes by default asks a process of its own, `readlink`, about every file on a local disk, fifty times a micro-batch with
two cores: a fifth of a second when nothing else runs. The other one does not, and renames files by the same call of the
system. On other file systems than a local disk neither does.

A micro-batch that is run again writes files that are there already, and must replace them. Spark comes with Hive, whose
own kind of local file system refuses to rename onto a file, which Spark does not notice: the old one would stay. So
Hadoop's kind is asked for by name.
"""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Python functions in SQL get this by their environment, the stage with state does not; and Spark has a daemon, with
#: workers of its own, for every environment. Without it one daemon serves all stages, and is there before the first.
_TRACEBACK = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FILES = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}


def local_settings() -> dict[str, str]:
    """Settings of a JVM that we start for local[...]."""
    settings = {"spark.python.daemon.module": "watersmeet.spark.daemon", _TRACEBACK: "false"}
    manager = _class_named("FileSystemBasedCheckpointFileManager")
    return settings if manager is None else settings | _FILES | {_MANAGER: manager}


def start_daemon(spark: SparkSession) -> None:
    """Start the Python daemon now, on a thread of its own."""

    def start() -> None:
        try:
            spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()
        except Exception:  # the session has been stopped meanwhile, or the first task will say what is wrong
            pass

    threading.Thread(target=start, name="watersmeet-daemon", daemon=True).start()


def _class_named(name: str) -> str | None:
    """The full name of one of Spark's own classes, which releases move from package to package."""
    from pyspark.find_spark_home import _find_spark_home

    for jar in Path(_find_spark_home(), "jars").glob("spark-sql_*.jar"):
        with zipfile.ZipFile(jar) as entries:
            for entry in entries.namelist():
                if entry.endswith(f"/{name}.class"):
                    return entry.removesuffix(".class").replace("/", ".")
    return None
