"""Rings: messages from one thread to one other, in order, in flat memory.

    ring at `base`, in words of a flat int64 array that has room for many rings:

    | tail ...        |  a cache line: how many messages were put; the producer stores it, the consumer loads it
    | head ...        |  how many were taken; the other way round
    | tail, head seen |  the producer's own notes: it loads `head` again only when the ring looks full by them
    | head, tail seen |  the consumer's
    | message         |  a cache line each, so that nobody waits for a line that the other is writing
    | ...             |

A message is eight words; what they mean is up to those who talk. `put` needs room and `take` a message: both ask first
(`room`, `ready`), because what to do while there is none is theirs to decide.

    while not room(wires, ring): ...               while not ready(wires, ring): ...
    at = slot(wires, ring)                         at = first(wires, ring)
    wires[at], wires[at + 1] = 7, 8                ... wires[at + 1] ...
    put(wires, ring)                               take(wires, ring)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.waiting import LINE, load, store

WORDS = LINE
HEAD, PRODUCER, CONSUMER, DATA = LINE, 2 * LINE, 3 * LINE, 4 * LINE
MASK = 2  # word of both notes


class Wires:
    """Rings, each `capacity` messages (a power of two) long, in one array."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1 or capacity & (capacity - 1):
            raise ValueError(f"capacity must be a power of two, got {capacity}")
        self.capacity = capacity
        self.rings = 0

    def ring(self) -> int:
        """A new one; gives its base."""
        self.rings += 1
        return (self.rings - 1) * self.size

    @property
    def size(self) -> int:
        return DATA + self.capacity * WORDS

    def memory(self) -> np.ndarray:
        """For all rings there are: begins with a cache line."""
        words = np.zeros(self.rings * self.size + LINE, np.int64)
        start = -(words.ctypes.data // 8) % LINE
        words = words[start : start + self.rings * self.size]
        words.reshape(self.rings, self.size)[:, [PRODUCER + MASK, CONSUMER + MASK]] = self.capacity - 1
        return words


@njit(nogil=True)
def room(wires, ring):
    """Whether a message can be put."""
    notes = ring + PRODUCER
    if wires[notes] - wires[notes + 1] <= wires[notes + MASK]:
        return True
    wires[notes + 1] = load(wires, ring + HEAD)
    return wires[notes] - wires[notes + 1] <= wires[notes + MASK]


@njit(nogil=True)
def slot(wires, ring):
    """Where the next message is to be written."""
    notes = ring + PRODUCER
    return ring + DATA + (wires[notes] & wires[notes + MASK]) * WORDS


@njit(nogil=True)
def put(wires, ring):
    """What was written is a message now."""
    wires[ring + PRODUCER] += 1
    store(wires, ring, wires[ring + PRODUCER])


@njit(nogil=True)
def ready(wires, ring):
    """Whether there is a message."""
    notes = ring + CONSUMER
    if wires[notes] < wires[notes + 1]:
        return True
    wires[notes + 1] = load(wires, ring)
    return wires[notes] < wires[notes + 1]


@njit(nogil=True)
def first(wires, ring):
    """Where the oldest message is."""
    notes = ring + CONSUMER
    return ring + DATA + (wires[notes] & wires[notes + MASK]) * WORDS


@njit(nogil=True)
def take(wires, ring):
    """The oldest message has been read."""
    wires[ring + CONSUMER] += 1
    store(wires, ring + HEAD, wires[ring + CONSUMER])
