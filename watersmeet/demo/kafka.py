"""`watersmeet demo --kafka HOST:PORT`: the demo's streams as JSON through a Kafka broker, there and back.

Three topics of one partition are made for it, and deleted at the end. So a micro-batch is as many messages as the job
says, in order of arrival, and what was late can be told afterwards.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark

from watersmeet.spark import kafka, messages
from watersmeet.spark.job import SERVERS

REPORTS = "report_id bigint, ts timestamp, ship string, lon double, lat double"
CONTACTS = "contact_id bigint, ts timestamp, station string, lon double, lat double"
SIGHTINGS = (
    f"{REPORTS}, contact_id bigint, ts_right timestamp, station string, lon_right double, lat_right double"
)

JOB = """\
[left]
format = "kafka"
servers = "{servers}"
topic = "{reports}"
value = "json"
schema = "{left}"
options.startingOffsets = "earliest"
options.maxOffsetsPerTrigger = {batch}

[right]
format = "kafka"
servers = "{servers}"
topic = "{contacts}"
value = "json"
schema = "{right}"
options.startingOffsets = "earliest"
options.maxOffsetsPerTrigger = {batch}

[join]
on = "{on}"
window = "{window}"
lateness = "{lateness}"

[sink]
format = "kafka"
servers = "{servers}"
topic = "{sightings}"
value = "json"
key = "concat(report_id, '-', contact_id)"

[run]
checkpoint = "checkpoint"
trigger = "available now"
"""


def packages() -> tuple[str, ...]:
    """The connector, unless Spark is told what to load already."""
    return () if "PYSPARK_SUBMIT_ARGS" in os.environ else (kafka.coordinate(pyspark.__version__),)


class Topics:
    """The three topics of one demo."""

    def __init__(self, spark: Any, servers: str):
        mark = secrets.token_hex(4)
        self._spark, self._servers = spark, servers
        self.names = {name: f"watersmeet-demo-{mark}-{name}" for name in ("reports", "contacts", "sightings")}

    def fill(self, name: str, folder: Path) -> None:
        """Send what is in these files, in their order."""
        for path in sorted(folder.glob("*.parquet")):
            rows = messages.as_json(self._spark.read.parquet(str(path)).coalesce(1), None, (), {})
            rows.write.format("kafka").option(SERVERS, self._servers).option("topic", self.names[name]).save()

    def fetch(self, folder: Path) -> None:
        """The results, from their topic into a file."""
        reader = self._spark.read.format("kafka").option(SERVERS, self._servers)
        found = reader.option("subscribe", self.names["sightings"]).load()
        rows = messages.rows(found, "left", "json", SIGHTINGS, {})
        messages.settled(messages.select(rows, ()), drop=False).write.parquet(str(folder))

    def job(self, batch: int, **join: str) -> str:
        """The job file; `batch`: messages of each stream in a micro-batch."""
        return JOB.format(servers=self._servers, batch=batch, left=REPORTS, right=CONTACTS, **self.names, **join)


@contextmanager
def topics(spark: Any, servers: str) -> Iterator[Topics]:
    """Made at the broker, and deleted at the end."""
    made = Topics(spark, servers)
    try:
        with kafka.broker(spark, {SERVERS: servers}) as broker:
            broker.create(made.names.values())
            try:
                yield made
            finally:
                broker.delete(made.names.values())
    except kafka.NoConnector:
        raise ValueError(kafka.missing(spark)) from None
    except kafka.NoAnswer as error:
        raise ValueError(f"--kafka: {error}") from None


def batches(table: pa.Table, batch: int) -> list[pa.Table]:
    """What each micro-batch gets."""
    return [table.slice(start, batch) for start in range(0, table.num_rows, batch)]
