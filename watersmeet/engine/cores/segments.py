"""Memory that processes share. It has no name, only descriptors: it goes with the last of them, also after a kill."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence

import pyarrow as pa

from watersmeet.interrupts import uninterrupted

_LEAST = 1 << 20


def create() -> int:
    """A descriptor of new memory, of no size yet."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("watersmeet", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # has no name either
        return os.dup(file.fileno())


#: All of a segment. Arrow arrays over it keep it alive.
Mapped = mmap.mmap


def mapped(descriptor: int, size: int, writes: bool = False) -> Mapped:
    """So much of a segment; 0: all that there is now."""
    return Mapped(descriptor, size, access=mmap.ACCESS_WRITE if writes else mmap.ACCESS_READ)


class Segment:
    """Memory that its owner writes to, again and again; it grows, and never shrinks."""

    def __init__(self) -> None:
        self.descriptor = create()
        self.size = 0
        self._close = weakref.finalize(self, os.close, self.descriptor)
        self._memory: Mapped | None = None

    def reserve(self, size: int) -> memoryview:
        """At least so many bytes, to be written to."""
        if size > self.size:
            wanted = max(_LEAST, size + size // 4)
            os.ftruncate(self.descriptor, wanted)
            self._memory = mapped(self.descriptor, wanted, writes=True)
            self.size = wanted
        assert self._memory is not None
        return memoryview(self._memory)


def written_size(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> int:
    """How many bytes `write` takes. Nothing is copied."""
    sink = pa.MockOutputStream()
    write(sink, batches, schema)
    return sink.size()


def write(sink: pa.NativeFile, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)


def read(buffer: pa.Buffer) -> list[pa.RecordBatch]:
    """By reference."""
    with pa.ipc.open_stream(buffer) as reader:
        return list(reader)


#: Dictionaries may change from batch to batch.
_OPTIONS = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=False, unify_dictionaries=True, use_threads=False)


class Returned:
    """Segments of one member's results, as the caller sees them: each is free again when nothing refers to it."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        self._mapped: dict[int, Mapped] = {}  # kept: to map memory anew, page by page, costs more than to fill it
        self._waiting: set[int] = set()  # results that nobody has taken yet
        self.free: list[int] = []
        self._close = weakref.finalize(self, _close_all, self._descriptors)

    def know(self, number: int, descriptor: int) -> None:
        """A segment that the member has made."""
        self._descriptors[number] = descriptor

    def hold(self, numbers: Sequence[int]) -> None:
        """The member has written results there."""
        self._waiting.update(numbers)

    def take(self, number: int, size: int) -> list[pa.RecordBatch]:
        whole = self._mapped.get(number)
        if whole is None or len(whole) < size:
            whole = self._mapped[number] = mapped(self._descriptors[number], 0)
        memory = memoryview(whole)[:size]
        with uninterrupted():
            self._waiting.discard(number)
            weakref.finalize(memory, self.free.append, number)
        return read(pa.py_buffer(memory))

    def drop(self) -> None:
        """Nobody will take what waits: the call has failed."""
        self.free += self._waiting
        self._waiting.clear()

    def freed(self) -> list[int]:
        """Which are free again since the last call."""
        count = len(self.free)  # more may come at any time
        free = self.free[:count]
        del self.free[:count]
        return free


def _close_all(descriptors: dict[int, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)


class Outbox:
    """Segments of one member's results, as the member sees them."""

    def __init__(self, announce: Callable[[int, int], None]) -> None:
        self._announce = announce
        self._segments: list[Segment] = []
        self._free: list[int] = []
        self.written: list[int] = []  # since its owner has told the caller of them

    def release(self, numbers: Sequence[int]) -> None:
        self._free += numbers

    def put(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> tuple[int, int]:
        """(segment, bytes) in which these are now."""
        size = written_size(batches, schema)
        number = self._fitting(size)
        self.written.append(number)
        memory = self._segments[number].reserve(size)
        write(pa.FixedSizeBufferWriter(pa.py_buffer(memory)), batches, schema)
        return number, size

    def _fitting(self, size: int) -> int:
        """A free segment: the smallest that is large enough, or the largest, or a new one."""
        if not self._free:
            self._segments.append(Segment())
            number = len(self._segments) - 1
            self._announce(number, self._segments[number].descriptor)
            return number
        by_size = sorted(self._free, key=lambda number: self._segments[number].size)
        number = next((one for one in by_size if self._segments[one].size >= size), by_size[-1])
        self._free.remove(number)
        return number
