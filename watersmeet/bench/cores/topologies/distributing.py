"""The way down: the feeder lets tuples arrive, and inner nodes of the tree hand them on, in order.

A tuple arrives when the feeder takes it, or, where a rate is given, when it is due: a feeder that is held up makes
tuples wait, it does not slow the stream down. Those before `since` only fill the windows, as fast as they can.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.messages import END, KIND, copy, send, send_tuple, wait_for_room
from watersmeet.bench.cores.topologies.rings import first, ready, take
from watersmeet.bench.cores.topologies.waiting import all_here, here, rest, stopped
from watersmeet.cycles import cycles


class Pace(NamedTuple):
    since: int  # position of the first tuple that is joined
    gap: float  # cycles from one tuple to the next; 0: as fast as possible
    arrived: np.ndarray  # when, by position


@njit(nogil=True)
def arrive(pace, i, control):
    """Wait until tuple i is due, and note when it was."""
    time = cycles()
    if pace.gap > 0 and i > pace.since:
        due = pace.arrived[pace.since] + np.int64((i - pace.since) * pace.gap)
        tries = 0
        while time < due and rest(control, tries):
            tries += 1
            time = cycles()
        time = due
    pace.arrived[i] = time


@njit(nogil=True, cache=True)
def feed_tree(wires, control, children, feed, pace, cores):
    """Every tuple to all children."""
    if not all_here(control):
        return
    for i in range(feed.stream.size):
        arrive(pace, i, control)
        for child in children:
            if not wait_for_room(wires, child, control):
                return
            send_tuple(wires, child, feed, i, cores)
    for child in children:
        if wait_for_room(wires, child, control):
            send(wires, child, END, 0)


@njit(nogil=True, cache=True)
def relay(wires, control, inbox, children):
    """Every message to all children, to the end."""
    here(control)
    tries = 0
    while not stopped(control):
        if not ready(wires, inbox):
            rest(control, tries)
            tries += 1
            continue
        tries = 0
        message = first(wires, inbox)
        for child in children:
            if not wait_for_room(wires, child, control):
                return
            copy(wires, message, child)
        last = wires[message + KIND] == END
        take(wires, inbox)
        if last:
            return
