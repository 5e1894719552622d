"""Plots of `watersmeet bench skew`: load by core, speed by skew, what each query reaches."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.bench.plots.plot import Axis, Plot, Row, distinct, having, plain, points, single, spread
from watersmeet.bench.plots.runs import Run

ZIPF = Axis("Zipf exponent", log=False)
NAMES = Axis("", names=True)


def plots(run: Run) -> Iterator[Plot]:
    yield from balance(run)
    rows = having(run.part("cores"), "rounds", "contender", "setting")
    if rows:
        yield Plot(
            plain(run.name, "cores"), "Skew", "Skewed keys on real cores",
            f"Rows/s of an equality on {rows[0].get('elements', '?')} cores, by keys, route and output.",
            NAMES, Axis("million rows/s", log=False),
            points(rows, lambda row: row["setting"], lambda row: row["contender"], 1e6), kind="bars",
        )  # fmt: skip
    rows = having(run.part("sketch"), "zipf", "rounds", "contender")
    if rows:
        yield Plot(
            plain(run.name, "sketch"), "Skew", "Counting keys",
            "Keys a second of sketches that find hot keys, one core.",
            ZIPF, Axis("million keys/s"), points(rows, contender, lambda row: row["zipf"], 1e6),
        )  # fmt: skip
    yield from elements(run)
    rows = having(run.part("completeness"), "zipf", "complete", "contender", "sync", "window_s")
    for window, sync in dict.fromkeys((row["window_s"], row["sync"]) for row in rows):
        made = [
            single(row["contender"], row["zipf"], 100 * row["complete"])
            for row in rows
            if (row["window_s"], row["sync"]) == (window, sync)
        ]
        yield Plot(
            plain(run.name, "completeness", f"{window:g}", f"{sync:g}"), "Skew",
            f"Found, sharing every {sync:g} s of {window:g} s",
            "Results found where elements share their tuples every so often only; a mode that has to be asked for.",
            ZIPF, Axis("percent of all results", log=False), made,
        )  # fmt: skip
    rows = having(run.part("pipeline"), "rounds", "contender", "query")
    if rows:
        yield Plot(
            plain(run.name, "pipeline"), "Skew", "From Kafka to Kafka on Spark",
            "Rows/s of the paper's queries, by route.",
            NAMES, Axis("rows/s", log=False), points(rows, contender, lambda row: row["query"]), kind="bars",
        )  # fmt: skip


def contender(row: Row) -> str:
    return row["contender"]


def balance(run: Run) -> Iterator[Plot]:
    """The busiest core to the average one: by skew, and by number of cores where keys are most skewed."""
    rows = having(run.part("balance"), "zipf", "stored", "contender", "elements", "join")
    for join in distinct(rows, "join"):
        mine = [row for row in rows if row["join"] == join]
        fixed = max(distinct(mine, "elements"), key=lambda n: sum(row["elements"] == n for row in mine))
        chosen = [row for row in mine if row["elements"] == fixed]
        yield Plot(
            plain(run.name, "balance", join), "Skew", f"Load of the busiest of {fixed} cores, {join}",
            "Tuples that the busiest core holds, to the average core's; 1 is even. Keys by Zipf's law.",
            ZIPF, Axis("busiest / average", log=False),
            [single(row["contender"], row["zipf"], row["stored"]) for row in chosen], line=(1.0, "even"),
        )  # fmt: skip
    rows = having(run.results, "loads", "contender", "zipf")
    for zipf in distinct(rows, "zipf"):
        made = [
            single(row["contender"], f"core {core}", load / (sum(row["loads"]) / len(row["loads"]) or 1))
            for row in rows
            if row["zipf"] == zipf
            for core, load in enumerate(row["loads"])
        ]
        yield Plot(
            plain(run.name, "loads", f"{zipf:g}"), "Skew", f"Load by core, Zipf {zipf:g}",
            "Tuples that each core holds, of what an average core does.",
            NAMES, Axis("of the average", log=False), made, kind="bars", line=(1.0, "average"),
        )  # fmt: skip


def elements(run: Run) -> Iterator[Plot]:
    """What the busiest element can insert and search, in the first setting of each query."""
    rows = having(run.part("elements"), "query", "insert_rounds", "search_rounds", "setting", "contender")
    first = {row["query"]: (row["setting"], row.get("elements")) for row in reversed(rows)}
    chosen = [row for row in rows if first[row["query"]] == (row["setting"], row.get("elements"))]
    for what in ("insert", "search"):
        if chosen:
            yield Plot(
                plain(run.name, "elements", what), "Skew", f"What the busiest element can {what}",
                "1,000 tuples/s by query and strategy, in the least of the settings.", NAMES, Axis("1,000 tuples/s"),
                [spread(row["contender"], row["query"], row[f"{what}_rounds"], 1e3) for row in chosen], kind="bars",
            )  # fmt: skip
