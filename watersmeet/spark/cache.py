"""Files in which the workers of a host share what they know of the state.

State is the truth; a file only saves reading and sorting it again. Worker processes are not bound to partitions, so
any of them may meet any core: what one has written, all others map into their memory.

    <Spark's folder of blocks>/watersmeet/<query>/<join and core>/<id>.chunk    tuples, as one Arrow IPC message
                                                                 /<id>.index    keys of a run, sorted
                                                 /results/<id>.arrow            results on their way to the next stage

Ids are unique to the attempt that made them, and a file is complete before it has its name: whoever finds it may use
it, and a micro-batch that is run again never meets anything that belongs to the failed attempt. A file that is missing
is made again. So anything may be deleted at any time, and is: what the manifest of a core does not name goes with
its next micro-batch, a query that has been silent for `SILENT_SECONDS` is cleared away by any other, and Spark deletes
the whole folder with the application.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.engine.results import Results

Array = np.ndarray

SILENT_SECONDS = 1800.0
_HEADER = 1024  # bytes before the first array of an index file
_ALIGN = 64


def new_id() -> str:
    return uuid.uuid4().hex


def application_folder() -> Path:
    """Where Spark keeps blocks of this application on this host; it deletes them with the application.

    (Its folder for an application's files, SparkFiles, will not do: a standalone worker leaves it behind.)"""
    from pyspark import SparkFiles

    if SparkFiles._is_running_on_worker:
        for root in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
            if os.path.isdir(root) and os.access(root, os.W_OK):
                return Path(root).resolve() / "watersmeet"
    return Path(tempfile.gettempdir()) / f"watersmeet-{os.getuid()}"


def query_folder() -> Path:
    """The folder of the query that this task belongs to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return application_folder() / (query or "no-query")


class CoreFiles:
    """The files of one core of one query."""

    def __init__(self, query: Path, core: str):
        self._query = query
        self._folder = query / core
        self._folder.mkdir(parents=True, exist_ok=True)

    def chunk(self, id: str, schema: pa.Schema) -> pa.RecordBatch | None:
        message = _mapped(self._folder / f"{id}.chunk")
        return None if message is None else pa.ipc.read_record_batch(message, schema)

    def put_chunk(self, id: str, batch: pa.RecordBatch) -> None:
        _write(self._folder / f"{id}.chunk", [memoryview(batch.serialize())])

    def arrays(self, id: str) -> dict[str, Array] | None:
        """The arrays of an index file, mapped copy-on-write: kernels want arrays that they may write to."""
        try:
            with open(self._folder / f"{id}.index", "rb") as file:
                whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except FileNotFoundError:
            return None
        length = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + length])
        return {
            name: np.frombuffer(whole, dtype, int(np.prod(shape)), offset).reshape(shape)
            for name, (dtype, shape, offset) in header.items()
        }

    def put_arrays(self, id: str, arrays: dict[str, Array]) -> None:
        at = _HEADER
        header, parts = {}, [memoryview(b"")]
        for name, array in arrays.items():
            header[name] = array.dtype.str, list(array.shape), at
            gap = -array.nbytes % _ALIGN
            parts += [pa.py_buffer(np.ascontiguousarray(array)), memoryview(bytes(gap))]
            at += array.nbytes + gap
        text = json.dumps(header).encode()
        assert len(text) <= _HEADER - 8
        parts[0] = memoryview((len(text).to_bytes(8, "little") + text).ljust(_HEADER))
        _write(self._folder / f"{id}.index", [memoryview(part) for part in parts])

    def keep(self, ids: set[str]) -> None:
        """Delete the files of all other ids."""
        for path in self._folder.iterdir():
            # An unfinished one may belong to another attempt, which still writes it.
            if path.stem not in ids and (path.suffix in (".chunk", ".index") or _silent(path)):
                path.unlink(missing_ok=True)
        results = self._query / "results"
        for path in results.iterdir() if results.exists() else ():
            if _silent(path):  # those of an attempt that failed: nobody takes them
                path.unlink(missing_ok=True)
        os.utime(self._query)


class FiledResults(Results):
    """Results that are written to a file as they come, so that they need no memory."""

    def __init__(self, query: Path, schema: pa.Schema, left_only: bool):
        super().__init__("rows", schema, left_only)
        self._folder = query / "results"
        self._stream: pa.RecordBatchStreamWriter | None = None

    def _take(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path = self._folder / f"{new_id()}.arrow"
            self._file = pa.OSFile(str(self._path), "wb")
            self._stream = pa.ipc.new_stream(self._file, self._schema)
        self._stream.write_batch(batch)

    def close(self) -> str | None:
        """The path of the file; None if there are no results."""
        if self._stream is None:
            return None
        self._stream.close()
        self._file.close()
        return str(self._path)


def take_results(path: str) -> list[pa.RecordBatch]:
    """The results at a path, by reference; the file has no name any more."""
    whole = pa.memory_map(path)
    os.unlink(path)
    return list(pa.ipc.open_stream(whole))


_swept: set[Path] = set()


def sweep(query: Path) -> None:
    """Clear away the folders of silent queries; once a worker process and query."""
    if query in _swept:
        return
    _swept.add(query)
    for folder in query.parent.iterdir():
        if folder != query and _silent(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _silent(path: Path) -> bool:
    """Has it not been written to for long?"""
    try:
        return path.stat().st_mtime < time.time() - SILENT_SECONDS
    except FileNotFoundError:
        return False


def _mapped(path: Path) -> pa.Buffer | None:
    try:
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError:
        return None


def _write(path: Path, parts: list[memoryview]) -> None:
    unfinished = path.with_name(f"{path.name}.{new_id()}")
    with open(unfinished, "wb", buffering=0) as file:
        for part in parts:
            while part.nbytes:
                part = part[file.write(part) :]
    os.rename(unfinished, path)
