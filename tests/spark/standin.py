"""A stand-in for Spark: runs router, joiner and unpacker as micro-batches, in this process, without a JVM.

It does what Spark does around them: cuts the input into tasks, groups packs by core, keeps state by key (that of one of
several attempts), moves the watermark after each micro-batch, fires timers, and runs a micro-batch without
data when the watermark has moved.
"""

from __future__ import annotations

import copy
import random
import shutil
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pyarrow as pa

from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.query.windows import SIDES, other
from watersmeet.routing.choose import choose_route
from watersmeet.spark import cache, canonical
from watersmeet.spark import joiner as joiner_module
from watersmeet.spark import unpacker as unpacker_module
from watersmeet.spark.cores import core_keys
from watersmeet.spark.joiner import Joiner
from watersmeet.spark.limits import LIMITS, Limits
from watersmeet.spark.marker import Marker
from watersmeet.spark.packs import COUNTERS
from watersmeet.spark.router import Router
from watersmeet.spark.spec import JoinSpec, compiled, ordered_plan
from watersmeet.spark.unpacker import unpacked


def specified(
    on, window, how, left: pa.Schema, right: pa.Schema, route="auto", cores=2, suffix="_right", **options
) -> JoinSpec:
    predicate = parse(on)
    plan = ordered_plan(compile_plan(predicate, left, right))
    routed = "left" if options.get("pick") is not None else how
    chosen, _ = choose_route(route, plan, left, right, routed, cores)
    keys = core_keys(chosen.cores, cores)
    return JoinSpec(predicate, window, how, left, right, suffix, chosen, keys, cores, **options)


class _Value:
    def __init__(self, store):
        self._store = store

    def get(self):
        return self._store().get("value")

    def update(self, value):
        assert all(isinstance(v, str) for v in value)
        self._store()["value"] = value


class _Map:
    def __init__(self, store):
        self._store = store

    def getValue(self, key):
        return self._store().get(key)

    def updateValue(self, key, value):
        assert all(isinstance(v, bytes) for v in value)
        self._store()[key] = value

    def removeKey(self, key):
        self._store().pop(key, None)


class _Handle:
    """State of all keys; `key` is the one that is being processed."""

    def __init__(self):
        self.key = None
        self.values = defaultdict(dict)  # (key, name) -> values
        self.timers = set()  # (key, milliseconds)

    def getValueState(self, name, schema):
        return _Value(lambda: self.values[self.key, name])

    def getMapState(self, name, key_schema, value_schema):
        return _Map(lambda: self.values[self.key, name])

    def registerTimer(self, milliseconds):
        self.timers.add((self.key, milliseconds))

    def deleteTimer(self, milliseconds):
        self.timers.remove((self.key, milliseconds))  # Spark warns of one that does not exist


class _Times:
    def __init__(self, watermark):
        self._watermark = watermark

    def getCurrentWatermarkInMs(self):
        return self._watermark


class _Fired:
    def __init__(self, milliseconds):
        self._milliseconds = milliseconds

    def getExpiryTimeInMs(self):
        return self._milliseconds


