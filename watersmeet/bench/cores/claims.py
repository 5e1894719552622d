"""What the papers of SplitJoin and PIM say of many cores, and what a run of `watersmeet bench cores` says of ours.

    claims(results)   one row a claim: where it stands, the paper's figure, ours, whether it holds

As in bench/claims.py: claims are given, and judged, by the medians of the rounds, with the best beside them, and hold
if they do give or take a tenth. SplitJoin's figures are of 28 join cores of 32, ours of all but two; PIM's are of 8
cores with two threads each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from watersmeet.bench.claims import Claims, Row, claim, percent, with_best
from watersmeet.bench.rounds import median

PIM_CORES = 8
FIRST = 4  # join cores from which on the paper's latencies part


def claims(results: list[Row], judged: bool = True) -> list[Row]:
    """All claims that these results say something about; not judged where sizes are not the papers'."""
    return with_best(_claims(Found(results, median, median)), _claims(Found(results, max, min)), judged)


class Found:
    """The results of a run by what they are of; which of the rounds counts is the caller's to say."""

    def __init__(
        self, results: list[Row], speed: Callable[[Sequence[float]], float], time: Callable[[Sequence[float]], float]
    ) -> None:
        self.results, self._speed, self._time = results, speed, time

    def rows(self, part: str, **wanted: Any) -> list[Row]:
        return [
            row for row in self.results
            if row["part"] == part and all(row[name] == value for name, value in wanted.items())
        ]  # fmt: skip

    def counts(self, part: str) -> list[int]:
        """Join cores that a part was measured with; where there are two more, without those that have none to spare."""
        counts = sorted({row["cores"] for row in self.rows(part)})
        return counts[:-1] if len(counts) > 1 and counts[-1] - 2 in counts else counts

    def speed(self, part: str, **wanted: Any) -> float:
        (row,) = self.rows(part, **wanted)
        return self._speed(row["rounds"])

    def latency(self, contender: str, cores: int, kind: str) -> float:
        """The mean, as in the paper."""
        (row,) = self.rows("latency", contender=contender, cores=cores)
        return self._time([one["mean"] for one in row["latency"][kind]])


def _claims(found: Found) -> Claims:
    for judge in (_topologies, _windows, _ordering, _latency, _shared, _ordered):
        yield from judge(found)


def _topologies(found: Found) -> Claims:
    windows = sorted({row["window"] for row in found.rows("topologies")})
    if not windows:
        return

    def speed(contender: str, cores: int, window: int) -> float:
        return found.speed("topologies", contender=contender, cores=cores, window=window)

    counts = found.counts("topologies")
    most = counts[-1]
    ratios = [speed("split", most, window) / speed("llhj", most, window) for window in windows]
    says = f"SplitJoin's tuples/s over low-latency handshake join's, {most} cores, all windows"
    yield claim("S1", says, "up to 1.6x", [max(ratios)], low=1.6)
    yield claim("S1", f"the least of these, {most} cores", "above 1x", [min(ratios)], low=1.0)
    grown = [speed("split", most, window) / speed("split", counts[0], window) / most for window in windows]
    says = f"SplitJoin's tuples/s a core, {most} cores to one"
    yield claim("S1", says, "scales gracefully", grown, low=0.5, show=percent)
    small, large = (speed("split", most, window) for window in (windows[0], windows[-1]))
    if windows[0] < windows[-1]:
        factor = windows[-1] // windows[0]
        says = f"SplitJoin's tuples/s in a window {factor} times as large"
        yield claim("S3", says, f"1/{factor}, less overhead", [large / small * factor], low=1.0)


def _windows(found: Found) -> Claims:
    ratios = [
        found.speed("windows", window=window, contender="by number")
        / found.speed("windows", window=window, contender="by time")
        for window in sorted({row["window"] for row in found.rows("windows")})
    ]
    if ratios:
        says = "SplitJoin's tuples/s over windows by number, to the same by time"
        yield claim("S3", says, "about 1.2x, times by system calls", ratios, low=1.2)


