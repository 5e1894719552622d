"""Column types: what a stream keeps a column as, and how values of another type get there without loss.

Arrow has several layouts for one value. A stream keeps the plain one, so that batches of different origin go together:

    pushed                                            kept, and in results
    dictionary (pandas' and Polars' categories)       the type of its values
    run-end encoded                                   the type of its values
    string view, binary view                          string, binary
    list view, large list view                        list, large list
    fields that are not null, names of list items,    the same without
    maps with sorted keys

Where a later batch has another type than the stream, `recast` brings it over value by value: down through lists and
structs to the leaves, which Arrow casts; a cast that does not lead back to the same value is an error. So int64 goes to
double, nanoseconds go to microseconds and double goes to int64 as long as no value is lost.

Cost: O(values) of the columns whose type differs, nothing for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from watersmeet.query.windows import Side
from watersmeet.window.capacity import MOST


@dataclass(frozen=True)
class Place:
    """Whose column it is, for messages; `name` leads into nested ones: `order.items[].price`."""

    side: Side
    name: str

    def into(self, more: str) -> Place:
        return replace(self, name=self.name + more)

    def __str__(self) -> str:
        return f"column {self.name!r} of this {self.side} batch"


# -- types -----------------------------------------------------------------------------------------------------------


def stored_type(t: pa.DataType, place: Place) -> pa.DataType:
    """What a column of this type is kept as; TypeError where Arrow cannot handle it."""
    if isinstance(t, pa.BaseExtensionType):
        if _some(t.storage_type, lambda s: is_.is_dictionary(s) or is_.is_run_end_encoded(s)):
            raise TypeError(
                f"column {place.name!r} of the {place.side} stream is {t}, an extension over {t.storage_type}, which "
                f"cannot be joined; push its storage, as plain values"
            )
        return t
    if is_.is_dictionary(t) or is_.is_run_end_encoded(t):
        return stored_type(t.value_type, place)
    if is_.is_string_view(t):
        return pa.string()
    if is_.is_binary_view(t):
        return pa.binary()
    if is_.is_struct(t):
        return pa.struct([pa.field(f.name, stored_type(f.type, place.into(f".{f.name}"))) for f in t])
    if is_.is_map(t):
        inside = place.into("[]")
        return pa.map_(stored_type(t.key_type, inside), stored_type(t.item_type, inside))
    if is_.is_fixed_size_list(t):
        return pa.list_(stored_type(t.value_type, place.into("[]")), t.list_size)
    if is_.is_large_list(t) or is_.is_large_list_view(t):
        return pa.large_list(stored_type(t.value_type, place.into("[]")))
    if is_.is_list(t) or is_.is_list_view(t):
        return pa.list_(stored_type(t.value_type, place.into("[]")))
    if is_.is_union(t):
        for field in (t.field(i) for i in range(t.num_fields)):
            if stored_type(field.type, place) != field.type:
                raise TypeError(
                    f"column {place.name!r} of the {place.side} stream is {t}, a union with {field.type} in it, which "
                    f"cannot be joined; push its alternatives as columns of a struct"
                )
    return t


def untyped(t: pa.DataType) -> bool:
    """Whether there are only nulls in it, or in a part of it, so that nobody knows its type."""
    return _some(t, is_.is_null)


def _some(t: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one that it consists of, passes a test."""
    if test(t):
        return True
    if isinstance(t, pa.BaseExtensionType):
        return _some(t.storage_type, test)
    if is_.is_dictionary(t) or is_.is_run_end_encoded(t):
        return _some(t.value_type, test)
    return any(_some(t.field(i).type, test) for i in range(t.num_fields))


# -- values ----------------------------------------------------------------------------------------------------------


def recast(array: pa.Array, want: pa.DataType, place: Place) -> pa.Array:
    """The same values as another type; an error that names the first value that it has no room for."""
    try:
        return _recast(array, want, place)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # such as text of more than 2 GiB
        raise ValueError(f"{place} cannot be read as {want}: {error}; push smaller batches, or cast it first") from None


