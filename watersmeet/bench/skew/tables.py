"""The results of `watersmeet bench skew` as tables, for report.py: a table a part, contenders side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watersmeet.bench.report import RATIOS, Table, both, claims_table, number, ratio_cells
from watersmeet.bench.rounds import Row, median, typical


def balance(row: Row) -> str:
    return f"{row['stored']:.2f} / {row['probes']:.2f} / {row['visits']:.1f}"


def partitioners(row: Row) -> str:
    return f"{100 * row['imbalance']:.2f}% / {row['aggregated']:.0f}"


def sketch(row: Row) -> str:
    return f"{both(typical(row), row['tuples_per_s'], 1e6)}; {100 * row['top']:.0f}%, {row['below']}"


def cores(row: Row) -> str:
    return f"{both(typical(row), row['tuples_per_s'], 1e3)}; {row['results_per_tuple']:.1f}"


def elements(row: Row) -> str:
    speeds = " / ".join(number(median(row[f"{what}_rounds"]) / 1e3) for what in ("insert", "search"))
    return f"{speeds}; {number(row['insert_ms'])} / {number(row['search_ms'])} ms"


def completeness(row: Row) -> str:
    return f"{100 * row['complete']:.1f}%"


def pipeline(row: Row) -> str:
    return f"{number(median(row['rounds']))}; {row['batch_s']:.1f} / {row['longest_s']:.1f} s"


PARTS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "balance": ("the busiest element to the average: stored / probes / elements that a tuple looks in", balance),
    "partitioners": ("load imbalance (greatest less average, of all tuples) / elements a 1,000 tuples", partitioners),
    "sketch": ("million keys a second of processor time; of the true top 32, estimates below the truth", sketch),
    "cores": ("1,000 rows/s on real cores, equal keys and a band; results a row", cores),
    "elements": ("1,000 tuples/s that the busiest element can insert / search; longest tenth of a second", elements),
    "completeness": ("found of all results", completeness),
    "pipeline": ("rows/s from and to Kafka on Spark; micro-batch, median / longest", pipeline),
}


def tables(results: dict[str, Any]) -> list[Table]:
    found = []
    for part, (title, shown) in PARTS.items():
        rows = [row for row in results["results"] if row["part"] == part]
        if not rows:
            continue
        contenders = list(dict.fromkeys(row["contender"] for row in rows))
        cells: dict[tuple[str, str], dict[str, str]] = {}
        for row in rows:
            cells.setdefault((row["setting"], str(row["elements"])), {})[row["contender"]] = shown(row)
        lines = [[*where, *(line.get(name, "-") for name in contenders)] for where, line in cells.items()]
        found.append((f"{part}: {title}", ["setting", "elements", *contenders], lines))
    if results["ratios"]:
        found.append(("Our own targets", RATIOS, [ratio_cells(row) for row in results["ratios"]]))
    return found + claims_table(results)
