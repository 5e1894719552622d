"""The GPU as the rest of this folder sees it: memory, copies, launches, sorts and sums.

    host                             device
    array -> pinned memory  ==copy==>  Block  -> kernels -> Block
    array <- pinned memory  <==copy==  Block <-'

All work goes to one stream, so it happens in the order in which it was asked for, whatever thread asked; results come
back by a second one, beside the work that follows. Memory for batches is kept and used again (memory.py).

CuPy sorts and sums; in the simulator NumPy does.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from watersmeet.device.cuda import REMEDY, SIMULATED, check_device, cuda
from watersmeet.device.errors import DeviceFull, gib
from watersmeet.device.memory import Block, Memory

Array = np.ndarray

#: Bytes of pinned memory that results may be in: the system cannot do without all of its pages.
_OUT_BYTES = 1 << 28


class Machine(Memory):
    """A GPU, or Numba's simulation of one."""

    threads = 256  # of a thread block

    def __init__(self) -> None:
        import cupy

        super().__init__()
        self.xp: Any = cupy
        self.name = _name()
        self.total = self.most = int(cuda.current_context().get_memory_info()[1])  # most: of one array
        multiprocessors = cuda.get_current_device().MULTIPROCESSOR_COUNT
        self.blocks = 16 * int(multiprocessors)  # of a launch, at most: kernels go on in strides
        self._up = cupy.cuda.Stream(non_blocking=True)
        self._down = cupy.cuda.Stream(non_blocking=True)
        self.stream = cuda.external_stream(self._up.ptr)
        self._staged: list[tuple[Any, Array]] = []  # what copies to the device may still read
        self._staging = threading.Lock()
        self._out: list[weakref.ref] = []  # results in pinned memory

    def free(self) -> int:
        """Bytes of memory that nobody uses."""
        return int(cuda.current_context().get_memory_info()[0])

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, n: int, dtype: Any, what: str) -> Block:
        """n values for as long as somebody holds them; `what` they are, should there be no room."""
        nbytes = n * np.dtype(dtype).itemsize
        try:
            try:
                array = cuda.device_array(n, dtype)
            except Exception:
                self._give_back()
                array = cuda.device_array(n, dtype)
        except Exception as error:
            if "OUT_OF_MEMORY" not in str(error).upper().replace(" ", "_"):
                raise
            raise DeviceFull(
                f"{what}: {gib(nbytes)} more are needed on the device, which has {gib(self.free())} of its "
                f"{gib(self.total)} left; use a shorter window, or {REMEDY}"
            ) from None
        return Block(array, self._values(array), n, dtype, None)

    def pinned(self, n: int, dtype: Any) -> Array:
        """Uninitialised values in host memory that copies reach at full speed; CuPy keeps it for the next."""
        nbytes = n * np.dtype(dtype).itemsize
        return np.frombuffer(self.xp.cuda.alloc_pinned_memory(max(nbytes, 8)), dtype, n)

    def _values(self, array: Any) -> Any:
        return self.xp.asarray(array)

    def _give_back(self) -> None:
        """What is kept for others goes back to the driver."""
        self.synchronize()
        self._pools.clear()
        self.xp.get_default_memory_pool().free_all_blocks()

    def zeros(self, n: int) -> Block:
        """n times 0, as int64, for a while."""
        block = self.take(n, np.int64)
        with self.working():
            block.values[:n] = 0
        return block

    # -- copies ----------------------------------------------------------------------------------------------------

    def upload(self, values: Array, into: Block | None = None, at: int = 0) -> Block:
        """A host array on the device; the array may be changed at once."""
        n = values.size
        block = self.take(n, values.dtype) if into is None else into
        if n:
            staged = self.pinned(n, values.dtype)
            np.copyto(staged, values)
            block.values[at : at + n].set(staged, stream=self._up)
            self._hold(staged)
        return block

    def _hold(self, staged: Array) -> None:
        """Memory that a copy reads must not be written before it has."""
        mark = self.mark()
        with self._staging:
            self._staged = [one for one in self._staged if not one[0].done]
            self._staged.append((mark, staged))

    def mark(self) -> Any:
        """All that has been asked for so far."""
        event = self.xp.cuda.Event(disable_timing=True)
        event.record(self._up)
        return event

    def download(self, *blocks: tuple[Block, int], behind: Any = None) -> list[Array]:
        """So many values of each block, in pinned memory; waits for them, and for what was asked for before the mark
        `behind` (by default: by now), and lets other work go on."""
        self._down.wait_event(behind or self.mark())
        found = []
        for block, n in blocks:
            found.append(self.pinned(n, block.values.dtype))
            if n:
                block.values[:n].get(stream=self._down, out=found[-1], blocking=False)
        self._down.synchronize()
        return found

    def handed_out(self, values: Array) -> Array:
        """Values in pinned memory as results, which somebody may keep: copied where many are out already."""
        held = [array for ref in self._out if (array := ref()) is not None]
        if sum(array.nbytes for array in held) + values.nbytes > _OUT_BYTES:
            return values.copy()
        self._out = [weakref.ref(array) for array in (*held, values)]
        return values

    def synchronize(self) -> None:
        self._up.synchronize()

    # -- work ------------------------------------------------------------------------------------------------------

    def launch(self, kernel: Any, items: int, *arguments: Any, each: int = 1) -> None:
        """A kernel for so many items, `each` of them a thread."""
        blocks = min(-(-items // (self.threads * each)), self.blocks)
        kernel[max(blocks, 1), self.threads, self.stream](*arguments)

    @contextmanager
    def working(self) -> Iterator[Any]:
        """CuPy, whose work goes to the stream."""
        with self._up:
            try:
                yield self.xp
            except MemoryError as error:
                raise DeviceFull(f"the device has no room for work on a batch; use smaller ones: {error}") from None


class Simulated(Machine):
    """Numba's simulator: memory of the device is that of the host."""

    threads = 4

    def __init__(self) -> None:
        Memory.__init__(self)
        self.xp = np
        self.name = "simulated GPU"
        self.total = self.most = 0
        self.blocks = 2
        self._one = threading.Lock()  # it can run one kernel at a time

    def free(self) -> int:
        return 1 << 40

    def pinned(self, n: int, dtype: Any) -> Array:
        return np.empty(n, dtype)

    def _values(self, array: Any) -> Any:
        return array._ary

    def _give_back(self) -> None:
        self._pools.clear()

    def upload(self, values: Array, into: Block | None = None, at: int = 0) -> Block:
        block = self.take(values.size, values.dtype) if into is None else into
        block.values[at : at + values.size] = values
        return block

    def mark(self) -> Any:
        return None

    def download(self, *blocks: tuple[Block, int], behind: Any = None) -> list[Array]:
        return [block.values[:n].copy() for block, n in blocks]

    def handed_out(self, values: Array) -> Array:
        return values

    def synchronize(self) -> None:
        pass

    def launch(self, kernel: Any, items: int, *arguments: Any, each: int = 1) -> None:
        blocks = max(min(-(-items // (self.threads * each)), self.blocks), 1)
        with self._one:
            kernel[blocks, self.threads](*arguments)

    @contextmanager
    def working(self) -> Iterator[Any]:
        yield np


_FIRST = threading.Lock()


def machine() -> Machine:
    """The GPU of this process. Raises NoDevice where there is none."""
    check_device()
    with _FIRST:
        return _machine()


@cache
def _machine() -> Machine:
    return Simulated() if SIMULATED else Machine()


def _name() -> str:
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)
