"""A window's keys on a device, as BI-Sort has them: what is the same on every kind of device.

    main      [ 10  20  30 | 40  50  70 | 80  80  90 ]       samples [ 30 70 90 ]
    rows      [  4   0   7 |  1   8   2 |  3   6   5 ]
    buffer    [ 35  60 ]                                     sorted and sampled too, and small beside main
    spare     [ 10  20  30 | 35  40  50 | 60  70  80 | 80 90 ]   what main becomes when the buffer is merged

A device merges from one place into another (no thread need wait for the next), so each run has two of them. How it
merges, forgets and searches is for the index: gpu_sort.py (CUDA), opencl_bisort.py (OpenCL).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from watersmeet.device.constants import constant
from watersmeet.device.errors import DeviceFull, gib
from watersmeet.device.memory import Block
from watersmeet.index.base import Array, Pairs, TickBounds, bounds_mode, grown

_LEAST_ROW_BYTES = 12  # a key and a row number
_FORGET = 4  # expired rows are let go of when they are one in so many


def check_sizes(index: Any, **good: int) -> None:
    """Of an index on a device; good: values of those that must be at least 2."""
    if index.buffer_rows is not None and index.buffer_rows < 0:
        raise ValueError(f"buffer_rows must not be negative, got {index.buffer_rows}; leave it out for a good one")
    for name, value in good.items():
        if getattr(index, name) < 2:
            raise ValueError(f"{name} must be at least 2, got {getattr(index, name)}; {value} is a good value")
    if index.most_bytes is not None and index.most_bytes < 1:
        raise ValueError(f"most_bytes must be at least 1, got {index.most_bytes}; leave it out for all there are")


def check_room(index: Any, rows: int) -> None:
    """DeviceFull where a window that is to hold so many tuples cannot fit, whatever its keys are."""
    least, there = 2 * _LEAST_ROW_BYTES * rows, index.machine().total
    if there and least > there:
        raise DeviceFull(
            f"a window of {rows:,} tuples takes at least {gib(least)} on the device, which has {gib(there)}; use a "
            f"shorter window, or device='cpu'"
        )


class Keys(NamedTuple):
    """Arrays of a run."""

    equal: Block  # where there is one key the same as `ordered`, and not looked at
    ordered: Block
    rows: Block
    sampled_equal: Block
    sampled_ordered: Block
    room: int

    @property
    def arrays(self) -> tuple[Any, ...]:
        return tuple(block.array for block in self[:5])

    @property
    def searched(self) -> tuple[Any, ...]:
        return self.equal.array, self.ordered.array, self.sampled_equal.array, self.sampled_ordered.array

    def nbytes(self) -> int:
        return sum(block.nbytes for block in {id(block): block for block in self[:5]}.values())


class Stored(NamedTuple):
    """A run as a batch that another takes in."""

    equal: Block | None
    ordered: Block
    rows: Block
    size: int


class Run(ABC):
    """Sorted keys with their rows, samples over them, and a second place for all that to be written to."""

    def __init__(self, machine: Any, index: Any, composite: bool, expected: int = 0):
        self.size = 0
        self.composite = composite
        self._machine = machine
        self._index = index
        self._width = index.partition_rows
        self._expected = expected
        self._main: Keys | None = None
        self._spare: Keys | None = None

    def merge(self, batch: Any, first_row: int) -> None:
        """O(size). A failure changes nothing."""
        size = self.size + batch.size
        to = self._to(size)
        self._merged(self._main or to, batch, first_row, to)  # of an empty one nothing is read
        self._main, self._spare, self.size = to, self._main, size

    def forget(self, gone: int) -> None:
        """Drop the rows below `gone`, and take `gone` off the numbers of the others. O(size)."""
        if not self.size:
            return
        assert self._main is not None
        to = self._to(self.size)
        self.size = self._kept(self._main, gone, to)
        self._main, self._spare = to, self._main

    @abstractmethod
    def _merged(self, main: Keys, batch: Any, first_row: int, to: Keys) -> None:
        """Write main and batch to `to`."""

    @abstractmethod
    def _kept(self, main: Keys, gone: int, to: Keys) -> int:
        """Write the rows of main from `gone` on to `to`; how many these are."""

    def stored(self) -> Stored:
        assert self._main is not None
        return Stored(self._main.equal if self.composite else None, self._main.ordered, self._main.rows, self.size)

    def clear(self) -> None:
        self.size = 0

    def trim(self) -> None:
        """Nothing will be merged any more."""
        self._spare = None

    def _to(self, size: int) -> Keys:
        """Arrays, other than main, with room for so many."""
        if self._spare is None or self._spare.room < size:
            self._spare = None
            room = max(grown(self._main.room if self._main else 0, size), self._expected)
            if self._index.most_bytes is not None:
                room = min(room, max(size, self._index.most_bytes // self._row_bytes // 2))
            try:
                self._spare = self._allocated(room, size)
            except DeviceFull:
                self._spare = self._allocated(size, size)  # without room to grow
        return self._spare

    @property
    def _row_bytes(self) -> int:
        return 20 if self.composite else _LEAST_ROW_BYTES

    def _allocated(self, room: int, size: int) -> Keys:
        most = self._index.most_bytes
        rows = f"a window of {size:,} rows on the device"
        held = self._main.nbytes() if self._main else 0
        need = held + room * self._row_bytes
        if most is not None and need > most:
            raise DeviceFull(
                f"{rows} needs {gib(need)}, and most_bytes is {gib(most)}; use a shorter window, or more bytes"
            )
        machine = self._machine

        def some(n: int, dtype: Any) -> Block:
            return machine.allocate(max(n, 1), dtype, rows)

        ordered, numbers, sampled = some(room, np.int64), some(room, np.int32), some(room // self._width, np.int64)
        if not self.composite:
            return Keys(ordered, ordered, numbers, sampled, sampled, room)
        return Keys(some(room, np.int64), ordered, numbers, some(room // self._width, np.int64), sampled, room)

    @property
    def rows(self) -> Block:
        assert self._main is not None
        return self._main.rows

    def nbytes(self) -> int:
        return sum(keys.nbytes() for keys in (self._main, self._spare) if keys is not None)

    def check_invariants(self, name: str) -> Array:
        """Gives its rows."""
        if self._main is None or not self.size:
            return np.zeros(0, np.int32)
        n, width = self.size, self._width
        names = ("ordered", "rows", "sampled_ordered", "equal", "sampled_equal")
        lengths = (n, n, n // width, n, n // width)
        blocks = [(getattr(self._main, name), length) for name, length in zip(names, lengths, strict=True)]
        ordered, rows, sampled, equal, sampled_equal = self._machine.download(*blocks)
        keys = list(zip(equal if self.composite else ordered, ordered, strict=True))
        assert keys == sorted(keys), f"{name} is not sorted: {keys}"
        assert np.array_equal(sampled, ordered[width - 1 :: width]), f"{name} has samples {sampled} of {ordered}"
        assert np.array_equal(sampled_equal, (equal if self.composite else ordered)[width - 1 :: width])
        return rows


class Bounds:
    """Bounds on the ticks of partners, as kernels take them."""

    def __init__(self, machine: Any, bounds: TickBounds | None, ticks: Ticks):
        none = machine.take(1, np.int64)
        self.mode = bounds_mode(bounds)
        self._held: tuple[Any, ...] = (none, none, none)
        self._numbers = (0, 0, 0)
        if bounds is None:
            return
        least, most = constant(bounds.low), constant(bounds.high)
        of_rows = ticks.known(bounds.ticks) if bounds.ticks.size else none
        if least is None or most is None:
            self._held = machine.upload(bounds.low), machine.upload(bounds.high), of_rows
            self._numbers = (1, 0, 0)
        else:
            self._held = none, none, of_rows
            self._numbers = (0, least, most)

    def arguments(self) -> tuple[Any, ...]:
        """mode, whether each probe has its own, those of each, those of all, ticks."""
        one_each, least, most = self._numbers
        low, high, ticks = self._held
        return self.mode, one_each, low.array, high.array, least, most, ticks.array


class Ticks:
    """The ticks of a window that is out of order, on the device: what is new is sent when it is asked for."""

    def __init__(self, machine: Any):
        self._machine = machine
        self._block: Any = None
        self._sent = 0

    def known(self, ticks: Array) -> Any:
        n = ticks.size
        if self._block is None or self._block.size < n:
            self._block = self._machine.take(grown(0 if self._block is None else self._block.size, n), np.int64)
            self._sent = 0
        if self._sent < n:
            self._machine.upload(ticks[self._sent :], self._block, self._sent)
            self._sent = n
        return self._block

    def forget(self) -> None:
        """Rows have other numbers now."""
        self._sent = 0


class DeviceStructure(ABC):
    """The tuples of one window: main, and a buffer for batches that are small beside it."""

    run: ClassVar[type[Run]]

    def __init__(self, index: Any, machine: Any, expected: int = 0):
        self._index = index
        self._machine = machine
        self._expected = expected + expected // 8
        self._runs: tuple[Any, Any] | None = None  # main, buffer; made when the first batch shows the keys
        self._ticks = Ticks(machine)

    @property
    def size(self) -> int:
        return sum(run.size for run in self._runs or ())

    def insert(self, entries: Any, first_row: int) -> None:
        """O(main) on the device, a batch."""
        if not entries.size:
            return
        if self._runs is None:
            given = self._machine, self._index, entries.equal is not None
            self._runs = self.run(*given, self._expected), self.run(*given)
        main, buffer = self._runs
        room = self._index.buffer_rows
        if room is None:
            room = self._buffer_room(main.size, entries.size)
        if entries.size + buffer.size < room and main.size:
            buffer.merge(entries, first_row)
            return
        self._empty_buffer()
        main.merge(entries, first_row)

    @abstractmethod
    def _buffer_room(self, main: int, batch: int) -> int:
        """How large a buffer is worth its probes."""

    def _empty_buffer(self) -> None:
        assert self._runs is not None
        main, buffer = self._runs
        if buffer.size:
            main.merge(buffer.stored(), 0)
            buffer.clear()

    def find(
        self, probes: Any, start: int, stop: int, bounds: TickBounds | None, positions: tuple[int, int] | None = None
    ) -> Iterator[Pairs]:
        """O(log main) a probe, and O(1) a candidate. positions: those of row 0 of the batch and of row 0 here; then
        pairs are of positions."""
        if not self.size or stop <= start:
            return
        asked = Bounds(self._machine, bounds, self._ticks)
        for run, band in self._searched(probes):
            yield from self._pairs(run, band, start, stop - start, asked, positions)

    @abstractmethod
    def _pairs(
        self, run: Any, band: Any, start: int, m: int, bounds: Bounds, positions: tuple[int, int] | None
    ) -> Iterator[Pairs]:
        """Those of m probes, from `start` on, with one run."""

    def _searched(self, probes: Any) -> list[tuple[Any, Any]]:
        return [(run, band) for run in self._runs or () if run.size for band in probes.bands]

    def worth_forgetting(self, expired: int, size: int) -> bool:
        return expired * _FORGET >= size

    def forget(self, gone: int) -> None:
        """O(size) on the device."""
        for run in self._runs or ():
            run.forget(gone)
        self._ticks.forget()

    def seal(self) -> None:
        if self._runs is not None:
            self._empty_buffer()
            self._runs[0].trim()

    def nbytes(self) -> int:
        """Of the device's memory."""
        return sum(run.nbytes() for run in self._runs or ())

    def check_invariants(self) -> None:
        found = [run.check_invariants(name) for name, run in zip(("main", "buffer"), self._runs or (), strict=False)]
        rows = np.concatenate([np.zeros(0, np.int32), *found])
        assert np.unique(rows).size == rows.size, f"a row is stored twice: {np.sort(rows)}"
