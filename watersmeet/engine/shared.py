"""One join on many threads over one index: `route="shared"`.

    left and right tuples of a push -> one queue of tasks -> threads -> pairs, in order of arrival
                                                 \\-> the PIM-Trees of both windows <-/

Threads probe the tree of one window and fill that of the other at the same time, tuple by tuple (tasks.py, and
index/trees/shared_kernels.py for what they do without Python). Pairs come back in order of arrival. Trees are merged
beside (index/trees/shared_tree.py). Threads may come and go in the middle: `StreamJoin.cores`.

Reference: PIM, section 4 (parallel stream join over shared indexes).
Differs from the paper: a push is a queue's worth of tuples; those of the left side come first, so that only right ones
have to look beyond the edge.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore, Ticks, both
from watersmeet.engine.finder import Piece, Ready
from watersmeet.engine.results import Results
from watersmeet.engine.tasks import TASK_ROWS, Step, Tasks
from watersmeet.index.base import bounds_mode, no_ticks
from watersmeet.index.trees.shared_kernels import Lane, View
from watersmeet.index.trees.shared_tree import NOBODY, Coming, SharedPIMTree, SharedTree
from watersmeet.query.plan import Tuples
from watersmeet.query.windows import SIDES, Side

Array = np.ndarray



class SharedCore(JoinCore):
    """As JoinCore, with an index that is a SharedPIMTree."""

    task_rows = TASK_ROWS
    _step: Step | None = None

    def _process(
        self,
        arrivals: dict[Side, Arrival],
        visitors: dict[Side, Arrival],
        unneeded: Ticks,
        results: Results,
        met_before: dict[Side, Array],
    ) -> dict[Side, Array]:
        assert not visitors
        batches: dict[Side, Ready] = {}
        lanes: dict[Side, Lane] = {"left": NOBODY, "right": NOBODY}
        for side in SIDES:
            if side in arrivals:
                keep = self._needed_from(side, [arrivals], unneeded)
                batches[side], lanes[side] = self._lane(side, arrivals[side], keep, batches)
        coming = {side: int(np.count_nonzero(lane.stores)) for side, lane in lanes.items()}
        if len(self.shares) == 1:
            coming["right"] = coming["left"]  # they have one tree
        views = {side: self._view(side, coming[side]) for side in SIDES}
        merging = sum(self._tree(sides[0]).merging for sides in self.shares)
        residuals = [self._sides[side].residual for side in batches]
        counts = results.counts_only and self.how == "inner" and not any(residuals)
        begin = time.perf_counter()
        step = self._step = Step(Tasks(lanes, views, counts, self.task_rows), self._workers, merging)
        try:
            pieces, count = step.run()
        finally:
            self._step = None
        self.metrics.took("probe", begin)
        for sides in self.shares:
            if any(side in arrivals for side in sides):
                self._tree(sides[0]).landed(coming[sides[0]])
        results.add(count, [])
        for side, batch in batches.items():
            found: list[Piece] = [(batch.targets[0].subwindow, *both) for both in pieces[side]]
            self._settle(batch, self._finder.take(batch, found, results), results)
            self._let_first_out(results)
        return {}

    def _lane(
        self, side: Side, arrival: Arrival, keep: int | None, before: dict[Side, Ready]
    ) -> tuple[Ready, Lane]:
        """Tuples as the threads take them; they are in the payload and the chain then, but not in the tree."""
        payload, chain = self.payloads[side], self.chains[side]
        again = self.self_join and side == "right"
        first = payload.end - arrival.rows if again else payload.end
        if not again:
            payload.append(arrival.batch)
        targets = self._targets(side, arrival)
        if len(targets) > 1:
            raise ValueError("route 'shared' keeps up to 2^30 rows of a side; this window has more")
        limit = targets[0].subwindow.size if targets else 0
        tuples = self._sides[side].of(arrival.batch)
        begin = time.perf_counter()
        keys, kept = self._keys(side, tuples)
        live = self._stored_rows(arrival, keys.live, keep)
        self.metrics.took("keys", begin)
        if again and len(self.shares) == 1:
            live, stores = before["left"].live, np.zeros(arrival.rows, np.uint8)  # as left they have been stored
        else:
            stores = _flags(live, arrival.rows)
        coming = Coming(int(np.count_nonzero(stores)))
        batch = Ready(side, arrival, payload, first, live, coming, None, targets, kept, [])
        if not (again and len(self.shares) == 1):
            self._store(batch)
        key = keys.equal if keys.ordered is None else keys.ordered
        assert key is not None
        row = first - chain.holding(first).base
        lane, limits = self._asking(batch, np.ascontiguousarray(key), stores, tuples, row, limit)
        return batch._replace(limits=limits), lane

    def _asking(
        self, batch: Ready, keys: Array, stores: Array, tuples: Tuples, row: int, limit: int
    ) -> tuple[Lane, list[Array]]:
        """What the tuples look for, and what their checks compare with."""
        arrival, targets = batch.arrival, batch.targets
        if not targets:
            nothing = np.zeros(arrival.rows, np.uint8)
            return NOBODY._replace(keys=keys, stores=stores, asks=nothing, lows=keys, highs=keys, first=row), []
        begin = time.perf_counter()
        probe, limits = self._asked(batch.side, tuples)
        self.metrics.took("keys", begin)
        asks = _flags(both(probe.live, arrival.on_time), arrival.rows)
        lows, highs = (probe.lows, probe.highs) if probe.lows else ((probe.equal,), (probe.equal,))
        bounds = targets[0].bounds
        b = bounds or no_ticks()
        lane = Lane(
            keys, stores, asks, _joined(lows), _joined(highs), len(lows), bounds_mode(bounds), b.low, b.high, b.ticks,
            row, limit,
        )  # fmt: skip
        return lane, limits

    def _tree(self, side: Side) -> SharedTree:
        subwindows = self.chains[side].subwindows
        tree: Any = subwindows[-1].structure if subwindows else self.index.structure()
        return tree

    def _view(self, side: Side, coming: int) -> View:
        return self._tree(side).view(coming)

    def wanted(self, threads: int) -> None:
        """From now on so many threads are to work, in a step that is under way as well."""
        step = self._step
        if step is not None:
            step.wanted(threads)


def _flags(live: Array | None, rows: int) -> Array:
    return np.ones(rows, np.uint8) if live is None else live.astype(np.uint8)


def _joined(arrays: tuple[Any, ...]) -> Array:
    return np.ascontiguousarray(arrays[0] if len(arrays) == 1 else np.concatenate(arrays))


def shared_index(index: Any) -> SharedPIMTree:
    """The index that threads share, as configured."""
    from watersmeet.index import PIMTree

    if index == "auto" or index == "pim_tree":
        return SharedPIMTree()
    if isinstance(index, SharedPIMTree):
        return index
    if isinstance(index, PIMTree):
        return SharedPIMTree(index.merge_ratio, index.fan_out, index.insertion_depth)
    raise ValueError(f"route 'shared' has a PIM-Tree as its index; leave out index={index!r}, or use another route")