def _recast(array: pa.Array, want: pa.DataType, place: Place) -> pa.Array:
    got = array.type
    if got == want:
        return array
    if is_.is_dictionary(got):
        return _recast(_plain(array.dictionary, place).take(array.indices), want, place)
    if is_.is_run_end_encoded(got):
        rows = np.arange(array.offset, array.offset + len(array))
        runs = np.searchsorted(np.asarray(array.run_ends), rows, "right")
        return _recast(_plain(array.values, place).take(pa.array(runs)), want, place)
    if is_.is_null(got):
        return pa.nulls(len(array), want)
    if is_.is_struct(got) and is_.is_struct(want):
        return _recast_struct(array, want, place)
    if is_.is_map(got) and is_.is_map(want):
        array = _without_hidden(array)
        first, offsets, count = _entries(array)
        keys, items = array.keys.slice(first, count), array.items.slice(first, count)
        inside = place.into("[]")
        return pa.MapArray.from_arrays(
            _narrow(offsets, want, place), _recast(keys, want.key_type, inside), _recast(items, want.item_type, inside),
            type=want, mask=_mask(array),
        )  # fmt: skip
    if _is_list(got) and _is_list(want):
        return _recast_list(array, want, place)
    return _recast_leaf(array, want, place)


def _plain(values: pa.Array, place: Place) -> pa.Array:
    """Values that Arrow can take from: of views it cannot."""
    return _recast(values, stored_type(values.type, place), place)


def _recast_struct(array: pa.StructArray, want: pa.StructType, place: Place) -> pa.Array:
    names = [field.name for field in array.type]
    wanted = [field.name for field in want]
    if sorted(names) != sorted(wanted) or (names != wanted and len(set(names)) < len(names)):
        raise _unlike(array.type, want, place)
    parts = array.flatten()  # a field is null where the struct is
    if names != wanted:
        parts = [parts[names.index(name)] for name in wanted]
    columns = [_recast(part, field.type, place.into(f".{field.name}")) for part, field in zip(parts, want, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(want), mask=_mask(array))


def _recast_list(array: pa.Array, want: pa.DataType, place: Place) -> pa.Array:
    inside = place.into("[]")
    if is_.is_fixed_size_list(want):
        size = want.list_size
        if not is_.is_fixed_size_list(array.type) or array.type.list_size != size:
            raise _unlike(array.type, want, place)
        values = _recast(array.values.slice(array.offset * size, len(array) * size), want.value_type, inside)
        return pa.FixedSizeListArray.from_arrays(values, type=want, mask=_mask(array))
    if is_.is_list_view(array.type) or is_.is_large_list_view(array.type):
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        offsets, values = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), array.flatten()
    else:
        array = _without_hidden(array)
        first, offsets, count = _entries(array)
        values = array.values.slice(first, count)
    make = pa.LargeListArray if is_.is_large_list(want) else pa.ListArray
    values = _recast(values, want.value_type, inside)
    return make.from_arrays(_narrow(offsets, want, place), values, type=want, mask=_mask(array))


def _without_hidden(array: pa.Array) -> pa.Array:
    """The same lists or maps; a null one has no values, which it may have and nobody sees."""
    if array.null_count and not is_.is_fixed_size_list(array.type):
        lengths = np.diff(np.asarray(array.offsets))
        if lengths[np.asarray(array.is_null())].any():
            return array.take(pa.array(np.arange(len(array))))
    return array


def _entries(array: pa.Array) -> tuple[int, np.ndarray, int]:
    """Of lists or maps: the first value that they have, offsets from there, how many values."""
    if is_.is_fixed_size_list(array.type):
        size = array.type.list_size
        return array.offset * size, np.arange(len(array) + 1) * size, len(array) * size
    offsets = np.asarray(array.offsets).astype(np.int64)
    first = int(offsets[0]) if offsets.size else 0
    return first, offsets - first, int(offsets[-1]) - first if offsets.size else 0


