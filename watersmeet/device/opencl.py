"""An OpenCL device as the rest of this folder sees it: memory, copies, launches.

All work goes to one queue, in order. A device that is the CPU itself (PoCL) reads host memory where it is; others get
copies. pyopencl is imported when the first join asks for a device.
"""

from __future__ import annotations

import threading
from collections import deque
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from watersmeet.device.errors import DeviceFull, NoDevice, gib
from watersmeet.device.memory import Block, Memory

Array = np.ndarray

REMEDY = "leave out index=wm.index.OpenCLBISort(...) to join on the CPU"
_EXTRA = "pip install 'watersmeet[opencl]'"
_SOURCE = Path(__file__).with_name("bisort.cl")
#: Units of a part, for each of a device's compute units: threads take turns at few, a GPU hides its memory behind many.
_UNITS, _UNITS_OF_GPU = 4, 256
_GROUP_OF_GPU = 64
#: A library without a platform raises this, as does one that finds no device on it.
_NOT_THERE = ("PLATFORM_NOT_FOUND", "DEVICE_NOT_FOUND")


def check_device(platform: str | None, name: str | None) -> None:
    """Raise NoDevice, and say why, unless there is such a device."""
    _found(platform, name)


def machine(platform: str | None, name: str | None) -> OpenCL:
    """The device of this process that was asked for, the first if none was."""
    with _FIRST:
        return _machine(_found(platform, name))


_FIRST = threading.Lock()


@cache
def _machine(device: Any) -> OpenCL:
    return OpenCL(device)


@cache
def _found(platform: str | None, name: str | None) -> Any:
    """The first device whose platform and whose own name contain these, and that builds programs."""
    try:
        import pyopencl as cl
    except ImportError as error:
        raise NoDevice(f"OpenCL needs pyopencl, which cannot be imported ({error}); {_EXTRA}, or {REMEDY}") from None
    devices = [(one.name.strip(), device) for one in _listed(cl.get_platforms) for device in _listed(one.get_devices)]
    broken = []
    for of_platform, device in devices:
        if _contains(of_platform, platform) and _contains(device.name, name):
            why_not = _cannot_build(device)
            if why_not is None:
                return device
            broken.append(f"{device.name.strip()!r} of {of_platform!r} ({why_not})")
    if broken:
        raise NoDevice(
            f"OpenCL cannot build programs for {'; '.join(broken)}; a newer driver may know this processor (on Debian: "
            f"apt install pocl-opencl-icd), or {REMEDY}"
        )
    if not devices:
        raise NoDevice(f"OpenCL finds no device here; {_EXTRA} brings one that is the CPU (PoCL), or {REMEDY}")
    wanted = " and ".join(
        f"{what} {text!r}" for what, text in (("platform", platform), ("device_name", name)) if text is not None
    )
    there = "; ".join(f"{device.name.strip()!r} of {of!r}" for of, device in devices)
    raise NoDevice(f"OpenCL has no device with {wanted}, only {there}; name one of these, or {REMEDY}")


def _listed(get: Any) -> list[Any]:
    import pyopencl as cl

    try:
        return get()
    except cl.Error as error:
        if any(one in str(error).upper() for one in _NOT_THERE):
            return []
        raise NoDevice(f"OpenCL cannot be used here: {error}; {REMEDY}") from None


def _cannot_build(device: Any) -> str | None:
    """What the device's compiler says of the smallest program, if it refuses it: PoCL does where the processor is newer
    than its LLVM."""
    import pyopencl as cl

    try:
        cl.Program(cl.Context([device]), "kernel void nothing() {}").build()
    except cl.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return next((line for line in lines if line.startswith("error:")), lines[0])
    return None


def _contains(name: str, text: str | None) -> bool:
    return text is None or text.lower() in name.lower()


class OpenCL(Memory):
    """A device of OpenCL."""

    def __init__(self, device: Any) -> None:
        import pyopencl as cl

        super().__init__()
        self._cl: Any = cl
        self._device = device
        self.name = f"{device.name.strip()}, {device.platform.name.strip()}"
        self.total = int(device.global_mem_size)
        self.most = int(device.max_mem_alloc_size)  # of one array
        kind = cl.device_type
        gpu = bool(device.type & kind.GPU)
        self._group = _GROUP_OF_GPU if gpu else 1
        self.units = int(device.max_compute_units) * (_UNITS_OF_GPU if gpu else _UNITS)
        here = bool(device.type & kind.CPU)
        self._sent = cl.mem_flags.READ_ONLY | (cl.mem_flags.USE_HOST_PTR if here else cl.mem_flags.COPY_HOST_PTR)
        self._context = cl.Context([device])
        self._queue = cl.CommandQueue(self._context)
        self._kernels: dict[tuple[str, bool], Any] = {}
        self._launching = threading.Lock()  # a kernel's arguments are set one by one
        self._running: deque[tuple[Any, Any]] = deque()  # with the memory that it may still read

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, n: int, dtype: Any, what: str) -> Block:
        nbytes = max(n, 1) * np.dtype(dtype).itemsize
        try:
            if nbytes > self.most:
                raise self._cl.MemoryError
            buffer = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, nbytes)
        except self._cl.MemoryError:
            self._pools.clear()
            raise DeviceFull(
                f"{what}: {gib(nbytes)} more are needed on the device, which has {gib(self.total)} in all, and gives "
                f"{gib(self.most)} at a time; use a shorter window, or {REMEDY}"
            ) from None
        return Block(buffer, None, n, dtype, None)

    def upload(self, values: Array, into: Block | None = None, at: int = 0) -> Block:
        """A host array on the device; the array must stay as it is while the block is used."""
        values = np.ascontiguousarray(values)
        if into is not None:
            if values.size:
                self._cl.enqueue_copy(self._queue, into.array, values, dst_offset=at * into.dtype.itemsize)
            return into
        if not values.size:
            return self.take(1, values.dtype)
        buffer = self._cl.Buffer(self._context, self._sent, hostbuf=values)
        return Block(buffer, None, values.size, values.dtype, None)

    def download(self, *blocks: tuple[Block, int]) -> list[Array]:
        """So many values of each block; waits for them."""
        found = []
        for block, n in blocks:
            found.append(np.empty(n, block.dtype))
            if n:
                self._cl.enqueue_copy(self._queue, found[-1], block.array)
        return found

    def synchronize(self) -> None:
        self._queue.finish()

    # -- work ------------------------------------------------------------------------------------------------------

    def launch(self, name: str, composite: bool, units: int, *arguments: Any) -> None:
        """So many units of a part."""
        with self._launching:
            kernel = self._kernels.get((name, composite))
            if kernel is None:
                kernel = self._kernel(name, composite)
            kernel.set_args(*arguments)
            group = self._group if units % self._group == 0 else 1
            done = self._cl.enqueue_nd_range_kernel(self._queue, kernel, (units,), (group,))
            status = self._cl.command_execution_status
            while self._running and self._running[0][0].command_execution_status == status.COMPLETE:
                self._running.popleft()
            self._running.append((done, arguments))

    def _kernel(self, name: str, composite: bool) -> Any:
        program = self._program(composite)
        for kernel in program.all_kernels():
            self._kernels[kernel.function_name, composite] = kernel
        return self._kernels[name, composite]

    def _program(self, composite: bool) -> Any:
        source = self._cl.Program(self._context, _SOURCE.read_text())
        return source.build(options=[f"-DCOMPOSITE={int(composite)}"])
