"""Two executors, and tasks that run more than once: a restart finds the state of the attempts that counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .cluster_driver import MISHAPS
from .processes import kill_group
from .standalone import standalone
from .test_crash import PATIENCE, Stream, environment

BATCHES = 8
WHOLE = {f"{batch}{what}" for batch in MISHAPS for what in ("", ".through")}


@pytest.fixture
def stream(tmp_path):
    """Half of it is there at once, the rest comes before the restart."""
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


def drive(
    stream: Stream, kind: str, version: int, how: str = "left", master: str = "local-cluster[2,2,1024]", **settings: str
) -> None:
    from pyspark.find_spark_home import _find_spark_home

    stream.hows = (how,)
    given = [str(stream.folder), master, how, kind, str(version), json.dumps(settings)]
    with open(stream.folder / "driver.log", "ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "spark.cluster_driver", *given],
            env=environment(stream.folder) | {"SPARK_HOME": _find_spark_home()},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        assert driver.wait(PATIENCE) == 0, stream.log[-5000:]
    finally:
        kill_group(driver.pid)
    stream.check()


def mishaps(stream: Stream) -> dict[str, int]:
    """By micro-batch, as "1": the executor where it was; as "1.through": the one where an attempt got through."""
    return {path.name: int(path.read_text()) for path in (stream.folder / "mishaps").iterdir()}


def speculative(events: Path) -> Counter:
    """How often Spark started a second attempt beside another, by the number of the task; from its event log."""
    found: Counter = Counter()
    for path in events.rglob("events_*"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]:
                found[event["Task Info"]["Index"]] += 1
    return found


@pytest.mark.long
@pytest.mark.parametrize("version", [1, 2])
def test_a_task_fails_behind_the_join_and_is_tried_again_elsewhere(stream, version):
    drive(stream, "fails", version)
    if version == 2:
        check_attempts(stream)
    assert mishaps(stream).keys() == WHOLE


@pytest.mark.long
def test_foreach_batch_with_two_actions(stream):
    drive(stream, "twice", 2)
    check_attempts(stream)


@pytest.mark.long
@pytest.mark.parametrize("how", ["left"])
def test_a_restart_is_exact_after_executors_were_killed_in_the_midst_of_tasks(stream, how):
    """Once when the state was committed, so that it is a dead executor's, and another commits its own; once before."""
    drive(stream, "dies", 1, how, "local-cluster[2,1,1024]")
    found = mishaps(stream)
    assert found.keys() == WHOLE
    assert all(found[f"{batch}"] != found[f"{batch}.through"] for batch in MISHAPS)
    assert stream.log.count("Command exited with code 137") >= len(MISHAPS) and "Lost task" in stream.log


@pytest.mark.long
@pytest.mark.parametrize("how", ["left"])
def test_a_restart_is_exact_after_speculative_attempts_overtook_tasks_whose_state_was_committed(stream, how):
    """On two addresses, for Spark starts no second attempt on a host that has one."""
    events = stream.folder / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",  # of the tasks of a stage must be done
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.efficiency.enabled": "false",  # by time alone
    }
    with standalone(stream.folder, environment(stream.folder), PATIENCE, ("127.0.0.1", "127.0.0.2")) as (address, _):
        drive(stream, "lags", 1, how, address, **settings)
    found = mishaps(stream)
    first, second = (found[f"{batch}.through"] for batch in MISHAPS)
    assert found["1"] != first
    assert found["1"] == second, "which went on from an attempt that did not count"
    assert found.get("2", first) == first
    lagged = len(found) - len(MISHAPS)
    assert speculative(events)[0] >= lagged, "by Spark's own account, too"
    assert "a mishap" not in stream.log, "no attempt failed by itself"