def _narrow(offsets: np.ndarray, want: pa.DataType, place: Place) -> pa.Array:
    if is_.is_large_list(want):
        return pa.array(offsets, pa.int64())
    if offsets[-1] > MOST:
        raise ValueError(f"{place} has more than {MOST:,} values in its lists; push smaller batches")
    return pa.array(offsets, pa.int32())


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _is_list(t: pa.DataType) -> bool:
    return (
        is_.is_list(t) or is_.is_large_list(t) or is_.is_fixed_size_list(t)
        or is_.is_list_view(t) or is_.is_large_list_view(t)
    )  # fmt: skip


# -- leaves ----------------------------------------------------------------------------------------------------------


def _recast_leaf(array: pa.Array, want: pa.DataType, place: Place) -> pa.Array:
    got = array.type
    family = _family(got)
    if family is None or family != _family(want) or _float_and_decimal(got, want) or _float_and_decimal(want, got):
        raise _unlike(got, want, place)
    if family == "text":
        return array.cast(want)
    try:
        cast = _cast(array, want)
        same = _equal(_cast(cast, got), array)
    except pa.ArrowInvalid:
        row = _first_bad(array, want)
    else:
        if same.true_count == len(array):
            return cast
        row = pc.index(same, False).as_py()
    raise ValueError(
        f"{place} is {got}, in the stream it is {want}, which has no place for {_shown(array[row])} in row {row}; cast "
        f"the column first, or give {place.side}_schema= to StreamJoin, with a type that holds all values"
    )


def _unlike(got: pa.DataType, want: pa.DataType, place: Place) -> ValueError:
    return ValueError(
        f"{place} is {got}, in the stream it is {want}; cast it first, or give {place.side}_schema= to StreamJoin"
    )


def _family(t: pa.DataType) -> str | None:
    """Types between which a value stays what it is, where there is room for it."""
    if is_.is_integer(t) or is_.is_floating(t) or is_.is_decimal(t):
        return "number"
    if is_.is_string(t) or is_.is_large_string(t) or is_.is_string_view(t):
        return "text"
    if is_.is_binary(t) or is_.is_large_binary(t) or is_.is_binary_view(t) or is_.is_fixed_size_binary(t):
        return "bytes"
    if is_.is_date(t):
        return "timestamp"
    if is_.is_timestamp(t):
        return "timestamp" if t.tz is None else "timestamp with zone"
    if is_.is_time(t):
        return "time"
    return "duration" if is_.is_duration(t) else None


def _float_and_decimal(a: pa.DataType, b: pa.DataType) -> bool:
    """0.1 is one number as a float, another as a decimal."""
    return is_.is_floating(a) and is_.is_decimal(b)


def _cast(array: pa.Array, want: pa.DataType) -> pa.Array:
    if is_.is_integer(array.type) and is_.is_decimal(want):  # Arrow wants room for every integer, not only for these
        array = array.cast(pa.decimal256(76, want.scale))
    return array.cast(want)


def _equal(back: pa.Array, array: pa.Array) -> pa.BooleanArray:
    """Whether values are the same: nulls where there were nulls, NaN where there was NaN."""
    if is_.is_float16(array.type):
        back, array = back.cast(pa.float32()), array.cast(pa.float32())
    same = pc.equal(back, array)
    if is_.is_floating(array.type):
        same = pc.or_(same, pc.and_(pc.is_nan(back), pc.is_nan(array)))
    return pc.if_else(array.is_null(), back.is_null(), pc.fill_null(same, False))


def _first_bad(array: pa.Array, want: pa.DataType) -> int:
    """The first row that Arrow cannot cast, by halves."""
    low, high = 0, len(array)  # rows below `low` can be cast, one below `high` cannot
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(array.slice(low, middle - low), want)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py()) if not is_.is_temporal(value.type) else str(value.cast(pa.string()))
    except (ValueError, pa.ArrowException):
        return str(value)
