"""How the time of a push divides where cores are processes: `python -m watersmeet.bench.cores.phases`.

For A2 and B (workloads.py), one core and then several, milliseconds of a push: as the clock shows it, by the caller's
phases (engine/cores/clock.py), what a core works in these on average and at most, and what the cores do, on average.
With `--route single` cores are threads: no phases then, but steps.

Answers are not compared here, see `counts.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from watersmeet.bench import workloads
from watersmeet.bench.race import Lane, Ours
from watersmeet.bench.rounds import median
from watersmeet.bench.workloads import SIDES, Workload
from watersmeet.workers import all_cores

JOINS = {"A2": (workloads.a2, "hash"), "B": (workloads.b, "cells")}


@dataclass(frozen=True)
class Spent:
    """What a join has done by now: its pushes, and seconds."""

    pushes: int
    phases: dict[str, float]
    works: list[float]
    steps: dict[str, float]

    @classmethod
    def of(cls, join: Any) -> Spent:
        metrics = join.metrics
        return cls(metrics.pushes, dict(metrics.phases), list(metrics.works), dict(metrics.seconds))

    def since(self, then: Spent) -> dict[str, float]:
        """Milliseconds of a push. `core`: all work of a core on average, `busiest` at most; `core.*`: its steps."""
        pushes, cores = max(self.pushes - then.pushes, 1), max(len(self.works), 1)
        before = then.works or [0.0] * len(self.works)
        works = [now - was for now, was in zip(self.works, before, strict=True)]
        found = {phase: spent - then.phases[phase] for phase, spent in self.phases.items()}
        found |= {"core": sum(works) / cores, "busiest": max(works, default=0.0)}
        found |= {f"core.{step}": (spent - then.steps[step]) / cores for step, spent in self.steps.items()}
        return {name: 1000 * seconds / pushes for name, seconds in found.items()}


def profile(workload: Workload, cores: int, route: str, pairs: int) -> dict[str, float]:
    """Milliseconds of a push by the clock (`push`), and as `Spent.since`."""
    lane = Lane("", "", workload, Ours(workload, cores=cores, route=route))
    lane.fill(2 * workload.window_rows)
    join = lane.contender.join  # type: ignore[attr-defined]

    def push_both() -> list[float]:
        """A batch of either side; how long it took. Results are let go of, as most callers do."""
        batches = [(side, workload.rows(side, lane.position, workload.batch_rows)) for side in SIDES]
        lane.position += workload.batch_rows
        took = []
        for side, batch in batches:
            begin = perf_counter()
            join.push(**{side: batch})
            took.append(perf_counter() - begin)
        return took

    for _ in range(3):
        push_both()
    then = Spent.of(join)
    took = [seconds for _ in range(pairs) for seconds in push_both()]
    found = {"push": 1000 * median(took)} | Spent.of(join).since(then)
    join.__exit__()
    return found


def line(name: str, cores: int, rows: int, spent: dict[str, float]) -> str:
    """Of the phases, and then of the steps."""
    times = {key: f"{value:.2f}" for key, value in spent.items()}
    phases = "  ".join(f"{key} {value}" for key, value in times.items() if "." not in key)
    steps = "  ".join(f"{key.partition('.')[2]} {value}" for key, value in times.items() if "." in key)
    speed = rows / spent["push"] / 1000
    return f"{name}, {cores} cores, batches of {rows:,}: {speed:.1f} M rows/s; ms a push: {phases}\n    a core: {steps}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m watersmeet.bench.cores.phases", description="Time of pushes.")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, all_cores()], help="numbers of cores to try")
    parser.add_argument("--batch", type=int, nargs="+", default=[500_000], help="rows of a push")
    parser.add_argument("--pairs", type=int, default=10, help="pushes of either side")
    parser.add_argument("--route", help="of several cores (default: hash, cells)")
    parser.add_argument("--seconds", type=float, default=10, help="of the window")
    given = parser.parse_args(arguments)
    for name, (make, route) in JOINS.items():
        for batch in given.batch:
            workload = make(batch, seconds=given.seconds)
            for cores in given.cores:
                taken = (given.route or route) if cores > 1 else "single"
                spent = profile(workload, cores, taken, given.pairs)
                print(line(name, cores, batch, spent), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
