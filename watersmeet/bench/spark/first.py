"""How much longer does the first micro-batch of a fresh session take? Part "first" of `watersmeet bench spark`.

The join B, kernels on disk, four micro-batches of 100,000 rows, each round in a new process with a new JVM: the first
against the third. What is between are Spark's own first plan, the JIT of its JVM and the start of Python workers, whose
daemon has been started with the session (spark/local.py). How much of that is Spark's, two pipelines tell that take
turns with the join: one that joins nothing, and one whose joiner does nothing.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench import targets
from watersmeet.bench.rounds import median
from watersmeet.bench.spark.data import answer, part, write
from watersmeet.bench.spark.pipelines import DISCARD, IDENTITY, OURS

if TYPE_CHECKING:
    from watersmeet.bench.spark import OnSpark

FIRST = "first"
JOIN = "B"
BATCH_ROWS = 100_000
BATCHES = 4
ROUNDS = 5  # at least, at full size


def first(bench: OnSpark) -> None:
    """Measure, in several processes."""
    from watersmeet.warm import as_on_spark

    as_on_spark()  # whatever kernels are not on disk yet
    rounds = max(ROUNDS, bench.sizes.rounds) if bench.judged else bench.sizes.rounds
    sizes = replace(bench.sizes, rows=BATCHES * BATCH_ROWS // 2, batch_rows=BATCH_ROWS, memory="2g")
    outcomes: dict[str, list[dict[str, Any]]] = {OURS: [], IDENTITY: [], DISCARD: []}
    with tempfile.TemporaryDirectory(prefix="watersmeet-first-") as folder:
        wanted, data = part(JOIN, sizes.seconds), Path(folder, "data")
        write(wanted, data, sizes.rows, sizes.batch_rows)
        right = answer(wanted, data)
        for _ in range(rounds):
            for contender, found in outcomes.items():
                found.append(bench.measure(JOIN, contender, data, Path(folder, "scratch"), sizes))
                bench.check(JOIN, contender, found[-1], right)
    for contender, found in outcomes.items():
        bench.record(FIRST, contender, found)
        longer = [outcome["batches"][0]["seconds"] - outcome["batches"][2]["seconds"] for outcome in found]
        what = "seconds of the first micro-batch, beyond the third"
        if contender == OURS:
            bench.ratio(FIRST, what, median(longer), targets.FIRST_MICRO_BATCH_S, "<", best=min(longer))
        else:
            bench.ratio(FIRST, f"{what}: {contender}", median(longer), None, "<", best=min(longer))
