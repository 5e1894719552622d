"""A join core, put together from the runs in the state and taken apart again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore
from watersmeet.engine.metrics import Metrics
from watersmeet.engine.pick import PickCore
from watersmeet.engine.sizes import Sizes
from watersmeet.index.sorted.bisort import BISortStructure
from watersmeet.index.sorted.run import Sealed
from watersmeet.query.windows import SIDES, Side, other
from watersmeet.spark.cache import CoreFiles
from watersmeet.spark.canonical import chunk_name, run_name
from watersmeet.spark.clock import SparkClock
from watersmeet.spark.compact import Chunk, OpenRun, compact
from watersmeet.spark.gpu import KEPT
from watersmeet.spark.limits import Limits
from watersmeet.spark.narrow import narrowed, widened
from watersmeet.spark.packs import pieces
from watersmeet.spark.spec import Compiled
from watersmeet.spark.state import CoreState, Manifest, Run, check_rows
from watersmeet.window.chain import Subwindow
from watersmeet.workers import ALONE

Array = np.ndarray

_SIZES = Sizes(subwindows=2, subwindow_rows=None)


class OpenCore:
    """The core with its runs, for one micro-batch."""

    def __init__(self, join: Compiled, state: CoreState, query: Path, key: int, limits: Limits):
        spec = join.spec
        self._join = join
        self._state = state
        self._limits = limits
        self._manifest = state.read(spec)
        place = f"{key}-{self._manifest.place}"
        self._files = CoreFiles(query, place)
        self._on_gpu = f"{query}/{place}" if spec.device == "gpu" else None  # its name there
        self._rebuilt: set[str] = set()  # runs that were not all in files
        self._stored_bytes = 0
        schemas: dict[Side, pa.Schema] = {"left": spec.left, "right": spec.right}
        self.core = self._core(schemas)
        self._runs = {id(run.sub): run for run in map(self._adopted, self._manifest.runs)}

    def _core(self, schemas: dict[Side, pa.Schema]) -> JoinCore:
        join = self._join
        what = join.plan, join.window, schemas, join.spec.how, join.index, _SIZES, ALONE, Metrics()
        # Runs of earlier micro-batches have not kept keys.
        return JoinCore(*what, keeps_keys=False) if join.pick is None else PickCore(*what, join.pick)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _adopted(self, run: Run) -> OpenRun:
        """A run of the state as a subwindow of the core."""
        payload, chain = self.core.payloads[run.side], self.core.chains[run.side]
        base = payload.end
        schema = self._join.spec.schema(run.side)
        chunks = tuple(Chunk(id, self._chunk(run, id, rows, schema), True) for id, rows in run.chunks)
        for chunk in chunks:
            payload.append(chunk.batch)
        structure, ticks = self._index(run, [chunk.batch for chunk in chunks])
        if self._on_gpu is not None:
            sent = KEPT.find(self._on_gpu, run.id)
            if sent is not None:
                structure.was_sent(sent)
        flags = settled = None
        if chain.keeps_settled:
            flags = self._state.flags(run.id)
            settled = np.unpackbits(np.frombuffer(flags, np.uint8), count=run.rows)
        sub = Subwindow.adopted(base, structure, ticks, run.span, settled)
        chain.adopt(sub)
        return OpenRun(run.id, run.side, chunks, sub, flags)

    def _chunk(self, run: Run, id: str, rows: int, schema: pa.Schema) -> pa.RecordBatch:
        """From its file, by reference, or from the state."""
        found = self._files.chunk(id, schema)
        if found is None:
            self._rebuilt.add(run.id)
            found = widened(self._state.chunk(id), schema)
            self._files.put_chunk(id, found)
        check_rows(id, found.num_rows, rows)
        return found

    def _index(self, run: Run, batches: list[pa.RecordBatch]) -> tuple[Any, Array]:
        """The sorted keys of a run and its ticks, from the file, or made again from the tuples."""
        arrays = self._files.arrays(run.id)
        if arrays is not None:
            samples = arrays["sample_equal"], arrays["sample_ordered"], arrays["levels"]
            sealed = Sealed(arrays["about"], arrays["equal"], arrays["ordered"], arrays["rows"], samples)
            return self._join.index.adopt(sealed), arrays["ticks"]
        self._rebuilt.add(run.id)
        structure = self._join.index.structure()
        plan = self._join.side_plan(run.side)
        ticks, first = [], 0
        for batch in batches:
            keys = plan.of(batch).keys()
            rows = batch.num_rows
            structure.insert(self._join.index.entries(keys.equal, keys.ordered, keys.live, rows, ALONE), first)
            ticks.append(self._join.window.read(batch, run.side))
            first += rows
        structure.seal()
        whole = np.concatenate(ticks)
        self._put_index(run.id, structure, whole)
        return structure, whole

    def _put_index(self, id: str, structure: BISortStructure, ticks: Array) -> None:
        sealed = structure.sealed()
        equal, ordered, levels = sealed.samples
        self._files.put_arrays(
            id,
            {
                "about": sealed.about,
                "equal": sealed.equal,
                "ordered": sealed.ordered,
                "rows": sealed.rows,
                "sample_equal": equal,
                "sample_ordered": ordered,
                "levels": levels,
                "ticks": ticks,
            },
        )

    # -- saving ------------------------------------------------------------------------------------------------------

    def save(
        self,
        arrivals: dict[Side, list[Arrival]],
        clock: SparkClock,
        milliseconds: int,
        fired: int | None,
        timers: Sequence[int] = (),
    ) -> int | None:
        """Write back what the step has changed. fired: the timer that Spark is about to delete. timers: that further
        stores of the core want, for a core has one. Gives the timer that this store wants."""
        wanted = self._timer(clock, milliseconds)
        timer = None if self._state.part else max([*timers, *([] if wanted is None else [wanted])], default=None)
        runs = []
        sent: list[tuple[str, Any]] = []
        for side in SIDES:
            # A timer may fire in a micro-batch that has tuples, too.
            place = self._state.part + side[0] + ("" if fired is None else "t")
            self.core.chains[side].seal()
            mine = [
                self._runs.get(id(sub)) or self._new_run(side, sub, arrivals[side], f"{place}{number}")
                for number, sub in enumerate(self.core.chains[side].subwindows)
            ]
            longest = self._join.window.lifetime(side) // 2 + self._join.window.lateness(side)
            kept = compact(mine, self._join.index, longest, self._limits, place)
            runs += [self._put(run) for run in kept]
            if self._on_gpu is not None:
                sent += [(run.id, run.sub.structure.sent) for run in kept]  # type: ignore[attr-defined]
        manifest = Manifest(self._manifest.place, tuple(runs), timer)
        for gone in self._manifest.chunk_ids - manifest.chunk_ids:
            self._state.remove_chunk(gone)
        for run in self._manifest.runs:
            if self.core.chains[run.side].keeps_settled and run.id not in manifest.run_ids:
                self._state.remove_flags(run.id)
        if not self._state.part:
            self._state.set_timer(self._manifest.timer if self._manifest.timer != fired else None, timer)
        self._state.write(self._join.spec, manifest)
        # What this micro-batch began with stays for once: it may be run again.
        self._files.keep(manifest.run_ids | manifest.chunk_ids | self._manifest.run_ids | self._manifest.chunk_ids)
        if self._on_gpu is not None:
            KEPT.keep(self._on_gpu, [one for one in sent if one[1] is not None])
        self._saved = manifest
        return wanted

    def _new_run(self, side: Side, sub: Subwindow, arrivals: list[Arrival], place: str) -> OpenRun:
        """A subwindow of tuples that have arrived now, as a run."""
        at = self.core.payloads[side].end - sum(arrival.rows for arrival in arrivals)  # position of the first of them
        chunks: list[Chunk] = []
        done = 0
        for arrival in arrivals:
            first, stop = max(sub.base - at, 0), min(sub.base + sub.size - at, arrival.rows)
            if first < stop:
                for piece in pieces(arrival.batch.slice(first, stop - first), self._limits.chunk):
                    ticks = sub.ticks[done : done + piece.num_rows]
                    chunks.append(Chunk(chunk_name(f"{place}.{len(chunks)}", ticks), piece, False))
                    done += piece.num_rows
            at += arrival.rows
        assert done == sub.size
        return OpenRun(run_name([chunk.id for chunk in chunks]), side, tuple(chunks), sub, stored=False)

    def _put(self, run: OpenRun) -> Run:
        for chunk in run.chunks:
            if not chunk.stored:
                self._state.put_chunk(chunk.id, narrowed(chunk.batch))
                self._files.put_chunk(chunk.id, chunk.batch)
        if run.sub.keeps_settled:
            flags = np.packbits(run.sub.settled).tobytes()
            if flags != run.flags:
                self._state.put_flags(run.id, flags)
        if not run.stored:
            structure = run.sub.structure
            assert isinstance(structure, BISortStructure)
            self._put_index(run.id, structure, run.sub.ticks)
        self._stored_bytes += sum(chunk.batch.nbytes for chunk in run.chunks)
        chunks = tuple((chunk.id, chunk.batch.num_rows) for chunk in run.chunks)
        return Run(run.id, run.side, chunks, run.sub.span)

    def _timer(self, clock: SparkClock, milliseconds: int) -> int | None:
        """When this core has something to do even if no tuple comes: hand out a tuple, or let go of the last one."""
        due, ends = [], []
        for side in SIDES:
            away = other(side)
            subs = self.core.chains[side].subwindows
            if not subs:
                continue
            end = self._last_partner(side, max(sub.span.greatest for sub in subs))
            ends.append(clock.timer(away, end + 1))
            if side == "right" and self._join.pick is not None:  # left ones wait, and need them until they come out
                ends.append(clock.timer(side, self._last_partner(away, end) + 1))
            if self.core.alone[side]:
                waiting = [tick for tick in map(_least_waiting, subs) if tick is not None]
                due += [clock.timer(away, self._last_partner(side, tick) + 1) for tick in waiting]
        if not ends:
            return None
        return max(min([*due, max(ends)]), milliseconds + 1)

    def _last_partner(self, side: Side, tick: int) -> int:
        return int(self._join.window.partners(side, np.array([tick]))[1][0])

    def counts(self) -> dict[str, int]:
        runs = self._saved.runs
        return {
            "stored_left": sum(run.rows for run in runs if run.side == "left"),
            "stored_right": sum(run.rows for run in runs if run.side == "right"),
            "stored_bytes": self._stored_bytes,
            "runs": len(runs),
            "rebuilt_runs": len(self._rebuilt),
        }


def _least_waiting(sub: Subwindow) -> int | None:
    """The least tick of those that are not settled; O(rows before it) where they are in order of ticks."""
    if not sub.in_order:
        waiting = sub.ticks[sub.settled == 0]
        return int(waiting.min()) if waiting.size else None
    first = int(sub.settled.argmin())
    return None if sub.settled[first] else int(sub.ticks[first])
