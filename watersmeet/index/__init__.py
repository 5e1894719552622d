"""Window indexes: one structure a file, all behind the interface of `base`."""

from typing import Any

from watersmeet.index.base import Index
from watersmeet.index.bisort import BISort
from watersmeet.index.hash import Hash
from watersmeet.index.nested_loop import NestedLoop
from watersmeet.index.rap_table import RaPTable
from watersmeet.index.wib_tree import WiBTree

#: Those that a join may be given, by class or by name.
INDEXES: tuple[Any, ...] = (NestedLoop, Hash, BISort, RaPTable, WiBTree)

__all__ = ["INDEXES", "BISort", "Hash", "Index", "NestedLoop", "RaPTable", "WiBTree"]
