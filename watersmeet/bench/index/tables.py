"""The results of `watersmeet bench index` as tables, for report.py: a table a part, contenders side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.bench.report import RATIOS, Table, both, claims_table, count, number, ratio_cells
from watersmeet.bench.rounds import median, typical

TITLES = {  # of the rounds the median, and the best in brackets
    "structures": "ns a tuple, by what is done (and how many partners a probe has)",
    "shapes": "ns a tuple, by partitions, leaves or fan-out",
    "convergence": "how uneven RaP-Table's partitions are after so many adjustments: mean error, in shares",
    "windows": "M tuples/s of a band join over last(window), about 2 partners a tuple",
    "equality": "the same, of an equality",
    "chains": "M tuples/s, by subwindows a window is cut into",
    "merging": "M tuples/s, by merge ratio and insertion depth",
    "steps": "ns a tuple, by step",
    "matches": "M tuples/s, by partners a tuple",
    "memory": "bytes of the index a tuple in the window, at most",
    "asymmetric": "M tuples/s, windows or rates that differ",
    "distributions": "M tuples/s, by the distribution of keys",
    "drift": "M tuples/s, before, while and after the keys' distribution moves by r of its range",
    "opencl": "ns a tuple, BI-Sort on OpenCL (all units, and one) beside that of the CPU and the tables (one thread)",
}


def tables(results: dict[str, Any]) -> list[Table]:
    found = []
    for part, title in TITLES.items():
        rows = [row for row in results["results"] if row["part"] == part]
        if not rows:
            continue
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for row in rows:
            for setting, contender, value in index_cells(row):
                where = (count(row["window"]), count(row["batch"]), setting)
                cells.setdefault(where, {})[contender] = value
        contenders = list(dict.fromkeys(name for line in cells.values() for name in line))
        if len(contenders) > 10:  # too wide a table: a line each
            header = ["window", "batch", "setting", "contender", ""]
            lines = [[*where, name, value] for where, line in cells.items() for name, value in line.items()]
        else:
            header = ["window", "batch", "setting", *contenders]
            lines = [[*where, *(line.get(name, "-") for name in contenders)] for where, line in cells.items()]
        found.append((f"{part}: {title}", header, lines))
    ratios = [[count(row.get("window")), *ratio_cells(row)] for row in results["ratios"]]
    if ratios:
        found.append(("Our own targets", ["window", *RATIOS], ratios))
    return found + claims_table(results)


def index_cells(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(setting, contender, value) of a result."""
    setting, name = row["setting"], row["contender"]
    if "errors" in row:
        for adjustment, error in enumerate(row["errors"]):
            yield f"{setting}, {row['form']}", str(adjustment), f"{error:.3f}"
    elif "ns" in row:
        rounds = row.get("ns_rounds")
        for step, ns in row["ns"].items():
            yield name, step, both(rounds and median([one[step] for one in rounds]), ns)
    elif "phases" in row:
        rounds = row.get("phase_rounds")
        for phase, speed in row["phases"].items():
            yield f"{setting}, {phase}", name, both(rounds and median(rounds[phase]), speed, 1e6)
    elif "ns_per_tuple" in row:
        matches = "" if row["matches"] is None else f", {row['matches']:g}"
        yield setting + matches, f"{name} {row['form']}".strip(), both(typical(row), row["ns_per_tuple"])
    elif "tuples_per_s" in row:
        yield setting, name, both(typical(row), row["tuples_per_s"], 1e6)
    else:
        yield setting, name, number(row["bytes_per_tuple"])
