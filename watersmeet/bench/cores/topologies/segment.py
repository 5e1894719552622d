"""The tuples of one stream that a core holds, in order, and the nested loop over them.

    head ..... tail     running numbers; tuple n lies in slot n mod capacity, the oldest is overwritten

A scan looks at one range. It asks of many tuples at a time whether any of them matches, which a processor does for
eight or sixteen at once, and looks at them one by one only where one does. Results go out oldest partner first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.arrivals import R
from watersmeet.bench.cores.topologies.messages import send_result, wait_for_room
from watersmeet.cycles import cycles

HEAD, TAIL = 0, 1
BLOCK = 128


class Segment(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    position: np.ndarray
    own: np.ndarray
    seen: np.ndarray
    note: np.ndarray  # what else a topology keeps of a tuple
    ends: np.ndarray  # head, tail, and what else it counts here


def new_segment(tuples: int) -> Segment:
    """Room for so many tuples, at least."""
    capacity = 1 << max(tuples - 1, 0).bit_length()
    position, own, seen, note = np.empty((4, capacity), np.int64)
    x, y = np.empty(capacity, np.int32), np.empty(capacity, np.float32)
    return Segment(x, y, position, own, seen, note, np.zeros(8, np.int64))


@njit(nogil=True)
def append(segment, x, y, position, own, seen, note):
    """Store a tuple, over the oldest if there is no room left."""
    ends = segment.ends
    slot = ends[TAIL] & (segment.x.size - 1)
    segment.x[slot] = x
    segment.y[slot] = y
    segment.position[slot] = position
    segment.own[slot] = own
    segment.seen[slot] = seen
    segment.note[slot] = note
    ends[TAIL] += 1
    if ends[TAIL] - ends[HEAD] > segment.x.size:
        ends[HEAD] += 1


@njit(nogil=True)
def expire(segment, least):
    """Forget the oldest whose `own` is less than this."""
    ends = segment.ends
    while ends[HEAD] < ends[TAIL] and segment.own[ends[HEAD] & (segment.x.size - 1)] < least:
        ends[HEAD] += 1


@njit(nogil=True)
def first_from(words, start, end, least):
    """The first number in [start, end) whose word is not less than `least`; words do not decrease."""
    mask = words.size - 1
    if start == end or words[start & mask] >= least:  # mostly
        return start
    if words[(end - 1) & mask] < least:
        return end
    while start < end:
        middle = (start + end) >> 1
        if words[middle & mask] < least:
            start = middle + 1
        else:
            end = middle
    return start


@njit(nogil=True)
def partners(segment, position, own, seen, size, since):
    """Range of those in a window with this tuple, of which either has come at `since` or later."""
    start, end = segment.ends[HEAD], segment.ends[TAIL]
    if position < since:
        start = first_from(segment.position, start, end, since)
    start = first_from(segment.own, start, end, seen - size)
    mask = segment.x.size - 1
    if start < end and segment.seen[(end - 1) & mask] > own + size:
        end = first_from(segment.seen, start, end, own + size + 1)
    return start, end


@njit(nogil=True)
def bounds(stream, x, band):
    """Of partners: between which x, and by how much y may differ from the tuple's."""
    if stream == R:
        return np.int32(x + band.low_x), np.int32(x + band.high_x), band.low_y, band.high_y
    return np.int32(x - band.high_x), np.int32(x - band.low_x), -band.high_y, -band.low_y


@njit(nogil=True, inline="always")
def matches(x, y, low_x, high_x, near_y, low_y, high_y):
    apart = y - near_y
    return (x >= low_x) & (x <= high_x) & (apart >= low_y) & (apart <= high_y)


@njit(nogil=True)
def scan(segment, start, end, stream, x, y, position, band, wires, outbox, control):
    """Compare with all tuples in this range and send what matches; says whether to go on."""
    low_x, high_x, low_y, high_y = bounds(stream, x, band)
    mask = segment.x.size - 1
    while start < end:
        slot = start & mask
        size = min(end - start, mask + 1 - slot, BLOCK)
        some = False
        for i in range(size):
            at = np.uint64(slot) + np.uint64(i)
            some |= matches(segment.x[at], segment.y[at], low_x, high_x, y, low_y, high_y)
        if some:
            for found in range(slot, slot + size):
                if matches(segment.x[found], segment.y[found], low_x, high_x, y, low_y, high_y):
                    if not wait_for_room(wires, outbox, control):
                        return False
                    other = segment.position[found]
                    send_result(wires, outbox, max(position, other), min(position, other), cycles())
        start += size
    return True
