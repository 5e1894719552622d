"""Run a job file: `watersmeet run JOB.toml`.

    load -> session -> two streaming DataFrames -> stream_join -> query -> watch until it ends or is told to stop

What Spark says about a source or a sink is turned into an error that names the key of the job file. SIGINT (Ctrl-C) and
SIGTERM end the query after the micro-batch that is running; a second one ends it at once. Either way the checkpoint is
whole, and the next run goes on where this one stopped.
"""

from __future__ import annotations

import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from watersmeet.query.windows import Side
from watersmeet.spark import kafka, messages
from watersmeet.spark.bad_rows import drops
from watersmeet.spark.job import AVAILABLE_NOW, Job, JobError, Source
from watersmeet.spark.progress import Totals, Watch, facts, line, panel
from watersmeet.spark.session import PackagesMissing, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from watersmeet.page.page import Page
    from watersmeet.page.spark import JobPage
    from watersmeet.spark.parquet import ParquetFiles

POLL_S = 0.25
NAP_S = 0.05
STOPPING = "stopping after this micro-batch (Ctrl-C again: at once)"
LOG_EVERY_S = 2.0
FILES = ("parquet", "orc", "csv", "json", "text", "xml")
SHOWN_LOG = 15

# A job is one join and a sink, so the join may have a clock of its own, which knows all times.
ALONE: dict[str, Any] = {"before_1970": True}

# Spark's error conditions that one key of a source or a sink is to blame for.
BLAME = {
    "DATA_SOURCE_NOT_FOUND": "format",
    "PATH_NOT_FOUND": "path",
    "PARSE_SYNTAX_ERROR": "schema",
    "UNSUPPORTED_DATATYPE": "schema",
    "UNABLE_TO_INFER_SCHEMA": "schema",
    "TABLE_OR_VIEW_NOT_FOUND": "table",
}


class JobFailed(RuntimeError):
    """The query ended with an error while it ran."""


@dataclass(frozen=True)
class Ended:
    """How a run ended, and what it did."""

    totals: Totals
    seconds: float
    stopped: bool  # by a signal, not because all was done


def run(job: Job, console: Console, *, spark: SparkSession | None = None, page: Page | None = None) -> Ended:
    """Run the job until it ends, fails or is told to stop. page: that is to show how it goes."""
    with stop_signals() as stops, own_session(job, spark, console) as active:
        check_topics(job, active, console, patient=True)
        rows = build(job, active)
        feed = None if page is None else on_page(job, active, page)
        query = start(job, rows)
        try:
            return watch(job, query, stops, console, feed)
        finally:
            if query.isActive:
                query.stop()


def check(job: Job, console: Console, *, spark: SparkSession | None = None) -> None:
    """Do all that comes before the query starts, and show the plan of the join."""
    with own_session(job, spark, console) as active:
        check_topics(job, active, console)
        build(job, active)
        console.print(explain(job, active).rstrip(), markup=False, highlight=False, soft_wrap=True)
        console.print("columns of the result:")
        for column in selected(job, joined(job, active)).schema:
            console.print(f"  {column.name}: {column.dataType.simpleString()}", markup=False, highlight=False)


def check_topics(job: Job, spark: SparkSession, console: Console, patient: bool = False) -> None:
    """JobError if a broker has not the topics that the job names, or (unless `patient`) if it does not answer."""
    if not any(place.is_kafka for place in (job.left, job.right, job.sink)):
        return
    if kafka.is_connect(spark):
        if not patient:
            console.print("topics: not asked for, as Spark Connect does not let a client ask", highlight=False)
        return
    try:
        with console.status("asking for the topics ..."):
            wrong = [str(job.error(key, problem)) for key, problem in kafka.wrong_topics(job, spark)]
        if wrong:
            raise JobError("\n".join(wrong))
    except kafka.NoConnector:
        side = next(name for name in ("left", "right", "sink") if getattr(job, name).is_kafka)
        raise job.error(f"{side}.format", kafka.missing(spark)) from None
    except kafka.NoAnswer as error:
        if not patient:  # Spark has patience of its own
            raise JobError(f"{job.file}: {error}") from None


# -- from the job to a query --------------------------------------------------------------------------------


def build(job: Job, spark: SparkSession) -> DataFrame:
    """The joined stream, as the sink will get it."""
    found, sink = joined(job, spark), job.sink
    rows = selected(job, found)
    if sink.value is None:
        return rows
    with blamed(job, "sink.key"):
        return messages.as_json(found, sink.key, sink.select, sink.options)


def joined(job: Job, spark: SparkSession) -> DataFrame:
    """The joined stream."""
    from watersmeet.spark import stream_join

    left, right = read(job, "left", spark), read(job, "right", spark)
    join, sink = job.join, job.sink
    with blamed(job, "join"):
        found = stream_join(left, right, join.on, join.window, join.how, suffix=join.suffix, **options(job), **ALONE)
    with blamed(job, "sink.where"):
        found = found.where(sink.where) if sink.where else found
        found.schema  # noqa: B018  Connect looks at a plan only when asked for its schema
    return found


