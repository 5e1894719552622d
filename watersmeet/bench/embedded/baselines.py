"""What a band join over `last(n)` is measured against: sorting the window's keys, and looking at all of them.

A nested loop would need hours to fill a window of 2^23, because filling it is joining. So one stream fills
alone, which costs nothing, and then a few tuples of the other are joined with the full window. Two of them
are measured: `index="nested_loop"`, which does all that a stream join must do, and the plainest possible one
in NumPy, two vectorised comparisons over an array of keys that somebody else keeps up to date.

Nobody else joins as many rows as we do in a round, so the answers of the last of them are found again by sorting
the window and searching it (`last_rows`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.bench import workloads
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.race import FILL_ROWS, Lane, Ours
from watersmeet.bench.workloads import SIDES, Workload

Answer = tuple[np.ndarray, np.ndarray]
CHECKED_ROWS = 1 << 16  # of a lane of band_last, at least a batch


def baseline(name: str, form: str, window: int, batch: int | None, speeds: list[float]) -> dict[str, Any]:
    """A row of the results for something that is not a lane of a race."""
    return {
        "workload": "band_last",
        "window": window,
        "batch": batch,
        "contender": name,
        "form": form,
        "tuples_per_s": max(speeds),
        "rounds": speeds,
        "results_per_tuple": None,
    }


def argsort_speed(window: int, seconds: float) -> float:
    """Keys/s of np.argsort over one window of the workload's keys, timed for as long as a lane is in its turn."""
    keys = workloads.band_last(window, window).rows("left", 0, window).column("key").to_numpy()
    np.argsort(keys)
    spent, calls = 0.0, 0
    while spent < seconds or calls < 2:
        start = perf_counter()
        np.argsort(keys)
        spent, calls = spent + perf_counter() - start, calls + 1
    return window * calls / spent


def nested_loops(window: int, seconds: float) -> dict[str, list[float]]:
    """Tuples/s of nested loops over a full left window; their answers must equal our index's."""
    workload = workloads.band_last(window, min(window, FILL_ROWS))
    loop, index = (Ours(workload, output="pairs", cores=1, index=name) for name in ("nested_loop", "auto"))
    filled = 0
    while filled < window + window // 4:  # a quarter has left it again
        batch = workload.rows("left", filled, workload.batch_rows)
        for contender in (loop, index):
            contender.push("left", batch)
        filled += workload.batch_rows
    oldest = filled - window
    keys = workload.rows("left", oldest, window).column("key").to_numpy()

    def by_numpy(batch: pa.RecordBatch) -> Answer:
        probes = batch.column("key").to_numpy()
        low, high = probes - workload.band, probes + workload.band
        hits = [np.flatnonzero((keys >= low[i]) & (keys <= high[i])) for i in range(len(probes))]
        rows = np.repeat(batch.column("value").to_numpy(), [len(hit) for hit in hits])
        return np.concatenate(hits) + oldest, rows

    def by_index(batch: pa.RecordBatch) -> Answer:
        return index.pairs(index.push("right", batch))

    def by_loop(batch: pa.RecordBatch) -> Answer:
        return loop.pairs(loop.push("right", batch))

    speeds: dict[str, list[float]] = {"nested loop": [], "nested loop in NumPy": []}
    for run in (by_loop, by_numpy):
        run(workload.rows("right", 0, 1))  # the first call may compile
    by_index(workload.rows("right", 0, 1))
    done, count, spent = 1, 8, 0.0
    while spent < seconds or done == 1:
        batch = workload.rows("right", done, count)
        expected = Checksum.of(*by_index(batch))
        for name, run in zip(speeds, (by_loop, by_numpy)):
            took, check = timed(run, batch)
            if check != expected:
                raise AnswersDiffer(f"band_last, window {window}: {name} gives {check}, our index {expected}")
            speeds[name].append(count / took)
            spent += took
        done += count
        slowest = min(loops[-1] for loops in speeds.values())
        count = max(1, min(int(slowest * seconds / 4), 1 << 15))
    return speeds


def last_rows(lane: Lane) -> Checksum:
    """The answers of the lane's last timed batches, which must be those of a search in the sorted window."""
    workload = lane.workload
    assert isinstance(workload, Workload)
    window, batch = workload.window_rows, workload.batch_rows
    steps = min(-(-CHECKED_ROWS // batch), len(lane.checks) - 1)
    first = lane.position - steps * batch
    oldest = max(first - window, 0)
    keys = {side: workload.rows(side, oldest, lane.position - oldest).column("key").to_numpy() for side in SIDES}
    arriving = np.arange(first, lane.position)
    arrived = (arriving - first) // batch * batch + first  # of the other side, when a left row comes
    expected = Checksum()
    for side, other, end in (("left", "right", arrived), ("right", "left", arrived + batch)):
        order = np.argsort(keys[other], kind="stable")
        ordered, own = keys[other][order], keys[side][first - oldest :]
        low = np.searchsorted(ordered, own - workload.band)
        counts = np.searchsorted(ordered, own + workload.band, "right") - low
        own_rows = np.repeat(np.arange(own.size), counts)
        skipped = np.repeat(np.cumsum(counts) - counts, counts)
        partner = order[np.arange(own_rows.size) - skipped + low[own_rows]] + oldest
        held = (partner < end[own_rows]) & (partner >= end[own_rows] - window)
        pairs = {side: arriving[own_rows[held]], other: partner[held]}
        expected += Checksum.of(pairs["left"], pairs["right"])
    given = lane.checks[-1] - lane.checks[-1 - steps]
    if given != expected:
        raise AnswersDiffer(f"band_last, window {window}, batches of {batch}: {given}, by searching {expected}")
    return given


def timed(run: Callable[[pa.RecordBatch], Answer], batch: pa.RecordBatch) -> tuple[float, Checksum]:
    start = perf_counter()
    answer = run(batch)
    return perf_counter() - start, Checksum.of(*answer)
