"""What a join has done so far, and what it holds."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from watersmeet.engine import show
from watersmeet.query.windows import Side

STEPS = ("pick", "keys", "sort", "probe", "store", "gather", "hand", "expire")
#: Of a push, where the cores are processes: see engine/cores/clock.py.
PHASES = ("write", "route", "step", "collect")


@dataclass(repr=False)
class Metrics:
    """Counters since the join began; `stored_*`, `*_bytes` and `watermark` are as of now.

    A self join has one stream, the left: its rows, late and stored ones are counted there, once. On the right it counts
    only what a second index stores, and what is late by a second time column.

    subwindows_left, subwindows_right: pieces that each window is in, of all cores.
    loads: tuples that each core holds; empty while there is one.
    probes: tuples that have looked for partners in each core; likewise.
    hot, hot_share: by route "hot_cold", keys that are hot now with their shares of all tuples, and the share of hot
    tuples among all so far.
    seconds: time per step, summed over threads and cores, so that the steps of a join may add up to more than the clock
    on the wall. Where cores are processes, "pick" is taking from a batch what the route gives a core, and "hand" is
    writing results to where the caller reads them.
    phases: time of pushes by the clock on the wall, since cores are processes: "write" batches to where all see them,
    "route" and "step", in which the caller waits for the cores, "collect" results.
    works, waits: seconds that each core has worked in these, and that it has waited for the others; empty while there
    is one.
    """

    rows_in_left: int = 0
    rows_in_right: int = 0
    rows_out: int = 0
    late_left: int = 0
    late_right: int = 0
    stored_left: int = 0
    stored_right: int = 0
    waiting: int = 0
    index_bytes: int = 0
    payload_bytes: int = 0
    subwindows_left: int = 0
    subwindows_right: int = 0
    watermark: Any = None
    pushes: int = 0
    loads: list[int] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    hot: dict[str, float] = field(default_factory=dict)
    hot_share: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    works: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def __repr__(self) -> str:
        return show.line("Metrics", show.facts(self))

    def _repr_html_(self) -> str:
        return show.table("Metrics", show.facts(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = asdict(self)
        values["watermark"] = None if self.watermark is None else str(self.watermark)
        return values

    def count_in(self, side: Side, rows: int) -> None:
        if side == "left":
            self.rows_in_left += rows
        else:
            self.rows_in_right += rows

    def count_late(self, side: Side, rows: int) -> None:
        if side == "left":
            self.late_left += rows
        else:
            self.late_right += rows

    def took(self, step: str, since: float) -> float:
        """Count the time `since` then (of time.perf_counter) as that of a step; returns now."""
        now = time.perf_counter()
        self.seconds[step] += now - since
        return now
