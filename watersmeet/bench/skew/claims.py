"""What the paper of STA-Join says in its tables 4 to 7 and figures 10 to 24, and what `watersmeet bench skew` says.

As in bench/claims.py: claims are given, and judged, by the medians of the rounds, with the best beside them, and hold
if they do give or take a tenth. The paper's figures are of Apache Storm on ten machines; ours are of single elements
without the network between them (elements.py), so what they can show is the work of an index and the share of an
element, not messages. Where the paper's text and its tables differ, the figure is the table's.

Its code archive is empty. It leaves open the thresholds of Q2 and Q6, how many keys its data have, which of R and S a
rate counts, what the windows of figures 21 and 22 are, and how hot tuples expire; elements.py, queries/data.py and
queries/query.py say what we chose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from watersmeet.bench.claims import NO, PART, TOLERANCE, YES, Claims, Row, claim, mean, percent, times, with_best
from watersmeet.bench.rounds import median

BASELINES = ("PIM", "chained index", "split", "broadcast")
HOT, COLD, STA = "hot", "cold", "STA"
#: Where, query, operation, whose, what varies, its value, the paper's ratios to PIM, CI, SJ, BCHJ (None: not given).
#: Settings are the first and the last of each kind that a run has: 10K and 50K tuples/s, 10 and 50 elements, 2 and 10
#: minutes; the paper's figures 14b, 14d, 15b and 15d have 1 or 2, and 5.
RATIOS: tuple[tuple[str, str, str, str, str, int, tuple[float | None, ...]], ...] = (
    ("fig. 10a", "q3", "insert", COLD, "rate", 0, (7, 6.2, 7.2, 7.3)),
    ("fig. 10a", "q3", "insert", HOT, "rate", 0, (2.09, 2.31, 2.39, 1.21)),
    ("fig. 10a", "q3", "insert", COLD, "rate", -1, (3, 2.8, 5, 5.9)),
    ("fig. 10b", "q3", "insert", COLD, "elements", 0, (3, 3.2, 12, 6)),
    ("fig. 10b", "q3", "insert", COLD, "elements", -1, (4.2, 4, 7.2, 7)),
    ("fig. 10c", "q3", "insert", COLD, "minutes", -1, (3.5, 2.6, 1.4, 2.2)),
    ("fig. 11a", "q3", "search", COLD, "rate", -1, (4, 3, 5, 5.8)),
    ("fig. 11a", "q3", "search", HOT, "rate", -1, (1.03, None, 1.74, 2.75)),
    ("fig. 11b", "q3", "search", COLD, "elements", -1, (4.5, 4, 6.3, 7)),
    ("fig. 11b", "q3", "search", HOT, "elements", -1, (1.6, 1.2, 7.7, 7.8)),
    ("fig. 11c", "q3", "search", COLD, "minutes", -1, (3, 4, 1.6, 4)),
    ("fig. 11c", "q3", "search", HOT, "minutes", -1, (1.5, 2.67, 2.2, 2.4)),
    ("table 4", "q3", "insert_ms", HOT, "rate", 0, (3.1, 60.7, 104, 126)),
    ("table 4", "q3", "search_ms", HOT, "rate", 0, (3.1, 3.4, 7.5, 9.1)),
    ("table 4", "q3", "insert_ms", HOT, "elements", -1, (3.1, 75, 801, 1341)),
    ("table 4", "q3", "search_ms", HOT, "elements", -1, (18.8, 1.9, 25, 43)),
    ("fig. 12a", "q4", "insert", COLD, "rate", 0, (18, 48, 1.8, 2.06)),
    ("fig. 12a", "q4", "insert", COLD, "rate", -1, (7.2, 19, 2.2, 1.6)),
    ("fig. 12b", "q4", "insert", COLD, "elements", -1, (5.9, 7.5, 6.7, 2.6)),
    ("fig. 12c", "q4", "insert", COLD, "minutes", -1, (8.1, 13, 1.5, 1.6)),
    ("fig. 13a", "q4", "search", STA, "rate", 0, (5.5, 15, 5.74, 5.17)),
    ("fig. 13a", "q4", "search", STA, "rate", -1, (6.2, 24, 25, 17)),
    ("fig. 13b", "q4", "search", STA, "elements", -1, (3.5, 3.2, 15.5, 20.4)),
    ("fig. 13c", "q4", "search", STA, "minutes", -1, (13, 2.5, 1.4, 3.43)),
    ("table 5", "q4", "insert_ms", HOT, "rate", 0, (5.3, 16.2, 2, 1.1)),
    ("table 5", "q4", "search_ms", HOT, "rate", 0, (4.1, 2.1, 0.45, 0.54)),
    ("fig. 14a", "q5", "insert", STA, "rate", 0, (1.4, 3.1)),
    ("fig. 14b", "q5", "insert", STA, "minutes", 0, (1.2, 1.4)),
    ("fig. 14b", "q5", "insert", STA, "minutes", -1, (1.3, 1.8)),
    ("fig. 14c", "q5", "search", STA, "rate", 0, (3, 9)),
    ("fig. 14c", "q5", "search", STA, "rate", -1, (4, 3)),
    ("fig. 14d", "q5", "search", STA, "minutes", 0, (4, 1.8)),
    ("fig. 14d", "q5", "search", STA, "minutes", -1, (7.3, 1.2)),
    ("table 6", "q5", "insert_ms", HOT, "rate", 0, (36, 136)),
    ("table 6", "q5", "search_ms", HOT, "rate", 0, (125, 1770)),
    ("fig. 15a", "q6", "insert", COLD, "elements", 0, (7.6, 4.4)),
    ("fig. 15a", "q6", "insert", COLD, "elements", -1, (10, 11.6)),
    ("fig. 15b", "q6", "insert", COLD, "minutes", 0, (12.8, 13.4)),
    ("fig. 15c", "q6", "search", HOT, "elements", 0, (3.4, 2.6)),
    ("fig. 15c", "q6", "search", HOT, "elements", -1, (2.9, 11.4)),
    ("fig. 15d", "q6", "search", HOT, "minutes", 0, (4.8, 3.5)),
    ("fig. 15d", "q6", "search", HOT, "minutes", -1, (3.4, 2.8)),
    ("table 7", "q6", "insert_ms", HOT, "elements", 0, (19, 2176)),
    ("table 7", "q6", "search_ms", HOT, "elements", 0, (273, 194)),
)
#: The same of q7, by Zipf instead: figures 16 (insert and search), 17 and 18.
ZIPF_RATIOS: tuple[tuple[str, str, str, float, int, tuple[float | None, ...]], ...] = (
    ("fig. 16a", "both", HOT, 1.0, 0, (2.3, 2.05)),
    ("fig. 16a", "both", COLD, 1.0, 0, (1.3, 1.7)),
    ("fig. 16b", "both", HOT, 1.5, 0, (1.8, 1.03)),
    ("fig. 16b", "both", COLD, 1.5, 0, (3, 1.5)),
    ("fig. 16c", "both", HOT, 2.0, 0, (4.5, 3.8)),
    ("fig. 16c", "both", HOT, 2.0, -1, (2.9, 1.5)),
    ("fig. 17a", "insert_ms", HOT, 1.0, 0, (39, 1075)),
    ("fig. 17b", "insert_ms", HOT, 1.5, -1, (16, 627)),
    ("fig. 18a", "search_ms", HOT, 1.0, -1, (8.4, 19.7)),
    ("fig. 18b", "search_ms", HOT, 1.5, -1, (8.2, 9.3)),
    ("fig. 18c", "search_ms", HOT, 2.0, -1, (22, 16)),
)
#: How a full run's settings read, first and last; where there is no run yet.
FULL = {
    "rate": ("10,000/s", "50,000/s"), "elements": ("10 elements", "50 elements"), "minutes": ("2 min", "10 min"),
    "zipf": ("10,000/s", "30,000/s"),
}  # fmt: skip
SAID = {
    "insert": "tuples/s inserted", "search": "tuples/s searched", "both": "tuples/s inserted and searched",
    "insert_ms": "longest insert", "search_ms": "longest search",
}  # fmt: skip


#: The library's own route, among those whose elements are counted.
ROUTE = "route sta"


def claims(results: list[Row], judged: bool = True) -> list[Row]:
    """What the paper says, and what these results say; not judged where sizes are not the paper's. Where results say
    nothing, those of single elements are there all the same, without figures."""
    return with_best(_claims(Found(results, median)), _claims(Found(results, max)), judged)


class Found:
    """The results of a run by what they are of; which of the rounds counts is the caller's to say."""

    def __init__(self, results: list[Row], of: Callable[[Sequence[float]], float]) -> None:
        self.results, self.of = results, of

    def rows(self, part: str, **wanted: Any) -> list[Row]:
        return [
            row for row in self.results
            if row["part"] == part and all(row.get(name) == value for name, value in wanted.items())
        ]  # fmt: skip

    def value(self, row: Row, operation: str) -> float:
        """Tuples/s, or one by milliseconds: more is better."""
        if operation.endswith("_ms"):
            return 1 / max(row[operation], 1e-6)
        if operation == "both":
            return 1 / sum(1 / self.of(row[f"{one}_rounds"]) for one in ("insert", "search"))
        return self.of(row[f"{operation}_rounds"])

    def sta(self, rows: dict[str, Row], whose: str, operation: str) -> float:
        """Of hot or of cold elements, or of those that are slower."""
        both = {one: self.value(rows[f"STA, {one}"], operation) for one in (HOT, COLD)}
        return min(both.values()) if whose == STA else both[whose]


