"""What threads say to each other: the eight words of a message (rings.py).

    a tuple     R or S    position  values   own      seen  home core  previous  mark
    a result    RESULT    later     earlier  compared                               positions, and when
    others      STAR, ACK, EXPIRE_R, EXPIRE_S, END;  expiry has the position behind which nothing is needed
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.arrivals import R, S
from watersmeet.bench.cores.topologies.rings import WORDS, put, room, slot
from watersmeet.bench.cores.topologies.waiting import rest

KIND, POSITION, VALUES, OWN, SEEN, HOME, PREVIOUS, MARK = range(WORDS)
LATER, EARLIER, COMPARED = 1, 2, 3
ACK, EXPIRE_R, EXPIRE_S, RESULT, STAR, END = range(2, 8)  # beside R and S


@njit(nogil=True)
def wait_for_room(wires, ring, control):
    """Says whether there is room: if not, the run has been stopped."""
    tries = 0
    while not room(wires, ring):
        if not rest(control, tries):
            return False
        tries += 1
    return True


@njit(nogil=True)
def send_tuple(wires, ring, feed, i, cores):
    at = slot(wires, ring)
    wires[at + KIND] = feed.stream[i]
    wires[at + POSITION] = i
    wires[at + VALUES] = feed.values[i]
    wires[at + OWN] = feed.own[i]
    wires[at + SEEN] = feed.seen[i]
    wires[at + HOME] = feed.ordinal[i] % cores
    wires[at + PREVIOUS] = feed.previous[i]
    wires[at + MARK] = -1
    put(wires, ring)


@njit(nogil=True)
def send(wires, ring, kind, position):
    at = slot(wires, ring)
    wires[at + KIND] = kind
    wires[at + POSITION] = position
    put(wires, ring)


@njit(nogil=True)
def send_result(wires, ring, later, earlier, compared):
    at = slot(wires, ring)
    wires[at + KIND] = RESULT
    wires[at + LATER] = later
    wires[at + EARLIER] = earlier
    wires[at + COMPARED] = compared
    put(wires, ring)


@njit(nogil=True)
def copy(wires, source, ring):
    """A message as it is, from where it lies to another ring."""
    at = slot(wires, ring)
    for word in range(WORDS):
        wires[at + word] = wires[source + word]
    put(wires, ring)


@njit(nogil=True)
def unpack(values):
    """x and y of a tuple."""
    return np.int32(values & 0xFFFFFFFF), np.int32(values >> 32).view(np.float32)


@njit(nogil=True)
def pack(x, y):
    """The other way round."""
    return (np.int64(np.float32(y).view(np.int32)) << 32) | (np.int64(x) & 0xFFFFFFFF)


__all__ = [
    "ACK", "COMPARED", "EARLIER", "END", "EXPIRE_R", "EXPIRE_S", "HOME", "KIND", "LATER", "MARK", "OWN", "POSITION",
    "PREVIOUS", "R", "RESULT", "S", "SEEN", "STAR", "VALUES", "copy", "pack", "send", "send_result", "send_tuple",
    "unpack", "wait_for_room",
]  # fmt: skip
