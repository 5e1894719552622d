"""Results of several cores, put in one order.

Each core gives its results in order (engine/order.py), and with each the positions of its two tuples in their streams.
They tell which of the two completed it, and so where it belongs, in one word:

    2 bits     0 by a left tuple of this step, 1 by a right one; 2 a left tuple alone, 3 a right one
    the rest   inner        row of the tuple that completed it, position of its partner
               outer        row
               punctuate    number of the row's group
               alone        position

    core 0     L3 L3 L7 R0 |  R1        what visited a core and what is at home there are two runs
    core 1     L3 L5 R0 | L4 R2         ->  L3 L3 L3 L4 L5 L7 R0 R0 R1 R2

Words rise within a run. The run that has the least goes on as long as it has, then the next; what comes of it is the
order in which rows are taken from the results of all cores. Where groups are so large that a run mostly goes on for
thousands of rows, nothing is copied: the answer then refers to stretches of what the cores gave.

Cost: O(results * log runs) at most, and one copy of the results or none.
Reference: SplitJoin, section 5 (punctuated result collection).
Differs from the paper: words stand for star marks, which tell a merger up to where it may read from a core; there is
one merger instead of a tree, as the results of a step are there all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import njit, uint64

from watersmeet.engine.finder import PAIRS
from watersmeet.engine.order import Order, Punctuated
from watersmeet.memory import room
from watersmeet.query.windows import SIDES, Side
from watersmeet.window.capacity import in_parts
from watersmeet.window.chunks import Chunks
from watersmeet.workers import ALONE, Workers

Array = np.ndarray

_PHASE = 62  # bits below it
_LEFT_ALONE = 2
#: Rows of a stretch, on average, from which on to refer to it is better than to copy it.
_LONG = 1 << 12


@dataclass(frozen=True)
class Layout:
    """The columns of a core's results: those of the join's, and by which positions these are put in order."""

    schema: pa.Schema  # of a core's results
    kept: tuple[int, ...]  # columns of the join's
    left: int  # columns of positions
    right: int | None  # None: all are left tuples alone


@njit(nogil=True, cache=True)
def _reach(numbers, ends):
    """Widen (least, greatest) to all of these that are not null, that is, not negative."""
    for number in numbers:
        if number >= 0:
            ends[0] = min(ends[0], number)
            ends[1] = max(ends[1], number)


@njit(nogil=True, cache=True)
def _words(left, right, first_left, first_right, low_left, low_right, every, bits, left_alone, words):
    """bits: of a partner's position less the least; 0: it does not count."""
    for i in range(left.size):
        l, r = left[i], right[i]  # noqa: E741
        if r < 0:
            words[i] = (uint64(left_alone) << uint64(_PHASE)) | uint64(l - low_left)
            continue
        if l < 0:
            words[i] = (uint64(3) << uint64(_PHASE)) | uint64(r - low_right)
            continue
        by_right = r >= first_right
        row = r // every - first_right // every if by_right else l // every - first_left // every
        word = (uint64(by_right) << uint64(_PHASE)) | (uint64(row) << uint64(bits))
        if bits:
            word |= uint64(l - low_left if by_right else r - low_right)
        words[i] = word


@njit
def _sink(heap, size, words, at):
    """Let the first run sink to where no run below it has a lesser word."""
    run, i = heap[0], 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and words[at[heap[child + 1]]] < words[at[heap[child]]]:
            child += 1
        if words[at[run]] <= words[at[heap[child]]]:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = run


