"""`watersmeet demo`: a job on local Spark, from two folders of Parquet files to a third, and every result checked.

Ships report who and where they are; radars see ships that have no name. Which contact may be which ship? There is
nothing to hash on, so Spark itself refuses the join; it says so here before the job runs. Then DuckDB works out the
whole answer again, from the files and from the definition of a late row.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.syntax import Syntax

from watersmeet.demo import kafka as on_kafka
from watersmeet.demo.embedded import preview
from watersmeet.demo.kernels import Beside
from watersmeet.demo.ships import generate, write
from watersmeet.spark.job import load
from watersmeet.spark.runner import Ended, first_line, tail
from watersmeet.spark.runner import run as run_job
from watersmeet.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BAND = 0.005  # degrees: about 500 m
NEAR = f"abs(l.lon - r.lon) <= {BAND} and abs(l.lat - r.lat) <= {BAND}"
WINDOW_US, LATENESS_US = 5_000_000, 2_000_000
WINDOW, LATENESS = f"within {WINDOW_US // 1_000_000} seconds", f"{LATENESS_US // 1_000_000} seconds"
BATCH_ROWS = 250_000  # of each stream
SHOWN = ["ship", "station", "ts", "ts_right", "lon", "lon_right"]  # as many as fit into 80 columns

JOB = f"""\
[left]
format = "parquet_files"
path = "reports"
options.maxFilesPerTrigger = 1

[right]
format = "parquet_files"
path = "contacts"
options.maxFilesPerTrigger = 1

[join]
on = "{NEAR}"
window = "{WINDOW}"
lateness = "{LATENESS}"

[sink]
format = "parquet"
path = "sightings"

[run]
checkpoint = "checkpoint"
trigger = "available now"
"""

# Every report is in one cell of longitude, latitude and time; every contact is copied into those that it may match in.
EXPECTED = """
    with l as (select *, {cells_l} from reports where not late),
         r as (select *, {cells_r} from contacts where not late),
         copies as (select r.*, unnest(generate_series(x0, x1)) as x from r),
         more as (select copies.*, unnest(generate_series(y0, y1)) as y from copies),
         most as (select more.*, unnest(generate_series(z0, z1)) as z from more)
    select l.report_id, l.ts, l.ship, l.lon, l.lat, r.contact_id, r.ts as ts_right, r.station,
           r.lon as lon_right, r.lat as lat_right
    from l join most r using (x, y, z)
    where abs(l.lon - r.lon) <= {band} and abs(l.lat - r.lat) <= {band}
      and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= {width}
"""


def expected_sql() -> str:
    """The answer, for DuckDB. Cells are four times as wide as what may match, so that few copies are made."""
    axes = {"x": ("lon", BAND), "y": ("lat", BAND), "z": ("epoch_us(ts)", WINDOW_US)}
    one, many = [], []
    for axis, (value, reach) in axes.items():
        reach *= 1.001  # a little more, for what floats lose
        one.append(f"floor({value} / {4 * reach})::bigint as {axis}")
        many.append(f"floor(({value} - {reach}) / {4 * reach})::bigint as {axis}0")
        many.append(f"floor(({value} + {reach}) / {4 * reach})::bigint as {axis}1")
    return EXPECTED.format(cells_l=", ".join(one), cells_r=", ".join(many), band=BAND, width=WINDOW_US)


def run(rows: int, seed: int, console: Console, folder: Path | None = None, servers: str | None = None) -> bool:
    """Run the demo and print it. True if the result is exactly right. `folder` keeps the files; `servers`: through
    this Kafka broker."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ValueError(f"folder must be empty or new, and {folder} has files in it")
    with tempfile.TemporaryDirectory(prefix="watersmeet-demo-") if folder is None else nullcontext(folder) as place:
        return play(Path(place).resolve(), rows, seed, console, servers)


def play(folder: Path, rows: int, seed: int, console: Console, servers: str | None) -> bool:
    kernels = Beside(NEAR, (f"{WINDOW_US // 1_000_000} seconds", f"{LATENESS_US // 1_000_000} seconds"))
    try:
        return played(folder, rows, seed, console, kernels, servers)
    finally:
        kernels.stop()


