"""Plots of `watersmeet bench gpu`, in the study's figures: GB/s over what varies, against what the link carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from watersmeet.bench.plots.plot import Axis, Plot, Row, having, plain, points
from watersmeet.bench.plots.runs import Run
from watersmeet.bench.rounds import median

MB = 1 << 20
SPEED = Axis("GB/s of both streams")

#: part -> (title, what varies in words, its value, how rows are grouped into plots)
FIGURES: dict[str, tuple[str, str, Callable[[Row], float], Callable[[Row], str]]] = {
    "distinct": ("Windows", "MB a side", lambda row: row["window"] / MB, lambda row: row["setting"]),
    "skew": ("Skew", "Zipf exponent", lambda row: row["zipf"], lambda row: f"windows of {row['window'] / MB:g} MB"),
    "parallel": ("Windows at a time", "MB a side", lambda row: row["window"] / MB, lambda row: ""),
    "progress": ("Lazy and eager", "KB a batch", lambda row: row["batch"] / 1024, lambda row: ""),
    "results": ("Ways to make pairs", "MB a side", lambda row: row["window"] / MB, lambda row: row["setting"]),
    "systems": ("Systems", "MB a side", lambda row: row["window"] / MB, lambda row: row["setting"]),
}


def plots(run: Run) -> Iterator[Plot]:
    link = of_link(run)
    for part, (title, what, place, group) in FIGURES.items():
        rows = having(run.part(part), "rounds", "contender", "window", needed(part))
        for name in dict.fromkeys(map(group, rows)):
            chosen = [row for row in rows if group(row) == name]
            yield Plot(
                plain(run.name, part, name), "GPU", ", ".join(filter(None, (title, name))),
                "Stream joins of 16-byte tuples on CPU and GPU, answers checked"
                + ("; the line is what the link to the GPU carries." if link else "; this machine has no GPU."),
                Axis(what, log=part != "skew"), SPEED, points(chosen, lambda row: row["contender"], place), line=link,
            )  # fmt: skip
    rows = having(run.part("joins"), "rounds", "window")
    if rows:
        yield Plot(
            plain(run.name, "joins"), "GPU", "StreamJoin on CPU and GPU",
            "Bands over last(n), in large batches; million tuples/s.",
            Axis("rows in the window", powers=True), Axis("million tuples/s"),
            points(rows, joined, lambda row: row["window"], 1e6),
        )  # fmt: skip


def needed(part: str) -> str:
    return {"skew": "zipf", "progress": "batch"}.get(part, "window")


def joined(row: Row) -> str:
    return ", ".join(filter(None, (row["contender"], row.get("setting"))))


def of_link(run: Run) -> tuple[float, str] | None:
    """The best of the copies to the device, from pinned memory."""
    rows = [row for row in having(run.part("link"), "rounds", "contender") if row["rounds"]]
    speeds = [median(row["rounds"]) for row in rows if row["contender"] == "to"]
    return (max(speeds), f"the link, {max(speeds):.0f} GB/s") if speeds else None
