"""Adaptive: the next subwindow is kept in the structure that the last one suggests.

Purpose: ordered keys whose order, distribution or number of partners changes; PanJoin's structures and its rule.

    subwindow   [ RaP-Table | RaP-Table | WiB+-Tree | WiB+-Tree . . . ]
    keys          7 2 9 4     3 8 1 6     11 12 13    14 15 16

While a subwindow fills it is noted how large its batches are, how many partners a probe finds in it, how often a batch
lies above all keys before it, and how far the middle of the keys has moved since the subwindow before. `choose` turns
that into the structure of the next one. All three take the same sorted batches, so a chain may mix them. Here the keys
began to increase: RaP-Table, whose splitters would all be below what comes, is left for WiB+-Tree by itself.

The rule: batches that are large, by themselves or beside the subwindow, or many partners want BI-Sort, whose inserts
are cheap then, and whose answers are ranges; else keys that increase or drift want WiB+-Tree; else RaP-Table.

Cost: that of the structures, and O(1) a batch.

Reference: PanJoin, the choice between its structures by batch, selectivity and stability of values.
Differs from the paper: it is made anew for each subwindow, from what was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.index.base import Array, Index, Needs, Pairs, Structure, TickBounds, mark
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.sorted.bisort import BISort
from watersmeet.index.tables.rap_table import RaPTable
from watersmeet.index.trees.wib_tree import WiBTree
from watersmeet.workers import ALONE, Workers

LARGE_BATCH = 1 << 13  # rows; from there on BI-Sort inserts fastest into any subwindow
LARGE_SHARE = 1 / 64  # of a subwindow; from there on into this one
MANY_PARTNERS = 64.0  # a probe; with more, writing them out is most of the work
RISING = 0.5  # of the batches
DRIFT = 0.25  # of the range of keys, from one subwindow to the next


@dataclass(frozen=True)
class Seen:
    """What a subwindow has shown."""

    rows: int
    batch_rows: float  # mean
    partners: float  # of a probe, mean
    rising: float  # share of the batches that lay above all keys before them
    drift: float  # of the middle of the keys since the subwindow before, by their range


def choose(seen: Seen) -> Index:
    """The structure for the next subwindow."""
    if seen.batch_rows >= min(LARGE_BATCH, LARGE_SHARE * seen.rows) or seen.partners >= MANY_PARTNERS:
        return BISort()
    if seen.rising >= RISING or seen.drift >= DRIFT:
        return WiBTree()
    return RaPTable()


@dataclass(frozen=True)
class Adaptive(SortedBatches):
    """BI-Sort, RaP-Table or WiB+-Tree, chosen anew for each subwindow."""

    name: ClassVar[str] = "adaptive"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = False

    def structure(self, like: AdaptiveStructure | None = None, workers: Workers = ALONE) -> AdaptiveStructure:
        """An empty structure of the kind that `like` suggests, with room for about as much as it came to hold."""
        return AdaptiveStructure(like, workers)


class AdaptiveStructure:
    kind: str
    inner: Structure

    def __init__(self, like: AdaptiveStructure | None, workers: Workers):
        chosen: Index = BISort() if like is None else choose(like.seen())
        same = like.inner if like is not None and like.kind == chosen.name else None
        self.kind = chosen.name
        self.inner = chosen.structure(same, workers)
        self._batches = self._rows = self._rising = self._probes = self._pairs = 0
        self._least = self._greatest = 0
        self._middles = 0.0  # sum over the rows of their batch's middle key
        self._before = None if like is None or not like._rows else like._middle

    @property
    def _middle(self) -> float:
        return self._middles / self._rows

    def seen(self) -> Seen:
        rows = max(self._rows, 1)
        drift = 0.0
        if self._before is not None and self._rows:
            drift = abs(self._middle - self._before) / max(self._greatest - self._least, 1)
        return Seen(
            self._rows, rows / max(self._batches, 1), self._pairs / max(self._probes, 1),
            self._rising / max(self._batches - 1, 1), drift,
        )  # fmt: skip

    def insert(self, entries: Entries, first_row: int) -> None:
        """As the structure's."""
        n = entries.size
        if n:
            least, greatest = int(entries.ordered[0]), int(entries.ordered[-1])
            self._rising += self._rows > 0 and least > self._greatest
            self._least = min(least, self._least) if self._rows else least
            self._greatest = max(greatest, self._greatest) if self._rows else greatest
            self._batches += 1
            self._rows += n
            self._middles += float(entries.ordered[n // 2]) * n
        self.inner.insert(entries, first_row)

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """As the structure's."""
        pairs = 0
        for portion in self.inner.find(probes, start, stop, bounds):
            pairs += portion[0].size
            yield portion
        self._note(stop - start, pairs)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As the structure's."""
        pairs = self.inner.count(probes, start, stop, bounds)
        self._note(stop - start, pairs)
        return pairs

    def mark(
        self, probes: Probes, start: int, stop: int, bounds: TickBounds | None, probes_met: Array, met: Array
    ) -> int:
        """As the structure's."""
        pairs = mark(self.inner, probes, start, stop, bounds, probes_met, met)
        self._note(stop - start, pairs)
        return pairs

    def _note(self, probes: int, pairs: int) -> None:
        """Several threads may do so at once, and now and then one is not counted: only a mean comes of it."""
        self._probes += probes
        self._pairs += pairs

    def seal(self) -> None:
        self.inner.seal()

    def nbytes(self) -> int:
        return self.inner.nbytes()

    def check_invariants(self) -> None:
        self.inner.check_invariants()
        assert self._rows == 0 or self._least <= self._greatest, f"keys from {self._least} to {self._greatest}"
