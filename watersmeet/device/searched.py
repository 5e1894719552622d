"""BI-Sort in host memory, searched on a GPU: for windows that are kept elsewhere, and come and go as sorted runs.

    host     sorted run                  probes of a batch     ^ pairs
             | keys, once                | ranges              |
    device   v                           v                     |
             keys, rows, samples -----> searched (gpu_sort.py) '

Spark's state store has the window; a micro-batch is put together from its runs, and adds one. Keys are sorted, merged
and stored here, as without a GPU. A run's keys go to the device when it is first probed, and stay there for as long as
somebody holds what `sent` gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from watersmeet.device.gpu_sort import GPUSort, GPUSortStructure
from watersmeet.device.windows import Stored
from watersmeet.index.base import Pairs, TickBounds
from watersmeet.index.batches import Entries
from watersmeet.index.sorted.bisort import BISort, BISortStructure
from watersmeet.workers import ALONE, Workers

_THERE = GPUSort(buffer_rows=0)


@dataclass(frozen=True)
class SearchedOnGPU(BISort):
    """As BISort; probes go to a GPU."""

    device: ClassVar[str] = "gpu"

    def probes(self, equal, lows, highs, live, n, workers: Workers, entries: Entries | None = None) -> Any:
        """O(n): the ranges are sent."""
        return _THERE.probes(equal, lows, highs, live, n, workers)

    def structure(self, like: BISortStructure | None = None, workers: Workers = ALONE) -> SearchedStructure:
        return SearchedStructure(self, 0 if like is None else like.size, workers)


class SearchedStructure(BISortStructure):
    _sent: GPUSortStructure | None = None

    @property
    def sent(self) -> GPUSortStructure | None:
        """What is on the device, if it was sent."""
        return self._sent

    def was_sent(self, sent: GPUSortStructure) -> None:
        """What was sent of the same run before."""
        self._sent = sent

    def insert(self, entries: Entries, first_row: int) -> None:
        self._sent = None
        super().insert(entries, first_row)

    def forget(self, gone: int) -> None:
        self._sent = None
        super().forget(gone)

    def find(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        return self._there().find(probes, start, stop, bounds)

    def count(self, probes: Any, start: int, stop: int, bounds: TickBounds | None) -> int:
        return self._there().count(probes, start, stop, bounds)

    def _there(self) -> GPUSortStructure:
        if self._sent is None:
            there = _THERE.structure()
            for run in self._runs or ():
                if run.size:
                    there.insert(_sorted_there(run.entries()), 0)
            there.seal()
            self._sent = there
        return self._sent


def _sorted_there(entries: Entries) -> Stored:
    send = _THERE.machine().upload
    equal = send(entries.equal) if entries.equal.size else None
    return Stored(equal, send(entries.ordered), send(entries.rows), entries.size)
