"""`watersmeet demo --embedded`: join trades and quotes in this process, and check every result."""

from __future__ import annotations

import time
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import numpy as np
import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import watersmeet as wm
from watersmeet.demo import check
from watersmeet.demo.streams import Pushes, Stream, deliveries, generate

BAND = 0.05
PREDICATE = f"l.symbol = r.symbol and abs(l.price - r.price) <= {BAND}"
WINDOW_US, LATENESS_US = 1_000_000, 500_000
STYLE: dict[str, Any] = {"box": SIMPLE_HEAD, "pad_edge": False, "title_justify": "left", "title_style": "b"}
SHOWN = ["symbol", "ts", "price", "quantity", "ts_right", "price_right", "venue"]
SAMPLE = 200  # trades checked where there is no DuckDB


@dataclass(frozen=True)
class Outcome:
    """What one run of the join gave."""

    result: pa.Table
    late: tuple[int, int]
    late_rows: pa.Table
    seconds: float
    metrics: dict
    plan: str


def run(rows: int, seed: int, cores: int | None, console: Console) -> bool:
    """Run the demo and print it. True if the result is exactly right."""
    with console.status("generating two streams ..."):
        trades, quotes = generate(rows, seed)
        pushes = list(deliveries(trades, quotes))
    console.print(f"[bold]Two streams, as they arrive[/]: {rows:,} rows each in {len(pushes):,} deliveries,")
    console.print(f"{out_of_order(trades, quotes):.0%} of the rows after a later one of their stream\n")
    console.print(preview(trades.rows, "l: trades"))
    console.print(preview(quotes.rows, "r: quotes"))
    console.print("For each trade: which quotes of its symbol were within 5 cents and 1 second?")
    console.print(f"  on      [cyan]{PREDICATE}[/]")
    console.print('  window  [cyan]within("1 second", lateness="500 milliseconds")[/]\n')

    with console.status("preparing the kernels (compiled the first time, then kept on disk) ..."):
        start = time.perf_counter()
        join_all(list(deliveries(*generate(20_000, seed))), cores)
        seconds = time.perf_counter() - start
    console.print(f"kernels ready after {seconds:.1f} s (compiled the first time, then kept on disk)")
    with progress_bar(console) as progress:
        outcome = join_all(pushes, cores, progress)

    console.print("\n[bold]join.explain()[/]")
    console.print(indent(outcome.plan.rstrip(), "  "), markup=False, highlight=False, soft_wrap=True)
    console.print()
    console.print(preview(outcome.result.select(SHOWN), "results"))
    console.print(summary(outcome, 2 * rows))
    if outcome.late_rows.num_rows:
        console.print(preview(outcome.late_rows, 'some late trades: join.take_late("left")'))
    with console.status("checking every result ..."):
        problems, how = verify(trades, quotes, pushes, outcome)
    for problem in problems:
        console.print(f"[bold red]wrong:[/] {problem}", soft_wrap=True)
    if not problems:
        console.print(f"[bold green]correct:[/] {how}", soft_wrap=True)
    return not problems


def join_all(pushes: Pushes, cores: int | None, progress: Progress | None = None) -> Outcome:
    """Push every delivery through one join."""
    results, matches, done = [], 0, 0
    total = sum(left.num_rows + right.num_rows for left, right in pushes)
    task = None if progress is None else progress.add_task("joining", total=total, matches="0", rate="")
    window = wm.within("1 second", time="ts", lateness="500 milliseconds")
    start = time.perf_counter()
    with wm.StreamJoin(PREDICATE, window, cores=cores) as join:
        for left, right in pushes:
            result: Any = join.push(left=left, right=right)
            results.append(result)
            matches += result.num_rows
            done += left.num_rows + right.num_rows
            if progress is not None and task is not None:
                rate = done / (time.perf_counter() - start)
                progress.update(task, completed=done, matches=f"{matches:,}", rate=f"{rate:,.0f}")
        metrics = join.metrics.to_dict()  # before the end empties the window
        results.append(join.close())
        seconds = time.perf_counter() - start
        result, late = pa.concat_tables(results), (join.metrics.late_left, join.metrics.late_right)
        return Outcome(result, late, join.take_late("left"), seconds, metrics, join.explain())


