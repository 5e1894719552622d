"""Numba kernels for keys and ticks: float bits, text hashes, text prefixes, mixing several keys into one, sums that are
held at the ends of int64.

Serial, without the GIL, cached on disk. Loops rather than NumPy expressions because each would need four or
five passes and as many temporaries.
"""

from __future__ import annotations

import numba
import numpy as np

_jit = numba.njit(cache=True, nogil=True)

NAN_KEY = np.int64(0x7FF8000000000000)  # above +infinity's
INT64_GREATEST = _SIGN = np.int64(0x7FFFFFFFFFFFFFFF)
_LOWEST = np.int64(-0x8000000000000000)
INFINITY_KEY = _INFINITY = np.int64(0x7FF0000000000000)
ODD = _ODD_1 = np.uint64(0x9E3779B97F4A7C15)
_ODD_2 = np.uint64(0xBF58476D1CE4E5B9)
_ODD_3 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S8 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(8)
_TOP = np.uint64(1) << np.uint64(63)


@_jit
def add_held(numbers, amount, out):
    """numbers + amount, held at the ends of int64 instead of wrapping round."""
    least, greatest = _LOWEST - min(amount, 0), _SIGN - max(amount, 0)
    for i in range(numbers.size):
        out[i] = min(max(numbers[i], least), greatest) + amount


@_jit
def add_inside(numbers, amount, out):
    """numbers + amount; False where a sum is beyond int64."""
    beyond = 0
    for i in range(numbers.size):
        total = numbers[i] + amount
        beyond += ((numbers[i] ^ total) & (amount ^ total)) < 0
        out[i] = total
    return beyond == 0


@_jit
def float_keys(values, negate):
    """Order-preserving int64 of doubles (negated first, if asked): NaN greatest, -0.0 equal to 0.0."""
    out = np.empty(values.size, np.int64)
    bits = values.view(np.int64)
    for i in range(values.size):
        value = values[i]
        if value != value:
            out[i] = NAN_KEY
        elif value == 0.0:
            out[i] = 0
        else:
            word = bits[i]
            if negate:
                word = word ^ np.int64(-0x8000000000000000)
            out[i] = word if word >= 0 else word ^ _SIGN
    return out


@numba.njit
def scramble(word):
    word = (word ^ (word >> _S30)) * _ODD_2
    word = (word ^ (word >> _S27)) * _ODD_3
    return word ^ (word >> _S31)


@_jit
def hash_texts(offsets, data):
    """A 64-bit hash of each data[offsets[i]:offsets[i + 1]]."""
    count = offsets.size - 1
    out = np.empty(count, np.int64)
    for i in range(count):
        start, stop = offsets[i], offsets[i + 1]
        state = _ODD_1 * np.uint64(stop - start + 1)
        at = start
        while at + 8 <= stop:
            word = np.uint64(0)
            for k in range(8):
                word = (word << _S8) | np.uint64(data[at + k])
            state = scramble(state ^ word) + _ODD_1
            at += 8
        word = np.uint64(0)
        while at < stop:
            word = (word << _S8) | np.uint64(data[at])
            at += 1
        out[i] = np.int64(scramble(state ^ word))
    return out


@_jit
def text_prefixes(offsets, data):
    """The first 8 bytes of each text as a big-endian number, shifted into int64: weakly order-preserving."""
    count = offsets.size - 1
    out = np.empty(count, np.int64)
    for i in range(count):
        start, stop = offsets[i], min(offsets[i + 1], offsets[i] + 8)
        word = np.uint64(0)
        for k in range(8):
            byte = np.uint64(data[start + k]) if start + k < stop else np.uint64(0)
            word = (word << _S8) | byte
        out[i] = np.int64(word ^ _TOP)
    return out


@_jit
def mix(state, keys):
    """Several keys into one: fold `keys` into the running hash `state`, in place."""
    for i in range(state.size):
        state[i] = np.int64(scramble(np.uint64(state[i]) * _ODD_1 + np.uint64(keys[i])))


@numba.njit
def _outward(word, up):
    """The bits of the next double after the one with these bits; NaN and the infinity outwards stay."""
    if (word & _SIGN) > _INFINITY:
        return word
    if up:
        if word >= 0:
            return word if word == _INFINITY else word + 1
        return np.int64(1) if word == _LOWEST else word - 1
    if word > 0:
        return word - 1
    if word == 0:
        return _LOWEST + 1
    return word if (word & _SIGN) == _INFINITY else word + 1


@_jit
def peel(bound, other, way, up):
    """Move `way * other` from a rounded sum to its bound, rounding outwards; see `terms._peel`.

    The second answer tells the rows where no value can keep the bound: a NaN in the sum is above any limit
    but NaN.
    """
    count = max(bound.size, other.size) if bound.size and other.size else 0
    hopeless = np.zeros(count, np.bool_)
    near = np.empty(bound.size, np.float64)
    out = np.empty(count, np.float64)
    near_bits, bits = near.view(np.int64), bound.view(np.int64)
    for i in range(bound.size):
        near_bits[i] = _outward(bits[i], up)
    out_bits = out.view(np.int64)
    widest = np.nan if up else -np.inf
    for i in range(count):
        limit = near[i if bound.size > 1 else 0]
        value = other[i if other.size > 1 else 0]
        if up and value != value and limit == limit:
            hopeless[i] = True
        moved = limit - value if way > 0 else limit + value
        if moved != moved:
            out[i] = widest
        else:
            out[i] = moved
            out_bits[i] = _outward(out_bits[i], up)
    return out, hopeless


@_jit
def merge(lows, highs):
    """Make the bands of each column disjoint, in place: sorted by low, each starts after all before it end.

    [1, 5] [3, 9] [4, 6] becomes [1, 5] [6, 9] and an empty one. An empty band is [max, min].
    """
    top, bottom = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(-0x8000000000000000)
    bands = lows.shape[0]
    for column in range(lows.shape[1]):
        for i in range(1, bands):  # insertion sort: bands are few
            low, high = lows[i, column], highs[i, column]
            at = i
            while at > 0 and lows[at - 1, column] > low:
                lows[at, column], highs[at, column] = lows[at - 1, column], highs[at - 1, column]
                at -= 1
            lows[at, column], highs[at, column] = low, high
        some, reach = False, bottom
        for i in range(bands):
            low, high = lows[i, column], highs[i, column]
            if some and low <= reach:
                low = top if reach == top else reach + 1
                if reach == top:
                    high = bottom
            if low > high:
                lows[i, column], highs[i, column] = top, bottom
            else:
                lows[i, column], highs[i, column] = low, high
                some, reach = True, high
