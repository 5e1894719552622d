"""Joins, and what they need: demo, warm, pack, run, feed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from watersmeet.cli.app import app, fail, spark_needed, user_errors

if TYPE_CHECKING:
    from watersmeet.page.page import Page
    from watersmeet.spark.job import Job


@app.command()
def demo(
    embedded: Annotated[bool, typer.Option("--embedded", help="In this process instead of on Spark.")] = False,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows in each of the two streams.", show_default="a few millions")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated streams.")] = 1,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores to use; embedded only.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep job, data and results here; on Spark only.")] = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="From topics to a topic of this Kafka broker, as JSON; on Spark only."),
    ] = None,
) -> None:
    """Join two generated streams, out of order as they arrive, and check every result.

    On Spark: ships' own reports meet the radar contacts that are within 500 m and 5 seconds, a join that Spark itself
    refuses. Embedded: trades meet the quotes of the same symbol that are within 5 cents and 1 second. The result is
    compared with DuckDB's. Exit code 1 if it is wrong.

    With `--kafka`, the same streams go through topics that are made for it, and deleted at the end. Spark's Kafka
    connector is fetched, unless PYSPARK_SUBMIT_ARGS says what to load.

    Example: `watersmeet demo --embedded --rows 200000 --cores 1`
    """
    from rich.console import Console

    if embedded and kafka is not None:
        fail("--kafka and --embedded cannot both be given; leave out one")
    if embedded:
        from watersmeet.demo import embedded as in_process

        right = in_process.run(rows or 1_000_000, seed, cores, Console())
    else:
        with user_errors(), spark_needed("watersmeet demo --embedded needs none"):
            from watersmeet.demo import spark as on_spark

            right = on_spark.run(rows or (2_000_000 if kafka is None else 500_000), seed, Console(), folder, kafka)
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
def pack(
    archive: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("watersmeet-workers.tar.gz"),
    kernels: Annotated[bool, typer.Option(help="Compile all kernels and send them along.")] = True,
) -> None:
    """Pack what a Spark cluster's workers need, for clusters that do not have Watersmeet installed.

    The archive has Watersmeet and all that it imports, as they are installed here: workers need a Python of the same
    version, and the same kind of machine. Says which settings to give Spark.
    """
    from rich.console import Console

    with user_errors(), spark_needed():
        from watersmeet.spark.workers import pack as write
        from watersmeet.spark.workers import settings

        if not archive.absolute().parent.is_dir():
            fail(f"{archive} cannot be written: there is no folder {archive.absolute().parent}")
        console = Console()
        with console.status("packing ...") as status:
            write(archive, kernels, lambda text: status.update(f"packing: {text} ..."))
    console.print(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB\n", highlight=False, soft_wrap=True)
    console.print("Settings of the application:", highlight=False)
    for name, value in settings(archive.absolute()).items():
        console.print(f"  {name} = {value}", highlight=False, soft_wrap=True, markup=False)


class PageCommand(TyperCommand):
    """A command whose `--page` may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, arg in reversed(list(enumerate(args))):
            after = args[at + 1 : at + 2]
            if arg == "--page" and (not after or after[0].startswith("-") or Path(after[0]).is_file()):
                args = [*args[:at], "--page=", *args[at + 1 :]]
        return super().parse_args(ctx, args)


@app.command(cls=PageCommand)
def run(
    job: Annotated[Path, typer.Argument(help="The job file, in TOML.", show_default=False)],
    check: Annotated[bool, typer.Option("--check", help="Check the job and show its plan; do not start it.")] = False,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:PORT|PORT]",
            help="Show how it goes on a page for browsers, by default at port 8321 of this machine.",
            show_default=False,
        ),
    ] = None,
    page_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="WATERSMEET_PAGE_TOKEN",
            help="That browsers must show as ?token=TOKEN; needed where others can reach the page's host.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Join two streams on Spark, as a job file says: two sources, a join, a sink.

    Shows rows/s in and out, batch time, watermark, state size and late rows while it runs. Ctrl-C stops it after the
    micro-batch that is running, a second one at once; started again, it goes on from its checkpoint. Exit code 1 if
    the query fails, 2 if the job file is wrong.

    With `--page`, a page for browsers shows the same and the last hour, for the users of this machine only. Another
    host needs a token, since the page shows predicates, names of columns and values of keys.

    Examples:

    `watersmeet run trades.toml`

    `watersmeet run trades.toml --page 9000`
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
            with job_page(wanted, page, page_token) as shown:
                ended = runner.run(wanted, console, page=shown)
        except runner.JobFailed as error:
            typer.secho(f"failed: {error}", fg=typer.colors.RED, err=True)
            raise typer.Exit(1) from None
    typer.echo(f"{'stopped' if ended.stopped else 'done'} after {ended.seconds:.0f} s")


@contextmanager
def job_page(job: Job, address: str | None, token: str | None) -> Iterator[Page | None]:
    """The page of a job, if one is wanted."""
    if address is None:
        if token is not None and "WATERSMEET_PAGE_TOKEN" not in os.environ:
            fail("--page-token is for a page; add --page")
        yield None
        return
    from watersmeet.page.page import Page

    title = job.run.name or job.file.name
    with Page(f"{title}: {job.join.on}", "spark", address, token, "--page", "--page-token") as page:
        hint = "" if token is None else " (with ?token=TOKEN behind it)"
        typer.echo(f"page: {page.address}{hint}")
        yield page


@app.command()
def feed(
    query: Annotated[str, typer.Argument(help="q1 to q7 (docs/skew.md).", show_default=False)],
    rate: Annotated[float, typer.Option(help="Rows of each stream a second of event time.")] = 10_000,
    servers: Annotated[str, typer.Option(metavar="HOST:PORT", help="The Kafka broker.")] = "localhost:9092",
    rows: Annotated[int | None, typer.Option(min=1, help="Rows of each stream.", show_default="without end")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds of event time.", show_default="without end")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The real data set, a file or a folder.", show_default="generated rows")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated rows.")] = 1,
    zipf: Annotated[
        float | None, typer.Option(min=0, help="Exponent of the keys' distribution.", show_default="the data set's")
    ] = None,
    speed: Annotated[float, typer.Option(help="Play so many times as fast as event time.")] = 1.0,
) -> None:
    """Play the streams of one of the seven queries on skewed data into Kafka topics, at a given rate.

    Topics are named after the query and the stream, `q3-taxi`, and made where they are not there. The job files in
    examples/skew read them. Ctrl-C ends it; what was sent stays.

    Example: `watersmeet feed q3 --rate 200 --seconds 120`
    """
    from rich.console import Console

    from watersmeet.queries import feed as feeding
    from watersmeet.queries import query as named

    console = Console(stderr=True)
    with user_errors(), console.status("asking the broker ...") as status:
        ended = feeding.feed(
            named(query), servers, rate, rows, seconds, file, seed, zipf, speed,
            say=lambda fed: status.update(f"{fed.rows:,} rows of each stream, {fed.rate:,.0f} rows/s"),
        )  # fmt: skip
    said = "stopped" if ended.stopped else "done"
    typer.echo(f"{said}: {ended.rows:,} rows of each stream in {ended.seconds:.1f} s, {ended.rate:,.0f} rows/s")
