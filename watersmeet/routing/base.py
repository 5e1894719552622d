"""What every route has in common.

A join that runs on several cores must bring each pair together in exactly one of them. A *route* says for every tuple
where it is at *home* (one core, which stores it) and to which further cores it sends *copies*. There are two ways:

    free       a tuple is stored at home only, and its copies visit: they probe, and are gone with the batch.
               The later of two partners finds the earlier at the earlier's home; so each pair is found once, whatever
               the two homes are. Good for inner joins: nothing is stored twice. For full joins, too, where cores can
               tell each other whose visitors have found partners.
    anchored   tuples of one side, the anchor, are at home and nowhere else. Those of the other side go to every core
               in which an anchored partner may be, and are stored in all of them. An anchored tuple then sees all of
               its partners in one core: what left, right, semi and anti joins need.

Places depend on nothing but a tuple's own values, and for the hot/cold route on what all cores are told of a batch, so
that a task that is run again sends every tuple to where it sent it the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit

from watersmeet.query.kernels import scramble
from watersmeet.query.plan import Tuples
from watersmeet.query.windows import Side

Array = np.ndarray


@dataclass(frozen=True)
class Places:
    """Where the tuples of a batch go."""

    home: Array  # a core for each row
    rows: Array  # of copies: the row,
    cores: Array  # and the core it goes to, never the row's home
    everywhere: bool = False  # instead: every row has a copy in every core but its home
    visits: Array | None = None  # instead: of each row, words with a bit for every core it goes to, its home or not
    hot: int = 0  # rows that are stored away from home because there are so many of their kind


class Route(Protocol):
    """A way to spread a join over `cores` cores."""

    @property
    def name(self) -> str: ...

    @property
    def cores(self) -> int: ...

    @property
    def anchor(self) -> Side | None:
        """The side whose tuples are at home only; None: free, copies visit."""

    @property
    def visits(self) -> bool:
        """Whether copies visit other cores than their homes."""

    @property
    def by_turns(self) -> bool:
        """Whether places depend on ticks alone, so that it costs a core next to nothing to know all of them."""

    def places(self, side: Side, tuples: Tuples, ticks: Array) -> Places: ...


_NONE = np.zeros(0, np.int64)


def at_home(home: Array) -> Places:
    """Without copies."""
    return Places(home, _NONE, _NONE)


def hashed(keys: Array, cores: int) -> Array:
    """A core for each key: equal keys, equal cores. O(n)."""
    out = np.empty(keys.size, np.int64)
    _hash(np.ascontiguousarray(keys), np.uint64(cores), out)
    return out


@njit(inline="always")
def core_of(key, cores):
    return np.int64(scramble(np.uint64(key)) % cores)


@njit(nogil=True, cache=True)
def _hash(keys, cores, out):
    for i in range(keys.size):
        out[i] = core_of(keys[i], cores)


def everywhere(home: Array) -> Places:
    """Copies to all cores but the home: not listed, for there may be hundreds of times as many as rows."""
    return Places(home, _NONE, _NONE, True)
