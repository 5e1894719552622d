"""Put the stored figures of the benchmarks into README and docs: python tools/figures.py

Reads docs/figures/*.json and rewrites what stands between <!-- NAME --> and <!-- /NAME -->. Figures are medians of the
rounds, with the best of them in brackets; targets that a run missed are named beside them. Plots that the pages show
are drawn into docs/plots, by what also draws `watersmeet report`.
"""

from __future__ import annotations

import re
import textwrap
from itertools import product
from pathlib import Path
from typing import Any

from watersmeet.bench import plots, report
from watersmeet.bench.plots.vega import svg
from watersmeet.bench.rounds import median
from watersmeet.bench.spark import tables as of_spark

ROOT = Path(__file__).parent.parent
Row = dict[str, Any]


def load(name: str) -> dict[str, Any]:
    return report.load(ROOT / f"docs/figures/{name}.json")


def millions(speed: float) -> str:
    return f"{speed / 1e6:.2f}" if speed < 1e7 else f"{speed / 1e6:.1f}"


def speed_of(row: Row) -> str:
    """The median of the rounds, and the best."""
    return f"{millions(median(row['rounds']))} ({millions(row['tuples_per_s'])})"


def ratio(value: float) -> str:
    return f"{value:.2f}" if value < 2 else f"{value:.1f}"


def ratio_of(row: Row, missed: bool = False) -> str:
    """By the medians, and by the best; what was missed if asked."""
    text = f"{ratio(row['value'])} ({ratio(row['best'])})"
    return f"{text}, **missed: {row['target']:g}**" if missed and row["ok"] is False else text


def target_of(row: Row) -> str:
    if row["ok"] is None:
        return "-"
    return f"{row['target']:g}, met" if row["ok"] else f"**missed: {ratio(row['value'])} of {row['target']:g}**"


def targets(data: dict[str, Any], names: dict[str, str]) -> str:
    """How many targets were met, and which were not. `names`: of workloads, for readers."""
    judged = [row for row in data["ratios"] if row["ok"] is not None]
    missed = [report.miss(row, names.get(row["workload"])) for row in judged if row["ok"] is False]
    if not missed:
        return f"All {len(judged)} targets of this run are met, by the medians."
    return f"Of {len(judged)} targets this run missed {len(missed)}, by the medians: {'; '.join(missed)}."


def run_of(data: dict[str, Any], command: str) -> str:
    """When and how it was measured; older runs did not store their command."""
    return f"{data['started'][:10]}, commit {report.commit(data['machine'])}, by `{data.get('command', command)}`"


def prose(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False) + "\n"


def put(path: str, block: str, text: str) -> None:
    file = ROOT / path
    found = re.compile(rf"(<!-- {block} -->\n).*?(<!-- /{block} -->)", re.S)
    before = file.read_text()
    assert found.search(before), f"{path} has no block {block}"
    file.write_text(found.sub(lambda m: m[1] + text + m[2], before))


