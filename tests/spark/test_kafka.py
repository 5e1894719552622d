"""`watersmeet run` with a real Kafka broker, started from packages by name (tools/broker.py).

JSON in, a band join, JSON out: kill -9 of the driver loses no result; messages that cannot be read are counted; wrong
topics and missing packages are named. Skipped where packages cannot be fetched.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from .conftest import ROOT
from .processes import kill_group, stands_still
from .test_crash import PATIENCE, environment

sys.path.insert(0, str(ROOT / "tools"))
import broker as tool

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("kafka")]

START_US = 1_767_225_600_000_000
SECOND = 1_000_000
ROWS = 4_000  # of each stream
SCHEMA = "id bigint, ts timestamp, x double"
EXPECTED = """
    select l.id, l.us, l.x, r.id, r.us, r.x from l join r
    on abs(l.x - r.x) <= 0.5 and abs(l.us - r.us) <= 2000000
"""


class Kafka:
    """A broker, and a client of it."""

    def __init__(self, folder: Path, **options):
        from confluent_kafka.admin import AdminClient

        self.broker = tool.Broker(folder, **options)
        self.address = self.broker.address
        self.connector = ",".join(map(str, tool.jars()[1]))
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        self._count = 0

    def topics(self, *names: str, partitions: int = 2) -> list[str]:
        """New ones, whose names begin so."""
        from confluent_kafka.admin import NewTopic

        self._count += 1
        made = [f"{name}-{self._count}" for name in names]
        for future in self._admin.create_topics([NewTopic(name, partitions, 1) for name in made]).values():
            future.result(30)
        return made

    def send(self, topic: str, values: list[bytes | None], partitions: int = 2) -> None:
        """One after the other, to each partition in turn."""
        from confluent_kafka import Producer

        failed = []

        def delivered(error, _) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20, "enable.idempotence": True})
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(30) == 0 and not failed, failed

    @contextmanager
    def watching(self, topic: str) -> Iterator[Callable[[], int]]:
        """How many messages are there, whenever it is called: one client asks, so that asking takes little time."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "ends"})
        try:
            parts = [TopicPartition(topic, n) for n in consumer.list_topics(topic, 30).topics[topic].partitions]
            yield lambda: sum(consumer.get_watermark_offsets(part, 30, cached=False)[1] for part in parts)
        finally:
            consumer.close()

    def count(self, topic: str) -> int:
        with self.watching(topic) as sent:
            return sent()

    def read(self, topic: str) -> list[tuple[str | None, dict]]:
        """Key and value of all messages that are there."""
        from confluent_kafka import Consumer, TopicPartition

        left = self.count(topic)
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "read", "enable.auto.commit": False})
        found = []
        try:
            parts = consumer.list_topics(topic, 30).topics[topic].partitions
            consumer.assign([TopicPartition(topic, n, 0) for n in parts])
            while len(found) < left:
                batch = consumer.consume(min(1000, left - len(found)), 30)  # waits for all of them
                assert batch, "messages are missing"
                for message in batch:
                    assert not message.error(), message.error()
                    found.append((message.key() and message.key().decode(), json.loads(message.value())))
        finally:
            consumer.close()
        return found


def started(folder: Path, **options) -> Kafka:
    pytest.importorskip("confluent_kafka")
    try:
        return Kafka(folder, **options)
    except tool.Unreachable as error:
        pytest.skip(f"Maven cannot be reached: {error}")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    kafka = started(tmp_path_factory.mktemp("kafka"))
    yield kafka
    kafka.broker.stop()


# -- streams ----------------------------------------------------------------------------------------------------------


def stream(seed: int, count: int = ROWS) -> list[dict]:
    """A row every 20 ms, out of order by up to a second; x goes round a circle in some stride."""
    return [
        {"id": n, "us": START_US + n * 20_000 - n * seed % 50 * 20_000, "x": n * seed % 997 / 4} for n in range(count)
    ]


def as_json(row: dict) -> bytes:
    moment = datetime.fromtimestamp(row["us"] / SECOND, UTC).isoformat(timespec="microseconds")
    return json.dumps({"id": row["id"], "ts": moment, "x": row["x"]}).encode()


