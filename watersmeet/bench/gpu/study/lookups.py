"""Tuples of one side that are looked up among those of the other, on a GPU, for pairs.

The numbers of partners of all tuples are summed up, which tells where each one's pairs go; then these are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from watersmeet.bench.gpu.study import gpu_kernels as kernels
from watersmeet.bench.gpu.study.lanes import Lane
from watersmeet.device import kernels as join_kernels
from watersmeet.device.memory import Block


class Found:
    """Tuples of one side that are looked up among others: how many partners each has, and which."""

    flipped = False  # whether the tuples are of the right side
    n: int

    def __init__(self, joiner: Any, lane: Lane):
        self._joiner, self._lane = joiner, lane
        self._gpu = joiner.gpu
        self._stride = joiner.stride
        self._slots = joiner.slots
        self._algorithm = joiner.variant.algorithm

    def ends(self) -> Block:
        """The sums of the numbers of partners, up to each tuple."""
        numbers, ends = (self._lane.block(name, self.n, np.int64) for name in ("numbers", "ends"))
        self._numbers(numbers)
        self._lane.sums(numbers, self.n, ends)
        return ends

    def _numbers(self, numbers: Block) -> None:
        raise NotImplementedError

    def write(self, ends: Block, begin: int, room: int, rows: Block, partners: Block) -> None:
        """The pairs from number `begin` on."""
        raise NotImplementedError

    def write_one_by_one(self, cursor: Block, room: int, rows: Any, partners: Any) -> None:
        raise NotImplementedError


class Lookup(Found):
    """words: of the tuples; others: of those that are stored (words, or sorted words), `m` of them."""

    _words: Block
    _others: Block
    _first = 0  # row of the first tuple
    _m: int
    _table: Block
    _counts: Block  # of the others
    _heads: Block
    _following: Block
    _bits: int
    _sorted: Block

    def _numbers(self, numbers: Block) -> None:
        lane, n = self._lane, self.n
        if self._algorithm == "hash":
            lane.launch(
                kernels.chain_numbers, n, self._words.array, self._stride, n, self._slots, self._table.array,
                self._counts.array, numbers.array,
            )  # fmt: skip
        elif self._algorithm == "sort_merge":
            self._begins, self._ranked = lane.block("begins", n, np.int64), lane.block("ranked", n, np.int32)
            lane.launch(
                kernels.merge_numbers, n, self._sorted.array, n, self._others.array, self._m, self._bits,
                self._begins.array, numbers.array, self._ranked.array,
            )  # fmt: skip
        else:
            totals = lane.block("loop totals", 1, np.int64)
            lane.fill(totals, 1, 0)
            self._loop(1, numbers, totals)

    def _loop(self, keeps: int, numbers: Block, totals: Block) -> None:
        per = max(-(-self.n // self._gpu.threads), 1)
        self._lane.launch(
            kernels.loop_numbers, self.n, self._words.array, self._stride, self.n, self._others.array, self._stride,
            self._m, per, self._m, keeps, numbers.array, totals.array, blocks=per,
        )  # fmt: skip

    def write(self, ends: Block, begin: int, room: int, rows: Block, partners: Block) -> None:
        lane, n, words = self._lane, self.n, self._words.array
        if self._algorithm == "hash":
            lane.launch(
                kernels.chain_pairs, n, words, self._stride, n, self._first, self._slots, self._table.array,
                self._heads.array, self._following.array, ends.array, begin, room, rows.array, partners.array,
            )  # fmt: skip
        elif self._algorithm == "sort_merge":
            others = lane.block("other rows", max(self._m, 1), np.int32)
            lane.launch(kernels.rows_of, self._m, self._others.array, self._m, self._bits, others.array)
            tally, none = lane.block("tally", 2, np.int64), lane.block("none", 1, np.int64)
            lane.fill(tally, 2, 0)
            lane.launch(
                join_kernels.pairs, room, ends.array, self._begins.array, self._ranked.array, 0, n, others.array, begin,
                room, join_kernels.UNBOUNDED, 0, none.array, none.array, 0, 0, none.array, 0, 0, rows.array,
                partners.array, tally.array, each=join_kernels.ITEMS,
            )  # fmt: skip
        else:
            lane.launch(
                kernels.loop_pairs, n, words, self._stride, n, self._first, self._others.array, self._stride, self._m,
                0, ends.array, ends.array, begin, room, rows.array, partners.array,
            )  # fmt: skip

    def write_one_by_one(self, cursor: Block, room: int, rows: Any, partners: Any) -> None:
        lane, n, words = self._lane, self.n, self._words.array
        if self._algorithm == "hash":
            lane.launch(
                kernels.chain_atomic, n, words, self._stride, n, self._first, self._slots, self._table.array,
                self._heads.array, self._following.array, cursor.array, rows, partners,
            )  # fmt: skip
        elif self._algorithm == "sort_merge":
            lane.launch(
                kernels.merge_atomic, n, self._sorted.array, n, self._others.array, self._m, self._bits, cursor.array,
                rows, partners,
            )  # fmt: skip
        else:
            lane.launch(
                kernels.loop_pairs, n, words, self._stride, n, self._first, self._others.array, self._stride, self._m,
                1, cursor.array, cursor.array, 0, room, rows, partners,
            )  # fmt: skip


class Whole(Lookup):
    """The left side of a window among all of its right side."""

    def __init__(self, joiner: Any, lane: Lane, left: Block, right: Block):
        super().__init__(joiner, lane)
        self.n = self._m = n = joiner.work.window
        self._words, self._others = left, right
        if self._algorithm == "hash":
            self._table, self._counts, _ = joiner.table(lane, 1)
            self._heads = lane.block("heads", self._slots, np.int32)
            self._following = lane.block("following", n, np.int32)
            lane.fill(self._heads, self._slots, -1)
            lane.launch(
                kernels.chain, n, right.array, self._stride, n, 0, self._slots, self._table.array, self._counts.array,
                self._heads.array, self._following.array,
            )  # fmt: skip
        elif self._algorithm == "sort_merge":
            self._bits = max(n - 1, 1).bit_length()
            packed = [lane.block(name, n, np.int64) for name in ("left words", "right words")]
            for words, to in zip((left, right), packed, strict=True):
                lane.launch(kernels.pack, n, words.array, self._stride, n, n, 0, self._bits, to.array, 0)
                lane.sort(to, n)
            self._sorted, self._others = packed


class Batch(Lookup):
    """A batch of one side among what has come of the other: for the left side what came before, for the right side also
    the left side's batch."""

    def __init__(self, joiner: Any, lane: Lane, blocks: dict[str, Block], side: str, start: int, stop: int):
        super().__init__(joiner, lane)
        window = joiner.work.window
        self.flipped = side == "right"
        self._side = side
        self.n = n = stop - start
        self._first = start
        self._m = stop if self.flipped else start
        other = "left" if self.flipped else "right"
        stream = joiner.right if self.flipped else joiner.left
        self._words = joiner.sent(lane, "new", stream, joiner.window * window + start, n)
        self._others = blocks[other]
        if self._algorithm == "hash":
            self._table = joiner.kept[0]
            own, others = (joiner.kept[2], joiner.kept[1]) if self.flipped else (joiner.kept[1], joiner.kept[2])
            self._own, self._counts = own, others
            self._heads, self._own_heads = joiner.heads[other], joiner.heads[side]
            self._following = lane.block(f"{other} following", window, np.int32)
            self._own_following = lane.block(f"{side} following", window, np.int32)
        elif self._algorithm == "sort_merge":
            self._bits = max(window - 1, 1).bit_length()
            self._sorted = lane.block("new words", n, np.int64)
            packed = self._sorted.array
            lane.launch(kernels.pack, n, self._words.array, self._stride, n, n, start, self._bits, packed, 0)
            lane.sort(self._sorted, n)
            self._others = lane.block(f"{other} words", window, np.int64)

    def count(self, totals: Block) -> None:
        """Results, added to totals[0]."""
        if self._algorithm == "sort_merge":
            self._lane.launch(
                kernels.merge_count, self.n, self._sorted.array, self.n, self._others.array, self._m, self._bits,
                totals.array,
            )  # fmt: skip
        else:
            self._loop(0, self._lane.block("numbers", 1, np.int64), totals)

    def keep(self) -> None:
        """The batch is part of what has come."""
        lane, n = self._lane, self.n
        if self._algorithm == "hash":
            lane.launch(
                kernels.chain, n, self._words.array, self._stride, n, self._first, self._slots, self._table.array,
                self._own.array, self._own_heads.array, self._own_following.array,
            )  # fmt: skip
        elif self._algorithm == "sort_merge":
            kept = lane.block(f"{self._side} words", self._joiner.work.window, np.int64)
            with lane.working():
                kept.values[self._first : self._first + n] = self._sorted.values[:n]
            lane.sort(kept, self._first + n)
