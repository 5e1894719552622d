"""The tasks of one push, and the threads that work on them.

Tuples are cut into tasks, left ones before right ones, and a thread that is done with one takes the next, in a kernel
that it leaves when there are none or its room for pairs is full (index/trees/shared_kernels.py). Each task's pairs stay
together, and are put one behind the other in the order of the tasks: so they come in order of arrival for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any

import numpy as np

from watersmeet.index.base import Emitter
from watersmeet.index.trees import shared_kernels as kernels
from watersmeet.index.trees.shared_kernels import Lane
from watersmeet.index.trees.shared_tree import NOBODY
from watersmeet.interrupts import uninterrupted
from watersmeet.query.windows import SIDES, Side
from watersmeet.workers import Pending, Workers

Array = np.ndarray
Pairs = tuple[Array, Array]  # rows of the batch, rows of the other's window

#: Tuples of a task. More would leave threads without work at the end of a push, and right tuples more to look through;
#: with fewer the queue and the edge cost more.
TASK_ROWS = 256
#: Rows of a push from which on other threads are called.
_MANY = 4096
#: Room for pairs, of each thread.
_PAIRS = 1 << 16


@dataclass(frozen=True)
class Tasks:
    """What is to be done, and how far that is, as all threads see it.

    views: of the windows, as the kernel knows them; counts: pairs are not written.
    """

    lanes: dict[Side, Lane]
    views: dict[Side, Any]
    counts: bool
    rows: int = TASK_ROWS  # of a task
    kernel: Callable[..., int] = kernels.work
    queue: Array = field(default_factory=lambda: np.zeros(kernels.QUEUE, np.int64))
    done: Array = field(init=False)  # whether each left one is

    def __post_init__(self) -> None:
        object.__setattr__(self, "done", np.zeros(self.number("left"), np.int64))
        self.want(1)

    def number(self, side: Side) -> int:
        return -(-self.lanes[side].keys.size // self.rows)

    @property
    def total(self) -> int:
        return sum(self.number(side) for side in SIDES)

    def want(self, threads: int) -> None:
        """So many threads are to work; others leave before their next task."""
        self.queue[kernels.WANTED] = threads

    def stop(self) -> None:
        """No thread takes another."""
        self.queue[kernels.STOPPED] = 1


@dataclass(frozen=True)
class _Segment:
    """Pairs of one task, all or some."""

    task: int
    number: int
    rows: Array
    partners: Array


class Worker:
    """A thread's part. Apart from the thread, so that tests can be the scheduler."""

    def __init__(self, tasks: Tasks, number: int):
        self._tasks = tasks
        self._number = number
        self._mine = np.zeros(kernels.MINE, np.int64)
        self._segments = np.empty((tasks.total + 2, 3), np.int64)
        self._room = Emitter(_PAIRS)
        self.found: list[_Segment] = []

    @property
    def count(self) -> int:
        """Pairs in all."""
        return int(self._mine[kernels.COUNT])

    def go_on(self, turns: int = -1) -> int:
        """Work, for so many turns at most (negative: any number); says why it came back."""
        tasks, mine, room = self._tasks, self._mine, self._room
        mine[kernels.PAIRS] = mine[kernels.SEGMENTS] = 0
        mine[kernels.TURNS] = turns
        how = tasks.kernel(
            self._number, tasks.queue, tasks.done, tasks.rows, tasks.lanes["left"], tasks.lanes["right"], NOBODY,
            tasks.views["left"], tasks.views["right"], tasks.counts, mine, room.batch_rows, room.rows, self._segments,
        )  # fmt: skip
        for task, start, stop in self._segments[: mine[kernels.SEGMENTS]].tolist():
            if stop > start:
                cut = slice(start, stop)
                self.found.append(_Segment(task, len(self.found), room.batch_rows[cut], room.rows[cut]))
        if mine[kernels.PAIRS]:
            self._room = Emitter(_PAIRS)  # what was written belongs to others now
        elif how == kernels.FULL:
            room.grow()
        return how


class Step:
    """All of the tasks, done by the caller and threads that it calls. merging: threads that are at that."""

    def __init__(self, tasks: Tasks, workers: Workers, merging: int):
        self._tasks = tasks
        self._workers = workers
        self._merging = merging
        self._helpers: list[Pending] = []
        self._changing = RLock()  # a signal handler may change the number of threads, too
        self._over = False
        self._found: list[_Segment] = []
        self._count = 0

    def run(self) -> tuple[dict[Side, list[Pairs]], int]:
        """Pairs of each side, and how many were only counted."""
        if sum(lane.keys.size for lane in self._tasks.lanes.values()) >= _MANY:
            self.wanted(max(self._workers.threads - self._merging, 1))
        try:
            self.work(0)
        finally:
            self._tasks.stop()  # all are taken, or this one has failed
            with self._changing:
                self._over = True
        for helper in self._helpers:
            if not helper.cancel():  # one that has not begun has nothing left to do
                helper.result()
        return self._pieces(), self._count

    def wanted(self, threads: int) -> None:
        """From now on so many threads are to work."""
        with self._changing, uninterrupted():
            if self._over:
                return
            busy = 1 + sum(not helper.done() for helper in self._helpers)
            self._tasks.want(threads)
            for number in range(busy, min(threads, self._tasks.total)):
                self._helpers.append(self._workers.submit(partial(self.work, number)))

    def work(self, number: int) -> None:
        """What one thread does, until there are no tasks or it is not wanted any more."""
        worker = Worker(self._tasks, number)
        while worker.go_on() == kernels.FULL:
            pass
        with self._changing:
            self._found += worker.found
            self._count += worker.count if self._tasks.counts else 0

    def _pieces(self) -> dict[Side, list[Pairs]]:
        """In order of arrival, some tasks' together."""
        left = self._tasks.number("left")
        found = sorted(self._found, key=lambda segment: (segment.task, segment.number))
        return {
            "left": _together([segment for segment in found if segment.task < left]),
            "right": _together([segment for segment in found if segment.task >= left]),
        }


def _together(segments: list[_Segment]) -> list[Pairs]:
    """Pairs of segments, one behind the other, in pieces of a good size."""
    pieces: list[Pairs] = []
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
