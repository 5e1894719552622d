"""The results of `watersmeet bench embedded` as tables, for report.py: speeds and ratios of each part."""

from __future__ import annotations

from typing import Any

from watersmeet.bench.report import RATIOS, Table, count, number, ratio_cells, scaled
from watersmeet.bench.rounds import typical

TITLES = {
    "band_last": "band_last: |l.key - r.key| <= 2 over last(window), one thread, positions out",
    "A2": "A2: l.key = r.key within {seconds:g} s, all cores, full rows out",
    "B": "B: |l.key - r.key| <= 2 within {seconds:g} s, all cores, full rows out",
    "subwindows": "subwindows: into how many pieces a window is cut, one thread",
    "cores": "cores: how many share the work",
    "push": "push: a few rows at a time into a window of 10,000, one thread, full rows out",
    "count": "count: l.key = r.key within {seconds:g} s, all cores, results counted",
    "boxes": "boxes: bands over several columns, all cores, full rows out",
    "sort": "sort: the keys of a batch put in order, with their rows, one thread",
    "asof": "asof: the latest right row before each left row, one core, full rows out",
    "page": "page: |l.key - r.key| <= 2 over last(window), one thread, results counted, with a live page",
    "aggregates": "aggregates: l.x < r.x, count(*) and sum(r.amount) for each left row, one core",
}


def tables(results: dict[str, Any]) -> list[Table]:
    found = []
    for part, template in TITLES.items():
        title = template.format(seconds=results["within_seconds"])
        speeds = [row for row in results["results"] if row["workload"] == part]
        ratios = [row for row in results["ratios"] if row["workload"] == part]
        if not speeds:
            continue
        size = "batch" if part in ("A2", "B") else "window"
        header = [size, "batch", "contender", "form", "M tuples/s", "best", "results/tuple"]
        rows = [
            [count(row["window"]), count(row["batch"]), row["contender"], row["form"]]
            + [number(scaled(typical(row), 1e6)), number(row["tuples_per_s"] / 1e6), number(row["results_per_tuple"])]
            for row in speeds
        ]
        ratio_header = [size, "batch", *RATIOS]
        ratio_rows = [[count(row["window"]), count(row["batch"]), *ratio_cells(row)] for row in ratios]
        if part in ("A2", "B"):  # one window only: the batch is what varies
            header, ratio_header = header[1:], ratio_header[1:]
            rows, ratio_rows = [row[1:] for row in rows], [row[1:] for row in ratio_rows]
        found.append((title, header, rows))
        if ratio_rows:
            found.append((f"{part}: watersmeet's tuples/s relative to others", ratio_header, ratio_rows))
    return found
