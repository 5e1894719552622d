"""What the study of GPU-accelerated stream joins says, and what a run of `watersmeet bench gpu` says of ours.

As in bench/claims.py: claims are given, and judged, by the medians of the rounds, with the best beside them, and hold
if they do give or take a tenth. The study's figures are of an NVIDIA V100 and 40 threads of two Xeons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from watersmeet.bench.claims import Claims, Row, claim, percent, with_best
from watersmeet.bench.rounds import median

MB = 1 << 20


def claims(results: list[Row], judged: bool = True) -> list[Row]:
    """All claims that these results say something about; not judged where sizes are not the study's."""
    return with_best(_claims(Found(results, median)), _claims(Found(results, max)), judged)


def some(row: str, says: str, paper: str, ours: list[float], *bounds: Any, **more: Any) -> list[Row]:
    """A claim, if there is anything to hold against it."""
    return [claim(row, says, paper, ours, *bounds, **more)] if ours else []


class Found:
    """The results of a run by what they are of; which of the rounds counts is the caller's to say."""

    def __init__(self, results: list[Row], speed: Callable[[Sequence[float]], float]) -> None:
        self.results, self.of = results, speed

    def rows(self, part: str, **wanted: Any) -> list[Row]:
        def fits(row: Row) -> bool:
            variant = row.get("variant", {})
            return all(variant.get(name, row.get(name)) == value for name, value in wanted.items())

        return [row for row in self.results if row["part"] == part and fits(row)]

    def windows(self, part: str) -> list[int]:
        return sorted({row["window"] for row in self.rows(part)})

    def speed(self, part: str, **wanted: Any) -> float | None:
        rows = self.rows(part, **wanted)
        return self.of(rows[0]["rounds"]) if rows else None

    def ratios(self, part: str, one: Row, other: Row, windows: Sequence[int] | None = None, **same: Any) -> list[float]:
        """Speeds of one variant to another's, by windows."""
        found = []
        for window in self.windows(part) if windows is None else windows:
            pair = [self.speed(part, window=window, **same, **wanted) for wanted in (one, other)]
            if pair[0] is not None and pair[1] is not None:
                found.append(pair[0] / pair[1])
        return found


def _claims(found: Found) -> Claims:
    for judge in (_distinct, _skew, _breakdown, _parallel, _progress, _results, _systems, _energy, _lessons):
        yield from judge(found)


GPU_HASH = {"device": "gpu", "algorithm": "hash", "travels": "tuples"}
GPU_SORT = {"device": "gpu", "algorithm": "sort_merge", "travels": "tuples"}
CPU_HASH = {"device": "cpu", "algorithm": "hash"}
CPU_SORT = {"device": "cpu", "algorithm": "sort_merge"}


def _distinct(found: Found) -> Claims:
    for name, variant in (("CPU", CPU_HASH), ("GPU", GPU_HASH)):
        values = found.ratios("distinct", variant | {"distinct": 10_000}, variant | {"distinct": 100})
        yield from some("G2", f"{name} hash, 10K keys to 100", "higher with more keys", values, low=1.1)
    for name, variant in (("CPU", CPU_SORT), ("GPU", GPU_SORT)):
        values = found.ratios("distinct", variant | {"distinct": 10_000}, variant | {"distinct": 100})
        yield from some("G2", f"{name} sort-merge, 10K keys to 100", "about the same", values, low=0.8, high=1.25)
    values = found.ratios("distinct", GPU_HASH, GPU_SORT, distinct=10_000)
    says = "GPU hash to GPU sort-merge, 10K keys, the most of all windows"
    yield from some("G2", says, "1.09x", [max(values)] if values else [], low=1.0)
    values = found.ratios("distinct", CPU_SORT, GPU_HASH, distinct=100)
    yield from some("G2", "CPU sort-merge to GPU hash, 100 keys", "24x to 33x", values, low=1.0)


