"""Room for results and for work in progress.

It comes from Arrow's memory pool, which keeps what is freed for the next batch. The C library gives large pieces back
to the system, and to have them anew, zeroed, page by page, costs more than to fill them. Small pieces it keeps, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

#: Values below which a piece is small.
_FEW = 1 << 13


def allocate(n: int, dtype: Any) -> tuple[pa.Buffer, np.ndarray]:
    """n uninitialised values, as an Arrow buffer and as an array over it."""
    buffer = pa.allocate_buffer(n * np.dtype(dtype).itemsize)
    return buffer, np.frombuffer(buffer, dtype)


def room(n: int, dtype: Any) -> np.ndarray:
    """n uninitialised values."""
    if n < _FEW:
        return np.empty(n, dtype)
    return allocate(n, dtype)[1]


def repeated(values: np.ndarray, n: int) -> np.ndarray:
    """The first of these values n times, by reference. As `np.broadcast_to`, which takes ten times as long."""
    array: np.ndarray = np.ndarray((n,), values.dtype, values, 0, (0,))
    array.flags.writeable = False
    return array
