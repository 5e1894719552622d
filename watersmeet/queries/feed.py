"""Play the streams of a query into Kafka topics, at a given rate: `watersmeet feed q3 --rate 10000`.

A row is one message of JSON, in the layout that the query's job file reads. Event times go by the rate, from the
moment of the start on; with a speed of 10 rows come ten times as fast as their times say. Topics that are not there
are made, with one partition, so that rows arrive in order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.interrupts import uninterrupted
from watersmeet.queries.query import RATE, Query

PATIENCE_S = 8  # for each answer of a broker
TICK_S = 0.05
PIECE = 4096  # rows made at a time
MOST = 1 << 15  # sent at a time


@dataclass(frozen=True)
class Fed:
    """How far it is, or how it ended. `rows`: of each stream."""

    rows: int
    seconds: float
    stopped: bool = False

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def feed(
    query: Query, servers: str, rate: float = RATE, rows: int | None = None, seconds: float | None = None,
    path: Path | str | None = None, seed: int = 1, zipf: float | None = None, speed: float = 1.0, prefix: str = "",
    since: int | None = None, say: Callable[[Fed], None] | None = None,
) -> Fed:  # fmt: skip
    """Until so many rows of each stream are sent, or so many seconds of event time, the files end, or Ctrl-C comes.

    path: the real files, instead of generated rows. since: event time of the first row, in microseconds (default: now).
    say: told about once a second how far it is. ValueError where the broker does not answer or refuses a message.
    """
    for name, value in (("rate", rate), ("speed", speed), ("rows", rows), ("seconds", seconds)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be more than 0, got {value}")
    if seconds is not None:
        rows = min(rows or (1 << 62), max(round(rate * seconds), 1))
    since = time.time_ns() // 1000 if since is None else since
    streams = []
    for stream in range(len(query.streams)):
        if path is None:
            batches = _generated(query, rows, stream, rate, seed, zipf, since)
        else:
            batches = query.read(path, stream, rate, rows, since)
        messages = _messages(batches)
        streams.append(chain(list(islice(messages, 1)), messages))  # what is wrong with files is said at once
    topics = _Topics(servers, [prefix + topic for topic in (*query.topics, query.results)])
    sent, start, told, stopped = [0] * len(streams), time.monotonic(), 0.0, False
    live = dict(enumerate(streams))
    rest: list[list[bytes]] = [[] for _ in streams]  # for which there was no room
    try:
        while live:
            elapsed = time.monotonic() - start
            due = int(elapsed * rate * speed) + 1
            for number, messages in list(live.items()):
                room = min(max(due - sent[number], 0), MOST)
                with uninterrupted():  # so that what is sent is counted
                    some = rest[number] + list(islice(messages, max(room - len(rest[number]), 0)))
                    taken = topics.send(number, some)
                    sent[number] += taken
                    rest[number] = some[taken:]
                topics.check()
                if len(some) < room and not rest[number]:
                    del live[number]
            if elapsed - told >= 1 and say is not None:
                told = elapsed
                say(Fed(max(sent), elapsed))
            if live and all(due - sent[number] < MOST for number in live):
                time.sleep(TICK_S)
    except KeyboardInterrupt:
        stopped = True
    topics.flush()
    return Fed(max(sent), time.monotonic() - start, stopped)


def _generated(
    query: Query, rows: int | None, stream: int, rate: float, seed: int, zipf: float | None, since: int
) -> Iterator[pa.RecordBatch]:
    start = 0
    while rows is None or start < rows:
        count = PIECE if rows is None else min(PIECE, rows - start)
        yield query.rows(start, count, stream, rate, seed, zipf, since)
        start += count


def _messages(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in batches:
        yield from as_json(batch)


def as_json(batch: pa.RecordBatch) -> list[bytes]:
    """A JSON object for each row; what is not a number, or null, is null."""
    texts = []
    for name, column in zip(batch.schema.names, batch.columns):
        label = json.dumps(name)
        if pa.types.is_timestamp(column.type):
            whole = pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ").to_pylist()
            texts.append([f'{label}: "{value}"' for value in whole])
        elif pa.types.is_floating(column.type):
            values = column.to_numpy(zero_copy_only=False)
            finite = np.isfinite(values)
            texts.append(
                [f"{label}: {value!r}" if good else f"{label}: null" for value, good in zip(values.tolist(), finite)]
            )
        else:
            texts.append([f"{label}: {json.dumps(value)}" for value in column.to_pylist()])
    return [f"{{{', '.join(parts)}}}".encode() for parts in zip(*texts)]


class _Topics:
    """A producer to some topics, which are made where they are not there."""

    def __init__(self, servers: str, names: list[str]):
        try:
            from confluent_kafka import KafkaException, Producer
            from confluent_kafka.admin import AdminClient, NewTopic
        except ImportError:
            raise ValueError(
                "feeding Kafka needs confluent-kafka: pip install confluent-kafka, or watersmeet[bench]"
            ) from None
        self._names, self._servers, self._failed = names, servers, ""
        quiet: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, "logger": _Nobody()}
        try:
            admin = AdminClient(quiet)
            there = admin.list_topics(timeout=PATIENCE_S).topics
            wanted = [NewTopic(name, 1, 1) for name in names if name not in there]
            for future in (admin.create_topics(wanted, operation_timeout=PATIENCE_S) if wanted else {}).values():
                future.result(PATIENCE_S)
        except (KafkaException, TimeoutError) as error:
            said = f": {error.args[0].str()}" if isinstance(error, KafkaException) else ""
            raise ValueError(
                f"no answer from a Kafka broker at {servers} within {PATIENCE_S} s{said}; "
                f"--servers says where it is, and `make broker` starts one"
            ) from None
        # Idempotent: else a message that is sent again, to a topic just made, say, comes behind those sent after it.
        own = {"enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
        self._producer = Producer(quiet | own)

    def send(self, number: int, messages: list[bytes]) -> int:
        """How many there was room for."""
        for taken, message in enumerate(messages):
            try:
                self._producer.produce(self._names[number], message, on_delivery=self._delivered)
            except BufferError:  # it is behind
                self._producer.poll(0.1)
                return taken
        self._producer.poll(0)
        return len(messages)

    def flush(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        self.check()
        if left:
            raise ValueError(f"{left} messages were not taken by {self._servers} within {PATIENCE_S} s")

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed = error.str()

    def check(self) -> None:
        if self._failed:
            raise ValueError(f"{self._servers} refuses messages: {self._failed}")


class _Nobody:
    """Who the client's own lines of log are for: errors come as exceptions."""

    def log(self, *what: Any, **more: Any) -> None:
        pass
