"""Stream joins on a GPU, measured: `watersmeet bench gpu`, or `python -m watersmeet.bench.gpu`.

The second form needs numpy, numba and pyarrow only, and for the GPU numba-cuda and CuPy. Parts are functions that get
the run and record rows; sections and figures are those of the study of GPU-accelerated stream joins (study/):

    link       copies to the device and back, by size: what bounds every join there
    distinct   hash and sort-merge by distinct keys and windows, on CPU and GPU             (4.1.1, fig. 7)
    skew       the same by skew                                                             (4.1.2, fig. 8)
    breakdown  what the phases of a window take on the GPU                                  (tables 6 and 7)
    parallel   one window at a time, many, or some                                          (4.2, figs. 9 and 10)
    progress   lazy and eager, by batches                                                   (4.3, figs. 11 to 15)
    energy     what a GB costs                                                              (4.4, fig. 16)
    results    ways to make pairs                                                           (4.5, fig. 17)
    systems    HELLS-join, SABER, FineStream, EcoJoin, EPHSA                                (4.6, fig. 18)
    advice     what `wm.device.advise` says for each setting, against the best of all       (5.1, fig. 19)
    exact      10^9 pairs of every joiner, by checksum
    joins      StreamJoin(device="gpu") against the CPU engine with all cores
    exact_joins   10^9 pairs of these, by checksum

A row names its part, setting, window (bytes of a side) and contender, and has the GB/s of all rounds (both streams,
16 bytes a tuple, whatever travels), or what else it measures. All answers are checked, in a pass before those that are
timed. Where there is no GPU its contenders are left out, and said to be. A quick run shows that everything works.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any

from watersmeet.bench import machine
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.gpu import exact, joins, parts
from watersmeet.bench.gpu.claims import claims
from watersmeet.bench.gpu.study.cpu import CPUJoiner
from watersmeet.bench.gpu.study.manager import Workload
from watersmeet.bench.gpu.study.manager import run as run_windows
from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import Variant
from watersmeet.bench.gpu.study.streams import TUPLE_BYTES, WORDS, Expected, Stream, expected, make
from watersmeet.bench.plain import command_line
from watersmeet.bench.rounds import Row, median
from watersmeet.device.errors import NoDevice

MB = 1 << 20
KB = 1 << 10


@dataclass(frozen=True)
class Sizes:
    """How much a run measures. Bytes are those of one side."""

    stream: int = 128 * MB
    windows: tuple[int, ...] = (1 * MB, 2 * MB, 4 * MB, 8 * MB, 16 * MB)
    small_windows: tuple[int, ...] = (1 * MB, 2 * MB, 4 * MB)
    batch: int = 128 * KB
    batches: tuple[int, ...] = (32 * KB, 64 * KB, 128 * KB, 256 * KB, 512 * KB)
    distinct: tuple[int, ...] = (100, 1000, 10_000)
    zipf: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    copies: tuple[int, ...] = (128 * KB, 1 * MB, 16 * MB, 128 * MB)
    exact: int = 1 << 30  # pairs, at least about
    exact_window: int = 1 << 18  # tuples, of a StreamJoin
    exact_batch: int = 1 << 16
    joins: tuple[int, ...] = (23, 26)  # log2 of windows of StreamJoin, in tuples
    join_batch: int = 1 << 18
    turn: float = 0.25  # seconds that a contender runs in a round, about
    rounds: int = 3

    def __post_init__(self) -> None:
        check_least("rounds", self.rounds, 1)


FULL = Sizes()
QUICK = Sizes(
    stream=1 * MB, windows=(64 * KB, 256 * KB), small_windows=(64 * KB,), batch=16 * KB, batches=(8 * KB, 16 * KB),
    distinct=(100, 1000), zipf=(0.0, 1.0), copies=(128 * KB, 1 * MB), exact=1 << 22, exact_window=1 << 14,
    exact_batch=1 << 12, joins=(14,), join_batch=1 << 12, turn=0.01, rounds=1,
)  # fmt: skip


class Gpu(Bench):
    """A run: what parts measure by, and where they record it."""

    def __init__(self, sizes: Sizes, cores: int, judged: bool, say: Callable[[str], None] | None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes
        self.cores = cores
        self._streams: dict[tuple[int, float], tuple[Stream, Stream]] = {}

    @cached_property
    def gpu(self) -> Any:
        """The device; None where there is none, which is said."""
        from watersmeet.device.machine import machine as device

        try:
            return device()
        except NoDevice as error:
            self.skipped["GPU"] = str(error)
            return None

    def both(self, **choices: Any) -> list[Variant]:
        """A variant on the CPU and, where there is one, on the GPU."""
        found = [Variant(device="cpu", **choices)]
        return [*found, Variant(device="gpu", **choices)] if self.gpu is not None else found

    def on_gpu(self, *variants: Variant) -> list[Variant]:
        return list(variants) if self.gpu is not None else []

    # -- workloads -------------------------------------------------------------------------------------------------

    def streams(self, distinct: int, zipf: float) -> tuple[Stream, Stream]:
        """Made once; in memory that copies to the device read at full speed."""
        if (distinct, zipf) not in self._streams:
            self._streams.clear()  # they are large
            place = {} if self.gpu is None else {"place": self.gpu.pinned}
            n = self.sizes.stream // TUPLE_BYTES
            self._streams[distinct, zipf] = (
                make(n, distinct, zipf, 1, **place), make(n, distinct, zipf, 2, **place),
            )  # fmt: skip
        return self._streams[distinct, zipf]

    def workload(
        self, window: int, distinct: int = 1000, zipf: float = 0.0, batch: int | None = None, most: int | None = None
    ) -> Workload:
        """Windows and batches of so many bytes; at most so many windows."""
        left, right = self.streams(distinct, zipf)
        n = window // TUPLE_BYTES
        size = left.size // n * n if most is None else min(left.size // n, most) * n
        cut = [Stream(one.words[: size * WORDS], one.keys[:size]) for one in (left, right)]
        return Workload(cut[0], cut[1], n, min((batch or self.sizes.batch) // TUPLE_BYTES, n))

    def expected(self, work: Workload) -> list[Expected]:
        n = work.window
        return [
            expected(work.left.keys[i * n : (i + 1) * n], work.right.keys[i * n : (i + 1) * n])
            for i in range(work.windows)
        ]

    # -- measuring -------------------------------------------------------------------------------------------------

    def measure(
        self, part: str, setting: str, work: Workload, variants: Sequence[Variant],
        names: dict[Variant, str] | None = None, **more: Any,
    ) -> dict[Variant, Row]:  # fmt: skip
        """Throughput of variants on one workload, in turns; their answers are checked before."""
        wanted = self.expected(work)
        pairs = [one.pairs for one in wanted]
        joiners = {}
        turns = {}
        for variant in variants:
            joiners[variant] = joiner = self.joiner(variant, work, pairs)
            sink = Sink()
            run_windows(variant, work, joiner, sink)
            for window, one in enumerate(wanted):
                sink.check(window, one, variant.results != "none")
            begin = perf_counter()
            run_windows(variant, work, joiner, Sink(verifies=False))
            turns[variant] = max(int(self.sizes.turn / max(perf_counter() - begin, 1e-6)), 1)
        seconds: dict[Variant, list[float]] = {variant: [] for variant in variants}
        arrived: dict[Variant, list] = {}
        for _ in range(self.sizes.rounds):
            for variant in variants:
                begin = perf_counter()
                for _ in range(turns[variant]):
                    sink = Sink(verifies=False)
                    run_windows(variant, work, joiners[variant], sink)
                seconds[variant].append((perf_counter() - begin) / turns[variant])
                arrived[variant] = sink.arrived
        rows = {}
        for variant in variants:
            joiners[variant].close()
            speeds = [work.nbytes / one / 1e9 for one in seconds[variant]]
            rows[variant] = {
                "part": part, "setting": setting, "window": work.window * TUPLE_BYTES,
                "contender": (names or {}).get(variant) or str(variant), "variant": asdict(variant), "rounds": speeds,
                "gb_per_s": max(speeds), "window_ms": [1e3 * one / work.windows for one in seconds[variant]],
                "results": sum(pairs), "windows": work.windows,
            } | more  # fmt: skip
            if part == "progress":
                rows[variant]["arrived"] = thinned(arrived[variant], work.windows)
            self.record(rows[variant])
        return rows

    def joiner(self, variant: Variant, work: Workload, pairs: list[int]) -> Any:
        if variant.device == "cpu":
            return CPUJoiner(variant, work, self.cores, pairs)
        from watersmeet.bench.gpu.study.gpu import GPUJoiner

        return GPUJoiner(variant, work, pairs)

    def record(self, row: Row) -> None:
        self.results.append(row)
        self.say(said(row))


def thinned(arrived: list[tuple[float, int]], windows: int) -> list[tuple[float, float]]:
    """When which share of the results of the first window had come."""
    total = arrived[-1][1] if arrived else 1
    first = [one for one in arrived if one[1] <= total / windows] or arrived[:1]
    return [(round(1e3 * when, 4), round(windows * count / max(total, 1), 4)) for when, count in first]


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    out: Path | str | None = None,
    rounds: int | None = None,
    cores: int | None = None,
    *,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts; `cores` are those of the CPU's joins (default: all); `say` gets a line
    a measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_least("rounds", rounds, 1)
    check_least("cores", cores, 1)
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds)
    full = not quick and sizes is None
    bench = Gpu(chosen, cores or machine.cores(), full, say)
    if bench.gpu is None:
        bench.judged = False
    found: list[Row] = []
    wrong: list[AnswersDiffer] = []

    def measure() -> None:
        for name, part in PARTS.items():
            if only and name not in only:
                continue
            try:
                part(bench)
            except Exception as error:  # what the others measured is kept: the machine may be lent
                bench.skipped[name] = f"failed: {type(error).__name__}: {error}"
                bench.say(f"{name} {bench.skipped[name]}\n{traceback.format_exc()}")
                wrong.extend([error] if isinstance(error, AnswersDiffer) else [])
        found.extend(claims(bench.results, bench.judged))

    about = {
        "rounds": chosen.rounds, "most": bench.cores, "claims": found,
        "device": None if bench.gpu is None else {"name": bench.gpu.name, "bytes": bench.gpu.total},
        "packages": {name: machine.version(name) for name in ("numba-cuda", "cupy-cuda13x", "cupy-cuda12x")},
    }  # fmt: skip
    report = bench.report("gpu", not full, about, measure, out)
    if wrong:
        raise wrong[0]
    return report


def said(row: Row) -> str:
    """A measurement as a line."""
    where = f"{row['part']}{', ' + row['setting'] if row['setting'] else ''}"
    if "gb_per_s" in row:
        value = f"{median(row['rounds']):.3g} GB/s, best {row['gb_per_s']:.3g}"
    elif "tuples_per_s" in row:
        value = f"{median(row['rounds']) / 1e6:.1f} million tuples/s, best {row['tuples_per_s'] / 1e6:.1f}"
    else:
        value = row["value"]
    return f"{where}, window {row['window']:,}: {row['contender']} {value}"


PARTS: dict[str, Callable[[Gpu], None]] = {
    "link": parts.link,
    "distinct": parts.distinct,
    "skew": parts.skew,
    "breakdown": parts.breakdown,
    "parallel": parts.parallel,
    "progress": parts.progress,
    "energy": parts.energy,
    "results": parts.results,
    "systems": parts.systems,
    "advice": parts.advice,
    "exact": exact.exact,
    "exact_joins": exact.exact_joins,
    "joins": joins.joins,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command where nothing but the engine is installed."""
    size = ("--cores", "cores that joins on the CPU use (default: all)")
    about = "Measure stream joins on a GPU, as the study of them did."
    return command_line("gpu", about, PARTS, size, run, lambda cores: False, arguments)
