"""Values to int64 keys, keeping their order; and the bounds of ranges over such keys.

    kind              key                                       exact
    exact, temporal   the count at the key's own scale          if int64, perhaps with an offset (uint64),
                                                                holds every value of the type; else clamped
    bool              0 or 1                                    yes
    float             the bits of the double; NaN greatest,     yes (float32 is widened first)
                      -0.0 as 0.0
    string, binary    equality: a 64-bit hash                   no
                      order: the first 8 bytes, big-endian      no

An inexact key still never loses a match: equal values have equal keys, and order is kept weakly. The plan
then re-checks the pairs that the index finds.

A bound is computed exactly, in integers of any size, then brought to the key's scale by rounding inwards (`x
>= 2.5` over integers is `x >= 3`), made inclusive by a step of one, and cut off at the ends of int64. A
bound beyond the end that no key can reach makes its range empty, which is said by the second array of the
pair `(keys, possible)`.

Worked example: `l.a > r.d` with l.a int64 and r.d = 2.50 (decimal, scale 2). The stored key is l.a itself at
scale 0, the bound is floor(250 / 100) + 1 = 3, so the range is [3, int64 max].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from . import vector
from .kernels import float_keys, hash_texts, merge, text_prefixes
from .node import Node, Rows
from .types import INT64_MAX, INT64_MIN
from .vector import Valid, both

Keyed = tuple[np.ndarray, Valid]
KeyRun = Callable[[Rows], Keyed]


# --- one value to one key -------------------------------------------------------------------------


def clamp(data: np.ndarray) -> np.ndarray:
    """Counts cut off at the ends of int64."""
    if data.dtype != object:
        return data
    return np.array([min(max(value, INT64_MIN), INT64_MAX) for value in data.tolist()], np.int64)


def offset_of(node: Node) -> int | None:
    """What to subtract so that every count of the node's type fits int64; None where nothing does."""
    if node.type.fits:
        return 0
    return node.type.low - INT64_MIN if node.type.high - node.type.low < 2**64 else None


def count_key(node: Node) -> tuple[KeyRun, int, bool]:
    """The key of a countable node: how to compute it, its offset, and whether it is exact."""
    offset = offset_of(node)
    inner = node.run
    if offset == 0:
        return inner, 0, True
    if offset is None:
        return (lambda rows: (clamp((v := inner(rows))[0]), v[1])), 0, False
    shift = vector.constant_int(offset)

    def run(rows: Rows) -> Keyed:
        data, valid = inner(rows)
        return clamp(vector.subtract(data, shift)), valid

    return run, offset, True


def plain_key(node: Node, negate: bool = False) -> KeyRun:
    """The order-preserving key of a bool, float or text node."""
    inner, kind = node.run, node.type.kind
    if kind == "bool":
        return lambda rows: ((v := inner(rows))[0].astype(np.int64), v[1])
    if kind == "float":
        return lambda rows: (doubles_key((v := inner(rows))[0], negate), v[1])
    return lambda rows: (_over_texts(text_prefixes, (v := inner(rows))[0]), v[1])


def frozen(data: np.ndarray) -> np.ndarray:
    """A read-only view, as Arrow's buffers are: a kernel given only such arrays is compiled once."""
    data = np.ascontiguousarray(data).view()
    data.flags.writeable = False
    return data


def doubles_key(data: np.ndarray, negate: bool = False) -> np.ndarray:
    return float_keys(frozen(data.astype(np.float64, copy=False)), negate)


def _over_texts(kernel: Any, data: Any) -> np.ndarray:
    """A kernel over the offsets and bytes of an Arrow text array, without a copy."""
    if isinstance(data, pa.Scalar):
        data = pa.array([data.as_py()], data.type)
    elif isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    if len(data) == 0:
        return np.empty(0, np.int64)
    large = pa.types.is_large_string(data.type) or pa.types.is_large_binary(data.type)
    dtype = np.int64 if large else np.int32
    _, offsets, content = data.buffers()
    starts = np.frombuffer(offsets, dtype, len(data) + 1, data.offset * np.dtype(dtype).itemsize)
    content = (
        np.frombuffer(content, np.uint8) if content is not None and content.size else np.zeros(1, np.uint8)
    )
    return kernel(frozen(starts), frozen(content))


def text_hashes(texts: pa.Array) -> np.ndarray:
    """A 64-bit hash of each text."""
    return _over_texts(hash_texts, texts)


def equal_key(node: Node) -> KeyRun:
    """The key of a bool, float or text node for equality alone."""
    if node.type.kind not in ("string", "binary"):
        return plain_key(node)
    inner = node.run
    return lambda rows: (text_hashes((v := inner(rows))[0]), v[1])