class StandIn:
    def __init__(self, spec: JoinSpec, folder: Path, seed: int = 0, limits: Limits = LIMITS):
        self.spec = spec
        self.limits = limits
        self.number = 0  # of the micro-batch
        self.folder = folder
        self.handle = _Handle()
        self.watermark = 0
        self.greatest = {}
        self.counts = defaultdict(int)
        self.last = {}
        self._random = random.Random(seed)

    # -- what a user of Spark sees ------------------------------------------------------------------------------------

    def batch(self, left: pa.Table | None = None, right: pa.Table | None = None, fails: int = 0) -> pa.Table:
        """One micro-batch, which fails so many times before it succeeds, and the one without data behind it."""
        packs = self._packs("left", left) + self._packs("right", right)
        results = self._attempts(packs, fails)
        before = self.watermark
        self._move_watermark(packs)
        if self.watermark > before:
            results += self._attempts([], fails)
        schema = compiled(self.spec).filed
        return pa.Table.from_batches(results, schema=schema)

    def forget_files(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def runs(self) -> int:
        return self.last["runs"]

    def state_bytes(self) -> int:
        return sum(
            len(v[0])
            for (_, name), values in self.handle.values.items()
            if not name.startswith("manifest")
            for v in values.values()
        )

    # -- within --------------------------------------------------------------------------------------------------------

    def _packs(self, side, table) -> list[dict]:
        if table is None or not table.num_rows:
            return []
        tasks = self._random.randint(1, 3)
        cuts = sorted(self._random.randint(0, table.num_rows) for _ in range(tasks - 1))
        packs = []
        for start, stop in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
            pieces = table.slice(start, stop - start).to_batches(max_chunksize=self._random.choice([3, 1000, 100_000]))
            rows = [*Router(self.spec, side)(iter(pieces))]
            away = other(side)
            if compiled(self.spec).window.idle_after(away) is not None:
                times = [piece.select([self.spec.window.time[SIDES.index(side)]]) for piece in pieces]
                rows += Marker(self.spec, away)(iter(times))
            for row in rows:
                packs += row.set_column(3, "ts", row.column("ts").view(pa.int64())).to_pylist()
        self._random.shuffle(packs)
        return packs

    def _attempts(self, packs, fails) -> list[pa.RecordBatch]:
        before, after = self.handle, []
        for _ in range(fails + 1):  # each begins with the same state, and finds the files of the others
            self.handle = copy.deepcopy(before) if fails else before
            with self._as_on_spark():
                frames, results = self._attempt(packs)
            after.append(self.handle)
        self._check_attempts(after)
        # Not always the state of the last: with speculation, or two actions on a batch, Spark takes any of them.
        self.handle = self._random.choice(after)
        self.number += 1
        self.last = defaultdict(int)
        for frame in frames:
            for name in COUNTERS:
                self.counts[name] += int(frame[name].sum())
                self.last[name] += int(frame[name].sum())
        return results

    def _check_attempts(self, handles) -> None:
        """Executors may go on from any attempt's state, and a restart from another's: they have written the same."""
        states = [
            {where: found for where, found in handle.values.items() if not where[1].startswith("manifest")}
            for handle in handles
        ]
        assert all(state == states[0] for state in states)

    @contextmanager
    def _as_on_spark(self):
        """What tasks learn from Spark."""
        with (
            patch.object(joiner_module, "query_folder", lambda: self.folder / "query"),
            patch.object(unpacker_module, "query_folder", lambda: self.folder / "query"),
            patch.object(cache, "batch_id", lambda: self.number),
            patch.object(canonical, "batch_id", lambda: self.number),
        ):
            yield

    def _attempt(self, packs):
        joiner = Joiner(self.spec, self.limits)
        joiner.init(self.handle)
        by_core = defaultdict(list)
        for pack in self._random.sample(packs, len(packs)):  # in another order each time
            by_core[pack["core"]].append(pack)
        times = _Times(self.watermark)
        frames = []
        for core, mine in by_core.items():
            self.handle.key = core
            half = len(mine) // 2
            columns = ["side", "home", "bad", "blob"]
            rows = [pd.DataFrame(part, columns=columns) for part in (mine[:half], mine[half:]) if part]
            frames += joiner.handleInputRows((core,), iter(rows), times)
        for core, milliseconds in sorted(self.handle.timers):
            if milliseconds <= self.watermark:
                self.handle.key = core
                fired = _Fired(milliseconds)
                frames += joiner.handleExpiredTimer(key=(core,), timerValues=times, expiredTimerInfo=fired)
                self.handle.deleteTimer(milliseconds)
        results = []
        for frame in frames:
            results += unpacked(iter(pa.Table.from_pandas(frame).to_batches()))
        return frames, results

    def _move_watermark(self, packs) -> None:
        clock = compiled(self.spec).clock
        for pack in packs:
            milliseconds = pack["ts"] // 1000
            side = ("left", "right")[pack["side"]]
            self.greatest[side] = max(self.greatest.get(side, 0), milliseconds)
        if len(self.greatest) == 2:
            now = min(self.greatest[side] - clock.delay(side) for side in self.greatest)
            self.watermark = max(self.watermark, now)
