"""Columns as vectors: what an expression computes with at run time.

A vector is a pair `(data, valid)`. `valid` is a boolean array, or None when no value is null; what `data`
holds in a null place is arbitrary. `data` is by kind (see `types.py`):

    countable     int64 array; an object array of Python ints where int64 could not hold a value
    float, bool   NumPy arrays
    string, binary  an Arrow array, or an Arrow scalar for a constant

Constants are arrays of length one, which broadcast. Integer arithmetic is exact: it runs in int64 and moves
to Python ints only when a result of this very batch would overflow. Where the plan knows from the types that
nothing can overflow (`fits`), even the test is left out. Nothing here raises on any data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.memory import room
from watersmeet.query.kernels import add_inside

Valid = np.ndarray | None
Vector = tuple[Any, Valid]

_DTYPES = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def both(a: Valid, b: Valid) -> Valid:
    """Valid where both are."""
    if a is None:
        return b
    return a if b is None else a & b


# --- from Arrow -----------------------------------------------------------------------------------


def validity(array: pa.Array) -> Valid:
    if array.null_count == 0:
        return None
    return array.is_valid().to_numpy(zero_copy_only=False)


def _buffer(array: pa.Array, dtype: Any, words: int = 1) -> np.ndarray:
    """The values of a fixed-width array without a copy, `words` numbers a value."""
    buffer, length = array.buffers()[1], len(array)
    if buffer is None or length == 0:
        return np.zeros(length * words, dtype)
    size = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, length * words, array.offset * words * size)


def _integers(dtype: Any) -> Callable[[pa.Array], Vector]:
    if dtype is np.int64:
        return lambda array: (_buffer(array, np.int64), None if array.null_count == 0 else validity(array))
    return lambda array: (_buffer(array, dtype).astype(np.int64), validity(array))


def _uint64(array: pa.Array) -> Vector:
    data = _buffer(array, np.uint64)
    signed = data.view(np.int64)
    return (signed if not (signed < 0).any() else data.astype(object)), validity(array)


def _words(array: pa.Array, words: int) -> Vector:
    """decimal128 and decimal256: little-endian words, the last one signed."""
    table = _buffer(array, np.int64, words).reshape(-1, words)
    low = np.ascontiguousarray(table[:, 0])
    valid = validity(array)
    narrow = (table[:, 1:] == (low >> 63)[:, None]).all(axis=1)
    if valid is not None:
        narrow |= ~valid
    if narrow.all():
        return low, valid
    total = table[:, words - 1].astype(object)
    unsigned = table.view(np.uint64)
    for word in range(words - 2, -1, -1):
        total = (total << 64) + unsigned[:, word].astype(object)
    return total, valid


def _booleans(array: pa.Array) -> Vector:
    valid = validity(array)
    if valid is not None:
        array = array.fill_null(False)
    return array.to_numpy(zero_copy_only=False), valid


def _halves(array: pa.Array) -> Vector:
    return _buffer(array, np.float16).astype(np.float32), validity(array)


def _texts(target: pa.DataType | None) -> Callable[[pa.Array], Vector]:
    def load(array: pa.Array) -> Vector:
        return (array if target is None else array.cast(target)), validity(array)

    return load


def _nulls(array: pa.Array) -> Vector:
    return np.zeros(len(array), np.int64), np.zeros(len(array), bool)


def loader(arrow: pa.DataType) -> Callable[[pa.Array], Vector]:
    """What turns an array of this type into a vector; chosen once, when the plan is made."""
    check = pa.types
    if check.is_dictionary(arrow):
        inner = loader(arrow.value_type)
        return lambda array: inner(array.dictionary_decode())
    if check.is_unsigned_integer(arrow):
        return _uint64 if arrow.bit_width == 64 else _integers(_UNSIGNED[arrow.bit_width])
    if check.is_decimal(arrow):
        if arrow.scale < 0:
            whole = pa.decimal256(76, 0)
            return lambda array: _words(array.cast(whole), 4)
        if arrow.bit_width <= 64:
            return _integers(_DTYPES[arrow.bit_width])
        return lambda array: _words(array, arrow.bit_width // 64)
    if check.is_date64(arrow):
        return lambda array: (_buffer(array, np.int64) // 86_400_000, validity(array))
    if check.is_float16(arrow):
        return _halves
    if check.is_floating(arrow):
        dtype = np.float64 if arrow.bit_width == 64 else np.float32
        return lambda array: (_buffer(array, dtype), validity(array))
    if check.is_boolean(arrow):
        return _booleans
    if check.is_string_view(arrow):
        return _texts(pa.large_string())
    if check.is_binary_view(arrow) or check.is_fixed_size_binary(arrow):
        return _texts(pa.large_binary())
    if (
        check.is_string(arrow)
        or check.is_large_string(arrow)
        or check.is_binary(arrow)
        or check.is_large_binary(arrow)
    ):
        return _texts(None)
    if check.is_null(arrow):
        return _nulls
    return _integers(_DTYPES[arrow.bit_width])  # signed integers and everything temporal


# --- exact integers -------------------------------------------------------------------------------


def shrink(data: np.ndarray) -> np.ndarray:
    """An object array as int64 where every value fits."""
    if data.dtype != object:
        return data
    try:
        return data.astype(np.int64)
    except OverflowError:
        return data


def _wide(operation: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return shrink(np.asarray(operation(a.astype(object), b.astype(object)), dtype=object))


def _shifted(a: np.ndarray, shift: int) -> np.ndarray | None:
    """a + shift, if all of it stays inside int64: one pass, for the common case of a constant."""
    out = room(a.size, np.int64)
    return out if -(2**63) <= shift < 2**63 and add_inside(a, shift, out) else None


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == object or b.dtype == object:
        return _wide(np.add, a, b)
    if b.size == 1 and (shifted := _shifted(a, int(b[0]))) is not None:
        return shifted
    total = a + b
    return total if not (((a ^ total) & (b ^ total)) < 0).any() else _wide(np.add, a, b)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == object or b.dtype == object:
        return _wide(np.subtract, a, b)
    if b.size == 1 and (shifted := _shifted(a, -int(b[0]))) is not None:
        return shifted
    total = a - b
    return total if not (((a ^ b) & (a ^ total)) < 0).any() else _wide(np.subtract, a, b)


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == object or b.dtype == object:
        return _wide(np.multiply, a, b)
    estimate = np.abs(a.astype(np.float64) * b)
    return a * b if not (estimate >= 9.2e18).any() else _wide(np.multiply, a, b)


def negate(a: np.ndarray) -> np.ndarray:
    if a.dtype == object or (a == np.iinfo(np.int64).min).any():
        return shrink(-a.astype(object))
    return -a


def times_power(a: np.ndarray, factor: int, fits: bool) -> np.ndarray:
    """a * factor for a constant factor."""
    if factor == 1:
        return a
    if fits and factor <= 2**63 - 1:  # a zero fits whatever it is multiplied by
        return a * factor
    return multiply(a, constant_int(factor))


def constant_int(value: int) -> np.ndarray:
    try:
        return np.array([value], np.int64)
    except OverflowError:
        return np.array([value], object)


def floor_divide(a: np.ndarray, divisor: int) -> np.ndarray:
    """floor(a / divisor) for a constant divisor > 0."""
    if a.dtype == object or divisor > 2**63 - 1:
        return shrink(a.astype(object) // divisor)
    return a // divisor


def truncated(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quotient and remainder of a / b with the quotient cut towards zero; b has no zeros."""
    if a.dtype == object or b.dtype == object or ((a == np.iinfo(np.int64).min) & (b == -1)).any():
        a, b = np.broadcast_arrays(a.astype(object), b.astype(object))
        quotient = abs(a) // abs(b)
        quotient = np.where((a < 0) != (b < 0), -quotient, quotient)
        return shrink(quotient), shrink(a - quotient * b)
    remainder = np.fmod(a, b)
    return (a - remainder) // b, remainder


