"""B+-Tree: small sorted nodes that are split as they fill; all entries in linked leaves.

Purpose: ordered keys, a window that changes tuple by tuple. The baseline of index-based window joins.

    separators                [ 30 | 60 ]                inner nodes: children, and what separates each from the next
                             /     |     \\
    keys       [ 10  20  30 ]->[ 40  60 ]->[ 60  90 ]    leaves; equal keys may lie in several
    rows       [  4   0   7 ]  [  1   8 ]  [  2   3 ]    whose tuple that is

All nodes lie in a few flat arrays (a pool), a node in places of its own; freed ones are taken again. Sorted batches
walk down together, level by level (see the kernels).

A probe for [40, 60] counts the separators below 40 (one: the second leaf), then the keys below 40 there (none), and
takes keys up to 60 from there on, through the following leaf as well.

Insert 25 where leaves hold 3: the first leaf splits into [10] and [20 30], 25 goes into the second of them, and the
separator 10 into the node above. Delete takes an entry out of its leaf; leaves that are empty are freed, and one that
is half full or less takes in the next, if that is its sibling and both then fill three quarters at most.

A whole window is one tree, which deletes tuples as they expire: it then keeps the keys by row, to find them. Rows are
stored with a base added, modulo 2^32, so that they can be numbered anew without a look at the tree.

A chain of subwindows of B+-Trees is PIM's chained index: `BTree` in a chain is its B-chain, and `FrozenBTree`, whose
trees become immutable when they are sealed, its IB-chain.

Invariants: keys in a subtree lie between the separators beside it, both ends included; leaves are linked in order; all
leaves are at the same depth; every inner node has a child, every leaf but a root an entry; unused places hold int64's
greatest value.

Cost: insert, delete and find O(log n) a tuple and O(1) a partner, with a miss a level. Memory: 12 bytes an entry, in
nodes two thirds full (a sliding window leaves them at 0.55 to 0.6), and 9 to 11 a tuple for the keys by row once
anything has expired.

Reference: PIM, section 2 (index-based window join, chained index), section 5.1.
Differs from the paper: batches instead of single tuples, sorted to be deleted as well; a node is searched by counting;
deletion may leave nodes less than half full (it frees and joins leaves as above, and inner nodes only when they are
empty), since what expires makes room for what comes: that is faster, and takes a sixth more memory, than to join
wherever two leaves fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numba import njit

from watersmeet.index.base import (
    Array,
    Needs,
    Pairs,
    TickBounds,
    aligned,
    bounds_mode,
    grown,
    no_ticks,
    portions,
)
from watersmeet.index.batches import Entries, Probes, Ranges, SortedBatches
from watersmeet.index.sorted.run_kernels import FEW, GREATEST, STEP
from watersmeet.index.sorting import in_order
from watersmeet.index.trees import btree_changes as changes
from watersmeet.index.trees import btree_kernels as kernels
from watersmeet.index.trees.btree_kernels import Nodes
from watersmeet.index.trees.css_tree import CSSTree, Levels
from watersmeet.workers import ALONE, Workers

FAN_OUT = 16
_LEAST_FAN_OUT = 3
_NONE = np.zeros(0, np.int64)
_NO_ROOM = np.zeros(0, np.int32)
_ONE_TREE = Levels(_NONE, np.zeros(1, np.int64), 1, 0)


def check_fan_out(fan_out: int) -> None:
    if isinstance(fan_out, bool) or not isinstance(fan_out, int | np.integer):
        raise TypeError(f"fan_out must be a whole number, got {fan_out!r}; {FAN_OUT} is a good value")
    if not _LEAST_FAN_OUT <= fan_out <= 1 << 16:
        raise ValueError(
            f"fan_out must be from {_LEAST_FAN_OUT} to {1 << 16}, got {fan_out}; {FAN_OUT} is a good value"
        )


@dataclass(frozen=True)
class BTree(SortedBatches):
    """A B+-Tree over the whole window, or one a subwindow.

    fan_out: entries of a leaf, and children of an inner node, at most.
    """

    fan_out: int = FAN_OUT

    def __post_init__(self) -> None:
        check_fan_out(self.fan_out)

    name: ClassVar[str] = "btree"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = True

    def structure(self, like: BTreeStructure | None = None, workers: Workers = ALONE) -> BTreeStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return BTreeStructure(self.fan_out, False, 0 if like is None else like.size)


@dataclass(frozen=True)
class FrozenBTree(BTree):
    """B+-Trees, one a subwindow, that become immutable when they are sealed.

    fan_out: entries of a leaf, and children of an inner node, at most.
    """

    name: ClassVar[str] = "frozen_btree"
    forgets: ClassVar[bool] = False

    def structure(self, like: BTreeStructure | None = None, workers: Workers = ALONE) -> BTreeStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return BTreeStructure(self.fan_out, True, 0 if like is None else like.size)


class Trees:
    """B+-Trees over one pool of nodes. `levels` leads a key to its tree."""

    def __init__(self, fan_out: int, expected: int = 0):
        self.size = 0
        self._fan_out = fan_out
        self._width = -(-fan_out // STEP) * STEP
        leaves = 3 * expected // (2 * fan_out)
        self._nodes = self._pool(max(leaves, 2), max(2 * leaves // fan_out, 2), 1)
        self.plant(_ONE_TREE, 1)

    def plant(self, levels: Levels, trees: int) -> None:
        """Let go of all entries and begin with so many empty trees. O(trees)."""
        self.size = 0
        self._levels = levels
        leaves, inners = self._nodes.filled.size, self._nodes.counts.size
        self._nodes.books[:] = [0, -1, leaves, 0, -1, inners]
        if self._nodes.roots.size != trees:
            self._nodes = self._nodes._replace(roots=np.empty(trees, np.int32), heights=np.empty(trees, np.int32))
        self._nodes.roots[:] = -1
        self._nodes.heights[:] = 0

    def _pool(self, leaves: int, inners: int, trees: int) -> Nodes:
        w, beyond = self._width, FEW + STEP  # a probe may look at some rows behind its leaf

        def numbers(n: int) -> Array:
            return np.empty(n, np.int32)

        return Nodes(
            aligned(leaves * w), np.zeros(leaves * w + beyond, np.int32), numbers(leaves), numbers(leaves),
            numbers(leaves), numbers(leaves), aligned(inners * w), numbers(inners * w), numbers(inners),
            numbers(inners), np.zeros(6, np.int64), numbers(trees), numbers(trees),
        )  # fmt: skip

    def _resize(self, leaves: int, inners: int) -> None:
        """Copy the nodes into a pool of this size."""
        old = self._nodes
        new = self._pool(leaves, inners, old.roots.size)
        used, w = old.books[[kernels.LEAVES_USED, kernels.INNERS_USED]].tolist(), self._width
        places = [used[0] * each for each in (w, w, 1, 1, 1, 1)] + [used[1] * each for each in (w, w, 1, 1)]
        for to, source, n in zip(new, old, places, strict=False):
            to[:n] = source[:n]
        new.roots[:], new.heights[:], new.books[:] = old.roots, old.heights, old.books
        new.books[kernels.SPARE_LEAVES] += leaves - old.filled.size
        new.books[kernels.SPARE_INNERS] += inners - old.counts.size
        self._nodes = new

    @property
    def parts(self) -> tuple[Nodes, Levels]:
        """The nodes, and the way to each tree, by reference."""
        return self._nodes, self._levels

    def reserve(self, entries: int) -> None:
        """Have nodes for so many more entries, wherever they go.

        A leaf that is full is split by the next entry, and one that comes of that by as many as it has places free.
        """
        nodes, half = self._nodes, max(self._fan_out // 2, 1)
        trees, books = nodes.roots.size, nodes.books
        leaves = min(entries, trees + int(books[kernels.LEAVES_USED]) + entries // half + 1)
        inners = 4 * int(books[kernels.INNERS_USED]) + 3 * leaves  # each level has half as many splits as that below
        more = [leaves - int(books[kernels.SPARE_LEAVES]), inners - int(books[kernels.SPARE_INNERS])]
        if max(more) > 0:
            sizes = nodes.filled.size, nodes.counts.size
            self._resize(*(grown(size, size + max(need, 0)) for size, need in zip(sizes, more, strict=True)))

    def insert(self, keys: Array, rows: Array, first_row: int) -> None:
        """O(log n) a tuple."""
        done = 0
        while True:
            done = changes.insert(self._nodes, self._fan_out, self._levels, keys, rows, first_row, done)
            if done == keys.size:
                break
            leaves, inners = self._nodes.filled.size, self._nodes.counts.size
            if self._nodes.books[kernels.SPARE_LEAVES] == 0:
                leaves = grown(leaves, leaves + (keys.size - done) // self._fan_out)
            if self._nodes.books[kernels.SPARE_INNERS] <= self._nodes.heights.max():
                inners = grown(inners, inners + int(self._nodes.heights.max()) + 1)
            self._resize(leaves, inners)
        self.size += keys.size

    def delete(self, keys: Array, rows: Array, first_row: int) -> None:
        """O(log n) a tuple; keys are sorted, and there is one tree."""
        found = changes.delete(self._nodes, self._fan_out, keys, rows, first_row)
        assert found == keys.size, f"{keys.size - found} of {keys.size} entries to delete are not there"
        self.size -= found

    def find(self, band: Ranges, start: int, stop: int, bounds: TickBounds | None, base: int = 0) -> Iterator[Pairs]:
        """O(log n) a probe, O(1) a partner."""
        probe = self._probe(True, band, stop, bounds, base)
        return portions(start, stop if self.size else start, lambda first, out: probe(first, out.batch_rows, out.rows))

    def count(self, band: Ranges, start: int, stop: int, bounds: TickBounds | None, base: int = 0) -> int:
        """As `find`, and O(1) a leaf without bounds."""
        return self._probe(False, band, stop, bounds, base)(start, _NO_ROOM, _NO_ROOM)[1] if self.size else 0

    def _probe(self, emits: bool, band: Ranges, stop: int, bounds: TickBounds | None, base: int) -> Any:
        """The kernel, to be told where to begin and where to write."""
        return partial(
            kernels.probe_kernel(emits), self._nodes, self._fan_out, base, self._levels, band, stop,
            bounds_mode(bounds), bounds or no_ticks(),
        )  # fmt: skip

    def entries(self, base: int = 0) -> Entries:
        """All entries in order: rows less `base`, without those that come to be negative. O(n)."""
        keys, rows = np.empty(self.size, np.int64), np.empty(self.size, np.int32)
        n = kernels.drain(self._nodes, self._fan_out, base, keys, rows)
        return Entries(_NONE, keys[:n], rows[:n], 1 << 31)

    def trim(self) -> None:
        used = self._nodes.books
        self._resize(int(used[kernels.LEAVES_USED]), int(used[kernels.INNERS_USED]))

    def nbytes(self) -> int:
        """Bytes of all nodes that were ever used; those that were not take no memory yet."""
        books = self._nodes.books
        leaf, inner = 12 * self._width + 16, 12 * self._width + 8
        trees = 8 * self._nodes.roots.size
        return int(books[kernels.LEAVES_USED]) * leaf + int(books[kernels.INNERS_USED]) * inner + trees

    def check_invariants(self) -> None:
        nodes, w = self._nodes, self._width
        leaves: list[int] = []
        inners: list[int] = []
        for tree, (root, height) in enumerate(zip(nodes.roots.tolist(), nodes.heights.tolist(), strict=True)):
            if root >= 0:
                own = self._check_below(root, height, -1 - tree, leaves, inners)
                links = [(int(nodes.preceding[leaf]), int(nodes.following[leaf])) for leaf in own]
                expected = list(zip([-1, *own], [*own[1:], -1], strict=False))
                assert links == expected, f"leaves {own} are linked as {links}"
        entries = sum(int(nodes.filled[leaf]) for leaf in leaves)
        assert entries == self.size, f"{entries} entries in leaves, {self.size} inserted"
        for used, free, spare, above, size, seen in (
            (*nodes.books[:3].tolist(), nodes.leaf_above, nodes.filled.size, leaves),
            (*nodes.books[3:].tolist(), nodes.inner_above, nodes.counts.size, inners),
        ):
            found = list(seen)
            while free >= 0:
                found.append(free)
                free = int(above[free])
            assert sorted(found) == list(range(used)), f"{used} nodes used, {seen} in trees, {found} with free ones"
            assert spare == size - len(seen), f"{spare} nodes to spare of {size}, {len(seen)} in trees"
        levels = self._levels
        if levels.depth:
            for tree in range(nodes.roots.size):
                low, high = levels.separators[levels.begins[levels.depth - 1] + tree + np.array([-1, 0])]
                for leaf in self._leaves_of(tree):
                    keys = nodes.keys[leaf * w : leaf * w + nodes.filled[leaf]]
                    assert np.all(keys <= high) and (tree == 0 or np.all(keys > low)), (
                        f"tree {tree} is for keys above {low}, up to {high}: {keys}"
                    )

    def _leaves_of(self, tree: int) -> Iterator[int]:
        leaf = int(self._nodes.roots[tree])
        for _ in range(self._nodes.heights[tree]):
            leaf = int(self._nodes.children[leaf * self._width])
        while leaf >= 0:
            yield leaf
            leaf = int(self._nodes.following[leaf])

    def _check_below(self, node: int, height: int, above: int, leaves: list[int], inners: list[int]) -> list[int]:
        """Check a node and all below it; returns its leaves, in order."""
        nodes, places = self._nodes, slice(node * self._width, (node + 1) * self._width)
        if height == 0:
            leaves.append(node)
            filled = int(nodes.filled[node])
            keys = nodes.keys[places]
            assert nodes.leaf_above[node] == above, f"leaf {node} is below {nodes.leaf_above[node]}, not {above}"
            assert (above < 0 or filled > 0) and filled <= self._fan_out, f"leaf {node} has {filled} entries"
            assert np.all(keys[1:] >= keys[:-1]), f"leaf {node} is not sorted: {keys}"
            assert np.all(keys[filled:] == GREATEST), f"leaf {node} has no sentinels behind {filled}: {keys}"
            return [node]
        inners.append(node)
        count = int(nodes.counts[node])
        separators, children = nodes.separators[places], nodes.children[places][:count]
        assert nodes.inner_above[node] == above, f"inner {node} is below {nodes.inner_above[node]}, not {above}"
        assert 1 <= count <= self._fan_out, f"inner {node} has {count} children"
        assert above >= 0 or count > 1, f"root {node} has one child: {children}"
        assert np.all(separators[count - 1 :] == GREATEST), f"inner {node} has no sentinels: {separators}"
        own: list[int] = []
        for place, child in enumerate(children.tolist()):
            below = self._check_below(child, height - 1, node, leaves, inners)
            keys = np.concatenate([nodes.keys[leaf * self._width :][: nodes.filled[leaf]] for leaf in below])
            low = separators[place - 1] if place else keys.min()
            high = separators[place] if place < count - 1 else keys.max()
            assert np.all((keys >= low) & (keys <= high)), f"below child {place} of {node}, {low} to {high}: {keys}"
            own += below
        return own


@njit(nogil=True, cache=True)
def _note_keys(keys, rows, first, by_row, stored):
    for i in range(rows.size):
        by_row[first + rows[i]] = keys[i]
        stored[first + rows[i]] = 1


class _KeysByRow:
    """The key of every row, oldest first: [ gone | rows ... | room ]. What is gone is moved over once in a while."""

    def __init__(self) -> None:
        self._first = 0  # the place of row 0
        self._size = 0  # rows
        self._keys = np.empty(0, np.int64)
        self._stored = np.empty(0, np.uint8)  # whether a row is in the tree at all

    def note(self, keys: Array, rows: Array, first_row: int, beyond: int) -> None:
        """The batch's rows, numbered from `first_row` up to `beyond`. O(1) a row."""
        if self._first + beyond > self._keys.size:
            room = self._keys.size
            if beyond + beyond // 4 > room or 2 * beyond < room:  # a quarter to spare, so that moves are few
                room = beyond + beyond // 4
            self._keys, self._stored = self._moved(self._keys, room), self._moved(self._stored, room)
            self._first = 0
        self._stored[self._first + self._size : self._first + beyond] = 0
        _note_keys(keys, rows, self._first + first_row, self._keys, self._stored)
        self._size = beyond

    def _moved(self, array: Array, room: int) -> Array:
        """The rows that are left, at the front of an array with this room."""
        to = array if room == array.size else np.empty(room, array.dtype)
        to[: self._size] = array[self._first : self._first + self._size]
        return to

    def take(self, gone: int) -> tuple[Array, Array]:
        """The keys of the oldest rows, and these rows' numbers; the others are numbered from 0 again. O(gone)."""
        rows = np.flatnonzero(self._stored[self._first : self._first + gone])
        keys = self._keys[self._first + rows]
        self._first += gone
        self._size -= gone
        return keys, rows.astype(np.int32)

    def nbytes(self) -> int:
        return 9 * (self._first + self._size)

    def check_invariants(self, keys: Array, rows: Array) -> None:
        places = self._first + np.arange(self._size)
        stored = np.flatnonzero(self._stored[places])
        assert np.array_equal(stored, np.sort(rows)), f"rows {np.sort(rows)} are in the tree, not {stored}"
        assert np.array_equal(self._keys[self._first + rows], keys), f"keys of rows {rows} are not {keys}"


