"""Structures by themselves, without windows and streams: what an insert costs, and what a probe.

A subwindow is filled from empty in batches that were sorted beforehand, after a predecessor of the same distribution
has been (RaP-Table takes its splitters from there), sealed, and probed with batches of bands or equalities. Times are
per tuple, of one thread, the best of the rounds; structures take turns. What is found is compared: the number of pairs
of every measurement, and a checksum of some.

    structures   every structure, by batch, selectivity and size of the subwindow
    shapes       one structure at a time, by its partitions, leaves or fan-out
    convergence  RaP-Table without readjustment: how uneven its partitions are, adjustment by adjustment
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.index.data import KEYS, keys
from watersmeet.index import BISort, BTree, IMTree, PIMTree, RaPTable, WiBTree
from watersmeet.index.batches import Entries, Probes
from watersmeet.workers import Workers

Row = dict[str, Any]
Contenders = dict[tuple[str, str], Any]  # (name, form) -> index

PAPER_BUFFER = "buffer of 1K"
CONTENDERS: Contenders = {
    ("bisort", ""): BISort(),
    ("bisort", PAPER_BUFFER): BISort(buffer_rows=1 << 10),
    ("rap_table", ""): RaPTable(),
    ("wib_tree", ""): WiBTree(),
    ("btree", ""): BTree(),
    ("im_tree", ""): IMTree(),
    ("pim_tree", ""): PIMTree(),
}
ADJUSTMENTS = 6
CONVERGING = ("uniform", "gaussian", "gamma 3, 3", "rank-size", "multimodal")
_CHECKED = 1 << 20  # pairs whose checksum is taken
_ALONE = Workers(1)
_SORTED = BISort()  # batches are the same for all ordered indexes


@dataclass(frozen=True)
class Subwindow:
    """Keys to fill a subwindow with: uniform over a domain."""

    rows: int
    domain: int = KEYS

    def keys(self, start: int, rows: int, stream: int) -> np.ndarray:
        return keys("uniform", np.arange(start, start + rows), stream, self.domain)

    def entries(self, batch: int, stream: int = 0) -> list[Entries]:
        return [entries(self.keys(start, batch, stream)) for start in range(0, self.rows, batch)]

    def probes(self, batch: int, count: int, band: int) -> list[Probes]:
        return [probes(self.keys(start, batch, 2), band) for start in range(0, count, batch)]


def entries(values: np.ndarray) -> Entries:
    return _SORTED.entries(None, values, None, values.size, _ALONE)


def probes(values: np.ndarray, band: int) -> Probes:
    return _SORTED.probes(None, (values - band,), (values + band,), None, values.size, _ALONE)


def filled(index: Any, batches: list[Entries], like: Any = None) -> tuple[Any, float]:
    """A structure with these batches in it, and the seconds that took."""
    structure, row = index.structure(like), 0
    start = perf_counter()
    for batch in batches:
        structure.insert(batch, row)
        row += batch.beyond
    return structure, perf_counter() - start


def found(structure: Any, batches: list[Probes]) -> tuple[int, float]:
    """How many pairs `find` makes of these probes, and the seconds that took."""
    pairs = 0
    start = perf_counter()
    for batch in batches:
        for rows, _ in structure.find(batch, 0, batch.size, None):
            pairs += rows.size
    return pairs, perf_counter() - start


def counted(structure: Any, batches: list[Probes]) -> tuple[int, float]:
    """The same by `count`."""
    start = perf_counter()
    pairs = sum(structure.count(batch, 0, batch.size, None) for batch in batches)
    return pairs, perf_counter() - start


def checksum(structure: Any, batch: Probes, matches: float) -> Checksum:
    some = max(1, min(batch.size, int(_CHECKED / max(matches, 1))))
    total = Checksum()
    for rows, partners in structure.find(batch, 0, some, None):
        total += Checksum.of(rows, partners)
    return total


def warmed(index: Any) -> Any:
    """The index, after a structure of it has gone through all that is timed, so that it is compiled."""
    some = Subwindow(1 << 12)
    structure = filled(index, some.entries(some.rows))[0]
    for start in range(0, 8 * 64, 64):
        structure.insert(entries(some.keys(start, 64, 1)), some.rows + start)
    structure.seal()
    asked = some.probes(64, 64, KEYS >> 8)
    found(structure, asked)
    counted(structure, asked)
    return index


class Structures:
    """Measures structures; `record` gets the rows."""

    def __init__(self, rounds: int, record: Callable[[Row], None]) -> None:
        self.rounds = rounds
        self.record = record

    def inserts(
        self, part: str, subwindow: Subwindow, batches: list[int], contenders: Contenders, setting: str = "insert"
    ) -> dict[Any, Any]:
        """Fill a subwindow in batches of each size, in turns; returns those of the last size, sealed."""
        last = subwindow.entries(batches[-1], stream=1)
        before = {which: filled(warmed(index), last)[0] for which, index in contenders.items()}
        structures: dict[Any, Any] = {}
        for batch in batches:
            prepared = subwindow.entries(batch)
            times: dict[Any, list[float]] = {}
            for _ in range(self.rounds):
                for which, index in contenders.items():
                    if which[1] == PAPER_BUFFER and batch < subwindow.rows >> 10:
                        continue  # it moves the whole subwindow for every batch, which would take minutes
                    structures.pop(which, None)
                    structures[which], seconds = filled(index, prepared, before[which])
                    times.setdefault(which, []).append(seconds / subwindow.rows)
            self.store(part, subwindow.rows, batch, setting, None, times)
        for structure in structures.values():
            structure.seal()
        return structures

    def lookups(
        self, part: str, subwindow: Subwindow, batch: int, band: int, matches: float, what: str,
        structures: dict[Any, Any], count: int, ways: tuple[str, ...] = ("find", "count"),
    ) -> None:  # fmt: skip
        """Probe all structures with the same batches, and compare what they find."""
        asked = subwindow.probes(batch, max(count, batch), band)
        total = sum(one.size for one in asked)
        answers: dict[Any, tuple[int, Checksum]] = {}
        for way, run in (("find", found), ("count", counted)):
            if way not in ways:
                continue
            times: dict[Any, list[float]] = {}
            for _ in range(self.rounds):
                for which, structure in structures.items():
                    if which not in answers:
                        answers[which] = run(structure, asked)[0], checksum(structure, asked[0], matches)
                    pairs, seconds = run(structure, asked)
                    times.setdefault(which, []).append(seconds / total)
                    agree(f"{part}, {what}, {way}", which, pairs, answers)
            setting = f"{what}, {way}"
            results = next(iter(answers.values()))[0] / total
            self.store(part, subwindow.rows, batch, setting, matches, times, results_per_tuple=results)

    def store(
        self, part: str, rows: int, batch: int, setting: str, matches: float | None, times: dict[Any, list[float]],
        **more: Any,
    ) -> None:  # fmt: skip
        for (name, form), seconds in times.items():
            self.record(
                {"part": part, "window": rows, "batch": batch, "setting": setting, "matches": matches}
                | {"contender": name, "form": form}
                | {"ns_per_tuple": min(seconds) * 1e9, "rounds": [one * 1e9 for one in seconds]}
                | more
            )


def agree(where: str, which: Any, pairs: int, answers: dict[Any, tuple[int, Checksum]]) -> None:
    """All have found the same as the first one."""
    name, (expected, check) = next(iter(answers.items()))
    if pairs != expected or answers[which][1] != check:
        raise AnswersDiffer(
            f"{where}: {' '.join(which)} finds {pairs} pairs, {answers[which][1]}; "
            f"{' '.join(name)} {expected}, {check} (pairs:checksum of some)"
        )


def shapes(rows: int) -> Iterator[tuple[str, Contenders]]:
    """Each structure with some values of the parameter that decides its shape."""
    yield "partitions", {
        ("rap_table", f"{rows // share} partitions"): RaPTable(partitions=max(rows // share, 1))
        for share in (16, 64, 256, 1024)
    }
    yield "leaves", {("wib_tree", f"leaves of {size}"): WiBTree(leaf_rows=size) for size in (16, 64, 256, 1024)}
    yield "fan-out", {("btree", f"fan-out {size}"): BTree(fan_out=size) for size in (8, 16, 32, 64, 128)}
    yield "partitions", {("bisort", f"partitions of {size}"): BISort(partition_rows=size) for size in (4, 8, 16, 64)}


def convergence(rows: int, partitions: int, batch: int) -> Iterator[Row]:
    """A subwindow after the other, the first one divided evenly over all keys."""
    index = RaPTable(partitions=partitions, readjust=False)
    even = entries(np.arange(rows) * (KEYS // rows))
    for distribution in CONVERGING:
        table, errors = filled(index, [even])[0], []
        for adjustment in range(ADJUSTMENTS):
            stream = range(adjustment * rows, (adjustment + 1) * rows, batch)
            batches = [entries(keys(distribution, np.arange(start, start + batch), 3)) for start in stream]
            table = filled(index, batches, table)[0]
            errors.append(table.partition_error())
        yield {
            "part": "convergence", "window": rows, "batch": batch, "setting": distribution, "contender": "rap_table",
            "form": f"{partitions} partitions", "partitions": partitions, "errors": errors,
        }  # fmt: skip
        gc.collect()
