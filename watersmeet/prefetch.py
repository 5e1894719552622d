"""Telling the processor what a kernel will read soon.

A kernel that looks at scattered places waits for most of them: a processor runs only a few dozen steps of a loop ahead,
and fewer where the loop also writes. Asked for some steps early, what it reads has arrived when its turn comes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_BYTES = ir.IntType(8).as_pointer()


def _ask_for(builder, pointer) -> None:
    word = ir.IntType(32)
    parameters = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
    function = builder.module.declare_intrinsic("llvm.prefetch", (pointer.type,), parameters)
    to_read, into_all_caches, data_not_code = word(0), word(3), word(1)
    builder.call(function, [pointer, to_read, into_all_caches, data_not_code])


@intrinsic
def _line_of(typingctx, array, place):
    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _ask_for(builder, builder.bitcast(builder.gep(data, [args[1]]), _BYTES))
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


@intrinsic
def _line_at(typingctx, address):
    def codegen(context, builder, signature, args):
        _ask_for(builder, builder.inttoptr(args[0], _BYTES))
        return context.get_dummy_value()

    return types.void(types.int64), codegen


# Called inside of kernels only, where Numba supplies the typing context. A place that does not exist does no harm.
prefetch: Any = _line_of  # prefetch(array, place)
prefetch_address: Any = _line_at
