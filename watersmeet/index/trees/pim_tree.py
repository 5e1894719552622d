"""PIM-Tree (partitioned in-memory merge tree): an IM-Tree whose mutable part is split by the immutable one's nodes.

Purpose: as the IM-Tree, with mutable trees that are small, and that can be worked on independently of each other.

    immutable, depth 0             [   root   ]
    depth 1 = insertion_depth   [  30 ]    [  90 ]        inner nodes; each has the keys up to its separator
                                   |          |
    mutable                   [ up to 30 ] [ beyond ]     a B+-Tree each, over one pool of nodes

A new tuple goes down the immutable tree to the insertion depth and into the sub-tree of the node it has come to. So
keys are spread over the sub-trees as the window's are, and adapt with every merge, which plants new, empty sub-trees. A
probe searches the immutable tree, and the sub-trees of the nodes that its range reaches.

Example: with the separators above the key 30 goes to the first sub-tree, 31 to the second. A probe for [25, 28] looks
into the first only, one for [25, 40] into both.

Invariants: those of the IM-Tree; the keys of sub-tree i are above separator i - 1 and up to separator i, which is
int64's greatest value for the last.

Cost: as the IM-Tree's, but insert O(insertion_depth + log(merge_ratio * n / sub-trees)). Memory: as the IM-Tree's, and
a leaf that is not full for each sub-tree.

Reference: PIM, section 3.3, appendices A.1 and A.2.
Differs from the paper: the search conditions of its algorithms 1 and 2 are turned round (as printed, they would go
past the keys that are not smaller); a key lies in one sub-tree only, however often it occurs, so that the leaves of
neighbouring sub-trees need no links; a sub-tree without entries has no nodes; where the immutable tree has no inner
nodes as deep as that, sub-trees are attached to the deepest it has; no locks yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.index.trees.btree import FAN_OUT, check_fan_out
from watersmeet.index.trees.im_tree import MERGE_RATIO, IMTree, MergeTreeStructure, check_merge_ratio
from watersmeet.workers import ALONE, Workers

_INSERTION_DEPTH = 2


@dataclass(frozen=True)
class PIMTree(IMTree):
    """An immutable tree, and mutable sub-trees attached to inner nodes of it.

    merge_ratio: they are merged when the mutable ones hold so much of the window.
    insertion_depth: of the inner nodes that have sub-trees; the root is at depth 0.
    fan_out: entries of a leaf, and children of an inner node, at most.
    """

    merge_ratio: float = MERGE_RATIO
    fan_out: int = FAN_OUT
    insertion_depth: int = _INSERTION_DEPTH

    def __post_init__(self) -> None:
        check_merge_ratio(self.merge_ratio)
        check_fan_out(self.fan_out)
        depth = self.insertion_depth
        if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
            rule = f"a whole number; {_INSERTION_DEPTH} is a good value"
            raise TypeError(f"insertion_depth must be {rule}, got {depth!r}")
        if depth < 0:
            raise ValueError(f"insertion_depth must not be negative, got {depth}; {_INSERTION_DEPTH} is a good value")

    name: ClassVar[str] = "pim_tree"

    def structure(self, like: MergeTreeStructure | None = None, workers: Workers = ALONE) -> MergeTreeStructure:
        """An empty structure, with room for about as much as `like` came to hold."""
        size = 0 if like is None else like.size
        return MergeTreeStructure(self.merge_ratio, self.fan_out, self.insertion_depth, size, workers)