@njit(nogil=True, cache=True)
def merge(words, starts, order):
    """Write to `order` which word comes first, second, and so on. starts: of runs, in each of which words rise."""
    runs = starts.size
    at = starts.copy()
    stops = np.empty_like(starts)
    stops[: runs - 1] = starts[1:]
    stops[runs - 1] = words.size
    heap = np.empty(runs, np.int64)
    for run in range(runs):  # each rises to its place
        i = run
        while i and words[at[heap[(i - 1) // 2]]] > words[at[run]]:
            heap[i] = heap[(i - 1) // 2]
            i = (i - 1) // 2
        heap[i] = run
    size, n = runs, 0
    while size:
        run = heap[0]
        i, stop = at[run], stops[run]
        if size == 1:
            while i < stop:
                order[n] = i
                n, i = n + 1, i + 1
            break
        limit = words[at[heap[1]]]
        if size > 2:
            limit = min(limit, words[at[heap[2]]])
        while i < stop and words[i] <= limit:
            order[n] = i
            n, i = n + 1, i + 1
        at[run] = i
        if i == stop:
            size -= 1
            heap[0] = heap[size]
        _sink(heap, size, words, at)


class Collector:
    """schema: of the join's results. semi: a left tuple without a right one has completed itself."""

    def __init__(self, order: Order, layout: Layout, schema: pa.Schema, semi: bool, workers: Workers):
        self._order = order
        self._layout = layout
        self._schema = schema
        self._left_alone = 0 if semi else _LEFT_ALONE
        self._workers = workers

    def in_order(self, batches: Sequence[pa.RecordBatch], firsts: dict[Side, int]) -> list[pa.RecordBatch]:
        """The results of all cores in one step, which began at these positions of the streams."""
        kept = [self._kept(batch) for batch in batches]
        if not kept:
            return []
        words = self._marked(batches, firsts)
        starts = np.concatenate([[0], np.flatnonzero(words[1:] < words[:-1]) + 1])
        if starts.size == 1:
            return kept
        order = room(words.size, np.int64)
        merge(words, starts, order)
        turns = np.flatnonzero(np.diff(order, prepend=order[0]) != 1)
        if turns.size * _LONG <= order.size:
            return _stretches(kept, order, turns)
        chunks = Chunks(self._schema, small_rows=0)
        for batch in kept:
            chunks.append(batch)
        columns = range(len(self._schema))

        def make(start: int, stop: int) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(chunks.take(order[start:stop], columns, ALONE), schema=self._schema)

        def make_part(start: int) -> list[pa.RecordBatch]:
            return in_parts(make, start, min(start + PAIRS, order.size))

        made = self._workers.map(make_part, range(0, order.size, PAIRS))
        return [batch for part in made for batch in part]

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch.column(c) for c in self._layout.kept], schema=self._schema)

    def _marked(self, batches: Sequence[pa.RecordBatch], firsts: dict[Side, int]) -> Array:
        """A word a result."""
        left, right = self._layout.left, self._layout.right
        numbers: list[dict[Side, Array]] = [
            {
                "left": _numbers(batch.column(left)),
                "right": _numbers(pa.nulls(batch.num_rows, pa.int64()) if right is None else batch.column(right)),
            }
            for batch in batches
        ]
        lows, greatest = {}, {}
        for side in SIDES:
            ends = np.array([np.iinfo(np.int64).max, 0])
            for each in numbers:
                _reach(each[side], ends)
            greatest[side] = int(ends[1])
            lows[side] = min(int(ends[0]), greatest[side])
        every = self._order.every if isinstance(self._order, Punctuated) else 1
        bits = 0
        if self._order == "inner":
            bits = max((greatest[side] - lows[side]).bit_length() for side in SIDES)
            row_bits = max((max(greatest[side] - firsts[side], 0)).bit_length() for side in SIDES)
            assert row_bits + bits <= _PHASE, f"partners are 2^{bits} tuples apart"
        words = room(sum(batch.num_rows for batch in batches), np.uint64)
        at = 0
        for each in numbers:
            _words(
                each["left"], each["right"], firsts["left"], firsts["right"], lows["left"], lows["right"], every,
                bits, self._left_alone, words[at : at + each["left"].size],
            )  # fmt: skip
            at += each["left"].size
        return words


def _stretches(batches: list[pa.RecordBatch], order: Array, turns: Array) -> list[pa.RecordBatch]:
    """Rows in this order, which follow one another but for the turns, by reference."""
    begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
    made = []
    for start, stop in zip(turns, [*turns[1:], order.size], strict=True):
        at, end = int(order[start]), int(order[start] + stop - start)
        while at < end:
            number = int(np.searchsorted(begins, at, "right")) - 1
            rows = min(end, int(begins[number + 1])) - at
            made.append(batches[number].slice(at - int(begins[number]), rows))
            at += rows
    return made


def _numbers(column: pa.Array) -> Array:
    """With -1 for null."""
    return (column.fill_null(-1) if column.null_count else column).to_numpy()
