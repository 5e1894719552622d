"""Lanes: streams of a GPU, each with memory of its own.

What is asked for on a lane happens in order, beside what happens on others: a copy on one, kernels on another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from watersmeet.device.cuda import SIMULATED, cuda
from watersmeet.device.machine import Machine
from watersmeet.device.memory import Block

Array = np.ndarray


class Lane:
    """A stream with memory of its own. Work that is asked for on it happens in order."""

    def __init__(self, gpu: Machine):
        self._gpu = gpu
        self._blocks: dict[str, Block] = {}
        self._pinned: dict[str, Array] = {}
        self.finish: Callable[[], None] | None = None  # hands over what the lane was asked for last
        if not SIMULATED:
            self._cupy = gpu.xp.cuda.Stream(non_blocking=True)
            self._stream = cuda.external_stream(self._cupy.ptr)

    def block(self, name: str, n: int, dtype: Any) -> Block:
        """Memory of this name, for at least n values; kept for the next time."""
        kept = self._blocks.get(name)
        if kept is None or kept.size < n or kept.array.dtype != dtype:
            kept = self._blocks[name] = self._gpu.allocate(n, dtype, f"{name} of a window")
        return kept

    def pinned(self, name: str, n: int, dtype: Any) -> Array:
        kept = self._pinned.get(name)
        if kept is None or kept.size < n or kept.dtype != dtype:
            kept = self._pinned[name] = self._gpu.pinned(n, dtype)
        return kept[:n]

    def mapped(self, name: str, n: int, dtype: Any = np.int32) -> tuple[Any, Array]:
        """Host memory that kernels write to themselves: for them, and for the host."""
        kept = self._blocks.get(name)
        if kept is None or kept.size < n:
            array = cuda.mapped_array(n, dtype)
            kept = self._blocks[name] = Block(array, array._ary if SIMULATED else np.asarray(array), n, dtype, None)
        return kept.array, kept.values

    def seen(self, values: Array) -> Any:
        """Pinned memory as kernels see it, who read it through the link."""
        return cuda.to_device(values) if SIMULATED else cuda.as_cuda_array(_Seen(values))

    def again(self, ask: Callable[[], None]) -> Callable[[], None]:
        """What is asked for, to be asked for again: by one call for all its launches (a CUDA graph)."""
        if SIMULATED:
            return ask
        with self._cupy:
            self._cupy.begin_capture()
            try:
                ask()
            finally:
                graph = self._cupy.end_capture()
        return partial(graph.launch, stream=self._cupy)

    def send(self, values: Array, to: Block, at: int = 0) -> None:
        """From pinned memory, which must stay as it is until the lane has waited."""
        if SIMULATED:
            to.values[at : at + values.size] = values
        else:
            to.values[at : at + values.size].set(values, stream=self._cupy)

    def fetch(self, block: Block, n: int, to: Array) -> None:
        """To pinned memory; there when the lane has waited."""
        if SIMULATED:
            to[:n] = block.values[:n]
        elif n:
            block.values[:n].get(stream=self._cupy, out=to[:n], blocking=False)

    def launch(self, kernel: Any, items: int, *arguments: Any, blocks: int | None = None, each: int = 1) -> None:
        """A kernel for so many items, or with so many thread blocks."""
        gpu = self._gpu
        wanted = blocks or max(min(-(-items // (gpu.threads * each)), gpu.blocks), 1)
        if SIMULATED:
            kernel[wanted, gpu.threads](*arguments)
        else:
            kernel[wanted, gpu.threads, self._stream](*arguments)

    def fill(self, block: Block, n: int, value: int) -> None:
        with self.working():
            block.values[:n] = value

    def sums(self, block: Block, n: int, to: Block) -> None:
        with self.working() as xp:
            xp.cumsum(block.values[:n], out=to.values[:n])

    def sort(self, block: Block, n: int) -> None:
        with self.working():
            block.values[:n].sort()

    def working(self) -> Any:
        return self._gpu.working() if SIMULATED else _On(self._cupy, self._gpu.xp)

    def wait(self) -> None:
        if not SIMULATED:
            self._cupy.synchronize()

    def mark(self) -> Any:
        """What has been asked for so far."""
        if SIMULATED:
            return None
        event = self._gpu.xp.cuda.Event(disable_timing=True)
        event.record(self._cupy)
        return event

    def passed(self, mark: Any) -> bool:
        """Whether all that was asked for before the mark is done."""
        return SIMULATED or mark.done

    def hand_over(self) -> None:
        """Wait for what was asked for last, and hand it over."""
        if self.finish is not None:
            self.wait()
            finish, self.finish = self.finish, None
            finish()


class _Seen:
    """Pinned memory, for Numba as if it were on the device: both see it at one address."""

    def __init__(self, values: Array):
        self._values = values
        self.__cuda_array_interface__ = dict(values.__array_interface__, version=3)


class _On:
    """CuPy, whose work goes to a stream."""

    def __init__(self, stream: Any, xp: Any):
        self._stream, self._xp = stream, xp

    def __enter__(self) -> Any:
        self._stream.__enter__()
        return self._xp

    def __exit__(self, *exception: object) -> None:
        self._stream.__exit__(*exception)
