"""Gathering rows that lie scattered over many Arrow batches into one array.

A result row points at a stored tuple by (chunk, row in the chunk). Arrow's own `take` on a chunked array first
copies all of the chunks into one, which costs more than the whole join when a window is large and a result small.
Here kernels read straight from the buffers of the chunks, through their addresses; what they touch is what comes out.

    chunk   [ 0 , 2 , 0 ]        addresses [ 0x7f..00 , 0x7f..80 , 0x7f..c0 ]
    row     [ 5 , 1 , 6 ]        out[i] = *(addresses[chunk[i]] + row[i] * width)

Fixed-width types, booleans, strings and binaries with offsets go this way; nested types, dictionaries and views are
taken chunk by chunk with Arrow and put in order.

Cost: O(rows out), and O(1) Python work a column (for the Arrow way O(chunks touched)).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from llvmlite import ir
from numba import carray, njit
from numba.core import cgutils, types
from numba.extending import intrinsic

from watersmeet.memory import allocate
from watersmeet.prefetch import prefetch_address
from watersmeet.window import capacity

Array = np.ndarray

_CHUNK = 1024  # positions located before they are taken
_AHEAD = 24  # texts that are asked for before their turn


@intrinsic
def _at_address(typingctx, address):
    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


@intrinsic
def _word_at(typingctx, address):
    def codegen(context, builder, signature, args):
        return builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()))

    return types.uint64(address), codegen


@intrinsic
def _copy_eight(typingctx, to, source):
    def codegen(context, builder, signature, args):
        to, source = (builder.inttoptr(arg, ir.IntType(64).as_pointer()) for arg in args)
        builder.store(builder.load(source, align=1), to, align=1)
        return context.get_dummy_value()

    return types.void(to, source), codegen


# Called inside of kernels only, where Numba supplies the typing context.
pointer: Any = _at_address
word: Any = _word_at
copy_eight: Any = _copy_eight  # copy_eight(to, source): bytes, at any addresses


@njit(nogil=True, cache=True)
def _gather_values(addresses, chunk, row, out):
    for i in range(row.size):
        out[i] = carray(pointer(addresses[chunk[i]]), (1,), out.dtype)[row[i]]


def values_of_all_widths() -> None:
    """Have the kernel compiled for each width: which of them a join needs, its columns decide."""
    for word in _WORDS.values():
        _gather_values(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, word))


@njit(nogil=True, cache=True)
def _gather_wide(addresses, words, chunk, row, out):
    """Values of several 8-byte words (decimals)."""
    for i in range(row.size):
        source = carray(pointer(addresses[chunk[i]]), (1,), np.int64)
        for w in range(words):
            out[i * words + w] = source[row[i] * words + w]


@njit(nogil=True, cache=True)
def _gather_bytes(addresses, width, chunk, row, out):
    """Values of any other width (fixed-size binary)."""
    for i in range(row.size):
        source = carray(pointer(addresses[chunk[i]]), (1,), np.uint8)
        for w in range(width):
            out[i * width + w] = source[row[i] * width + w]


@njit(nogil=True, cache=True)
def _gather_bits(addresses, offsets, chunk, row, out):
    """Bits into a packed bitmap; a chunk without a bitmap has all bits 1. Counts zeros."""
    zeros = 0
    for i in range(row.size):
        c = chunk[i]
        bit = 1
        if addresses[c]:
            at = offsets[c] + row[i]
            bit = (carray(pointer(addresses[c]), (1,), np.uint8)[at >> 3] >> (at & 7)) & 1
        out[i >> 3] |= np.uint8(bit << (i & 7))
        zeros += 1 - bit
    return zeros


@njit(nogil=True, cache=True)
def _gather_offsets(addresses, chunk, row, out):
    """Offsets of the texts to be gathered; returns their total length."""
    total = np.int64(0)
    out[0] = 0
    for i in range(row.size):
        source = carray(pointer(addresses[chunk[i]]), (1,), out.dtype)
        total += source[row[i] + 1] - source[row[i]]
        out[i + 1] = total
    return total


@njit(nogil=True, cache=True)
def _gather_texts(addresses, data, chunk, row, offsets, out):
    """Texts are short, so they are copied by eight bytes, the last eight of them once more; and asked for early: where
    they begin is known from gathering the offsets."""
    first = np.int64(out.ctypes.data)
    rows = row.size
    for i in range(rows):
        if i + _AHEAD < rows:
            c = chunk[i + _AHEAD]
            source = carray(pointer(addresses[c]), (1,), offsets.dtype)
            prefetch_address(np.int64(data[c]) + np.int64(source[row[i + _AHEAD]]))
        c = chunk[i]
        source = carray(pointer(addresses[c]), (1,), offsets.dtype)
        text = np.int64(data[c]) + np.int64(source[row[i]])
        size = np.int64(offsets[i + 1]) - np.int64(offsets[i])
        to = first + np.int64(offsets[i])
        if size >= 8:
            for k in range(0, size - 7, 8):
                copy_eight(to + k, text + k)
            copy_eight(to + size - 8, text + size - 8)
        else:
            short = carray(pointer(text), (1,), np.uint8)
            for k in range(size):
                out[offsets[i] + k] = short[k]


@njit(nogil=True, cache=True)
def gather_words(where, columns, positions, starts, blocks, block_bits, first, outputs, start, stop):
    """Columns of 8-byte values without nulls at positions[start:stop], to these addresses; see `locate` for the rest.

    Located some at a time, then taken column by column, so that the places stay in cache.
    """
    chunk = np.empty(_CHUNK, np.uint32)
    row = np.empty(_CHUNK, np.int64)
    while start < stop:
        count = min(_CHUNK, stop - start)
        for i in range(count):
            p = positions[start + i]
            c = blocks[np.uint64(p - first) >> np.uint64(block_bits)]
            while p >= starts[np.uint32(c + 1)]:
                c += 1
            chunk[i] = c
            row[i] = 8 * (p - starts[np.uint32(c)])
        for k in range(columns.size):
            addresses = where[columns[k], 2]
            out = carray(pointer(outputs[k]), (stop,), np.uint64)
            for i in range(count):
                out[np.uint64(start + i)] = word(addresses[chunk[i]] + row[i])
        start += count


@njit(nogil=True, cache=True)
def locate(positions, starts, blocks, block_bits, first, chunk, row):
    """Turn positions into (chunk, row).

    `blocks` holds the chunk in which each block of 2^block_bits positions, from `first` on, begins; so the search is a
    step or two.
    """
    for i in range(positions.size):
        p = positions[i]
        c = blocks[(p - first) >> block_bits]
        while p >= starts[c + 1]:
            c += 1
        chunk[i] = c
        row[i] = p - starts[c]


_OFFSETS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class ColumnKind:
    """How values of one Arrow type are gathered."""

    def __init__(self, type_: pa.DataType):
        self.type = type_
        extension = isinstance(type_, pa.BaseExtensionType)  # of which some cannot be hashed
        self.offset_type = None if extension else _OFFSETS.get(type_)
        self.boolean = pa.types.is_boolean(type_)
        width = None
        if not (extension or pa.types.is_dictionary(type_) or pa.types.is_null(type_)):
            try:
                width = type_.bit_width // 8  # of a boolean 0
            except ValueError:  # it has none
                pass
        self.width = width
        self.direct = self.boolean or bool(width) or self.offset_type is not None

    def addresses(self, array: pa.Array) -> tuple[int, int, int, int]:
        """(validity bitmap or 0, bit offset, values or offsets, text bytes) of one array."""
        buffers = array.buffers()
        validity = buffers[0].address if buffers[0] is not None and array.null_count else 0
        values = buffers[1].address if buffers[1] is not None else 0
        if self.boolean:
            return validity, array.offset, values, 0
        if self.offset_type is not None:
            data = buffers[2].address if buffers[2] is not None else 0
            return validity, array.offset, values + array.offset * np.dtype(self.offset_type).itemsize, data
        return validity, array.offset, values + array.offset * (self.width or 0), 0

    def gather(self, where: Array, chunk: Array, row: Array, may_be_null: bool) -> pa.Array:
        """`where` has one row of `addresses` for each chunk, transposed: [4, chunks]."""
        n = row.size
        validity = None
        nulls = 0
        if may_be_null:
            bits = np.zeros((n + 7) // 8, np.uint8)
            nulls = _gather_bits(where[0], where[1], chunk, row, bits)
            validity = pa.py_buffer(bits) if nulls else None
        if self.boolean:
            bits = np.zeros((n + 7) // 8, np.uint8)
            _gather_bits(where[2], where[1], chunk, row, bits)
            buffers = [validity, pa.py_buffer(bits)]
        elif self.offset_type is not None:
            offset_buffer, offsets = allocate(n + 1, self.offset_type)
            total = _gather_offsets(where[2], chunk, row, offsets)
            if self.offset_type is np.int32 and total > capacity.MOST:
                raise capacity.TooMuch
            text_buffer, text = allocate(total, np.uint8)
            _gather_texts(where[2], where[3], chunk, row, offsets, text)
            buffers = [validity, offset_buffer, text_buffer]
        else:
            width = self.width or 0
            value_buffer, values = allocate(n * width, np.uint8)
            if width in _WORDS:
                _gather_values(where[2], chunk, row, values.view(_WORDS[width]))
            elif width % 8 == 0:
                _gather_wide(where[2], width // 8, chunk, row, values.view(np.int64))
            else:
                _gather_bytes(where[2], width, chunk, row, values)
            buffers = [validity, value_buffer]
        return pa.Array.from_buffers(self.type, n, buffers, nulls if validity is not None else 0)


def gather_by_chunk(arrays: dict[int, pa.Array], type_: pa.DataType, chunk: Array, row: Array) -> pa.Array:
    """The way for types whose buffers we do not read: Arrow's take on each chunk, then into order."""
    order = np.argsort(chunk, kind="stable")
    by_chunk = chunk[order]
    edges = np.flatnonzero(np.diff(by_chunk)) + 1
    parts = [(arrays[int(chunk[part[0]])], row[part]) for part in np.split(order, edges)] if order.size else []
    if sum(capacity.extent(array, rows, rows + 1) for array, rows in parts) > capacity.MOST:
        raise capacity.TooMuch
    pieces = [array.take(pa.array(rows)) for array, rows in parts]
    if not pieces:
        return pa.nulls(0, type_)
    if len(pieces) == 1:
        return pieces[0]
    back = np.empty(order.size, np.int64)
    back[order] = np.arange(order.size)
    joined = pa.concat_arrays(pieces)
    return joined.take(pa.array(back))