def _ordering(found: Found) -> Claims:
    settings = sorted({(row["window"], row["setting"]) for row in found.rows("ordering")})
    if not settings:
        return

    def ratios(contender: str, to: str) -> list[float]:
        return [
            found.speed("ordering", window=window, setting=setting, contender=contender)
            / found.speed("ordering", window=window, setting=setting, contender=to)
            for window, setting in settings
        ]  # fmt: skip

    says = "SplitJoin in pieces of 100 tuples, to no order"
    yield claim("S4", says, "hardly slower", ratios("every 100", "none"), low=0.95, show=percent)
    says = "the same in strict outer order"
    yield claim("S4", says, "hardly slower", ratios("outer", "none"), low=0.9, show=percent)
    says = "SplitJoin in strict inner order, to outer order (ours by partner, theirs by a star a comparison)"
    yield claim("S4", says, "much slower", ratios("inner", "outer"), high=0.75, show=percent)


def _latency(found: Found) -> Claims:
    counts = found.counts("latency")
    if not counts:
        return
    most, first = counts[-1], min(FIRST, counts[-1])

    def latency(contender: str, cores: int, kind: str = "visiting") -> float:
        return found.latency(contender, cores, kind)

    ratio = latency("llhj", most) / latency("split", most)
    says = f"low-latency handshake join's visiting latency over SplitJoin's, {most} cores"
    yield claim("S7", says, "3.3x", [ratio], low=3.3)
    ratio = latency("llhj", most, "processing") / latency("split", most, "processing")
    yield claim("S7", f"the same of processing latency, {most} cores", "-", [ratio])
    ratio = latency("handshake", most) / latency("llhj", most)
    says = f"handshake join's visiting latency over the low-latency one's, {most} cores"
    yield claim("S5", says, "O(window) to O(k)", [ratio], low=10)
    if first < most and first in counts:
        grown = [latency(name, most) / latency(name, first) for name in ("split", "llhj")]
        says = f"SplitJoin's visiting latency, {most} cores to {first}"
        yield claim("S7", says, "O(log k)", grown[:1], high=math.log(most) / math.log(first))
        says = f"low-latency handshake join's visiting latency, {most} cores to {first}"
        yield claim("S7", says, "O(k)", grown[1:], low=most / first)


def _shared(found: Found) -> Claims:
    counts = sorted({row["cores"] for row in found.rows("shared")})
    if not counts or counts[0] > 1:
        return

    def speed(contender: str, cores: int) -> float:
        return found.speed("shared", contender=contender, cores=cores)

    many = max(cores for cores in counts if cores <= PIM_CORES)
    ratio = speed("shared", many) / speed("shared", 1)
    yield claim("M6", f"PIM-Trees that {many} threads share, tuples/s to one thread", "4.6x", [ratio], low=4.6)
    if counts[-1] > many:
        ratio = speed("shared", counts[-1]) / speed("shared", 1)
        yield claim("M6", f"the same with {counts[-1]} threads", "5.6x, two a core", [ratio], low=5.6)
    ratio = speed("shared", many) / speed("round-robin", many)
    yield claim("M8", f"the same to round-robin partitioning, {many} threads", "above 2x", [ratio], low=2.0)
    ratio = speed("round-robin", many) / speed("round-robin", 1)
    yield claim("M8", f"round-robin partitioning, {many} threads to one", "2.5x", [ratio], low=1.25, high=2.5)
    if found.rows("shared", contender="Bw-Tree"):
        ratio = speed("shared", many) / speed("Bw-Tree", many)
        says = f"PIM-Trees that {many} threads share, to Bw-Trees"
        yield claim("M8", says, "2.2x, mean of windows", [ratio], low=2.2)
        ratio = speed("Bw-Tree", many) / speed("shared", 1)
        yield claim("M8", f"Bw-Trees that {many} threads share, to PIM-Trees and one thread", "1.8x", [ratio], low=1.8)
        ratio = speed("Bw-Tree", many) / speed("round-robin", many)
        says = f"Bw-Trees that {many} threads share, to round-robin partitioning"
        yield claim("M8", says, "0.35x (2^14) to 1.75x (2^25)", [ratio], low=0.35)
    ratio = speed("shared", many) / speed("blocking merge", many)
    yield claim("M7", f"merges beside the work, to merges that block, {many} threads", "above 1x", [ratio], low=1.0)


def _ordered(found: Found) -> Claims:
    for cores in sorted({row["cores"] for row in found.rows("ordered")}):
        for order, least in (("outer", 0.9), ("inner", 0.75)):
            ratio = found.speed("ordered", contender=order, cores=cores) / found.speed(
                "ordered", contender="none", cores=cores
            )
            says = f"a join's results in {order} order, to none, {cores} cores"
            yield claim("S4", says, f"ours: at least {percent(least)}", [ratio], low=least, show=percent)