def _skew(found: Found) -> Claims:
    names = (
        ("CPU hash", CPU_HASH, "1.91 to 0.58 GB/s (30%)", None, 0.6),
        ("CPU sort-merge", CPU_SORT, "3.68 to 4.0 GB/s (109%)", 0.9, None),
        ("GPU hash", GPU_HASH, "11.1 to 4.1 GB/s (37%)", None, 0.6),
        ("GPU sort-merge", GPU_SORT, "8.75 GB/s throughout", 0.9, None),
    )
    for name, variant, paper, low, high in names:
        values = found.ratios("skew", variant | {"zipf": 1.0}, variant | {"zipf": 0.0})
        yield from some("G2", f"{name}, zipf 1 to zipf 0", paper, values, low=low, high=high, show=percent)


def _breakdown(found: Found) -> Claims:
    def phase(name: str, contender: str, **wanted: Any) -> float | None:
        rows = found.rows("breakdown", contender=contender, **wanted)
        return rows[0]["ms"][name] if rows else None

    def ratio(name: str, contender: str, one: Row, other: Row) -> list[float]:
        pair = phase(name, contender, **one), phase(name, contender, **other)
        return [pair[0] / pair[1]] if pair[0] is not None and pair[1] is not None else []

    even = {"zipf": 0.0}
    for many, few, paper in ((1000, 100, "5.8x"), (10_000, 1000, "2.9x")):
        values = ratio("probe", "GPU hash", even | {"distinct": few}, even | {"distinct": many})
        yield from some("G2", f"GPU hash, probe time with {few} keys to {many:,}", paper, values, low=2.0)
    values = ratio("probe", "GPU hash", {"zipf": 1.0}, even | {"distinct": 1000})
    yield from some("G2", "GPU hash, probe time at zipf 1 to zipf 0", "up to 4x", values, low=2.0)
    values = ratio("sort", "GPU sort merge", {"zipf": 1.0}, even | {"distinct": 1000})
    yield from some("G2", "GPU sort-merge, sort time at zipf 1 to zipf 0", "1.07x", values, high=1.07)
    merge, sort = (phase(name, "GPU sort merge", **even, distinct=1000) for name in ("merge", "sort"))
    if merge is not None and sort is not None:
        says = "GPU sort-merge, merge time to sort time"
        yield from some("G2", says, "4%", [merge / sort], high=0.5, show=percent)


def _parallel(found: Found) -> Claims:
    windows = found.windows("parallel")
    small, middle, large = windows[:1], windows[2:4], windows[-1:]
    cpu, gpu = {"device": "cpu"}, {"device": "gpu"}
    values = found.ratios("parallel", cpu | {"parallel": "inter"}, cpu | {"parallel": "hybrid"}, small)
    yield from some("G4", "CPU, inter- to hybrid, 1 MB", "6.0 to 3.0 GB/s (2x)", values, low=1.0)
    values = found.ratios("parallel", cpu | {"parallel": "hybrid"}, cpu | {"parallel": "inter"}, middle)
    yield from some("G4", "CPU, hybrid to inter-window, 4 and 8 MB", "hybrid is best", values, low=1.0)
    values = found.ratios("parallel", cpu | {"parallel": "intra"}, cpu | {"parallel": "inter"}, large)
    yield from some("G4", "CPU, intra- to inter-window, 16 MB", "intra is for large windows", values, low=1.0)
    values = found.ratios("parallel", gpu | {"parallel": "intra"}, cpu | {"parallel": "intra"})
    yield from some("G4", "intra-window, GPU to CPU", "4.7x to 8.6x", values, low=4.7)
    values = found.ratios("parallel", gpu | {"parallel": "intra"}, cpu | {"parallel": "inter"}, small)
    yield from some("G4", "1 MB, GPU intra- to CPU inter-window", "5.25 to 6.0 GB/s (0.88x)", values, high=0.95)
    values = found.ratios("parallel", gpu | {"parallel": "inter"}, gpu | {"parallel": "intra"})
    yield from some("G4", "GPU, inter- to intra-window", "1.2x to 1.86x", values, low=1.2)


