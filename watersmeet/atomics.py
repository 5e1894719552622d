"""Atomic operations on the elements of an array, for kernels that several threads run at once without Python's lock.

    ticket = fetch_add(counters, 0, 1)         each thread gets another number
    lock(locks, i) ... unlock(locks, i)        one at a time; what was written before `unlock` is seen behind `lock`

Numba has none for processors, LLVM has all: each function here is one instruction of it. Arrays are of int64, and
indexes are not checked. All are in one order that all threads agree on (`seq_cst`), but for `load` and `store`, which
order what is written before a `store` before what is read behind a `load` that sees it.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.extending import intrinsic

_instruction: Any = intrinsic  # called without the first parameter, which type checkers do not know


def _pointer(context, builder, signature, args):
    """Of the element that the first two arguments name."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


def _check(array, *values):
    return isinstance(array, types.Array) and array.dtype == types.int64 and array.ndim == 1 and array.mutable


@_instruction
def fetch_add(typing, array, index, value):
    """Add to an element; gives what it was before."""
    if not _check(array):
        return None

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", _pointer(context, builder, signature, args), args[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), code


@_instruction
def compare_and_swap(typing, array, index, expected, new):
    """If an element is as expected, make it new, and say so."""
    if not _check(array):
        return None

    def code(context, builder, signature, args):
        pointer = _pointer(context, builder, signature, args)
        outcome = builder.cmpxchg(pointer, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(outcome, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), code


@_instruction
def load(typing, array, index):
    """An element, and all that was written before it was stored."""
    if not _check(array):
        return None

    def code(context, builder, signature, args):
        return builder.load_atomic(_pointer(context, builder, signature, args), "acquire", 8)

    return types.int64(array, types.intp), code


@_instruction
def store(typing, array, index, value):
    """Set an element; whoever loads it sees all that was written before."""
    if not _check(array):
        return None

    def code(context, builder, signature, args):
        builder.store_atomic(args[2], _pointer(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.int64), code


@_instruction
def fence(typing):
    """What was stored before is seen by all, before anything is loaded behind: `load` and `store` do not order that."""

    def code(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), code


@_instruction
def uncounted(typing, array):
    """The same array, without a count of references: threads would take that from each other all the time.

    Whoever calls the kernel must hold on to the array.
    """
    if not isinstance(array, types.Array):
        return None

    def code(context, builder, signature, args):
        same = context.make_array(signature.return_type)(context, builder, args[0])
        same.meminfo = same.meminfo.type(None)
        same.parent = same.parent.type(None)
        return same._getvalue()

    return array(array), code


@njit(inline="always")
def try_lock(locks, i):
    """Take the lock if it is free, and say so."""
    return load(locks, i) == 0 and compare_and_swap(locks, i, 0, 1)


@njit(inline="always")
def lock(locks, i):
    """Wait until the lock is free, and take it. For short times: who waits keeps its core."""
    while not try_lock(locks, i):
        pass


@njit(inline="always")
def unlock(locks, i):
    store(locks, i, 0)


__all__ = ["compare_and_swap", "fence", "fetch_add", "load", "lock", "store", "try_lock", "uncounted", "unlock"]

