"""The results of `watersmeet bench gpu` as tables, for report.py: a table a part, contenders side by side."""

from __future__ import annotations

from typing import Any

from watersmeet.bench.report import RATIOS, Table, both, claims_table, number, ratio_cells
from watersmeet.bench.rounds import typical

TITLES = {
    "link": "GB/s of copies, by their size",
    "distinct": "GB/s by distinct keys and windows, lazy, many windows at a time, counted",
    "skew": "GB/s by skew, 1000 keys",
    "breakdown": "milliseconds of the phases of one window on the GPU, with their launches",
    "parallel": "GB/s by windows at a time, hash, lazy, counted",
    "progress": "GB/s by progressiveness and batches, hash, one window at a time, counted",
    "energy": "the GPU's energy, hash, lazy, counted",
    "results": "GB/s by ways to make pairs, lazy, many windows at a time",
    "systems": "GB/s of systems as points of the space",
    "advice": "what is advised, to the best of what was measured",
    "exact": "pairs whose checksum, or results whose number, was compared with what the keys say",
    "exact_joins": "pairs of StreamJoin over last(window) whose checksum was compared at every push",
    "joins": "million tuples/s of StreamJoin over last(window)",
}


def tables(results: dict[str, Any]) -> list[Table]:
    found: list[Table] = []
    for part in dict.fromkeys(row["part"] for row in results["results"]):
        rows = [row for row in results["results"] if row["part"] == part]
        lines = [[size(row), row["setting"], row["contender"], value(row)] for row in rows]
        found.append((f"{part}: {TITLES[part]}", ["window", "setting", "contender", "value"], lines))
        ratios = [row for row in results["ratios"] if row["workload"] == part]
        if ratios:
            lines = [[size(row), *ratio_cells(row)] for row in ratios]
            found.append((f"{part}: relative to others", ["window", *RATIOS], lines))
    return found + claims_table(results)


def size(row: dict[str, Any]) -> str:
    """Bytes, or for a StreamJoin tuples."""
    n = row["window"]
    if row.get("part", row.get("workload")) in ("joins", "exact_joins"):
        return f"2^{n.bit_length() - 1}"
    return f"{n >> 20} MB" if n >= 1 << 20 else f"{n >> 10} KB"


def value(row: dict[str, Any]) -> str:
    if "gb_per_s" in row:
        return both(typical(row), row["gb_per_s"])
    if "tuples_per_s" in row:
        return both(typical(row), row["tuples_per_s"], 1e6) + f", {number(row['results_per_tuple'])} results a tuple"
    return row["value"]