def _progress(found: Found) -> Claims:
    lazy, eager = {"progress": "lazy"}, {"progress": "eager"}
    for device, paper, high in (("cpu", "3.59 to 4.38 ms (1.22x)", 1.22), ("gpu", "0.93 to 1.56 ms (1.68x)", 1.68)):
        values = found.ratios("progress", {"device": device} | lazy, {"device": device} | eager, batch=128 << 10)
        yield from some("G3", f"{device.upper()}, eager's time of a window to lazy's", paper, values, high=high)
    values = found.ratios("progress", {"device": "gpu"} | lazy, {"device": "gpu"} | eager, batch=128 << 10)
    yield from some("G3", "GPU, lazy's throughput to eager's", "3.56x", values, low=1.0)
    batches = sorted({row["batch"] for row in found.rows("progress")})
    if len(batches) > 1:
        speeds = [found.speed("progress", device="gpu", progress="eager", batch=batch) for batch in batches]
        known = [speed for speed in speeds if speed is not None]
        rises = [later / before for before, later in zip(known, known[1:], strict=False)]
        yield from some("G3", "GPU eager, each batch size to the next smaller", "larger are faster", rises, low=1.0)


def _results(found: Found) -> Claims:
    for name, algorithm in (("hash", "hash"), ("sort-merge", "sort_merge")):
        of = {"device": "gpu", "algorithm": algorithm}

        def to(kind: str, other: str, of: Row = of) -> list[float]:
            return found.ratios("results", of | {"results": kind}, of | {"results": other}, distinct=1000)

        says = f"GPU {name}, counting to making pairs (estimated)"
        yield from some("G5", says, "70x and more", to("none", "estimated"), low=10.0)
        says = f"GPU {name}, count kernel to atomic"
        yield from some("G5", says, "up to 10.2x", to("count_kernel", "atomic"), low=5.0)
        paper = "lower" if algorithm == "hash" else "the same"
        low, high = (None, 1.0) if algorithm == "hash" else (0.9, None)
        values = to("count_kernel", "estimated")
        yield from some("G5", f"GPU {name}, count kernel to estimated", paper, values, low, high, show=percent)
    values = found.ratios(
        "results", {"algorithm": "sort_merge"}, {"algorithm": "hash"}, results="count_kernel", device="gpu",
        distinct=1000,
    )  # fmt: skip
    yield from some("G5", "count kernel, GPU sort-merge to hash", "sort-merge is to be used", values, low=1.0)


def _systems(found: Found) -> Claims:
    def speeds(setting: str, *names: str) -> list[float]:
        rows = found.rows("systems", setting=setting)
        return [found.of(row["rounds"]) for row in rows if any(name in row["contender"] for name in names)]

    hashes, loops = speeds("counted", "EcoJoin", "EPHSA"), speeds("counted", "SABER", "FineStream", "HELLS-join")
    if hashes and loops:
        says = "counted: the slowest hash join to the fastest nested loop"
        yield from some("G8", says, "higher", [min(hashes) / max(loops)], low=1.0)
    lazy, eager = speeds("counted", "SABER"), speeds("counted", "HELLS-join")
    says = "counted: SABER and FineStream to HELLS-join"
    yield from some("G8", says, "slightly higher", [a / b for a, b in zip(lazy, eager, strict=False)], low=1.0)
    made, none = speeds("as they are", "EPHSA"), speeds("counted", "EPHSA")
    says = "EPHSA, counted to with pairs, 1 MB"
    values = [a / b for a, b in zip(none, made, strict=False)][:1]
    yield from some("G8", says, "1.17 GB/s to 23.4 MB/s (50x)", values, low=5.0)
    saber = speeds("as they are", "SABER")
    says = "with pairs: EPHSA (atomic) to SABER (count kernel)"
    yield from some("G8", says, "higher", [a / b for a, b in zip(made, saber, strict=False)], low=1.0)


def _energy(found: Found) -> Claims:
    rows = found.rows("energy")
    values = [row["gb_per_wh"] for row in rows[:1]]
    says = "GB a watt-hour, GPU hash, 1 MB"
    yield from some("G7", says, "557 (V100), 1,244 (Jetson)", values, low=557.0, show="{:.0f}".format)


def _lessons(found: Found) -> Claims:
    """Section 5.2; the second to fifth are above."""
    values = found.ratios("distinct", GPU_HASH, CPU_HASH, distinct=1000)
    yield from some("G9", "GPU to CPU, hash, 1K keys, by windows", "up to 1.63x, not in all cases", values, low=1.0)
    shares = [row["share"] for row in found.rows("advice")]
    says = "what the guideline advises, to the best variant"
    yield from some("G9", says, "the best", [min(shares)] if shares else [], low=0.9, show=percent)
