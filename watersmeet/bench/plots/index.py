"""Plots of `watersmeet bench index`: indexes by window, by matches, by what they take."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.bench.plots.plot import Axis, Plot, having, plain, points, single, spread
from watersmeet.bench.plots.runs import Run

WINDOW = Axis("rows in the window", powers=True)
LARGE = 32_768  # the batches of most windows


def plots(run: Run) -> Iterator[Plot]:
    rows = [row for row in having(run.part("windows"), "window", "batch", "rounds") if row["contender"] != "auto"]
    rows = [row for row in rows if row["batch"] == LARGE or not any(one["batch"] == LARGE for one in rows)]
    if rows:
        yield Plot(
            plain(run.name, "windows"), "Indexes", "All indexes by window size",
            f"A band over last(n), about 2 partners a tuple, positions out, batches of {rows[0]['batch']:,}, one "
            "thread.",
            WINDOW, Axis("million tuples/s"), points(rows, contender, lambda row: row["window"], 1e6),
        )  # fmt: skip
        costs = [
            spread(contender(row), row["window"], [1e9 / speed for speed in row["rounds"]])
            for row in rows
            if row["contender"] != "nested_loop"
        ]
        yield Plot(
            plain(run.name, "cost"), "Cost growth", "What a tuple costs, by index",
            "The same joins, without the nested loop, whose cost grows as the window does.",
            WINDOW, Axis("ns a tuple"), costs,
        )  # fmt: skip
    rows = [row for row in having(run.part("matches"), "matches", "rounds") if row["contender"] != "auto"]
    if rows:
        yield Plot(
            plain(run.name, "matches"), "Indexes", "All indexes by matches",
            "The same join over last(2^18), batches of 4,096, by the partners that a tuple has.",
            Axis("partners a tuple"), Axis("million tuples/s"),
            points(rows, contender, lambda row: row["matches"], 1e6),
        )  # fmt: skip
    rows = having(run.part("memory"), "bytes_per_tuple")
    if rows:
        yield Plot(
            plain(run.name, "memory"), "Indexes", "Memory of indexes",
            "Bytes of the index for a tuple in the window, at most; the tuples themselves come on top.",
            Axis("", names=True), Axis("bytes a tuple", log=False),
            [single("index", contender(row), row["bytes_per_tuple"]) for row in rows], kind="bars",
        )  # fmt: skip


def contender(row: dict) -> str:
    return row["contender"].replace("_", " ")
