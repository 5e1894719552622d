"""The state of one core: a manifest and chunks of tuples.

    manifest   one JSON text: the plan, where the core has its files, and of each run its id, its chunks, its rows and
               the ticks that it spans
    chunks     chunk id -> tuples, with numbers in few bytes (narrow.py)
    flags      run id -> a bit a row: settled (joins that must know which tuples had no partner)

A *run* is a sealed subwindow. It is written once and never changed, but for its flags. Its tuples are in the state; its
sorted keys are not: they are computed from the tuples, and lie in a file (cache.py).
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from watersmeet.query.windows import Side
from watersmeet.spark.cache import new_id
from watersmeet.spark.spec import VERSION, JoinSpec
from watersmeet.window.ticks import Span

_DAMAGED = "its checkpoint is damaged; start with a new one"
_ID = StructType([StructField("id", StringType(), False)])
_TEXT = StructType([StructField("text", StringType(), False)])
_BLOB = StructType([StructField("blob", BinaryType(), False)])


@dataclass(frozen=True)
class Run:
    id: str
    side: Side
    chunks: tuple[tuple[str, int], ...]  # (id, rows) of each, in the order of rows
    span: Span

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.chunks)

    def to_json(self) -> list[Any]:
        return [self.id, self.side, [list(chunk) for chunk in self.chunks], [int(x) for x in self.span]]

    @staticmethod
    def from_json(value: list[Any]) -> Run:
        id, side, chunks, (least, greatest, in_order) = value
        return Run(id, side, tuple((c, n) for c, n in chunks), Span(least, greatest, bool(in_order)))


@dataclass(frozen=True)
class Manifest:
    place: str  # the name of the core's folder of files (cache.py)
    runs: tuple[Run, ...] = ()
    timer: int | None = None  # the one that is set, in milliseconds

    @property
    def run_ids(self) -> set[str]:
        return {run.id for run in self.runs}

    @property
    def chunk_ids(self) -> set[str]:
        return {id for run in self.runs for id, _ in run.chunks}


class CoreState:
    """The state store, as one core sees it."""

    def __init__(self, handle: StatefulProcessorHandle, parts: tuple[str, ...] = ()):
        self._handle = handle
        self._manifest = handle.getValueState("manifest", _TEXT)
        self._chunks = handle.getMapState("chunks", _ID, _BLOB)
        self._flags = handle.getMapState("flags", _ID, _BLOB)
        self.part = ""
        self.parts = {part: self._of(part) for part in parts}

    def _of(self, part: str) -> CoreState:
        """Another store of the same core: a manifest of its own; ids of chunks and runs are, too."""
        found = copy(self)
        found.part = part
        found._manifest = self._handle.getValueState(f"manifest_{part}", _TEXT)
        return found

    def read(self, spec: JoinSpec) -> Manifest:
        """The manifest; ValueError if the state belongs to another join."""
        found = self._manifest.get()
        if found is None:
            return Manifest(new_id())
        value = json.loads(found[0])
        _check(value, spec)
        return Manifest(value["place"], tuple(map(Run.from_json, value["runs"])), value["timer"])

    def write(self, spec: JoinSpec, manifest: Manifest) -> None:
        value = {
            "version": VERSION,
            "plan": spec.identity,
            "place": manifest.place,
            "timer": manifest.timer,
            "runs": [run.to_json() for run in manifest.runs],
        }
        self._manifest.update((json.dumps(value, separators=(",", ":")),))

    def chunk(self, id: str) -> bytes:
        found = self._chunks.getValue((id,))
        if found is None:
            raise RuntimeError(f"the state has lost chunk {id}: {_DAMAGED}")
        return bytes(found[0])

    def put_chunk(self, id: str, blob: bytes) -> None:
        self._chunks.updateValue((id,), (blob,))

    def remove_chunk(self, id: str) -> None:
        self._chunks.removeKey((id,))

    def flags(self, id: str) -> bytes:
        found = self._flags.getValue((id,))
        if found is None:
            raise RuntimeError(f"the state has lost the flags of run {id}: {_DAMAGED}")
        return bytes(found[0])

    def put_flags(self, id: str, flags: bytes) -> None:
        self._flags.updateValue((id,), (flags,))

    def remove_flags(self, id: str) -> None:
        self._flags.removeKey((id,))

    def set_timer(self, old: int | None, new: int | None) -> None:
        if old != new:
            if old is not None:
                self._handle.deleteTimer(old)
            if new is not None:
                self._handle.registerTimer(new)


def check_rows(id: str, found: int, rows: int) -> None:
    """RuntimeError if a chunk is not what the manifest says it is."""
    if found != rows:
        raise RuntimeError(f"chunk {id} of the state has {found} rows and should have {rows}: {_DAMAGED}")


def _check(value: dict[str, Any], spec: JoinSpec) -> None:
    if value["version"] != VERSION:
        raise ValueError(
            f"the checkpoint has state of version {value['version']}, this release of Watersmeet reads version "
            f"{VERSION}; start with a new checkpoint"
        )
    now = spec.identity
    changed = [f"{name} was {value['plan'].get(name)!r}, now is {now[name]!r}"
               for name in now if value["plan"].get(name) != now[name]]  # fmt: skip
    if changed:
        raise ValueError(
            f"the checkpoint belongs to another join: {'; '.join(changed)}. Restore what it was, or start with a new "
            f"checkpoint"
        )
