"""The results of `watersmeet bench cores` as tables, for report.py: a table a part, contenders side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from watersmeet.bench.report import Table, both, claims_table, count, number
from watersmeet.bench.rounds import median, typical

TITLES = {  # of the rounds the median, and the best in brackets
    "topologies": "1,000 tuples/s by join cores, nested loop, |x - a| <= 10 and |y - b| <= 10 over last(window)",
    "fan_out": "1,000 tuples/s by the fan-out of SplitJoin's trees",
    "windows": "1,000 tuples/s of SplitJoin over the same windows by number and by time",
    "ordering": "1,000 tuples/s by the order of SplitJoin's results",
    "shared": "1,000 tuples/s by threads, trees as indexes, |x - y| <= 2 over last(window), counted",
    "tasks": "1,000 tuples/s by the tuples of a task, PIM-Trees that threads share",
    "routes": "1,000 tuples/s of StreamJoin by route, |x - y| <= 2 over last(window), positions out",
    "batches": "1,000 tuples/s of StreamJoin by the tuples of a batch, same join",
    "partners": "1,000 tuples/s of StreamJoin by the partners of a tuple, same join",
    "ordered": "1,000 tuples/s of StreamJoin by the order of its results, same join",
    "latency": "latencies in microseconds, at one rate for all",
}
STATISTICS = ("mean", "median", "p90", "p99")


def tables(results: dict[str, Any]) -> list[Table]:
    found = []
    for part in dict.fromkeys(row["part"] for row in results["results"]):
        rows = [row for row in results["results"] if row["part"] == part]
        made = latencies(rows) if "latency" in rows[0] else speeds(rows)
        found.append((f"{part}: {TITLES.get(part, '1,000 tuples/s')}", *made))
        if part == "topologies":
            found.append((f"{part}: tuples/s a core, of what it does alone", *scaling(rows)))
    return found + claims_table(results)


def speeds(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    return side_by_side(rows, lambda row: both(typical(row), row["tuples_per_s"], 1e3))


def side_by_side(
    rows: list[dict[str, Any]], shown: Callable[[dict[str, Any]], str]
) -> tuple[list[str], list[list[str]]]:
    """A column a contender."""
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        where = (count(row["window"]), row["setting"], str(row["cores"]))
        cells.setdefault(where, {})[row["contender"]] = shown(row)
    contenders = list(dict.fromkeys(row["contender"] for row in rows))
    lines = [[*where, *(line.get(name, "-") for name in contenders)] for where, line in cells.items()]
    return ["window", "setting", "cores", *contenders], lines


def scaling(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """By the medians; what does not get faster by more cores goes down with their number."""
    alone = {(row["window"], row["contender"]): typical(row) for row in rows if row["cores"] == 1}
    shares = [
        row | {"share": (typical(row) or 0.0) / row["cores"] / (alone[row["window"], row["contender"]] or 1.0)}
        for row in rows
        if (row["window"], row["contender"]) in alone
    ]
    return side_by_side(shares, lambda row: f"{100 * row['share']:.0f}%")


def latencies(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Medians over the rounds."""
    kinds = list(rows[0]["latency"])
    lines = []
    for row in rows:
        values = [
            number(1e6 * median([one[name] for one in row["latency"][kind]])) for kind in kinds for name in STATISTICS
        ]
        lines.append([count(row["window"]), str(row["cores"]), row["contender"], f"{row['rate']:,.0f}", *values])
    header = ["window", "cores", "contender", "tuples/s"]
    return header + [f"{kind} {name}" for kind in kinds for name in STATISTICS], lines