def verify(trades: Stream, quotes: Stream, pushes: Pushes, outcome: Outcome) -> tuple[list[str], str]:
    """What is wrong with the outcome, and how it was checked."""
    late = check.late_rows(pushes, LATENESS_US)
    problems = [
        f"{got:,} {name} counted as late, {np.count_nonzero(want):,} are"
        for name, got, want in zip(("trades", "quotes"), outcome.late, late)
        if got != np.count_nonzero(want)
    ]
    result = outcome.result
    if not check.same_payload(result, trades.rows, quotes.rows):
        problems.append("some result rows do not carry the columns of their trade and quote")
    left, right = (stream.rows.filter(pa.array(~mask)) for stream, mask in zip((trades, quotes), late))
    got = check.sorted_pairs(result["trade_id"].to_numpy(), result["quote_id"].to_numpy())
    try:
        want = check.all_pairs(left, right, BAND, WINDOW_US)
        total = left.num_rows + right.num_rows
        how = f"DuckDB finds the same {len(want):,} pairs among the {total:,} rows that came in time"
    except ImportError:
        rng = np.random.default_rng(0)
        sample = left.take(rng.permutation(left.num_rows)[:SAMPLE])
        want = check.pairs_of(sample, right, BAND, WINDOW_US)
        got = got[np.isin(got[:, 0], sample["trade_id"].to_numpy())]
        how = (
            f"NumPy finds the same {len(want):,} pairs for {sample.num_rows:,} random trades, each compared"
            " with every quote (install duckdb to check every pair)"
        )
    if not np.array_equal(got, want):
        problems.append(f"{len(got):,} pairs, but {len(want):,} expected")
    return problems, how


def out_of_order(*streams: Stream) -> float:
    """The share of rows that come after a row of a later time."""
    times = [check.microseconds(stream.rows) for stream in streams]
    return float(np.mean([np.mean(time < np.maximum.accumulate(time)) for time in times]))


def progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]} rows/s, {task.fields[matches]} matches"),
        TimeElapsedColumn(),
        console=console,
    )


def preview(rows: pa.Table, title: str, count: int = 4, decimals: int = 2) -> Table:
    """The first rows of a table."""
    table = Table(title=title, header_style="cyan", **STYLE)
    for field in rows.schema:
        number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if number else "left", no_wrap=True)
    for row in rows.slice(0, count).to_pylist():
        table.add_row(*(cell(value, decimals) for value in row.values()))
    return table


def cell(value: object, decimals: int) -> str:
    if hasattr(value, "strftime"):
        return value.strftime("%H:%M:%S.%f")[:-3]
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def summary(outcome: Outcome, rows: int) -> Table:
    """What the join did, as name and value."""
    metrics, matches = outcome.metrics, outcome.result.num_rows
    table = Table(title="join.metrics", show_header=False, **STYLE)
    stored = metrics["stored_left"] + metrics["stored_right"]
    table.add_row("rows in", f"{rows:,} in {outcome.seconds:.1f} s: {rows / outcome.seconds:,.0f} rows/s")
    table.add_row("rows out", f"{matches:,}: {matches / max(rows, 1) * 2:.1f} matches a trade")
    table.add_row("late, left out", f"{outcome.late[0]:,} trades, {outcome.late[1]:,} quotes")
    table.add_row("stored at the end", f"{stored:,} rows")
    index, payload = metrics["index_bytes"] / 1e6, metrics["payload_bytes"] / 1e6
    table.add_row("memory", f"{payload:.1f} MB of rows, {index:.1f} MB of index")
    steps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in metrics["seconds"].items())
    table.add_row("time by step", steps)
    return table
