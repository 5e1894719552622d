"""BI-Sort on an OpenCL device, of the parts that PanJoin built for an FPGA.

Purpose: ordered keys, as BI-Sort, on whatever speaks OpenCL: an FPGA, a GPU, or, through PoCL, the CPU.

    host     sorts a batch                  cuts results into portions, and takes pairs
             | keys, row numbers            | where each unit's begin     ^ pairs, or counts
    device   v                              v                            |
    insert   mergers -> indexer                                          |
    probe    boundary generator -> partitioners -> probers -> adders -> emitters

    main     [ 10  20  30 | 40  50  70 | 80  80  90 ]      samples [ 30 70 90 ]
    batch    [ 35  60 ]                                    band: 5 below to 10 above

Two mergers make [10 20 30 35 40] and [50 60 70 80 80 90]. For the probes the boundary generator makes lows [30 55]
and highs [45 70]. The partitioners find the partitions of the lows (0, 1) and of the highs (1, 2), the probers how many
keys are before each: 2 and 5, and 4 and 6. So the ranges are 2..4 and 5..6, two candidates and one (adders), which the
emitters look up (bisort.cl).

What runs on the device are units, each with a span of the work, without a word among them. What they must know of each
other (how many candidates there are before each) are a few numbers, which the host adds up between two parts.

Invariants: those of windows.py.

Cost: insert O(main / buffer) moves a tuple; probe O(log partitions + partition) and O(1) a candidate. Device memory: 12
bytes a tuple (20 composite) twice, and a 32nd for samples.

Reference: PanJoin, section IV, figures 7 to 9; III-E, figure 6 (rebounding search).
Differs from the paper: mergers find their spans themselves, so that any number of them does the same; pairs are made
(adders, emitters), where the paper's result is the ranges; the buffer is sorted; rows can be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from watersmeet.device.constants import constant_difference
from watersmeet.device.memory import Block
from watersmeet.device.windows import Bounds, DeviceStructure, Keys, Run, check_sizes
from watersmeet.index.base import Array, Needs, Pairs, TickBounds
from watersmeet.index.batches import Entries, Probes, Ranges, SortedBatches
from watersmeet.index.sorted.bisort import buffer_room
from watersmeet.workers import ALONE, Workers

_WIDTH = 32
_PORTION = 1 << 20


@dataclass(frozen=True)
class OpenCLBISort(SortedBatches):
    """Sorted windows on an OpenCL device.

    buffer_rows: batches smaller than this are collected before they are merged; by default as main and batch suggest.
    partition_rows: keys from one sample to the next.
    portion_rows: candidates that are looked at before their pairs come back.
    most_bytes: what the keys of one window may take on the device; by default all that is free there.
    units: how many of each part work at once; by default 4 for each of the device's compute units, 256 of a GPU's.
    platform, device_name: text that these names of OpenCL contain; by default the first device that there is.
    """

    buffer_rows: int | None = None
    partition_rows: int = _WIDTH
    portion_rows: int = _PORTION
    most_bytes: int | None = None
    units: int | None = None
    platform: str | None = None
    device_name: str | None = None

    name: ClassVar[str] = "opencl_bisort"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = True
    forgets: ClassVar[bool] = True
    device: ClassVar[str] = "opencl"

    def __post_init__(self) -> None:
        check_sizes(self, partition_rows=_WIDTH, portion_rows=_PORTION)
        if self.units is not None and self.units < 1:
            raise ValueError(f"units must be at least 1, got {self.units}; leave it out for a good number")
        for name in ("platform", "device_name"):
            value = getattr(self, name)
            if not isinstance(value, str | None):
                raise TypeError(f"{name} must be text, got {value!r}; leave it out for the first that there is")

    def check_device(self) -> None:
        """Raise NoDevice where there is none."""
        from watersmeet.device import opencl

        opencl.check_device(self.platform, self.device_name)

    def machine(self) -> Any:
        from watersmeet.device import opencl

        return opencl.machine(self.platform, self.device_name)

    def entries(
        self, equal: Array | None, ordered: Array | None, live: Array | None, n: int, workers: Workers
    ) -> Any:
        """O(n), once a batch: sorted here, as PanJoin's manager does, and sent."""
        return self.sent(super().entries(equal, ordered, live, n, workers))

    def sent(self, host: Entries) -> _Entries:
        """A sorted batch, on the device."""
        send = self.machine().upload
        return _Entries(
            send(host.equal) if host.equal.size else None, send(host.ordered), send(host.rows), host.size, host
        )

    def probes(self, equal, lows, highs, live, n, workers: Workers, entries: Any = None) -> Any:
        """O(n). `entries` are those of the same batch, if the same rows of it are live."""
        host = super().probes(equal, lows, highs, live, n, workers, None if entries is None else entries.host)
        return self.asked(host, entries)

    def asked(self, host: Probes, entries: _Entries | None = None) -> _Probes:
        """Sorted ranges, on the device."""
        machine = self.machine()
        return _Probes(tuple(self._band(machine, ranges, entries) for ranges in host.bands), host.size)

    def _band(self, machine: Any, ranges: Ranges, stored: _Entries | None) -> _Band:
        """Ranges on the device; made there where they are the batch's keys, moved by a constant."""
        if stored is not None and ranges.rows is stored.host.rows and _same(ranges.equal, stored.host.equal):
            below = constant_difference(stored.host.ordered, ranges.lows)
            above = constant_difference(stored.host.ordered, ranges.highs)
            if below is not None and above is not None:
                lows, highs = (machine.take(stored.size, np.int64) for _ in range(2))
                machine.launch(
                    "boundary_generator", False, self.units or machine.units, stored.ordered.array,
                    np.int64(stored.size), np.int64(below), np.int64(above), lows.array, highs.array,
                )  # fmt: skip
                return _Band(stored.equal, lows, highs, stored.rows)
        send = machine.upload
        return _Band(
            send(ranges.equal) if ranges.equal.size else None, send(ranges.lows), send(ranges.highs), send(ranges.rows)
        )

    def structure(self, like: OpenCLStructure | None = None, workers: Workers = ALONE) -> OpenCLStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return OpenCLStructure(self, self.machine(), 0 if like is None else like.size)


