"""GPU-Sort: the window's keys on a GPU, as BI-Sort has them: sorted, sampled, merged, forgotten.

Purpose: ordered keys (band, inequality, equality, or equality then band), large windows, large batches.

    host      payload, times                     ^ pairs of row numbers, or a count
              | keys of a batch                  |
    device    v                                  |
    batch     [ 35  60 ]            sorted there, by CuPy
    main      [ 10  20  30 | 40  50  70 | 80  80  90 ]       samples [ 30 70 90 ]
    rows      [  4   0   7 |  1   8   2 |  3   6   5 ]
    spare     [ 10  20  30 | 35  40  50 | 60  70  80 | 80 90 ]   what main becomes when the batch is merged

A batch sends its keys, 8 bytes a tuple, and is sorted on the device. Every tuple of it looks up its place in main, and
the two are written, merged, to the spare array, which then is main: one pass at the speed of the device's memory, which
for a window of millions takes less than the launch of the kernels. So a batch is merged at once, and only one that is
very small beside the window goes to a buffer first, a second sorted run.

A probe finds where its range begins and ends. Sums over the lengths of the ranges tell where the candidates of each
probe stand among those of all, and threads take candidates, not probes: one with a million partners does not hold up
the rest (kernels.py). The window's edge is checked there, and what is left comes back, as many pairs at a time as there
is room for, each portion beside the search for the next.

Invariants: main and buffer are sorted; every inserted live row is in exactly one of them; sample i is key
(i + 1) * width - 1.

Cost: insert O(main) bytes of device memory a batch; probe O(log main) and O(1) a candidate. Device memory: 12 bytes a
tuple (20 composite) twice, and a 32nd for samples. Launches: about ten a batch, 30 to 60 microseconds each, so batches
want to be large.

Reference: PanJoin, section III-D (BI-Sort).
Differs from the paper: it is on a GPU; samples have one level; probes are not sorted; the window is kept twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from watersmeet.device.windows import Bounds, DeviceStructure, Keys, Run, check_sizes
from watersmeet.index.base import Needs, Pairs, TickBounds
from watersmeet.workers import ALONE, Workers

_WIDTH = 32
_PORTION = 1 << 22  # candidates that are looked at before their pairs come back
_DIRECT = 1 << 22  # keys of main, up to which every batch is merged at once
_SMALL_SHARE = 256  # above that a batch is not merged at once if main is so many times larger


@dataclass(frozen=True)
class GPUSort:
    """Sorted windows on a GPU.

    buffer_rows: batches smaller than this are collected before they are merged; by default as main and batch suggest.
    partition_rows: keys from one sample to the next.
    portion_rows: candidates that are looked at before their pairs come back.
    most_bytes: what the keys of one window may take on the device; by default all that is free there.
    """

    buffer_rows: int | None = None
    partition_rows: int = _WIDTH
    portion_rows: int = _PORTION
    most_bytes: int | None = None

    name: ClassVar[str] = "gpu_sort"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = True
    forgets: ClassVar[bool] = True
    device: ClassVar[str] = "gpu"

    def __post_init__(self) -> None:
        check_sizes(self, partition_rows=_WIDTH, portion_rows=_PORTION)

    def check_device(self) -> None:
        """Raise NoDevice where there is none."""
        from watersmeet.device.cuda import check_device

        check_device()

    def machine(self) -> Any:
        from watersmeet.device.machine import machine

        return machine()

    def entries(self, equal, ordered, live, n: int, workers: Workers) -> Any:
        """O(n), once a batch, on the device."""
        from watersmeet.device import batches

        return batches.entries(self.machine(), equal, ordered, live, n)

    def probes(self, equal, lows, highs, live, n: int, workers: Workers, entries: Any = None) -> Any:
        """O(n). `entries` are those of the same batch, if the same rows of it are live."""
        from watersmeet.device import batches, kernels

        return batches.probes(self.machine(), kernels, equal, lows, highs, live, n, entries, workers)

    def structure(self, like: GPUSortStructure | None = None, workers: Workers = ALONE) -> GPUSortStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return GPUSortStructure(self, self.machine(), 0 if like is None else like.size)


class _Run(Run):
    def __init__(self, machine: Any, index: GPUSort, composite: bool, expected: int = 0):
        from watersmeet.device import kernels

        super().__init__(machine, index, composite, expected)
        self._kernels = kernels

    def _merged(self, main: Keys, batch: Any, first_row: int, to: Keys) -> None:
        machine, kernels = self._machine, self._kernels
        places = machine.take(batch.size, np.int64)
        equal = (batch.equal or batch.ordered).array
        one = int(self.composite)
        machine.launch(
            kernels.place, batch.size, one, *main.searched, self._width, self.size, equal, batch.ordered.array,
            batch.size, places.array,
        )  # fmt: skip
        machine.launch(
            kernels.merge, self.size + batch.size, one, *main.arrays[:3], self.size, equal, batch.ordered.array,
            batch.rows.array, batch.size, first_row, places.array, self._width, *to.arrays, each=kernels.MERGED,
        )  # fmt: skip

    def _kept(self, main: Keys, gone: int, to: Keys) -> int:
        machine, kernels = self._machine, self._kernels
        tile = machine.threads * kernels.ITEMS
        tiles = -(-self.size // tile)
        counts, ends = machine.take(tiles, np.int64), machine.take(tiles, np.int64)
        machine.launch(
            kernels.count_kept, self.size, main.rows.array, self.size, gone, counts.array, each=kernels.ITEMS
        )
        with machine.working() as xp:
            xp.cumsum(counts.values[:tiles], out=ends.values[:tiles])
        machine.launch(
            kernels.forget, self.size, int(self.composite), *main.arrays[:3], self.size, gone, ends.array,
            self._width, *to.arrays, each=kernels.ITEMS,
        )  # fmt: skip
        with machine.working() as xp:
            last = machine.take(1, np.int64)
            last.values[:1] = ends.values[tiles - 1 : tiles]
        return int(machine.download((last, 1))[0][0])

    def candidates(self, band: Any, start: int, m: int) -> tuple[Any, Any]:
        """Of m probes from `start` on: where their ranges begin, and the sums of their lengths up to each."""
        assert self._main is not None
        machine = self._machine
        begins, numbers, ends = (machine.take(m, np.int64) for _ in range(3))
        equal = (band.equal or band.lows).array
        machine.launch(
            self._kernels.locate, m, int(self.composite), *self._main.searched, self._width, self.size, equal,
            band.lows.array, band.highs.array, start, m, begins.array, numbers.array,
        )  # fmt: skip
        with machine.working() as xp:
            xp.cumsum(numbers.values[:m], out=ends.values[:m])
        return begins, ends


class GPUSortStructure(DeviceStructure):
    run = _Run

    def __init__(self, index: GPUSort, machine: Any, expected: int = 0):
        from watersmeet.device import kernels

        super().__init__(index, machine, expected)
        self._kernels = kernels
        self._first_pairs = 0  # candidates that the last `find` had: the room that the next begins with

    def _buffer_room(self, main: int, batch: int) -> int:
        """How large a buffer is worth its probes: a second search a batch, some launches.

        As in BI-Sort, but the device moves a million keys in the time of a launch.
        """
        if main < _DIRECT or main < _SMALL_SHARE * batch:
            return 0
        return max(1 << 14, math.isqrt(main * batch))

    def _pairs(
        self, run: _Run, band: Any, start: int, m: int, bounds: Bounds, positions: tuple[int, int] | None
    ) -> Iterator[Pairs]:
        machine, kernels = self._machine, self._kernels
        begins, ends = run.candidates(band, start, m)

        def begun(first: int, room: int) -> _Portion:
            portion = _Portion(machine, first, room, np.int32 if positions is None else np.int64)
            machine.launch(
                kernels.pairs, room, ends.array, begins.array, band.rows.array, start, m, run.rows.array, first, room,
                *bounds.arguments(), *(positions or (0, 0)), *portion.arrays, each=kernels.ITEMS,
            )  # fmt: skip
            portion.mark = machine.mark()
            return portion

        portion: _Portion | None = begun(0, min(max(2 * m + 64, self._first_pairs), self._index.portion_rows))
        total = 0
        while portion is not None:
            total, pairs = portion.counted()
            following, left = None, total - portion.end
            if left > 0:
                following = begun(portion.end, min(left, self._index.portion_rows))  # while this one comes back
            if pairs:
                rows, partners = portion.pairs(pairs)
                if positions is not None:
                    rows, partners = machine.handed_out(rows), machine.handed_out(partners)
                yield rows, partners
            portion = following
        self._first_pairs = total + total // 4

    def count(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no candidate is looked at."""
        machine, kernels = self._machine, self._kernels
        m = stop - start
        searched = self._searched(probes)
        if not searched or m <= 0:
            return 0
        asked = Bounds(machine, bounds, self._ticks)
        tally = machine.zeros(2)
        for run, band in searched:
            begins, ends = run.candidates(band, start, m)
            if bounds is None:
                with machine.working():
                    tally.values[1:2] += ends.values[m - 1 : m]
            else:
                machine.launch(
                    kernels.count, max(m, self._first_pairs), ends.array, begins.array, band.rows.array, start, m,
                    run.rows.array, *asked.arguments(), tally.array, each=kernels.ITEMS,
                )  # fmt: skip
        return int(machine.download((tally, 2))[0][1])


class _Portion:
    """Some of the candidates of a batch, being looked at, and the room for their pairs."""

    mark: Any

    def __init__(self, machine: Any, first: int, room: int, dtype: Any):
        self.end = first + room
        self._machine = machine
        self._rows, self._partners = machine.take(room, dtype), machine.take(room, dtype)
        self._tally = machine.zeros(2)

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self._rows.array, self._partners.array, self._tally.array

    def counted(self) -> tuple[int, int]:
        """Candidates of the whole batch, and pairs of this portion."""
        total, pairs = self._machine.download((self._tally, 2), behind=self.mark)[0]
        return int(total), int(pairs)

    def pairs(self, n: int) -> Pairs:
        rows, partners = self._machine.download((self._rows, n), (self._partners, n), behind=self.mark)
        return rows, partners
