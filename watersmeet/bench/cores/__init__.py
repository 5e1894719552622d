"""Joins on many cores, measured: `watersmeet bench cores`, or `python -m watersmeet.bench.cores`.

The second form needs numpy, numba and pyarrow only. Parts are functions that get the run and record rows:

    topologies   SplitJoin, handshake join and low-latency handshake join, by cores and windows   (SplitJoin, fig. 12)
    fan_out      SplitJoin's trees, flat and deep
    windows      SplitJoin over the same windows by number and by time                            (section 7.4)
    ordering     SplitJoin's results without order, in outer and inner order, in pieces           (fig. 19)
    latency      from a tuple's arrival until it meets a partner, and until it is done, by cores  (figs. 13, 15, 18)
    shared       PIM-Trees that threads share, merges that block, Bw-Trees, round-robin           (PIM, figs. 8a, 13c)
    tasks        the first of these by the size of a task                                         (PIM, section 4.1)
    routes       StreamJoin by route and cores
    batches      the same on all cores by the tuples of a batch
    partners     the same by how many a tuple has
    ordered      StreamJoin by the order of its results

A row names its part, setting, window, join cores and contender, and has the tuples/s of all rounds, or latencies;
contenders take turns, and their answers are compared. `run` returns plain data, with what the paper claims held against
it (claims.py), and stores it as JSON; report.py turns it into tables. A quick run shows that everything works:
claims are not judged by it, and neither are they with fewer than eight cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.bench import machine
from watersmeet.bench.cores import shared_parts, topology_parts
from watersmeet.bench.cores.claims import claims
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.plain import command_line
from watersmeet.bench.rounds import Row, median

JUDGED_CORES = 8  # with fewer, the papers' figures say nothing


@dataclass(frozen=True)
class Sizes:
    """How much a run measures."""

    windows: tuple[int, ...] = (1 << 12, 1 << 14, 1 << 16)
    tree_window: int = 1 << 20  # where there is an index
    tree_batch: int = 1 << 15
    tree_batches: tuple[int, ...] = (1 << 12, 1 << 15, 1 << 18)
    partners: tuple[float, ...] = (0.125, 2, 32)
    turn: float = 0.2  # seconds that a contender runs in a round, about
    rounds: int = 3

    def __post_init__(self) -> None:
        check_least("rounds", self.rounds, 1)


FULL = Sizes()
QUICK = Sizes(
    windows=(1 << 8, 1 << 10), tree_window=1 << 14, tree_batch=1 << 12, tree_batches=(1 << 10, 1 << 12), turn=0.01,
    rounds=1,
)  # fmt: skip


class Cores(Bench):
    """A run: what parts measure by, and where they record it."""

    def __init__(self, sizes: Sizes, most: int, judged: bool, say: Callable[[str], None] | None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes
        self.most = most

    @property
    def counts(self) -> list[int]:
        """Join cores to try: all powers of two, all there are, and two fewer, which leaves these to those that feed and
        collect."""
        powers = {1 << i for i in range(self.most.bit_length())}
        return sorted(powers | {self.most, max(self.most - 2, 1)})

    @property
    def many(self) -> int:
        """As many join cores as there are beside those two."""
        return max(self.most - 2, 1)

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
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts; `most` is how many cores to use (default: all of the machine); `say`
    gets a line a measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_least("rounds", rounds, 1)
    check_least("most", most, 1)
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds)
    most = most or machine.cores()
    full = not quick and sizes is None
    bench = Cores(chosen, most, full and JUDGED_CORES <= most <= machine.cores(), say)
    found: list[Row] = []

    def measure() -> None:
        for name, part in PARTS.items():
            if not only or name in only:
                part(bench)
        found.extend(claims(bench.results, bench.judged))

    return bench.report("cores", not full, {"rounds": chosen.rounds, "most": most, "claims": found}, measure, out)


def said(row: Row) -> str:
    """A measurement as a line."""
    setting = f", {row['setting']}" if row["setting"] else ""
    if "tuples_per_s" in row:
        value = f"{median(row['rounds']):,.0f} tuples/s, best {row['tuples_per_s']:,.0f}"
    else:
        middles = {name: median([one["median"] for one in rounds]) for name, rounds in row["latency"].items()}
        value = ", ".join(f"{name} {1e6 * middle:,.0f} us" for name, middle in middles.items())
    return f"{row['part']}{setting}, window {row['window']:,}, {row['cores']} cores: {row['contender']} {value}"


PARTS: dict[str, Callable[[Cores], None]] = {
    "topologies": topology_parts.topologies,
    "fan_out": topology_parts.fan_out,
    "windows": topology_parts.windows,
    "ordering": topology_parts.ordering,
    "latency": topology_parts.latency,
    "shared": shared_parts.shared,
    "tasks": shared_parts.tasks,
    "routes": shared_parts.routes,
    "batches": shared_parts.batches,
    "partners": shared_parts.partners,
    "ordered": shared_parts.ordered,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command where nothing but the engine is installed."""
    size = ("--most", "cores to use (default: all)")
    about = "Measure joins on many cores, as the papers did."
    return command_line("cores", about, PARTS, size, run, lambda most: False, arguments)
