"""What Spark needs for Kafka, and questions to a broker before a query starts.

Spark comes without its Kafka connector; `coordinate` is the package to add. A `Broker` is asked through the Kafka
client that the connector brings into Spark's JVM: so it is spoken to as the query itself will (TLS, passwords), and
nothing else has to be installed. On Spark Connect that JVM is out of reach, and nobody is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from watersmeet.spark.job import SERVERS, SUBSCRIBED, Job

TIMEOUT_S = 8  # for each answer of a broker
SHOWN = 12  # topics in an error
#: How Spark says that it has no connector, since 4.0.
_MISSING = re.compile(r"KAFKA_DATA_SOURCE_NOT_ENABLED|Failed to find (the )?data source: kafka", re.IGNORECASE)


class NoAnswer(Exception):
    """A broker that cannot be reached, or does not say what it is asked."""


class NoConnector(Exception):
    """Spark's JVM has no Kafka client."""


def coordinate(version: str) -> str:
    """The connector's package for this version of Spark.

    >>> coordinate("4.3.0"), coordinate("4.0.1-amzn-0")
    ('org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0', 'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.1')
    """
    plain = re.match(r"\d+\.\d+\.\d+", version)
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{plain[0] if plain else version}"


def says_missing(text: str) -> bool:
    """Whether Spark says that it has no connector."""
    return _MISSING.search(text) is not None


def missing(spark: Any) -> str:
    """What to do where Spark has none."""
    package = coordinate(spark.version)
    if is_connect(spark):
        return f"the Spark server has no Kafka connector; start it with --packages {package}"
    return (
        f"Spark {spark.version} has no Kafka connector here; have it loaded, with these lines in the job file\n"
        f'[spark]\npackages = ["{package}"]\n'
        f"(or with spark-submit --packages, or, where there is no network, its jars in spark.jars)"
    )


def is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


# -- the topics of a job ------------------------------------------------------------------------------------


def wrong_topics(job: Job, spark: Any) -> Iterator[tuple[str, str]]:
    """Topics that are not there: the key to blame, and what is wrong. Raises NoAnswer."""
    for name in ("left", "right", "sink"):
        place = getattr(job, name)
        if not place.is_kafka:
            continue
        options = place.options
        with broker(spark, options) as asked:
            there = asked.topics()
            for topic in sorted(set(wanted(options)) - there):
                if name != "sink" or not asked.makes_topics():
                    yield f"{name}.topic", f"there is no topic {topic!r} at {servers(options)}{_others(topic, there)}"
            pattern = option(options, "subscribePattern")
            if pattern is not None and not asked.any_like(pattern, there):
                yield f"{name}.topic", f"no topic at {servers(options)} matches {pattern!r}{_others(pattern, there)}"


def wanted(options: dict[str, str]) -> list[str]:
    """The topics that options of a source or a sink name.

    >>> wanted({"subscribe": "trades, quotes"}), wanted({"assign": '{"trades": [0, 1]}'}), wanted({"topic": "matches"})
    (['trades', 'quotes'], ['trades'], ['matches'])
    """
    listed = option(options, SUBSCRIBED[0]) or option(options, "topic") or ""
    found = [name.strip() for name in listed.split(",") if name.strip()]
    assigned = option(options, "assign")
    if assigned is not None:
        try:
            found += list(json.loads(assigned))
        except (ValueError, TypeError):
            pass  # Spark says what is wrong with it
    return found


def option(options: dict[str, str], name: str) -> str | None:
    """Spark's options are the same in any case."""
    return next((value for given, value in options.items() if given.lower() == name.lower()), None)


def servers(options: dict[str, str]) -> str:
    return option(options, SERVERS) or ""


def _others(topic: str, there: Iterable[str]) -> str:
    names = sorted(there)
    close = get_close_matches(topic, names, 1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{meant} (there are {', '.join(names[:SHOWN])}{more})" if names else f"{meant} (there are none)"


# -- a broker -----------------------------------------------------------------------------------------------


@contextmanager
def broker(spark: Any, options: dict[str, str]) -> Iterator[Broker]:
    found = Broker(spark, options)
    try:
        yield found
    finally:
        found.close()


class Broker:
    """Kafka's own client for administration, by way of py4j."""

    def __init__(self, spark: Any, options: dict[str, str]):
        self._jvm, self._at = spark._jvm, servers(options)
        prefix = "kafka."
        settings = {name[len(prefix) :]: value for name, value in options.items() if name.lower().startswith(prefix)}
        settings |= dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(TIMEOUT_S * 1000))
        client = self._jvm.org.apache.kafka.clients.admin.AdminClient
        if not hasattr(client, "create") or type(client).__name__ == "JavaPackage":
            raise NoConnector
        with self._asked():
            self._admin = client.create(settings)

    def topics(self) -> set[str]:
        with self._asked():
            return set(self._answer(self._admin.listTopics().names()))

    def makes_topics(self) -> bool:
        """Whether a topic that is not there is made by the first message to it; False if it will not tell."""
        try:
            with self._asked():
                node = self._answer(self._admin.describeCluster().nodes()).iterator().next()
                resource = self._jvm.org.apache.kafka.common.config.ConfigResource
                asked = self._admin.describeConfigs([resource(resource.Type.BROKER, node.idString())])
                settings = next(iter(self._answer(asked.all()).values()))
                return settings.get("auto.create.topics.enable").value() == "true"
        except NoAnswer:
            return False

    def any_like(self, pattern: str, names: Iterable[str]) -> bool:
        """Whether one of the names matches, in Java's language of patterns."""
        return any(self._jvm.java.util.regex.Pattern.matches(pattern, name) for name in names)

    def create(self, names: Iterable[str]) -> None:
        """New topics of one partition."""
        topic, maybe = self._jvm.org.apache.kafka.clients.admin.NewTopic, self._jvm.java.util.Optional
        with self._asked():
            new = [topic(name, maybe.of(1), maybe.empty()) for name in names]
            self._answer(self._admin.createTopics(new).all())

    def delete(self, names: Iterable[str]) -> None:
        with self._asked():
            self._answer(self._admin.deleteTopics(list(names)).all())

    def close(self) -> None:
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    def _answer(self, future: Any) -> Any:
        return future.get(TIMEOUT_S, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    @contextmanager
    def _asked(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            cause = error.java_exception
            while cause.getCause() is not None:
                cause = cause.getCause()
            what = cause.getMessage() or cause.getClass().getSimpleName()
            raise NoAnswer(f"no answer from {self._at} within {TIMEOUT_S} s: {what}") from None
