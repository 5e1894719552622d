"""An eager hash join that counts, on a GPU: the steps of a window, as cheap as they can be.

A step's work takes a few microseconds, to ask for it takes some ten times as long. So both sides of a batch are one
launch, which reads the tuples from where they came into pinned memory. What a launch is told never changes, for the
device counts by itself how far it is: so the launches of a step are recorded once, as a CUDA graph, and asked for by
one call. And nobody waits: the device writes what has been found so far to host memory, where the next step reads it.

Where that cannot be had (a window that is no multiple of the batch, a driver that does not record) a step is copies and
a launch, and its count is told when it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from watersmeet.bench.gpu.study import gpu_kernels as kernels
from watersmeet.bench.gpu.study.lanes import Lane
from watersmeet.bench.gpu.study.sink import Sink

Array = np.ndarray


class Counting:
    """The steps of one window after the other."""

    def __init__(self, joiner: Any, lane: Lane):
        self._joiner = joiner
        self._lane = lane
        self._records = joiner.work.window % joiner.work.batch == 0
        self._again: Callable[[], None] | None = None
        self._told: deque[tuple[Any, Array]] = deque()  # of steps that are copies and a launch
        self._before = 0
        self._totals = lane.block("all totals", 1, np.int64)
        self._cursor = lane.block("cursor", 1, np.int64)
        self._latest, self._latest_here = lane.mapped("latest", 1, np.int64)

    @property
    def recorded(self) -> bool:
        return self._again is not None

    def begin(self, window: int) -> None:
        """Tables are empty."""
        self._window = window
        self._before = 0
        self._latest_here[0] = 0
        self._lane.fill(self._totals, 1, 0)
        if self._records and self._again is None:
            try:
                self._again = self._record()
            except Exception:  # whatever a driver may say to it
                self._records = False
        self._lane.fill(self._cursor, 1, window * self._joiner.work.window)

    def _record(self) -> Callable[[], None]:
        joiner, lane, n = self._joiner, self._lane, self._joiner.work.batch
        streams = [lane.seen(stream) for stream in (joiner.left, joiner.right)]

        def ask(n: int = n) -> None:
            lane.launch(
                kernels.symmetric_next, 2 * n, *streams, joiner.stride, self._cursor.array, n, joiner.slots,
                joiner.kept[0].array, joiner.both.array, self._totals.array,
            )  # fmt: skip
            lane.launch(kernels.advance, 1, self._cursor.array, n, self._totals.array, self._latest)

        lane.fill(self._cursor, 1, 0)
        ask(0)  # of no tuples: compiled before it is recorded
        lane.wait()
        return lane.again(ask)

    def step(self, start: int, stop: int, sink: Sink) -> None:
        if self._again is not None:
            self._again()
        else:
            self._copied(start, stop)
        self.tell(sink)

    def _copied(self, start: int, stop: int) -> None:
        joiner, lane, m = self._joiner, self._lane, stop - start
        first = self._window * joiner.work.window + start
        new = [
            joiner.sent(lane, f"new {name}", stream, first, m)
            for name, stream in (("left", joiner.left), ("right", joiner.right))
        ]
        lane.launch(
            kernels.symmetric, 2 * m, new[0].array, new[1].array, joiner.stride, m, joiner.slots,
            joiner.kept[0].array, joiner.both.array, self._totals.array,
        )  # fmt: skip
        steps = -(-joiner.work.window // joiner.work.batch)
        number = start // joiner.work.batch
        found = lane.pinned("progress", steps, np.int64)[number : number + 1]
        lane.fetch(self._totals, 1, found)
        self._told.append((lane.mark(), found))

    def tell(self, sink: Sink, wait: bool = False) -> None:
        """What has been found by now; wait: by all steps."""
        if wait:
            self._lane.wait()
        if self._again is not None:
            self._tell(int(self._latest_here[0]), sink)
        while self._told and (wait or self._lane.passed(self._told[0][0])):
            self._tell(int(self._told.popleft()[1][0]), sink)

    def _tell(self, found: int, sink: Sink) -> None:
        if found > self._before:
            sink.add(self._window, found - self._before)
            self._before = found
