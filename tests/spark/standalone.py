"""A standalone cluster of two workers, real processes on this machine."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import executors, kill, kill_group


@contextmanager
def standalone(
    folder: Path, environment: dict[str, str], patience: float, hosts: tuple[str, str] = ("127.0.0.1",) * 2
) -> Iterator[tuple[str, list[int]]]:
    """Its address, and the workers' process ids. environment: of its processes, and so of its executors.

    hosts: the workers' addresses; two different ones, and Spark takes them for two machines."""
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(folder / "local"), "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen] = []

    def start(name: str, of: str, *arguments: str, host: str = "127.0.0.1") -> Path:
        log = folder / f"{name}.log"
        with open(log, "wb") as file:
            command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{of}", "--host", host]
            started.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments],
                    env=environment | own, stdout=file, stderr=file, start_new_session=True,
                )  # fmt: skip
            )
        return log

    def found(log: Path, pattern: str) -> str:
        end = time.monotonic() + patience
        while not (match := re.search(pattern, log.read_text())):
            assert time.monotonic() < end and started[-1].poll() is None, log.read_text()[-3000:]
            time.sleep(0.05)
        return match[0]

    try:
        address = found(start("master", "master.Master", "--port", "0"), r"spark://127\.0\.0\.1:\d+")
        work = "--cores", "1", "--memory", "1g"
        logs = [start(f"worker{n}", "worker.Worker", *work, "--work-dir", str(folder / f"work{n}"), address, host=host)
                for n, host in enumerate(hosts)]  # fmt: skip
        for log in logs:
            found(log, "Successfully registered with master")
        yield address, [process.pid for process in started[1:]]
    finally:
        for process in reversed(started):
            for child in executors(process.pid):
                kill(child)
            kill_group(process.pid)
