"""Merging runs, so that a side keeps few.

Every micro-batch adds a run, and a probe searches all runs in its reach. Runs are put on levels by size, each level
`FAN_IN` times as large as the one below; when a level has `FAN_IN` runs they become one, on a level above. A tuple is
merged O(log window / batch) times, and a side has O(FAN_IN log window / batch) runs.

A run is dropped whole, so a merged one must not span much: half a window, as a subwindow of the embedded engine does.

What is merged is the sorted keys. The tuples stay in the chunks in which they came, unless these are small
(limits.py): the state store is not written again for tuples that it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
import pyarrow as pa

from watersmeet.index.sorted.bisort import BISort, BISortStructure
from watersmeet.query.windows import Side
from watersmeet.spark.canonical import chunk_name, run_name
from watersmeet.spark.limits import Limits
from watersmeet.spark.packs import joined, portions
from watersmeet.window.chain import Subwindow
from watersmeet.window.ticks import Span

FAN_IN = 4


@dataclass(frozen=True)
class Chunk:
    """Tuples, and whether the state has them already."""

    id: str
    batch: pa.RecordBatch
    stored: bool


@dataclass(frozen=True)
class OpenRun:
    """A run and its contents."""

    id: str
    side: Side
    chunks: tuple[Chunk, ...]
    sub: Subwindow
    flags: bytes | None = None  # as the state has them
    stored: bool = True

    @property
    def level(self) -> int:
        return (self.sub.size.bit_length() - 1) // (FAN_IN.bit_length() - 1)


def compact(runs: list[OpenRun], index: BISort, longest: int, limits: Limits, place: str = "") -> list[OpenRun]:
    """The runs of one side, merged where a level is full and the result spans at most `longest` ticks.

    place: of what is made here, among all that this micro-batch makes.
    """
    for number in count():
        group = _full_level(runs, longest)
        if not group:
            break
        at = runs.index(group[0])
        kept = [run for run in runs if run not in group]
        runs = [*kept[:at], merged(group, index, limits, f"{place}m{number}"), *kept[at:]]
    return runs


def _full_level(runs: list[OpenRun], longest: int) -> list[OpenRun]:
    levels: dict[int, list[OpenRun]] = {}
    for run in runs:
        levels.setdefault(run.level, []).append(run)
    for level in sorted(levels):
        for start in range(len(levels[level]) - FAN_IN + 1):
            group = levels[level][start : start + FAN_IN]
            span = _union([run.sub.span for run in group])
            if span.greatest - span.least <= longest:
                return group
    return []


def merged(runs: list[OpenRun], index: BISort, limits: Limits, place: str = "") -> OpenRun:
    """O(rows) moves of keys, and a copy of small chunks."""
    structure = index.structure()
    first = 0
    for run in runs:
        part = run.sub.structure
        assert isinstance(part, BISortStructure)
        structure.insert(part.entries(), first)
        first += run.sub.size
    structure.seal()
    subs = [run.sub for run in runs]
    settled = np.concatenate([sub.settled for sub in subs]) if subs[0].keeps_settled else None
    ticks = np.concatenate([sub.ticks for sub in subs])
    whole = Subwindow.adopted(0, structure, ticks, _union([sub.span for sub in subs]), settled)
    chunks = _fewer([chunk for run in runs for chunk in run.chunks], ticks, limits, place)
    return OpenRun(run_name([chunk.id for chunk in chunks]), runs[0].side, chunks, whole, stored=False)


def _fewer(chunks: list[Chunk], ticks: np.ndarray, limits: Limits, place: str) -> tuple[Chunk, ...]:
    """Small neighbours joined."""
    answer: list[Chunk] = []
    small: list[Chunk] = []
    first = 0  # row with which those that are small begin
    for chunk in [*chunks, None]:
        if chunk is not None and chunk.batch.nbytes < limits.small:
            small.append(chunk)
            continue
        for some in portions([each.batch for each in small], limits.chunk):
            group, small = small[: len(some)], small[len(some) :]
            stop = first + sum(batch.num_rows for batch in some)
            if len(group) > 1:
                group = [Chunk(chunk_name(f"{place}.{len(answer)}", ticks[first:stop]), joined(some), False)]
            answer += group
            first = stop
        small = []
        if chunk is not None:
            answer.append(chunk)
            first += chunk.batch.num_rows
    return tuple(answer)


def _union(spans: list[Span]) -> Span:
    follow = all(a.greatest <= b.least for a, b in zip(spans, spans[1:], strict=False))
    in_order = follow and all(span.in_order for span in spans)
    return Span(min(s.least for s in spans), max(s.greatest for s in spans), in_order)
