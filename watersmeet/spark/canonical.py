"""One order for the tuples of a micro-batch, and names that follow from it.

A task may run more than once, and what it has written may be taken from one attempt by an executor that goes on from
its own version of the state, and from another by a restart (Spark's state checkpoints of format 1). So all attempts
must write the same: packs arrive in any order, but tuples are stored by time and, among equals, by a hash of all they
hold; and what is stored is named after the micro-batch and its place there, not by chance.

    packs of one attempt    (5, b) (7, a) | (5, a)        stored  (5, a) (5, b) (7, a)    as 12-l0-3-9c0e51d2
    of another              (5, a) | (5, b) (7, a)        the same

Cost: nothing but a look where times rise; else a sort by time, and of rows with equal times a hash a value and a sort.
"""

from __future__ import annotations

import zlib
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from watersmeet.query.kernels import mix
from watersmeet.query.keys import frozen, text_hashes
from watersmeet.spark.task import batch_id

Array = np.ndarray

_NULL = 0x5851F42D4C957F2D  # what a null counts as


def in_order(batch: pa.RecordBatch, ticks: Array) -> tuple[pa.RecordBatch, Array]:
    """Tuples and their ticks in the order in which they are stored."""
    rising = ticks[1:] > ticks[:-1]
    if rising.all():
        return batch, ticks
    order = np.argsort(ticks, kind="stable")
    ticks = ticks[order]
    equal = ticks[1:] == ticks[:-1]
    if equal.any():
        tied = np.zeros(ticks.size, bool)  # those that share their tick change places among themselves
        tied[1:] |= equal
        tied[:-1] |= equal
        rows = order[tied]
        order[tied] = rows[np.lexsort((row_hashes(batch.take(pa.array(rows))), ticks[tied]))]
    return batch.take(pa.array(order)), ticks


def cut(batches: list[pa.RecordBatch], ticks: list[Array], most: int) -> list[list[pa.RecordBatch]]:
    """Tuples cut in the order of `in_order` into portions of about so many bytes: the same tuples in each, however they
    were packed. O(1) where all fit into one, else a sort by time, and a hash of those at a cut."""
    if sum(batch.nbytes for batch in batches) <= most:  # row_bytes are never more
        return [batches]
    times = np.concatenate(ticks)
    sizes = np.concatenate([row_bytes(batch) for batch in batches])
    order = np.argsort(times, kind="stable")
    label = _labels(sizes[order], most)
    inside = (label[1:] != label[:-1]) & (times[order][1:] == times[order][:-1])  # cuts among equal times
    if inside.any():
        tied = np.isin(times, times[order][1:][inside])
        hashes = np.zeros(times.size, np.int64)
        ends = np.cumsum([batch.num_rows for batch in batches])[:-1]
        mine = zip(batches, np.split(tied, ends), strict=True)
        hashes[tied] = np.concatenate([row_hashes(batch.filter(pa.array(some))) for batch, some in mine])
        order = np.lexsort((hashes, times))
        label = _labels(sizes[order], most)
    portion = np.empty_like(label)
    portion[order] = label
    found: list[list[pa.RecordBatch]] = [[] for _ in range(int(label[-1]) + 1)]
    start = 0
    for batch in batches:
        labels = portion[start : start + batch.num_rows]
        start += batch.num_rows
        for number in np.unique(labels).tolist():
            found[number].append(batch.filter(pa.array(labels == number)))
    return [some for some in found if some]


def _labels(sizes: Array, most: int) -> Array:
    """Which portion each tuple is in."""
    return (np.cumsum(sizes) - sizes) // most


def row_bytes(batch: pa.RecordBatch) -> Array:
    """About how many bytes each row has; depends on its values alone, and is never more than Arrow needs for it."""
    return sum((_bytes(column) for column in batch.columns), np.zeros(batch.num_rows, np.int64))


def _bytes(array: pa.Array) -> Array:
    t = array.type
    if is_.is_boolean(t) or is_.is_null(t):
        return np.zeros(len(array), np.int64)
    if is_.is_primitive(t) or is_.is_decimal(t) or is_.is_fixed_size_binary(t):
        return np.full(len(array), t.bit_width // 8, np.int64)
    if is_.is_struct(t):
        return sum((_bytes(field) for field in array.flatten()), np.zeros(len(array), np.int64))
    if is_.is_list(t) or is_.is_large_list(t) or is_.is_map(t):
        offsets = np.asarray(array.offsets).astype(np.int64)
        offsets -= offsets[0]
        inner = np.concatenate([[0], np.cumsum(_bytes(_entries(array)))])
        return np.diff(inner[offsets]) + 4
    return np.asarray(pc.fill_null(pc.binary_length(array), 0)).astype(np.int64) + 4


def _entries(array: pa.Array) -> pa.Array:
    """What lies in the lists, or the maps, of this slice."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if is_.is_map(array.type):
        whole = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        return whole.slice(first, last - first)
    return array.values.slice(first, last - first)


def row_hashes(batch: pa.RecordBatch) -> Array:
    """A number for each row that depends on its values alone. O(values)."""
    state = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        for words in _words(column):
            mix(state, frozen(words))
    return state


def _words(array: pa.Array) -> list[Array]:
    """Numbers for each value, the same for the same value; what lies under a null does not count."""
    t, n = array.type, len(array)
    width = 0
    if not is_.is_boolean(t) and (is_.is_primitive(t) or is_.is_decimal(t)):
        width = t.bit_width // 8
    if width in (1, 2, 4):
        words = [_values(array, {1: np.uint8, 2: np.uint16, 4: np.uint32}[width]).astype(np.int64)]
    elif width:
        whole = _values(array, np.int64, width // 8).reshape(n, width // 8)
        words = [np.ascontiguousarray(whole[:, i]) for i in range(width // 8)]
    elif is_.is_string(t) or is_.is_binary(t) or is_.is_large_string(t) or is_.is_large_binary(t):
        words = [text_hashes(array)]
    else:  # booleans, and what is nested: by the text of each value
        words = [np.array([zlib.crc32(str(value).encode()) for value in array.to_pylist()], np.int64)]
    if array.null_count:
        valid = np.asarray(array.is_valid())
        words = [np.where(valid, each, np.int64(_NULL)) for each in words]
    return words


def _values(array: pa.Array, dtype: type, each: int = 1) -> Array:
    values: Array = np.frombuffer(array.buffers()[1], dtype)
    return values[array.offset * each : (array.offset + len(array)) * each]


# -- names -----------------------------------------------------------------------------------------------------------


def chunk_name(place: str, ticks: Array) -> str:
    """Of a chunk with these ticks. place: which it is of those that this step of the micro-batch makes."""
    return f"{batch_id() or 0}-{place}-{ticks.size}-{zlib.crc32(ticks.tobytes()):08x}"


def run_name(chunks: list[str]) -> str:
    """Of a run made of these chunks now."""
    return f"{batch_id() or 0}-{blake2b('|'.join(chunks).encode(), digest_size=12).hexdigest()}"
