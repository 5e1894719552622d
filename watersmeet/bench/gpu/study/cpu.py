"""Joiners on a CPU: threads that take windows, or parts of one.

    intra    window 1: part 1, part 2, part 3, part 4; then window 2     all threads at one window
    inter    window 1, window 2, window 3, window 4                      each thread at its own
    hybrid   window 1: part 1, part 2; window 2: part 1, part 2          some threads a window

A part of a window has the tuples whose keys hash to it, so threads share nothing. Lazy is eager with one batch: the
right side is stored, then the left side is looked up in it; eager does both for each side of every batch.
"""

from __future__ import annotations

import math
from functools import partial
from threading import Lock
from typing import Any, Literal

import numpy as np

from watersmeet.bench.gpu.study import cpu_kernels as kernels
from watersmeet.bench.gpu.study.manager import Workload
from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import Variant
from watersmeet.index.sorting import in_order
from watersmeet.memory import room
from watersmeet.workers import Workers

Array = np.ndarray
Side = Literal["left", "right"]
_OTHER: dict[Side, Side] = {"left": "right", "right": "left"}
_FIRST_SLOTS = 1 << 12
_NO_ROWS = np.zeros(0, np.int32)


class Pairs:
    """How the pairs of a window are made, and where they go. expected: how many there will be, where that is known."""

    def __init__(self, how: str, window: int, sink: Sink, expected: int, parts: int):
        self.how = how
        self.parts_left = parts
        self._window = window
        self._sink = sink
        self._share = expected // parts
        self._shared: tuple[Array, Array, Array] | None = None
        if how == "atomic":  # one place for all threads
            self._shared = (np.zeros(1, np.int64), *self._room(expected))

    def _room(self, n: int) -> tuple[Array, Array]:
        return np.empty(max(n, 1), np.int32), np.empty(max(n, 1), np.int32)

    def made(self, write: Any) -> int:
        """write(cursor, atomic, lefts, rights): makes the pairs of some tuples. Gives how many."""
        if self._shared is not None:
            cursor, lefts, rights = self._shared
            write(cursor, True, lefts, rights)
            return 0  # told by `finish`
        cursor = np.zeros(1, np.int64)
        if self.how == "count_kernel":
            write(cursor, False, _NO_ROWS, _NO_ROWS)
            most = int(cursor[0])
        else:
            most = self._share + self._share // 4 + 64
        lefts, rights = self._room(most)
        cursor[0] = 0
        write(cursor, False, lefts, rights)
        n = int(cursor[0])
        if n > most:  # the estimate was too low
            lefts, rights = self._room(n)
            cursor[0] = 0
            write(cursor, False, lefts, rights)
        self._sink.write(self._window, lefts[:n], rights[:n])
        return n

    def finish(self) -> int:
        """Pairs that all threads wrote to one place."""
        if self._shared is None:
            return 0
        cursor, lefts, rights = self._shared
        n = int(cursor[0])
        self._sink.write(self._window, lefts[:n], rights[:n])
        return n


class _State:
    """What is stored of a part of a window, of both sides."""

    def __init__(self, window: int, makes_pairs: bool):
        self._rows = window  # of a side, at most
        self._makes_pairs = makes_pairs

    def take(self, side: Side, keys: Array, rows: Array, looks: bool, stores: bool, pairs: Pairs | None) -> int:
        """Look tuples up among those stored of the other side, if asked to, and store them. Gives results."""
        raise NotImplementedError


class _Loop(_State):
    def __init__(self, window: int, makes_pairs: bool):
        super().__init__(window, makes_pairs)
        self._kept = {side: (np.empty(0, np.int32), np.empty(0, np.int32)) for side in _OTHER}

    def take(self, side: Side, keys: Array, rows: Array, looks: bool, stores: bool, pairs: Pairs | None) -> int:
        others, other_rows = self._kept[_OTHER[side]]
        if not looks:
            found = 0
        elif pairs is None:
            found = kernels.loop_count(keys, keys.size, others, others.size)
        else:
            found = pairs.made(
                lambda cursor, atomic, lefts, rights: kernels.loop_pairs(
                    keys, rows, keys.size, others, other_rows, others.size, cursor, atomic, side == "right", lefts,
                    rights,
                )
            )  # fmt: skip
        if stores:
            before = self._kept[side]
            self._kept[side] = np.concatenate([before[0], keys]), np.concatenate([before[1], rows])
        return found


