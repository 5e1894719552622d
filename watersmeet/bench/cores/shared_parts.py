"""The parts of `watersmeet bench cores` about indexes that threads share, and about the routes of a StreamJoin.

    shared    PIM-Trees that all threads share, merged beside their work or between steps; Bw-Trees that all share,
              without locks (bw_tree/); and round-robin partitioning: every thread has trees of its own, in which it
              stores every k-th tuple, and looks up all
    tasks     the same by the size of a task
    routes    StreamJoin by route and cores
    batches   the same on all cores by the tuples of a batch
    partners  the same by how many a tuple has
    ordered   StreamJoin by the order of its results

All join two streams of uniform keys on a band with two partners a tuple, where nothing else is said, over last(window),
batches of both in turn, as PIM's evaluation does. The first two run the kernel alone and count; the others are whole
joins, positions out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.cores.bw_tree.join import BwWindows
from watersmeet.bench.cores.bw_tree.tree import BwTree
from watersmeet.bench.cores.bw_tree.work import View, work
from watersmeet.bench.rounds import Row
from watersmeet.engine.tasks import TASK_ROWS, Step, Tasks
from watersmeet.index.base import BY_ROW
from watersmeet.index.trees.shared_kernels import Lane
from watersmeet.index.trees.shared_tree import Coming, SharedPIMTree, SharedTree
from watersmeet.query.windows import SIDES, Side
from watersmeet.workers import ALONE, Workers

if TYPE_CHECKING:
    from watersmeet.bench.cores import Cores

PARTNERS = 2
REACH = 2
STEPS = 8  # of a round
_NONE = np.zeros(0, np.int64)


class Contender(Protocol):
    def push(self, left: np.ndarray, right: np.ndarray) -> int:
        """Join a batch of keys of each side; says how many results there are."""

    def close(self) -> None: ...


def shared(bench: Cores) -> None:
    for cores in bench.counts:
        race(bench, "shared", cores, {
            "shared": lambda cores=cores: Shared(bench, cores),
            "blocking merge": lambda cores=cores: Shared(bench, cores, blocking=True),
            "Bw-Tree": lambda cores=cores: LatchFree(bench, cores),
            "round-robin": lambda cores=cores: RoundRobin(bench, cores),
        })  # fmt: skip


def tasks(bench: Cores) -> None:
    sizes = (16, 64, 256, 1024, 4096)
    race(bench, "tasks", bench.most, {
        f"{rows} tuples": lambda rows=rows: Shared(bench, bench.most, task_rows=rows) for rows in sizes
    })  # fmt: skip


def routes(bench: Cores) -> None:
    for cores in bench.counts:
        race(bench, "routes", cores, by_route(bench, cores))


def batches(bench: Cores) -> None:
    for rows in bench.sizes.tree_batches:
        race(bench, "batches", bench.most, by_route(bench, bench.most), f"batches of {rows:,}", batch=rows)


def partners(bench: Cores) -> None:
    for number in bench.sizes.partners:
        race(bench, "partners", bench.most, by_route(bench, bench.most), f"{number:g} partners", partners=number)


def by_route(bench: Cores, cores: int) -> dict[str, Callable[..., Contender]]:
    names = ("single", "shared", "cells", "split") if cores > 1 else ("single", "shared")
    return {name: lambda name=name: Joined(bench, route=name, cores=cores) for name in names}


def ordered(bench: Cores) -> None:
    for cores in sorted({1, bench.most}):
        route = "single" if cores == 1 else "shared"
        race(bench, "ordered", cores, {
            order: lambda order=order, cores=cores, route=route: Joined(bench, route=route, cores=cores, order=order)
            for order in ("none", "outer", "inner")
        })  # fmt: skip


def race(
    bench: Cores, part: str, cores: int, contenders: dict[str, Callable[..., Contender]], setting: str = "",
    batch: int | None = None, partners: float = PARTNERS,
) -> None:  # fmt: skip
    """Rounds of all contenders, in turn; a row each."""
    window, batch = bench.sizes.tree_window, batch or bench.sizes.tree_batch
    domain = round(window * (2 * REACH + 1) / partners)
    lanes = {name: make() for name, make in contenders.items()}
    speeds: dict[str, list[float]] = {name: [] for name in lanes}
    found: dict[str, list[int]] = {name: [] for name in lanes}
    rng = np.random.default_rng(1)
    try:
        filling = [rng.integers(0, domain, (2, batch)) for _ in range(window // batch + STEPS)]
        for name, lane in lanes.items():
            found[name] += [lane.push(*both) for both in filling]
        for _ in range(bench.sizes.rounds):
            steps = [rng.integers(0, domain, (2, batch)) for _ in range(STEPS)]
            for name, lane in lanes.items():
                begin = perf_counter()
                found[name] += [lane.push(*both) for both in steps]
                speeds[name].append(2 * batch * STEPS / (perf_counter() - begin))
    finally:
        for lane in lanes.values():
            lane.close()
    first = next(iter(found))
    for name, counts in found.items():
        if counts != found[first]:
            raise AnswersDiffer(f"{part}, {cores} cores: {first} gives {found[first]} results, {name} {counts}")
    about: Row = {"part": part, "setting": setting, "window": window, "cores": cores, "tuples": 2 * batch * STEPS}
    about |= {"checked_pairs": sum(found[first]), "checksum": ""}
    for name, rounds in speeds.items():
        bench.record(about | {"contender": name, "tuples_per_s": max(rounds), "rounds": rounds})


def banded(
    keys: dict[Side, np.ndarray], before: dict[Side, int], window: int, of: int = 1, number: int = 0
) -> dict[Side, Lane]:
    """What a batch looks for and stores, every of-th tuple, as StreamJoin has it over last(window): a left tuple sees
    what was there before, so many of each side, a right one this batch's, too."""
    lanes: dict[Side, Lane] = {}
    seen = {"left": before["right"], "right": before["left"] + keys["left"].size}
    for side in SIDES:
        own = np.ascontiguousarray(keys[side])
        n = own.size
        stores = (np.arange(n) % of == number).astype(np.uint8)
        reached = np.full(n, max(seen[side] - window, 0)), np.full(n, seen[side])
        lanes[side] = Lane(
            own, stores, np.ones(n, np.uint8), own - REACH, own + REACH, 1, BY_ROW, *reached, _NONE, before[side],
            seen[side],
        )  # fmt: skip
    return lanes


