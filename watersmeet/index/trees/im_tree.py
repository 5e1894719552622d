"""IM-Tree (in-memory merge tree): a small B+-Tree for what is new, an immutable tree for the rest, merged at times.

Purpose: ordered keys over a whole window that moves on steadily.

    new tuples -> [ mutable: B+-Tree ] -- when it holds merge_ratio of the window --> [ immutable: CSS-tree ] -> expired

New tuples go to the mutable tree, which is small and stays in cache. When it holds its share of the window, all of it
is merged with the immutable tree, and what has expired there is dropped in the same breath; so no tuple is ever deleted
on its own. A probe searches both, and leaves out expired tuples by their ticks.

Example, merge_ratio 1/4 and a window of 8: the immutable tree holds rows 0..7, the mutable one 8 and 9. Rows 0 and 1
have expired, but are still there; since 2 = 8 / 4 the trees are merged now, into an immutable one of the rows 2..9,
numbered 0..7 again, and the mutable one is empty.

Invariants: those of both trees; every live row is in exactly one of them; outside of `insert` and `forget` the mutable
tree holds less than twice its share.

Cost: insert O(log(merge_ratio * n)) a tuple and 1 / merge_ratio moves in merges; find O(log n) twice a probe and O(1) a
partner. Memory: 12 bytes a tuple in the immutable part, about 18 in the mutable one.

Reference: PIM, section 3.2.
Differs from the paper: while nothing expires (a window that still fills, a subwindow of a chain) merges wait for their
share only; a batch that alone is a share goes straight into the immutable tree; the merge is in place, so that it needs
no second array.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.index.base import Needs, Pairs, TickBounds
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.trees.btree import FAN_OUT, Trees, check_fan_out
from watersmeet.index.trees.css_tree import CSSTree
from watersmeet.workers import ALONE, Workers

MERGE_RATIO = 1 / 8


def check_merge_ratio(merge_ratio: float) -> None:
    if isinstance(merge_ratio, bool) or not isinstance(merge_ratio, int | float):
        raise TypeError(f"merge_ratio must be a number, got {merge_ratio!r}; {MERGE_RATIO} is a good value")
    if not 0 < merge_ratio <= 1:
        raise ValueError(f"merge_ratio must be above 0 and at most 1, got {merge_ratio}; {MERGE_RATIO} is a good value")


@dataclass(frozen=True)
class IMTree(SortedBatches):
    """A mutable and an immutable tree.

    merge_ratio: they are merged when the mutable one holds so much of the window.
    fan_out: entries of a leaf, and children of an inner node, at most.
    """

    merge_ratio: float = MERGE_RATIO
    fan_out: int = FAN_OUT

    def __post_init__(self) -> None:
        check_merge_ratio(self.merge_ratio)
        check_fan_out(self.fan_out)

    name: ClassVar[str] = "im_tree"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = True

    def structure(self, like: MergeTreeStructure | None = None, workers: Workers = ALONE) -> MergeTreeStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return MergeTreeStructure(self.merge_ratio, self.fan_out, 0, 0 if like is None else like.size, workers)


class MergeTreeStructure:
    """An immutable tree, and mutable ones for its nodes at `insertion_depth`: in an IM-Tree one, for the root."""

    def __init__(
        self, merge_ratio: float, fan_out: int, insertion_depth: int, expected: int = 0, workers: Workers = ALONE
    ):
        self._ratio = merge_ratio
        self._depth = insertion_depth
        self._immutable = CSSTree(fan_out, expected, workers)
        self._mutable = Trees(fan_out)
        self._forgets = False  # whether it has been asked to

    @property
    def size(self) -> int:
        return self._immutable.size + self._mutable.size

    def _due(self, rows: int, live: int) -> bool:
        return rows >= max(self._ratio * live, 1)

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(log(merge_ratio * n)) a tuple, and 1 / merge_ratio moves in the merges."""
        if self._due(entries.size, self.size):
            self._merge()
            self._immutable.merge(entries, first_row)
            self._mutable.plant(*self._immutable.inner_nodes(self._depth))
            return
        self._mutable.insert(entries.ordered, entries.rows, first_row)
        # Where rows expire, `forget` merges them and drops what has expired at once; here, if it fails to come.
        if self._due(self._mutable.size // (2 if self._forgets else 1), self.size):
            self._merge()

    def _merge(self, gone: int = 0) -> None:
        """Move all entries to the immutable tree, without the rows below `gone`. O(n)."""
        entries = self._mutable.entries(gone)
        if gone:
            self._immutable.forget(gone)
        if entries.size:
            self._immutable.merge(entries, 0)
        self._mutable.plant(*self._immutable.inner_nodes(self._depth))

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(log n) a probe, and O(1) a partner."""
        for band in probes.bands:
            yield from self._immutable.find(band, start, stop, bounds)
            yield from self._mutable.find(band, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds no partner is looked at."""
        parts = (self._immutable, self._mutable)
        return sum(part.count(band, start, stop, bounds) for part in parts for band in probes.bands)

    def worth_forgetting(self, expired: int, size: int) -> bool:
        """When a merge is due, or a share of the window has expired without one."""
        self._forgets = True
        live = size - expired
        return self._due(self._mutable.size, live) or self._due(expired, live)

    def forget(self, gone: int) -> None:
        """O(n)."""
        self._merge(gone)

    def seal(self) -> None:
        self._merge()
        self._immutable.trim()
        self._mutable = Trees(self._immutable.fan_out)

    def nbytes(self) -> int:
        return self._immutable.nbytes() + self._mutable.nbytes()

    def check_invariants(self) -> None:
        self._immutable.check_invariants("the immutable tree")
        self._mutable.check_invariants()
        rows = np.concatenate([self._immutable.entries().rows, self._mutable.entries().rows])
        assert rows.size == self.size and np.all(rows >= 0), f"{self.size} rows, some below 0: {np.sort(rows)}"
        assert np.unique(rows).size == rows.size, f"a row is stored twice: {np.sort(rows)}"
