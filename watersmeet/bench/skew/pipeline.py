"""The part `pipeline` of `watersmeet bench skew`: queries from Kafka topics to a topic, on Spark with two cores.

For each query its streams are played into topics of their own, all at once, and the query's job runs over them until
it has seen all, route by route: what `watersmeet feed` and `watersmeet run` do. Rows/s are those of all micro-batches
but the first, which starts Python workers: the rate that the job would sustain. A row waits for the micro-batch that is
running and for its own, so these tell the latency. Results of all routes are as many.

At the paper's rate a row of these queries has up to 100,000 partners in the window, and every pair is a message here;
so streams are slower than the paper's, by as much as its windows allow.
"""

from __future__ import annotations

import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.rounds import Row, median
from watersmeet.demo.kafka import packages
from watersmeet.queries import QUERIES, Query
from watersmeet.queries.feed import feed
from watersmeet.queries.jobs import job as job_text
from watersmeet.queries.query import START_US
from watersmeet.spark import job as jobs
from watersmeet.spark import kafka, runner
from watersmeet.spark.progress import counters

if TYPE_CHECKING:
    from watersmeet.bench.skew import Skew

ROUTES = ("hot_cold", "auto", "split", "broadcast")
MICRO_BATCHES = 6


def pipeline(bench: Skew) -> None:
    with tempfile.TemporaryDirectory(prefix="watersmeet-skew-") as place:
        folder = Path(place)
        first = loaded(folder, QUERIES[bench.queries[0]], bench, "split", "", 1)
        with runner.own_session(first, None, Console(stderr=True)) as spark:
            for name in bench.queries:
                with fed(bench, QUERIES[name], spark) as prefix:
                    measured(bench, QUERIES[name], folder, spark, prefix)


def loaded(folder: Path, query: Query, bench: Skew, route: str, prefix: str, batch: int) -> jobs.Job:
    lines = 'master = "local[2]"\n'
    if packages():
        lines += f'packages = ["{packages()[0]}"]\n'
    mark = secrets.token_hex(4)
    file = folder / f"{query.name}-{mark}.toml"
    checkpoint = str(folder / f"checkpoint-{mark}")
    file.write_text(job_text(query, str(bench.servers), route, batch, prefix, checkpoint, "available now", lines))
    return jobs.load(file)


@contextmanager
def fed(bench: Skew, query: Query, spark: Any) -> Any:
    """Topics with the query's streams, deleted at the end; gives what their names begin with."""
    prefix = f"bench-{secrets.token_hex(4)}-"
    rate, seconds = bench.sizes.pipeline_rate, bench.sizes.pipeline_s
    feed(query, str(bench.servers), rate, seconds=seconds, speed=1e6, prefix=prefix, since=START_US)
    try:
        yield prefix
    finally:
        with kafka.broker(spark, {jobs.SERVERS: str(bench.servers)}) as broker:
            broker.delete([prefix + topic for topic in (*query.topics, query.results)])


def measured(bench: Skew, query: Query, folder: Path, spark: Any, prefix: str) -> None:
    rate, seconds = bench.sizes.pipeline_rate, bench.sizes.pipeline_s
    batch = -(-rate * seconds // MICRO_BATCHES)
    found: dict[str, Row] = {}
    results = {}
    for _ in range(bench.sizes.rounds):
        for route in ROUTES:
            job, where = loaded(folder, query, bench, route, prefix, batch), f"pipeline, {query.name}, {route}"
            if where in bench.skipped:
                continue
            try:
                running = runner.start(job, runner.build(job, spark))
                running.awaitTermination()
            except jobs.JobError as error:
                bench.skipped[where] = str(error).partition(": ")[2]
                continue
            except runner.spark_errors() as error:
                bench.skipped[where] = f"it failed: {runner.first_line(error)}"
                continue
            batches = [
                (progress["numInputRows"], progress["durationMs"]["triggerExecution"] / 1e3)
                for progress in running.recentProgress
                if progress["numInputRows"]
            ]
            written = sum(counters(progress).get("rows_out", 0) for progress in running.recentProgress)
            warm = batches[1:] or batches
            row = found.setdefault(route, {"rounds": [], "seconds": []})
            row["rounds"].append(sum(rows for rows, _ in warm) / sum(took for _, took in warm))
            row["seconds"] += [took for _, took in warm]
            results[route] = written
    if len(set(results.values())) > 1:
        raise AnswersDiffer(f"pipeline, {query.name}: {results} results")
    for route, row in found.items():
        bench.record({
            "part": "pipeline", "setting": f"{query.name}, {rate}/s", "elements": 2, "contender": route,
            "query": query.name, "rounds": row["rounds"], "rows_per_s": max(row["rounds"]),
            "batch_s": median(row["seconds"]), "longest_s": max(row["seconds"]), "results": results[route],
        })  # fmt: skip
