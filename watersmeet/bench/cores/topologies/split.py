"""SplitJoin: tuples go down a tree to all cores, results come up another (Najafi, Sadoghi, Jacobsen 2016, section 4).

    feeder -> relay -> core 0 -> merger -> root        k = 4 cores, fan-out 2
                    -> core 1 ->
           -> relay -> core 2 -> merger ->
                    -> core 3 ->

Every core sees every tuple of both streams, in order. It looks for partners in what it holds of the other stream, and
stores every k-th tuple of each stream, by a counter of its own: nobody coordinates, and cores do not talk to each
other.

    tuple     R0     R1     S0                   R2            S1                    k = 2
    core 0    store         finds R0, store      finds S0      finds R0, R2
    core 1           store  finds R1                           finds R1, store

Just before it looks, a core forgets what has left the window of the tuple. Where there is no room a tuple takes the
place of the oldest, which has left all windows by then: there is room for a k-th of the largest window. With a fan-out
as large as the number of cores the feeder writes to all of them, and the root reads from all.

Cost: a tuple is compared with window / k tuples in each core at once; log_b(k) hops down and up.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.collecting import merge, new_state, new_written
from watersmeet.bench.cores.topologies.distributing import feed_tree, relay
from watersmeet.bench.cores.topologies.job import Circuit
from watersmeet.bench.cores.topologies.messages import (
    END,
    KIND,
    OWN,
    POSITION,
    SEEN,
    STAR,
    VALUES,
    R,
    S,
    send,
    unpack,
    wait_for_room,
)  # fmt: skip
from watersmeet.bench.cores.topologies.rings import first, ready, take
from watersmeet.bench.cores.topologies.segment import HEAD, TAIL, Segment, append, expire, new_segment, scan
from watersmeet.bench.cores.topologies.waiting import here, rest, stopped
from watersmeet.cycles import cycles


@njit(nogil=True)
def process(stored, stream, x, y, position, seen, size, since, band, wires, outbox, control):
    """Forget what has left the window, look for partners in the rest; says whether to go on."""
    expire(stored, seen - size)
    if position < since:
        return True
    return scan(stored, stored.ends[HEAD], stored.ends[TAIL], stream, x, y, position, band, wires, outbox, control)


@njit(nogil=True, cache=True)
def join_core(wires, control, inbox, outbox, core, cores, held_r, held_s, band, size, since, every, finished):
    """A core; behind `every` so many tuples it sends a star, or none if that is 0."""
    here(control)
    turn_r, turn_s = 0, 0
    tries = 0
    while not stopped(control):
        if not ready(wires, inbox):
            rest(control, tries)
            tries += 1
            continue
        tries = 0
        message = first(wires, inbox)
        kind, position = wires[message + KIND], wires[message + POSITION]
        own, seen = wires[message + OWN], wires[message + SEEN]
        x, y = unpack(wires[message + VALUES])
        take(wires, inbox)
        if kind == END:
            if wait_for_room(wires, outbox, control):
                send(wires, outbox, END, 0)
            return
        if kind == R:
            going = process(held_s, R, x, y, position, seen, size, since, band, wires, outbox, control)
            if turn_r == core:
                append(held_r, x, y, position, own, seen, 0)
            turn_r = turn_r + 1 if turn_r + 1 < cores else 0
        else:
            going = process(held_r, S, x, y, position, seen, size, since, band, wires, outbox, control)
            if turn_s == core:
                append(held_s, x, y, position, own, seen, 0)
            turn_s = turn_s + 1 if turn_s + 1 < cores else 0
        if not going:
            return
        if finished.size:
            finished[position] = cycles()
        if every and position >= since and (position + 1) % every == 0:
            if not wait_for_room(wires, outbox, control):
                return
            send(wires, outbox, STAR, 0)


def groups(members: list[int], fan_out: int) -> list[list[int]]:
    """Neighbours together, in no more groups than the fan-out, as even as can be."""
    count = min(len(members), fan_out)
    edges = [len(members) * i // count for i in range(count + 1)]
    return [members[a:b] for a, b in zip(edges, edges[1:])]


def split(circuit: Circuit) -> np.ndarray:
    """The threads of a run; gives the rings that the root is to read."""
    job, ring = circuit.job, circuit.wires.ring
    fan_out = job.fan_out or max(job.cores, 2)
    cores = list(range(job.cores))
    inboxes, outboxes = [ring() for _ in cores], [ring() for _ in cores]
    for core in cores:
        circuit.add(
            f"core {core}", join_core, inboxes[core], outboxes[core], core, job.cores, held(circuit, R),
            held(circuit, S), job.band.for_kernels(), job.window.size, job.since, job.every, job.finished[core],
        )  # fmt: skip

    def down(members: list[int]) -> int:
        """The ring by which these cores are reached."""
        if len(members) == 1:
            return inboxes[members[0]]
        above = ring()
        circuit.add(f"relay to {members}", relay, above, children(members, down))
        return above

    def up(members: list[int]) -> int:
        """The ring by which results of these cores come."""
        if len(members) == 1:
            return outboxes[members[0]]
        above, below = ring(), children(members, up)
        inner, state = job.order == "inner", new_state(below.size)
        circuit.add(f"merger of {members}", merge, below, above, inner, state, new_written(0))
        return above

    def children(members: list[int], way: Callable[[list[int]], int]) -> np.ndarray:
        return np.array([way(group) for group in groups(members, fan_out)], np.int64)

    circuit.add("feeder", feed_tree, children(cores, down), job.feed, job.pace, job.cores)
    return children(cores, up)


def held(circuit: Circuit, stream: int) -> Segment:
    """Room for a core's share of the largest window."""
    return new_segment(-(-circuit.job.arrivals.most(stream, circuit.job.window) // circuit.job.cores))
