"""Plots of `watersmeet bench cores`: topologies, shared trees and routes by cores; latencies."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.bench.plots.plot import Axis, Plot, distinct, having, plain, points, spread
from watersmeet.bench.plots.runs import Run

NAMES = {"split": "SplitJoin", "llhj": "low-latency handshake join", "handshake": "handshake join"}
BY_CORES = {
    "routes": ("StreamJoin by route", "A band over last(2^20), positions out, all routes of the engine."),
    "shared": ("PIM-Trees by threads", "Threads that share one tree, with merges beside the work or blocking, or "
               "Bw-Trees without locks, and threads that have a part each (round-robin). Counted."),
}  # fmt: skip
CORES = Axis("cores")


def plots(run: Run) -> Iterator[Plot]:
    for part, (title, about) in BY_CORES.items():
        rows = having(run.part(part), "cores", "rounds", "contender")
        if rows:
            yield Plot(
                plain(run.name, part), "Cores", title, about, CORES, Axis("million tuples/s"),
                points(rows, lambda row: row["contender"], lambda row: row["cores"], 1e6),
            )  # fmt: skip
    rows = having(run.part("topologies"), "cores", "rounds", "window")
    for window in distinct(rows, "window"):
        yield Plot(
            plain(run.name, "topologies", str(window)), "Cores", f"Topologies by cores, windows of {window:,}",
            "A nested loop in each core, tuple by tuple, as in the SplitJoin paper.",
            CORES, Axis("1,000 tuples/s"),
            points((row for row in rows if row["window"] == window), named, lambda row: row["cores"], 1e3),
        )  # fmt: skip
    yield from latencies(run)


def named(row: dict) -> str:
    return NAMES.get(row["contender"], row["contender"])


def latencies(run: Run) -> Iterator[Plot]:
    """Of the rounds the median, and their spread."""
    rows = having(run.part("latency"), "latency", "cores")
    if not rows:
        return
    most = max(row["cores"] for row in rows if row["cores"] < run.machine.get("cores", 0) or row["cores"] == 1)
    for kind, what in (("visiting", "until a tuple has seen every core"), ("processing", "until its results are out")):
        made = [
            spread(named(row), name, [1e6 * one[name] for one in row["latency"][kind]])
            for row in rows
            if row["cores"] == most and row["latency"].get(kind)
            for name in ("median", "p90", "p99")
            if all(name in one for one in row["latency"][kind])
        ]
        if made:
            yield Plot(
                plain(run.name, "latency", kind), "Latency", f"{kind.capitalize()} latency on {most} cores",
                f"Microseconds {what}, at one rate for all; windows of {rows[0].get('window', 0):,}.",
                Axis("", names=True), Axis("microseconds"), made, kind="bars",
            )  # fmt: skip
