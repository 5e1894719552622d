"""Workloads and checks for joiners of the study, wherever they run."""

from __future__ import annotations

from watersmeet.bench.gpu.study import manager, streams
from watersmeet.bench.gpu.study.manager import Workload
from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import Variant


def workload(n: int, window: int, batch: int, distinct: int, zipf: float = 0.0, place=None) -> Workload:
    options = {} if place is None else {"place": place}
    left, right = (streams.make(n, distinct, zipf, seed, **options) for seed in (1, 2))
    return Workload(left, right, window, batch)


def expected(work: Workload) -> list[streams.Expected]:
    """By comparing every tuple of a window with every other."""
    found = []
    for number in range(work.windows):
        at = slice(number * work.window, (number + 1) * work.window)
        left, right = work.left.keys[at], work.right.keys[at]
        pairs = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a == b]
        checksum = sum(mixed(i) * mixed(~j) for i, j in pairs) % (1 << 64)
        found.append(streams.Expected(len(pairs), checksum))
    return found


def mixed(row: int) -> int:
    """SplitMix64's finaliser, in Python's numbers."""
    most = (1 << 64) - 1
    x = (row + 0x9E3779B97F4A7C15) & most
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & most
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & most
    return x ^ (x >> 31)


def check(variant: Variant, work: Workload, wanted: list[streams.Expected], joiner) -> Sink:
    """Run a joiner twice, as a bench does, and check what came out."""
    for _ in range(2):
        sink = Sink()
        manager.run(variant, work, joiner, sink)
        for number, one in enumerate(wanted):
            sink.check(number, one, variant.results != "none")
        written = 0 if variant.results == "none" else sum(one.pairs for one in wanted)
        assert sink.written == written
        assert sink.total == sum(one.pairs for one in wanted)
    joiner.close()
    return sink