class BTreeStructure:
    def __init__(self, fan_out: int, freezes: bool, expected: int = 0):
        self._fan_out = fan_out
        self._freezes = freezes
        self._base = 0  # what is added to rows in the tree
        self._beyond = 0  # all rows are below
        self._trees = Trees(fan_out, expected)
        self._by_row: _KeysByRow | None = None
        self._frozen: CSSTree | None = None

    @property
    def size(self) -> int:
        return self._trees.size if self._frozen is None else self._frozen.size

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(log n) a tuple."""
        assert self._frozen is None
        self._trees.insert(entries.ordered, entries.rows, self._base + first_row)
        self._beyond = first_row + entries.beyond
        if self._by_row is not None:
            self._by_row.note(entries.ordered, entries.rows, first_row, self._beyond)

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(log n) a probe, and O(1) a partner."""
        for band in probes.bands:
            if self._frozen is None:
                yield from self._trees.find(band, start, stop, bounds, self._base)
            else:
                yield from self._frozen.find(band, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`, and O(1) a leaf without bounds."""
        if self._frozen is not None:
            return sum(self._frozen.count(band, start, stop, bounds) for band in probes.bands)
        return sum(self._trees.count(band, start, stop, bounds, self._base) for band in probes.bands)

    def worth_forgetting(self, expired: int, size: int) -> bool:
        return True

    def forget(self, gone: int) -> None:
        """O(log n) a tuple, but for the first time: then the keys by row are looked up, in O(n)."""
        if self._by_row is None:
            self._by_row = _KeysByRow()
            entries = self._trees.entries(self._base)
            self._by_row.note(entries.ordered, entries.rows, 0, self._beyond)
        keys, rows = self._by_row.take(gone)
        _, keys, order = in_order(None, keys)
        self._trees.delete(keys, rows[order], self._base)
        self._base = (self._base + gone) % (1 << 32)
        self._beyond -= gone

    def seal(self) -> None:
        """Give back spare room; O(n), as is freezing."""
        if self._freezes:
            self._frozen = CSSTree(self._fan_out, self._trees.size)
            if self._trees.size:
                self._frozen.merge(self._trees.entries(), 0)
            self._trees = Trees(self._fan_out)
        else:
            self._trees.trim()

    def nbytes(self) -> int:
        by_row = 0 if self._by_row is None else self._by_row.nbytes()
        return by_row + (self._trees.nbytes() if self._frozen is None else self._frozen.nbytes())

    def check_invariants(self) -> None:
        if self._frozen is not None:
            self._frozen.check_invariants("the frozen tree")
            _, keys, rows, _ = self._frozen.entries()
        else:
            self._trees.check_invariants()
            _, keys, rows, _ = self._trees.entries(self._base)
        assert rows.size == self.size, f"{self.size - rows.size} rows are below 0"
        assert np.all(rows < self._beyond), f"rows beyond {self._beyond}: {rows}"
        assert np.unique(rows).size == rows.size, f"a row is stored twice: {np.sort(rows)}"
        if self._by_row is not None:
            self._by_row.check_invariants(keys, rows)