def _claims(found: Found) -> Claims:
    yield from _ratios(found)
    yield from _partitioners(found)
    yield from _completeness(found)
    yield from _totals(found)
    yield from _ours(found)


def _ratios(found: Found) -> Claims:
    for where, query, operation, whose, varies, which, paper in RATIOS:
        rows, text = _setting(found, query, varies, which)
        yield _ratio(found, where, f"{query}, {text}", rows, operation, whose, paper)
    for where, operation, whose, zipf, which, paper in ZIPF_RATIOS:
        rows, text = _setting(found, "q7", "rate", which, zipf)
        yield _ratio(found, where, f"q7, Zipf {zipf:g}, {text}", rows, operation, whose, paper)


def _setting(
    found: Found, query: str, varies: str, which: int, zipf: float | None = None
) -> tuple[dict[str, Row], str]:
    """Rows by contender, where one thing has its first or last value, and the others their first."""
    rows = found.rows("elements", query=query, zipf=zipf)
    if not rows:
        return {}, FULL[varies][which] if zipf is None else FULL["zipf"][which]
    wanted = {name: min(row[name] for row in rows) for name in ("rate", "elements", "minutes")}
    if which:
        wanted[varies] = max(row[varies] for row in rows)
    units = {"rate": "{:,}/s", "elements": "{} elements", "minutes": "{:g} min"}
    text = units[varies].format(wanted[varies])
    return {row["contender"]: row for row in rows if all(row[name] == value for name, value in wanted.items())}, text


