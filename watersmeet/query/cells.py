"""Cells: keys cut into pieces of one width.

A cell's number grows with the key, weakly: of two keys the greater never has the lower number, however its number was
rounded. So the cells from that of a range's low end to that of its high end hold every key of the range, and nothing
that is built upon cells loses a pair, whatever the keys are: beyond 2^53, infinite, or not a number.

    width 20, whole keys            -25 -> -2     -1 -> -1     0 -> 0     19 -> 0     20 -> 1
    doubles                         infinity -> the last but one, NaN -> the last

Numbers are those of the keys, divided as doubles; the keys of doubles, which are their bits, are made numbers first.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from .kernels import INFINITY_KEY, INT64_GREATEST
from .keys import Band
from .node import Rows
from .types import INT64_MAX, INT64_MIN

FAR = 1 << 62
_FAR_AWAY = float(FAR)


@njit(inline="always")
def cell_of(key, doubles, inverse):
    """The number of a key's cell; `inverse` is 1 / width."""
    if not doubles:
        number = np.float64(key) * inverse
    elif key > INFINITY_KEY:  # NaN; or no bound at all
        return np.int64(FAR + 1)
    elif key < ~INFINITY_KEY:
        return np.int64(-FAR - 1)
    else:
        number = np.int64(key if key >= 0 else key ^ INT64_GREATEST).view(np.float64) * inverse
    return np.int64(np.floor(min(max(number, -_FAR_AWAY), _FAR_AWAY)))


def specimens(schema: pa.Schema) -> pa.RecordBatch:
    """A few made-up tuples, to see how wide the ranges are that such tuples look for."""
    return pa.RecordBatch.from_arrays([_values(field.type) for field in schema], schema=schema)


def _values(t: pa.DataType) -> pa.Array:
    numbers: Any = [0, 1, 2, 10, 100]
    for values in (pa.array(numbers, pa.int64()), pa.array(numbers, pa.int32()), pa.array([str(n) for n in numbers])):
        try:
            return values.cast(t)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    if pa.types.is_decimal(t):  # with no room for these before the point
        return pa.array([Decimal(min(n, 10**t.precision - 1)).scaleb(-t.scale) for n in numbers], t)
    return pa.nulls(len(numbers), t)


def width_of(bands: tuple[Band, ...], rows: Rows, doubles: bool) -> float | None:
    """How wide the ranges are that these tuples look for; None where that differs, or they have no end."""
    widths: list[float] = []
    for band in bands:
        low, high, possible = band.run(rows)
        for i in range(rows.count):
            a, b = int(low[i]), int(high[i])
            if possible is not None and not possible[i]:
                continue
            if a == INT64_MIN or b == INT64_MAX:
                return None
            widths.append(number_of(b) - number_of(a) if doubles else b - a + 1)
    if not widths or not all(math.isfinite(width) and width > 0 for width in widths):
        return None
    widest = max(widths)
    # Whole keys may differ by one: 2 * l.x between r.x - 4 and r.x + 4 holds for five of them or four.
    return widest if min(widths) >= min(0.99 * widest, widest if doubles else widest - 1) else None


def number_of(key: int) -> float:
    """The double that has this key."""
    return float(np.int64(key if key >= 0 else key ^ INT64_MAX).view(np.float64))

