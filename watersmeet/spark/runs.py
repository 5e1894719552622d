"""A join core, put together from runs and taken apart again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.engine.core import Arrival, JoinCore, Sizes
from watersmeet.engine.metrics import Metrics
from watersmeet.index.bisort import BISortStructure, Sealed
from watersmeet.query.windows import SIDES, Side
from watersmeet.spark.cache import CoreFiles, new_id
from watersmeet.spark.clock import SparkClock
from watersmeet.spark.packs import pack, pieces, unpack
from watersmeet.spark.spec import Compiled
from watersmeet.spark.state import CoreState, Manifest, Run
from watersmeet.window.chain import Subwindow
from watersmeet.workers import Workers

Array = np.ndarray

#: A state value has at most about this many bytes.
CHUNK_BYTES = 32 << 20

_SIZES = Sizes(subwindows=2, subwindow_rows=None)
_ALONE = Workers(1)


class OpenCore:
    """The core with its runs, for one micro-batch."""

    def __init__(self, join: Compiled, state: CoreState, query: Path, key: int):
        spec = join.spec
        self._join = join
        self._state = state
        self._manifest = state.read(spec)
        self._files = CoreFiles(query, key)
        self._flagged: dict[Side, bool] = {
            "left": spec.how in ("left", "full", "semi", "anti"),
            "right": spec.how in ("right", "full"),
        }
        self._alone: dict[Side, bool] = {
            "left": spec.how in ("left", "full", "anti"),
            "right": spec.how in ("right", "full"),
        }
        self._rebuilt = 0
        schemas: dict[Side, pa.Schema] = {"left": spec.left, "right": spec.right}
        self.core = JoinCore(join.plan, join.window, schemas, spec.how, join.index, _SIZES, _ALONE, Metrics())
        self._runs: dict[int, tuple[Run, Array | None]] = {}  # by id() of the subwindow; with the flags as they were
        for run in self._manifest.runs:
            self._adopt(run)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _adopt(self, run: Run) -> None:
        payload = self.core.payloads[run.side]
        base = payload.end
        batches = [unpack(self._chunk(id), self._join.spec.schema(run.side)) for id, _ in run.chunks]
        for batch in batches:
            payload.append(batch)
        structure, ticks = self._index(run, batches)
        settled = self._state.flags(run) if self._flagged[run.side] else None
        sub = Subwindow.adopted(base, structure, ticks, run.span, settled)
        self.core.chains[run.side].adopt(sub)
        self._runs[id(sub)] = run, None if settled is None else settled.copy()

    def _chunk(self, id: str) -> pa.Buffer:
        found = self._files.chunk(id)
        if found is None:
            blob = self._state.chunk(id)
            self._files.put_chunk(id, blob)
            found = pa.py_buffer(blob)
        return found

    def _index(self, run: Run, batches: list[pa.RecordBatch]) -> tuple[BISortStructure, Array]:
        """The sorted keys of a run and its ticks, from the file or made again from the tuples."""
        arrays = self._files.arrays(run.id)
        if arrays is not None:
            samples = arrays["sample_equal"], arrays["sample_ordered"], arrays["levels"]
            sealed = Sealed(int(arrays["size"][0]), arrays["equal"], arrays["ordered"], arrays["rows"], samples)
            return self._join.index.adopt(sealed), arrays["ticks"]
        self._rebuilt += 1
        structure = self._join.index.structure()
        plan = self._join.side_plan(run.side)
        ticks, first = [], 0
        for batch in batches:
            keys = plan.keys(batch)
            plan.forget()
            rows = batch.num_rows
            structure.insert(self._join.index.entries(keys.equal, keys.ordered, keys.live, rows, _ALONE), first)
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
                "size": np.array([sealed.size]),
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

    def save(self, arrivals: dict[Side, Arrival], clock: SparkClock, milliseconds: int) -> None:
        """Write back what the step has changed."""
        runs = []
        for side in SIDES:
            self.core.chains[side].seal()
            for sub in self.core.chains[side].subwindows:
                known = self._runs.get(id(sub))
                if known is None:
                    run = self._new_run(side, sub, arrivals[side])
                    if self._flagged[side]:
                        self._state.put_flags(run.id, sub.settled)
                else:
                    run, before = known
                    if before is not None and not np.array_equal(before, sub.settled):
                        self._state.put_flags(run.id, sub.settled)
                runs.append(run)
        kept = {run.id for run in runs}
        for run in self._manifest.runs:
            if run.id not in kept:
                for id_, _ in run.chunks:
                    self._state.remove_chunk(id_)
                if self._flagged[run.side]:
                    self._state.remove_flags(run.id)
        timer = self._timer(clock, milliseconds)
        manifest = Manifest(tuple(runs), timer)
        self._state.set_timer(self._manifest.timer, timer)
        self._state.write(self._join.spec, manifest)
        # What this micro-batch began with stays for once: it may be run again.
        self._files.keep(manifest.ids | self._manifest.ids)

    def _new_run(self, side: Side, sub: Subwindow, arrival: Arrival) -> Run:
        first = self.core.payloads[side].end - arrival.rows  # position of the arrival's first tuple
        chunks = []
        for piece in pieces(arrival.batch.slice(sub.base - first, sub.size), CHUNK_BYTES):
            id_ = new_id()
            blob = pack(piece)
            self._state.put_chunk(id_, blob.to_pybytes())
            self._files.put_chunk(id_, blob)
            chunks.append((id_, piece.num_rows))
        run = Run(new_id(), side, tuple(chunks), sub.span)
        structure = sub.structure
        assert isinstance(structure, BISortStructure)
        self._put_index(run.id, structure, sub.ticks)
        return run

    def _timer(self, clock: SparkClock, milliseconds: int) -> int | None:
        """When this core has something to do even if no tuple comes: hand out a tuple, or let go of the last one."""
        due = []
        for side in SIDES:
            subs = self.core.chains[side].subwindows
            if not subs:
                continue
            if self._alone[side]:
                waiting = [sub.ticks[sub.settled == 0] for sub in subs]
                due += [self._last_partner(side, int(t.min())) + 1 for t in waiting if t.size]
            due.append(self._last_partner(side, max(sub.span.greatest for sub in subs)) + 1)
        if not due:
            return None
        end = max(due) if not any(self._alone.values()) else min(due)
        return max(clock.timer(end), milliseconds + 1)

    def _last_partner(self, side: Side, tick: int) -> int:
        return int(self._join.window.partners(side, np.array([tick]))[1][0])

    def counts(self) -> dict[str, int]:
        return {
            "stored_left": self.core.chains["left"].stored,
            "stored_right": self.core.chains["right"].stored,
            "runs": sum(len(self.core.chains[side].subwindows) for side in SIDES),
            "rebuilt_runs": self._rebuilt,
        }


