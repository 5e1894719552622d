"""One Spark session for all tests of this folder, started by the first that needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/New_York",  # not UTC, on purpose
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
}


def spark_environment() -> dict[str, str]:
    """What a process that starts Spark needs."""
    found = {"PYSPARK_PYTHON": sys.executable}
    if "JAVA_HOME" not in os.environ:
        java = subprocess.run([ROOT / "tools" / "java.sh"], capture_output=True, text=True, check=True)
        found["JAVA_HOME"] = java.stdout.strip()
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All tests with the session in one of the test processes: it takes seconds to start, and much memory."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from watersmeet.spark.session import session

    os.environ.update(spark_environment())
    found = session(master="local[2]", conf=CONF, log=tmp_path_factory.mktemp("spark") / "spark.log")
    yield found
    found.stop()
