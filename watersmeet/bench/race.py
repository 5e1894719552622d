"""Contenders over the same streams, taking turns in one process.

    lane A   fill | warm up | round 1 |         |         | round 2 | ...
    lane B   fill | warm up |         | round 1 |         |         | ...

A lane is one contender's way through a workload: it first fills the window (not timed), then pushes one batch
left, one batch right, and so on; each round goes on where the last one ended. Only the pushes are timed:
batches are made before the clock starts, and results are summed up after it stops. The checksum, over all
columns, after every pair of batches is kept, and `agree` demands that all lanes of a race have the same ones
as far as they all came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.peers import NAMES, Peer
from watersmeet.bench.rounds import median
from watersmeet.bench.workloads import SIDES, Workload

FILL_ROWS = 1 << 18


class Streams(Protocol):
    """What a race is run over: two streams, and how much of them a window and a batch hold."""

    @property
    def name(self) -> str: ...
    @property
    def window_rows(self) -> int: ...
    @property
    def batch_rows(self) -> int: ...

    def rows(self, side: str, start: int, rows: int) -> pa.RecordBatch: ...


class Contender(Protocol):
    def load(self, side: str, batch: pa.RecordBatch) -> None:
        """Take a batch while the window fills; results are not looked at."""

    def push(self, side: str, batch: pa.RecordBatch) -> Any:
        """Join a batch. This is what is timed."""

    def check(self, results: Any) -> Checksum:
        """Of all columns of the results."""


class Ours:
    """`watersmeet.StreamJoin` over a workload. Options go to StreamJoin."""

    def __init__(self, workload: Workload, **options: Any) -> None:
        from datetime import timedelta

        import watersmeet as wm

        window: Any
        if workload.spacing_us:
            window = wm.within(timedelta(microseconds=workload.window_us), time="ts")
        else:
            window = wm.last(workload.window_rows)
        self.output = options.get("output", "rows")
        schemas = {"left_schema": workload.schema, "right_schema": workload.schema}
        self.join = wm.StreamJoin(workload.on, window, **schemas, **options)

    @property
    def index(self) -> str:
        """The index that was chosen, as explain() names it."""
        lines = (line.strip() for line in self.join.explain().splitlines())
        return next((line.removeprefix("index:").strip() for line in lines if line.startswith("index:")), "?")

    def load(self, side: str, batch: pa.RecordBatch) -> None:
        self.push(side, batch)

    def push(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        return self.join.push(left=batch) if side == "left" else self.join.push(right=batch)

    def pairs(self, results: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the two tuples of each result, with output="pairs"."""
        return results.column("left").to_numpy(), results.column("right").to_numpy()

    def check(self, results: Any) -> Checksum:
        if self.output == "count":
            return Checksum(results)
        return Checksum.of_table(results, ("left", "right") if self.output == "pairs" else NAMES)


class HandRolled:
    """A peer as a contender."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.load, self.push = peer.load, peer.push

    def check(self, results: Any) -> Checksum:
        return Checksum.of_table(self.peer.table(results), NAMES)


@dataclass
class Lane:
    """One contender, where it is in the streams, what it took, what it answered."""

    name: str
    form: str
    workload: Streams
    contender: Contender
    position: int = 0
    speeds: list[float] = field(default_factory=list)  # tuples/s, a round each
    checks: list[Checksum] = field(default_factory=list)  # running total after each pair of batches
    rows_in: int = 0

    def fill(self, rows: int, batch_rows: int | None = None) -> None:
        """Fill the window with so many rows of each side, in batches of the workload or larger."""
        step = batch_rows or self.workload.batch_rows
        while self.position < rows:
            for side in SIDES:
                self.contender.load(side, self.workload.rows(side, self.position, step))
            self.position += step

    def turn(self, seconds: float, least_rows: int = 0, least_pairs: int = 2, timed: bool = True) -> float:
        """Push pairs of batches until the clock shows `seconds` and the minimums are met; tuples/s."""
        clock, before, pairs = 0.0, self.rows_in, 0
        while clock < seconds or pairs * self.workload.batch_rows < least_rows or pairs < least_pairs:
            clock += self.step()
            pairs += 1
        rows = self.rows_in - before
        if timed:
            self.speeds.append(rows / clock)
        return rows / clock

    def step(self) -> float:
        """One batch left, one batch right. Returns the seconds the two pushes took."""
        size = self.workload.batch_rows
        batches = [(side, self.workload.rows(side, self.position, size)) for side in SIDES]
        total, clock = self.checks[-1] if self.checks else Checksum(), 0.0
        for side, batch in batches:
            start = perf_counter()
            results = self.contender.push(side, batch)
            clock += perf_counter() - start
            total += self.contender.check(results)
        self.checks.append(total)
        self.position += size
        self.rows_in += sum(batch.num_rows for _, batch in batches)
        return clock

    def burst(self, pairs: int, timed: bool = True) -> None:
        """So many pairs of small batches, one right after the other; what they answer is looked at afterwards."""
        size = self.workload.batch_rows
        starts = range(self.position, self.position + pairs * size, size)
        batches = [(side, self.workload.rows(side, start, size)) for start in starts for side in SIDES]
        begin = perf_counter()
        results = [self.contender.push(side, batch) for side, batch in batches]
        clock = perf_counter() - begin
        self.checks.append(sum(map(self.contender.check, results), self.checks[-1] if self.checks else Checksum()))
        self.position += pairs * size
        self.rows_in += len(batches) * size
        if timed:
            self.speeds.append(len(batches) * size / clock)

    @property
    def speed(self) -> float:
        """The best of the rounds."""
        return max(self.speeds)

    @property
    def median(self) -> float:
        return median(self.speeds)

    def leave(self) -> None:
        """Let go of the contender and its window; what was measured stays."""
        del self.contender

    def result(self) -> dict[str, Any]:
        """The lane as a row of the stored results."""
        return {
            "workload": self.workload.name,
            "window": self.workload.window_rows,
            "batch": self.workload.batch_rows,
            "contender": self.name,
            "form": self.form,
            "tuples_per_s": self.speed,
            "rounds": self.speeds,
            "results_per_tuple": self.checks[-1].pairs / self.rows_in,
        }


def agree(lanes: Sequence[Lane]) -> Checksum:
    """The checksum as far as all lanes came; raises AnswersDiffer where they do not have the same one."""
    steps = min(len(lane.checks) for lane in lanes)
    first = lanes[0]
    for lane in lanes[1:]:
        for step in range(steps):
            if lane.checks[step] != first.checks[step]:
                raise AnswersDiffer(
                    f"{first.workload.name}, batches of {first.workload.batch_rows}: "
                    f"after {step + 1} of each side "
                    f"{first.name} ({first.form}) gives {first.checks[step]}, "
                    f"{lane.name} ({lane.form}) gives {lane.checks[step]} (pairs:checksum)"
                )
    return first.checks[steps - 1]


def peer_lane(peer: type[Peer], workload: Workload, keep_rows: int, form: str) -> Lane:
    """A peer, filled and warm."""
    lane = Lane(peer.name, form, workload, HandRolled(peer(workload, keep_rows, form)))
    lane.fill(2 * workload.window_rows)
    lane.step()
    return lane
