"""The seven queries as job files: from Kafka topics to a Kafka topic, for `watersmeet run` (docs/jobs.md)."""

from __future__ import annotations

from watersmeet.queries.query import Query

_SOURCE = """\
[{side}]
format = "kafka"
servers = "{servers}"
topic = "{topic}"
value = "json"
schema = "{schema}"
options.startingOffsets = "earliest"
options.maxOffsetsPerTrigger = {batch}
"""

_REST = """\
[join]
on = "{on}"
window = "{window}"
lateness = "1 second"
route = "{route}"

[sink]
format = "kafka"
servers = "{servers}"
topic = "{results}"
value = "json"
key = "concat(id, '-', id_right)"

[run]
checkpoint = "{checkpoint}"
{trigger}
[spark]
{spark}
"""
CONNECTOR = 'packages = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"]'


def job(
    query: Query, servers: str = "${BROKER}", route: str = "auto", batch: int = 100_000, prefix: str = "",
    checkpoint: str | None = None, trigger: str | None = None, spark: str = CONNECTOR,
) -> str:  # fmt: skip
    """The text of a query's job file. A stream that is joined with itself is read twice.

    batch: messages of a stream in a micro-batch, at most. prefix: of all topics. trigger: when micro-batches start;
    None: as soon as the one before is done. spark: lines of the table [spark].
    """
    topics = [prefix + topic for topic in query.topics]
    sources = [
        _SOURCE.format(side=side, servers=servers, topic=topic, schema=query.spark_schema, batch=batch)
        for side, topic in (("left", topics[0]), ("right", topics[-1]))
    ]
    rest = _REST.format(
        on=query.sql, window=query.window_text, route=route, servers=servers, results=prefix + query.results,
        checkpoint=checkpoint or f"checkpoint-{query.name}", spark=spark,
        trigger=f'trigger = "{trigger}"\n' if trigger else "",
    )  # fmt: skip
    return "\n".join([*sources, rest])
