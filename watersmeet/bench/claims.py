"""What papers say, held against what runs of ours measured: claims, and whether they hold.

Claims are made of stored results only, so that they can be judged again without a run. Each is given by the medians of
the rounds, and judged by them, with the best beside them. A claim has a range [low, high], open on one side where more,
or less, is as good. It holds if all our values lie in it, give or take a tenth: the papers' figures are rounded, and
timings are not exact. It holds in part if some of them do, or if all are on its side of 1 (slower or faster, as the
paper says, by another factor).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]
Claims = Iterator[Row]

TOLERANCE = 0.1
YES, PART, NO, NONE = "yes", "in part", "no", "-"  # the last: the paper has no figure


def with_best(typical: Iterable[Row], best: Iterable[Row], judged: bool) -> list[Row]:
    """Claims by the medians, with what the best rounds give; not judged where sizes are not the papers'."""
    return [
        row | {"best": other["ours"] or NONE} | ({} if judged else {"holds": None})
        for row, other in zip(typical, best, strict=True)
    ]  # fmt: skip


def claim(
    row: str, says: str, paper: str, ours: list[float], low: float | None = None, high: float | None = None,
    show: Callable[[float], str] | None = None,
) -> Row:  # fmt: skip
    return {"row": row, "claim": says, "paper": paper, "values": ours, "ours": shown(ours, show or times)} | {
        "low": low, "high": high, "holds": verdict(ours, low, high),
    }  # fmt: skip


def verdict(ours: list[float], low: float | None, high: float | None) -> str:
    """Whether all values lie in [low, high], give or take a tenth."""
    if low is None and high is None:
        return NONE

    def inside(value: float) -> bool:
        return (low is None or value >= low * (1 - TOLERANCE)) and (high is None or value <= high * (1 + TOLERANCE))

    if all(map(inside, ours)):
        return YES
    same_side = all(value > 1 for value in ours) if low is not None and low > 1 else False
    return PART if same_side or any(map(inside, ours)) else NO


def times(value: float) -> str:
    return f"{value:,.0f}x" if value >= 100 else f"{value:.3g}x"


def percent(value: float) -> str:
    return f"{100 * value:.0f}%"


def plain(value: float) -> str:
    return f"{value:g}"


def power(value: float) -> str:
    return f"2^{math.log2(value):.0f}" if value > 0 else "never"


def shown(values: list[float], show: Callable[[float], str]) -> str:
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
