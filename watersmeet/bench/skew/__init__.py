"""Joins of skewed streams, measured: `watersmeet bench skew`, or `python -m watersmeet.bench.skew`.

The second form needs numpy, numba and pyarrow only (all parts but `pipeline`). Parts are functions that get the run and
record rows (STA-Join's figures and tables in brackets):

    balance        the busiest element to the average one, by route, Zipf and elements
    partitioners   load imbalance and aggregation of the paper's partitioners              (figs. 19, 20)
    sketch         ASketch: the true top 32, underestimates, keys/s; beside datasketches
    cores          rows/s on real cores at Zipf 1.5, by hash and by hot_cold, and of uniform keys
    elements       inserts and searches of the busiest element, by rate, elements, window  (figs. 10 to 18, 23, 24,
                   and Zipf; for the queries q3 to q7                                      tables 4 to 7)
    completeness   what is found where elements share their tuples every so often          (figs. 21, 22)
    pipeline       q3 to q7 from and to Kafka on Spark, by route: rows/s and latency       (fig. 9)

A row names its part, setting, elements and contender. `run` returns plain data, with what the paper claims held against
it (claims.py), and stores it as JSON; report.py turns it into tables. Streams are generated (watersmeet/queries).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from watersmeet.bench import machine
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.plain import command_line
from watersmeet.bench.rounds import Row, median
from watersmeet.bench.skew import elements, parts
from watersmeet.bench.skew.claims import claims
from watersmeet.queries import QUERIES

MEASURED = ("q3", "q4", "q5", "q6", "q7")  # q1 and q2 are examples, without an evaluation
JUDGED_CORES = 8


@dataclass(frozen=True)
class Sizes:
    """How much a run measures."""

    exponents: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    sketched: tuple[float, ...] = (0.0, 1.2, 1.5, 2.0)
    rates: tuple[int, ...] = (10_000, 30_000, 50_000)
    elements: tuple[int, ...] = (10, 30, 50)
    many_elements: int = 100
    minutes: tuple[float, ...] = (2, 6, 10)
    draws: int = 1_000_000
    batch: int = 30_000
    pushes: int = 8
    steps: int = 4  # pushes a round
    core_window: int = 500_000  # rows before, and as many after
    core_batch: int = 250_000
    core_partners: int = 2
    completeness_rows: int = 60_000  # in a window
    completeness_s: tuple[float, ...] = (10.0, 60.0)  # windows; the paper's standard is the last
    pipeline_rate: int = 40  # rows of a stream a second of event time
    pipeline_s: int = 150
    rounds: int = 3

    def __post_init__(self) -> None:
        check_least("rounds", self.rounds, 1)


FULL = Sizes()
QUICK = Sizes(
    exponents=(0.0, 1.5), sketched=(1.2,), rates=(200, 400), elements=(10, 20), many_elements=20, minutes=(0.5, 1),
    draws=20_000, batch=2_000, pushes=3, steps=2, core_window=4_000, core_batch=2_000, completeness_rows=2_000,
    completeness_s=(2.0,), pipeline_rate=10, pipeline_s=80, rounds=1,
)  # fmt: skip


class Skew(Bench):
    """A run: what parts measure by, and where they record it."""

    def __init__(
        self, sizes: Sizes, most: int, queries: Sequence[str], servers: str | None, judged: bool,
        say: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        super().__init__(judged, say)
        self.sizes, self.most, self.queries, self.servers = sizes, most, queries, servers

    def record(self, row: Row) -> None:
        self.results.append(row)
        self.say(said(row))


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    out: Path | str | None = None,
    rounds: int | None = None,
    most: int | None = None,
    *,
    query: Sequence[str] | None = None,
    servers: str | None = None,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts, `query` queries; `most` is how many cores the part `cores` uses
    (default: 8, or all of the machine); `servers` a Kafka broker, without which `pipeline` is left out; `say` gets a
    line a measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_names("query", query, QUERIES)
    examples = [name for name in query or () if name not in MEASURED]
    if examples:
        raise ValueError(
            f"query {examples[0]!r} is an example, of which the paper has no figures; measured are "
            f"{', '.join(MEASURED)}. `watersmeet feed {examples[0]}` plays it into Kafka"
        )
    check_least("rounds", rounds, 1)
    check_least("most", most, 1)
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds)
    most = most or min(JUDGED_CORES, machine.cores())
    full = not quick and sizes is None
    queries = list(query or MEASURED)
    bench = Skew(chosen, most, queries, servers or os.environ.get("BROKER"), full, say)
    if not JUDGED_CORES <= most <= machine.cores():
        bench.skipped["targets of real cores"] = f"they are for {JUDGED_CORES} cores"
    found: list[Row] = []

    def measure() -> None:
        for name, part in PARTS.items():
            if not only or name in only:
                part(bench)
        if not JUDGED_CORES <= most <= machine.cores():
            for row in bench.ratios:
                if row["workload"] == "cores":
                    row |= {"target": None, "ok": None}
        found.extend(claims(bench.results, bench.judged))

    about = {"rounds": chosen.rounds, "most": most, "queries": queries, "claims": found}
    return bench.report("skew", not full, about, measure, out)


def said(row: Row) -> str:
    """A measurement as a line."""
    words = []
    if "rounds" in row:
        words.append(f"{median(row['rounds']):,.0f} tuples/s, best {max(row['rounds']):,.0f}")
    if "insert_rounds" in row:
        words += [f"{what} {median(row[f'{what}_rounds']):,.0f} tuples/s" for what in ("insert", "search")]
    for name in ("stored", "probes", "visits", "imbalance", "aggregated", "complete", "top", "batch_s"):
        if name in row:
            words.append(f"{name} {row[name]:.3g}")
    return f"{row['part']}, {row['setting']}, {row['elements']} elements: {row['contender']} {', '.join(words)}"


def pipeline(bench: Skew) -> None:
    """Imported here: it needs Spark."""
    if bench.servers is None:
        bench.skipped["pipeline"] = "it needs a Kafka broker: --servers, or BROKER"
        return
    from watersmeet.bench.skew.pipeline import pipeline as measure

    measure(bench)


PARTS: dict[str, Callable[[Skew], None]] = {
    "balance": parts.balance,
    "partitioners": parts.partitioners,
    "sketch": parts.sketch,
    "cores": parts.cores,
    "elements": elements.elements,
    "completeness": parts.completeness,
    "pipeline": pipeline,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command where nothing but the engine is installed."""
    size = ("--most", "cores to use (default: 8)")
    about = "Measure joins of skewed streams, as the paper did. --query q3 (may be repeated) measures only this query."
    queries = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    queries.add_argument("--query", action="append")
    given, rest = queries.parse_known_args(arguments)
    return command_line("skew", about, PARTS, size, partial(run, query=given.query), lambda most: False, rest)
