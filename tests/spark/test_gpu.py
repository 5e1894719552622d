"""device="gpu" on Spark: what is refused, and, on a cluster whose executor has a (simulated) GPU, what is joined."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import watersmeet as wm
from watersmeet.device import NoDevice
from watersmeet.spark import explain_join, gpu, stream_join

from .processes import kill_group
from .test_crash import PATIENCE, environment


def streams(spark):
    left = spark.readStream.format("rate").load().selectExpr("timestamp as ts", "value as x")
    return left, left


def test_a_session_without_gpus_is_refused_when_the_join_is_made(spark):
    for join in (stream_join, explain_join):
        with pytest.raises(ValueError, match=r"needs a GPU .* spark\.executor\.resource\.gpu\.amount is not set"):
            join(*streams(spark), "l.x = r.x", wm.within("1 second"), device="gpu")


def given(executor, task, master):
    settings = {gpu.EXECUTOR: executor, gpu.TASK: task, "spark.master": master}
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: settings[name] or default))


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (("1", None, "yarn"), "task.* is not set"),
        (("1", "0", "yarn"), "task.* is 0"),
        (("1", "0.5", "local[4]"), r"local mode \(local\[4\]\) has none"),
    ],
)
def test_tasks_without_a_share_are_refused(settings, wrong):
    with pytest.raises(ValueError, match=wrong):
        gpu.check_settings(given(*settings))


@pytest.mark.parametrize("master", ["yarn", "local-cluster[2,2,1024]", None])
def test_others_are_taken(master):
    gpu.check_settings(given("1", "0.25", master))


def test_other_mistakes_are_found_as_everywhere(spark, monkeypatch):
    with pytest.raises(ValueError, match="device must be one of cpu, gpu, got 'tpu'"):
        stream_join(*streams(spark), "l.x = r.x", wm.within("1 second"), device="tpu")
    monkeypatch.setattr("watersmeet.spark.join.check_settings", lambda session: None)
    with pytest.raises(ValueError, match="device 'gpu' needs an equality, band or inequality between the two sides"):
        stream_join(*streams(spark), "l.x % r.x = 1", wm.within("1 second"), device="gpu")
    text = explain_join(*streams(spark), "l.x = r.x", wm.within("1 second"), device="gpu")
    assert "index: bisort\ndevice: gpu, that of each task\n  there: " in text


def test_a_task_without_a_gpu_says_so():
    with pytest.raises(NoDevice, match="Spark has given this task no GPU; start the session with"):
        gpu.use_gpu_of_task()


@pytest.mark.long
def test_executors_with_a_gpu_join_on_it(tmp_path):
    from pyspark.find_spark_home import _find_spark_home

    log = tmp_path / "driver.log"
    with open(log, "ab") as out:
        driver = subprocess.Popen(
            [sys.executable, "-m", "spark.gpu_driver", str(tmp_path)],
            env=environment(tmp_path) | {"SPARK_HOME": _find_spark_home()},
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        assert driver.wait(PATIENCE) == 0, log.read_text()[-5000:]
    finally:
        kill_group(driver.pid)
    assert "all the same" in log.read_text()
