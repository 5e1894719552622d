"""The part `joins` of `watersmeet bench gpu`: StreamJoin with device="gpu" against the CPU engine with all cores."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.rounds import Row, median
from watersmeet.engine.join import StreamJoin
from watersmeet.query.expr import Call, Column, Constant
from watersmeet.query.windows import last

if TYPE_CHECKING:
    from watersmeet.bench.gpu import Gpu

#: As objects: SQL text needs a package that may not be there.
BAND = Call("<=", (Call("abs", (Call("-", (Column("l", "x"), Column("r", "x"))),)), Constant(1)))
EQUALITY = Call("=", (Column("l", "x"), Column("r", "x")))
BATCHES = 6  # that differ
TURNS = 16  # pushes a round


class Streams:
    """Batches of both sides, with about two partners a tuple (a band of 3 of 1.5 times as many keys as the window)."""

    def __init__(self, window: int, batch: int, seed: int = 1):
        self._rng = np.random.default_rng(seed)
        self._keys = window * 3 // 2
        self.window = window
        self.batches = [(self.some(batch), self.some(batch)) for _ in range(BATCHES)]

    def some(self, n: int) -> pa.RecordBatch:
        return pa.record_batch({"x": self._rng.integers(0, self._keys, n)})


def joins(bench: Gpu) -> None:
    """Band over last(n), pairs and counts; an equality once."""
    rows: dict[tuple[str, int, str, str], Row] = {}
    for log in bench.sizes.joins:
        window = 1 << log
        for what, on in (("band", BAND), ("equality", EQUALITY)):
            if what == "equality" and log != bench.sizes.joins[0]:
                continue
            streams = Streams(window, bench.sizes.join_batch)
            devices = ["gpu"] if bench.gpu is not None else []
            if log == bench.sizes.joins[0]:
                devices.append("cpu")
            for output in ("pairs", "count"):
                checks = {}
                for device in devices:
                    row, checks[device] = measured(bench, streams, on, what, device, output)
                    rows[what, log, output, device] = row
                if len(set(checks.values())) > 1:
                    raise AnswersDiffer(f"{what} over last(2^{log}), {output}: {checks}")
    _ratios(bench, rows)


def measured(bench: Gpu, streams: Streams, on: Any, what: str, device: Any, output: Any) -> tuple[Row, Checksum]:
    schema = pa.schema({"x": pa.int64()})
    options: dict[str, Any] = {"device": device, "output": output, "cores": bench.cores}
    join: Any = StreamJoin(on, last(streams.window), left_schema=schema, right_schema=schema, **options)
    check = Checksum()
    with join:
        filling = np.random.default_rng(5)
        step = max(bench.sizes.join_batch, streams.window // 8)
        for _ in range(0, streams.window, step):
            full = [pa.record_batch({"x": filling.integers(0, streams._keys, step)}) for _ in range(2)]
            join.push(*full)
        for pair in streams.batches:  # checked, not timed
            answer = join.push(*pair)
            if output == "count":
                check += Checksum(answer, 0)
            else:
                check += Checksum.of(answer["left"].to_numpy(), answer["right"].to_numpy())
        for turn in range(TURNS):  # nor are these, in which the window begins to forget: kernels may be compiled for it
            join.push(*streams.batches[turn % BATCHES])
        rounds, seconds, results = [], dict(join.metrics.seconds), 0
        rows = 2 * bench.sizes.join_batch
        for _ in range(bench.sizes.rounds):
            begin = perf_counter()
            for turn in range(TURNS):
                answer = join.push(*streams.batches[turn % BATCHES])
                results += answer if output == "count" else answer.num_rows
            rounds.append(TURNS * rows / (perf_counter() - begin))
        pushes = TURNS * bench.sizes.rounds
        steps = {name: 1e3 * (value - seconds.get(name, 0.0)) / pushes for name, value in join.metrics.seconds.items()}
        row = {
            "part": "joins", "setting": f"{what}, {output}", "window": streams.window, "contender": device,
            "rounds": rounds, "tuples_per_s": max(rounds), "results_per_tuple": results / (pushes * rows),
            "step_ms": {name: round(value, 3) for name, value in steps.items()},
        }  # fmt: skip
    bench.record(row)
    bench.say("  ms a push: " + ", ".join(f"{name} {value:.2f}" for name, value in steps.items()))
    return row, check


def _ratios(bench: Gpu, rows: dict[tuple[str, int, str, str], Row]) -> None:
    logs = bench.sizes.joins

    def ratio(name: str, one: tuple, other: tuple | float, target: float | None) -> None:
        if one in rows and (isinstance(other, float) or other in rows):
            below = (other, other) if isinstance(other, float) else _speeds(rows[other])
            value, best = (a / b for a, b in zip(_speeds(rows[one]), below, strict=True))
            bench.ratio("joins", name, value, target, best=best, window=1 << one[1])

    band = ("band", logs[0], "pairs", "gpu")
    ratio("CPU, band, pairs", band, ("band", logs[0], "pairs", "cpu"), targets.GPU_JOIN_TO_CPU)
    ratio("tuples/s", band, 1.0, targets.GPU_JOIN)
    ratio("the smaller window", ("band", logs[-1], "pairs", "gpu"), band, targets.GPU_LARGE_WINDOW)
    ratio("pairs, band, counted", ("band", logs[0], "count", "gpu"), band, targets.GPU_COUNT_TO_PAIRS)
    ratio("CPU, equality, pairs", ("equality", logs[0], "pairs", "gpu"), ("equality", logs[0], "pairs", "cpu"), None)


def _speeds(row: Row) -> tuple[float, float]:
    return median(row["rounds"]), row["tuples_per_s"]
