"""A PIM-Tree that threads search and fill at the same time, and that is merged beside their work.

    immutable          a CSS-tree
    merging            sub-trees that are being merged with it into a new one, on a thread of its own
    active             sub-trees that take what is new, each with a lock

While there is nothing to merge, `merging` is empty. When the active sub-trees hold their share of the window they are
set aside, others are planted in their place, and a thread begins to make a new immutable tree, of what the old one and
those set aside have that has not expired. Probes look in all three until it is there. A tree is changed for the new one
between two steps only, so during one nothing moves but the active sub-trees.

Rows are stored with an offset added, one for each part, modulo 2^32: to forget the oldest is to add to the offsets.
What has expired is dropped in the next merge; until then it has a negative row.

Invariants: those of all parts; every live row is in exactly one of them; sub-tree i of the active ones has the keys
between its separators, which are those that the immutable tree had when they were planted.

Cost: as the PIM-Tree's; a merge costs no step more than its share of the memory's bandwidth.

Reference: PIM, section 4.2 (nonblocking merge).
Differs from the paper: during its first phase tuples are not inserted, and all that arrive are looked through one by
one, and the second inserts what has waited. Here they go into the new sub-trees at once, which keep the separators they
were planted with until they are merged themselves; so there is nothing to look through, and no second phase.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.index.base import Array, Emitter, Pairs, TickBounds, bounds_mode, no_ticks, portions
from watersmeet.index.batches import Entries, Probes
from watersmeet.index.trees import shared_kernels as kernels
from watersmeet.index.trees.btree import Trees
from watersmeet.index.trees.css_tree import CSSTree, Levels
from watersmeet.index.trees.pim_tree import PIMTree
from watersmeet.index.trees.shared_kernels import APART, Lane, Sub, View
from watersmeet.workers import ALONE, Pending, Workers

#: Deeper than where one thread fills the tree: sub-trees that are small are seldom wanted by two at once.
_INSERTION_DEPTH = 3
#: Rows that have been forgotten since the last merge, at most: before negative ones come round to be positive.
_FAR = 1 << 30
_NONE = np.zeros(0, np.int64)
_NO_FLAGS = np.zeros(0, np.uint8)
NOBODY = Lane(_NONE, _NO_FLAGS, _NO_FLAGS, _NONE, _NONE, 1, 0, _NONE, _NONE, _NONE, 0, 0)


@dataclass(frozen=True)
class Coming:
    """Rows that a structure is to have room for; the threads insert them."""

    size: int


@dataclass(frozen=True)
class SharedPIMTree(PIMTree):
    """As PIMTree, for threads that share it.

    blocking: merges are done between steps, while all threads wait.
    """

    insertion_depth: int = _INSERTION_DEPTH
    blocking: bool = False

    def structure(self, like: Any = None, workers: Workers = ALONE) -> SharedTree:  # type: ignore[override]
        return SharedTree(self, workers)


class SharedTree:
    def __init__(self, config: SharedPIMTree, workers: Workers = ALONE):
        self._config = config
        self._workers = workers
        self._immutable = CSSTree(config.fan_out)
        self._spare: CSSTree | None = None  # the one before, whose room is taken again
        self._merging = _Part(config.fan_out)
        self._active = _Part(config.fan_out)
        self._offset = 0  # of the immutable tree
        self._merge: Pending[CSSTree] | None = None
        self._make: Callable[[], CSSTree]
        self._merge_offset = 0

    @property
    def size(self) -> int:
        return self._immutable.size + self._merging.trees.size + self._active.trees.size

    @property
    def merging(self) -> bool:
        """Whether a thread is at it."""
        return self._merge is not None and not self._merge.done()

    def view(self, coming: int = 0) -> View:
        """For a step that inserts so many rows at most. See `landed`."""
        self._active.trees.reserve(coming)
        f = self._config.fan_out
        tree = self._immutable
        return View(
            tree.ordered, tree.rows, tree.size, tree.levels, f, _wrapped(self._offset),
            self._merging.view(f, locks=False), self._active.view(f, locks=True),
        )  # fmt: skip

    def landed(self, rows: int) -> None:
        """A step has inserted so many rows."""
        self._active.trees.size += rows

    # -- as a structure ------------------------------------------------------------------------------------------------

    def insert(self, entries: Entries | Coming, first_row: int) -> None:
        """O(log(merge_ratio * n)) a tuple; a merge may begin, or be at its end."""
        self._change_over(entries.size)
        if isinstance(entries, Entries):
            self._active.trees.insert(entries.ordered, entries.rows, _wrapped(first_row + self._active.offset))

    def _change_over(self, coming: int) -> None:
        """Take the new immutable tree if it is there, and begin to make another if that is due."""
        far = max(self._offset, self._active.offset) >= _FAR
        due = far or self._active.trees.size + coming >= max(self._config.merge_ratio * (self.size + coming), 1)
        if self._merge is not None and (due or self._merge.done()):
            self._finish()
        if self._merge is None and due and (self._active.trees.size or far):
            self._begin()

    def _begin(self) -> None:
        self._merging, self._active = self._active, self._merging
        levels, trees = self._immutable.inner_nodes(self._config.insertion_depth)
        self._active.plant(levels, trees)
        self._merge_offset = self._offset
        into = self._spare or CSSTree(self._config.fan_out, self.size)
        self._spare = None
        source, offset = self._immutable, _wrapped(self._offset)
        aside, aside_offset = self._merging.trees, _wrapped(self._merging.offset)

        def merge() -> CSSTree:
            into.become(source, offset, aside.entries(aside_offset))
            return into

        self._make = merge
        self._merge = (ALONE if self._config.blocking else self._workers).start(merge)
        if self._merge.done():
            self._finish()

    def _finish(self) -> None:
        """Wait for the new tree and put it in place of the old one."""
        assert self._merge is not None
        tree = self._make() if self._merge.cancelled() else self._merge.result()  # threads may have been stopped
        self._merge = None
        self._spare, self._immutable = self._immutable, tree
        self._offset -= self._merge_offset
        self._merging.plant(Levels(_NONE, np.zeros(1, np.int64), 1, 0), 1)

    def worth_forgetting(self, expired: int, size: int) -> bool:
        """It costs nothing here, but whoever asks moves what it has."""
        return 8 * expired >= size

    def forget(self, gone: int) -> None:
        """O(1)."""
        self._offset += gone
        self._merging.offset += gone
        self._active.offset += gone

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(log n) a probe, and O(1) a partner."""
        for _, lows, highs, rows in probes.bands:
            yield from self._found(lows, highs, rows, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        return sum(rows.size for rows, _ in self.find(probes, start, stop, bounds))

    def _found(
        self, lows: Array, highs: Array, rows: Array, start: int, stop: int, bounds: TickBounds | None
    ) -> Iterator[Pairs]:
        view = self.view()
        b = bounds or no_ticks()
        low, high = (_NONE, _NONE) if bounds is None else (b.low[rows], b.high[rows])

        def write(first: int, out: Emitter) -> tuple[int, int]:
            n = stop - first
            lane = Lane(
                np.zeros(n, np.int64), np.zeros(n, np.uint8), np.ones(n, np.uint8), lows[first:stop], highs[first:stop],
                1, bounds_mode(bounds), low[first:stop], high[first:stop], b.ticks, 0, 1 << 31,
            )  # fmt: skip
            queue, mine = np.zeros(kernels.QUEUE, np.int64), np.zeros(kernels.MINE, np.int64)
            queue[kernels.WANTED], mine[kernels.TURNS] = 1, -1
            segments = np.zeros((2, 3), np.int64)
            how = kernels.work(
                0, queue, np.zeros(0, np.int64), n, NOBODY, lane, NOBODY, view, view, False, mine, out.batch_rows,
                out.rows, segments,
            )  # fmt: skip
            found = int(mine[kernels.PAIRS])
            out.batch_rows[:found] = rows[first:stop][out.batch_rows[:found]]
            return (first + int(mine[kernels.AT]) if how == kernels.FULL else stop), found

        return portions(start, stop if self.size else start, write)

    def seal(self) -> None:
        """Nothing to give back."""

    def nbytes(self) -> int:
        spare = 0 if self._spare is None else self._spare.nbytes()
        return self._immutable.nbytes() + self._merging.trees.nbytes() + self._active.trees.nbytes() + spare

    def entries(self) -> tuple[Array, Array]:
        """All keys, in no order, and their rows."""
        found = [(self._immutable.entries(), self._offset)]
        found += [(part.trees.entries(), part.offset) for part in (self._merging, self._active)]
        keys = np.concatenate([entries.ordered for entries, _ in found])
        rows = np.concatenate([(entries.rows - np.int64(offset)).astype(np.int32) for entries, offset in found])
        return keys[rows >= 0], rows[rows >= 0]

    def check_invariants(self) -> None:
        self._immutable.check_invariants("the immutable tree")
        self._merging.trees.check_invariants()
        self._active.trees.check_invariants()
        _, rows = self.entries()
        assert np.unique(rows).size == rows.size, f"a row is stored twice: {np.sort(rows)}"
        locks = self._active.locks
        assert not locks.any(), f"locks are held: {np.flatnonzero(locks) // APART}"


class _Part:
    """Sub-trees with their locks."""

    def __init__(self, fan_out: int):
        self.trees = Trees(fan_out)
        self.locks = np.zeros(APART, np.int64)
        self.offset = 0

    def plant(self, levels: Levels, trees: int) -> None:
        self.trees.plant(levels, trees)
        self.offset = 0
        if self.locks.size < APART * trees:
            self.locks = np.zeros(APART * trees, np.int64)

    def view(self, fan_out: int, locks: bool) -> Sub:
        nodes, levels = self.trees.parts
        return Sub(nodes, levels, fan_out, _wrapped(self.offset), self.locks if locks else self.locks[:0])


def _wrapped(offset: int) -> int:
    """The same offset, modulo 2^32, as a number that 64 bits and 32 agree on."""
    return (offset + (1 << 31)) % (1 << 32) - (1 << 31)
