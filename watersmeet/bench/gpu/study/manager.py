"""The window manager: cuts two streams into tumbling windows and hands them to a joiner.

Lazy: a window when it is complete; those that are complete may be handed over together. Eager: the batches of a window,
left before right, as they come. A window is a range of places in both streams: tuples stay where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import Variant
from watersmeet.bench.gpu.study.streams import TUPLE_BYTES, Stream


@dataclass(frozen=True)
class Workload:
    """Two streams, and how they are cut. Sizes are those of one side, in tuples."""

    left: Stream
    right: Stream
    window: int
    batch: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= self.window <= self.left.size or self.left.size != self.right.size:
            raise ValueError(
                "a workload needs streams of one size, with room for a window, and batches that fit into one; got "
                f"{self.left.size} and {self.right.size} tuples, windows of {self.window}, batches of {self.batch}"
            )

    @property
    def windows(self) -> int:
        """Complete ones."""
        return self.left.size // self.window

    @property
    def nbytes(self) -> int:
        """Of both streams, as far as windows are complete."""
        return 2 * TUPLE_BYTES * self.windows * self.window


class Joiner(Protocol):
    """What a stream join must do for the window manager."""

    def execute(self, first: int, count: int, sink: Sink) -> None:
        """Join `count` complete windows from number `first` on."""

    def begin(self, window: int) -> None:
        """A window for which batches will come."""

    def step(self, start: int, stop: int, sink: Sink) -> None:
        """The tuples from `start` to `stop` of the window, of both sides, have come."""

    def end(self, sink: Sink) -> None:
        """The last batch of the window has come."""

    def close(self) -> None:
        """Give back threads and memory."""


def run(variant: Variant, work: Workload, joiner: Joiner, sink: Sink) -> None:
    """All windows, as fast as the joiner takes them."""
    if variant.progress == "lazy":
        together = 1 if variant.parallel == "intra" else work.windows
        for first in range(0, work.windows, together):
            joiner.execute(first, min(together, work.windows - first), sink)
        return
    for window in range(work.windows):
        joiner.begin(window)
        for start in range(0, work.window, work.batch):
            joiner.step(start, min(start + work.batch, work.window), sink)
        joiner.end(sink)
