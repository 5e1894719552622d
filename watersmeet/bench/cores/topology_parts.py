"""The parts of `watersmeet bench cores` that compare topologies, each with the nested loop of the papers in its cores.

A run first fills its windows, and then joins as many tuples as take about a turn, but at least as many as a window has:
in a handshake join work is put off by up to a window. Streams are those of the benchmark (S6), R and S in turn; where
latencies or the order of results are measured, values come from a smaller range, so that a tuple has a partner or two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.cores.topologies import TOPOLOGIES, Job, Outcome, join, last, uniform, within
from watersmeet.bench.cores.topologies.arrivals import DOMAIN, TWO_DIMENSIONS
from watersmeet.bench.rounds import Row

if TYPE_CHECKING:
    from watersmeet.bench.cores import Cores

MOST_TUPLES = 1 << 20
LOAD = 0.5  # rate at which latencies are taken, of what the slowest topology can take
PARTNERS = 2.0  # of a tuple, where there are to be some

Contenders = dict[str, tuple[str, dict[str, Any]]]  # name -> topology, options of its job


def topologies(bench: Cores) -> None:
    contenders: Contenders = {name: (name, {}) for name in TOPOLOGIES}
    for window in bench.sizes.windows:
        for cores in bench.counts:
            race(bench, "topologies", "", window, cores, contenders)


def fan_out(bench: Cores) -> None:
    widths = sorted({width for width in (2, 4, bench.many) if 2 <= width <= bench.many} or {2})
    contenders: Contenders = {f"fan-out {width}": ("split", {"fan_out": width}) for width in widths}
    for window in bench.sizes.windows[:2]:
        race(bench, "fan_out", "", window, bench.many, contenders)


def windows(bench: Cores) -> None:
    """The same windows by number and by time: tuples of a stream come every second tick."""
    for window in bench.sizes.windows[:2]:
        contenders: Contenders = {
            "by number": ("split", {}),
            "by time": ("split", {"window": within(2 * window - 1)}),
        }
        race(bench, "windows", "", window, bench.many, contenders)


def ordering(bench: Cores) -> None:
    orders = {"none": "none", "every 100": 100, "every 10": 10, "outer": "outer", "inner": "inner"}
    contenders: Contenders = {name: ("split", {"order": order}) for name, order in orders.items()}
    for window in bench.sizes.windows[:2]:
        for setting, domain in (("few results", DOMAIN), ("many results", crowded(window))):
            race(bench, "ordering", setting, window, bench.many, contenders, domain)


def latency(bench: Cores) -> None:
    """At one rate for all topologies, by the slowest of them."""
    window = bench.sizes.windows[0]
    domain = crowded(window)
    for cores in bench.counts:
        speeds = []
        for topology in TOPOLOGIES:
            tuples = sized(bench, topology, {}, window, cores, domain)
            speeds.append(speed(joined(topology, {}, window, cores, tuples, domain), tuples))
        rate = LOAD * min(speeds)
        tuples = max(min(round(rate * 2 * bench.sizes.turn), MOST_TUPLES), 2 * window)
        found: dict[str, dict[str, list[Row]]] = {name: {"visiting": [], "processing": []} for name in TOPOLOGIES}
        checks = {}
        for _ in range(bench.sizes.rounds):
            for topology in TOPOLOGIES:
                outcome = joined(topology, {"rate": rate, "timed": True}, window, cores, tuples, domain)
                checks[topology] = checked(outcome)
                for name, rounds in found[topology].items():
                    rounds.append(summary(getattr(outcome, name)))
        pairs = agree(f"latency, window {window}, {cores} cores", checks)
        for topology in TOPOLOGIES:
            about = {"part": "latency", "setting": "", "window": window, "cores": cores, "contender": topology}
            bench.record(about | {"rate": rate, "latency": found[topology], "checked_pairs": pairs.pairs})


# -- runs ----------------------------------------------------------------------------------------------------------


def race(
    bench: Cores, part: str, setting: str, window: int, cores: int, contenders: Contenders, domain: int = DOMAIN
) -> None:
    """Rounds of all contenders, in turn; a row each."""
    topology, options = next(iter(contenders.values()))
    tuples = sized(bench, topology, options, window, cores, domain)
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    checks = {}
    for _ in range(bench.sizes.rounds):
        for name, (topology, options) in contenders.items():
            outcome = joined(topology, options, window, cores, tuples, domain)
            speeds[name].append(speed(outcome, tuples))
            checks[name] = checked(outcome)
    pairs = agree(f"{part}, window {window}, {cores} cores", checks)
    about = {"part": part, "setting": setting, "window": window, "cores": cores}
    about |= {"tuples": tuples, "checked_pairs": pairs.pairs, "checksum": str(pairs)}
    for name, rounds in speeds.items():
        bench.record(about | {"contender": name, "tuples_per_s": max(rounds), "rounds": rounds})


def joined(topology: str, options: dict[str, Any], window: int, cores: int, tuples: int, domain: int) -> Outcome:
    """So many tuples, with the windows full."""
    filled, options = 2 * window, {"window": last(window)} | options
    return join(topology, Job(uniform(filled + tuples, domain=domain), cores=cores, since=filled, **options))


def sized(bench: Cores, topology: str, options: dict[str, Any], window: int, cores: int, domain: int) -> int:
    """How many tuples make a turn."""
    some = min(window, 2_000)
    guess = speed(joined(topology, options, window, cores, some, domain), some)
    return max(min(round(guess * bench.sizes.turn), MOST_TUPLES), window)


def speed(outcome: Outcome, tuples: int) -> float:
    return tuples / outcome.seconds


def crowded(window: int) -> int:
    """A range of values in which a tuple has some partners in a window."""
    width = TWO_DIMENSIONS.high_x - TWO_DIMENSIONS.low_x + 1
    return max(round(width * math.sqrt(window / PARTNERS)), 1)


def checked(outcome: Outcome) -> Checksum:
    return Checksum.of(outcome.later, outcome.earlier)


def agree(where: str, checks: dict[str, Checksum]) -> Checksum:
    first, *others = checks
    for name in others:
        if checks[name] != checks[first]:
            raise AnswersDiffer(f"{where}: {first} gives {checks[first]}, {name} {checks[name]} (pairs:checksum)")
    return checks[first]


def summary(seconds: np.ndarray) -> Row:
    """Of the latencies of a round."""
    if not seconds.size:
        return {"count": 0, "mean": math.nan, "median": math.nan, "p90": math.nan, "p99": math.nan}
    middle, p90, p99 = (float(value) for value in np.percentile(seconds, (50, 90, 99)))
    return {"count": seconds.size, "mean": float(seconds.mean()), "median": middle, "p90": p90, "p99": p99}
