"""Window indexes: one structure a file, all behind the interface of `base`."""

from typing import Any

from watersmeet.device.gpu_sort import GPUSort
from watersmeet.device.opencl_bisort import OpenCLBISort
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

#: Those whose structures are on a device; a join has the first by `device=`.
DEVICE_INDEXES: tuple[Any, ...] = (GPUSort, OpenCLBISort)

__all__ = [
    "DEVICE_INDEXES", "INDEXES", "Adaptive", "BISort", "BTree", "FrozenBTree", "GPUSort", "Hash", "IMTree", "Index",
    "NestedLoop", "OpenCLBISort", "PIMTree", "RaPTable", "WiBTree",
]  # fmt: skip
