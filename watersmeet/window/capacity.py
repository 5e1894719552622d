"""How much one Arrow array can hold, and what to do where there is more.

Arrays of text and lists have 32-bit offsets: 2 GiB of text, or as many values in lists, is all that one of them can
hold. A result, or several batches put together, may have more. So whoever makes arrays of many rows asks first, and
makes several where one is not enough.

    make(0, n)  ->  too much  ->  make(0, n/2), make(n/2, n)  ->  ...

A single row always fits: it came in an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as is_

Array = np.ndarray
T = TypeVar("T")

#: Bytes of text, or values of lists, in one array.
MOST = np.iinfo(np.int32).max
_TEXT = (pa.string().id, pa.binary().id)


class TooMuch(Exception):
    """These rows do not fit into one array."""


def in_parts(make: Callable[[int, int], T], start: int, stop: int) -> list[T]:
    """make(start, stop), or what it makes of smaller parts, in order, where that is too much."""
    try:
        return [make(start, stop)]
    except TooMuch:
        if stop - start < 2:
            raise
        middle = (start + stop) // 2
        return in_parts(make, start, middle) + in_parts(make, middle, stop)


def sizes(batch: pa.RecordBatch) -> Array:
    """How much of an array each column would fill. O(columns), whatever the rows."""
    return np.array([_size(column) for column in batch.columns], np.int64)


def _size(array: pa.Array) -> int:
    n, t = len(array), array.type
    if n and t.id in _TEXT:
        offsets: Array = np.frombuffer(array.buffers()[1], np.int32)
        return int(offsets[array.offset + n]) - int(offsets[array.offset])
    return extent(array, np.zeros(1, np.int64), np.full(1, n))


def extent(array: pa.Array, starts: Array, stops: Array) -> int:
    """How many bytes of text, or values of lists, lie in rows starts[i] to stops[i]; of nested ones the most of any
    level. O(starts)."""
    t = array.type
    if isinstance(t, pa.BaseExtensionType):
        return extent(array.storage, starts, stops)
    if (not t.num_fields and t.id not in _TEXT) or not len(array):
        return 0
    if not t.num_fields:
        begin, end = _offsets(array, starts, stops, np.int32)
        return int((end - begin).sum())
    if is_.is_list(t) or is_.is_map(t):
        begin, end = _offsets(array, starts, stops, np.int32)
        parts = [array.keys, array.items] if is_.is_map(t) else [array.values]
        return max(int((end - begin).sum()), *(extent(part, begin, end) for part in parts))
    if is_.is_large_list(t):
        return extent(array.values, *_offsets(array, starts, stops, np.int64))
    if is_.is_fixed_size_list(t):
        first, size = array.offset, t.list_size
        return extent(array.values, (first + starts) * size, (first + stops) * size)
    if is_.is_struct(t):
        return max((extent(array.field(i), starts, stops) for i in range(t.num_fields)), default=0)
    return 0


def _offsets(array: pa.Array, starts: Array, stops: Array, dtype: type) -> tuple[Array, Array]:
    offsets: Array = np.frombuffer(array.buffers()[1], dtype, array.offset + len(array) + 1)[array.offset :]
    return offsets[starts].astype(np.int64), offsets[stops].astype(np.int64)
