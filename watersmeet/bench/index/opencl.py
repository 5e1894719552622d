"""BI-Sort on OpenCL in the company of structures of the CPU, which take their batches from the host.

A batch is sent when it is inserted, and an insert has ended when the device has done it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.index import BISort, OpenCLBISort, RaPTable, WiBTree
from watersmeet.index.base import Pairs
from watersmeet.index.batches import Entries, Probes
from watersmeet.workers import ALONE, Workers

ONE_UNIT = "1 unit"


def opencl_contenders() -> dict[tuple[str, str], Any]:
    """Raises NoDevice where there is none. One unit is one thread, where the device is the CPU."""
    OpenCLBISort().check_device()
    return {
        ("bisort", ""): BISort(),
        ("rap_table", ""): RaPTable(),
        ("wib_tree", ""): WiBTree(),
        ("opencl_bisort", ""): _Sent(OpenCLBISort()),
        ("opencl_bisort", ONE_UNIT): _Sent(OpenCLBISort(units=1)),
    }


class _Sent:
    """The index, with batches of the host."""

    def __init__(self, index: OpenCLBISort):
        self._index = index

    def structure(self, like: Any = None, workers: Workers = ALONE) -> _SentStructure:
        return _SentStructure(self._index, self._index.structure(like))


class _SentStructure:
    def __init__(self, index: OpenCLBISort, structure: Any):
        self._index = index
        self._structure = structure

    @property
    def size(self) -> int:
        return self._structure.size

    def insert(self, entries: Entries, first_row: int) -> None:
        self._structure.insert(self._index.sent(entries), first_row)
        self._index.machine().synchronize()

    def find(self, probes: Probes, start: int, stop: int, bounds: None) -> Iterator[Pairs]:
        return self._structure.find(self._index.asked(probes), start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: None) -> int:
        return self._structure.count(self._index.asked(probes), start, stop, bounds)

    def seal(self) -> None:
        self._structure.seal()
