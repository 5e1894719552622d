"""Joins over `last(n)` with one index or another: races of whole joins, one thread, positions out.

Every index is a lane (see race.py): all of them take turns on the same rows, and must give the same pairs. Times are of
whole pushes: keys, sort, probe, store, expire. `auto` is a lane of its own only where it picks something that is not in
the race already.

A nested loop would need hours to fill a large window, because filling it is joining: for it one stream fills alone, and
a few tuples of the other are joined with it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import watersmeet as wm
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.index.data import Streams
from watersmeet.bench.race import FILL_ROWS, Lane, Ours, agree
from watersmeet.bench.rounds import median
from watersmeet.engine.core import JoinCore
from watersmeet.index import BISort, BTree, FrozenBTree, Hash, IMTree, PIMTree, RaPTable, WiBTree

Row = dict[str, Any]

ORDERED: dict[str, Any] = {
    index.name: index for index in (BISort(), RaPTable(), WiBTree(), BTree(), FrozenBTree(), IMTree(), PIMTree())
}
TREES = {name: ORDERED[name] for name in ("btree", "im_tree", "pim_tree")}
EQUALITY = {"hash": Hash(), **ORDERED}
LOOP = "nested_loop"
AUTO = "auto"


class Joined(Ours):
    """A join of two streams with a given index."""

    def __init__(self, streams: Streams, index: Any, **options: Any) -> None:
        self.streams, self.output = streams, "pairs"
        schemas = {"left_schema": streams.schema, "right_schema": streams.schema}
        self.join = wm.StreamJoin(
            streams.on, streams.window, output="pairs", index=index, cores=1, **schemas, **options
        )

    @property
    def chosen(self) -> Any:
        """The index in use, as an object."""
        assert self.join._core is not None
        return self.join._core.index

    def structures(self) -> list[Any]:
        """The structures of both windows."""
        assert isinstance(self.join._core, JoinCore)
        return [sub.structure for chain in self.join._core.chains.values() for sub in chain.subwindows]

    def bytes_per_tuple(self) -> float:
        """Bytes of both indexes for every tuple that the windows hold, expired ones not counted."""
        metrics, window = self.join.metrics, self.streams.window
        live = min(metrics.stored_left, window.n) + min(metrics.stored_right, window.n_right)
        return metrics.index_bytes / live


@dataclass
class Joins:
    """Runs races; `record` gets a row for each lane.

    turn: seconds that a lane is timed in a round, at least; it is also timed for half a window.
    """

    turn: float
    rounds: int
    record: Callable[[Row], None]
    autos: list[Row] = field(default_factory=list)  # of each race with `auto`: see auto_ratios

    def race(
        self, part: str, streams: Streams, indexes: dict[str, Any], setting: str = "", auto: bool = False,
        fill_step: int | None = None, options: dict[str, dict[str, Any]] | None = None, **more: Any,
    ) -> dict[str, float]:  # fmt: skip
        """All indexes over the same streams; returns their tuples/s. `options` are a lane's, for StreamJoin."""
        same, lanes = self._enter(streams, indexes, setting, auto, fill_step, options)
        for _ in range(self.rounds):
            self._turns(lanes)
        return self._finish(part, streams, setting, auto, same, lanes, more)

    def races(self, part: str, streams: dict[str, Streams], indexes: dict[str, Any]) -> None:
        """All indexes, and `auto`, over each of several streams, by setting; of a round each has a turn in each race,
        so that speeds in different ones can be compared."""
        entered = {setting: self._enter(one, indexes, setting, auto=True) for setting, one in streams.items()}
        for _ in range(self.rounds):
            for _, lanes in entered.values():
                self._turns(lanes)
        for setting, (same, lanes) in entered.items():
            self._finish(part, streams[setting], setting, True, same, lanes, {})

    def _enter(
        self, streams: Streams, indexes: dict[str, Any], setting: str, auto: bool, fill_step: int | None = None,
        options: dict[str, dict[str, Any]] | None = None,
    ) -> tuple[str | None, dict[str, Lane]]:  # fmt: skip
        """The lanes of a race, filled and warm, and which of them `auto` is, if it is none of its own."""
        contenders = dict(indexes)
        same = self.same_as_auto(streams, indexes) if auto else None
        if auto and same is None:
            contenders[AUTO] = AUTO
        window = streams.most_rows
        step = fill_step or max(streams.batch_rows, min(window // 4, FILL_ROWS))
        lanes = {}
        for name, index in contenders.items():
            joined = Joined(streams, index, **(options or {}).get(name, {}))
            lane = lanes[name] = Lane(name, setting, streams, joined)
            lane.fill(window + window // 4, step)
            lane.turn(self.turn / 2, least_pairs=1, timed=False)
        return same, lanes

    def _turns(self, lanes: dict[str, Lane]) -> None:
        for lane in lanes.values():
            assert isinstance(lane.workload, Streams)
            lane.turn(self.turn, least_rows=lane.workload.most_rows // 2)

    def _finish(
        self, part: str, streams: Streams, setting: str, auto: bool, same: str | None, lanes: dict[str, Lane], more: Row
    ) -> dict[str, float]:
        checked = agree(list(lanes.values()))
        speeds = {name: lane.speed for name, lane in lanes.items()}
        about = {"part": part, "setting": setting, "checked_pairs": checked.pairs} | more
        for name, lane in lanes.items():
            assert isinstance(lane.contender, Joined)
            size = lane.contender.bytes_per_tuple()
            self.record(about | lane.result() | {"contender": name, "form": "", "bytes_per_tuple": size})
            if name == same:
                self.record(about | lane.result() | {"contender": AUTO, "form": name, "bytes_per_tuple": size})
        if auto:
            self.autos.append(
                {"part": part, "setting": setting, "window": streams.window_rows, "batch": streams.batch_rows}
                | {"picks": same or lanes[AUTO].contender.chosen.name}  # type: ignore[attr-defined]
                | auto_ratios({name: lane.speeds for name, lane in lanes.items()}, same or AUTO)
            )
        lanes.clear()
        gc.collect()
        return speeds

    def same_as_auto(self, streams: Streams, indexes: dict[str, Any]) -> str | None:
        """Which of the indexes `auto` is, if any."""
        chosen = Joined(streams, AUTO).chosen
        return next((name for name, index in indexes.items() if index == chosen), None)

    def loop(self, part: str, streams: Streams) -> float:
        """Tuples/s of a nested loop over a full left window; its answers must be BI-Sort's."""
        loop, index = Joined(streams, LOOP), Joined(streams, BISort())
        step, filled = min(streams.window_rows, FILL_ROWS), 0
        while filled < streams.window_rows + streams.window_rows // 4:
            for one in (loop, index):
                one.push("left", streams.rows("left", filled, step))
            filled += step
        done, rows = 0, 8
        speeds: list[tuple[int, float]] = []
        while sum(count / speed for count, speed in speeds) < 2 * self.turn or done < 16:
            batch = streams.rows("right", done, rows)
            expected = Checksum.of(*index.pairs(index.push("right", batch)))
            start = perf_counter()
            pairs = loop.push("right", batch)
            seconds = perf_counter() - start
            if Checksum.of(*loop.pairs(pairs)) != expected:
                raise AnswersDiffer(f"{part}, window {streams.window_rows}: the nested loop differs from BI-Sort")
            done += rows
            if done > rows:  # the first may have compiled
                speeds.append((rows, rows / seconds))
            rows = max(8, min(int(rows / seconds * self.turn / 2), streams.batch_rows))
        fastest = max(speed for _, speed in speeds)
        self.record(
            {"part": part, "setting": "", "workload": streams.name, "window": streams.window_rows}
            | {"batch": streams.batch_rows, "contender": LOOP, "form": "few tuples", "tuples_per_s": fastest}
            | {"rounds": [speed for _, speed in speeds], "results_per_tuple": None, "bytes_per_tuple": None}
        )
        return fastest

    def memory(self, part: str, streams: Streams, indexes: dict[str, Any]) -> None:
        """The most bytes a tuple that an index takes while its window moves on by its own length."""
        for name, index in indexes.items():
            lane = Lane(name, "memory", streams, Joined(streams, index))
            lane.fill(streams.window_rows)
            assert isinstance(lane.contender, Joined)
            most, end = 0.0, lane.position + streams.window_rows
            while lane.position < end:
                lane.fill(lane.position + 1)  # a batch of each side
                most = max(most, lane.contender.bytes_per_tuple())
            self.record(
                {"part": part, "setting": "", "workload": streams.name, "window": streams.window_rows, "form": ""}
                | {"batch": streams.batch_rows, "contender": name, "bytes_per_tuple": most}
            )

    # -- what the steps of a join cost ------------------------------------------------------------------

    def steps(self, streams: Streams, indexes: dict[str, Any]) -> None:
        """Where the time of a push goes; merges are taken out of the steps that they are done in."""
        lanes, clocks = {}, {}
        for name, index in indexes.items():
            lane = lanes[name] = Lane(name, "steps", streams, Joined(streams, index))
            window = streams.window_rows
            lane.fill(window + window // 4, max(streams.batch_rows, window // 16))
            lane.turn(self.turn / 2, least_pairs=1, timed=False)
            assert isinstance(lane.contender, Joined)
            clocks[name] = clock = Clock(lane.contender.join.metrics.seconds)
            for structure in lane.contender.structures():
                clock.watch(structure)
        laps: dict[str, list[Row]] = {name: [] for name in lanes}
        for _ in range(self.rounds):
            for name, lane in lanes.items():
                with clocks[name].lap() as lap:
                    rows = lane.rows_in
                    speed = lane.turn(self.turn, least_rows=streams.window_rows // 4)
                    rows = lane.rows_in - rows
                rest = max(rows / speed - sum(lap.values()), 0.0)
                laps[name].append({step: seconds / rows * 1e9 for step, seconds in (lap | {"other": rest}).items()})
        checked = agree(list(lanes.values()))
        for name, lane in lanes.items():
            about = {"part": "steps", "setting": "", "checked_pairs": checked.pairs}
            best = laps[name][lane.speeds.index(lane.speed)]
            self.record(about | lane.result() | {"contender": name, "form": "", "ns": best, "ns_rounds": laps[name]})
        lanes.clear()
        gc.collect()

    # -- keys that drift --------------------------------------------------------------------------------

    def drift(self, part: str, streams: Streams, indexes: dict[str, Any], setting: str) -> None:
        """Four windows as they are, ten that drift, four as they then are; tuples/s of each phase.

        Of the first phase the first two windows fill, and of the last the first one is not timed.
        """
        window = streams.window_rows
        phases = {"before": (2 * window, 4 * window), "during": (4 * window, 14 * window)}
        phases["after"] = (15 * window, 18 * window)
        speeds: dict[str, dict[str, list[float]]] = {name: {phase: [] for phase in phases} for name in indexes}
        for _ in range(self.rounds):
            lanes = {name: Lane(name, setting, streams, Joined(streams, index)) for name, index in indexes.items()}
            for name, lane in lanes.items():
                clocks, rows = dict.fromkeys(phases, 0.0), dict.fromkeys(phases, 0)
                while lane.position < 18 * window:
                    phase = next((phase for phase, (a, b) in phases.items() if a <= lane.position < b), None)
                    before, seconds = lane.rows_in, lane.step()
                    if phase:
                        clocks[phase] += seconds
                        rows[phase] += lane.rows_in - before
                for phase in phases:
                    speeds[name][phase].append(rows[phase] / clocks[phase])
            checked = agree(list(lanes.values()))
        for name, rounds in speeds.items():
            best = {phase: max(found) for phase, found in rounds.items()}
            self.record(
                {"part": part, "setting": setting, "workload": streams.name, "window": window, "form": ""}
                | {"batch": streams.batch_rows, "contender": name, "drift": streams.drift, "phases": best}
                | {"phase_rounds": rounds, "rounds": rounds["during"]}
                | {"tuples_per_s": best["during"], "checked_pairs": checked.pairs}
            )


def auto_ratios(rounds: dict[str, list[float]], auto: str) -> Row:
    """How fast `auto` is, by the best index and by BI-Sort: by the medians of the rounds, and by the best of them."""
    typical, best = ({name: of(speeds) for name, speeds in rounds.items()} for of in (median, max))
    return {
        "to_best": typical[auto] / max(typical.values()),
        "to_bisort": typical[auto] / typical["bisort"],
        "best_to_best": best[auto] / max(best.values()),
        "best_to_bisort": best[auto] / best["bisort"],
    }


class Clock:
    """Seconds by step: those that a join measures itself, and merges, which it does not know of."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self._within: list[str] = []
        self.merged = {"store": 0.0, "expire": 0.0}

    def watch(self, structure: Any) -> None:
        """Note the time of merges in this structure, and what step they were part of."""
        for name, step in (("insert", "store"), ("forget", "expire")):
            setattr(structure, name, self._in_step(getattr(structure, name), step))
        if hasattr(structure, "_merge"):
            structure._merge = self._merging(structure._merge)

    def _in_step(self, call: Callable, step: str) -> Callable:
        def inside(*given: Any) -> Any:
            self._within.append(step)
            try:
                return call(*given)
            finally:
                self._within.pop()

        return inside

    def _merging(self, call: Callable) -> Callable:
        def timed(*given: Any) -> Any:
            start = perf_counter()
            try:
                return call(*given)
            finally:
                self.merged[self._within[-1]] += perf_counter() - start

        return timed

    @contextmanager
    def lap(self):
        """The dictionary that it gives is filled at the end of the block."""
        before = self._now()
        steps: dict[str, float] = {}
        yield steps
        steps.update({step: seconds - before[step] for step, seconds in self._now().items()})

    def _now(self) -> dict[str, float]:
        steps = {step: seconds - self.merged.get(step, 0.0) for step, seconds in self._seconds.items()}
        steps = {("insert" if step == "store" else step): seconds for step, seconds in steps.items()}
        return steps | {"merge": sum(self.merged.values())}
