"""The parts `exact` and `exact_joins` of `watersmeet bench gpu`: very many pairs, each in a checksum, none kept.

    exact         every joiner of the study, against what the keys of its windows say
    exact_joins   StreamJoin on the GPU and on the CPU, against each other and against what the keys say, push by push
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.gpu.joins import BAND, EQUALITY
from watersmeet.bench.gpu.known_pairs import KnownPairs
from watersmeet.bench.gpu.study.manager import run as run_windows
from watersmeet.bench.gpu.study.sink import Sink, pair_sum
from watersmeet.bench.gpu.study.space import Device, Variant, variants
from watersmeet.bench.gpu.study.streams import TUPLE_BYTES
from watersmeet.bench.workloads import shares
from watersmeet.engine.join import StreamJoin
from watersmeet.query.windows import last
from watersmeet.workers import Workers

if TYPE_CHECKING:
    from watersmeet.bench.gpu import Gpu

Array = np.ndarray

_KEYS = 200  # of a window of the study's: some 300 partners a tuple in one of 1 MB
_CPU_SHARE = 4  # windows on the CPU are so many times smaller, for a nested loop there takes minutes
_ZIPF = 0.8
_SPREAD = 4  # keys of a StreamJoin's stream, in windows; then some 100 partners a tuple in windows of 2^18


# -- joiners of the study ------------------------------------------------------------------------------------------


def exact(bench: Gpu) -> None:
    """Whatever one joiner does, the others are looked at too; then raises what the first did wrong."""
    window = bench.sizes.small_windows[0]
    wrong: list[Exception] = []
    devices: list[Device] = ["gpu", "cpu"] if bench.gpu is not None else ["cpu"]
    for device in devices:
        size = max(window // (_CPU_SHARE if device == "cpu" else 1), TUPLE_BYTES)
        n = size // TUPLE_BYTES
        keys = min(_KEYS, max(n // 16, 1))
        most = max(bench.sizes.exact * keys // (window // TUPLE_BYTES) ** 2, 2)
        work = bench.workload(size, keys, batch=max(size // 8, TUPLE_BYTES), most=most)
        wanted = bench.expected(work)
        for variant in variants(device):
            try:
                checked(bench, variant, work, wanted)
            except Exception as error:  # the machine may be lent
                wrong.append(error)
                bench.say(f"exact: {variant} failed: {type(error).__name__}: {error}")
    if wrong:
        raise next((error for error in wrong if isinstance(error, AnswersDiffer)), wrong[0])


def checked(bench: Gpu, variant: Variant, work: Any, wanted: list[Any]) -> None:
    """Raises AnswersDiffer at the first window whose pairs are not those that match."""
    joiner = bench.joiner(variant, work, [one.pairs for one in wanted])
    workers = Workers(bench.cores if variant.device == "gpu" else 1)  # joiners on the CPU sum up where they write
    sink = Sink(workers=workers)
    try:
        begin = perf_counter()
        run_windows(variant, work, joiner, sink)
        seconds = perf_counter() - begin
    finally:
        joiner.close()
        workers.stop()
    makes_pairs = variant.results != "none"
    for number, one in enumerate(wanted):
        try:
            sink.check(number, one, makes_pairs)
        except AnswersDiffer as error:
            raise AnswersDiffer(f"{variant}: {error}") from None
    if makes_pairs and sink.written != sink.total:
        raise AnswersDiffer(f"{variant}: {sink.total:,} pairs are counted, and {sink.written:,} written")
    what = "pairs are those that match" if makes_pairs else "results are as many as match"
    bench.record(
        {
            "part": "exact", "setting": f"{work.windows} windows", "window": work.window * TUPLE_BYTES,
            "contender": str(variant), "pairs": sink.total, "seconds": seconds,
            "value": f"{sink.total:,} {what}, {seconds:.2f} s",
        }
    )  # fmt: skip


# -- StreamJoin ----------------------------------------------------------------------------------------------------


class Skewed:
    """Batches of a side whose keys are as in Zipf's law, the more frequent beside one another."""

    def __init__(self, domain: int, seed: int):
        self._rng = np.random.default_rng(seed)
        self._ends = np.cumsum(shares(domain, _ZIPF))

    def some(self, n: int) -> Array:
        keys = np.searchsorted(self._ends, self._rng.random(n) * self._ends[-1], side="right")
        return np.minimum(keys, self._ends.size - 1)


def exact_joins(bench: Gpu) -> None:
    """A band and an equality join over last(n), with skewed keys."""
    for what, on, width in (("band", BAND, 1), ("equality", EQUALITY, 0)):
        compared(bench, what, on, width)


def compared(bench: Gpu, what: str, on: Any, width: int, join_of: Callable[..., Any] = StreamJoin) -> None:
    """Push by push, until there were `sizes.exact` pairs. Raises AnswersDiffer at the first push that differs."""
    window, batch = bench.sizes.exact_window, bench.sizes.exact_batch
    domain = _SPREAD * window
    known = KnownPairs(window, domain, width)
    sides = [Skewed(domain, seed) for seed in (1, 2)]
    schema = pa.schema({"x": pa.int64()})
    options: dict[str, Any] = {"left_schema": schema, "right_schema": schema, "output": "pairs", "cores": bench.cores}
    workers = Workers(bench.cores)
    done, pushes, seconds = Checksum(), 0, {}
    with ExitStack() as held:
        held.callback(workers.stop)
        joins: dict[str, Any] = {}
        for device in ["gpu", "cpu"] if bench.gpu is not None else ["cpu"]:
            joins[device] = held.enter_context(join_of(on, last(window), device=device, **options))
            seconds[device] = 0.0
        while done.pairs < bench.sizes.exact:
            keys = [side.some(batch) for side in sides]
            given = [pa.record_batch({"x": one}) for one in keys]
            wanted = known.pushed(*keys)
            for device, join in joins.items():
                begin = perf_counter()
                answer = join.push(*given)
                seconds[device] += perf_counter() - begin
                found = summed(answer, workers)
                if found != wanted:
                    raise AnswersDiffer(f"{what}, push {pushes} on the {device}: {found}, and the keys say {wanted}")
                del answer  # before the next is made
            done += wanted
            pushes += 1
        tuples = 2 * batch * pushes
        took = ", ".join(f"{device} {one:.1f} s" for device, one in seconds.items())
        bench.record(
            {
                "part": "exact_joins", "setting": f"{what}, zipf {_ZIPF:g}", "window": window,
                "contender": ", ".join((*joins, "the keys")), "pairs": done.pairs, "checksum": str(done),
                "tuples": tuples, "seconds": seconds,
                "value": f"{done.pairs:,} pairs of {tuples:,} tuples are the same; {took}",
            }
        )  # fmt: skip


def summed(answer: pa.Table, workers: Workers) -> Checksum:
    """Of pairs of positions, where they are: to put chunks together would be to copy them."""
    found = Checksum()
    for batch in answer.to_batches():
        left, right = (batch.column(name).to_numpy(zero_copy_only=True) for name in ("left", "right"))
        found += Checksum(batch.num_rows, pair_sum(left, right, workers))
    return found
