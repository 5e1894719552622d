"""One join on many threads over one index: `route="shared"`.

    left and right tuples of a push -> one queue of tasks -> threads -> pairs, in order of arrival
                                                 \\-> the PIM-Trees of both windows <-/

Threads probe the tree of one window and fill that of the other at the same time, tuple by tuple, and come back to
Python when all tasks are done or their room is full (index/trees/shared_kernels.py). Each task's pairs stay together,
and are put one behind the other in the order of the tasks; so results come in order of arrival for nothing. Trees are
merged beside (index/trees/shared_tree.py). Threads may come and go in the middle: `StreamJoin.cores`.

Reference: PIM, section 4 (parallel stream join over shared indexes).
Differs from the paper: a push is a queue's worth of tuples; those of the left side come first, so that only right ones
have to look beyond the edge.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore, Ticks, both
from watersmeet.engine.finder import Piece, Ready
from watersmeet.engine.results import Results
from watersmeet.index.base import Emitter, bounds_mode, no_ticks
from watersmeet.index.trees import shared_kernels as kernels
from watersmeet.index.trees.shared_kernels import Lane, View
from watersmeet.index.trees.shared_tree import NOBODY, Coming, SharedPIMTree, SharedTree
from watersmeet.interrupts import uninterrupted
from watersmeet.query.plan import Tuples
from watersmeet.query.windows import SIDES, Side
from watersmeet.window.chain import Target
from watersmeet.workers import Workers

Array = np.ndarray

#: Tuples of a task. More would leave threads without work at the end of a push, and right tuples more to look through;
#: with fewer the queue and the edge cost more.
TASK_ROWS = 256
#: Rows of a push from which on other threads are called.
_MANY = 4096
#: Room for pairs, of each thread.
_PAIRS = 1 << 16
_NONE = np.zeros(0, np.int64)


class SharedCore(JoinCore):
    """As JoinCore, with an index that is a SharedPIMTree."""

    task_rows = TASK_ROWS
    _step: Step | None = None

    def _process(
        self, arrivals: dict[Side, Arrival], visitors: dict[Side, Arrival], unneeded: Ticks, results: Results
    ) -> dict[Side, Array]:
        assert not visitors
        batches: dict[Side, Ready] = {}
        lanes: dict[Side, Lane] = {"left": NOBODY, "right": NOBODY}
        for side in SIDES:
            if side in arrivals:
                keep = self._needed_from(side, [arrivals], unneeded)
                batches[side], lanes[side] = self._lane(side, arrivals[side], keep, batches)
        coming = {side: int(np.count_nonzero(lane.stores)) for side, lane in lanes.items()}
        if len(self.shares) == 1:
            coming["right"] = coming["left"]  # they have one tree
        views = {side: self._view(side, coming[side]) for side in SIDES}
        merging = sum(self._tree(sides[0]).merging for sides in self.shares)
        residuals = [self._sides[side].residual for side in batches]
        counts = results.counts_only and self.how == "inner" and not any(residuals)
        begin = time.perf_counter()
        step = self._step = Step(lanes, views, counts, self.task_rows, self._workers, merging)
        try:
            pieces, count = step.run()
        finally:
            self._step = None
        self.metrics.took("probe", begin)
        for sides in self.shares:
            if any(side in arrivals for side in sides):
                self._tree(sides[0]).landed(coming[sides[0]])
        results.add(count, [])
        for side, batch in batches.items():
            found: list[Piece] = [(batch.targets[0].subwindow, *both) for both in pieces[side]]
            self._settle(batch, self._finder.take(batch, found, results), results)
        return {}

    def _lane(
        self, side: Side, arrival: Arrival, keep: int | None, before: dict[Side, Ready]
    ) -> tuple[Ready, Lane]:
        """Tuples as the threads take them; they are in the payload and the chain then, but not in the tree."""
        payload, chain = self.payloads[side], self.chains[side]
        again = self.self_join and side == "right"
        first = payload.end - arrival.rows if again else payload.end
        if not again:
            payload.append(arrival.batch)
        targets = self._targets(side, arrival)
        if len(targets) > 1:
            raise ValueError("route 'shared' keeps up to 2^30 rows of a side; this window has more")
        limit = targets[0].subwindow.size if targets else 0
        tuples = self._sides[side].of(arrival.batch)
        begin = time.perf_counter()
        keys = tuples.keys()
        live = self._stored_rows(arrival, keys.live, keep)
        self.metrics.took("keys", begin)
        if again and len(self.shares) == 1:
            live, stores = before["left"].live, np.zeros(arrival.rows, np.uint8)  # as left they have been stored
        else:
            stores = _flags(live, arrival.rows)
        batch = Ready(side, arrival, payload, first, live, Coming(int(np.count_nonzero(stores))), None, targets)
        if not (again and len(self.shares) == 1):
            self._store(batch)
        key = keys.equal if keys.ordered is None else keys.ordered
        assert key is not None
        row = first - chain.holding(first).base
        return batch, self._asking(np.ascontiguousarray(key), stores, arrival, tuples, targets, row, limit)

    def _asking(
        self, keys: Array, stores: Array, arrival: Arrival, tuples: Tuples, targets: list[Target], row: int, limit: int
    ) -> Lane:
        """What the tuples look for."""
        if not targets:
            nothing = np.zeros(arrival.rows, np.uint8)
            return NOBODY._replace(keys=keys, stores=stores, asks=nothing, lows=keys, highs=keys, first=row)
        begin = time.perf_counter()
        probe = tuples.probe()
        self.metrics.took("keys", begin)
        asks = _flags(both(probe.live, arrival.on_time), arrival.rows)
        lows, highs = (probe.lows, probe.highs) if probe.lows else ((probe.equal,), (probe.equal,))
        bounds = targets[0].bounds
        b = bounds or no_ticks()
        return Lane(
            keys, stores, asks, _joined(lows), _joined(highs), len(lows), bounds_mode(bounds), b.low, b.high, b.ticks,
            row, limit,
        )  # fmt: skip

    def _tree(self, side: Side) -> SharedTree:
        subwindows = self.chains[side].subwindows
        tree: Any = subwindows[-1].structure if subwindows else self.index.structure()
        return tree

    def _view(self, side: Side, coming: int) -> View:
        return self._tree(side).view(coming)

    def wanted(self, threads: int) -> None:
        """From now on so many threads are to work, in a step that is under way as well."""
        step = self._step
        if step is not None:
            step.wanted(threads)


class Step:
    """The tasks of one push."""

    def __init__(
        self,
        lanes: dict[Side, Lane],
        views: dict[Side, View],
        counts: bool,
        task_rows: int,
        workers: Workers,
        merging: int,
    ):
        self._lanes, self._views, self._counts, self._task_rows = lanes, views, counts, task_rows
        self._workers = workers
        self._merging = merging  # threads that are at that
        self._tasks = {side: -(-lane.keys.size // task_rows) for side, lane in lanes.items()}
        self._queue = np.zeros(kernels.QUEUE, np.int64)
        self._done = np.zeros(self._tasks["left"], np.int64)
        self._helpers: list[Future] = []
        self._changing = RLock()  # a signal handler may change the number of threads, too
        self._over = False
        self._found: list[_Segment] = []
        self._count = 0

    def run(self) -> tuple[dict[Side, list[tuple[Array, Array]]], int]:
        """Pairs of each side, as (row of the batch, row of the other's window), and how many were only counted."""
        rows = sum(lane.keys.size for lane in self._lanes.values())
        self._queue[kernels.WANTED] = 1
        if rows >= _MANY:
            self.wanted(max(self._workers.threads - self._merging, 1))
        try:
            self.work(0)
        finally:
            self._queue[kernels.STOPPED] = 1  # all tasks are taken, or this one has failed
            with self._changing:
                self._over = True
        for helper in self._helpers:
            if not helper.cancel():  # one that has not begun has nothing left to do
                helper.result()
        return self._pieces(), self._count

    def wanted(self, threads: int) -> None:
        with self._changing, uninterrupted():
            if self._over:
                return
            busy = 1 + sum(not helper.done() for helper in self._helpers)
            self._queue[kernels.WANTED] = threads
            for number in range(busy, min(threads, sum(self._tasks.values()))):
                self._helpers.append(self._workers.submit(partial(self.work, number)))

    def work(self, number: int) -> None:
        """What one thread does: tasks, until there are none or it is not wanted any more."""
        worker = Worker(self._lanes, self._views, self._counts, self._task_rows, self._queue, self._done, number)
        while worker.go_on() == kernels.FULL:
            pass
        with self._changing:
            self._found += worker.found
            self._count += worker.count if self._counts else 0

    def _pieces(self) -> dict[Side, list[tuple[Array, Array]]]:
        """In order of arrival, some tasks' together."""
        left = self._tasks["left"]
        found = sorted(self._found, key=lambda segment: (segment.task, segment.number))
        pieces: dict[Side, list[tuple[Array, Array]]] = {}
        for side in SIDES:
            mine = [segment for segment in found if (segment.task < left) == (side == "left")]
            pieces[side] = _together(mine)
        return pieces


@dataclass(frozen=True)
class _Segment:
    """Pairs of one task, all or some."""

    task: int
    number: int
    rows: Array
    partners: Array


class Worker:
    """A thread's part in a step. Apart from the thread, so that tests can be the scheduler."""

    def __init__(
        self,
        lanes: dict[Side, Lane],
        views: dict[Side, View],
        counts: bool,
        task_rows: int,
        queue: Array,
        done: Array,
        number: int,
    ):
        tasks = done.size + -(-lanes["right"].keys.size // task_rows)
        self._mine = np.zeros(kernels.MINE, np.int64)
        self._segments = np.empty((tasks + 2, 3), np.int64)
        self._room = Emitter(_PAIRS)
        self.found: list[_Segment] = []
        nobody = NOBODY

        def work(room: Emitter) -> int:
            return kernels.work(
                number, queue, done, task_rows, lanes["left"], lanes["right"], nobody, views["left"], views["right"],
                counts, self._mine, room.batch_rows, room.rows, self._segments,
            )  # fmt: skip

        self._work: Callable[[Emitter], int] = work

    @property
    def count(self) -> int:
        """Pairs in all."""
        return int(self._mine[kernels.COUNT])

    def go_on(self, turns: int = -1) -> int:
        """Work, for so many turns at most (negative: any number); says why it came back."""
        mine = self._mine
        mine[kernels.PAIRS] = mine[kernels.SEGMENTS] = 0
        mine[kernels.TURNS] = turns
        how = self._work(self._room)
        pairs = int(mine[kernels.PAIRS])
        for task, start, stop in self._segments[: mine[kernels.SEGMENTS]].tolist():
            if stop > start:
                cut = slice(start, stop)
                self.found.append(
                    _Segment(task, len(self.found), self._room.batch_rows[cut], self._room.rows[cut])
                )
        if pairs:
            self._room = Emitter(_PAIRS)
        elif how == kernels.FULL:
            self._room.grow()
        return how


def _together(segments: list[_Segment]) -> list[tuple[Array, Array]]:
    """Pairs of segments, one behind the other, in pieces of a good size."""
    pieces: list[tuple[Array, Array]] = []
    some: list[_Segment] = []
    size = 0
    for segment in [*segments, None]:
        if some and (segment is None or size + segment.rows.size > _PAIRS):
            pieces.append(
                (np.concatenate([one.rows for one in some]), np.concatenate([one.partners for one in some]))
            )
            some, size = [], 0
        if segment is not None:
            some.append(segment)
            size += segment.rows.size
    return pieces


def _flags(live: Array | None, rows: int) -> Array:
    return np.ones(rows, np.uint8) if live is None else live.astype(np.uint8)


def _joined(arrays: tuple[Any, ...]) -> Array:
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def shared_index(index: Any) -> SharedPIMTree:
    """The index that threads share, as configured."""
    from watersmeet.index import PIMTree

    if index == "auto" or index == "pim_tree":
        return SharedPIMTree()
    if isinstance(index, SharedPIMTree):
        return index
    if isinstance(index, PIMTree):
        return SharedPIMTree(index.merge_ratio, index.fan_out, index.insertion_depth)
    raise ValueError(f"route 'shared' has a PIM-Tree as its index; leave out index={index!r}, or use another route")
