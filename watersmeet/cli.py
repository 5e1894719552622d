"""The `watersmeet` command: demo, warm, run, explain, bench.

What only one command needs (DuckDB, the demo, the benchmarks) is imported inside of it, so that `watersmeet --help`
waits for nothing but the package itself. What a user can get wrong ends in one message on standard error and exit
code 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from watersmeet.engine.choose import NAMES as INDEX_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

    from watersmeet.query.expr import Expr

app = typer.Typer(
    help="Joins of two streams over sliding windows, on any predicate.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench_app = typer.Typer(help="Measure joins on this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

MARKDOWN = typer.Option("--markdown", help="Print the tables as Markdown.")
ROUNDS = typer.Option(min=1, help="Times each measurement is repeated.")
OUT = typer.Option(help="Store the results in this JSON file.", show_default="a new one in bench-results/")
STRICT = typer.Option("--strict", help="Exit code 1 if a target is missed.")
THREADS = typer.Option(min=1, help="Threads to use.", show_default="all cores")


def main() -> None:
    """Entry point of the `watersmeet` script."""
    app(prog_name="watersmeet")


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn the library's complaints about its input into one line and exit code 2."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        fail(str(error))


@contextmanager
def spark_needed(without: str = "") -> Iterator[None]:
    """Where Spark or Java is missing, say how to get it, and what can be done without."""
    hint = f" ({without})" if without else ""
    try:
        yield
    except ImportError as error:
        fail(f"{error}{hint}")
    except RuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        fail(f"Spark needs a Java runtime, version 17 or newer: install one, or set JAVA_HOME to it{hint}")


def fail(message: str) -> NoReturn:
    typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
    raise typer.Exit(2)


def show_version(asked: bool) -> None:
    if asked:
        from watersmeet import __version__

        typer.echo(f"watersmeet {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    embedded: Annotated[bool, typer.Option("--embedded", help="In this process instead of on Spark.")] = False,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows in each of the two streams.", show_default="a few millions")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated streams.")] = 1,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores to use; embedded only.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep job, data and results here; on Spark only.")] = None,
) -> None:
    """Join two generated streams, out of order as they arrive, and check every result.

    On Spark: ships' own reports meet the radar contacts that are within 500 m and 5 seconds, a join that Spark itself
    refuses. Embedded: trades meet the quotes of the same symbol that are within 5 cents and 1 second. The result is
    compared with DuckDB's. Exit code 1 if it is wrong.

    Example: `watersmeet demo --embedded --rows 200000 --cores 1`
    """
    from rich.console import Console

    if embedded:
        from watersmeet.demo import embedded as in_process

        right = in_process.run(rows or 1_000_000, seed, cores, Console())
    else:
        with user_errors(), spark_needed("watersmeet demo --embedded needs none"):
            from watersmeet.demo import spark as on_spark

            right = on_spark.run(rows or 2_000_000, seed, Console(), folder)
    if not right:
        raise typer.Exit(1)


@app.command()
def warm(
    processes: Annotated[int | None, typer.Option(min=1, help="Processes to use.", show_default="all cores")] = None,
) -> None:
    """Compile all kernels now, so that no join has to wait for it.

    They are kept beside the package, or in the folder that NUMBA_CACHE_DIR names: once on a machine, or once in an
    image, is enough. Joins that run without it compile what they need at first use.
    """
    from time import perf_counter

    from rich.console import Console
    from rich.progress import Progress

    from watersmeet.warm import JOBS
    from watersmeet.warm import warm as compile_kernels

    start = perf_counter()
    with Progress(transient=True, console=Console(stderr=True)) as progress:
        bar = progress.add_task("compiling", total=len(JOBS))
        found = compile_kernels(processes, lambda name: progress.advance(bar))
    seconds = perf_counter() - start
    typer.echo(f"{found.compiled} kernels compiled, {found.loaded} were there, {seconds:.1f} s")


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="The job file, in TOML.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Check the job and show its plan; do not start it.")] = False,
) -> None:
    """Join two streams on Spark, as a job file says: two sources, a join, a sink.

    Shows rows/s in and out, batch time, watermark, state size and late rows while it runs. Ctrl-C stops it after the
    micro-batch that is running, a second one at once; started again, it goes on from its checkpoint. Exit code 1 if
    the query fails, 2 if the job file is wrong.

    Example: `watersmeet run trades.toml`
    """
    from rich.console import Console

    console = Console()
    with user_errors(), spark_needed():
        from watersmeet.spark import job as jobs
        from watersmeet.spark import runner

        wanted = jobs.load(job)
        if check:
            runner.check(wanted, console)
            return
        try:
            ended = runner.run(wanted, console)
        except runner.JobFailed as error:
            typer.secho(f"failed: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from None
    typer.echo(f"{'stopped' if ended.stopped else 'done'} after {ended.seconds:.0f} s")


@app.command()
def explain(
    predicate: Annotated[str, typer.Argument(help="SQL over the columns of l and r, the two streams.")],
    left: Annotated[str, typer.Option(help='Columns of the left stream: "name:type, ...".')] = "",
    right: Annotated[str, typer.Option(help='Columns of the right stream: "name:type, ...".')] = "",
    window: Annotated[
        str,
        typer.Option(
            help='"within 10 seconds", "within 0, 1 hour", "last 1000", "tumbling 1 minute" '
            'or "hopping 1 hour, 5 minutes".'
        ),
    ] = "within 10 seconds",
    time: Annotated[str, typer.Option(help='Time column of both streams, or of each: "ts, seen_at".')] = "ts",
    lateness: Annotated[str, typer.Option(help='How far behind a row may come: "2 seconds".')] = "0",
    how: Annotated[str, typer.Option(help="inner, left, right, full, semi or anti.")] = "inner",
    index: Annotated[str, typer.Option(help=f"One of {', '.join(INDEX_NAMES)}.")] = "auto",
) -> None:
    """Show how a join would run: the terms of its predicate, its window, its index.

    Types are Arrow's (int64, double, string, bool, timestamp, ...) and decimal(10,2). A column that is
    not declared is taken for a double, the time column for a timestamp (or an int64 where the window is in
    whole numbers).

    Examples:

    `watersmeet explain "abs(l.price - r.price) <= 0.05"`

    `watersmeet explain "l.id = r.id and l.x < r.x" --left "id:string" --right "id:string" --how left`
    """
    from watersmeet import StreamJoin
    from watersmeet.query.parse import parse

    with user_errors():
        times = parse_names(time)
        declared = parse_columns(left, "--left"), parse_columns(right, "--right")
        spec, time_type = parse_window(window, times, lateness)
        schemas, assumed = complete_schemas(parse(predicate), declared, times, time_type)
        given: dict[str, Any] = {"how": how, "index": index}  # texts, which StreamJoin checks
        join: Any = StreamJoin(predicate, spec, left_schema=schemas[0], right_schema=schemas[1], **given)
    if assumed:
        typer.echo(f"assumed: {', '.join(assumed)} (declare columns with --left and --right)")
    typer.echo(join.explain())


@bench_app.command()
def embedded(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only this part (band_last, A2, B, subwindows, cores); may be repeated."),
    ] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    out: Annotated[Path | None, OUT] = None,
    strict: Annotated[bool, STRICT] = False,
    markdown: Annotated[bool, MARKDOWN] = False,
) -> None:
    """Measure the embedded engine against sorting, a nested loop, DuckDB, Polars and DataFusion.

    Every contender's answer is checked against ours in the same run; exit code 1 if one differs.

    Example: `watersmeet bench embedded --quick --only B`
    """
    from watersmeet.bench import embedded

    measured(
        "embedded", out, markdown, strict, quick, lambda store, say: embedded.run(quick, only, store, rounds, say=say)
    )


@bench_app.command()
def spark(
    quick: Annotated[bool, typer.Option("--quick", help="Small streams, for a first look.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this part (A, B, B17, C, D, flat); may be repeated.")
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(help='Run only this contender (watersmeet, discard, "spark, rocksdb", ...); may be repeated.'),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="Rows of each stream.", show_default="3000000")] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    out: Annotated[Path | None, OUT] = None,
    strict: Annotated[bool, STRICT] = False,
    markdown: Annotated[bool, MARKDOWN] = False,
) -> None:
    """Measure the join on Spark against Spark's own join, its usual workaround, and a pipeline that joins nothing.

    The results of every timed run are compared with DuckDB's, by a checksum over all columns; exit code 1 if they
    differ. The part `flat` has long streams and large windows. The whole takes about 30 minutes on two cores, a third
    of it in Spark's own joins; those that take minutes are measured once, whatever the rounds, and some
    ("spark, rocksdb, default", "cells, hdfs") only where named.

    Example: `watersmeet bench spark --quick --only B`
    """
    with spark_needed():
        from watersmeet.bench import spark

        measured(
            "spark", out, markdown, strict, quick or (rows or spark.FULL.rows) != spark.FULL.rows,
            lambda store, say: spark.run(quick, only, contender, rows, rounds, store, say=say),
        )  # fmt: skip


@bench_app.command()
def index(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (structures, shapes, convergence, windows, equality, chains, merging, steps, "
            "matches, memory, asymmetric, distributions, drift); may be repeated."
        ),
    ] = None,
    largest: Annotated[
        int | None, typer.Option(min=10, help="Log2 of the largest window; others follow.", show_default="23")
    ] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    out: Annotated[Path | None, OUT] = None,
    strict: Annotated[bool, STRICT] = False,
    markdown: Annotated[bool, MARKDOWN] = False,
) -> None:
    """Measure the window indexes as the papers they are from did, and hold the papers' figures against it.

    Everything runs on one thread, in turns, and all answers are compared; exit code 1 if one differs. The whole takes
    about 20 minutes.

    Example: `watersmeet bench index --quick --only windows`
    """
    from watersmeet.bench import index

    small = quick or (largest or index.FULL.largest) < index.FULL.largest
    measured(
        "index", out, markdown, strict, small,
        lambda store, say: index.run(quick, only, store, rounds, largest, say=say),
    )  # fmt: skip


@bench_app.command()
def cores(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only this part (topologies, fan_out, windows, ordering, latency); may be repeated."),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")] = None,
    rounds: Annotated[int | None, ROUNDS] = None,
    out: Annotated[Path | None, OUT] = None,
    strict: Annotated[bool, STRICT] = False,
    markdown: Annotated[bool, MARKDOWN] = False,
) -> None:
    """Measure joins on many cores as the papers did: SplitJoin against handshake joins, tuple by tuple.

    All answers are compared; exit code 1 if one differs. The whole takes a few minutes.

    Example: `watersmeet bench cores --quick --only latency`
    """
    from watersmeet.bench import cores

    measured(
        "cores", out, markdown, strict, quick, lambda store, say: cores.run(quick, only, store, rounds, most, say=say)
    )


def measured(
    name: str, out: Path | None, markdown: bool, strict: bool, small: bool,
    run: Callable[[Path, Callable], dict[str, Any]],
) -> None:  # fmt: skip
    """Run a benchmark, store its results as asked, or in a new file, and show them. `small`: it will not be judged."""
    from watersmeet.bench.checksum import AnswersDiffer
    from watersmeet.bench.frame import check_strict
    from watersmeet.bench.report import missed

    try:
        with user_errors():
            if strict:
                check_strict(small)
            if out is None:
                out = Path("bench-results", f"{name}-{datetime.now():%Y%m%d-%H%M%S}.json")
                out.parent.mkdir(exist_ok=True)
            results = run(out, lambda line: typer.echo(line, err=True))
    except AnswersDiffer as error:
        typer.secho(f"wrong answers: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from None
    show_report(results, markdown)
    typer.echo(f"stored in {out}", err=True)
    if strict and missed(results):
        raise typer.Exit(1)


@bench_app.command()
def report(
    file: Annotated[Path, typer.Argument(help="What a run stored.", exists=True, dir_okay=False)],
    markdown: Annotated[bool, MARKDOWN] = False,
) -> None:
    """Show the results of an earlier run."""
    from watersmeet.bench.report import load

    with user_errors():
        results = load(file)
    show_report(results, markdown)


def show_report(results: dict[str, Any], markdown: bool) -> None:
    from watersmeet.bench import report

    typer.echo(report.markdown(results) if markdown else report.text(results))


def parse_names(text: str) -> tuple[str, str]:
    """ "ts" or "ts, seen_at": the time column of each stream."""
    names = [name.strip() for name in text.split(",")]
    if len(names) > 2 or not all(names):
        raise ValueError(f'--time must be one column or two, as in "ts" or "ts, seen_at", not {text!r}')
    return names[0], names[-1]


def parse_window(text: str, times: tuple[str, str], lateness: str) -> tuple[Any, pa.DataType | None]:
    """A window such as "within 10 seconds", and the type of the times that it suits, if it has any."""
    import pyarrow as pa

    from watersmeet.query.window_text import counts_whole_numbers, window_of

    whole = counts_whole_numbers(text, "--window")
    time_type = None if whole is None else pa.int64() if whole else pa.timestamp("us")
    return window_of(text, times, lateness, "--window"), time_type


def parse_columns(text: str, option: str) -> dict[str, pa.DataType]:
    """Columns declared as "name:type, name:type"."""
    columns = {}
    for part in re.split(r",(?![^(\[]*[)\]])", text):  # not the commas inside decimal(10,2)
        if part.strip():
            name, colon, kind = (piece.strip() for piece in part.partition(":"))
            if not name or not colon or not kind:
                raise ValueError(f'{option} must read "name:type, name:type", not {part.strip()!r}')
            columns[name] = parse_type(kind, option)
    return columns


def parse_type(text: str, option: str) -> pa.DataType:
    """An Arrow type by its name, and a few that have no name of their own there."""
    import pyarrow as pa

    if decimal := re.fullmatch(r"decimal(?:128)?\s*\(\s*(\d+)\s*,\s*(-?\d+)\s*\)", text):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if zoned := re.fullmatch(r"timestamp\[\s*(s|ms|us|ns)\s*,\s*(?:tz=)?\s*([^\]]+?)\s*\]", text):
        return pa.timestamp(zoned[1], zoned[2])
    short = {"date": "date32", "time": "time64[us]", "timestamp": "timestamp[us]", "duration": "duration[us]"}
    try:
        return pa.type_for_alias(short.get(text, text))
    except ValueError:
        raise ValueError(
            f"{option}: no type {text!r}; use an Arrow type (int64, double, string, bool, timestamp, ...)"
            " or decimal(10,2)"
        ) from None


def complete_schemas(
    expression: Expr,
    declared: tuple[dict[str, pa.DataType], ...],
    times: tuple[str, str],
    time_type: pa.DataType | None,
) -> tuple[tuple[pa.Schema, ...], list[str]]:
    """The schemas of both streams with what is assumed of columns not declared, and those assumptions."""
    import pyarrow as pa

    from watersmeet.query.expr import Column, walk

    wanted = [] if time_type is None else [(side, name, time_type) for side, name in zip("lr", times)]
    wanted += [(part.side, part.name, pa.float64()) for part in walk(expression) if isinstance(part, Column)]
    columns = {side: dict(types) for side, types in zip("lr", declared)}
    assumed = []
    for side, name, kind in wanted:
        if side and name not in columns[side]:  # a name without l or r belongs to the stream that declares it
            columns[side][name] = kind
            assumed.append(f"{side}.{name} {kind}")
    return tuple(pa.schema(list(types.items())) for types in columns.values()), assumed