def equal_counts(a: Node, b: Node) -> tuple[KeyRun, KeyRun, bool]:
    """Keys of two countable nodes at one scale, equal where the values are, and whether also only there.

    Where one of the two always fits int64, a value of the other that does not fit has no partner at all.
    """
    if a.type.fits or b.type.fits:
        return _fitting(a), _fitting(b), True
    if max(a.type.high, b.type.high) - min(a.type.low, b.type.low) < 2**64:
        return wrapped(a), wrapped(b), True  # two uint64, say: modulo 2^64 nothing coincides
    return wrapped(a), wrapped(b), False


def _fitting(node: Node) -> KeyRun:
    inner = node.run
    if node.type.fits:
        return inner

    def run(rows: Rows) -> Keyed:
        data, valid = inner(rows)
        if data.dtype != object:
            return data, valid
        inside = np.asarray((data >= INT64_MIN) & (data <= INT64_MAX), bool)
        return clamp(data), both(valid, inside)

    return run


def wrapped(node: Node) -> KeyRun:
    inner = node.run

    def run(rows: Rows) -> Keyed:
        data, valid = inner(rows)
        if data.dtype == object:
            data = (data & (2**64 - 1)).astype(np.uint64).view(np.int64)
        return data, valid

    return run


# --- bounds ---------------------------------------------------------------------------------------


def count_bound(node: Node, divisor: int, offset: int, sign: str, exact: bool) -> KeyRun:
    """The inclusive bound that `key (sign) node / divisor` puts on a count key; sign is one of > >= < <=."""
    inner, low = node.run, sign in (">", ">=")
    # >= rounds up and < is one less than up; > is one more than down and <= rounds down.
    up = sign in (">=", "<")
    step = {">": 1, "<": -1}.get(sign, 0)
    shift = step - offset
    simple = divisor == 1 and shift == 0
    fits = (
        node.type.fits
        and divisor == 1
        and node.type.low + shift >= INT64_MIN
        and node.type.high + shift <= INT64_MAX
    )
    amount = vector.constant_int(shift)
    modulo = (shift - INT64_MIN) % 2**64 + INT64_MIN  # the shift itself may not fit, as the sum does

    def run(rows: Rows) -> Keyed:
        data, valid = inner(rows)
        if fits:
            return (data if simple else data + modulo), valid
        if divisor != 1:
            data = (
                vector.negate(vector.floor_divide(vector.negate(data), divisor))
                if up
                else vector.floor_divide(data, divisor)
            )
        if shift:
            data = vector.add(data, amount)
        if data.dtype != object:
            return data, valid
        beyond = np.asarray(data > INT64_MAX if low else data < INT64_MIN, bool)
        if exact and beyond.any():  # past every key; a clamped key may still lie there
            valid = both(valid, ~beyond)
        return clamp(data), valid

    return run


def key_bound(run_key: KeyRun, step: int) -> KeyRun:
    """A bound that is a key of the same mapping, moved by a step (its keys are far from the ends)."""
    if step == 0:
        return run_key
    return lambda rows: ((v := run_key(rows))[0] + step, v[1])


class Band:
    """One range of keys, above all `lows` and below all `highs`, for every row of a probing batch."""

    __slots__ = ("lows", "highs")

    def __init__(self, lows: tuple[KeyRun, ...], highs: tuple[KeyRun, ...]) -> None:
        self.lows, self.highs = lows, highs

    def run(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, Valid]:
        low, possible = _tightest(self.lows, rows, np.maximum, INT64_MIN)
        high, also = _tightest(self.highs, rows, np.minimum, INT64_MAX)
        return low, high, both(possible, also)


def _tightest(bounds: tuple[KeyRun, ...], rows: Rows, pick: Any, otherwise: int) -> Keyed:
    if not bounds:
        return np.full(rows.count, otherwise, np.int64), None
    keys, possible = bounds[0](rows)
    for bound in bounds[1:]:
        others, also = bound(rows)
        keys, possible = pick(keys, others), both(possible, also)
    return full((keys, possible), rows.count)


def full(keyed: Keyed, count: int) -> Keyed:
    """One key a row, also where all rows share one."""
    keys, possible = keyed
    if len(keys) != count:
        keys = np.full(count, keys[0], np.int64)
    if possible is not None and len(possible) != count:
        possible = np.full(count, possible[0], bool)
    return keys, possible


def bands_of(bands: tuple[Band, ...], rows: Rows) -> tuple[tuple, tuple, np.ndarray | None]:
    """Lows, highs and which rows can match at all; the bands of one row are disjoint."""
    if len(bands) == 1:
        low, high, possible = bands[0].run(rows)
        return (low,), (high,), possible
    lows = np.empty((len(bands), rows.count), np.int64)
    highs = np.empty((len(bands), rows.count), np.int64)
    for i, band in enumerate(bands):
        low, high, possible = band.run(rows)
        lows[i], highs[i] = low, high
        if possible is not None:
            lows[i][~possible], highs[i][~possible] = INT64_MAX, INT64_MIN
    merge(lows, highs)
    return tuple(lows), tuple(highs), None