class _Hash(_State):
    """Keys with the number of tuples of each side; where pairs are made, with the tuples, in chains."""

    def __init__(self, window: int, makes_pairs: bool):
        super().__init__(window, makes_pairs)
        self._table = np.full(_FIRST_SLOTS, kernels.EMPTY, np.int32)
        self._columns = np.zeros((2, _FIRST_SLOTS), np.int64)  # counts of left and right, or heads of their chains
        self._used = 0
        self._following: dict[Side, Array] = {}

    def _grow(self, need: int, fill: int) -> None:
        slots = max(2 * self._table.size, 1 << (2 * need).bit_length())
        table, columns = np.full(slots, kernels.EMPTY, np.int32), np.full((2, slots), fill, np.int64)
        kernels.rehash(self._table, self._columns, table, columns)
        self._table, self._columns = table, columns

    def take(self, side: Side, keys: Array, rows: Array, looks: bool, stores: bool, pairs: Pairs | None) -> int:
        mine = 0 if side == "left" else 1
        if self._makes_pairs:
            return self._chained(side, mine, keys, rows, looks, stores, pairs)
        return self._counted(mine, keys, stores)

    def _counted(self, mine: int, keys: Array, stores: bool) -> int:
        total = at = 0
        while True:
            found, at, self._used = kernels.count_by_key(
                keys, keys.size, at, self._table, self._used, self._columns[mine], self._columns[1 - mine], stores
            )
            total += found
            if at == keys.size:
                return total
            self._grow(self._used, 0)

    def _chained(
        self, side: Side, mine: int, keys: Array, rows: Array, looks: bool, stores: bool, pairs: Pairs | None
    ) -> int:
        if not self._following:
            self._following = {side: np.empty(self._rows, np.int64) for side in _OTHER}
            self._columns[:] = -1
        found = 0
        if looks and pairs is not None:
            following = self._following[_OTHER[side]]
            found = pairs.made(
                lambda cursor, atomic, lefts, rights: kernels.chained_pairs(
                    keys, rows, keys.size, self._table, self._columns[1 - mine], following, cursor, atomic,
                    side == "right", lefts, rights,
                )
            )  # fmt: skip
        if stores:
            if 2 * (self._used + keys.size) >= self._table.size:
                self._grow(self._used + keys.size, -1)
            self._used = kernels.chain(
                keys, rows, keys.size, self._table, self._used, self._columns[mine], self._following[side]
            )
        return found


class _Sorted(_State):
    def __init__(self, window: int, makes_pairs: bool):
        super().__init__(window, makes_pairs)
        self._runs = {side: (np.empty(0, np.int64), np.empty(0, np.int32)) for side in _OTHER}

    def take(self, side: Side, keys: Array, rows: Array, looks: bool, stores: bool, pairs: Pairs | None) -> int:
        _, ordered, order = in_order(None, keys.astype(np.int64))
        ranked = rows[order] if rows.size else order
        others, other_rows = self._runs[_OTHER[side]]
        if not looks:
            found = 0
        elif pairs is None:
            found = kernels.merge_count(ordered, ordered.size, others, others.size)
        else:
            found = pairs.made(
                lambda cursor, atomic, lefts, rights: kernels.merge_pairs(
                    ordered, ranked, ordered.size, others, other_rows, others.size, cursor, atomic, side == "right",
                    lefts, rights,
                )
            )  # fmt: skip
        if stores:
            before, before_rows = self._runs[side]
            n = before.size + ordered.size
            to_keys, to_rows = np.empty(n, np.int64), np.empty(n, np.int32)
            kernels.merged(before, before_rows, before.size, ordered, ranked, ordered.size, to_keys, to_rows)
            self._runs[side] = to_keys, to_rows
        return found


