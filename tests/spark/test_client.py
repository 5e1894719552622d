"""A Spark Connect server, and a client that has neither py4j nor a JVM."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pyspark
import pytest

from .conftest import CONF, ROOT, spark_environment
from .processes import kill_group
from .test_kafka import tool

PATIENCE = 600


@pytest.fixture
def server(tmp_path):
    """The address of a server of this Spark, on this machine alone."""
    from pyspark.find_spark_home import _find_spark_home

    port = tool.free_port()
    home = _find_spark_home()
    settings = CONF | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.port.maxRetries": "0",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [f"{home}/bin/spark-submit", "--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "SPARK_HOME": home}
    with open(tmp_path / "server.log", "wb") as log:
        running = subprocess.Popen(
            command, env=os.environ | spark_environment() | path, stdout=log, stderr=log, start_new_session=True,
            cwd=tmp_path,
        )  # fmt: skip
    try:
        until = time.monotonic() + PATIENCE
        while True:
            assert running.poll() is None and time.monotonic() < until, (tmp_path / "server.log").read_text()[-3000:]
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_group(running.pid)


@pytest.mark.long
@pytest.mark.skipif(pyspark.__version__.startswith("4.0."), reason="4.0's client has no transformWithStateInPandas")
def test_a_client_without_py4j(server, tmp_path):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE", "SPARK_HOME", "JAVA_HOME"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "spark.client_driver", server, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
