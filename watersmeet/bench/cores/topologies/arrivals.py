"""What arrives: the tuples of both streams in one sequence, the window, and the predicate.

    position   0    1    2    3    4       place in the merged sequence: a tuple joins with those before it
    stream     R    R    S    R    S
    ordinal    0    1    0    2    1       place in its own stream
    others     0    0    2    1    3       tuples of the other stream before it

All windows are one condition on two numbers that a tuple carries, `own` and `seen`:

    last(n)      own = ordinal, seen = others      the other is among the last n of its stream before this one
    within(T)    own = seen = time                 their times differ by T at most

    t and u are in a window  <=>  u.own >= t.seen - size  and  u.seen <= t.own + size

It is the same from both sides, so any core may check it, whichever tuple came first; and in tuples u of one stream, in
order, the first half holds from some place on and the second half up to some place: partners lie in one range.

The predicate has four bounds, low_x <= s.x - r.x <= high_x and low_y <= s.y - r.y <= high_y: the band of the paper, a
band or an equality in one dimension where y has none. x is a 32-bit integer, y a 32-bit float, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

R, S = 0, 1
MOST_X = 1 << 30  # of x and its bounds, so that their sums fit into 32 bits
DOMAIN = 10_000  # x and y of the benchmark are uniform in 1..DOMAIN


@dataclass(frozen=True)
class Window:
    """`last(size)`, or `within(size)` if it goes by time."""

    size: int
    by_time: bool = False

    def __post_init__(self) -> None:
        least = 0 if self.by_time else 1
        if self.size < least:
            raise ValueError(f"size must be at least {least}, got {self.size}")


def last(size: int) -> Window:
    return Window(size)


def within(size: int) -> Window:
    return Window(size, by_time=True)


class Band(NamedTuple):
    """Bounds of s - r, in both dimensions; by default none in y."""

    low_x: int
    high_x: int
    low_y: float = -math.inf
    high_y: float = math.inf

    def for_kernels(self) -> Band:
        low_x, high_x = (int(min(max(bound, -MOST_X), MOST_X)) for bound in self[:2])
        return Band(low_x, high_x, np.float32(self.low_y), np.float32(self.high_y))  # type: ignore[arg-type]


EQUALITY = Band(0, 0)
TWO_DIMENSIONS = Band(-10, 10, -10.0, 10.0)  # S6


class Feed(NamedTuple):
    """The sequence as kernels read it, an element a tuple."""

    stream: np.ndarray
    values: np.ndarray  # x in the lower half of a word, y in the upper
    own: np.ndarray
    seen: np.ndarray
    ordinal: np.ndarray
    previous: np.ndarray  # position of the last tuple of the other stream before it, -1 if there is none


@dataclass(frozen=True)
class Arrivals:
    """Tuples of both streams in the order in which they arrive; times must not go back."""

    stream: np.ndarray
    x: np.ndarray
    y: np.ndarray
    time: np.ndarray | None = None

    def __post_init__(self) -> None:
        sizes = {len(column) for column in (self.stream, self.x, self.y, self.time) if column is not None}
        if len(sizes) != 1:
            raise ValueError(f"stream, x, y and time must be of one length, got {sorted(sizes)}")
        if not np.isin(self.stream, (R, S)).all():
            raise ValueError(f"stream must have {R} for R and {S} for S only")
        if len(self) and np.abs(self.x.astype(np.int64)).max() > MOST_X:
            raise ValueError(f"x must lie between {-MOST_X} and {MOST_X}")
        if self.time is not None and np.any(np.diff(self.time) < 0):
            raise ValueError("time must not go back")

    def __len__(self) -> int:
        return len(self.stream)

    def of(self, stream: int) -> int:
        """How many tuples of this stream there are."""
        return int(np.count_nonzero(self.stream == stream))

    def feed(self, window: Window) -> Feed:
        stream = self.stream.astype(np.int64)
        position = np.arange(len(self))
        before = np.cumsum(stream) - stream  # tuples of S
        ordinal = np.where(stream == S, before, position - before)
        values = np.empty(len(self), [("x", np.int32), ("y", np.float32)])
        values["x"], values["y"] = self.x, self.y
        latest = [np.maximum.accumulate(np.where(stream == one, position, -1)) for one in (R, S)]
        previous = np.where(stream == R, latest[S], latest[R])
        own, seen = (self.times(), self.times()) if window.by_time else (ordinal, position - ordinal)
        return Feed(stream, values.view(np.int64), own, seen, ordinal, previous)

    def times(self) -> np.ndarray:
        if self.time is None:
            raise ValueError("time must be given for a window by time")
        return self.time.astype(np.int64)

    def most(self, stream: int, window: Window) -> int:
        """Tuples of this stream that are in one window at a time, at most."""
        if not window.by_time:
            return min(window.size, self.of(stream))
        times = self.times()[self.stream == stream]
        held = np.arange(1, times.size + 1) - np.searchsorted(times, times - window.size)
        return int(held.max(initial=0))


def uniform(tuples: int, seed: int = 7, domain: int = DOMAIN) -> Arrivals:
    """The streams of the benchmark, S6: R and S in turn, one tuple a tick."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, domain + 1, tuples).astype(np.int32)
    y = rng.uniform(1, domain, tuples).astype(np.float32)
    return Arrivals(np.arange(tuples) % 2, x, y, np.arange(tuples))
