"""Contenders that get a batch of either side in each push and keep the window themselves, for `boxes` and `asof`.

All get the same batches, in turns and in one process; only pushes are timed. A part says what an answer is, and that
all of them are the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from watersmeet.bench.rounds import median

if TYPE_CHECKING:
    from watersmeet.bench.embedded import Embedded

Row = dict[str, Any]


class Keeper(Protocol):
    name: str

    def fill(self, left: Any, right: Any) -> None:
        """Take a batch of either side while the window fills."""

    def push(self, left: Any, right: Any) -> pa.Table:
        """Join them with what is kept. This is what is timed."""


def pushes(
    contenders: Sequence[Keeper], batch: Callable[[str, int, int], Any], window: int, rows: int, rounds: int
) -> Iterator[list[tuple[float, pa.Table]]]:
    """Fill the window; then for each round, the seconds and the results of all contenders, as they are given.

    batch: (side, first row, rows) -> a batch of that stream.
    """
    filled = -(-window // rows) * rows
    for start in range(0, filled, rows):
        both = [batch(side, start, rows) for side in ("left", "right")]
        for each in contenders:
            each.fill(*both)
    gc.collect()
    for i in range(rounds):
        both = [batch(side, filled + i * rows, rows) for side in ("left", "right")]
        found = []
        for each in contenders:
            begin = time.perf_counter()
            table = each.push(*both)
            found.append((time.perf_counter() - begin, table))
        yield found


def record(
    bench: Embedded, about: Row, seconds: dict[str, list[float]], results: int, targets: dict[str, float]
) -> None:
    """Tuples/s of all contenders, and ours, which is the first, against each of the others.

    about: workload, window, batch and setting of the rows. targets: contender -> times its tuples/s.
    """
    rows, setting = 2 * about["batch"], about["setting"]
    about = {name: value for name, value in about.items() if name != "setting"}
    ours, *others = seconds
    for name, times in seconds.items():
        speeds = [rows / s for s in times]
        bench.record(
            about | {"contender": name, "form": setting, "rounds": speeds, "tuples_per_s": max(speeds)}
            | {"results_per_tuple": results / (rows * len(times)), "checked_pairs": results}
        )  # fmt: skip
    for name in others:
        value = median(seconds[name]) / median(seconds[ours])
        best = min(seconds[name]) / min(seconds[ours])
        bench.ratio(
            about["workload"], f"{name}: {setting}", value, targets.get(name), best=best,
            window=about["window"], batch=about["batch"],
        )  # fmt: skip
