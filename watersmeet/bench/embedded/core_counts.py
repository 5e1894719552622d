"""The part `cores` of `watersmeet bench embedded`: the same joins on one core, two, four, ... as many as there are.

A2 and B with full rows out, and a band over last(2^20) with positions out: as processes, and as threads of one
(`single`). Beside speeds, milliseconds of a push by phase (bench/cores/phases.py). All answers are compared.

Targets of 8 and 16 cores are judged where there are as many; else the report says that they were skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from watersmeet.bench import targets, workloads
from watersmeet.bench.cores.phases import JOINS, Spent
from watersmeet.bench.race import Lane, Ours
from watersmeet.bench.workloads import Workload
from watersmeet.workers import all_cores

if TYPE_CHECKING:
    from watersmeet.bench.embedded import Embedded

Forms = dict[str, dict[str, Any]]


def counts_to_try(cores: int) -> list[int]:
    """Powers of two, and all there are."""
    return [1 << i for i in range(cores.bit_length()) if 1 << i < cores] + [cores]


def races(bench: Embedded) -> Iterator[tuple[Workload, tuple[str, ...]]]:
    """What is joined, and by which routes."""
    sizes = bench.sizes
    for make, route in JOINS.values():
        for batch in sizes.batches[1:]:
            yield make(batch, seconds=sizes.seconds), (route, "single")
    window = targets.CORES_WINDOW if targets.CORES_WINDOW in sizes.windows else sizes.windows[-1]
    batch = targets.LAST_BATCH if targets.LAST_BATCH in sizes.last_batches else sizes.last_batches[-1]
    yield workloads.band_last(window, batch), ("cells", "single")


def measure(bench: Embedded, most: int) -> None:
    """On up to `most` cores."""
    counts = counts_to_try(most)
    judged = [count for count in counts if count <= all_cores()]
    for workload, routes in races(bench):
        forms: Forms = {"1": {"cores": 1}}
        for route in routes:
            forms |= {f"{count}, {route}": {"cores": count, "route": route} for count in counts[1:]}
        one, *more = bench.among_ourselves("cores", workload, forms, Phased)
        for count in counts[1:]:
            goal = targets.CORES.get((count, *kind_of(workload))) if count in judged else None
            many = max((lane for lane in more if lane.form.startswith(f"{count},")), key=lambda lane: lane.median)
            bench.ratio(
                "cores", f"{workload.name}, one core: {many.form}", many.median / one.median, goal,
                best=many.speed / one.speed, window=workload.window_rows, batch=workload.batch_rows,
            )  # fmt: skip
    for count in sorted({count for count, *_ in targets.CORES} - set(judged)):
        bench.skipped[f"targets of {count} cores"] = f"it ran on {min(most, all_cores())}"


def kind_of(workload: Workload) -> tuple[str, int]:
    """By which its targets are known."""
    return ("rows" if workload.spacing_us else "positions"), workload.batch_rows


class Phased(Lane):
    """A lane that also tells how the time of its pushes divides."""

    def fill(self, rows: int, batch_rows: int | None = None) -> None:
        super().fill(rows, batch_rows)
        self.filled = self.spent()

    def spent(self) -> Spent:
        assert isinstance(self.contender, Ours)
        return Spent.of(self.contender.join)

    def result(self) -> dict[str, Any]:
        return super().result() | {"milliseconds": self.spent().since(self.filled)}