_STATES: dict[str, type[_State]] = {"nested_loop": _Loop, "hash": _Hash, "sort_merge": _Sorted}


class CPUJoiner:
    """expected: of each window, how many results there are (for estimates, and the room of atomic writes)."""

    def __init__(self, variant: Variant, work: Workload, threads: int, expected: list[int]):
        self._variant = variant
        self._work = work
        self._expected = expected
        self._workers = Workers(threads)
        self._making: dict[int, Pairs] = {}
        self._one = Lock()
        self._parts = {"intra": threads, "inter": 1, "hybrid": max(math.isqrt(threads), 1)}[variant.parallel]
        self._state = _STATES[variant.algorithm]

    def close(self) -> None:
        self._workers.stop()

    def _pairs(self, window: int, sink: Sink) -> Pairs | None:
        """What makes the pairs of a window; the threads that share the window share it."""
        if self._variant.results == "none":
            return None
        with self._one:
            if window not in self._making:
                expected = self._expected[window]
                self._making[window] = Pairs(self._variant.results, window, sink, expected, self._parts)
            return self._making[window]

    def _done(self, window: int, pairs: Pairs | None) -> int:
        """A thread is done with its part; gives the results that are only known when the last one is."""
        if pairs is None:
            return 0
        with self._one:
            pairs.parts_left -= 1
            if pairs.parts_left:
                return 0
            del self._making[window]
        return pairs.finish()

    def _picked(self, side: Side, window: int, start: int, stop: int, part: int) -> tuple[Array, Array]:
        """Keys and rows of one part of the tuples of a window from start to stop."""
        stream = self._work.left if side == "left" else self._work.right
        words, stride = stream.sent(self._variant.travels == "keys")
        first = window * self._work.window
        if self._parts == 1 and self._variant.results == "none":  # all keys, where they are
            return words[(first + start) * stride : (first + stop) * stride : stride], _NO_ROWS
        keys, rows = room(stop - start + 1, np.int32), room(stop - start + 1, np.int32)
        n = kernels.pick(words, stride, first + start, first + stop, first, part, self._parts, keys, rows)
        return keys[:n], rows[:n]

    # -- lazy --------------------------------------------------------------------------------------------------------

    def execute(self, first: int, count: int, sink: Sink) -> None:
        """Join `count` complete windows from number `first` on."""
        jobs = [(window, part) for window in range(first, first + count) for part in range(self._parts)]
        self._workers.map(lambda job: self._part(job[0], job[1], sink), jobs)

    def _part(self, window: int, part: int, sink: Sink) -> None:
        pairs = self._pairs(window, sink)
        state = self._state(self._work.window, pairs is not None)
        picked = partial(self._picked, window=window, start=0, stop=self._work.window, part=part)
        state.take("right", *picked("right"), False, True, None)
        found = state.take("left", *picked("left"), True, False, pairs)
        sink.add(window, found + self._done(window, pairs))

    # -- eager -------------------------------------------------------------------------------------------------------

    def begin(self, window: int) -> None:
        self._window = window
        makes_pairs = self._variant.results != "none"
        self._states = [self._state(self._work.window, makes_pairs) for _ in range(self._parts)]

    def step(self, start: int, stop: int, sink: Sink) -> None:
        """The tuples from `start` to `stop` of the window have come, of both sides."""
        window = self._window
        sink.add(window, sum(self._workers.map(partial(self._step, start, stop, sink), range(self._parts))))

    def end(self, sink: Sink) -> None:
        """The last batch of the window has come: nothing is left to be done."""

    def _step(self, start: int, stop: int, sink: Sink, part: int) -> int:
        found = 0
        pairs = self._pairs(self._window, sink)
        sides: tuple[Side, ...] = ("left", "right")
        for side in sides:
            keys, rows = self._picked(side, self._window, start, stop, part)
            found += self._states[part].take(side, keys, rows, True, True, pairs)
        return found + self._done(self._window, pairs)
