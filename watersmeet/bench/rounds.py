"""The rounds of a measurement: the median is what to expect, the best what the code does where nothing disturbs it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]


def median(rounds: Sequence[float]) -> float:
    return float(statistics.median(rounds))


def typical(row: Row) -> float | None:
    """The median of a stored row's rounds; None where an older run did not keep them."""
    return median(row["rounds"]) if row.get("rounds") else None
