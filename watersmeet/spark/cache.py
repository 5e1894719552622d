"""Files in which the workers of a host share what they know of the state.

State is the truth; a file only saves reading and sorting it again. Worker processes are not bound to partitions, so
any of them may meet any core: what one has written, all others map into their memory.

    <Spark's folder of blocks>/watersmeet/<query>/<core>/<id>.chunk        tuples, as one Arrow IPC message
                                                        /<id>.index        keys of a run, sorted
                                         /results/<id>.arrow               results on their way to the next stage
                                         .lock                             held by those who work for the query

A core has its folder to itself, even if the query has the same join twice: its manifest says which. Ids are unique to
the attempt that made them, and a file is complete before it has its name: whoever finds it may use it, and a
micro-batch that is run again never meets anything that belongs to the failed attempt. A file that is missing is made
again. So any of them may be deleted at any time, and is: what the manifest of a core does not name and an earlier
micro-batch has made goes with its next micro-batch, and Spark deletes the whole folder with the application.

Only results are in no other place, until the next stage has taken them. They go with a later micro-batch of their
query: then all tasks of theirs have ended. And a query that has been silent for `SILENT_SECONDS` is cleared away by any
other, but not while a task of it works, or waits for results: tasks share a lock, which the sweep must have alone.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.results import Results
from watersmeet.query.windows import Side
from watersmeet.spark.late import late_rows, results_among_late
from watersmeet.spark.task import batch_id, local_property

Array = np.ndarray

SILENT_SECONDS = 1800.0
_HEADER = 1024  # bytes before the first array of an index file
_ALIGN = 64


def new_id() -> str:
    """Of nothing else; it begins with the number of the micro-batch."""
    return f"{batch_id() or 0}-{uuid.uuid4().hex}"


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
    return application_folder() / (local_property("sql.streaming.queryId") or "no-query")


class CoreFiles:
    """The files of one core of one query."""

    def __init__(self, query: Path, core: str):
        self._query = query
        self._folder = query / core
        self._folder.mkdir(parents=True, exist_ok=True)
        _touch(query)

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
        """Delete the files of all other ids that an earlier micro-batch has made.

        Those of this one may belong to another attempt: to one that still writes them, or to the one that counts.
        """
        now = batch_id()
        wanted = {f"{id}.{kind}" for id in ids for kind in ("chunk", "index")}  # an id may have dots itself
        for path in _in_folder(self._folder):
            if path.name not in wanted and _of_earlier_batch(path, now):
                path.unlink(missing_ok=True)
        for path in _in_folder(self._query / "results"):
            if _of_earlier_batch(path, now):  # those of an attempt that failed: nobody takes them
                path.unlink(missing_ok=True)
        _touch(self._query)


class FiledResults(Results):
    """Results that are written to a file as they come, so that they need no memory."""

    def __init__(self, query: Path, schema: pa.Schema, left_only: bool, filed: pa.Schema | None = None):
        super().__init__("rows", schema, left_only)
        self._filed = schema if filed is None else filed
        self._folder = query / "results"
        self._stream: pa.RecordBatchStreamWriter | None = None

    def _take(self, batch: pa.RecordBatch) -> None:
        self._write(batch if self._filed is self._schema else results_among_late(batch, self._filed))

    def late(self, side: Side, batches: list[pa.RecordBatch]) -> None:
        """Late rows, which are no results but come out with them."""
        for batch in batches:
            self._write(late_rows(side, batch, self._filed))

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._stream is None:
            self._path = self._folder / f"{new_id()}.arrow"
            self._file = _made(self._path, lambda path: pa.OSFile(str(path), "wb"))
            self._stream = pa.ipc.new_stream(self._file, self._filed)
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


# -- clearing away ---------------------------------------------------------------------------------------------------


@contextmanager
def in_use(query: Path) -> Iterator[None]:
    """While this lasts, no sweep touches the folder of the query."""
    with _lock(query) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
        except OSError:  # a file system without locks: there, sweeps do nothing
            pass
        yield


_swept: set[Path] = set()


def sweep(query: Path) -> None:
    """Clear away the folders of silent queries; once a worker process and query."""
    if query in _swept:
        return
    _swept.add(query)
    for folder in _in_folder(query.parent):
        if folder != query and folder.is_dir() and _silent(folder):
            _remove(folder)


def _remove(folder: Path) -> None:
    """Unless it is in use."""
    with _lock(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        if _silent(folder):  # somebody may just have been here
            shutil.rmtree(folder, ignore_errors=True)


def _lock(query: Path) -> Any:
    """Beside the folder, not in it: it stays when the folder goes, so all who wait for it wait for the same."""
    return _made(query.with_name(f"{query.name}.lock"), lambda path: open(path, "ab"))


def _silent(path: Path) -> bool:
    """Has it not been written to for long?"""
    try:
        return path.stat().st_mtime < time.time() - SILENT_SECONDS
    except FileNotFoundError:
        return False


def _of_earlier_batch(path: Path, now: int | None) -> bool:
    """By its id. None: nobody knows which one it is now, so by its age."""
    made = path.name.split("-")[0]
    return int(made) < now if now is not None and made.isdigit() else _silent(path)


def _touch(folder: Path) -> None:
    try:
        os.utime(folder)
    except FileNotFoundError:
        pass


# -- files, in folders that may vanish -------------------------------------------------------------------------------


def _in_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _made(path: Path, make: Any) -> Any:
    """Make a file, and its folder if there is none."""
    for _ in range(3):
        try:
            return make(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
    return make(path)


def _mapped(path: Path) -> pa.Buffer | None:
    try:
        with pa.memory_map(str(path)) as file:
            return file.read_buffer()
    except FileNotFoundError:
        return None


def _write(path: Path, parts: list[memoryview]) -> None:
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with _made(unfinished, lambda path: open(path, "wb", buffering=0)) as file:
        for part in parts:
            while part.nbytes:
                part = part[file.write(part) :]
    try:
        os.rename(unfinished, path)
    except FileNotFoundError:  # deleted with its folder: then it will be made again when it is needed
        pass
