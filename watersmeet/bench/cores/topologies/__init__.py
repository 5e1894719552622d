"""Topologies of cores that join tuple by tuple, as their papers have them: SplitJoin and its baselines.

    split       a tree down to all cores, a tree up                          Najafi, Sadoghi, Jacobsen 2016
    handshake   a chain: R flows to the right, S to the left, and all meet   Teubner, Mueller 2011
    llhj        the same chain, but tuples run ahead to their homes          Roy, Teubner, Gemulla 2014

They are here to be compared with each other; the engine joins batches, over indexes. Each core, relay, merger and
feeder is a thread that runs one kernel from the first tuple to the last; threads talk through rings (rings.py), and
nothing else. All get the same input and give the same results: a tuple joins with those of the
other stream that came before it and are in its window (arrivals.py), whichever way the two meet.

    outcome = join("split", Job(uniform(10_000), last(1024), cores=4))
    outcome.later, outcome.earlier          positions of the two tuples of each result

A run takes times inside of the kernels: from a tuple's arrival until it was compared with a partner (visiting latency),
and until all comparisons are done and results collected (processing latency).
"""

from watersmeet.bench.cores.topologies import handshake, llhj, split
from watersmeet.bench.cores.topologies.arrivals import (
    EQUALITY,
    TWO_DIMENSIONS,
    Arrivals,
    Band,
    R,
    S,
    Window,
    last,
    uniform,
    within,
)  # fmt: skip
from watersmeet.bench.cores.topologies.job import Circuit, Job, Outcome
from watersmeet.bench.cores.topologies.running import run

TOPOLOGIES = {"split": split.split, "handshake": handshake.handshake, "llhj": llhj.llhj}


def join(topology: str, job: Job) -> Outcome:
    """Run a job on a topology."""
    if topology not in TOPOLOGIES:
        raise ValueError(f"topology must be one of {', '.join(TOPOLOGIES)}, got {topology!r}")
    if topology != "split" and (job.order != "none" or job.fan_out is not None):
        raise ValueError(f"order and fan_out must be left out for {topology!r}: chains have no trees")
    circuit = Circuit(job)
    results = TOPOLOGIES[topology](circuit)
    return run(circuit, results)


__all__ = [
    "EQUALITY", "TOPOLOGIES", "TWO_DIMENSIONS", "Arrivals", "Band", "Job", "Outcome", "R", "S", "Window", "join",
    "last", "uniform", "within",
]  # fmt: skip
