"""The processor's own clock, for kernels that take times of things shorter than a microsecond.

    before = cycles() ... after = cycles()      inside a kernel: a few nanoseconds
    (after - before) / per_second()             seconds

The counter (on x86-64 the time stamp counter) goes on at one speed, whatever the processor's, and all cores of a
machine show the same: a time taken on one may be compared with one taken on another. It is read where it stands in the
code, give or take the few dozen instructions that a processor has under way.
"""

from __future__ import annotations

from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def _read(typing):
    def code(context, builder, signature, args):
        function = ir.FunctionType(ir.IntType(64), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.readcyclecounter"), [])

    return types.int64(), code


cycles: Any = _read  # Numba supplies the typing context


@njit(nogil=True, cache=True)
def now():
    """The counter, for Python."""
    return cycles()


@cache
def per_second(seconds: float = 0.05) -> float:
    """How many cycles a second has, by the clock of the system: measured once, for so long."""
    now()  # compiled before the clock starts
    return median(_once(seconds / 5) for _ in range(5))  # one of them may wait for a core between its two clocks


def _once(seconds: float) -> float:
    start, begin = perf_counter(), now()
    while perf_counter() - start < seconds:
        pass
    return (now() - begin) / (perf_counter() - start)


__all__ = ["cycles", "now", "per_second"]