def _ratio(
    found: Found, where: str, text: str, rows: dict[str, Row], operation: str, whose: str,
    paper: tuple[float | None, ...],
) -> Row:  # fmt: skip
    wanted = {name: factor for name, factor in zip(BASELINES, paper) if factor is not None}
    ratios = {}
    if rows:
        ours = found.sta(rows, whose, operation)
        ratios = {name: ours / found.value(rows[name], operation) for name in wanted}
    better = "shorter than" if operation.endswith("_ms") else "over"
    says = f"{where}: STA's {'' if whose == STA else whose + ' '}elements, {SAID[operation]} {better} others', {text}"
    return {
        "row": "T6", "claim": says, "values": list(ratios.values()), "low": None, "high": None,
        "paper": ", ".join(f"{name} {times(value)}" for name, value in wanted.items()),
        "ours": ", ".join(f"{name} {times(value)}" for name, value in ratios.items()) or None,
        "holds": _verdict([ratios[name] / wanted[name] for name in wanted], list(ratios.values())) if ratios else None,
    }  # fmt: skip


def _verdict(shares: list[float], ratios: list[float]) -> str:
    """`shares`: ours of the paper's ratios."""
    if all(share >= 1 - TOLERANCE for share in shares):
        return YES
    return PART if all(ratio > 1 for ratio in ratios) or any(share >= 1 - TOLERANCE for share in shares) else NO


