"""Joiners on a GPU: windows go there by groups, on several streams.

    intra    copy 1, join 1, wait; copy 2, join 2, wait                 one window at a time
    inter    | copy 1..16  | join 1..16  |                              many windows a launch,
                           | copy 17..32 | join 17..32 |                copies beside kernels
    hybrid   | copy 1 | join 1 |                                        a launch a window,
                      | copy 2 | join 2 |                               some windows on their way

The tuples lie in pinned memory, so copies are made by the device while the processor goes on (lanes.py).

Eager joins have tables that grow with every batch; of a hash join that counts, both sides of a batch are one launch
(counting.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from watersmeet.bench.gpu.study import gpu_kernels as kernels
from watersmeet.bench.gpu.study.counting import Counting
from watersmeet.bench.gpu.study.lanes import Lane
from watersmeet.bench.gpu.study.lookups import Batch, Found, Whole
from watersmeet.bench.gpu.study.manager import Workload
from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import Variant
from watersmeet.bench.gpu.study.streams import TUPLE_BYTES
from watersmeet.device.machine import machine
from watersmeet.device.memory import Block

Array = np.ndarray

LANES = 3
#: Bytes of a side that go to the device together, where many windows may.
GROUP_BYTES = 16 << 20
#: Pairs that come back together, at most.
PORTION = 1 << 25
_EACH = 8  # tuples of a thread, about, where a window has many


class GPUJoiner:
    """expected: of each window, how many results there are (for estimates, and the room of atomic writes)."""

    def __init__(self, variant: Variant, work: Workload, expected: list[int]):
        self.gpu = machine()
        self.variant = variant
        self.work = work
        self._expected = expected
        keys_only = variant.travels == "keys"
        self.left, self.stride = work.left.sent(keys_only)
        self.right, _ = work.right.sent(keys_only)
        self._counts = variant.results == "none"
        together = max(GROUP_BYTES // (TUPLE_BYTES * work.window), 1)
        self._group = together if variant.parallel == "inter" and self._counts else 1
        self._lanes = deque(Lane(self.gpu) for _ in range(1 if variant.parallel == "intra" else LANES))
        self._counting: Counting | None = None
        if variant.progress == "eager" and variant.algorithm == "hash" and self._counts:
            self._counting = Counting(self, self._lanes[0])
        self.slots = 1 << (2 * work.window - 1).bit_length()

    def close(self) -> None:
        self._lanes.clear()

    def sent(self, lane: Lane, name: str, stream: Array, first: int, n: int, at: int = 0, room: int = 0) -> Block:
        """n tuples of a stream, on the device, from place `at` on."""
        stride = self.stride
        block = lane.block(name, max(room, at + n) * stride, np.int32)
        lane.send(stream[first * stride : (first + n) * stride], block, at * stride)
        return block

    # -- lazy --------------------------------------------------------------------------------------------------------

    def execute(self, first: int, count: int, sink: Sink) -> None:
        """Join `count` complete windows from number `first` on."""
        for start in range(first, first + count, self._group):
            lane = self._lanes[0]
            self._lanes.rotate(-1)
            lane.hand_over()
            self._join(lane, start, min(self._group, first + count - start), sink)
        for lane in self._lanes:
            lane.hand_over()

    def _join(self, lane: Lane, first: int, windows: int, sink: Sink) -> None:
        """Ask for the join of some windows on a lane."""
        n = self.work.window
        left = self.sent(lane, "left", self.left, first * n, windows * n)
        right = self.sent(lane, "right", self.right, first * n, windows * n)
        if self._counts:
            totals = lane.block("totals", windows, np.int64)
            lane.fill(totals, windows, 0)
            for phase in self.phases(lane, left, right, windows, totals).values():
                phase()
            counted = lane.pinned("totals", windows, np.int64)
            lane.fetch(totals, windows, counted)

            def finish() -> None:
                for window in range(windows):
                    sink.add(first + window, int(counted[window]))

            lane.finish = finish
        else:
            self._make_pairs(lane, Whole(self, lane, left, right), first, sink)

    def phases(
        self, lane: Lane, left: Block, right: Block, windows: int, totals: Block
    ) -> dict[str, Callable[[], None]]:
        """What counts the results of some windows into `totals`, one phase after the other."""
        n, stride, m = self.work.window, self.stride, windows * self.work.window
        per = max(min(n // (_EACH * self.gpu.threads), self.gpu.blocks), 1)

        def build() -> None:
            table, counts, _ = self.table(lane, windows)
            launch = (right.array, stride, n, per, self.slots, table.array, counts.array)
            lane.launch(kernels.store, m, *launch, blocks=per * windows)

        def probe() -> None:
            table, counts = (lane.block(name, windows * self.slots, np.int32) for name in ("table", "counts"))
            launch = (left.array, stride, n, per, self.slots, table.array, counts.array, totals.array)
            lane.launch(kernels.look_up, m, *launch, blocks=per * windows)

        bits = max(m - 1, 1).bit_length()

        def sort() -> None:
            for words, name in ((left, "left words"), (right, "right words")):
                to = lane.block(name, m, np.int64)
                lane.launch(kernels.pack, m, words.array, stride, n, m, 0, bits, to.array, 0)
                lane.sort(to, m)

        def merge() -> None:
            words = [lane.block(name, m, np.int64).array for name in ("left words", "right words")]
            lane.launch(kernels.merge_count, m, words[0], m, words[1], m, bits, totals.array)

        def loop() -> None:
            blocks = max(-(-n // self.gpu.threads), 1)
            numbers = lane.block("numbers", 1, np.int64)
            lane.launch(
                kernels.loop_numbers, m, left.array, stride, n, right.array, stride, n, blocks, n, 0, numbers.array,
                totals.array, blocks=blocks * windows,
            )  # fmt: skip

        if self.variant.algorithm == "hash":
            return {"build": build, "probe": probe}
        return {"sort": sort, "merge": merge} if self.variant.algorithm == "sort_merge" else {"loop": loop}

    def table(self, lane: Lane, windows: int) -> tuple[Block, Block, Block]:
        """An empty hash table: keys, counts of one side, and of the other."""
        slots = windows * self.slots
        table, counts, others = (lane.block(name, slots, np.int32) for name in ("table", "counts", "other counts"))
        lane.launch(kernels.clear, slots, table.array, counts.array, others.array, slots)
        return table, counts, others

    # -- pairs -------------------------------------------------------------------------------------------------------

    def _make_pairs(self, lane: Lane, found: Found, window: int, sink: Sink) -> None:
        """Make the pairs of one window, or of a batch, and have them come back."""
        if self.variant.results == "atomic":
            self._make_one_by_one(lane, found, window, sink)
            return
        ends = found.ends()
        told, total = lane.mapped("total", 1, np.int64)
        lane.launch(kernels.tell, 1, ends.array, found.n - 1, told)  # a copy would wait for the pairs of other lanes
        if self.variant.results == "count_kernel":
            lane.wait()
            room = min(int(total[0]), PORTION)
        else:
            room = min(self._expected[window] + 64, PORTION)

        def written(begin: int, room: int) -> list[Array]:
            """The pairs from number `begin` on, on their way."""
            blocks = [lane.block(name, max(room, 1), np.int32) for name in ("rows", "partners")]
            if room:
                found.write(ends, begin, room, *blocks)
            sides = [lane.pinned(name, room, np.int32) for name in ("rows out", "partners out")]
            for block, side in zip(blocks, sides, strict=True):
                lane.fetch(block, room, side)
            return sides

        sides = written(0, room)

        def finish() -> None:
            n, begin = int(total[0]), min(int(total[0]), room)
            self._hand(sink, window, found, sides, begin)
            while begin < n:  # more than a portion, or than was expected
                more = min(n - begin, PORTION)
                others = written(begin, more)
                lane.wait()
                self._hand(sink, window, found, others, more)
                begin += more
            sink.add(window, n)

        lane.finish = finish

    def _make_one_by_one(self, lane: Lane, found: Found, window: int, sink: Sink) -> None:
        room = max(self._expected[window], 1)
        rows, rows_here = lane.mapped("rows mapped", room)
        partners, partners_here = lane.mapped("partners mapped", room)
        cursor = lane.block("cursor", 1, np.int64)
        lane.fill(cursor, 1, 0)
        found.write_one_by_one(cursor, room, rows, partners)
        total = lane.pinned("total", 1, np.int64)
        lane.fetch(cursor, 1, total)

        def finish() -> None:
            n = int(total[0])
            self._hand(sink, window, found, [rows_here, partners_here], n)
            sink.add(window, n)

        lane.finish = finish

    def _hand(self, sink: Sink, window: int, found: Found, sides: list[Array], n: int) -> None:
        left, right = reversed(sides) if found.flipped else sides
        sink.write(window, left[:n], right[:n])

    # -- eager -------------------------------------------------------------------------------------------------------

    def begin(self, window: int) -> None:
        lane = self._lanes[0]
        lane.hand_over()
        self.window = window
        if self.variant.algorithm == "hash":
            self.kept = self.table(lane, 1)
            self.both = lane.block("both counts", self.slots, np.int64)
            lane.fill(self.both, self.slots, 0)
            if self._counting is not None:
                self._counting.begin(window)
            if not self._counts:
                self.heads = {side: lane.block(f"{side} heads", self.slots, np.int32) for side in ("left", "right")}
                for heads in self.heads.values():
                    lane.fill(heads, self.slots, -1)

    def step(self, start: int, stop: int, sink: Sink) -> None:
        """The tuples from `start` to `stop` of the window have come, of both sides."""
        lane, n, window = self._lanes[0], self.work.window, self.window
        if self._counting is not None:
            self._counting.step(start, stop, sink)
            return
        lane.hand_over()
        blocks = {
            "left": self.sent(lane, "left", self.left, window * n + start, stop - start, start, n),
            "right": self.sent(lane, "right", self.right, window * n + start, stop - start, start, n),
        }
        for side in ("left", "right"):
            found = Batch(self, lane, blocks, side, start, stop)
            if self._counts:
                totals = lane.block("totals", 1, np.int64)
                lane.fill(totals, 1, 0)
                found.count(totals)
                self._tell(lane, totals, window, sink)
            else:
                self._make_pairs(lane, found, window, sink)
            lane.hand_over()
            found.keep()

    def end(self, sink: Sink) -> None:
        """The last batch of the window has come."""
        if self._counting is not None:
            self._counting.tell(sink, wait=True)
        self._lanes[0].hand_over()

    def _tell(self, lane: Lane, totals: Block, window: int, sink: Sink) -> None:
        counted = lane.pinned("totals", 1, np.int64)
        lane.fetch(totals, 1, counted)
        lane.finish = lambda: sink.add(window, int(counted[0]))
        lane.hand_over()