def options(job: Job) -> dict[str, Any]:
    return job.join.options | {"bad_rows": job.bad_rows}


def selected(job: Job, found: DataFrame) -> DataFrame:
    """The columns that the sink is to have, as rows or in its messages."""
    with blamed(job, "sink.select"):
        found = found.selectExpr(*job.sink.select) if job.sink.select else found
        found.schema  # noqa: B018
    return found


def explain(job: Job, spark: SparkSession) -> str:
    """What the join will do, and why."""
    from watersmeet.spark import explain_join

    join = job.join
    with blamed(job, "join"):
        left, right = read(job, "left", spark), read(job, "right", spark)
        return explain_join(left, right, join.on, join.window, join.how, suffix=join.suffix, **options(job), **ALONE)


def read(job: Job, side: Side, spark: SparkSession) -> DataFrame | ParquetFiles:
    """One source as a stream."""
    source: Source = getattr(job, side)
    with blamed(job, side, spark):
        if source.is_parquet_files:
            from watersmeet.spark import parquet_files

            return parquet_files(spark, str(source.path), source.schema, **source.options)
        reader = spark.readStream.options(**source.options)
        if source.schema is not None and not source.is_kafka:
            reader = reader.schema(source.schema)
        elif source.format in FILES:
            spark.conf.set("spark.sql.streaming.schemaInference", "true")
        if source.table is not None:
            rows = reader.table(source.table)
        else:
            rows = reader.format(str(source.format)).load(source.path)
        rows.schema  # noqa: B018
    if source.value is not None:
        return from_messages(job, side, rows)
    with blamed(job, f"{side}.where"):
        rows = rows.where(source.where) if source.where else rows
        rows.schema  # noqa: B018
    with blamed(job, f"{side}.select"):
        rows = rows.selectExpr(*source.select) if source.select else rows
        rows.schema  # noqa: B018
    return rows


def from_messages(job: Job, side: Side, rows: DataFrame) -> DataFrame:
    """What is in Kafka's messages, as the job wants it."""
    source: Source = getattr(job, side)
    with blamed(job, f"{side}.schema"):
        found = messages.rows(rows, side, str(source.value), str(source.schema), source.options)
        found.schema  # noqa: B018
    with blamed(job, f"{side}.where"):
        found = messages.where(found, source.where) if source.where else found
        found.schema  # noqa: B018
    with blamed(job, f"{side}.select"):
        found = messages.select(found, source.select)
        return messages.settled(found, drops(job.bad_rows, side))


def start(job: Job, rows: DataFrame) -> StreamingQuery:
    """Start writing the joined stream to the sink."""
    sink, run = job.sink, job.run
    with blamed(job, "sink", rows.sparkSession):
        writer = rows.writeStream.outputMode("append").options(**sink.options)
        if sink.format is not None:
            writer = writer.format(sink.format)
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if run.name is not None:
            writer = writer.queryName(run.name)
        if run.checkpoint is not None:
            writer = writer.option("checkpointLocation", run.checkpoint)
        if run.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif run.trigger is not None:
            writer = writer.trigger(processingTime=run.trigger)
        if sink.table is not None:
            return writer.toTable(sink.table)
        return writer.start(sink.path)


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JJavaError
    except ImportError:  # the client of Spark Connect alone
        return (PySparkException,)
    return PySparkException, Py4JJavaError  # the latter for exceptions that PySpark has no class for


@contextmanager
def blamed(job: Job, key: str, spark: SparkSession | None = None) -> Iterator[None]:
    """Errors inside are about this key of the job file, or about one below it; `spark`: where a format is looked up."""
    try:
        yield
    except JobError:
        raise
    except spark_errors() as error:
        text = first_line(error)
        if spark is not None and kafka.says_missing(text):
            raise job.error(f"{key}.format", kafka.missing(spark)) from None
        condition = re.match(r"\[(\w+)", text)
        below = BLAME.get(condition[1]) if condition and "." not in key else None
        raise job.error(f"{key}.{below}" if below else key, text) from None
    except (ValueError, TypeError) as error:
        raise job.error(key, error) from None


def first_line(error: Exception) -> str:
    """What went wrong, without the plan and the stack that Spark adds."""
    java = getattr(error, "java_exception", None)
    lines = [text for text in str(error if java is None else java.getMessage()).splitlines() if text.strip()]
    return re.sub(r"\s*SQLSTATE: \w+;?", "", lines[0]).rstrip(" ;") if lines else type(error).__name__