def _partitioners(found: Found) -> Claims:
    rows = found.rows("partitioners")
    if not rows:
        return
    few, many = min(row["elements"] for row in rows), max(row["elements"] for row in rows)

    def of(name: str, elements: int, what: str, least: float = 0.0) -> list[float]:
        return [row[what] for row in rows
                if (row["contender"], row["elements"]) == (name, elements) and row["zipf"] >= least]  # fmt: skip

    skewed = [a / b for a, b in zip(of("hash", few, "imbalance", 1.0), of("random", few, "imbalance", 1.0))]
    if skewed:
        says = f"fig. 19: load imbalance of hash over that of random partitioning, Zipf 1 and more, {few} elements"
        yield claim("T6", says, "more than 2x", skewed, low=2.0)
    stable = of("random", few, "imbalance")
    says = f"fig. 19: imbalance of random partitioning, greatest over least Zipf, {few} elements"
    yield claim("T6", says, "stable", [max(stable) / min(stable)], high=1.5)
    used = [value / many for value in of("round robin", many, "aggregated")]
    says = f"fig. 20: elements that hold 1,000 tuples, round robin, of {many}"
    yield claim("T6", says, "all", used, low=1.0, show=percent)
    used = [value / many for value in of("random", many, "aggregated")]
    yield claim(
        "T6", f"fig. 20: the same by random partitioning, of {many}", "almost 60%", used, high=0.6, show=percent
    )
    used = [value / many for value in of("sta", many, "aggregated", 1.0)]
    if used:
        says = f"fig. 20: the same by STA's, hot keys apart, Zipf 1 and more, of {many}"
        yield claim("T6", says, "almost 60%", used, high=0.6, show=percent)


