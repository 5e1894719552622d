"""The Bw-Tree: a B+-tree that any number of threads change and search at once, without a lock.

    mapping table      id -> the newest record of a node

        5 -> [insert 7] -> [delete 3] -> base | 1 3 4 9 | fence 12, right: 6       a leaf: 1 4 7 9
        6 -> [split at 20: 8] -> base | 12 15 20 31 | no fence                     a leaf that was split: 12 15
        8 -> base | 20 31 | no fence                                               its right half: 20 31
        2 -> [entry 20: 8] -> base | -inf: 5, 12: 6 | no fence                     the root, which has been told

Nodes refer to each other by id. To change a node a thread writes a *delta*, which refers to the newest record, and puts
it in that one's place in the table, by compare-and-swap; if somebody was faster it looks again. A thread that finds a
chain full (`chain` deltas) *consolidates* first: it writes a new base of what base and deltas come to. If that has
more than `fan_out` entries it puts a *split delta* on it, which says that all from a separator on is in a right
sibling. This is the first step of a split; the second is to post an entry for the sibling at the parent, as a delta.
Between them all is found through the sibling links (B-link), and whoever comes across such a node does the second step
before its own work, searches too. If the root was split, the second step is a new root. Records taken out are used
again when no thread can be looking at them (records.py).

Entries are ordered by (key, row), so equal keys are no special case. Inserting what is there, and deleting what is not,
changes nothing.

For example, with fan_out=3 and chain=2: insert 1, 2 into an empty tree: two deltas. 3 finds the chain full: base |1 2|,
delta 3. Then 4 goes above it, and 5 finds it full: base |1 2 3 4|, more than three: a split delta at 3, and a sibling
|3 4| whose entry goes to a new root; 5 is inserted into the sibling.

Invariants: along the siblings of a level fences ascend, and entries are between them and ascend; a chain is as deep as
its newest delta says; when no thread is at work, all splits are complete, so a level has the nodes that the entries of
the one above name, in this order; every record is in use once or unused once.

Cost: O(log n) a change or search, with up to `chain` cache lines more for the deltas of the leaf; O(fan_out) once in
`chain` changes. Arrays grow between batches only (`reserve`), while no thread is at work.

Reference: Levandoski, Lomet, Sengupta: The Bw-Tree, ICDE 2013, sections II to IV; PIM has it as a baseline (5.1, 5.4).
Differs from the paper: it is in memory only, as in PIM. Nodes are not merged: a leaf that has become empty stays, which
windows over keys that keep their distribution do not notice. A split delta is put on a freshly consolidated base in
the same swap. Records are of fixed sizes in an arena, and the table grows between batches.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from watersmeet.bench.cores.bw_tree import kernels
from watersmeet.bench.cores.bw_tree import records as r
from watersmeet.bench.cores.bw_tree.records import BOOK, BOOKS, DELETE, INSERT, LEAST, LINE, Tree
from watersmeet.index.base import Array

Entry = tuple[int, int, int]  # key, row, child


class Node(NamedTuple):
    """A node as a search sees it."""

    level: int
    entries: list[Entry]
    fence: tuple[int, int] | None
    right: int
    records: list[int]


class BwTree:
    def __init__(self, fan_out: int = 64, chain: int = 8, threads: int = 1):
        """threads: at most so many are at work at once."""
        if fan_out < 3 or not 2 <= chain <= fan_out:
            raise ValueError(f"fan_out must be 3 or more, and chain from 2 to it, got {fan_out} and {chain}")
        none = np.zeros(0, np.int64)
        control = _aligned(BOOKS + threads * BOOK)
        books = control[BOOKS:].reshape(threads, BOOK)
        books[:, r.FREE : r.COUNT] = -1
        books[:, r.SPARE] = -1
        books[:, r.ANNOUNCED] = r.IDLE
        self.tree = Tree(none, none, none, none, none, control, fan_out + chain, fan_out, chain)
        self._grow(1, 1, 1)
        self.tree.table[0] = ~0
        self.tree.bases[r.CHILD] = -1
        control[[r.IDS, r.BASES]] = 1

    # -- room ---------------------------------------------------------------------------------------------------------

    def reserve(self, changes: int) -> Tree:
        """Make room for so many changes, however they fall, while no thread is at work.

        A change of a level consolidates at most one node, once for what was there before and once in chain - 1 changes;
        each of these may split it, which is a change of the level above. Nodes there are at most half as many.
        """
        control = self.tree.control
        slack = (control.size - BOOKS) // BOOK * r.BLOCK
        deltas = bases = slack
        nodes = int(control[r.IDS])
        most, splits, posts, level = nodes, 0, changes, 0
        while posts:
            chain = self.tree.chain if level == 0 else kernels.INNER_CHAIN
            consolidated = min(posts, nodes >> level) + posts // (chain - 1) + 1
            split = consolidated if level == 0 else min(consolidated, most >> level)
            most += split if level == 0 else 0
            deltas += posts + split
            bases += consolidated + 2 * split + 1
            splits += split + 1
            posts, level = split, level + 1
        for pool, needed in enumerate((deltas, bases)):
            fresh, taken = self._fresh(pool)
            if fresh.size - taken < needed:
                self._gather(pool)
        left = [fresh.size - taken for fresh, taken in map(self._fresh, range(2))]
        ids = nodes + splits + slack
        if left[0] < deltas or left[1] < bases or ids > self.tree.table.size:
            self._grow(max(deltas - left[0], 0), max(bases - left[1], 0), ids)
        return self.tree

    def _fresh(self, pool: int) -> tuple[Array, int]:
        tree = self.tree
        fresh = tree.fresh_bases if pool else tree.fresh_deltas
        return fresh, min(int(tree.control[r.BASES if pool else r.DELTAS]), fresh.size)

    def _gather(self, pool: int) -> None:
        """All unused records are fresh again, for whichever thread."""
        out = np.empty(self._records(pool), np.int64)
        fresh = out[: r.unused(self.tree, pool, out)]
        control = self.tree.control
        books = control[BOOKS:].reshape(-1, BOOK)
        for which in (r.FREE, r.COLLECTED, r.WAITING):
            books[:, which + pool] = -1
        control[r.BASES if pool else r.DELTAS] = 0
        self.tree = self.tree._replace(fresh_bases=fresh) if pool else self.tree._replace(fresh_deltas=fresh)

    def _records(self, pool: int) -> int:
        """That there are, in use or not."""
        return self.tree.bases.size // self._words if pool else self.tree.deltas.size // LINE

    @property
    def _words(self) -> int:
        return LINE + 3 * self.tree.capacity

    def _grow(self, deltas: int, bases: int, ids: int) -> None:
        """So many more records, or half as many again as there are, and as many ids in all."""
        tree = self.tree
        if deltas:
            more = _longer(self._records(0), self._records(0) + deltas)
            fresh = self._with(0, more)
            tree = tree._replace(deltas=_grown(tree.deltas, more * LINE), fresh_deltas=fresh)
        if bases:
            more = _longer(self._records(1), self._records(1) + bases)
            fresh = self._with(1, more)
            tree = tree._replace(bases=_grown(tree.bases, more * self._words), fresh_bases=fresh)
        if ids > tree.table.size:
            tree = tree._replace(table=_grown(tree.table, _longer(tree.table.size, ids)))
        self.tree = tree

    def _with(self, pool: int, records: int) -> Array:
        fresh, taken = self._fresh(pool)
        self.tree.control[r.BASES if pool else r.DELTAS] = 0
        return np.concatenate([fresh[taken:], np.arange(self._records(pool), records)])

    # -- by one thread ------------------------------------------------------------------------------------------------

    def insert(self, keys: Array, rows: Array) -> None:
        kernels.change(self.reserve(keys.size), INSERT, keys, rows)

    def delete(self, keys: Array, rows: Array) -> None:
        kernels.change(self.reserve(keys.size), DELETE, keys, rows)

    def find(self, lows: Array, highs: Array) -> tuple[Array, Array]:
        """Pairs of a range, by its number, and a row."""
        room, found = 1024, -1
        while found < 0:
            room *= 2
            pairs = np.empty((2, room), np.int64)
            found = kernels.search(self.reserve(0), lows, highs, *pairs)
        return pairs[0, :found], pairs[1, :found]

    # -- to look at ---------------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """Levels of inner nodes."""
        return self.node(int(self.tree.control[r.ROOT])).level

    def nbytes(self) -> int:
        """Memory of all arrays; what was never used is not really taken."""
        return sum(array.nbytes for array in self.tree if isinstance(array, np.ndarray))

    def node(self, number: int) -> Node:
        """Of what its records come to."""
        tree = self.tree
        ref = int(tree.table[number])
        level = int((tree.deltas[ref * LINE :] if ref >= 0 else tree.bases[~ref * self._words :])[r.LEVEL])
        held: dict[tuple[int, int], int | None] = {}
        fence, right, records = None, -1, []
        while ref >= 0:
            kind, at_level, depth, below, key, row, child, _ = tree.deltas[ref * LINE :][:LINE].tolist()
            records.append(ref)
            assert at_level == level and depth == (1 if below < 0 else tree.deltas[below * LINE + r.DEPTH] + 1)
            if kind == r.SPLIT:
                assert below < 0, f"node {number} has a split delta above others"
                fence, right = (key, row), child
            else:
                held.setdefault((key, row), child if kind == INSERT else None)
            ref = below
        records.append(ref)
        base = tree.bases[~ref * self._words :][: self._words].tolist()
        assert base[r.LEVEL] == level, f"node {number} has records of different levels"
        if right < 0 and base[r.CHILD] >= 0:
            fence, right = (base[r.KEY], base[r.ROW]), base[r.CHILD]
        size = base[r.SIZE]
        keys, rows, children = (base[LINE + i * tree.capacity :][:size] for i in range(3))
        assert sorted(zip(keys, rows, strict=True)) == list(zip(keys, rows, strict=True)), f"base of node {number}"
        for key, row, child in zip(keys, rows, children, strict=True):
            if fence is None or (key, row) < fence:
                held.setdefault((key, row), child)
        entries = [(*entry, child) for entry, child in sorted(held.items()) if child is not None]
        return Node(level, entries, fence, right, records)

    def _levels(self) -> list[dict[int, Node]]:
        """From the root down, each from left to right."""
        found = []
        first = int(self.tree.control[r.ROOT])
        while True:
            along, number = {}, first
            while number >= 0:
                along[number] = self.node(number)
                number = along[number].right
            found.append(along)
            leftmost = along[first]
            if leftmost.level == 0:
                return found
            first = leftmost.entries[0][2]

    def entries(self) -> list[tuple[int, int]]:
        """All keys and rows, in order."""
        return [(key, row) for node in self._levels()[-1].values() for key, row, _ in node.entries]

    def check_invariants(self) -> None:
        """While no thread is at work."""
        tree, levels = self.tree, self._levels()
        assert len(levels[0]) == 1, f"the root has siblings: {levels[0]}"
        above: list[Entry] = [(LEAST, LEAST, int(tree.control[r.ROOT]))]
        for depth, along in enumerate(levels):
            assert list(along) == [child for _, _, child in above], f"level {depth} has {list(along)}, named: {above}"
            for (number, node), (*low, _) in zip(along.items(), above, strict=True):
                inside = [tuple(low), *(entry[:2] for entry in node.entries), *([node.fence] if node.fence else [])]
                assert inside == sorted(inside), f"node {number} reaches over its fences: {node}"
                assert not node.fence or node.entries == [] or node.entries[-1][:2] < node.fence
                assert node.level == len(levels) - 1 - depth and len(node.entries) <= tree.capacity
                limit = tree.chain if node.level == 0 else kernels.INNER_CHAIN
                assert len(node.records) - 1 <= limit, f"node {number} has a chain of {len(node.records) - 1}"
            above = [entry for node in along.values() for entry in node.entries] if depth + 1 < len(levels) else []
        records = [ref for along in levels for node in along.values() for ref in node.records]
        for pool, used in enumerate(([ref for ref in records if ref >= 0], [~ref for ref in records if ref < 0])):
            out = np.empty(self._records(pool) + 1, np.int64)
            rest = out[: r.unused(tree, pool, out)].tolist()
            there = Counter(range(self._records(pool)))
            assert Counter(used + rest) == there, f"records lost: {there - Counter(used + rest)}, or used twice"
        books = tree.control[BOOKS:].reshape(-1, BOOK)
        assert np.all(books[:, r.ANNOUNCED] == r.IDLE) and not books[:, r.TAKEN].any(), "a thread is at work"
        spare = np.count_nonzero(books[:, r.SPARE] >= 0)
        assert sum(map(len, levels)) + spare == tree.control[r.IDS], "a node is lost"


def _aligned(words: int) -> Array:
    """Zeros that begin with a cache line."""
    memory = np.zeros(words + LINE, np.int64)
    return memory[-(memory.ctypes.data // 8) % LINE :][:words]


def _longer(size: int, needed: int) -> int:
    return max(needed, size + size // 2)


def _grown(array: Array, size: int) -> Array:
    """Memory behind what was there is not touched: what is never used is never really taken."""
    grown = _aligned(size)
    grown[: array.size] = array
    return grown
