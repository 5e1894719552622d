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
    in_order = True
    for tick in ticks:
        in_order &= tick >= greatest
        least = min(least, tick)
        greatest = max(greatest, tick)
    return least, greatest, in_order


def span_of(ticks: np.ndarray) -> Span:
    """The span of a batch that is not empty. O(n)."""
    return Span(*_span(ticks))
