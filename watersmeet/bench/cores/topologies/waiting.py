"""What a thread does while it waits for another, inside a kernel.

It tries again at once, for a short time: messages come within a microsecond where every thread has a processor. Then it
gives the processor to whoever else is ready, and tries again when it is its turn: threads may be more than processors.
It stops waiting when the run has been stopped, which is what `control` is for.

    control  | stopped | tries before the processor is given away | threads that are not here yet | ...
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from watersmeet.atomics import fetch_add as _fetch_add
from watersmeet.atomics import load as _load
from watersmeet.atomics import store as _store

STOPPED, TRIES, ABSENT = 0, 1, 2
LINE = 8  # int64 words of a cache line

@intrinsic
def _pause(typing):
    """Tells the processor that this is a loop that waits: its other half, if it has two, gets all of it."""

    def code(context, builder, signature, args):
        if platform.machine() in ("x86_64", "AMD64"):
            function = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.none(), code


@intrinsic
def _give_way(typing):
    """The system's sched_yield, without a way back to Python."""

    def code(context, builder, signature, args):
        function = ir.FunctionType(ir.IntType(32), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, function, "sched_yield"), [])

    return types.int32(), code


# Called inside of kernels only, where Numba supplies the typing context.
pause: Any = _pause
give_way: Any = _give_way
fetch_add: Any = _fetch_add
load: Any = _load
store: Any = _store


def new_control(threads: int, processors: int) -> np.ndarray:
    control = np.zeros(LINE, np.int64)
    control[TRIES] = 1_000 if threads <= processors else 20
    control[ABSENT] = threads
    return control


@njit(nogil=True, cache=True)
def stop(control):
    store(control, STOPPED, 1)


@njit(nogil=True)
def stopped(control):
    return load(control, STOPPED) != 0


@njit(nogil=True)
def rest(control, tries):
    """Wait a little, after so many tries in vain; says whether to go on."""
    if tries < control[TRIES]:
        pause()
    else:
        give_way()
    return load(control, STOPPED) == 0


@njit(nogil=True)
def here(control):
    """Said by each thread when its kernel begins."""
    fetch_add(control, ABSENT, -1)


@njit(nogil=True)
def all_here(control):
    """Wait for all other threads, so that no time is taken while some are being started; says whether to go on."""
    here(control)
    tries = 0
    while load(control, ABSENT) > 0:
        if not rest(control, tries):
            return False
        tries += 1
    return True
