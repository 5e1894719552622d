"""WiB+-Tree (Wide B+-Tree): small sorted inner nodes over wide unsorted leaves.

Purpose: ordered keys (band, inequality, equality) that may drift or increase for ever; small batches, few partners.

    inner        [ 40 , max ]                    greatest key below each child, sorted
                  /        \\
         [ 10 , 25 , 40 ]  [ 70 , max ]          a few cache lines each, so that all of them stay in cache
           |     |     |     |     |
    leaf  [7 5] [13]  [38 26 31] [55 44] [90 71]   unsorted, an LLAT entry each, linked from left to right

A leaf is just appended to. Only when it is full are its keys looked at: it is divided near their median, and its parent
gets one key more. So a tuple costs a path through nodes that are in cache, one write, and its share of a split. All
tuples of a key are in the same leaf, and one that is full of a single key links further entries: no two keys of the
inner nodes are equal. Where keys increase, the last leaf is full and what comes is beyond it: it stays as it is and a
new one begins, so that leaves are full instead of half full.

A sorted batch goes from each key to the next by the path of the last one, up as far as it must, and down. A probe
compares the keys of the leaves at its edges and takes those between whole.

Invariants: those of the LLAT; the keys of the lowest inner nodes are the leaves' upper keys, those of others their
children's; leaves are at the same depth; a leaf with further entries holds one key.

Cost: insert O(levels) and O(1) moves a tuple, amortised; probe O(levels), the tuples of the leaves at the edges, and
O(1) a partner. Memory: 12 bytes a place, leaves being half to entirely full; 12 bytes a tuple once sealed, and 64 and
about 20 bytes a leaf.

Reference: PanJoin, section III-C (WiB+-Tree), III-E (batch mode: the path of the previous tuple).
Differs from the paper: a leaf that splits is not sorted, but divided near its median, which the ranks of a sample show.
A leaf's room is a number of tuples, not a share of the subwindow's, so that no subwindow's size must be known.
The paper's 2P entries may then be too few, as they may in its own tree: a key with one tuple more than a leaf holds
takes two entries, and a lone tuple beside it a third, for little more than one leaf of tuples. More entries are taken
when they run out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.index.base import Array, Needs, Pairs, TickBounds, aligned, grown
from watersmeet.index.batches import Entries, Probes, SortedBatches
from watersmeet.index.tables.llat import LLAT
from watersmeet.index.tables.llat_kernels import COLUMNS, GREATEST_KEY, LEAST, UPPER
from watersmeet.index.trees.wib_kernels import ENTRIES, HEIGHT, LEAVES, NODES, ROOT, Inner, insert, locate
from watersmeet.workers import ALONE, Workers

_LEAF = 64
_FAN_OUT = 32


@dataclass(frozen=True)
class WiBTree(SortedBatches):
    """A B+-tree with unsorted leaves.

    leaf_rows: tuples of a leaf.
    fan_out: children of an inner node.
    """

    leaf_rows: int = _LEAF
    fan_out: int = _FAN_OUT

    def __post_init__(self) -> None:
        if self.leaf_rows < 2:
            raise ValueError(f"leaf_rows must be at least 2, got {self.leaf_rows}; {_LEAF} is a good value")
        if self.fan_out < 3:
            raise ValueError(f"fan_out must be at least 3, got {self.fan_out}; {_FAN_OUT} is a good value")

    name: ClassVar[str] = "wib_tree"
    needs: ClassVar[Needs] = "order"
    composite: ClassVar[bool] = False
    forgets: ClassVar[bool] = False

    def structure(self, like: WiBTreeStructure | None = None, workers: Workers = ALONE) -> WiBTreeStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        return WiBTreeStructure(self, 0 if like is None else like.size)


class WiBTreeStructure:
    def __init__(self, index: WiBTree, expected: int = 0):
        self._index = index
        leaves = 2 * max(expected // index.leaf_rows, 4)  # were all of them half full
        self._leaves = LLAT(np.array([GREATEST_KEY]), index.leaf_rows, leaves)
        self._tree = np.array([0, 1, 1, 1, 1])  # see the kernels
        self._sizes = np.zeros(0, np.int32)
        self._uppers, self._children = aligned(0), np.zeros(0, np.int32)
        self._more_nodes(2 * leaves // index.fan_out)
        self._uppers[: index.fan_out] = GREATEST_KEY
        self._children[0] = 0
        self._sizes[0] = 1

    @property
    def size(self) -> int:
        return self._leaves.size

    @property
    def _inner(self) -> Inner:
        return Inner(self._uppers, self._children, self._sizes, self._tree, self._index.fan_out)

    def _more_nodes(self, need: int) -> None:
        """See that there is room for so many nodes, and for a split of all on a path."""
        need = max(need, int(self._tree[NODES] + self._tree[HEIGHT]) + 2)
        if need > self._sizes.size:
            nodes, used = grown(self._sizes.size, need), self._sizes.size
            fan_out = self._index.fan_out
            uppers, children = aligned(nodes * fan_out), np.empty(nodes * fan_out, np.int32)
            uppers[: used * fan_out], children[: used * fan_out] = self._uppers, self._children
            self._uppers, self._children = uppers, children
            self._sizes = np.append(self._sizes, np.zeros(nodes - used, np.int32))

    def insert(self, entries: Entries, first_row: int) -> None:
        """O(levels) a tuple."""
        n = entries.size
        if not n:
            return
        leaves = self._leaves
        heads = self._located(entries.ordered, 0, n)
        done = 0
        while True:
            done = insert(
                leaves.table, leaves.capacity, self._inner, heads, done, entries.ordered, entries.rows, first_row
            )
            leaves.used, leaves.partitions = int(self._tree[ENTRIES]), int(self._tree[LEAVES])
            if done == n:
                break
            leaves.more_entries(leaves.used + 1)
            self._more_nodes(0)
        leaves.size += n

    def _located(self, keys: Array, start: int, stop: int) -> Array:
        """The leaves of sorted keys, and a place to spare."""
        heads = np.empty(stop - start + 1, np.int32)
        locate(self._inner, keys[start:stop], heads)
        return heads

    def find(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> Iterator[Pairs]:
        """O(levels + tuples of the leaves at the edges) a probe, and O(1) a partner."""
        for band in probes.bands:
            yield from self._leaves.find(self._located(band.lows, start, stop), band, start, stop, bounds)

    def count(self, probes: Probes, start: int, stop: int, bounds: TickBounds | None) -> int:
        """As `find`; without bounds whole leaves cost O(1)."""
        count = self._leaves.count
        return sum(count(self._located(b.lows, start, stop), b, start, stop, bounds) for b in probes.bands)

    def seal(self) -> None:
        """Close up the room in leaves and nodes; leaves stay unsorted, as in the paper. O(size)."""
        self._leaves.seal()
        nodes = int(self._tree[NODES])
        places = nodes * self._index.fan_out
        uppers = aligned(places)
        uppers[:] = self._uppers[:places]
        self._uppers, self._children = uppers, self._children[:places].copy()
        self._sizes = self._sizes[:nodes].copy()

    def nbytes(self) -> int:
        """Bytes in use; nodes and entries that were never used take none."""
        return self._leaves.nbytes() + int(self._tree[NODES]) * (12 * self._index.fan_out + 4)

    def check_invariants(self) -> None:
        self._leaves.check_invariants()
        tree, fan_out = self._tree, self._index.fan_out
        headers = self._leaves.headers.reshape(-1, int(COLUMNS))
        nodes = [int(tree[ROOT])]
        seen = 1
        for level in range(tree[HEIGHT]):
            uppers: list[int] = []
            children: list[int] = []
            for node in nodes:
                size, begin = int(self._sizes[node]), node * fan_out
                assert 1 <= size <= fan_out, f"node {node} has {size} children"
                rest = self._uppers[begin + size : begin + fan_out]
                assert np.all(rest == GREATEST_KEY), f"node {node}: {rest} behind its {size} children"
                uppers += self._uppers[begin : begin + size].tolist()
                children += self._children[begin : begin + size].tolist()
            ascend = all(a < b for a, b in zip(uppers[:-1], uppers[1:], strict=True))
            assert ascend, f"level {level} does not ascend: {uppers}"
            nodes = children
            seen += len(children) if level + 1 < tree[HEIGHT] else 0
        assert seen == tree[NODES], f"{seen} nodes can be reached, of {tree[NODES]}"
        chains = self._leaves.chains()
        assert nodes == [chain[0] for chain in chains], f"leaves {nodes} are linked as {chains}"
        assert uppers == headers[nodes, UPPER].tolist(), f"leaves end at {headers[nodes, UPPER]}, not at {uppers}"
        for chain in (chain for chain in chains if len(chain) > 1):
            keys = {int(k) for entry in chain for k in headers[entry, int(LEAST) : int(LEAST) + 2]}
            assert len(keys) == 1, f"leaf {chain} has further entries, and keys {keys}"