def _completeness(found: Found) -> Claims:
    every = found.rows("completeness")
    rows = [row for row in every if row["contender"] != ROUTE]
    if not rows:
        return
    settings = sorted({(row["elements"], row["sync"], row["window_s"]) for row in rows})
    for elements, sync, window in settings:
        part = [row for row in rows if (row["elements"], row["sync"], row["window_s"]) == (elements, sync, window)]
        of = {(row["contender"], row["zipf"]): row["complete"] for row in part}
        zipfs = sorted({row["zipf"] for row in part})
        figure = "fig. 21" if elements == min(one[0] for one in settings) else "fig. 22"
        text = f"{elements} elements, sync {sync:g} s, window {window:g} s"
        judged = window == max(one[2] for one in settings)  # the standard of section 4.4; others only show how it goes
        if figure == "fig. 21":
            least = of["chained index", zipfs[0]]
            says = f"{figure}: completeness of a chained index, Zipf {zipfs[0]:g}, {text}"
            exactly = 0.29 if judged else None
            yield claim("T3", says, "29%", [least], low=exactly, high=exactly, show=percent)
            says = f"{figure}: completeness of STA, Zipf {zipfs[-1]:g}, {text}"
            low = 1.0 if judged else None
            yield claim("T3", says, "approaches 100%", [of["sta", zipfs[-1]]], low=low, show=percent)
        ratios = [of["sta", zipf] / max(of["chained index", zipf], 1e-9) for zipf in zipfs]
        says = f"{figure}: completeness of STA over a chained index's, all Zipf, {text}"
        row = claim("T3", says, "1.5x" if figure == "fig. 21" else "1.5x to 2x", ratios, low=1.5 if judged else None)
        if row["holds"] == PART and max(ratios) < 1.5 * (1 - TOLERANCE):
            row["holds"] = NO  # a hair above 1 is no part of 1.5
        yield row
    by_route = [row for row in every if row["contender"] == ROUTE]
    for elements, sync, window in sorted({(row["elements"], row["sync"], row["window_s"]) for row in by_route}):
        shares = [
            row["complete"] for row in by_route
            if (row["elements"], row["sync"], row["window_s"]) == (elements, sync, window)
        ]  # fmt: skip
        says = f"completeness of route sta itself, all Zipf, {elements} elements, sync {sync:g} s of {window:g} s"
        low = None if sync else 1.0
        yield claim("T3", says, "-" if sync else "ours: exact", shares, low=low, show=percent)


def _totals(found: Found) -> Claims:
    merges = [row["merge_s"] for row in found.rows("elements", contender="PIM")]
    if merges:
        says = "fig. 23: seconds to merge a sixth of the window into a PIM-Tree, all settings"
        yield claim("T6", says, "1.3 to 6.5 s, waiting included", merges, show=lambda value: f"{value:.2g} s")
    paper = {"q3": 2.9, "q4": 3.5, "q5": 3.2, "q6": 2.09}
    for query, factor in paper.items():
        rows = _setting(found, query, "rate", 0)[0]
        if rows:
            ours = found.sta(rows, STA, "both")
            others = [found.value(rows[name], "both") for name in ("chained index", "split")]
            says = f"fig. 24: insert and search of {query}, STA over the mean of chained index and split"
            yield claim("T6", says, times(factor), [ours / mean(others)], low=factor)


def _ours(found: Found) -> Claims:
    for query in ("q3", "q4", "q5", "q6"):
        rows = _setting(found, query, "rate", 0)[0]
        if rows:
            ours = found.value(rows["hot_cold"], "both") / found.sta(rows, STA, "both")
            yield claim("T2", f"insert and search of {query}, route hot_cold over STA (ours, exact)", "-", [ours])
    timed = found.rows("cores", setting="rows")
    of = {row["contender"]: found.of(row["rounds"]) for row in timed}
    if of:
        ours = of["Zipf 1.5, hot_cold"]
        cores = timed[0]["elements"]
        says = f"rows/s of hot_cold over hash, Zipf 1.5, {cores} cores"
        yield claim("T2", says, "ours: at least 3x", [ours / of["Zipf 1.5, hash"]], low=3.0)
        says = f"rows/s of hot_cold at Zipf 1.5, to hash with uniform keys and as many results, {cores} cores"
        yield claim("T2", says, "ours: at least 70%", [ours / of["uniform, hash"]], low=0.7, show=percent)
    for row in found.rows("balance", elements=8, zipf=1.5, join="equality", contender="hot_cold"):
        values = [row["stored"], row["probes"]]
        says = "the busiest of 8 cores to the average, tuples stored and probes, hot_cold, Zipf 1.5"
        yield claim("T2", says, "ours: at most 1.2x", values, high=1.2)
    tops = [row["top"] for row in found.rows("sketch", contender="ASketch") if row["zipf"] >= 1.2]
    if tops and not any(map(math.isnan, tops)):
        yield claim(
            "T1", "the true top 32 that ASketch has, Zipf 1.2 and more", "ours: 95%", tops, low=0.95, show=percent
        )
