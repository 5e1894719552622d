"""One page of all that was measured: `watersmeet report`. Nothing is loaded when it is opened: scripts are in it.

Every text of a results file is escaped, in HTML and in the scripts' data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from watersmeet.bench import plots as all_plots
from watersmeet.bench.plots import vega
from watersmeet.bench.plots.plot import Plot, label
from watersmeet.bench.plots.runs import Run
from watersmeet.bench.plots.verdicts import Claim, Target, claims, counted, targets
from watersmeet.bench.report import commit, number
from watersmeet.bench.rounds import median

SECTION_WORDS = {
    "Throughput": "Rows a second against what others do, by the size of batches and of windows.",
    "Cost growth": "What a tuple costs, as the window grows.",
    "Latency": "How long a tuple waits.",
    "Cores": "What more cores bring.",
    "Skew": "Few keys that come very often: speed, and how evenly cores are loaded.",
    "Spark": "The same joins on Spark Structured Streaming.",
    "GPU": "Joins on a GPU, against the link that feeds it.",
    "Indexes": "The structures behind a window, beside each other.",
}


def page(runs: Sequence[Run]) -> str:
    """The report as HTML."""
    drawn = [(run, plot) for run in runs for plot in all_plots.plots(run)]
    judged, held = targets(runs), claims(runs)
    parts = [
        glance(runs, judged, held),
        missed(judged),
        *(section(name, [(run, plot) for run, plot in drawn if plot.section == name]) for name in all_plots.SECTIONS),
        claims_table(held),
        targets_table(judged),
        runs_table(runs, {run.name for run, _ in drawn}),
    ]
    parts = [part for part in parts if part]
    specs = {plot.name: vega.spec(plot, "container") for _, plot in drawn}
    here = files("watersmeet.bench.plots")
    script = vega.script(here.joinpath("page.js").read_text()) if drawn else here.joinpath("page.js").read_text()
    return "\n".join([
        "<!doctype html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">', "<title>Watersmeet: what was measured</title>",
        '<link rel="icon" href="data:,">',
        f"<style>{here.joinpath('page.css').read_text()}{vega.style('figure svg ')}</style>", "</head>", "<body>",
        header([one.split('id="', 1)[1].split('"', 1)[0] for one in parts if 'id="' in one]),
        "<main>", *parts, "</main>",
        '<footer>Made by <code>watersmeet report</code> from what <code>watersmeet bench</code> stored.</footer>',
        f'<script type="application/json" id="plots">{inert(specs)}</script>',
        f'<script type="module">{script.replace("</script", "<" + chr(92) + "/script")}</script>',
        "</body>", "</html>", "",
    ])  # fmt: skip


def inert(data: Any) -> str:
    """JSON that cannot end the script it stands in."""
    return json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def header(places: list[str]) -> str:
    links = "".join(
        f'<a href="#{place}">{NAVIGATION.get(place, place.replace("-", " ").capitalize())}</a>' for place in places
    )
    return (
        "<header><h1>Watersmeet</h1><p>Joins of two unbounded streams over a sliding window, on any predicate: "
        "exact and "
        f"incremental, in a Python process or on Spark. This is what was measured.</p><nav>{links}</nav></header>"
    )


NAVIGATION = {"glance": "At a glance", "gpu": "GPU"}


def glance(runs: Sequence[Run], judged: list[Target], held: list[Claim]) -> str:
    cards = list(headline(runs))
    if judged:
        met = sum(one.met for one in judged)
        cards.append((f"{met} of {len(judged)}", "targets met", "good" if met == len(judged) else "bad"))
    if held:
        counts = counted(held)
        words = ", ".join(f"{many} {name}" for name, many in counts.items() if name != "yes")
        judged_claims = len(held) - counts.get("not judged", 0)
        cards.append((f"{counts.get('yes', 0)} of {judged_claims}", f"claims of the papers hold here ({words})", ""))
    if not cards:
        return ""
    made = "".join(
        f'<div class="card {kind}"><b>{escape(figure)}</b><span>{escape(words)}</span></div>'
        for figure, words, kind in cards
    )
    return f'<section id="glance"><div class="cards">{made}</div></section>'


def headline(runs: Sequence[Run]) -> Iterable[tuple[str, str, str]]:
    """The figures to remember, of the first runs that have them."""
    for run in runs:
        if run.benchmark == "embedded":
            rows = [row for row in run.part("B") if row.get("contender") == "watersmeet" and row.get("rounds")]
            if rows:
                best = max(rows, key=lambda row: median(row["rounds"]))
                batch, cores = best.get("batch") or 0, run.machine.get("cores")
                words = f"rows a second: a band join, batches of {batch:,}, {cores} cores"
                yield f"{median(best['rounds']) / 1e6:.1f} million", words, ""
                break
    for benchmark, workload, against, words in (
        ("embedded", "B", "best hand-rolled (", "the best of DuckDB, Polars, DataFusion: the same band join by hand"),
        ("spark", "A", "spark, rocksdb", "Spark's own join, where Spark has one (equality, RocksDB)"),
    ):
        values = [
            row["value"]
            for run in runs
            if run.benchmark == benchmark
            for row in run.data["ratios"]
            if row["workload"] == workload and row["against"].startswith(against)
        ]
        if values:
            low, high = min(values), max(values)
            yield (f"{low:.2g}x" if low == high else f"{low:.1f}x to {high:.1f}x"), words, ""


def missed(judged: list[Target]) -> str:
    lines = [one for one in judged if not one.met]
    if not judged:
        return ""
    if not lines:
        none = f"<p>None: all {len(judged)} are met, by the medians.</p>"
        return f'<section id="missed"><h2>Missed targets</h2>{none}</section>'
    made = "".join(f"<li>{escape(one.line)}</li>" for one in lines)
    return (
        f'<section id="missed" class="missed"><h2>Missed targets</h2><p>{len(lines)} of {len(judged)}, by the '
        "medians of "
        f"the rounds:</p><ul>{made}</ul></section>"
    )


def section(name: str, drawn: list[tuple[Run, Plot]]) -> str:
    if not drawn:
        return ""
    figures = "".join(figure(run, plot) for run, plot in drawn)
    place = name.lower().replace(" ", "-")
    return (
        f'<section id="{place}"><h2>{name}</h2><p>{SECTION_WORDS[name]}</p><div class="plots">{figures}</div></section>'
    )


def figure(run: Run, plot: Plot) -> str:
    return (
        f'<figure id="{escape(plot.name)}"><h3>{escape(plot.title)}</h3>{legend(plot)}'
        f'<div class="plot" data-plot="{escape(plot.name)}" role="img" aria-label="{escape(plot.title)}"></div>'
        f"<figcaption>{escape(plot.about)} <small>{source(run)}</small></figcaption>{data_of(plot)}</figure>"
    )


def legend(plot: Plot) -> str:
    if len(plot.series) == 1:
        return ""
    entries = "".join(
        f'<li><i style="background:{colour}"></i>{escape(name)}</li>' for name, colour in vega.swatches(plot)
    )
    return f'<ul class="legend">{entries}</ul>'


def source(run: Run) -> str:
    machine = run.machine
    said = (
        commit(machine) if machine.get("commit") and "dirty" in machine else machine.get("commit") or "unknown commit"
    )
    return escape(f"[{run.name}: {machine.get('cores', '?')} cores, {str(run.data.get('started', ''))[:10]}, {said}]")


def data_of(plot: Plot) -> str:
    head = "".join(
        f"<th>{escape(text)}</th>" for text in ("", plot.x.title or "", plot.y.title, "worst", "best", "rounds")
    )
    rows = "".join(
        f"<tr><th>{escape(one.series)}</th><td>{escape(label(one.x, plot.x.powers))}</td><td>{number(one.y)}</td>"
        f"<td>{number(one.low)}</td><td>{number(one.high)}</td><td>{one.rounds}</td></tr>"
        for one in plot.points
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<details><summary>Figures</summary><div class="wide">{table}</div></details>'


def claims_table(held: list[Claim]) -> str:
    if not held:
        return ""
    papers = list(dict.fromkeys(one.paper for one in held))
    rows = "".join(
        f'<tr data-paper="{escape(one.paper)}" data-holds="{escape(one.holds)}"><td>{escape(one.paper)} '
        f"<small>{escape(one.row)}</small></td><td>{escape(one.claim)}</td><td>{escape(one.theirs)}</td>"
        f'<td>{escape(one.ours)}</td><td><span class="verdict {PLAIN[one.holds]}">{escape(one.holds)}</span></td></tr>'
        for one in held
    )
    head = "".join(f"<th>{text}</th>" for text in ("paper", "claim", "the paper", "here", "holds"))
    return (
        '<section id="claims"><h2>Claims of the papers</h2><p>What the papers behind Watersmeet say of their '
        "structures, "
        "and what ours do: ratios of medians. A claim holds if all values are in the paper's range, give or take a "
        "tenth."
        f'</p><form class="filter">{choices("paper", papers)}{choices("holds", list(counted(held)))}'
        '<label>text <input type="search" name="text" placeholder="B+-Tree"></label>'
        f'<output>{len(held)} of {len(held)}</output></form><div class="wide"><table class="claims"><thead>'
        f"<tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


PLAIN = {"yes": "yes", "in part": "part", "no": "no", "not judged": "open"}


def choices(name: str, values: list[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{name} <select name="{name}"><option value="">all</option>{options}</select></label>'


def targets_table(judged: list[Target]) -> str:
    if not judged:
        return ""
    rows = "".join(
        f'<tr><td>{escape(one.what)}</td><td>{escape(one.against)}</td><td>{escape(one.value)}</td>'
        f'<td>{escape(one.target)}</td><td><span class="verdict {"yes" if one.met else "no"}">'
        f'{"met" if one.met else "missed"}</span></td></tr>'
        for one in judged
    )  # fmt: skip
    head = "".join(f"<th>{text}</th>" for text in ("join", "against", "ratio", "target", ""))
    return (
        '<section id="targets"><h2>Targets</h2><p>What we ask of ourselves, judged by the medians of the rounds.</p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>'
    )


def runs_table(runs: Sequence[Run], plotted: set[str]) -> str:
    rows = []
    for run in runs:
        machine, data = run.machine, run.data
        notes = ["a quick run: not held against targets"] if data.get("quick") else []
        notes += [] if run.name in plotted else ["nothing to plot"]
        notes += [f"skipped {name}: {why}" for name, why in (data.get("skipped") or {}).items()]
        versions = ", ".join(f"{name} {one}" for name, one in (machine.get("versions") or {}).items() if one)
        cells = (
            run.name, str(data.get("started", "-"))[:16].replace("T", " "),
            f"{machine.get('cpu', '-')}, {machine.get('cores', '?')} cores, {machine.get('memory_gib', '?')} GiB",
            f"{machine.get('commit') or '-'}{', with changes' if machine.get('dirty') else ''}",
            str(data.get("rounds", "-")), str(data.get("command", "-")), "; ".join(notes), versions,
        )  # fmt: skip
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    names = ("run", "started", "machine", "commit", "rounds", "command", "notes", "versions")
    head = "".join(f"<th>{name}</th>" for name in names)
    return (
        '<section id="runs"><h2>Runs</h2><p>What was measured where. Points are medians of the rounds, rules reach '
        "from "
        "the worst to the best of them.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></section>'
    )
