"""The results of a benchmark as tables, for a terminal and for Markdown. Reads only what a run stored.

Figures are medians of the rounds, with the best of them beside; ratios are judged by the medians. What an older run did
not store is left empty.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

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
    """A table or two for each part that was run, as the benchmark's own tables.py makes them."""
    return import_module(f"watersmeet.bench.{results['benchmark']}.tables").tables(results)


def claims_table(results: dict[str, Any]) -> list[Table]:
    if not results["claims"]:
        return []
    header = ["row", "claim", "the paper", "here", "best", "holds"]
    lines = [
        [one["row"], one["claim"], one["paper"], one["ours"] or "-", one["best"], one["holds"] or "not judged"]
        for one in results["claims"]
    ]
    return [("What the papers say, and what was measured here", header, lines)]


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
