"""Queries of the paper from and to a real Kafka broker: `watersmeet feed`, `watersmeet run`, and the oracle's answer.

Q3 is a self join on an inequality, Q2 and Q5 are bands, Q7 has Zipf keys and another window. Skipped where packages
cannot be fetched, as in test_kafka.py.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from watersmeet.queries import query
from watersmeet.queries.feed import feed
from watersmeet.queries.jobs import job as job_text
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing.choose import choose_route

from .processes import kill_group
from .test_crash import PATIENCE, environment
from .test_kafka import kafka  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("kafka")]

SPARK = """\
master = "local[2]"
conf.spark.jars = "{jars}"
conf.spark.driver.memory = "1g"
conf.spark.driver.host = "127.0.0.1"
conf.spark.driver.bindAddress = "127.0.0.1"
"""


def watersmeet(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "watersmeet", *map(str, arguments)], env=environment(folder), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def ended(process):
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        kill_group(process.pid)
    return process.returncode, out, err


def oracle(one, sides):
    """All pairs (id, id) by brute force over what is in the topics: `sides` have id, time and key."""
    (ids, left_us, left), (others, right_us, right) = sides[0], sides[-1]
    difference = left[:, None] - right[None, :]
    said = difference > 0 if one.threshold is None else np.abs(difference) < one.threshold
    if one.slide is None:
        near = np.abs(left_us[:, None] - right_us[None, :]) <= one.seconds * 1_000_000
    else:  # some window of six slides that begins at a multiple of a slide has both
        slide = 10_000_000
        near = np.abs(left_us[:, None] // slide - right_us[None, :] // slide) < one.seconds * 1_000_000 // slide
    rows = np.nonzero(said & near)
    return {(int(ids[i]), int(others[j])) for i, j in zip(*rows)}


def fed(server, one, count, prefix=""):
    """What is in the topics of a query, as the oracle wants it."""
    sides = []
    for topic in one.topics:
        rows = [value for _, value in server.read(prefix + topic)]
        times = np.array([np.datetime64(row["ts"].rstrip("Z"), "us").astype(np.int64) for row in rows])
        sides.append((np.array([row["id"] for row in rows]), times, np.array([row[one.data.key] for row in rows])))
        assert sides[-1][0].tolist() == list(range(count))
        assert sides[-1][2].tolist() == one.rows(0, count, len(sides) - 1)[one.data.key].to_pylist()
    return sides


def joined(server, folder, one, route, sides, prefix=""):
    """Run the job and compare its results, all of them; what `watersmeet run` said."""
    file = folder / "job.toml"
    spark = SPARK.format(jars=server.connector)
    file.write_text(job_text(one, server.address, route, 300, prefix, trigger="available now", spark=spark))
    code, out, err = ended(watersmeet(folder, "run", file))
    assert code == 0, out + err
    found = [(value["id"], value["id_right"]) for _, value in server.read(prefix + one.results)]
    right = oracle(one, sides)
    assert len(right) > 10_000
    assert len(found) == len(right) and set(found) == right
    return out


@pytest.mark.parametrize(("name", "route"), [("q3", "auto"), ("q5", "cells"), ("q7", "split")])
def test_queries_are_exact_from_topics_to_a_topic(kafka, tmp_path, name, route):  # noqa: F811
    one = query(name)
    code, out, err = ended(
        watersmeet(tmp_path, "feed", name, "--servers", kafka.address, "--rate", 4, "--seconds", 150, "--speed", 1000)
    )
    assert code == 0, out + err
    assert re.fullmatch(r"done: 600 rows of each stream in .*\n", out), out
    joined(kafka, tmp_path, one, route, fed(kafka, one, 600))


@pytest.mark.parametrize(
    ("name", "route", "taken"),
    [("q2", "hot_cold", "hot_cold"), ("q7", "broadcast", "broadcast"), ("q7", "hot_cold", "split")],
)  # partners of an inequality are in any core: explain_join says so
def test_hot_keys_and_broadcasts_are_exact_from_topics_to_a_topic(kafka, tmp_path, name, route, taken):  # noqa: F811
    one = query(name)
    plan = compile_plan(parse(one.sql), one.schema, one.schema)
    assert choose_route(route, plan, one.schema, one.schema, "inner", 2)[0].name == taken
    prefix = f"{route}-"
    assert feed(one, kafka.address, 4, seconds=150, speed=1000, prefix=prefix).rows == 600
    said = joined(kafka, tmp_path, one, route, fed(kafka, one, 600, prefix), prefix)
    if taken == "hot_cold":
        share = re.search(r"hot rows +(\d+)%; now (?!none)", said)
        assert share is not None and int(share[1]) >= 20, said


def test_feeding_ends_by_ctrl_c_and_keeps_its_rate(kafka, tmp_path):  # noqa: F811
    process = watersmeet(tmp_path, "feed", "q6", "--servers", kafka.address, "--rate", 200)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            if kafka.count("q6-stock-market") >= 300:
                break
        except Exception:  # the topic is not there yet
            pass
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code == 0, out + err
    rows = int(re.match(r"stopped: ([\d,]+) rows", out)[1].replace(",", ""))
    assert rows >= 300 and kafka.count("q6-stock-market") == rows
