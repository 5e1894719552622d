"""kill -9, and start again: the results in the Parquet sink are exact, no row lost or doubled.

Real processes: a driver (crash_driver.py) with joins by three routes, one of them hot and cold, or the left one only,
or with a windowed count and a third stream behind a join (behind.py); file sources, RocksDB with changelog checkpoints,
and beside Spark's sink of files one in `foreachBatch`.
It is killed, or its Python workers, or executors of a standalone cluster, while it works.
By default only a few are killed, as time allows; WATERSMEET_CRASHES=10 kills so many at random moments.
What was hit is written to standard output (pytest -n 0 -s).
"""

from __future__ import annotations

import glob
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from .behind import BEHIND, expected
from .cases import BEGIN, SCHEMA, SECOND, counted, cut, from_duckdb, tuples, write
from .conftest import ROOT, spark_environment
from .crash_driver import CASES, JOINING
from .processes import executors, kill, kill_group, python_workers
from .standalone import standalone

CRASHES = int(os.environ.get("WATERSMEET_CRASHES", "1"))
SEED = int(os.environ.get("WATERSMEET_SEED", "1"))
PATIENCE = 900  # seconds, for anything that is waited for
ROWS = 100  # of a file: 5 seconds of the stream

pytestmark = pytest.mark.slow


def environment(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder)}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_"))}
    return kept | spark_environment() | own


class Stream:
    """Two streams in a folder, and the query over them."""

    def __init__(self, folder: Path, batches: int):
        self.folder = folder
        self.sink = "files"
        self.data = {side: tuples(seed, ROWS * batches) for side, seed in (("left", 1), ("right", 2))}
        for side, rows in self.data.items():
            # A driver that dies between the last tuples and the micro-batch without tuples that hands out what these
            # made due leaves that to the next tuples, as in Spark's own joins. So there are some, an hour later.
            end = dict.fromkeys(SCHEMA.names) | {"id": -1, "ts": BEGIN + 7200 * SECOND}
            write(folder / side, [*cut(rows, batches, len(side)), [end]])
        self.starts = 0
        self.driver: subprocess.Popen | None = None

    def start(self, master: str, *hows: str) -> None:
        self.starts += 1
        self.hows = hows
        with open(self.folder / "driver.log", "ab") as log:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "spark.crash_driver", str(self.folder), master, ",".join(hows), "{}", self.sink],
                env=environment(self.folder), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self) -> str:
        """The driver, Python and JVM; at which point of its work."""
        kill_group(self.driver.pid)
        self.driver.wait()
        return self.point()

    @property
    def running(self) -> bool:
        return self.driver.poll() is None

    def finish(self) -> None:
        assert self.driver.wait(PATIENCE) == 0, self.log[-5000:]

    @property
    def log(self) -> str:
        return (self.folder / "driver.log").read_text()

    # -- where it is -------------------------------------------------------------------------------------------------

    def numbers(self, *path: str) -> set[int]:
        """Of the files in this folder that begin with one."""
        try:
            names = os.listdir(self.folder.joinpath(*path))
        except FileNotFoundError:
            return set()
        return {int(match[0]) for name in names if (match := re.match(r"\d+", name)) and not name.endswith(".tmp")}

    @property
    def begun(self) -> set[int]:
        return self.numbers("checkpoint", "offsets")

    @property
    def committed(self) -> set[int]:
        return self.numbers("checkpoint", "commits")

    @property
    def written(self) -> set[int]:
        if self.sink == "batches":  # a folder's mark that all of it is there
            return {int(path.parent.name.removeprefix("batch=")) for path in self.folder.glob("out/batch=*/_SUCCESS")}
        return self.numbers("out", "_spark_metadata")

    @property
    def states(self) -> list[int]:
        """Versions of the state that tasks have committed."""
        names = [path.name for path in self.folder.glob("checkpoint/state/*/*/*.changelog")]
        return [int(re.match(r"\d+", name)[0]) for name in names if name[0].isdigit()]

    def point(self) -> str:
        last = max(self.begun, default=None)
        if last is None:
            return "before the first micro-batch"
        if last in self.committed:
            return f"after micro-batch {last}"
        if last in self.written:
            return f"in micro-batch {last}, its results committed"
        tasks = self.states.count(last + 1)
        return f"in micro-batch {last}, state committed by {tasks} tasks" if tasks else f"in micro-batch {last}"

    def wait(self, reached, what: str) -> None:
        """Until it is, looking often. The driver must be running."""
        end = time.monotonic() + PATIENCE
        while not reached():
            assert self.running, f"the driver ended before {what}:\n{self.log[-5000:]}"
            assert time.monotonic() < end, f"waited too long for {what}"
            time.sleep(0.001)

    def wait_for_batches(self, count: int) -> None:
        """Until so many more are committed."""
        before = len(self.committed)
        self.wait(lambda: len(self.committed) >= before + count, f"{count} micro-batches")

    def wait_for_query(self) -> None:
        """Until it has been started."""
        self.wait(lambda: self.log.count(JOINING) == self.starts, "the query")

    def some_time(self, pick: random.Random) -> None:
        """Anywhere in a micro-batch, as long as the shortest so far: others had a crash in them."""
        checkpoint = self.folder / "checkpoint"
        times = [[(checkpoint / name / str(n)).stat().st_mtime for name in ("offsets", "commits")]
                 for n in self.committed & self.begun]  # fmt: skip
        time.sleep(pick.uniform(0, min([10, *(end - begin for begin, end in times)])))

    def wait_for_empty_folders(self) -> None:
        """Spark deletes our files with the application: those of killed processes too."""
        end = time.monotonic() + PATIENCE
        while left := glob.glob(f"{self.folder}/**/watersmeet/*", recursive=True):
            assert time.monotonic() < end, left
            time.sleep(0.1)

    def check(self) -> None:
        results = counted(pq.read_table(self.folder / "answer.parquet"), self.hows)
        behind = expected(self.data) if self.hows == BEHIND else None
        for number, (case, found) in enumerate(zip(self.hows, results, strict=True)):
            found = type(found)({pair: n for pair, n in found.items() if pair[0] != -1})
            right = behind[number] if behind else from_duckdb(self.data, CASES[case])
            assert right.total() > (1000 if case != "count" else 10)
            assert case != "left" or any(r is None for _, r in right)
            assert not right - found, f"{case}: lost {right - found}"
            assert not found - right, f"{case}: doubled or wrong {found - right}"