def failure(error: Exception) -> str:
    """Why a query failed. An exception in a Python worker is what its traceback ends with."""
    text = str(error)
    if told := re.search(r"\[USER_RAISED_EXCEPTION\] (.+)", text):  # by us: messages.py
        return re.sub(r"\s*SQLSTATE: \w+;?", "", told[1])
    raised = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", text, re.MULTILINE)
    if "Traceback (most recent call last)" in text and raised:
        kind, message = raised[0]
        return message if kind in ("ValueError", "TypeError") else f"{kind}: {message}"
    cause = re.search(r"terminated with exception: (.+)", text)
    return re.sub(r"\s*SQLSTATE: \w+;?", "", cause[1]).rstrip(" ;") if cause else first_line(error)


# -- while it runs ------------------------------------------------------------------------------------------


def on_page(job: Job, spark: SparkSession, page: Page) -> JobPage:
    from watersmeet.page.spark import JobPage

    return JobPage(page, explain(job, spark))


def watch(
    job: Job, query: StreamingQuery, stops: StopSignals, console: Console, page: JobPage | None = None
) -> Ended:
    """Show progress until the query is over."""
    watch = Watch(query, **ALONE)
    title = job.run.name or job.file.name
    live = console.is_terminal and job.sink.format != "console"
    with screen(console, live) as show:
        said, warned = 0.0, False
        while query.isActive:
            news = watch.poll()
            if stops.count:
                if stops.count > 1 or not query.status["isTriggerActive"] or (news and stops.batch is not None):
                    break
                if stops.batch is None:
                    stops.batch = watch.totals.batch_id
                    if not live:
                        console.print(STOPPING, highlight=False)
            status = STOPPING if stops.count else query.status["message"]
            if page is not None:
                page.show(watch.totals, status)
            if live:
                show(panel(watch, title, status))
            elif news and time.monotonic() - said > LOG_EVERY_S and watch.totals.batches:
                console.print(line(watch.totals), highlight=False, markup=False, soft_wrap=True)
                said = time.monotonic()
            if not live and watch.totals.warning and not warned:
                console.print(f"warning: {watch.totals.warning}", highlight=False, markup=False, soft_wrap=True)
            warned = watch.totals.warning is not None
            stops.wait(POLL_S)
        stopped = query.isActive
        if stopped:
            query.stop()
        watch.poll()
        if page is not None:
            page.show(watch.totals, "ended", now=True)
        if live:
            show(panel(watch, title, "stopped" if stopped else "done", ended=True))
    error = query.exception()
    if error is not None and not stopped:
        raise JobFailed(failure(error))
    if not live:
        for name, value in facts(watch.totals, ended=True):
            console.print(f"  {name:<14}{value}", highlight=False, markup=False)
        if watch.totals.warning:
            console.print(f"  warning: {watch.totals.warning}", highlight=False, markup=False, soft_wrap=True)
    return Ended(watch.totals, watch.elapsed, stopped)


@contextmanager
def screen(console: Console, live: bool) -> Iterator[Any]:
    if not live:
        yield lambda table: None
        return
    with Live(console=console, auto_refresh=False) as shown:
        yield lambda table: shown.update(table, refresh=True)


class StopSignals:
    """How often the user asked to stop."""

    def __init__(self) -> None:
        self.count = 0
        self.batch: int | None = None  # the micro-batch that was running then

    def __call__(self, number: int, frame: object) -> None:
        self.count += 1  # and nothing that takes a lock, which this thread might have just now

    def wait(self, seconds: float) -> None:
        """Sleep, but not through a signal."""
        before, end = self.count, time.monotonic() + seconds
        while self.count == before and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, NAP_S))


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Count SIGINT and SIGTERM instead of dying of them. In other threads than the main one signals cannot be had."""
    stops = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield stops
        return
    before = {number: signal.signal(number, stops) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def own_session(job: Job, spark: SparkSession | None, console: Console) -> Iterator[SparkSession]:
    """The session given, or one as the job wants it, stopped at the end; its log is shown if the job fails."""
    if spark is not None:
        yield spark
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with tempfile.TemporaryDirectory(prefix="watersmeet-run-") as folder:
        log = Path(folder, "spark.log")
        wanted = job.spark
        failures: tuple[type[Exception], ...] = (*spark_errors(), RuntimeError, ValueError, TypeError, OSError)
        try:
            with console.status("starting Spark ..."):
                spark = session(wanted.master, wanted.remote, wanted.conf, log, wanted.packages)
        except PackagesMissing as error:
            raise job.error("spark.packages", error) from None
        except failures as error:
            raise job.error("spark", f"{first_line(error)}\n{tail(log)}".rstrip()) from None
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Spark puts its own SIGINT handler there: it cancels all jobs
                signal.signal(number, handler)
        try:
            yield spark
        except JobFailed:
            console.print(tail(log), style="dim", markup=False, highlight=False, soft_wrap=True)
            raise
        finally:
            spark.stop()


def tail(log: Path) -> str:
    """The last lines of Spark's log, without stack traces."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(text for text in lines if not text.startswith(("\tat ", "\t... ")))[-2000:]
