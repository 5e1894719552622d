"""A job file: two sources, a join and a sink, in TOML. Read and checked here, without Spark.

    [left]                                  [join]
    format = "parquet"                      on = "abs(l.price - r.price) <= 0.05"
    path = "trades"                         window = "within 1 second"

    [right]                                 [sink]
    format = "parquet"                      format = "parquet"
    path = "quotes"                         path = "matches"

docs/jobs.md has every key. Each table of the file is one frozen dataclass here. A mistake raises `JobError`, which
names the file, the key, what is allowed there and what was found. Relative paths are relative to the job file's
folder, and "${NAME}" in any text is the environment variable of that name.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from watersmeet.parameters import hint
from watersmeet.query.durations import duration
from watersmeet.query.window_text import NEVER, number_or_text, window_of
from watersmeet.query.windows import Hopping, Within
from watersmeet.spark.bad_rows import BAD_ROWS
from watersmeet.spark.session import PACKAGES

HOWS = ("inner", "left", "right", "full", "semi", "anti")
AVAILABLE_NOW = "available now"
VALUES = ("json", "arrow")
PARQUET_FILES = "parquet_files"  # as "parquet", but that workers read them (parquet.py)
SERVERS = "kafka.bootstrap.servers"
SUBSCRIBED = ("subscribe", "subscribePattern", "assign")
_KINDS = {str: "text", list: "a list of texts", dict: "a table", bool: "true or false", int: "a whole number"}
_REQUIRED: Any = object()


class JobError(ValueError):
    """A job that cannot run as it is written; the message names the file and the key."""


@dataclass(frozen=True)
class Source:
    """[left] and [right]: a stream that Spark can read."""

    format: str | None
    path: str | None
    table: str | None
    schema: str | None
    select: tuple[str, ...] = ()
    where: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    value: str | None = None  # what Kafka's messages are; None: rows are Kafka's own columns
    bad_rows: str | None = None  # None: what [join] says

    @property
    def is_kafka(self) -> bool:
        return is_kafka(self.format)

    @property
    def is_parquet_files(self) -> bool:
        return self.format == PARQUET_FILES


@dataclass(frozen=True)
class Join:
    """[join]: what `stream_join` takes."""

    on: str
    window: Within | Hopping
    how: str = "inner"
    suffix: str = "_right"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sink:
    """[sink]: where the results go."""

    format: str | None
    path: str | None
    table: str | None
    select: tuple[str, ...] = ()
    where: str | None = None
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    value: str | None = None  # what Kafka's messages are to be; None: rows have Kafka's own columns
    key: str | None = None  # of Kafka's messages

    @property
    def is_kafka(self) -> bool:
        return is_kafka(self.format)


@dataclass(frozen=True)
class Run:
    """[run]: how often, and where the progress is kept. `trigger` None: the next micro-batch at once."""

    checkpoint: str | None
    trigger: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Cluster:
    """[spark]: where it runs. Both None: where spark-submit or the environment say, else on this machine."""

    master: str | None = None
    remote: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A whole job file."""

    file: Path
    left: Source
    right: Source
    join: Join
    sink: Sink
    run: Run
    spark: Cluster

    @property
    def bad_rows(self) -> Any:
        """What becomes of the bad rows of left and right."""
        both = self.join.options.get("bad_rows", "fail")
        left, right = both if isinstance(both, list) and len(both) == 2 else (both, both)
        return self.left.bad_rows or left, self.right.bad_rows or right

    def error(self, key: str, problem: object) -> JobError:
        """What Spark, or the join, says about a key of this file."""
        return JobError(f"{self.file}: {key}: {problem}")


def load(path: Path | str) -> Job:
    """Read and check a job file."""
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise JobError(f"{file}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{file}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{file}: is not valid TOML: {error}") from None
    root = _Table(file, "", content)
    job = Job(
        file,
        left=_source(root.table("left")),
        right=_source(root.table("right")),
        join=_join(root.table("join")),
        sink=_sink(root.table("sink")),
        run=_run(root.table("run", {})),
        spark=_cluster(root.table("spark", {})),
    )
    root.finish()
    if job.run.checkpoint is None and job.sink.format not in ("console", "memory", "noop"):
        raise job.error("run.checkpoint", "is missing: a folder that remembers what is done, so that a restart goes on")
    return job


# -- one function a table ---------------------------------------------------------------------------------------


