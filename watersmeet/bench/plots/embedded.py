"""Plots of `watersmeet bench embedded`: batches, windows, what a tuple costs, cores."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.bench.plots.plot import Axis, Plot, Row, distinct, having, plain, points, spread
from watersmeet.bench.plots.runs import Run

SPEED = Axis("million rows/s")
BATCH = Axis("rows a batch")
WINDOW = Axis("rows in the window", powers=True)
CORES = Axis("cores", powers=False)
JOINS = {"A2": ("equality", "l.key = r.key"), "B": ("band", "|l.key - r.key| <= 2")}
OF_CORES = {"A2, hash": "equality", "B, bisort": "band", "band_last, bisort": "band, last(n),"}


def plots(run: Run) -> Iterator[Plot]:
    yield from batches(run)
    yield from windows(run)
    yield from cores(run)


def batches(run: Run) -> Iterator[Plot]:
    for part, (name, predicate) in JOINS.items():
        rows = [
            row
            for row in having(run.part(part), "batch", "rounds", "contender")
            if not row["contender"].endswith("least buffer")
        ]
        if rows:
            seconds = run.data.get("within_seconds", 10)
            yield Plot(
                plain(run.name, "batches", name), "Throughput", f"{name.capitalize()} join by batch size",
                f"{predicate} within {seconds} s, about 500,000 rows a side in the window, full rows out, all cores. "
                "Others: each new batch joined by hand with the other side's last rows, in the fastest form of each.",
                BATCH, SPEED, points(rows, lambda row: row["contender"], lambda row: row["batch"], 1e6),
            )  # fmt: skip


def windows(run: Run) -> Iterator[Plot]:
    """The same figures as speed and as what a tuple costs."""
    rows = [row for row in having(run.part("band_last"), "window", "rounds") if "NumPy" not in row["contender"]]
    if not rows:
        return

    def series(row: Row) -> str:
        return f"watersmeet, batches of {row['batch']:,}" if row["contender"] == "watersmeet" else row["contender"]

    yield Plot(
        plain(run.name, "windows"), "Throughput", "Band join by window size",
        "About 2 matches a tuple over last(n), positions out, one thread; beside it a nested loop over the same "
        "window, "
        "and NumPy's argsort of as many keys.",
        WINDOW, Axis("million tuples/s"), points(rows, series, lambda row: row["window"], 1e6),
    )  # fmt: skip
    ours = [row for row in rows if row["contender"] != "nested loop"]
    costs = [spread(series(row), row["window"], [1e9 / speed for speed in row["rounds"]]) for row in ours]
    yield Plot(
        plain(run.name, "cost"), "Cost growth", "What a tuple costs as the window grows",
        "The same join. Sorting grows by itself with what is sorted: keys that are far apart in memory are dear.",
        WINDOW, Axis("ns a tuple"), costs,
    )  # fmt: skip


def cores(run: Run) -> Iterator[Plot]:
    rows = having(run.part("cores"), "form", "batch", "rounds", "contender")
    for contender in distinct(rows, "contender"):
        name = OF_CORES.get(contender, contender)
        mine = [row for row in rows if row["contender"] == contender]
        routes = list(dict.fromkeys(row["form"].split(", ")[1] for row in mine if ", " in row["form"]))
        made = []
        for row in mine:
            many, _, route = row["form"].partition(", ")
            for one in [route] if route else routes or [""]:  # one core is where every route begins
                made.append(spread(f"{one}, batches of {row['batch']:,}".lstrip(", "), int(many), row["rounds"], 1e6))
        yield Plot(
            plain(run.name, "cores", name), "Cores", f"{name.capitalize()} join by cores",
            "The joins of the first plots by route: one core with helpers (single), or a process a core (hash, cells).",
            CORES, SPEED, made,
        )  # fmt: skip
