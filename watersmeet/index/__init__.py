"""Window indexes: one structure a file, all behind the interface of `base`."""

from typing import Any

from watersmeet.index.adaptive import Adaptive
from watersmeet.index.base import Index
from watersmeet.index.bisort import BISort
from watersmeet.index.btree import BTree, FrozenBTree
from watersmeet.index.hash import Hash
from watersmeet.index.im_tree import IMTree
from watersmeet.index.nested_loop import NestedLoop
from watersmeet.index.pim_tree import PIMTree
from watersmeet.index.rap_table import RaPTable
from watersmeet.index.wib_tree import WiBTree

#: Those that a join may be given, by class or by name.
INDEXES: tuple[Any, ...] = (
    NestedLoop, Hash, BISort, RaPTable, WiBTree, Adaptive, BTree, FrozenBTree, IMTree, PIMTree,
)  # fmt: skip

__all__ = [
    "INDEXES", "Adaptive", "BISort", "BTree", "FrozenBTree", "Hash", "IMTree", "Index", "NestedLoop", "PIMTree",
    "RaPTable", "WiBTree",
]  # fmt: skip
