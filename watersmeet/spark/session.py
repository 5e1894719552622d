"""A Spark session with the settings that the join needs, for job files, the demo and the benchmarks.

Spark prints its log to standard error, where it would run through a progress display. `session(log=...)` gives the
JVM it starts a file instead. Packages are fetched before the JVM is ready: what went wrong there is in that file only.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from watersmeet.spark.checks import PARTITIONS, POLICY, ROCKSDB
from watersmeet.spark.local import local_settings, start_daemon

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = "spark.jars.packages"
LOG_LINES = 40

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


class PackagesMissing(ValueError):
    """Packages that could not be fetched."""


def session(
    master: str | None = None, remote: str | None = None, conf: dict[str, str] | None = None, log: Path | None = None,
    packages: Sequence[str] = (),
) -> SparkSession:
    """The running session, or a new one. `conf` goes before our settings; `packages` are Maven's."""
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
    here = own and local_threads(master or given.get("spark.master", "local")) is not None
    if packages:
        given = given | {PACKAGES: ",".join(packages)}
        check_packages(packages, own or (remote or "").startswith("local"))
    for name, value in ((OWN if own else {}) | (local_settings() if here else {}) | SETTINGS | given).items():
        builder = builder.config(name, value)
    try:
        with standard_error_to(log):
            spark = builder.getOrCreate()
    except RuntimeError as error:
        if "JAVA_GATEWAY_EXITED" in str(error) and log is not None:
            raise_unresolved(log.read_text(errors="replace"))
        raise
    if PARTITIONS not in given:
        # Spark's default of 200 is meant for large clusters; on one machine a core gains nothing by it.
        threads = local_threads(spark.conf.get("spark.master", None))
        if threads is not None:
            spark.conf.set(PARTITIONS, threads)
    if here:
        start_daemon(spark)
    return spark


def check_packages(packages: Sequence[str], starts: bool) -> None:
    """ValueError where the JVM runs already, for then it is too late."""
    if not starts:
        wanted = ",".join(packages)
        raise ValueError(
            f"packages are loaded by the process that starts Spark, and that is not this one: leave them out here, and "
            f"start it (spark-submit, or the Spark Connect server) with --packages {wanted}"
        )


def raise_unresolved(log: str) -> None:
    """PackagesMissing, if this is why Spark did not start: what is missing, and what was tried."""
    missing = re.findall(r"(?:unresolved dependency|download failed): ([^\s,\]]+)", log)
    if not missing:
        return
    names = dict.fromkeys(re.sub("[#;!]", ":", name).rstrip(":") for name in missing)
    tried = [text.rstrip() for text in log.splitlines() if text.strip() and not text.startswith(("\tat ", "\t... "))]
    raise PackagesMissing(
        f"Spark could not fetch {', '.join(names)}; look for a version that is there, or give the jars themselves "
        f"(conf.spark.jars). Its log:\n" + "\n".join(tried[-LOG_LINES:])
    )


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
