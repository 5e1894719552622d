"""What do hot keys cost? Part "skew" of `watersmeet bench spark`: an equality, keys as in Zipf's law and uniform ones.

    Z     Zipf 1.5 over 10,000 keys, within 0.2 ms     about 2 matches for an arriving row: 38% have the same key
    U     uniform over 10,000 keys, within 0.4 s       about 2: as many rows in, as many results

With as many partitions as cores, and with four times as many, Z by `hash` and by `hot_cold` against U by `hash`, in
turns: the median of warm micro-batches.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench import targets
from watersmeet.bench.rounds import median
from watersmeet.bench.spark.data import answer, part, write
from watersmeet.bench.spark.pipelines import OURS

if TYPE_CHECKING:
    from watersmeet.bench.spark import OnSpark

SKEW = "skew"
RUNS = (("U", "hash"), ("Z", "hash"), ("Z", "hot_cold"))  # stream, route
MORE = 4  # times as many partitions as cores


def skew(bench: OnSpark) -> None:
    """Measure, in turns."""
    sizes = replace(bench.sizes, rows=bench.sizes.rows // 2)
    counts = (sizes.cores, MORE * sizes.cores)
    found: dict[tuple[int, str, str], list[dict[str, Any]]] = {(n, *run): [] for n in counts for run in RUNS}
    with tempfile.TemporaryDirectory(prefix="watersmeet-skew-") as folder:
        data, right = {}, {}
        for name in dict.fromkeys(name for name, _ in RUNS):
            wanted, data[name] = part(name, sizes.seconds), Path(folder, name)
            write(wanted, data[name], sizes.rows, sizes.batch_rows)
            right[name] = answer(wanted, data[name])
            each = right[name].rows / sizes.rows / 2
            bench.say(f"{SKEW}, {name}: {2 * sizes.rows:,} rows in, {right[name].rows:,} results ({each:.2f} a row)")
        for _ in range(sizes.rounds):
            for (partitions, name, route), outcomes in found.items():
                scratch = Path(folder, "scratch")
                outcomes.append(bench.measure(name, OURS, data[name], scratch, sizes, partitions, route))
                bench.check(name, OURS, outcomes[-1], right[name])
    seconds = {}
    for (partitions, name, route), outcomes in found.items():
        bench.record(SKEW, f"{OURS}, {name}, {route}, {partitions} partitions", outcomes)
        warm = [batch["seconds"] for one in outcomes for batch in one["batches"][1:] if batch["rows"]]
        seconds[partitions, name, route] = warm
    for (partitions, name, route), warm in seconds.items():
        if name == "Z":
            even = seconds[partitions, *RUNS[0]]
            bench.ratio(
                SKEW, f"a micro-batch of Zipf 1.5 by {route}, of uniform keys: {partitions} partitions",
                median(warm) / median(even), targets.SKEWED_MICRO_BATCH if route == "hot_cold" else None, "<",
                min(warm) / min(even),
            )  # fmt: skip
