"""Feeding without a broker: what is wrong is said at once. Messages are what the job files read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.queries import QUERIES
from watersmeet.queries.feed import as_json
from watersmeet.queries.jobs import job
from watersmeet.spark.job import load

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("one", QUERIES.values(), ids=list(QUERIES))
def test_messages_have_the_columns_of_the_job_files(one, monkeypatch):
    """And the files in examples/skew are those that the queries make."""
    file = ROOT / "examples" / "skew" / f"{one.name}.toml"
    assert file.read_text() == job(one)
    monkeypatch.setenv("BROKER", "localhost:9092")
    found = load(file)
    assert found.join.on == one.sql and found.join.window == one.window(lateness="1 second")
    assert (found.left.options["subscribe"], found.right.options["subscribe"]) == (one.topics[0], one.topics[-1])
    assert found.left.schema == found.right.schema == one.spark_schema
    (message, _) = as_json(one.rows(5, 2, rate=4))
    row = json.loads(message)
    assert list(row) == one.schema.names == [column.split()[0] for column in one.spark_schema.split(", ")]
    assert row["id"] == 5 and row["ts"] == "2026-01-01T00:00:01.250000Z"
    assert row[one.data.key] == one.rows(5, 1)[one.data.key][0].as_py()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["q8"], "query must be one of q1, q2"),
        (["q3", "--rate", "0"], "rate must be more than 0, got 0"),
        (["q3", "--speed", "-1"], "speed must be more than 0"),
        (["q3", "--file", "nowhere.csv"], "there is no file or folder nowhere.csv"),
        (["q7", "--file", "nowhere.csv"], "q7 has generated data only"),
    ],
)
def test_mistakes_are_named_before_a_broker_is_asked(arguments, said):
    done = CliRunner().invoke(app, ["feed", *arguments])
    assert done.exit_code == 2 and said in " ".join(done.output.split())


@pytest.mark.parametrize("room", [20, 7])
def test_a_stream_that_has_ended_is_not_waited_for(monkeypatch, room):
    """The other goes on at its pace, and nobody spins meanwhile; what there is no room for is sent later."""
    from watersmeet.queries import feed

    sent, naps = {0: [], 1: []}, []

    class Topics:
        def __init__(self, servers, names):
            pass

        def send(self, number, messages):
            sent[number] += messages[:room]
            return len(messages[:room])

        def check(self):
            pass

        def flush(self):
            pass

    class Clock:
        """Time passes only while somebody sleeps, and a little with every look."""

        now = 0.0

        def monotonic(self):
            self.now += 1e-6
            return self.now

        def sleep(self, seconds):
            naps.append(seconds)
            self.now += seconds

        def time_ns(self):
            return 0

    query = next(one for one in QUERIES.values() if len(one.streams) == 2)
    monkeypatch.setattr(feed, "_Topics", Topics)
    monkeypatch.setattr(feed, "MOST", 20)
    monkeypatch.setattr(feed, "time", Clock())
    rows, generated = {0: 5, 1: 400}, feed._generated

    def uneven(query, _, stream, *more):
        return generated(query, rows[stream], stream, *more)

    monkeypatch.setattr(feed, "_generated", uneven)
    assert feed.feed(query, "nowhere", rate=1000).rows == 400
    for number, messages in sent.items():
        whole = [text for batch in uneven(query, None, number, 1000, 1, None, 0) for text in feed.as_json(batch)]
        assert messages == whole and len(whole) == rows[number]
    assert sum(naps) > 0.9 * 400 / 1000


def test_no_broker_is_said_with_what_to_do(monkeypatch):
    pytest.importorskip("confluent_kafka")
    from watersmeet.queries import feed

    monkeypatch.setattr(feed, "PATIENCE_S", 1)
    done = CliRunner().invoke(app, ["feed", "q3", "--servers", "127.0.0.1:1"])
    said = " ".join(done.output.split())
    assert done.exit_code == 2 and "no answer from a Kafka broker at 127.0.0.1:1 within 1 s" in said
    assert "`make broker` starts one" in said