class Embedded:
    def __init__(self) -> None:
        self.data = load("embedded")
        self.machine = self.data["machine"]

    def row(self, workload: str, contender: str, batch: int | None, window: int | None = None, form: str = "") -> Row:
        for row in self.data["results"]:
            if (
                (row["workload"], row["contender"], row["batch"]) == (workload, contender, batch)
                and window in (None, row["window"])
                and row["form"].startswith(form)
            ):
                return row
        raise KeyError((workload, contender, batch, window, form))

    def ratio(self, workload: str, batch: int, against: str, window: int | None = None) -> Row:
        for row in self.data["ratios"]:
            if (
                (row["workload"], row["batch"]) == (workload, batch)
                and window in (None, row["window"])
                and row["against"].startswith(against)
            ):
                return row
        raise KeyError((workload, batch, against, window))

    def figures(self) -> str:
        speed, times = self.row("B", "watersmeet", 50_000), self.ratio("B", 50_000, "best hand-rolled (")
        return prose(f"""
            A band join of two streams over a 10 second window of 500,000 rows a side, full rows out, batches of 50,000,
            on two cores: {median(speed["rounds"]) / 1e6:.1f} million rows a second (the median of
            {len(speed["rounds"])} rounds; the best {speed["tuples_per_s"] / 1e6:.1f}), {ratio(times["value"])} times
            the best that DuckDB, Polars or DataFusion give when the same join is written by hand.
            [More](docs/measured.md), and where it is less.
        """)

    def summary(self) -> str:
        """The best, the worst, and what was missed."""
        pairs = [(part, batch) for part in ("A2", "B") for batch in (5_000, 50_000, 500_000)]
        names = {"A2": "an equality", "B": "a band"}
        ranked = sorted(pairs, key=lambda pair: self.ratio(*pair, "best hand-rolled (")["value"])
        (least, few), (most, many) = ranked[0], ranked[-1]
        low, high = (self.ratio(*pair, "best hand-rolled (")["value"] for pair in (ranked[0], ranked[-1]))
        judged = [row for row in self.data["ratios"] if row["ok"] is not None]
        missed = sum(row["ok"] is False for row in judged)
        return prose(f"""
            Against the best that DuckDB, Polars or DataFusion do by hand, on the same two cores: at best {ratio(high)}
            times as fast ({names[most]}, batches of {many:,}), at worst {ratio(low)} times ({names[least]}, batches of
            {few:,}). Of {len(judged)} targets that the benchmark holds itself against, {missed} are missed; they are
            named where the figures stand ({run_of(self.data, "make bench")}).
        """)

    def measured(self) -> str:
        least = {
            (part, batch): ratio_of(self.ratio(part, batch, "best hand-rolled, least buffer"))
            for part in ("A2", "B")
            for batch in (5_000, 50_000)
        }
        within = []
        for part, name in (("A2", "equality"), ("B", "band")):
            for batch in (5_000, 50_000, 500_000):
                times = self.ratio(part, batch, "best hand-rolled (")
                peer = times["against"].partition("(")[2].split()[0]
                ours = f"**{speed_of(self.row(part, 'watersmeet', batch)).replace(' ', '** ')}"
                theirs = f"{speed_of(self.row(part, peer, batch))}, {peer}"
                within.append([name, f"{batch:,}", ours, theirs, ratio_of(times), target_of(times)])
        last = []
        for bits in (14, 17, 20, 23):
            window = 1 << bits
            speeds = [speed_of(self.row("band_last", "watersmeet", 1 << b, window)) for b in (10, 15, 18)]
            loop = self.row("band_last", "nested loop", None, window)
            last.append([f"2^{bits}", *speeds, f"{median(loop['rounds']):,.0f} /s"])
        faster = self.ratio("band_last", 1 << 15, "nested loop", window)["value"]
        return "\n".join(
            [
                prose(f"""
                    On two cores of a shared cloud machine ({self.machine["cpu"]}, 24 GiB),
                    {run_of(self.data, "make bench")}; every contender in the same run, all answers compared.
                    Figures are medians of
                    {self.data["rounds"]} rounds, the best round in brackets. Such a machine is noisy: from run to run
                    the ratios move by up to a third. All figures, with versions, are in
                    [figures/embedded.json](figures/embedded.json).
                """),
                prose(f"""
                    Two streams, 20 us from row to row, `within("10 seconds")`, about 2 matches for every arriving row,
                    full rows out, all cores, million input rows/s. By hand: every new batch joined with the other
                    side's last 20 seconds, in the fastest of several forms of DuckDB, Polars and DataFusion (a band:
                    keys cut into cells, joined on the cell, filtered). Who keeps no more than a batch needs, 10 seconds
                    and the batch, comes closer: the ratio is then {least["A2", 5_000]} and {least["A2", 50_000]} for
                    the equality, {least["B", 5_000]} and {least["B", 50_000]} for the band, at 5,000 and 50,000.
                """),
                table(["join", "batch", "watersmeet", "best by hand", "ratio", "target"], within, right=range(1, 5)),
                prose("""
                    A band join over `last(n)`, about 2 matches a tuple, positions out, one thread, million tuples/s by
                    batch size; beside it a nested loop over the same window.
                """),
                table(["window", "1K", "32K", "256K", "nested loop"], last, right=range(1, 5)),
                prose(f"""
                    At a window of 2^23 the index is {faster:,.0f} times as fast as the loop. Small batches are where a
                    push's fixed cost, a tenth to a fifth of a millisecond, weighs most: collect rows with `batch_rows`
                    where you can wait for them.
                """),
                prose(targets(self.data, {"A2": "equality", "B": "band", "band_last": "last(n)"})),
            ]
        )

    def subwindows(self) -> str:
        counts = ("default", 1, 2, 4, 8)
        table = [f"| join | batch | {' | '.join(map(str, counts))} |", "|---|" + (1 + len(counts)) * "---:|"]
        for name, contender, batch in (
            ("band, last 2^20", "band_last, bisort", 1 << 10),
            ("band, last 2^20", "band_last, bisort", 1 << 15),
            ("equality, 10 s", "A2, hash", 5_000),
            ("band, 10 s", "B, bisort", 5_000),
        ):
            rows = [self.row("subwindows", contender, batch, form=f"{count} subwindows") for count in counts]
            table.append(f"| {name} | {batch:,} | {' | '.join(map(speed_of, rows))} |")
        return "\n".join(
            [
                prose("""
                    Measured (`watersmeet bench embedded --only subwindows`, one thread, million rows/s, medians of the
                    rounds and the best in brackets). The default is one structure that forgets for bands, two
                    subwindows for the equality.
                """),
                *table,
                "",
                prose("""
                    Inside a sorted structure, a small batch does not touch the large array: it goes to a sorted buffer,
                    which is merged when it holds sqrt(array x batch) rows. Batches of more than 1/64 of the array are
                    merged at once, since a second array to look up costs more than the moves it saves. Keys and row
                    numbers that fit into 62 bits together are kept in one word: less memory to read, and one place to
                    look instead of two.
                """),
            ]
        )

    def push(self) -> str:
        """Where a push goes in one process."""
        rows = [row for row in self.data["results"] if row["workload"] == "cores" and not row["milliseconds"]["step"]]
        return milliseconds(rows, *STEPS)


