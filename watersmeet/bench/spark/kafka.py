"""Small micro-batches, and latency, from topic to topic: part "kafka" of `watersmeet bench spark`.

A band join over two topics of JSON, within 10 s, about one match for an arriving row, against the same query without
a join, which sends as many messages, and against what Spark takes for state: a joiner that does nothing, and Spark's
own join of equal keys (kafka_worker.py). On a real broker, one contender after the other:

    small     topics that are full already, micro-batches of 20,000 rows (10,000 of each side): the median of those
              after the window is full
    5k, 20k   messages at 5,000 and 20,000 rows/s a side, micro-batches as Spark makes them: from the moment at which a
              message is due to the one at which the broker has the result. Of a pair, from the later of the two. The
              first 10 s do not count: there the query starts. A joiner that does nothing has no results to wait for.

Results are compared with DuckDB's by a checksum over all columns; those of the query without a join with its input.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.bench import targets
from watersmeet.bench.rounds import median
from watersmeet.bench.spark.checksum import Answer
from watersmeet.bench.spark.data import START_US, answer, compare, times
from watersmeet.bench.spark.kafka_clients import Kafka, NoBroker, broker
from watersmeet.bench.spark.kafka_worker import NAMES, NO_JOIN, columns, join_at
from watersmeet.bench.spark.pipelines import DISCARD, OURS, SPARK
from watersmeet.bench.workloads import SIDES

if TYPE_CHECKING:
    from watersmeet.bench.spark import OnSpark

KAFKA = "kafka"
CONTENDERS = (OURS, NO_JOIN, DISCARD, SPARK)
AHEAD_S = 2.0  # between a query's start and the first message, beside the time to make them all
MADE_A_SECOND = 200_000


@dataclass(frozen=True)
class Stream:
    name: str
    rate: int  # rows/s of each side
    rows: int  # of each side
    skipped: int  # rows, or micro-batches, of the beginning that do not count
    batch_rows: int = 0  # of both sides; 0: a live stream, whose micro-batches are as large as they get

    @property
    def live(self) -> bool:
        return not self.batch_rows

    def tables(self, contender: str, begin_us: int) -> dict[str, pa.Table]:
        """Both sides; the first rows at this time."""
        found = {}
        for side in SIDES:
            rows = join_at(contender, self.rate).workload.rows(side, 0, self.rows)
            us = pa.array(rows["ts"].cast(pa.int64()).to_numpy() + begin_us)
            found[side] = pa.table({"us": us, "key": rows["key"], "value": rows["value"]})
        return found


def streams(full: bool) -> list[Stream]:
    if not full:
        return [Stream("small", 1000, 12_000, 2, 2000), live("500", 500, 4, 4)]
    return [Stream("small", 5000, 250_000, 6, 20_000), live("5k", 5000, 10, 20), live("20k", 20_000, 10, 20)]


def live(name: str, rate: int, skipped_s: int, measured_s: int) -> Stream:
    return Stream(name, rate, rate * (skipped_s + measured_s), rate * skipped_s)


def kafka(bench: OnSpark, contenders: tuple[str, ...] = CONTENDERS) -> None:
    """Measure all streams with all contenders."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-kafka-") as folder:
        try:
            with broker(Path(folder, "broker")) as found:
                outcomes = {one: measure(bench, found, one, Path(folder, "scratch")) for one in contenders}
        except NoBroker as error:
            bench.skipped[KAFKA] = str(error)
            bench.say(f"{KAFKA}: skipped, {error}")
            return
    for contender, outcome in outcomes.items():
        bench.results.append({"workload": KAFKA, "contender": contender, "streams": outcome})
    ours = outcomes.pop(OURS, {})
    for contender, theirs in outcomes.items():
        for stream, mine in ours.items():
            for what, value in mine["seconds"].items() if stream in theirs else ():
                goal = targets.KAFKA[what] if contender == NO_JOIN else None
                bench.ratio(
                    KAFKA, f"{contender}: {what} of {stream}", value / theirs[stream]["seconds"][what], goal, "<"
                )


