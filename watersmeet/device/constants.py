"""What is the same for a whole batch, and is sent to a device once instead of for every tuple."""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.index.base import Array

_LOOKED_AT = 1024


def constant_difference(keys: Array, values: Array) -> int | None:
    """values - keys, if that is the same everywhere, and a number that can be added again."""
    if not keys.size:
        return 0
    by = int(values[0]) - int(keys[0])
    if not -(1 << 62) < by < 1 << 62:
        return None
    return by if keys is values or _differ_by(keys, values, by) else None


def constant(values: Array) -> int | None:
    """The value that all of them are, if they are."""
    if values.strides == (0,) and values.size:
        return int(values[0])
    return int(values[0]) if values.size and _all_are(values, values[0]) else None


@njit(nogil=True, cache=True)
def _differ_by(keys, values, by):
    """Whether values - keys is `by`, everywhere. Where it would wrap around it is not."""
    begin = 0
    while begin < keys.size:
        end = min(begin + _LOOKED_AT, keys.size)
        others, wrapped = np.uint64(0), np.int64(0)  # bits, gathered: without a branch or a comparison
        for i in range(begin, end):
            moved = np.uint64(keys[i]) + np.uint64(by)  # of signed ones the compiler takes it that they do not wrap
            others |= moved ^ np.uint64(values[i])
            wrapped |= (keys[i] ^ values[i]) & (by ^ values[i])
        if others or wrapped < 0:
            return False
        begin = end
    return True


@njit(nogil=True, cache=True)
def _all_are(values, value):
    begin = 0
    while begin < values.size:
        end = min(begin + _LOOKED_AT, values.size)
        others = 0
        for i in range(begin, end):
            others += values[i] != value
        if others:
            return False
        begin = end
    return True