def say(*words: object) -> None:
    print("\n  ", *words, end="", flush=True)


@pytest.fixture
def stream(tmp_path) -> Iterator[Stream]:
    stream = Stream(tmp_path, 4 + 3 * CRASHES)
    yield stream
    if stream.driver is not None:
        kill_group(stream.driver.pid)


@pytest.mark.long
@pytest.mark.parametrize(
    "hows, sink", [(("inner", "left", "hot"), "files"), (BEHIND, "files"), (("inner", "left"), "batches")],
    ids=["joins", "behind", "foreach_batch"],
)  # fmt: skip
def test_the_driver_is_killed(stream, hows, sink):
    """When the sink has a micro-batch that Spark does not know to be done; at other moments, too, if there are to be
    many."""
    stream.sink = sink
    pick = random.Random(SEED)
    moments = ["results"] + (["state"] + ["random"] * CRASHES if CRASHES > 1 else [])
    pick.shuffle(moments)
    for moment in moments:
        stream.start("local[2]", *hows)
        stream.wait_for_query()
        stream.wait_for_batches(pick.choice([0, 1, 1]) if moment == "random" else 1)
        if moment == "state":  # some tasks of the micro-batch have committed theirs
            before = len(stream.states)
            stream.wait(lambda before=before: len(stream.states) > before, "a state")
        elif moment == "results":  # the sink has the results, Spark does not know yet
            before = len(stream.written)
            stream.wait(lambda before=before: len(stream.written) > before, "results")
        else:
            stream.some_time(pick)
        assert stream.running, "the stream is too short for the test"
        say(moment, "-", stream.kill())
    stream.start("local[2]", *hows)
    stream.finish()
    assert stream.starts == len(moments) + 1
    stream.check()


@pytest.mark.long
def test_python_workers_are_killed(stream):
    """All of them at once, so that those at work are among them. Their tasks are tried again, in the same query."""
    pick = random.Random(SEED)

    def kill_workers() -> None:
        say(sum(map(kill, python_workers(stream.driver.pid))), "workers -", stream.point())

    stream.start("local[2,8]", "left", "hot")  # a task may fail seven times
    stream.wait_for_batches(2)
    for _ in range(CRASHES):
        before = len(stream.begun)
        stream.wait(lambda before=before: len(stream.begun) > before, "a micro-batch")
        stream.some_time(pick)
        kill_workers()
    while "Lost task" not in stream.log:  # none of them was at work
        assert stream.running, f"the stream is too short for the test:\n{stream.log[-5000:]}"
        kill_workers()
        time.sleep(0.2)
    stream.finish()
    stream.check()
    stream.wait_for_empty_folders()


@pytest.fixture
def cluster(tmp_path) -> Iterator[tuple[str, list[int]]]:
    with standalone(tmp_path, environment(tmp_path), PATIENCE) as found:
        yield found


@pytest.mark.long
def test_an_executor_is_killed(stream, cluster):
    """Of two, on a cluster: what it did is done again, by the other or by its successor."""
    pick = random.Random(SEED)
    address, workers = cluster
    stream.start(address, "left", "hot")
    stream.wait_for_batches(2)
    for number in range(CRASHES):
        stream.wait(lambda: all(map(executors, workers)), "two executors")
        if number == 0:  # when one task of a micro-batch is done, the others are running
            before = len(stream.states)
            stream.wait(lambda before=before: len(stream.states) > before, "a state")
        else:
            before = len(stream.begun)
            stream.wait(lambda before=before: len(stream.begun) > before, "a micro-batch")
            stream.some_time(pick)
        assert kill(executors(pick.choice(workers))[0])
        say("executor", number + 1, "-", stream.point())
        stream.wait_for_batches(1)
    stream.finish()
    # By the workers: the driver does not hear of one that was killed before it had made itself known.
    killed = [log.read_text().count("exitStatus 137") for log in stream.folder.glob("worker*.log")]
    assert sum(killed) >= CRASHES and "Lost task" in stream.log
    stream.check()
    stream.wait_for_empty_folders()
