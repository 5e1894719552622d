"""A chain of cores, as both handshake joins have it: R enters at its left end, S at its right.

    feeder --R-->  core 0  --R, acks-->  core 1  --R, acks-->  core 2  <--S--  feeder
                           <-----S-----          <-----S-----

Between neighbours there is a ring each way. R and S cross in them unseen: a tuple of R may be under way to the right
while one of S is under way to the left. So the right one of two neighbours keeps in mind each tuple of S that it has
sent to the left until the left one has acknowledged it. Acknowledgements go the same way as tuples of R, in one order:

    s arrives before r has left      the acknowledgement is ahead of r: at the right core r does not find s any more
    s arrives after r has left       r is ahead of the acknowledgement: at the right core r finds s

Either way each is seen by the other on one side of the ring and not on both (Teubner, Mueller 2011, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.distributing import arrive
from watersmeet.bench.cores.topologies.job import Circuit
from watersmeet.bench.cores.topologies.messages import (
    END,
    EXPIRE_R,
    EXPIRE_S,
    HOME,
    R,
    S,
    send,
    send_tuple,
    wait_for_room,
)
from watersmeet.bench.cores.topologies.rings import slot
from watersmeet.bench.cores.topologies.segment import new_segment
from watersmeet.bench.cores.topologies.waiting import all_here

NOWHERE = -1  # the ring of a core that has no neighbour there


@njit(nogil=True)
def send_expired(wires, control, feed, i, oldest, left, right, size, cores):
    """Tell homes, by the way of the other stream, of tuples that tuple i and all behind it have no use for."""
    for stream in (R, S):
        ring = right if stream == R else left
        while oldest[stream] < i and (feed.stream[oldest[stream]] != stream or outdated(feed, oldest[stream], i, size)):
            if feed.stream[oldest[stream]] == stream:
                if not wait_for_room(wires, ring, control):
                    return False
                wires[slot(wires, ring) + HOME] = feed.ordinal[oldest[stream]] % cores
                send(wires, ring, EXPIRE_R if stream == R else EXPIRE_S, oldest[stream])
            oldest[stream] += 1
    return True


@njit(nogil=True)
def outdated(feed, u, i, size):
    """Whether u is in no window with tuple i of the other stream, nor with later ones of it."""
    seen = feed.seen[i] if feed.stream[i] != feed.stream[u] else feed.own[i]
    return feed.own[u] < seen - size


@njit(nogil=True, cache=True)
def feed_ends(wires, control, left, right, feed, pace, cores, size, expiring):
    """R to the left end, S to the right; with `expiring`, an expiry for each as well."""
    if not all_here(control):
        return
    oldest = np.zeros(2, np.int64)
    for i in range(feed.stream.size):
        arrive(pace, i, control)
        if expiring and not send_expired(wires, control, feed, i, oldest, left, right, size, cores):
            return
        ring = left if feed.stream[i] == R else right
        if not wait_for_room(wires, ring, control):
            return
        send_tuple(wires, ring, feed, i, cores)
    for ring in (left, right):
        if wait_for_room(wires, ring, control):
            send(wires, ring, END, 0)


def chain(circuit: Circuit, kernel: Callable[..., Any], rooms: Sequence[int], expiring: bool) -> np.ndarray:
    """The threads of a chain of this kernel, with segments for so many tuples; gives the rings that the root is to
    read."""
    job, ring = circuit.job, circuit.wires.ring
    to_right, to_left = [ring() for _ in range(job.cores)], [ring() for _ in range(job.cores)]  # by who reads it
    outboxes = [ring() for _ in range(job.cores)]
    for core in range(job.cores):
        left = to_left[core - 1] if core else NOWHERE
        right = to_right[core + 1] if core + 1 < job.cores else NOWHERE
        circuit.add(
            f"core {core}", kernel, to_right[core], to_left[core], left, right, outboxes[core], core, job.cores,
            *map(new_segment, rooms), job.band.for_kernels(), job.window.size, job.since, job.finished[core],
        )  # fmt: skip
    circuit.add(
        "feeder", feed_ends, to_right[0], to_left[-1], job.feed, job.pace, job.cores, job.window.size, expiring
    )  # fmt: skip
    return np.array(outboxes, np.int64)
