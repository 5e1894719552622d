"""The results of a benchmark as tables, for a terminal and for Markdown. Reads only what a run stored.

Figures are medians of the rounds, with the best of them beside; ratios are judged by the medians. What an older run did
not store is left empty.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from watersmeet.bench.rounds import median, typical

Row = list[str]
Table = tuple[str, Row, list[Row]]  # title, header, rows


def load(path: Path) -> dict[str, Any]:
    """The results that a run stored."""
    return json.loads(path.read_text())


def text(results: dict[str, Any]) -> str:
    """Tables for a terminal; coloured if standard output is one."""
    from rich.console import Console
    from rich.table import Table

    colour = sys.stdout.isatty()
    console = Console(file=io.StringIO(), force_terminal=colour, width=None if colour else 140)
    for title, header, rows in tables(results):
        table = Table(title=title, title_justify="left", title_style="bold")
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i == 0 or name in LEFT else "right", no_wrap=i == 0)
        for row in rows:
            table.add_row(*row, style={"MISS": "red", "ok": "green"}.get(row[-1]))
        console.print(table)
    for line in footer(results):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return console.file.getvalue()  # type: ignore[attr-defined]


def plain(results: dict[str, Any]) -> str:
    """The same as plain lines, where rich is not installed."""
    parts = []
    for title, header, rows in tables(results):
        lines = [header, *rows]
        widths = [max(len(row[i]) for row in lines) for i in range(len(header))]
        left = [i == 0 or name in LEFT for i, name in enumerate(header)]
        parts.append(title)
        for row in lines:
            cells = (cell.ljust(n) if flush else cell.rjust(n) for cell, n, flush in zip(row, widths, left))
            parts.append("  ".join(cells).rstrip())
        parts.append("")
    return "\n".join(parts + footer(results))


def markdown(results: dict[str, Any]) -> str:
    """The same tables in Markdown."""
    parts = []
    for title, header, rows in tables(results):
        lines = [f"**{title}**", "", line(header)]
        lines.append(line("---" if i == 0 or name in LEFT else "---:" for i, name in enumerate(header)))
        parts.append("\n".join(lines + [line(row) for row in rows]))
    return "\n\n".join(parts + ["  \n".join(footer(results))]) + "\n"


LEFT = {"contender", "form", "against", "setting", "claim", "the paper", ""}


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def tables(results: dict[str, Any]) -> list[Table]:
    """One for speeds, one for ratios, for each part that was run."""
    if results["benchmark"] == "spark":
        return spark_tables(results)
    if results["benchmark"] == "index":
        return index_tables(results)
    if results["benchmark"] == "gpu":
        from watersmeet.bench.gpu_tables import gpu_tables

        return gpu_tables(results)
    if results["benchmark"] == "skew":
        from watersmeet.bench.skew_tables import skew_tables

        return skew_tables(results)
    if results["benchmark"] == "cores":
        from watersmeet.bench.core_tables import core_tables

        return core_tables(results)
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


def spark_tables(results: dict[str, Any]) -> list[Table]:
    """The same of a run on Spark."""
    tables, seconds = [], results["within_seconds"]
    for part, template in SPARK_TITLES.items():
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
            tables.append((template, header, rows))
            tables.append((f"{part}: watersmeet, times the same without a join", RATIOS, [*map(ratio_cells, ratios)]))
            continue
        header = ["contender", "rounds", "input rows/s", "best", "result rows/s", "best", "results", "cold batch"]
        header += ["median batch", "state"]
        rows = [
            [row["contender"], str(len(row["rounds"])), f"{median(row['rounds']):,.0f}", f"{row['rows_per_s']:,.0f}"]
            + [results_rate(row), f"{row['results_per_s']:,.0f}", f"{row['rows_out']:,}"]
            + [f"{median(row['cold_s']):.2f} s", f"{median_batch(row):.2f} s", state_bytes(row)]
            for row in speeds
        ]
        tables.append((template.format(seconds=seconds, short=seconds / 200), header, rows))
        if ratios:
            tables.append((f"{part}: watersmeet relative to others", RATIOS, [ratio_cells(row) for row in ratios]))
    return tables


def index_tables(results: dict[str, Any]) -> list[Table]:
    """The same of a run of indexes: a table a part, contenders side by side; and what the papers say."""
    found = []
    for part, title in INDEX_TITLES.items():
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


def claims_table(results: dict[str, Any]) -> list[Table]:
    if not results["claims"]:
        return []
    header = ["row", "claim", "the paper", "here", "best", "holds"]
    lines = [
        [one["row"], one["claim"], one["paper"], one["ours"] or "-", one["best"], one["holds"] or "not judged"]
        for one in results["claims"]
    ]
    return [("What the papers say, and what was measured here", header, lines)]


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


INDEX_TITLES = {  # of the rounds the median, and the best in brackets
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


def median_batch(row: dict[str, Any]) -> float:
    """Of all rounds, without the first of each."""
    warm = [[batch for batch in run["batches"] if batch["rows"]][1:] for run in row["runs"]]
    return median([batch["seconds"] for run in warm for batch in run])


def results_rate(row: dict[str, Any]) -> str:
    return f"{median(row['results_rounds']):,.0f}" if row["results_rounds"] else "-"


def state_bytes(row: dict[str, Any]) -> str:
    return f"{max(run['state_bytes'] for run in row['runs']) / 1e6:,.0f} MB"


SPARK_TITLES = {
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


def footer(results: dict[str, Any]) -> list[str]:
    """What a reader must know to compare: the machine, the versions, what was left out, what was missed."""
    where = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items() if version)
    lines = [
        f"{where['cpu']}, {where['cores']} cores, Python {where['python']}; {versions}"
        + (f"; commit {commit(where)}" if where["commit"] else "")
        + f". Medians of {results['rounds']} rounds, and the best; {results['seconds']:.0f} s in all."
    ]
    if "command" in results:
        lines.append(f"By {results['command']}.")
    if results["quick"]:
        lines.append("A quick run: small streams, ratios not held against the targets.")
    lines += [f"Skipped: {name}: {why}" for name, why in results["skipped"].items()]
    judged, misses = [row for row in results["ratios"] if row["ok"] is not None], missed(results)
    if misses:
        lines.append(f"Missed: {len(misses)} of {len(judged)} targets, by the medians:")
        lines += [f"  {line}" for line in misses]
    elif judged:
        lines.append(f"All {len(judged)} targets met, by the medians.")
    return lines


def commit(where: dict[str, Any]) -> str:
    return where["commit"] + (", with changes" if where["dirty"] else "")


def count(value: int | None) -> str:
    """Rows, in powers of two where they are one."""
    if not value:
        return "-"
    if value >= 1024 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}"


def number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.2g}"


def both(middle: float | None, best: float, unit: float = 1.0) -> str:
    """The median, and the best in brackets."""
    return f"{number(scaled(middle, unit))} ({number(best / unit)})"


def scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value / by


RATIOS = ["against", "ratio", "best", "target", ""]


def ratio_cells(row: dict[str, Any]) -> Row:
    return [row["against"], number(row["value"]), number(row.get("best")), target(row), verdict(row)]


def missed(results: dict[str, Any]) -> list[str]:
    """The targets that a run missed, each in a line of its own."""
    return [miss(row) for row in results["ratios"] if row["ok"] is False]


def miss(row: dict[str, Any], name: str | None = None) -> str:
    """ "4.4 of 8 (B, batches of 5,000; best hand-rolled)"; the workload by another name if given."""
    where = [name or row["workload"]]
    if row.get("window") and row["workload"] not in ("A2", "B"):  # these have one only
        where.append(f"window {count(row['window'])}")
    if row.get("batch"):
        where.append(f"batches of {count(row['batch'])}")
    return f"{of_target(row)} ({', '.join(where)}; {row['against']})"


def of_target(row: dict[str, Any]) -> str:
    """ "4.4 of 8", with as many digits as it takes to see that the target is missed."""
    value, limit = number(row["value"]), f"{row['target']:g}"
    if value == limit:
        value = f"{row['value']:.8g}"
    return f"{value} of {limit}" if row["sense"] == ">=" else f"{value}, not less than {limit}"


def target(row: dict[str, Any]) -> str:
    return "-" if row["target"] is None else f"{row['sense']} {row['target']:g}"


def verdict(row: dict[str, Any]) -> str:
    return {None: "", True: "ok", False: "MISS"}[row["ok"]]
