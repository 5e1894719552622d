"""The windows of both sides over Bw-Trees, for `Tasks` of the engine: PIM's latch-free baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from watersmeet.bench.cores.bw_tree.tree import BwTree
from watersmeet.bench.cores.bw_tree.work import View
from watersmeet.index.base import Array
from watersmeet.query.windows import SIDES, Side


class Held:
    """One window: keys in a Bw-Tree under their numbers, and in order of arrival, to delete them by.

    What leaves the window is deleted with the next step that brings tuples of its side: then nobody looks for it.
    """

    def __init__(self, tree: BwTree) -> None:
        self.tree = tree
        self.offset = 0  # tuples that have left the window
        self._keys: list[Array] = []  # of those in it and those that are still to be deleted, batch by batch
        self._gone = 0  # of the first batches, how many have left the window

    @property
    def size(self) -> int:
        """Tuples in the window."""
        return sum(keys.size for keys in self._keys) - self._gone

    def view(self, coming: Array) -> View:
        """For a step that inserts these, each of which goes in."""
        gone = np.zeros(0, np.int64)
        if coming.size:
            gone = np.concatenate([gone, *self._take_gone()])
            self._keys.append(coming)
        return View(self.tree.reserve(coming.size + gone.size), self.offset, gone)

    def forget(self, tuples: int) -> None:
        """So many, the oldest, have left the window."""
        self.offset += tuples
        self._gone += tuples

    def _take_gone(self) -> list[Array]:
        pieces = []
        while self._gone:
            first = self._keys[0][: self._gone]
            pieces.append(first)
            self._keys[0] = self._keys[0][first.size :]
            if not self._keys[0].size:
                del self._keys[0]
            self._gone -= first.size
        return pieces


class BwWindows:
    """Both windows, of the last `window` tuples."""

    def __init__(self, window: int, make: Callable[[], BwTree]) -> None:
        self._window = window
        self.held: dict[Side, Held] = {side: Held(make()) for side in SIDES}

    @property
    def sizes(self) -> dict[Side, int]:
        return {side: held.size for side, held in self.held.items()}

    def push(self, keys: dict[Side, Array], run: Callable[[dict[Side, View]], Any]) -> Any:
        """Have a step run over the windows as they are, then let go what they are too small for."""
        found = run({side: held.view(keys[side]) for side, held in self.held.items()})
        for held in self.held.values():
            held.forget(max(held.size - self._window, 0))
        return found