JOINS = {"A2, hash": "equality", "B, bisort": "band", "band_last, bisort": "band, last(2^20), positions"}
STEPS = tuple(f"core.{step}" for step in ("keys", "sort", "probe", "gather", "store", "expire"))


def milliseconds(rows: list[Row], *spent: str) -> str:
    """Of a push, by what it does: a line for each form of each join."""
    lines = []
    for row in rows:
        cores, _, route = row["form"].partition(", ")
        took = [1e3 * row["batch"] / median(row["rounds"]), *(row["milliseconds"][one] for one in spent)]
        where = [JOINS[row["contender"]], f"{row['batch']:,}", cores, route or "single"]
        lines.append([*where, *(f"{one:.1f}" if one >= 10 else f"{one:.2f}" for one in took)])
    header = ["join", "batch", "cores", "route", "a push", *(one.removeprefix("core.") for one in spent)]
    return table(header, lines, range(4, len(header)))


class Cores:
    """The part `cores` of `watersmeet bench embedded`, from a machine with many."""

    def __init__(self) -> None:
        self.data = load("cores")

    def measured(self) -> str:
        counts = list(dict.fromkeys(row["form"].split(",")[0] for row in self.data["results"]))
        speeds = {(row["contender"], row["batch"], row["form"]): speed_of(row) for row in self.data["results"]}
        rows = []
        for contender, batch in dict.fromkeys((one, batch) for one, batch, _ in speeds):
            routes = dict.fromkeys(form.split(", ")[1] for one, _, form in speeds if one == contender and ", " in form)
            for route in routes:
                forms = [counts[0], *(f"{count}, {route}" for count in counts[1:])]
                found = [speeds.get((contender, batch, form), "-") for form in forms]
                rows.append([JOINS[contender], f"{batch:,}", route, *found])
        about = f"""
            Million rows/s of the joins of the README on {self.data["machine"]["cores"]} cores (`watersmeet bench
            embedded --only cores`, {self.data["started"][:10]}, medians of {self.data["rounds"]} rounds and the best
            in brackets, [figures/cores.json](figures/cores.json)).
        """
        return "\n".join([prose(about), table(["join", "batch", "route", *counts], rows)])

    def phases(self) -> str:
        """Where a push goes with cores that are processes."""
        several = [row for row in self.data["results"] if row["milliseconds"]["step"]]
        return milliseconds(several, "write", "route", "step", "collect", "core", "core.pick", *STEPS, "core.hand")


