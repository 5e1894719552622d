"""Memory on a device, in blocks that are used again: to have it anew from a driver takes longer than most kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any

import numpy as np

#: Bytes below which blocks have one size.
_LEAST_BYTES = 1 << 12


class Block:
    """Memory on the device. array: for kernels; values: the same for whoever sorts and sums there (CuPy), if any."""

    __slots__ = ("_pool", "array", "dtype", "size", "values")

    def __init__(self, array: Any, values: Any, size: int, dtype: Any, pool: list | None):
        self.array = array
        self.values = values
        self.size = size
        self.dtype = np.dtype(dtype)
        self._pool = pool

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __del__(self) -> None:
        if self._pool is not None:
            self._pool.append((self.array, self.values))


class Memory(ABC):
    """Blocks of one device. A block that nobody holds any more may be taken by work that is asked for later, which must
    also happen later: a device has one queue."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, int], list] = defaultdict(list)

    @abstractmethod
    def allocate(self, n: int, dtype: Any, what: str) -> Block:
        """n values for as long as somebody holds them; `what` they are, should there be no room."""

    def take(self, n: int, dtype: Any, what: str = "a batch") -> Block:
        """At least n values, for a while. Their memory is kept for the next."""
        kind = np.dtype(dtype)
        nbytes = max(_LEAST_BYTES, 1 << (max(n * kind.itemsize, 1) - 1).bit_length())
        pool = self._pools[kind.char, nbytes]
        size = nbytes // kind.itemsize
        try:
            array, values = pool.pop()
        except IndexError:
            block = self.allocate(size, dtype, what)
            array, values = block.array, block.values
        return Block(array, values, size, kind, pool)
