"""The input of a task, kept until all of it has been seen: in memory, and beyond that in a file that has no name, so
that nothing is left of it when the task ends in whatever way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from watersmeet.spark.cache import application_folder

#: Kept in memory.
HELD_BYTES = 256 << 20


class Held:
    """Batches of one schema, each with a number; read as often as you like."""

    def __init__(self, schema: pa.Schema, most: int | None = None):
        self._schema = schema
        self._most = HELD_BYTES if most is None else most
        self._batches: list[tuple[pa.RecordBatch, int]] = []
        self._bytes = 0
        self._file: Any = None
        self._written: list[tuple[int, int]] = []  # bytes and number of each batch in the file

    def add(self, batch: pa.RecordBatch, number: int) -> None:
        if self._bytes + batch.nbytes <= self._most:
            self._batches.append((batch, number))
            self._bytes += batch.nbytes
            return
        if self._file is None:
            folder = application_folder()
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (until the end of all)
        message = batch.serialize()
        self._file.write(message)
        self._written.append((message.size, number))

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        yield from self._batches
        at = 0
        for size, number in self._written:
            self._file.seek(at)
            yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema), number
            at += size

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