@dataclass
class Trees:
    """The windows of both sides over trees, and which of the tuples these store."""

    window: int
    config: SharedPIMTree
    workers: Workers = ALONE
    of: int = 1
    number: int = 0
    held: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})

    def __post_init__(self) -> None:
        self.trees = {side: SharedTree(self.config, self.workers) for side in SIDES}

    def push(self, keys: dict[Side, np.ndarray], run: Callable[[Any, Any, int], int]) -> int:
        before = dict(self.held)
        lanes = banded(keys, before, self.window, self.of, self.number)
        coming = {side: int(lane.stores.sum()) for side, lane in lanes.items()}
        for side in SIDES:
            self.trees[side].insert(Coming(coming[side]), before[side])
        views = {side: self.trees[side].view(coming[side]) for side in SIDES}
        found = run(lanes, views, sum(tree.merging for tree in self.trees.values()))
        for side, tree in self.trees.items():
            tree.landed(coming[side])
            gone = max(before[side] + keys[side].size - self.window, 0)
            tree.forget(gone)
            self.held[side] = before[side] + keys[side].size - gone
        return found


class Shared:
    """Threads that share both trees."""

    def __init__(self, bench: Cores, cores: int, blocking: bool = False, task_rows: int = TASK_ROWS) -> None:
        self._workers = Workers(cores)
        self._task_rows = task_rows
        self._trees = Trees(bench.sizes.tree_window, SharedPIMTree(blocking=blocking), self._workers)

    def push(self, left: np.ndarray, right: np.ndarray) -> int:
        return self._trees.push({"left": left, "right": right}, self._run)

    def _run(self, lanes: Any, views: Any, merging: int) -> int:
        return Step(Tasks(lanes, views, True, self._task_rows), self._workers, merging).run()[1]

    def close(self) -> None:
        self._workers.stop()


class LatchFree:
    """Threads that share two Bw-Trees."""

    def __init__(self, bench: Cores, cores: int) -> None:
        self._workers = Workers(cores)
        self._window = bench.sizes.tree_window
        self._windows = BwWindows(self._window, lambda: BwTree(threads=cores))

    def push(self, left: np.ndarray, right: np.ndarray) -> int:
        keys: dict[Side, np.ndarray] = {"left": left, "right": right}
        lanes = banded(keys, self._windows.sizes, self._window)

        def run(views: dict[Side, View]) -> int:
            return Step(Tasks(lanes, views, True, kernel=work), self._workers, 0).run()[1]

        found: int = self._windows.push(keys, run)
        return found

    def close(self) -> None:
        self._workers.stop()


class RoundRobin:
    """Threads with trees of their own."""

    def __init__(self, bench: Cores, cores: int) -> None:
        self._workers = Workers(cores)
        window, config = bench.sizes.tree_window, SharedPIMTree(blocking=True)
        self._parts = [Trees(window, config, ALONE, cores, number) for number in range(cores)]

    def push(self, left: np.ndarray, right: np.ndarray) -> int:
        def alone(lanes: Any, views: Any, merging: int) -> int:
            return Step(Tasks(lanes, views, True), ALONE, 0).run()[1]

        return sum(self._workers.map(lambda part: part.push({"left": left, "right": right}, alone), self._parts))

    def close(self) -> None:
        self._workers.stop()


class Joined:
    """A StreamJoin."""

    def __init__(self, bench: Cores, **options: Any) -> None:
        schema = pa.schema({"x": pa.int64()})
        self._join = wm.StreamJoin(
            f"abs(l.x - r.x) <= {REACH}", wm.last(bench.sizes.tree_window), output="pairs", left_schema=schema,
            right_schema=schema, **options,
        )  # fmt: skip

    def push(self, left: np.ndarray, right: np.ndarray) -> int:
        batches = [pa.record_batch({"x": np.ascontiguousarray(keys)}) for keys in (left, right)]
        return self._join.push(*batches).num_rows

    def close(self) -> None:
        self._join.__exit__()
