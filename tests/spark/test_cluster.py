"""Two executors, and tasks that run more than once: a restart finds the state of the attempts that counted."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from .crash_driver import CASES
from .processes import kill_group
from .test_crash import PATIENCE, Stream, environment

MASTER = "local-cluster[2,2,1024]"
BATCHES = 8


@pytest.fixture
def stream(tmp_path):
    found = Stream(tmp_path, BATCHES)
    for side in ("left", "right"):
        (tmp_path / "later" / side).mkdir(parents=True)
        for path in sorted((tmp_path / side).iterdir())[BATCHES // 2 :]:
            path.rename(tmp_path / "later" / side / path.name)
    return found


def check_attempts(stream: Stream) -> None:
    """That the test has tested something: two attempts of a task have each committed a state."""
    found = Counter(path.name.split("_")[0] for path in stream.folder.glob("checkpoint/state/0/0/*_*.changelog"))
    assert max(found.values()) > 1, found


def drive(stream: Stream, kind: str, version: int) -> None:
    from pyspark.find_spark_home import _find_spark_home

    stream.cases = [CASES["left"]]
    with open(stream.folder / "driver.log", "ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "spark.cluster_driver", str(stream.folder), MASTER, kind, str(version)],
            env=environment(stream.folder) | {"SPARK_HOME": _find_spark_home()},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        assert driver.wait(PATIENCE) == 0, stream.log[-5000:]
    finally:
        kill_group(driver.pid)
    stream.check()


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
def test_a_task_fails_behind_the_join_and_is_tried_again_elsewhere(stream, version):
    drive(stream, "fails", version)
    if version == 2:
        check_attempts(stream)
    assert len(list((stream.folder / "mishaps").iterdir())) == 2, "in two micro-batches"


@pytest.mark.long
def test_foreach_batch_with_two_actions(stream):
    drive(stream, "twice", 2)
    check_attempts(stream)
