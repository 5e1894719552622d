"""Window indexes: one structure a file, all behind the interface of `base`."""

from watersmeet.index.base import Index
from watersmeet.index.bisort import BISort
from watersmeet.index.hash import Hash
from watersmeet.index.nested_loop import NestedLoop

__all__ = ["BISort", "Hash", "Index", "NestedLoop"]
