"""A broker for `watersmeet bench spark --only kafka`, and what the benchmark does with it: topics, messages, answers.

The broker is that of the source tree (tools/broker.py); messages are sent when they are due, by a clock, so that one
that leaves late counts as late. Topics of results have the time at which the broker took a message.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from watersmeet.bench.machine import ROOT

PARTITIONS = 2  # of every topic
TOOL = ROOT / "tools" / "broker.py"
TICK_S = 0.005  # a producer looks this often
PATIENCE_S = 60


class NoBroker(RuntimeError):
    """Why there is none here."""


class Kafka:
    def __init__(self, address: str, jars: Sequence[Path]) -> None:
        from confluent_kafka.admin import AdminClient

        self.address = address
        self.connector = ",".join(map(str, jars))
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def make(self, *topics: str) -> None:
        from confluent_kafka.admin import NewTopic

        stamped = {"message.timestamp.type": "LogAppendTime"}
        wanted = [NewTopic(topic, PARTITIONS, 1, config=stamped) for topic in topics]
        for future in self._admin.create_topics(wanted).values():
            future.result(PATIENCE_S)

    def drop(self, *topics: str) -> None:
        for future in self._admin.delete_topics(list(topics)).values():
            future.result(PATIENCE_S)

    def send(self, messages: dict[str, Sequence[bytes]], begin: float | None = None, rate: int = 0) -> None:
        """Messages of each topic, to its partitions in turn: message i is due at `begin` + i / rate, or now."""
        from confluent_kafka import Producer

        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        own = {"enable.idempotence": True, "linger.ms": 2, "queue.buffering.max.messages": 4_000_000}
        producer = Producer({"bootstrap.servers": self.address} | own)
        total = max(map(len, messages.values()))
        sent = 0
        while sent < total:
            due = total if begin is None else min(total, int((time.time() - begin) * rate) + 1)
            for topic, values in messages.items():
                for number in range(sent, due):
                    producer.produce(topic, values[number], partition=number % PARTITIONS, on_delivery=delivered)
            sent = max(sent, due)
            producer.poll(0)
            if begin is not None and sent < total:
                time.sleep(TICK_S)
        if producer.flush(PATIENCE_S) or failed:
            raise RuntimeError(f"the broker has not taken all messages: {failed[:1]}")

    def read(self, topic: str, names: Sequence[str]) -> tuple[list[pa.Array], np.ndarray]:
        """These columns of all messages that are there, and when the broker took each, in microseconds."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": topic, "enable.auto.commit": False})
        values: list[bytes] = []
        times: list[int] = []
        try:
            parts = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
            total = sum(consumer.get_watermark_offsets(part, PATIENCE_S, cached=False)[1] for part in parts)
            consumer.assign(parts)
            while len(values) < total:
                some = consumer.consume(min(10_000, total - len(values)), PATIENCE_S)  # waits for all of them
                if not some:
                    raise RuntimeError(f"{topic} has {total} messages, {len(values)} could be read")
                values += [message.value() or b"" for message in some]
                times += [message.timestamp()[1] for message in some]
        finally:
            consumer.close()
        schema = pa.schema([(name, pa.int64()) for name in names])
        if not values:
            return [pa.array([], field.type) for field in schema], np.zeros(0, np.int64)
        table = pj.read_json(pa.BufferReader(b"\n".join(values)), parse_options=pj.ParseOptions(schema))
        return [table[name].combine_chunks() for name in names], np.array(times, np.int64) * 1000


@contextmanager
def broker(folder: Path) -> Iterator[Kafka]:
    """One that runs while this lasts; NoBroker says why there is none."""
    if not TOOL.exists():
        raise NoBroker("the broker is started by tools/broker.py of the source tree")
    if importlib.util.find_spec("confluent_kafka") is None:
        raise NoBroker("confluent-kafka is not installed")
    spec = importlib.util.spec_from_file_location("watersmeet_broker", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    try:
        connector = tool.jars()[1]
    except tool.Unreachable as error:
        raise NoBroker(f"packages cannot be fetched: {error}") from None
    running = tool.Broker(folder)
    try:
        yield Kafka(running.address, connector)
    finally:
        running.stop()
