"""Put the stored figures of `make bench` into README and docs: python tools/figures.py

Reads docs/figures/*.json and rewrites what stands between <!-- NAME --> and <!-- /NAME -->.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from watersmeet.workers import SMALL

ROOT = Path(__file__).parent.parent


def millions(speed: float) -> str:
    return f"{speed / 1e6:.2f}" if speed < 1e7 else f"{speed / 1e6:.1f}"


def ratio(value: float) -> str:
    return f"{value:.2f}" if value < 2 else f"{value:.1f}"


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
        self.data = json.loads((ROOT / "docs/figures/embedded.json").read_text())
        self.machine = self.data["machine"]

    def speed(
        self, workload: str, contender: str, batch: int | None, window: int | None = None, form: str = ""
    ) -> float:
        for row in self.data["results"]:
            if (
                (row["workload"], row["contender"], row["batch"]) == (workload, contender, batch)
                and window in (None, row["window"])
                and row["form"].startswith(form)
            ):
                return row["tuples_per_s"]
        raise KeyError((workload, contender, batch, window, form))

    def ratio(self, workload: str, batch: int, against: str) -> float:
        for row in self.data["ratios"]:
            if (row["workload"], row["batch"]) == (workload, batch) and row["against"].startswith(against):
                return row["value"]
        raise KeyError((workload, batch, against))

    def figures(self) -> str:
        speed, times = self.speed("B", "watersmeet", 50_000), self.ratio("B", 50_000, "best hand-rolled (")
        return prose(f"""
            A band join of two streams over a 10 second window of 500,000 rows a side, full rows out, batches of 50,000,
            on two cores: {speed / 1e6:.1f} million rows a second, {ratio(times)} times the best that DuckDB, Polars or
            DataFusion give when the same join is written by hand. [More below](#measured), and where it is less.
        """)

    def measured(self) -> str:
        least = {
            (part, batch): ratio(self.ratio(part, batch, "best hand-rolled, least buffer"))
            for part in ("A2", "B")
            for batch in (5_000, 50_000)
        }
        within = [
            "| join | batch | watersmeet | DuckDB | Polars | DataFusion | symmetric hash join | ours / best by hand |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for part, name in (("A2", "equality"), ("B", "band")):
            for batch in (5_000, 50_000, 500_000):
                peers = [millions(self.speed(part, peer, batch)) for peer in ("DuckDB", "Polars", "DataFusion")]
                symmetric = "-"
                if part == "A2":
                    symmetric = millions(self.speed(part, "DataFusion symmetric hash join", batch))
                ours = millions(self.speed(part, "watersmeet", batch))
                times = ratio(self.ratio(part, batch, "best hand-rolled ("))
                within.append(f"| {name} | {batch:,} | **{ours}** | {' | '.join(peers)} | {symmetric} | {times} |")
        last = ["| window | 1K | 32K | 256K | nested loop | argsort |", "|---|---:|---:|---:|---:|---:|"]
        for bits in (14, 17, 20, 23):
            window = 1 << bits
            speeds = [millions(self.speed("band_last", "watersmeet", 1 << b, window)) for b in (10, 15, 18)]
            loop = self.speed("band_last", "nested loop", None, window)
            sort = self.speed("band_last", "argsort", None, window)
            last.append(f"| 2^{bits} | {' | '.join(speeds)} | {loop:,.0f} /s | {millions(sort)} |")
        faster = self.speed("band_last", "watersmeet", 1 << 15, window) / loop
        return "\n".join(
            [
                prose(f"""
                    On two cores of a shared cloud machine (Intel Xeon, 24 GiB), {self.data["started"][:10]}, commit
                    {self.machine["commit"]}, by `make bench`; every contender in the same run, best of
                    {self.data["rounds"]} rounds, all answers compared. Such a machine is noisy: from run to run the
                    ratios move by up to a third. All figures, with versions, are in
                    [docs/figures/embedded.json](docs/figures/embedded.json).
                """),
                prose(f"""
                    Two streams, 20 us from row to row, `within("10 seconds")`, about 2 matches for every arriving row,
                    full rows out, all cores, million input rows/s. Against it: every new batch joined with the other
                    side's last 20 seconds, in the fastest of several forms of each (a band: keys cut into cells, joined
                    on the cell, filtered), and DataFusion's symmetric hash join. Who keeps by hand no more than a batch
                    needs, 10 seconds and the batch, comes closer: the last column is then {least["A2", 5_000]} and
                    {least["A2", 50_000]} for the equality, {least["B", 5_000]} and {least["B", 50_000]} for the band,
                    at 5,000 and 50,000.
                """),
                *within,
                "",
                prose("""
                    A band join over `last(n)`, about 2 matches a tuple, positions out, one thread, million tuples/s by
                    batch size; beside it a nested loop over the same window, and NumPy's argsort of as many keys, in
                    million keys/s.
                """),
                *last,
                "",
                prose(f"""
                    At a window of 2^23 the index is {faster:,.0f} times as fast as the loop. Small batches are where a
                    push's fixed cost, a quarter of a millisecond, weighs most: collect rows with `batch_rows` where you
                    can wait for them.
                """),
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
            speeds = [self.speed("subwindows", contender, batch, form=f"{count} subwindows") for count in counts]
            table.append(f"| {name} | {batch:,} | {' | '.join(map(millions, speeds))} |")
        return "\n".join(
            [
                prose("""
                    Measured (`watersmeet bench embedded --only subwindows`, one thread, million rows/s). The default is
                    one structure that forgets for bands, two subwindows for the equality.
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


