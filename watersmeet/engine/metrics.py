"""What a join has done so far, and what it holds."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from watersmeet.engine import show
from watersmeet.query.windows import Side

STEPS = ("keys", "sort", "probe", "store", "gather", "expire")


@dataclass(repr=False)
class Metrics:
    """Counters since the join began; `stored_*`, `*_bytes` and `watermark` are as of now.

    A self join has one stream, the left: its rows, late and stored ones are counted there, once. On the right it counts
    only what a second index stores, and what is late by a second time column.

    loads: tuples that each core holds; empty while there is one.
    seconds: time per step, summed over threads and cores, so that the steps of a join may add up to more than the clock
    on the wall.
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
    watermark: Any = None
    pushes: int = 0
    loads: list[int] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))

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
