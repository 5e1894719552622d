"""The results of `watersmeet bench spark` as tables, for report.py: speeds and ratios of each part."""

from __future__ import annotations

from typing import Any

from watersmeet.bench.report import RATIOS, Table, ratio_cells
from watersmeet.bench.rounds import median

TITLES = {
    "A": "A on Spark: l.key = r.key within {seconds:g} s",
    "B": "B on Spark: |l.key - r.key| <= 2 within {seconds:g} s",
    "B17": "B on Spark, about 17 matches for an arriving row",
    "C": "C on Spark: l.key > r.key within {short:g} s",
    "D": "D on Spark: l.device = r.device within {seconds:g} s, texts, out of order, left join",
    "A, flat": "A on Spark: 40 micro-batches, and a window 20 times as large",
    "B, flat": "B on Spark: 40 micro-batches, and a window 20 times as large",
    "L, flat": "A as a left join on Spark: 20 micro-batches, and a window 20 times as large",
    "first": "The first micro-batches of a fresh session",
    "skew": "Hot keys on Spark: an equality, Zipf 1.5 (Z) and uniform keys (U), by route",
    "kafka": "From topic to topic: small micro-batches, and latency from a message to its result",
}


def tables(results: dict[str, Any]) -> list[Table]:
    made, seconds = [], results["within_seconds"]
    for part, template in TITLES.items():
        speeds = [row for row in results["results"] if row["workload"] == part]
        ratios = [row for row in results["ratios"] if row["workload"] == part]
        if not speeds:
            continue
        if part == "kafka":
            header = ["stream", "contender", "seconds", "micro-batches", "messages out"]
            rows = [
                [stream, row["contender"], ", ".join(f"{what} {s:.2f}" for what, s in found["seconds"].items())]
                + [str(len(found["batches"])), f"{found['rows_out']:,}"]
                for row in speeds
                for stream, found in row["streams"].items()
            ]
            made.append((template, header, rows))
            made.append((f"{part}: watersmeet, times the same without a join", RATIOS, [*map(ratio_cells, ratios)]))
            continue
        header = ["contender", "rounds", "input rows/s", "best", "result rows/s", "best", "results", "cold batch"]
        header += ["median batch", "state"]
        rows = [
            [row["contender"], str(len(row["rounds"])), f"{median(row['rounds']):,.0f}", f"{row['rows_per_s']:,.0f}"]
            + [results_rate(row), f"{row['results_per_s']:,.0f}", f"{row['rows_out']:,}"]
            + [f"{median(row['cold_s']):.2f} s", f"{median_batch(row):.2f} s", state_bytes(row)]
            for row in speeds
        ]
        made.append((template.format(seconds=seconds, short=seconds / 200), header, rows))
        if ratios:
            made.append((f"{part}: watersmeet relative to others", RATIOS, [ratio_cells(row) for row in ratios]))
    return made


def median_batch(row: dict[str, Any]) -> float:
    """Of all rounds, without the first of each."""
    warm = [[batch for batch in run["batches"] if batch["rows"]][1:] for run in row["runs"]]
    return median([batch["seconds"] for run in warm for batch in run])


def results_rate(row: dict[str, Any]) -> str:
    return f"{median(row['results_rounds']):,.0f}" if row["results_rounds"] else "-"


def state_bytes(row: dict[str, Any]) -> str:
    return f"{max(run['state_bytes'] for run in row['runs']) / 1e6:,.0f} MB"
