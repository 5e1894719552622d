"""A join to be run on some topology, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from watersmeet.bench.cores.topologies.arrivals import TWO_DIMENSIONS, Arrivals, Band, Feed, Window
from watersmeet.bench.cores.topologies.collecting import Written
from watersmeet.bench.cores.topologies.distributing import Pace
from watersmeet.bench.cores.topologies.rings import Wires
from watersmeet.cycles import per_second

ORDERS = ("none", "outer", "inner")


@dataclass(frozen=True)
class Job:
    """What is joined, and by how many cores."""

    arrivals: Arrivals
    window: Window
    cores: int
    band: Band = TWO_DIMENSIONS
    fan_out: int | None = None  # of both trees of SplitJoin; as large as there are cores
    order: str | int = "none"  # or outer, inner, or in pieces of so many tuples; SplitJoin only
    since: int = 0  # position of the first tuple that is joined: those before it fill the windows
    rate: float | None = None  # tuples/s; as fast as they are taken
    capacity: int = 256  # messages of a ring
    timed: bool = False  # whether cores note when they have done with a tuple
    limit: float = 300.0  # seconds; longer, and the run is stopped

    def __post_init__(self) -> None:
        for name in ("cores", "fan_out", "capacity"):
            value = getattr(self, name)
            if value is not None and value < (2 if name == "fan_out" else 1):
                raise ValueError(f"{name} must be at least {2 if name == 'fan_out' else 1}, got {value}")
        if self.order not in ORDERS and not (isinstance(self.order, int) and self.order >= 1):
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, or a number of tuples, got {self.order!r}")
        if self.rate is not None and self.rate <= 0:
            raise ValueError(f"rate must be positive, got {self.rate}")

    @property
    def every(self) -> int:
        """Tuples from one star to the next; 0: there are none."""
        return self.order if isinstance(self.order, int) else 0 if self.order == "none" else 1

    @cached_property
    def feed(self) -> Feed:
        return self.arrivals.feed(self.window)

    @cached_property
    def pace(self) -> Pace:
        gap = per_second() / self.rate if self.rate else 0.0
        return Pace(self.since, gap, np.zeros(len(self.arrivals), np.int64))

    @cached_property
    def finished(self) -> np.ndarray:
        """When each core was done with each tuple; empty unless `timed`."""
        return np.zeros((self.cores, len(self.arrivals) if self.timed else 0), np.int64)


@dataclass(frozen=True)
class Task:
    """A thread: a kernel, and what it gets behind memory and control."""

    name: str
    kernel: Callable[..., Any]
    given: tuple[Any, ...]


class Circuit:
    """The threads of a run and the rings between them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.wires = Wires(job.capacity)
        self.tasks: list[Task] = []

    def add(self, name: str, kernel: Callable[..., Any], *given: Any) -> None:
        self.tasks.append(Task(name, kernel, given))


@dataclass(frozen=True)
class Outcome:
    """Results by the positions of their two tuples, in the order in which they were collected; times in seconds."""

    later: np.ndarray
    earlier: np.ndarray
    seconds: float  # from the arrival of the first tuple that is joined until all was collected
    visiting: np.ndarray  # latency of each result: from the arrival of its later tuple until the two were compared
    processing: np.ndarray  # of each tuple: from its arrival until it was done everywhere, and its results collected

    def __len__(self) -> int:
        return len(self.later)


def outcome(job: Job, pages: list[Written], end: int) -> Outcome:
    later, earlier, compared, collected = (np.concatenate(columns) for columns in zip(*pages))
    arrived, second = job.pace.arrived, per_second()
    done = job.finished.max(axis=0, initial=0)
    processing = np.zeros(0)
    if job.timed:
        np.maximum.at(done, later, collected)
        joined = np.flatnonzero(done)  # in a chain a tuple may have nobody to be compared with
        joined = joined[joined >= job.since]
        processing = (done[joined] - arrived[joined]) / second
    begin = arrived[job.since] if job.since < arrived.size else end
    return Outcome(later, earlier, (end - begin) / second, (compared - arrived[later]) / second, processing)