def saturated(a: np.ndarray) -> np.ndarray:
    """Whole doubles as int64: beyond its ends the end, NaN 0."""
    inside = (a >= -(2.0**63)) & (a < 2.0**63)
    counts = np.where(inside, a, 0).astype(np.int64)
    return np.where(a >= 2.0**63, np.int64(2**63 - 1), np.where(a < -(2.0**63), np.int64(-(2**63)), counts))


def to_float(a: np.ndarray, scale: int) -> np.ndarray:
    """The nearest double to a * 10^-scale."""
    if scale == 0 and a.dtype != object:
        return a.astype(np.float64)
    if scale <= 22 and a.dtype != object and not (np.abs(a.astype(np.float64)) > 2.0**53).any():
        return a / float(10**scale)  # both exact, so one rounding
    return np.array([_divided(count, 10**scale) for count in a.tolist()], np.float64)


def _divided(count: int, unit: int) -> float:
    try:
        return count / unit  # Python rounds int / int correctly
    except OverflowError:
        return np.inf if count > 0 else -np.inf


# --- comparisons ----------------------------------------------------------------------------------

ORDERED = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


def compare_floats(sign: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """NaN equals NaN and is greater than every number."""
    if sign in ("=", "<>"):

        def equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return (a == b) | ((a != a) & (b != b))

        return equal if sign == "=" else (lambda a, b: ~equal(a, b))
    if sign in ("<", ">="):

        def less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return (a < b) | ((b != b) & (a == a))

        return less if sign == "<" else (lambda a, b: ~less(a, b))
    swapped = compare_floats("<" if sign == ">" else ">=")
    return lambda a, b: swapped(b, a)


_TEXT = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def mask(answer: Any) -> np.ndarray:
    """An Arrow boolean answer as a NumPy array; what is null there becomes False."""
    if isinstance(answer, pa.Scalar):
        return np.array([bool(answer.as_py())])
    if isinstance(answer, pa.ChunkedArray):
        answer = answer.combine_chunks()
    if answer.null_count:
        answer = answer.fill_null(False)
    return answer.to_numpy(zero_copy_only=False)


def compare_texts(sign: str) -> Callable[[Any, Any], np.ndarray]:
    function = _TEXT[sign]
    return lambda a, b: mask(function(a, b))


def text_array(data: Any, rows: int) -> pa.Array:
    """A text vector's data as an array of `rows`, whatever it is."""
    if isinstance(data, pa.Scalar):
        return pa.repeat(data, rows)
    return data.combine_chunks() if isinstance(data, pa.ChunkedArray) else data
