"""Window indexes: one structure a file, all behind the interface of `base`."""

from typing import Any

from watersmeet.index.adaptive import Adaptive
from watersmeet.index.base import Index
from watersmeet.index.hash import Hash
from watersmeet.index.nested_loop import NestedLoop
from watersmeet.index.sorted.bisort import BISort
from watersmeet.index.tables.rap_table import RaPTable
from watersmeet.index.trees.btree import BTree, FrozenBTree
from watersmeet.index.trees.im_tree import IMTree
from watersmeet.index.trees.pim_tree import PIMTree
from watersmeet.index.trees.wib_tree import WiBTree

#: Those that a join may be given, by class or by name.
INDEXES: tuple[Any, ...] = (
    NestedLoop, Hash, BISort, RaPTable, WiBTree, Adaptive, BTree, FrozenBTree, IMTree, PIMTree,
)  # fmt: skip

__all__ = [
    "INDEXES", "Adaptive", "BISort", "BTree", "FrozenBTree", "Hash", "IMTree", "Index", "NestedLoop", "PIMTree",
    "RaPTable", "WiBTree",
]  # fmt: skip