def _same(one: Array, other: Array) -> bool:
    return one.size == other.size and constant_difference(one, other) == 0


class _Entries(NamedTuple):
    """A batch in key order, on the device; `host`: and here."""

    equal: Block | None  # None: one key
    ordered: Block
    rows: Block
    size: int
    host: Entries


class _Band(NamedTuple):
    """Ranges of keys on the device, in order of their low ends."""

    equal: Block | None
    lows: Block
    highs: Block
    rows: Block


class _Probes(NamedTuple):
    """A batch as ranges, one list for each band."""

    bands: tuple[_Band, ...]
    size: int

    @property
    def on_device(self) -> bool:
        """All are one question: to ask in parts would cost launches."""
        return True


class _Candidates(NamedTuple):
    """What probers found for m probes, from `start` on: ranges of keys."""

    begins: Block
    ends: Block
    sums: Block  # of the ranges' lengths, up to each within a unit's span
    firsts: Array  # the number of the first candidate of each span, and of all
    start: int
    m: int

    @property
    def total(self) -> int:
        return int(self.firsts[-1])


class _Run(Run):
    @property
    def units(self) -> int:
        return self._index.units or self._machine.units

    def launch(self, part: str, *arguments: Any) -> None:
        self._machine.launch(part, self.composite, self.units, *arguments)

    def _merged(self, main: Keys, batch: Any, first_row: int, to: Keys) -> None:
        equal = batch.equal or batch.ordered
        self.launch(
            "merger", *main.arrays[:3], np.int64(self.size), equal.array, batch.ordered.array, batch.rows.array,
            np.int64(batch.size), np.int32(first_row), *to.arrays[:3],
        )  # fmt: skip
        self._indexed(to, self.size + batch.size)

    def _indexed(self, to: Keys, size: int) -> None:
        self.launch(
            "indexer", to.equal.array, to.ordered.array, np.int64(size), np.int64(self._width), *to.arrays[3:]
        )

    def _kept(self, main: Keys, gone: int, to: Keys) -> int:
        machine, n = self._machine, np.int64(self.size)
        counts = machine.take(self.units, np.int64)
        self.launch("keep_counter", main.rows.array, n, np.int32(gone), counts.array)
        firsts = _firsts(machine.download((counts, self.units))[0])
        self.launch("keeper", *main.arrays[:3], n, np.int32(gone), machine.upload(firsts).array, *to.arrays[:3])
        self._indexed(to, int(firsts[-1]))
        return int(firsts[-1])

    def candidates(self, band: _Band, start: int, m: int) -> _Candidates:
        begins, ends, sums = (self._machine.take(m, np.int64) for _ in range(3))
        self._probed(band, band.lows, start, m, False, begins)
        self._probed(band, band.highs, start, m, True, ends)
        totals = self._machine.take(self.units, np.int64)
        self.launch("adder", begins.array, ends.array, np.int64(m), sums.array, totals.array)
        return _Candidates(begins, ends, sums, _firsts(self._machine.download((totals, self.units))[0]), start, m)

    def _probed(self, band: _Band, bounds: Block, start: int, m: int, inclusive: bool, found: Block) -> None:
        """How many keys are before each bound."""
        main = self._main
        assert main is not None
        targets = self._machine.take(m, np.int32)
        n, width = self.size, self._width
        asked = ((band.equal or bounds).array, bounds.array, np.int64(start), np.int64(m), np.int32(inclusive))
        sampled = main.sampled_equal.array, main.sampled_ordered.array
        self.launch("partitioner", *sampled, np.int64(n // width), *asked, targets.array)
        keys = main.equal.array, main.ordered.array
        self.launch("prober", *keys, np.int64(n), np.int64(width), targets.array, *asked, found.array)

    def emitted(
        self, band: _Band, found: _Candidates, firsts: Block, first: int, room: int, bounds: Bounds, out: Any
    ) -> Array:
        """Look at `room` candidates from number `first` on; how many each unit kept. out: for pairs; None: counted."""
        kept = self._machine.take(self.units, np.int64)
        mode, one_each, low, high, least, most, ticks = bounds.arguments()
        to = (firsts, firsts) if out is None else out  # where they are counted, nothing is written
        self.launch(
            "emitter", found.begins.array, found.ends.array, found.sums.array, firsts.array, band.rows.array,
            np.int64(found.start), np.int64(found.m), self.rows.array, np.int64(first), np.int64(room), np.int32(mode),
            np.int32(one_each), low, high, np.int64(least), np.int64(most), ticks, np.int32(out is None), to[0].array,
            to[1].array, kept.array,
        )  # fmt: skip
        return self._machine.download((kept, self.units))[0]


class OpenCLStructure(DeviceStructure):
    run = _Run

    def _buffer_room(self, main: int, batch: int) -> int:
        """As BI-Sort's: a merge moves all of main."""
        return buffer_room(main, batch)

    def _pairs(
        self, run: _Run, band: _Band, start: int, m: int, bounds: Bounds, positions: tuple[int, int] | None
    ) -> Iterator[Pairs]:
        machine = self._machine
        found = run.candidates(band, start, m)
        firsts = machine.upload(found.firsts)
        for first in range(0, found.total, self._index.portion_rows):
            room = min(self._index.portion_rows, found.total - first)
            out = machine.take(room, np.int32), machine.take(room, np.int32)
            kept = run.emitted(band, found, firsts, first, room, bounds, out)
            rows, partners = machine.download(*((block, room) for block in out))
            if kept.sum() < room:
                shares = room * np.arange(run.units) // run.units  # where the units' stretches begin
                taken = [slice(share, share + n) for share, n in zip(shares, kept, strict=True) if n]
                rows, partners = (
                    np.concatenate([pairs[part] for part in taken] or [pairs[:0]]) for pairs in (rows, partners)
                )
            if positions is not None:
                rows, partners = rows + np.int64(positions[0]), partners + np.int64(positions[1])
            if rows.size:
                yield rows, partners

    def count(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no candidate is looked at."""
        m = stop - start
        searched = self._searched(probes)
        if not searched or m <= 0:
            return 0
        asked = Bounds(self._machine, bounds, self._ticks)
        number = 0
        for run, band in searched:
            found = run.candidates(band, start, m)
            if bounds is None or not found.total:
                number += found.total
            else:
                firsts = self._machine.upload(found.firsts)
                number += int(run.emitted(band, found, firsts, 0, found.total, asked, None).sum())
        return number


def _firsts(counts: Array) -> Array:
    """Where each of the pieces of these sizes begins, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