FIRST, KAFKA, HOT = (of_spark.TITLES[part].split(":")[0] for part in ("first", "kafka", "skew"))
OWN_CHOICE = "And what we ask of our own choice, over all joins of the run:"


class Claims:
    """What a run measured, as tables, and what the papers claim. The last column of claims is by hand, and kept."""

    header = ["row", "claim", "the paper", "here", "best round", "holds", "why"]

    def __init__(self, name: str, command: str) -> None:
        self.data, self.name, self.command = load(name), name, command

    def measured(self, parts: tuple[str, ...]) -> str:
        """The tables of some parts."""
        machine = self.data["machine"]
        lines = [prose(f"""
            {machine["cpu"]}, {machine["cores"]} cores, {run_of(self.data, self.command)}, medians of
            {self.data["rounds"]} rounds and the best in brackets
            ([figures/{self.name}.json](figures/{self.name}.json)).
        """)]
        for title, header, rows in report.tables(self.data):
            if title.split(":")[0] in parts and rows:
                kept = [i for i in range(len(header)) if any(row[i] not in ("", "-") for row in rows)]
                shown = [[row[i] for i in kept] for row in rows]
                lines += [f"{title[0].upper()}{title[1:]}:\n", table([header[i] for i in kept], shown)]
        return "\n".join(lines)

    def claims(self, page: str) -> str:
        machine, whys = self.data["machine"], self.whys(page)
        lines = []
        for one in self.data["claims"]:
            measured = [one["ours"] or "-", one["best"]] if one["holds"] else ["(not measured)", "-"]
            why = whys.get(one["claim"], "")
            lines.append([one["row"], one["claim"], one["paper"], *measured, one["holds"] or "-", why])
        empty = ""
        if any(one["ours"] is None and one["holds"] for one in self.data["claims"]):
            empty = "Where this run did not keep its rounds there is no median, and the verdict is by the best."
        about = prose(f"""
            {machine["cpu"]}, {machine["cores"]} cores, {run_of(self.data, self.command)}, medians of
            {self.data["rounds"]} rounds, judged by them, and the best. {empty} All figures are in
            [figures/{self.name}.json](figures/{self.name}.json).
        """)
        judged = [
            [report.count(one.get("window")), one["against"], report.number(one["value"]), report.number(one["best"])]
            + [target_of(one) if one["sense"] == ">=" else f"{one['sense']} {one['target']:g}"]
            for one in self.data["ratios"]
            if one["target"] is not None
        ]
        ours = prose(OWN_CHOICE if self.name == "index" else "And what we ask of ourselves:")
        parts = [about, table(self.header, lines)]
        if judged:
            against = "auto, or an index, against" if self.name == "index" else "what"
            parts += [ours, table(["window", against, "ratio", "best round", "target"], judged)]
            parts.append(prose(targets(self.data, {})))
        return "\n".join(parts)

    def whys(self, page: str) -> dict[str, str]:
        """The last column as it stands, by claim."""
        cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
        return {row[1]: row[-1] for row in cells if len(row) == len(self.header)}


#: Pipelines that tell how much of a figure is Spark's.
IDLE = {"identity": "a pipeline that joins nothing", "discard": "ours with a joiner that does nothing"}
FROM_KAFKA = {
    "watersmeet": "ours",
    "no join": "without a join",
    "discard": "with a joiner that does nothing",
    "spark, rocksdb": "Spark's own join, of equal keys,",
}