def as_arrow(rows: list[dict]) -> bytes:
    sink = pa.BufferOutputStream()
    times = pa.array([row["us"] for row in rows], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "x": [row["x"] for row in rows], "id": [row["id"] for row in rows]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def expected(left: list[dict], right: list[dict]) -> set[tuple]:
    with duckdb.connect() as db:
        db.register("l", pa.Table.from_pylist(left))
        db.register("r", pa.Table.from_pylist(right))
        return set(db.execute(EXPECTED).fetchall())


def result(value: dict) -> tuple:
    times = [round(datetime.fromisoformat(value[name]).timestamp() * SECOND) for name in ("ts", "ts_right")]
    return value["id"], times[0], value["x"], value["id_right"], times[1], value["x_right"]


# -- jobs -------------------------------------------------------------------------------------------------------------

JOB = """
[left]
format = "kafka"
servers = "{address}"
topic = "{left}"
value = "json"
schema = "{schema}"
{more}
options.startingOffsets = "earliest"
options.maxOffsetsPerTrigger = {batch}

[right]
format = "kafka"
servers = "{address}"
topic = "{right}"
value = "{value}"
schema = "{schema}"
{more}
options.startingOffsets = "earliest"
options.maxOffsetsPerTrigger = {batch}

[join]
on = "abs(l.x - r.x) <= 0.5"
window = "within 2 seconds"
lateness = "5 seconds"

[sink]
format = "kafka"
servers = "{address}"
topic = "{out}"
value = "json"
key = "concat(id, '-', id_right)"

[run]
checkpoint = "checkpoint"
trigger = "available now"

[spark]
{where}
conf.spark.jars = "{jars}"
conf.spark.driver.memory = "1g"
conf.spark.driver.host = "127.0.0.1"
conf.spark.driver.bindAddress = "127.0.0.1"
"""


class Job:
    """A job file in a folder, and runs of it."""

    def __init__(self, folder: Path, kafka: Kafka, left: str, right: str, out: str, **given):
        self.folder = folder
        self._given = {"left": left, "right": right, "out": out, "address": kafka.address, "jars": kafka.connector}
        self._given |= {"schema": SCHEMA, "value": "json", "more": "", "batch": 400}
        self._given |= {"where": 'master = "local[2]"'} | given
        self.write()

    def write(self, **changes) -> None:
        (self.folder / "job.toml").write_text(JOB.format(**self._given | changes))

    def start(self, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "watersmeet", "run", *options, str(self.folder / "job.toml")]
        return subprocess.Popen(
            command, env=environment(self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *options: str) -> tuple[int, str, str]:
        process = self.start(*options)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_group(process.pid)
        return process.returncode, out, err

    def numbers(self, name: str) -> set[int]:
        folder = self.folder / "checkpoint" / name
        return {int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()} if folder.exists() else set()

    def unfinished(self) -> set[int]:
        """Micro-batches that have begun and are not done."""
        return self.numbers("offsets") - self.numbers("commits")


def wait(process: subprocess.Popen, reached) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_json_to_json_is_exact_as_a_set_after_two_kills(kafka, tmp_path):
    """The second when results of a micro-batch are in the topic and the micro-batch is not done: so they come twice."""
    left, right, out = kafka.topics("trades", "quotes", "matches")
    rows = stream(7), stream(11)
    for topic, each in zip((left, right), rows, strict=True):
        kafka.send(topic, [as_json(row) for row in each])
    job = Job(tmp_path, kafka, left, right, out, batch=100)  # many micro-batches to look at

    process = job.start()
    wait(process, lambda: len(job.numbers("commits")) >= 2 and job.unfinished())
    kill_group(process.pid)
    process.wait()

    process = job.start()
    with kafka.watching(out) as sent:
        while True:
            wait(process, job.unfinished)
            running, before = job.unfinished(), sent()
            wait(process, lambda before=before: sent() > before)
            # It stands still while it is looked at: one that has gone on to its commit is let go.
            os.killpg(process.pid, signal.SIGSTOP)
            wait(process, lambda: stands_still(process.pid))
            if running & job.unfinished():
                break
            os.killpg(process.pid, signal.SIGCONT)
    kill_group(process.pid)
    process.wait()
    assert job.unfinished()

    job.write(batch=ROWS)
    code, shown, err = job.run()
    assert code == 0, shown + err
    found = kafka.read(out)
    values = Counter(result(value) for _, value in found)
    right_answer = expected(*rows)
    assert len(right_answer) > 4_000
    assert set(values) == right_answer
    assert {key for key, _ in found} == {f"{row[0]}-{row[3]}" for row in right_answer}
    doubled = values.total() - len(values)
    print(f"\n  {len(values):,} results, {doubled:,} of them twice; killed in micro-batch {running}")
    assert doubled > 0, "the sink is at-least-once: docs/kafka.md says so"


def test_messages_that_cannot_be_read_are_dropped_and_counted_or_end_the_query(kafka, tmp_path):
    left, right, out = kafka.topics("trades", "quotes", "matches")
    rows = stream(7, 300), stream(11, 300)
    bad = [b"nonsense", None, b'{"id": "one", "ts": "2026-01-01T00:00:00Z", "x": 1}', b'{"id": 1, "ts": 7, "x": [']
    early = b'{"id": -1, "x": 1.0}'  # it can be read, and has no time
    kafka.send(left, [as_json(row) for row in rows[0]] + bad + [early])
    packs = [as_arrow(rows[1][start : start + 50]) for start in range(0, 300, 50)]
    kafka.send(right, [*packs, b"nonsense", packs[0][:100]])
    small = 'where = "x < 200"\nbad_rows = "drop"'
    job = Job(tmp_path, kafka, left, right, out, value="arrow", more=small, batch=1000)
    code, shown, err = job.run()
    assert code == 0, shown + err
    assert "bad rows      5 left, 2 right" in shown, shown
    kept = [[row for row in each if row["x"] < 200] for each in rows]
    assert f"rows in       {sum(map(len, kept)) + 7}" in shown, shown
    found = [result(value) for _, value in kafka.read(out)]
    assert sorted(found) == sorted(expected(*kept)) and len(found) > 50

    (tmp_path / "checkpoint").rename(tmp_path / "old")  # from the beginning, on Spark Connect
    job.write(more=small.replace("drop", "fail"), where='remote = "local[2]"')
    code, shown, err = job.run()
    assert code == 1, shown + err
    assert f"of topic {left} cannot be read: it " in err or f"of topic {right} cannot be read: " in err, err
    assert "leaves such messages out and counts them" in err and "Traceback" not in err


def test_a_wrong_topic_is_named_within_15_seconds(kafka, tmp_path):
    left, right, out = kafka.topics("trades", "quotes", "matches")
    job = Job(tmp_path, kafka, left, right + "z", "quite another")
    start = time.monotonic()
    code, shown, err = job.run("--check")
    took = time.monotonic() - start
    assert code == 2, shown + err
    assert f"right.topic: there is no topic '{right}z' at {kafka.address}; did you mean '{right}'?" in err, err
    assert f"sink.topic: there is no topic 'quite another' at {kafka.address} (there are " in err, err
    print(f"\n  named after {took:.1f} s, the start of Spark included")
    if took >= 15:  # others may use the machine, too: then as soon as where all is right
        job.write(right=right, out=out)
        start = time.monotonic()
        assert job.run("--check")[0] == 0
        assert took < 2 * (time.monotonic() - start) + 8
        job.write(right=right + "z")
    # Without --check it is named as well, before the query starts.
    job.write(out=out)
    code, _, err = job.run()
    assert code == 2 and f"there is no topic '{right}z'" in err
    assert not (tmp_path / "checkpoint").exists()


def test_check_shows_the_plan_where_the_broker_makes_the_topic_of_the_sink_and_says_when_nobody_answers(tmp_path):
    kafka = started(tmp_path / "kafka", auto_create=True)
    try:
        left, right = kafka.topics("trades", "quotes")
        job = Job(tmp_path, kafka, left, right, "to-be-made")
        code, shown, err = job.run("--check")
        assert code == 0, shown + err
        assert "id_right: bigint" in shown and "route: cells" in shown
        assert not (tmp_path / "checkpoint").exists()
    finally:
        kafka.broker.stop()
    code, shown, err = job.run("--check")
    assert code == 2, shown + err
    assert f"no answer from {kafka.address} within 8 s" in err and "Traceback" not in err


def test_packages_are_fetched_and_a_missing_one_is_named_with_spark_s_log(kafka, tmp_path):
    left, right, out = kafka.topics("trades", "quotes", "matches")
    job = Job(tmp_path, kafka, left, right, out)
    text = (tmp_path / "job.toml").read_text()
    conf = f'conf.spark.jars = "{kafka.connector}"\n'
    (tmp_path / "job.toml").write_text(text.replace(conf, 'packages = ["org.apache.spark:no-such-package:1.2.3"]\n'))
    code, shown, err = job.run("--check")
    assert code == 2, shown + err
    assert "spark.packages: Spark could not fetch org.apache.spark:no-such-package:1.2.3" in err, err
    assert ":: problems summary ::" in err or "unresolved dependency" in err

    # Of the connector's four jars one comes as a package, and without it there is no reading.
    pool = next(package for package in tool.CONNECTOR if "commons-pool2" in package)
    others = ",".join(path for path in kafka.connector.split(",") if "commons-pool2" not in path)
    kafka.send(left, [as_json(row) for row in stream(7, 20)])
    kafka.send(right, [as_json(row) for row in stream(11, 20)])
    packages = f'packages = ["{pool}"]\nconf.spark.jars = "{others}"\n'
    (tmp_path / "job.toml").write_text(text.replace(conf, packages + f'conf."spark.jars.ivy" = "{tmp_path / "ivy"}"\n'))
    code, shown, err = job.run()
    assert code == 0, shown + err
    assert {result(value) for _, value in kafka.read(out)} == expected(stream(7, 20), stream(11, 20)) != set()


def test_the_demo_goes_through_a_broker(kafka, tmp_path):
    command = [sys.executable, "-m", "watersmeet", "demo", "--kafka", kafka.address, "--rows", "60001"]
    command += ["--folder", str(tmp_path / "ships")]
    told = {"PYSPARK_SUBMIT_ARGS": f"--jars {kafka.connector} pyspark-shell"}
    done = subprocess.run(command, env=environment(tmp_path) | told, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "correct: DuckDB finds the same" in " ".join(done.stdout.split())
    assert 'format = "kafka"' in (tmp_path / "ships" / "ships.toml").read_text()
    assert not [name for name in kafka._admin.list_topics(timeout=30).topics if name.startswith("watersmeet-demo")]
