"""What is asked again and again of the ticks of a batch, found in one pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit


class Span(NamedTuple):
    least: int
    greatest: int
    in_order: bool  # no tick is below the one before it


@njit(nogil=True, cache=True)
def _span(ticks):
    least = ticks[0]
    greatest = ticks[0]
    below = 0
    for i in range(1, ticks.size):  # no step depends on the one before: several are done at once
        below += ticks[i] < ticks[i - 1]
        least = min(least, ticks[i])
        greatest = max(greatest, ticks[i])
    return least, greatest, below == 0


def span_of(ticks: np.ndarray) -> Span:
    """The span of a batch that is not empty. O(n)."""
    return Span(*_span(ticks))
