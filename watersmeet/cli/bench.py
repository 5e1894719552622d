"""Measuring, and what was measured: `watersmeet bench ...`, `watersmeet report`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from watersmeet.cli.app import app, fail, spark_needed, user_errors

bench_app = typer.Typer(help="Measure joins on this machine.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")

Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")]
Rounds = Annotated[int | None, typer.Option(min=1, help="Times each measurement is repeated.")]
Out = Annotated[
    Path | None, typer.Option(help="Store the results in this JSON file.", show_default="a new one in bench-results/")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit code 1 if a target is missed.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")]


@bench_app.command()
def embedded(
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (band_last, A2, B, subwindows, cores, sort, push, count, boxes, asof, aggregates, "
            "page); may be repeated."
        ),
    ] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
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
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only this part (A, B, B17, C, D, flat, first, kafka, skew); may be repeated."),
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(help='Run only this contender (watersmeet, discard, "spark, rocksdb", ...); may be repeated.'),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1000, help="Rows of each stream.", show_default="4000000")] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
) -> None:
    """Measure the join on Spark against Spark's own join, its usual workaround, and a pipeline that joins nothing.

    The results of every timed run are compared with DuckDB's, by a checksum over all columns; exit code 1 if they
    differ. The part `flat` has long streams and large windows; `first` the first micro-batch of a session; `kafka`
    small micro-batches and latency from topic to topic, with a broker of its own (tools/broker.py of the source tree),
    against the same query without a join; `skew` hot keys, by two routes. The whole takes about an hour on two cores, a
    third of it in Spark's own joins; those that take minutes are measured once, whatever the rounds, and some
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
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (structures, shapes, convergence, windows, equality, chains, merging, steps, "
            "matches, memory, asymmetric, distributions, drift, opencl); may be repeated."
        ),
    ] = None,
    largest: Annotated[
        int | None, typer.Option(min=10, help="Log2 of the largest window; others follow.", show_default="23")
    ] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
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
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (topologies, fan_out, windows, ordering, latency, shared, tasks, routes, "
            "ordered); may be repeated."
        ),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="all")] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
) -> None:
    """Measure joins on many cores as the papers did: SplitJoin against handshake joins, tuple by tuple.

    All answers are compared; exit code 1 if one differs. The whole takes a few minutes.

    Example: `watersmeet bench cores --quick --only latency`
    """
    from watersmeet.bench import cores

    measured(
        "cores", out, markdown, strict, quick, lambda store, say: cores.run(quick, only, store, rounds, most, say=say)
    )


@bench_app.command()
def gpu(
    quick: Quick = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (link, distinct, skew, breakdown, parallel, progress, energy, results, systems, "
            "advice, exact, joins); may be repeated."
        ),
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores that joins on the CPU use.", show_default="all")
    ] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
) -> None:
    """Measure stream joins on a GPU as a study of them did: algorithms, skew, windows at a time, ways to make pairs.

    All answers are compared; exit code 1 if one differs. Where there is no GPU, only joins on the CPU are measured.

    Example: `watersmeet bench gpu --quick --only progress`
    """
    from watersmeet.bench import gpu

    measured(
        "gpu", out, markdown, strict, quick, lambda store, say: gpu.run(quick, only, store, rounds, cores, say=say)
    )


@bench_app.command()
def skew(
    quick: Quick = False,
    query: Annotated[
        list[str] | None, typer.Option(help="Measure only this query (q3 to q7); may be repeated.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Run only this part (balance, partitioners, sketch, cores, elements, completeness, pipeline); may be "
            "repeated."
        ),
    ] = None,
    most: Annotated[int | None, typer.Option(min=1, help="Cores to use.", show_default="8")] = None,
    servers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A Kafka broker, for the pipeline.", show_default="$BROKER")
    ] = None,
    rounds: Rounds = None,
    out: Out = None,
    strict: Strict = False,
    markdown: Markdown = False,
) -> None:
    """Measure joins of skewed streams as the paper of STA-Join did: balance, throughput, latency, completeness.

    Elements are counted, or the busiest of them is timed, so that there may be more of them than cores. The pipeline
    runs on Spark and needs a Kafka broker (`make broker`); without one it is left out.

    Example: `watersmeet bench skew --quick --query q3 --only elements`
    """
    from watersmeet.bench import skew

    measured(
        "skew", out, markdown, strict, quick,
        lambda store, say: skew.run(quick, only, store, rounds, most, query=query, servers=servers, say=say),
    )  # fmt: skip


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
    markdown: Markdown = False,
    plots: Annotated[Path | None, typer.Option(help="Also write its plots (SVG) to this folder.")] = None,
) -> None:
    """Show the results of an earlier run. `watersmeet report` makes a page of one or of many."""
    from watersmeet.bench.plots import runs, write

    with user_errors(), plots_needed():
        found = runs.load([file])
        if plots is not None:
            write(found, plots)
    show_report(found[0].data, markdown)


@contextmanager
def plots_needed() -> Iterator[None]:
    """Where what draws plots is missing, say how to get it."""
    try:
        yield
    except ImportError as error:
        fail(str(error))


@app.command("report")
def report_page(
    results: Annotated[
        list[Path] | None,
        typer.Argument(help="What runs of `watersmeet bench` stored.", show_default="docs/figures or bench-results"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    svg: Annotated[
        Path | None, typer.Option(help="Write the plots to this folder, as SVG, instead of a page.")
    ] = None,
) -> None:
    """Make one page of all that was measured: plots, claims of the papers, targets met and missed.

    The page is one file that loads nothing: open it anywhere, send it to anyone. Needs `pip install
    'watersmeet[report]'`.

    Example: `watersmeet report bench-results/*.json -o report.html`
    """
    from watersmeet.bench import plots

    with user_errors(), plots_needed():
        found = plots.runs.load(results or plots.runs.default())
        if svg is not None:
            typer.echo(f"{len(plots.write(found, svg))} plots in {svg}")
            return
        if not out.absolute().parent.is_dir():
            fail(f"{out} cannot be written: there is no folder {out.absolute().parent}")
        from watersmeet.bench.plots.page import page

        out.write_text(page(found))
    typer.echo(f"{out}: {len(found)} run{'s' * (len(found) > 1)}, {out.stat().st_size / 1e6:.1f} MB")


def show_report(results: dict[str, Any], markdown: bool) -> None:
    from watersmeet.bench import report

    typer.echo(report.markdown(results) if markdown else report.text(results))