def measure(bench: OnSpark, kafka: Kafka, contender: str, scratch: Path) -> dict[str, Any]:
    """All streams with one contender, in one process: what each has taken."""
    found = {}
    with worker(bench, kafka, contender, scratch) as process:
        for stream in streams(bench.judged):
            if contender == DISCARD and stream.live:
                continue
            found[stream.name] = one = run(kafka, contender, stream, process)
            seconds = ", ".join(f"{what} {value:.2f} s" for what, value in one["seconds"].items())
            bench.say(f"{KAFKA}, {stream.name}: {contender:14} {seconds}; {len(one['batches'])} micro-batches")
    return found


@contextmanager
def worker(bench: OnSpark, kafka: Kafka, contender: str, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    scratch.mkdir()
    spec = {
        "contender": contender,
        "address": kafka.address,
        "jars": kafka.connector,
        "scratch": str(scratch),
        "cores": bench.sizes.cores,
        "memory": "2g",
    }
    with open(scratch / "log", "w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "watersmeet.bench.spark.kafka_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        told(process, json.dumps(spec))
        yield process
        pipe(process.stdin).close()
        process.wait(60)
    except EOFError:
        said = (scratch / "log").read_text().splitlines()
        lines = [line for line in said if not line.startswith(("\tat ", "\t... "))]
        raise RuntimeError(f"{KAFKA}, {contender} failed:\n" + "\n".join(lines[-40:])) from None
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def run(kafka: Kafka, contender: str, stream: Stream, process: subprocess.Popen[str]) -> dict[str, Any]:
    """One stream through the query of the worker."""
    plain = contender.replace(",", "").replace(" ", "-")
    topics = {name: f"{stream.name}-{plain}-{name}" for name in (*SIDES, "out")}
    kafka.make(*topics.values())
    tables = stream.tables(contender, START_US)
    if not stream.live:
        kafka.send({topics[side]: messages(tables[side]) for side in SIDES})
    more = {"live": stream.live, "batch_rows": stream.batch_rows, "rate": stream.rate}
    told(process, json.dumps(topics | more))
    heard(process)
    if stream.live:
        begin = time.time() + AHEAD_S + 2 * stream.rows / MADE_A_SECOND
        tables = stream.tables(contender, round(begin * 1e6))
        kafka.send({topics[side]: messages(tables[side]) for side in SIDES}, begin, stream.rate)
        told(process, "end")
    batches = json.loads(heard(process))
    found, taken = kafka.read(topics["out"], columns(contender))
    check(contender, stream, tables, Answer.of(found))
    kafka.drop(*topics.values())
    if stream.live:
        due = np.maximum.reduce([found[at].to_numpy() for at in range(0, len(found), len(NAMES))])
        counted = due >= tables["left"]["us"][stream.skipped].as_py()
        waited = (taken[counted] - due[counted]) / 1e6
        seconds = {"p50": float(np.percentile(waited, 50)), "p99": float(np.percentile(waited, 99))}
    else:
        seconds = {"micro-batch": median([batch["seconds"] for batch in batches[stream.skipped :] if batch["rows"]])}
    return {"stream": asdict(stream), "seconds": seconds, "rows_out": len(found[0]), "batches": batches}


def messages(table: pa.Table) -> list[bytes]:
    rows = zip(*(table[name].to_pylist() for name in NAMES), strict=True)
    return [b'{"us":%d,"key":%d,"value":%d}' % row for row in rows]


def check(contender: str, stream: Stream, tables: dict[str, pa.Table], got: Answer) -> None:
    """DuckDB's results; or all that went in, or nothing."""
    if contender == DISCARD:
        right = Answer()
    elif contender == NO_JOIN:
        right = sum((Answer.of([column.combine_chunks() for column in t.columns]) for t in tables.values()), Answer())
    else:
        with tempfile.TemporaryDirectory(prefix="watersmeet-kafka-") as folder:
            for side, table in tables.items():
                Path(folder, side).mkdir()
                stamped = pa.table({"ts": times(table["us"]), "key": table["key"], "value": table["value"]})
                pq.write_table(stamped, Path(folder, side, "0.parquet"))
            right = answer(join_at(contender, stream.rate), Path(folder))
    compare(f"{KAFKA}, {stream.name}", contender, got, right)


def told(process: subprocess.Popen[str], line: str) -> None:
    try:
        print(line, file=pipe(process.stdin), flush=True)
    except BrokenPipeError:
        raise EOFError from None


def heard(process: subprocess.Popen[str]) -> str:
    line = pipe(process.stdout).readline()
    if not line:
        raise EOFError
    return line


def pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found
