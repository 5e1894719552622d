"""A Spark session with the settings that the join needs, for job files, the demo and the benchmarks.

Spark prints its log to standard error, where it would run through a progress display. `session(log=...)` gives the
JVM it starts a file instead.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watersmeet.spark.checks import PARTITIONS, POLICY, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Settings of the session that a join needs, or is much slower without.
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    POLICY: "min",
    # Rows go to Python in larger batches than Spark's 10,000; wide rows in smaller ones, for it limits bytes, too.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
#: Those of a JVM that we start ourselves: no web server, no progress bars in the log, and Arrow without checks of
#: every single access, which cost time where there are many results.
OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false",
}


def session(
    master: str | None = None, remote: str | None = None, conf: dict[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """The running session, or a new one. `conf` goes before our settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("watersmeet")
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    if local_threads(master or "local") or (remote or "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark takes any python3 on the PATH
    given = conf or {}
    own = remote is None and "SPARK_REMOTE" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ
    for name, value in ((OWN if own else {}) | SETTINGS | given).items():
        builder = builder.config(name, value)
    with standard_error_to(log):
        spark = builder.getOrCreate()
    if PARTITIONS not in given:
        # Spark's default of 200 is meant for large clusters; on one machine a core gains nothing by it.
        threads = local_threads(spark.conf.get("spark.master", None))
        if threads is not None:
            spark.conf.set(PARTITIONS, threads)
    return spark


def local_threads(master: str | None) -> int | None:
    """How many tasks local[...] runs at once; None for a cluster.

    >>> local_threads("local[2]"), local_threads("local"), local_threads("spark://host:7077")
    (2, 1, None)
    """
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master or "")
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1] or 1)


@contextmanager
def standard_error_to(log: Path | None) -> Iterator[None]:
    """Processes started meanwhile write their standard error to this file, for all their life."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    try:
        with open(log, "ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