def _source(table: _Table) -> Source:
    place, options = _place(table), table.options("options")
    source = Source(
        *place,
        schema=table.text("schema", None),
        select=table.texts("select"),
        where=table.text("where", None),
        options=options | _kafka_options(table, place[0], options, "subscribe", SUBSCRIBED),
        value=_kafka_only(table, place[0], "value"),
        bad_rows=table.text("bad_rows", None),
    )
    if source.is_parquet_files:
        for key in ("where", "select"):
            if getattr(source, key):
                raise table.error(key, f'is not for format = "{PARQUET_FILES}", whose rows are joined as they are; '
                                       f'use format = "parquet"')  # fmt: skip
        if source.path is None:
            raise table.error("path", "is missing: the folder of the files")
    if source.value not in (None, *VALUES):
        raise table.error("value", f"must be one of {', '.join(VALUES)}, not {source.value!r}")
    if source.value is not None and source.schema is None:
        raise table.error("schema", f'is missing: what is in the {source.value}, such as "ts timestamp, price double"')
    if source.value is None and source.is_kafka and source.schema is not None:
        raise table.error("value", 'is missing: "json" or "arrow", for a schema says what is in the messages')
    if source.bad_rows not in (None, *BAD_ROWS):
        raise table.error("bad_rows", f"must be one of {', '.join(BAD_ROWS)}, not {source.bad_rows!r}")
    table.finish()
    return source


def _sink(table: _Table) -> Sink:
    place, options = _place(table), table.options("options")
    value = _kafka_only(table, place[0], "value")
    if value not in (None, "json"):
        raise table.error("value", f'must be "json", not {value!r}')
    sink = Sink(
        *place,
        select=table.texts("select"),
        where=table.text("where", None),
        partition_by=table.texts("partition_by"),
        # Without a value of ours, rows may have a column "topic" instead.
        options=options | _kafka_options(table, place[0], options, "topic", ("topic",), needed=value is not None),
        value=value,
        key=_kafka_only(table, place[0], "key"),
    )
    if sink.key is not None and value is None:
        raise table.error("value", 'is missing: "json", or have select compute key and value')
    table.finish()
    return sink


def is_kafka(form: str | None) -> bool:
    return (form or "").lower() == "kafka"


def _kafka_only(table: _Table, form: str | None, key: str) -> Any:
    value = table.text(key, None)
    if value is not None and not is_kafka(form):
        raise table.error(key, f'is for format = "kafka", and this is {form!r}')
    return value


def _kafka_options(
    table: _Table, form: str | None, options: dict[str, str], topic: str, instead: Sequence[str], needed: bool = True
) -> dict[str, str]:
    """Spark's options for the keys `servers` and `topic`; either may be among the options already."""
    found = {}
    for key, option, others, example in (
        ("servers", SERVERS, (SERVERS,), '"broker:9092"'),
        ("topic", topic, instead, '"trades"'),
    ):
        given = [name for name in options if name.lower() in map(str.lower, others)]
        value = _kafka_only(table, form, key)
        if value is not None and given:
            raise table.error(key, f"and options.{given[0]} cannot both be given; leave out one")
        if value is not None:
            found[option] = value
        elif is_kafka(form) and not given and (needed or key == "servers"):
            raise table.error(key, f"is missing: {example}")
    return found


def _place(table: _Table) -> tuple[str | None, str | None, str | None]:
    """format, path and table of a source or a sink."""
    form, path, name = table.text("format", None), table.path("path"), table.text("table", None)
    if form is None and name is None:
        raise table.error("format", 'is missing: "parquet", "csv", "json", "rate", "kafka", ... (or name a table)')
    if path is not None and name is not None:
        raise table.error("path", "and table cannot both be given; leave out one")
    return form, path, name


#: Of stream_join, which checks them.
_JOIN_OPTIONS = ("route", "cores", "bad_rows", "late", "pick", "pick_by")


def _join(table: _Table) -> Join:
    on, how, suffix = table.text("on"), table.text("how", "inner"), table.text("suffix", "_right")
    if how not in HOWS:
        raise table.error("how", f"must be one of {', '.join(HOWS)}, not {how!r}{hint(how, HOWS)}")
    text, time = table.text("window"), table.one_or_two("time", "ts")
    lateness = table.one_or_two("lateness", "0", numbers=True)
    for one in lateness if isinstance(lateness, list) else [lateness]:
        with _named(table, "lateness"):
            duration(number_or_text(one), "it")
    idle_after = table.one_or_two("idle_after", NEVER, numbers=True)
    for one in idle_after if isinstance(idle_after, list) else [idle_after]:
        with _named(table, "idle_after"):
            duration(number_or_text(one) if one != NEVER else 0, "it")
    with _named(table, "window"):
        window = window_of(text, time, lateness, "it", idle_after)
    if not isinstance(window, Within | Hopping):
        raise table.error("window", f"must be of time on Spark (within, tumbling, hopping), not {text!r}")
    options = {name: value for name in _JOIN_OPTIONS if (value := table.any(name)) is not None}
    table.finish()
    return Join(on, window, how, suffix, options)