class Spark:
    """The joins of `watersmeet bench spark`, all from one run."""

    rows = (
        ("A", "equality, 10 s", "identity", "spark"),
        ("B", "band, 10 s", "identity", "cells"),
        ("B17", "band, 10 s, 17 matches", "discard", None),
        ("C", "inequality, 50 ms", "discard", None),
        ("D", "left join of texts, 10 s, out of order by up to 2 s", "identity", "spark"),
    )

    def __init__(self) -> None:
        self.data = load("spark")
        self.ratios = {(row["workload"], row["against"]): row for row in self.data["ratios"]}
        self.results = {(row["workload"], row["contender"]): row for row in self.data["results"]}

    def against(self, part: str, contender: str, of: str = "") -> str:
        row = self.ratios.get((part, f"{contender}: input rows/s{of}"))
        return ratio_of(row, missed=True) if row else "-"

    def measured(self) -> str:
        header = ["join", "million rows/s in", "million results/s", "cold micro-batch"]
        twice = any(contender == "identity, twice" for _, contender in self.results)
        header += ["of a pipeline that joins nothing"]
        header += ["of one that returns as much"] if twice else []
        idle = ("A", "discard") in self.results
        header += ["of ours with a joiner that does nothing"] if idle else []
        header += ["x RocksDB", "x in memory"]
        lines = []
        both = (("watersmeet", "", ""), ("watersmeet, files", ", of files", ", of `parquet_files`"))
        for (part, name, bound, plain), (who, of, how) in product(self.rows, both):
            if (part, who) in self.results:
                ours = self.results[part, who]
                speeds = f"{millions(median(ours['rounds']))} ({millions(ours['rows_per_s'])})"
                results = f"{millions(median(ours['results_rounds']))} ({millions(ours['results_per_s'])})"
                goal = self.ratios.get((part, "million result rows/s"))
                if goal and not of and goal["ok"] is False:
                    results += f", **missed: {goal['target']:g}**"
                against = [bound, *(["identity, twice"] if twice else []), *(["discard"] if idle else [])]
                against += [f"{plain}, rocksdb", f"{plain}, hdfs"]
                peers = [self.against(part, one, of) for one in against]
                lines.append([name + how, speeds, results, f"{median(ours['cold_s']):.1f} s", *peers])
        names = {part: name for part, name, _, _ in self.rows}
        names |= {f"{part}, flat": f"{names[part]}, long streams" for part in ("A", "B")}
        names |= {"L, flat": "left join, 10M rows a side", "first": "first micro-batch", "kafka": "Kafka to Kafka"}
        rest = [text for text in (self.flat(), self.first(), targets(self.data, names)) if text]
        return "\n".join([prose(self.about()), table(header, lines), *map(prose, rest)])

    def about(self) -> str:
        data, names = self.data, {row[0] for row in self.rows}
        once = {
            f"`{row['contender']}`": None
            for row in data["results"]
            if row["workload"] in names and len(row["rounds"]) < data["rounds"]
        }
        tuned = any("trackTotalNumberOfRows" in key for row in data["results"] for key in row.get("settings", ()))
        mine = [row for row in data["results"] if row["workload"] in names]
        files = any(row["contender"] == "watersmeet, files" for row in mine)
        summed = all(row["checksum"] for row in mine if row["contender"].startswith("watersmeet"))
        joiner = "; for the joins B17 and C, our own stages with a joiner that looks at nothing"
        as_much = ""
        if any(contender == "identity, twice" for _, contender in self.results):
            as_much = """ One that returns as much does the same, and gives every row twice, with the columns of both
            sides, as the joins of two results a row do."""
        cold = "are not part of the rates" if data["cold_apart"] else "are part of the rates"
        if data["cold_apart"]:
            with_cold = [
                f"{ratio(row['with_cold'])} ({part}, {against.partition(':')[0]})"
                for (part, against), row in self.ratios.items()
                if row.get("with_cold") and row["target"]
            ]
            cold += f"; with them the ratios that have targets are {', '.join(with_cold)}"
        return f"""
            Two streams of {data["rows"] / 1e6:g}M rows, 20 us from row to row, {data["batch_rows"] / 1e6:g}M rows a
            micro-batch, `local[{data["cores"]}]`, on two cores of a shared cloud machine,
            {run_of(data, "watersmeet bench spark")}: one run, medians of {data["rounds"]} rounds, the best in brackets;
            measured once: {", ".join(once)} ([figures/spark.json](figures/spark.json)). The first, cold micro-batches
            {cold}. Results are compared with DuckDB's by
            {"a checksum over all columns of every timed run" if summed else "their number"}. A pipeline that joins
            nothing is two Python functions that return what they get, and a union: it gives back as many rows as came,
            of half the columns{joiner if ("C", "discard") in self.results else ""}.{as_much} The last two columns are
            against what plain Spark has: for equalities its own join, for the band the
            usual workaround (explode into cells, join on the cell, filter), with the state in RocksDB
            {"(which does not count its rows: `trackTotalNumberOfRows` off)" if tuned else "(as Spark comes)"} and in
            maps on the heap.
            {"By `parquet_files` ours opens its files itself; all that it is held beside has Spark read them." if files
            else ""} Such a machine is noisy: rounds of one pipeline differ by up to a third.
        """

    def flat(self) -> str:
        grown, large, memory = (
            [ratio(row["value"]) for row in self.data["ratios"] if row["against"].startswith(what)]
            for what in ("last ten micro-batches", "a micro-batch with the large window", "GB of driver")
        )
        if not grown:
            return ""
        return f"""
            Over 40 micro-batches the last ten took {grown[0]} (equality) and {grown[1]} (band) times as long as the
            second ten. With a window of 10M rows a side instead of 500,000 a micro-batch took {large[0]} and {large[1]}
            times as long, driver and Python workers together {memory[0]} and {memory[1]} GB.
            {f"In a left join it took {large[2]} times as long." if len(large) > 2 else ""}
        """

    def first(self) -> str:
        """The first micro-batch, and from topic to topic."""
        texts = []
        what = "seconds of the first micro-batch, beyond the third"
        if row := self.ratios.get(("first", what)):
            bounds = [
                f", of {text} {bound['value']:.1f} s"
                for name, text in IDLE.items()
                if (bound := self.ratios.get(("first", f"{what}: {name}")))
            ]
            texts.append(
                f"The first micro-batch of a fresh session took {row['value']:.1f} s longer than the third"
                f"{''.join(bounds)}."
            )
        for stream, what in (("small", "micro-batch"), ("5k", "p50"), ("5k", "p99"), ("20k", "p50"), ("20k", "p99")):
            found = [
                f"{text} {streams[stream]['seconds'][what]:.2f} s"
                for one, text in FROM_KAFKA.items()
                if stream in (streams := self.results.get(("kafka", one), {}).get("streams", {}))
            ]
            if found:
                name = "micro-batches of 20,000 rows" if stream == "small" else f"{what} at {stream} rows/s a side"
                texts.append(f"Kafka to Kafka, {name}: {', '.join(found)}.")
        return " ".join(texts)