class Threads:
    """The part `threads` of `watersmeet bench embedded`, from a machine with more cores."""

    def __init__(self) -> None:
        self.data = json.loads((ROOT / "docs/figures/threads.json").read_text())

    def measured(self) -> str:
        forms = list(dict.fromkeys(row["form"] for row in self.data["results"]))
        names = {"A2, hash": "equality", "B, bisort": "band"}
        lines: dict[tuple[str, int], list[str]] = {}
        for row in self.data["results"]:
            lines.setdefault((names[row["contender"]], row["batch"]), []).append(millions(row["tuples_per_s"]))
        rows = [[name, f"{batch:,}", *speeds] for (name, batch), speeds in lines.items()]
        about = f"""
            A batch is cut into parts of at least {SMALL:,} rows, so that a small one does not wait for many threads.
            Million rows/s of the joins of the README on {self.data["machine"]["cores"]} cores (`watersmeet bench
            embedded --only threads`, {self.data["started"][:10]}, [figures/threads.json](figures/threads.json)). Some
            steps stay on one thread (keys, merging what was sorted, forgetting), and parts take turns to hold Python's
            lock between kernels.
        """
        header = ["join", "batch", *(form.replace("=", " ") for form in forms)]
        return "\n".join([prose(about), table(header, rows)])


class Index:
    """What the papers claim, from `watersmeet bench index`. The last column is written by hand, and kept."""

    header = ["row", "claim", "the paper", "here", "holds", "why"]

    def __init__(self) -> None:
        self.data = json.loads((ROOT / "docs/figures/index.json").read_text())

    def claims(self, page: str) -> str:
        machine, whys = self.data["machine"], self.whys(page)
        unknown = "(not measured)"
        lines = [
            [one["row"], one["claim"], one["paper"], one["ours"] if one["holds"] else unknown, one["holds"] or "-"]
            + [whys.get(one["claim"], "")]
            for one in self.data["claims"]
        ]
        about = prose(f"""
            {machine["cpu"]}, {machine["cores"]} cores, {self.data["started"][:10]}, commit {machine["commit"]}, the
            best of {self.data["rounds"]} rounds. All figures are in [figures/index.json](figures/index.json).
        """)
        targets = [
            [one["against"], f"{one['value']:.3g}", f"{one['sense']} {one['target']:g}", "yes" if one["ok"] else "no"]
            for one in self.data["ratios"]
            if one["target"] is not None
        ]
        ours = prose("And what we ask of our own choice, over all joins of the run:")
        parts = [about, table(self.header, lines)]
        parts += [ours, table(["auto, or an index, against", "ratio", "target", "holds"], targets)] if targets else []
        return "\n".join(parts)

    def whys(self, page: str) -> dict[str, str]:
        """The last column as it stands, by claim."""
        cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
        return {row[1]: row[5] for row in cells if len(row) == len(self.header)}


class Spark:
    """The joins of `watersmeet bench spark`, all from one run."""

    rows = (
        ("A", "equality, 10 s", "spark"),
        ("B", "band, 10 s", "cells"),
        ("B17", "band, 10 s, 17 matches", None),
        ("C", "inequality, 50 ms", None),
    )

    def __init__(self) -> None:
        self.data = json.loads((ROOT / "docs/figures/spark.json").read_text())

    def measured(self) -> str:
        header = ["join", "million rows/s in", "million results/s", "of a joiner that does nothing"]
        header += ["x RocksDB", "x in memory"]
        speeds = {(row["workload"], row["contender"]): row for row in self.data["results"]}
        lines = []
        for part, name, plain in self.rows:
            ours = speeds[part, "watersmeet"]
            done, *times = (
                ratio(ours["rows_per_s"] / speeds[part, one]["rows_per_s"]) if (part, one) in speeds else "-"
                for one in ("discard", f"{plain}, rocksdb", f"{plain}, hdfs")
            )
            lines.append([name, millions(ours["rows_per_s"]), millions(ours["results_per_s"]), done, *times])
        grown, large, memory = (
            [ratio(row["value"]) for row in self.data["ratios"] if row["against"].startswith(what)]
            for what in ("last ten micro-batches", "a micro-batch with the large window", "GB of driver")
        )
        about = f"""
            Two streams of 4M rows, 20 us from row to row, 1M rows a micro-batch, into a sink that throws rows away,
            `local[2]`, on two cores of a shared cloud machine, {self.data["started"][:10]}, commit
            {self.data["machine"]["commit"]}, by `watersmeet bench spark`: one run, each the best of
            {self.data["rounds"]} rounds, only Spark on RocksDB and the workaround measured once
            ([figures/spark.json](figures/spark.json)). The last two columns are against what plain Spark has: for the
            equality its own join, for the band the usual workaround (explode into cells, join on the cell, filter),
            with the state in RocksDB and in maps on the heap. Such a machine is noisy: rounds of one pipeline differ by
            up to a third.
        """
        flat = f"""
            Over 40 micro-batches the last ten took {grown[0]} (equality) and {grown[1]} (band) times as long as the
            second ten. With a window of 10M rows a side instead of 500,000 a micro-batch took {large[0]} and {large[1]}
            times as long, driver and Python workers together {memory[0]} and {memory[1]} GB.
        """
        return "\n".join([prose(about), table(header, lines), prose(flat)])


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines) + "\n"


def main() -> None:
    embedded = Embedded()
    put("README.md", "figures", embedded.figures())
    put("README.md", "measured", embedded.measured())
    put("docs/windows.md", "subwindows measured", embedded.subwindows())
    put("docs/indexes.md", "threads measured", Threads().measured())
    page = "docs/reproduction.md"
    put(page, "claims", Index().claims((ROOT / page).read_text()))
    put("docs/spark.md", "measured", Spark().measured())


if __name__ == "__main__":
    main()