def _run(table: _Table) -> Run:
    trigger = table.text("trigger", None)
    if trigger is not None and trigger != AVAILABLE_NOW:
        try:
            duration(trigger, "trigger")
        except ValueError:
            raise table.error(
                "trigger", f'must be "{AVAILABLE_NOW}" or a length of time such as "10 seconds", not {trigger!r}'
            ) from None
    run = Run(table.path("checkpoint"), trigger, table.text("name", None))
    table.finish()
    return run


def _cluster(table: _Table) -> Cluster:
    cluster = Cluster(
        table.text("master", None), table.text("remote", None), table.options("conf"), table.texts("packages")
    )
    for package in cluster.packages:
        if not re.fullmatch(r"[^:\s,]+(:[^:\s,]+){2}", package):
            raise table.error("packages", f'must be "group:artifact:version" each, as Maven has them, not {package!r}')
    if cluster.packages and PACKAGES in cluster.conf:
        raise table.error("packages", f"and conf.{PACKAGES} cannot both be given; leave out one")
    if cluster.master is not None and cluster.remote is not None:
        raise table.error("remote", "and master cannot both be given; leave out one")
    table.finish()
    return cluster


# -- reading keys -----------------------------------------------------------------------------------------------


class _Table:
    """One table of the file. Keys are taken from it by type; what is left at the end is unknown."""

    def __init__(self, file: Path, name: str, content: dict[str, Any]) -> None:
        self.file, self.name, self.left = file, name, dict(content)
        self.known: list[str] = []

    def error(self, key: str, problem: str) -> JobError:
        return JobError(f"{self.file}: {f'{self.name}.' if self.name else ''}{key}: {problem}")

    def any(self, key: str, kind: type | None = None, default: Any = None) -> Any:
        self.known.append(key)
        if key not in self.left:
            if default is _REQUIRED:
                raise self.error(key, "is missing")
            return default
        value = self._expand(key, self.left.pop(key))
        if kind is not None and not isinstance(value, kind):
            raise self.error(key, f"must be {_KINDS[kind]}, not {value!r}")
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self.any(key, str, default)
        if value == "":
            raise self.error(key, "must not be empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.any(key, list, [])
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"must be {_KINDS[list]}, not {values!r}")
        return tuple(values)

    def one_or_two(self, key: str, default: str, numbers: bool = False) -> str | list[str]:
        """One text for both sides, or a list of two: left, right."""
        value = self.any(key, None, default)
        parts = value if isinstance(value, list) else [value]
        if numbers:
            parts = [str(part) if type(part) is int else part for part in parts]
        if not all(isinstance(part, str) for part in parts) or len(parts) != (2 if isinstance(value, list) else 1):
            raise self.error(key, f"must be text, or a list of two (left, right), not {value!r}")
        return parts if isinstance(value, list) else parts[0]

    def path(self, key: str) -> str | None:
        """A path as it is if it names a file system or is absolute, else from the folder of the job file."""
        value = self.text(key, None)
        if value is None or re.match(r"[a-zA-Z][\w+.-]*:", value) or Path(value).is_absolute():
            return value
        return str((self.file.parent / value).absolute())

    def options(self, key: str) -> dict[str, str]:
        """Option names and values as Spark wants them: all text."""
        return dict(self._flat(key, self.any(key, dict, {})))

    def _flat(self, key: str, values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            if isinstance(value, dict):  # kafka.topic = "x" is a table in a table for TOML, a name with a dot for Spark
                yield from self._flat(key, value, f"{prefix}{name}.")
            elif isinstance(value, list):
                raise self.error(f"{key}.{prefix}{name}", f"must be one value, not {value!r}")
            else:
                yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)

    def table(self, key: str, default: Any = _REQUIRED) -> _Table:
        return _Table(self.file, key, self.any(key, dict, default))

    def finish(self) -> None:
        for key in self.left:
            near = get_close_matches(key, self.known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(self.known)}"
            raise self.error(key, f"is not a key of {f'[{self.name}]' if self.name else 'a job'}; {hint}")

    def _expand(self, key: str, value: Any) -> Any:
        """Put the environment's values into "${NAME}"."""
        if isinstance(value, str):

            def look_up(match: re.Match[str]) -> str:
                if match[1] not in os.environ:
                    raise self.error(key, f"the environment variable {match[1]} is not set")
                return os.environ[match[1]]

            return re.sub(r"\$\{(\w+)\}", look_up, value)
        if isinstance(value, list):
            return [self._expand(key, one) for one in value]
        if isinstance(value, dict) and self.name:  # tables of the file expand their own
            return {name: self._expand(f"{key}.{name}", one) for name, one in value.items()}
        return value


@contextmanager
def _named(table: _Table, key: str) -> Iterator[None]:
    """Complaints of the library about a value become complaints about the key."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise table.error(key, str(error)) from None