def table(header: list[str], rows: list[list[str]], right: range = range(0)) -> str:
    """`right`: the columns that are flush right."""
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "".join("---:|" if i in right else "---|" for i in range(len(header))))
    return "\n".join(lines) + "\n"


def blocks() -> dict[tuple[str, str], str]:
    """What stands in each block of each page."""
    embedded, page = Embedded(), "docs/reproduction.md"
    whys = (ROOT / page).read_text()
    parts = Claims("embedded", "watersmeet bench embedded")
    index, cores = Claims("index", "watersmeet bench index"), Claims("many_cores", "watersmeet bench cores")
    more = {}
    if (ROOT / "docs/figures/skew.json").exists():
        skewed = Claims("skew", "watersmeet bench skew")
        more |= {
            ("docs/queries.md", "skew measured"): skewed.measured(("balance", "sketch", "cores", "pipeline")),
            (page, "skew claims"): skewed.claims(whys),
        }
    if (ROOT / "docs/figures/gpu.json").exists():  # it takes a machine that has one
        on_gpu = Claims("gpu", "watersmeet bench gpu")
        more |= {
            ("docs/gpu.md", "gpu measured"): on_gpu.measured(
                ("link", "joins", "exact_joins", "distinct", "results", "systems")
            ),
            (page, "gpu claims"): on_gpu.claims(whys),
        }
    if (ROOT / "docs/figures/spark_bounds.json").exists():
        bounds = Claims("spark_bounds", "watersmeet bench spark")
        shown = ("A on Spark", "A", "B on Spark", "B", "D on Spark", "D", FIRST, "first", KAFKA, "kafka")
        more |= {("docs/spark.md", "bounds measured"): bounds.measured(shown)}
    if (ROOT / "docs/figures/spark_skew.json").exists():
        hot = Claims("spark_skew", "watersmeet bench spark --only skew")
        more |= {("docs/skew.md", "spark skew measured"): hot.measured((HOT, "skew"))}
    if (ROOT / "docs/figures/skew_cores.json").exists():
        eight = Claims("skew_cores", "watersmeet bench skew --only cores")
        more |= {("docs/skew.md", "skew cores measured"): eight.measured(("cores",))}
    if (ROOT / "docs/figures/sort_intel.json").exists():
        intel = Claims("sort_intel", "watersmeet bench embedded --only sort")
        more |= {("docs/indexes.md", "sort on Intel measured"): intel.measured(("sort",))}
    if (ROOT / "docs/figures/opencl.json").exists():
        on_opencl = Claims("opencl", "watersmeet bench index --only opencl")
        more |= {
            ("docs/opencl.md", "opencl measured"): on_opencl.measured(("opencl",)),
            (page, "opencl claims"): on_opencl.claims(whys),
        }
    return more | {
        ("README.md", "figures"): embedded.figures(),
        ("README.md", "summary"): embedded.summary(),
        ("docs/measured.md", "measured"): embedded.measured(),
        ("docs/windows.md", "subwindows measured"): embedded.subwindows(),
        ("docs/predicates.md", "boxes measured"): parts.measured(("boxes",)),
        ("docs/asof.md", "asof measured"): parts.measured(("asof",)),
        ("docs/aggregates.md", "aggregates measured"): parts.measured(("aggregates",)),
        ("docs/page.md", "page measured"): parts.measured(("page",)),
        ("docs/indexes.md", "sort measured"): parts.measured(("sort",)),
        ("docs/measured.md", "push measured"): embedded.push(),
        ("docs/cores.md", "cores measured"): Cores().measured(),
        ("docs/cores.md", "phases measured"): Cores().phases(),
        ("docs/cores.md", "topologies measured"): cores.measured(("topologies", "latency", "ordering")),
        ("docs/cores.md", "shared measured"): cores.measured(("shared", "tasks", "routes", "ordered")),
        (page, "claims"): index.claims(whys),
        (page, "core claims"): cores.claims(whys),
        ("docs/spark.md", "measured"): Spark().measured(),
    }


def pictures() -> dict[str, str]:
    """The plots that README and docs show, by the name of their file in docs/plots."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"plots/([\w-]+\.svg)", page.read_text())}
    stored = plots.runs.load(sorted((ROOT / "docs/figures").glob("*.json")))
    made = {f"{plot.name}.svg": plot for run in stored for plot in plots.plots(run)}
    assert shown <= set(made), f"pages show plots that the stored figures do not have: {shown - set(made)}"
    return {name: svg(made[name]) for name in sorted(shown)}


def main() -> None:
    for (path, block), text in blocks().items():
        put(path, block, text)
    folder = ROOT / "docs/plots"
    folder.mkdir(exist_ok=True)
    drawn = pictures()
    for file in folder.iterdir():
        if file.name not in drawn:
            file.unlink()
    for name, text in drawn.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
