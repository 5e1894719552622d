"""Plots of `watersmeet bench spark`: throughput, the share of a pipeline that joins nothing, long runs."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.bench.plots.plot import Axis, Plot, Point, having, plain, points, single
from watersmeet.bench.plots.runs import Run

JOINS = {
    "A": "equality", "B": "band", "B17": "band, 17 matches", "C": "inequality", "D": "left join of texts",
}  # fmt: skip
NOTHING = ("discard", "identity")  # pipelines that join nothing
OURS = {"input rows/s": "watersmeet", "input rows/s, of files": "watersmeet, parquet_files"}
NAMES = {
    "watersmeet, files": "watersmeet, parquet_files",
    "discard": "joins nothing", "identity": "joins nothing", "spark, rocksdb": "Spark, RocksDB",
    "spark, hdfs": "Spark, in memory", "cells, rocksdb": "Spark by cells, RocksDB",
}  # fmt: skip


def plots(run: Run) -> Iterator[Plot]:
    rows = [row for row in having(run.results, "rounds", "contender") if row.get("workload") in JOINS]
    if rows:
        yield Plot(
            plain(run.name, "throughput"), "Spark", "Joins on Spark",
            f"Input rows/s on {run.machine.get('cores')} cores, warm micro-batches of "
            f"{run.data.get('batch_rows', 0):,} rows. Spark itself can join equalities only; for the band its usual "
            "workaround, cells. What joins nothing has a joiner that looks at nothing: the most that any join "
            "could do.",
            Axis("", names=True), Axis("million rows/s"),
            points(rows, named, lambda row: JOINS[row["workload"]], 1e6), kind="bars",
        )  # fmt: skip
    yield from shares(run)
    yield from long_runs(run)


def named(row: dict) -> str:
    return NAMES.get(row["contender"], row["contender"])


def shares(run: Run) -> Iterator[Plot]:
    made, targets = [], []
    for row in run.data["ratios"]:
        bound, _, what = row["against"].partition(": ")
        if bound in NOTHING and what in OURS and row["workload"] in JOINS:
            ends = sorted(value for value in (row["value"], row.get("best")) if value is not None)
            made.append(Point(OURS[what], JOINS[row["workload"]], row["value"], ends[0], ends[-1], 1))
            targets += [row["target"]] if row.get("target") else []
    if made:
        yield Plot(
            plain(run.name, "share"), "Spark", "Share of a pipeline that joins nothing",
            "Input rows/s of ours, of those of the same pipeline with a joiner that looks at nothing: 1 would be a "
            "join that costs nothing. The pipeline reads its files by Spark; by parquet_files ours does not. By the "
            "medians; the rule reaches to what the best rounds give.",
            Axis("", names=True), Axis("share", log=False), made, kind="bars",
            line=(max(targets), f"target, {max(targets):g}") if targets else None,
        )  # fmt: skip


def long_runs(run: Run) -> Iterator[Plot]:
    made = [
        single(
            f"{JOINS[row['workload'][0]]}, {row['contender'].removeprefix('watersmeet, ')}", number, batch["seconds"]
        )
        for row in having(run.results, "runs")
        if row.get("workload") in ("A, flat", "B, flat")
        for number, batch in enumerate(having(row["runs"][0].get("batches", []), "seconds", "rows"), 1)
        if batch["rows"]
    ]
    if made:
        yield Plot(
            plain(run.name, "long"), "Spark", "Micro-batches of long runs",
            "Seconds of each micro-batch of 1M rows; the first is cold. Long: 40 of them with 500,000 rows a side "
            "in the "
            "window; large: 10M rows a side.",
            Axis("micro-batch", log=False), Axis("seconds"), made,
        )  # fmt: skip