def played(
    folder: Path, rows: int, seed: int, console: Console, kernels: Beside, servers: str | None = None
) -> bool:
    files = max(2, round(rows / BATCH_ROWS))
    with console.status("making two streams ..."):
        tables = generate(rows, seed)
        arrived = [write(table, folder / name, files) for table, name in zip(tables, ("reports", "contacts"))]
    console.print(f"[bold]Two streams, as they arrive[/]: {rows:,} rows each, in {files} files each\n")
    console.print(preview(tables[0], "l: reports, what ships say of themselves", decimals=4))
    console.print(preview(tables[1], "r: contacts, what radars see", decimals=4))
    console.print("Which contact may be which ship: within 500 m and 5 seconds?\n")

    log = folder / "spark.log"
    with console.status("starting Spark ..."):
        start = perf_counter()
        spark = session("local[*]", log=log, packages=on_kafka.packages() if servers else ())
    try:
        console.print(f"Spark {spark.version} is ready after {perf_counter() - start:.1f} s.", highlight=False)
        with console.status("asking Spark's own join ..."):
            console.print(f"Spark's own join says: [yellow]{refusal(spark, folder)}[/]\n", highlight=False)
        with console.status("compiling kernels, once on this machine (half a minute) ..."):
            console.print(kernels.wait(), highlight=False)
        if servers is None:
            ended = run_file(folder, JOB, spark, console)
        else:
            batch = -(-rows // files)
            arrived = [on_kafka.batches(table, batch) for table in tables]
            ended = run_on_kafka(folder, servers, batch, spark, console)
    except Exception:
        console.print(tail(log), style="dim", markup=False, highlight=False, soft_wrap=True)
        raise
    finally:
        spark.stop()
    if ended.stopped:
        console.print("stopped before the end; nothing is checked")
        return False
    speed = "" if ended.totals.rates is None else f"; {ended.totals.rates[0]:,.0f} rows/s after the first micro-batch"
    console.print(f"\njoined {2 * rows:,} rows in {sum(ended.totals.seconds):.1f} s{speed}", highlight=False)
    console.print(preview(sample(folder / "sightings"), "sightings, the results", decimals=4))
    with console.status("checking every result with DuckDB ..."):
        problems, how = verify(arrived, folder, ended)
    for problem in problems:
        console.print(f"[bold red]wrong:[/] {problem}", soft_wrap=True, highlight=False)
    if not problems:
        console.print(f"[bold green]correct:[/] {how}", soft_wrap=True, highlight=False)
    return not problems


def run_file(folder: Path, job: str, spark: SparkSession, console: Console) -> Ended:
    """Show a job file and run it."""
    (folder / "ships.toml").write_text(job)
    console.print("[bold]ships.toml[/], for [cyan]watersmeet run ships.toml[/]:")
    console.print(Syntax(job, "toml", background_color="default"))
    return run_job(load(folder / "ships.toml"), console, spark=spark)


def run_on_kafka(folder: Path, servers: str, batch: int, spark: SparkSession, console: Console) -> Ended:
    """The same from topic to topic."""
    with on_kafka.topics(spark, servers) as topics:
        for name in ("reports", "contacts"):
            with console.status(f"sending {name} to {servers} ..."):
                topics.fill(name, folder / name)
        ended = run_file(folder, topics.job(batch, on=NEAR, window=WINDOW, lateness=LATENESS), spark, console)
        if not ended.stopped:
            with console.status(f"fetching the results from {servers} ..."):
                topics.fetch(folder / "sightings")
    return ended


def sample(folder: Path) -> pa.Table:
    """Some of the results: those of the first file that has any."""
    files = [pq.ParquetFile(path) for path in sorted(folder.glob("*.parquet"))]
    return next((file for file in files if file.metadata.num_rows), files[0]).read().select(SHOWN)


def refusal(spark, folder: Path) -> str:
    """What Spark says to the same join."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    sides = []
    for name, alias in (("reports", "l"), ("contacts", "r")):
        rows = spark.readStream.schema(spark.read.parquet(str(folder / name)).schema).parquet(str(folder / name))
        sides.append(rows.withWatermark("ts", "2 seconds").alias(alias))
    span = f"interval {WINDOW_US} microseconds"
    near = F.expr(f"{NEAR} and r.ts between l.ts - {span} and l.ts + {span}")
    try:
        query = sides[0].join(sides[1], near).writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
    except PySparkException as error:
        return first_line(error).partition("terminated with exception: ")[2] or first_line(error)
    return "nothing against it"


def verify(arrived: list[list[pa.Table]], folder: Path, ended: Ended) -> tuple[list[str], str]:
    """What is wrong with the results, and how they were checked."""
    import duckdb

    late = late_rows(arrived)
    counts = tuple(int(mask.sum()) for mask in late)
    problems = []
    if ended.totals.late != counts:
        problems.append(f"{ended.totals.late} rows counted as late (left, right), {counts} are")
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        for name, parts, mask in zip(("reports", "contacts"), arrived, late):
            db.register(name, pa.concat_tables(parts).append_column("late", pa.array(mask)))
        db.execute(f"create table expected as {expected_sql()}")
        db.execute(f"create view got as select * from read_parquet('{folder}/sightings/*.parquet')")
        ((want,),) = db.execute("select count(*) from expected").fetchall()
        ((got,),) = db.execute("select count(*) from got").fetchall()
        ((missing,),) = db.execute("select count(*) from (from expected except all from got)").fetchall()
    if got != want or missing:
        problems.append(f"{got:,} results where DuckDB finds {want:,}; {missing:,} of DuckDB's are not there")
    total = sum(len(mask) for mask in late)
    how = f"DuckDB finds the same {want:,} results, column by column, among {total - sum(counts):,} rows"
    return problems, how + f" that came in time, and the same {sum(counts):,} that were late"


def late_rows(arrived: list[list[pa.Table]]) -> tuple[np.ndarray, np.ndarray]:
    """For each row: was it below Spark's watermark, which is set between micro-batches, when it came?"""
    times = [[part["ts"].cast(pa.int64()).to_numpy() for part in parts] for parts in arrived]
    late: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    watermark, seen = 0, [0, 0]
    for batch in zip(*times):
        for side, micros in enumerate(batch):
            late[side].append(micros < watermark)
            seen[side] = max(seen[side], int(micros.max(initial=0)))
        # Spark counts in milliseconds, and takes the slower stream.
        watermark = max(watermark, min(each // 1000 * 1000 for each in seen) - LATENESS_US)
    return np.concatenate(late[0]), np.concatenate(late[1])
