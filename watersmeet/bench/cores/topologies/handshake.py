"""Handshake join: two rows of soccer players walk past each other and shake hands (Teubner, Mueller 2011).

              core 0           core 1           core 2
    R  --> | R8 R7 R6 |  --> | R5 R4 R3 |  --> | R2 R1 R0 |  -->  forgotten
       <-- | S0 S1 S2 |  <-- | S3 S4 S5 |  <-- | S6 S7 S8 |  <--  S

Each core holds a segment of both windows. A tuple that comes in is compared with the segment of the other stream; when
a segment has more than its share (a k-th of the window, by number or by time) its oldest tuple moves on to the next
core, and so all of R passes all of S. Rings between cores and acknowledgements are those of chain.py: a tuple of S that
has moved on stays in sight of R, at the head of its segment, until it is acknowledged.

    held_s   | sent, not acknowledged | not sent |
             head                     sent       tail

Windows slide by flow, so pairs meet that are no longer, or not yet, in one: each is checked against the window by what
the two tuples carry (arrivals.py), as a range of the segment. And a tuple may leave the chain only when everybody who
needs it has come in: at the right end, once a tuple of S has arrived in whose window, and so in all later ones, it is
not.

When both streams have ended, cores let go of R: it passes what is left of S, and the chain runs empty.

A tuple waits half a window, on average, until it meets the newest of the other stream: latency is O(window).

Differs from the paper: cores do not ask how full their neighbours are, shares are fixed. The last core keeps what may
still be needed, however much: a stream that stands still makes the other pile up there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.chain import NOWHERE, chain
from watersmeet.bench.cores.topologies.job import Circuit
from watersmeet.bench.cores.topologies.messages import (
    ACK,
    END,
    KIND,
    OWN,
    POSITION,
    PREVIOUS,
    SEEN,
    VALUES,
    R,
    S,
    pack,
    send,
    unpack,
    wait_for_room,
)  # fmt: skip
from watersmeet.bench.cores.topologies.rings import first, put, ready, room, slot, take
from watersmeet.bench.cores.topologies.segment import HEAD, TAIL, append, expire, first_from, partners, scan
from watersmeet.bench.cores.topologies.waiting import here, rest, stopped
from watersmeet.cycles import cycles

SENT = 2


@njit(nogil=True)
def meet(stored, message, wires, band, size, since, finished, outbox, control):
    """Compare a tuple that came in with the segment of the other stream; says whether to go on."""
    stream, position = wires[message + KIND], wires[message + POSITION]
    x, y = unpack(wires[message + VALUES])
    start, end = partners(stored, position, wires[message + OWN], wires[message + SEEN], size, since)
    if not scan(stored, start, end, stream, x, y, position, band, wires, outbox, control):
        return False
    if finished.size:
        note_finished(stored, position, wires[message + PREVIOUS], finished)
    return True


@njit(nogil=True)
def note_finished(stored, position, previous, finished):
    """A tuple is done when it has met the last tuple that came before it: it meets them oldest first."""
    time, mask = cycles(), stored.x.size - 1
    head, tail = stored.ends[HEAD], stored.ends[TAIL]
    if head == tail:
        return
    if stored.position[head & mask] <= previous <= stored.position[(tail - 1) & mask]:
        finished[position] = time
    later = first_from(stored.position, head, tail, position + 1)
    while later < tail and stored.note[later & mask] == position:
        finished[stored.position[later & mask]] = time
        later += 1


@njit(nogil=True)
def keep(held, message, wires):
    x, y = unpack(wires[message + VALUES])
    position, own, seen = wires[message + POSITION], wires[message + OWN], wires[message + SEEN]
    append(held, x, y, position, own, seen, wires[message + PREVIOUS])


@njit(nogil=True)
def move(held, number, stream, wires, ring):
    """Send a tuple of a segment on."""
    to, at = slot(wires, ring), number & (held.x.size - 1)
    wires[to + KIND] = stream
    wires[to + POSITION] = held.position[at]
    wires[to + VALUES] = pack(held.x[at], held.y[at])
    wires[to + OWN] = held.own[at]
    wires[to + SEEN] = held.seen[at]
    wires[to + PREVIOUS] = held.note[at]
    put(wires, ring)


@njit(nogil=True)
def over(held, oldest, share):
    """Whether a segment has more than its share, from this tuple on."""
    mask, tail = held.x.size - 1, held.ends[TAIL]
    return oldest < tail and held.own[(tail - 1) & mask] - held.own[oldest & mask] >= share


@njit(nogil=True, cache=True)
def join_core(
    wires, control, from_left, from_right, left, right, outbox, core, cores, held_r, held_s, band, size, since, finished
):
    here(control)
    share = max(-(-size // cores), 1)
    newest_r, newest_s = np.int64(0), np.int64(0)  # what the last tuple that came in from either side has seen
    ended_r, ended_s, told_left = False, False, left == NOWHERE
    tries = 0
    while not stopped(control):
        busy = False

        if ready(wires, from_left):
            busy = True
            message = first(wires, from_left)
            kind = wires[message + KIND]
            if kind == R:
                if not meet(held_s, message, wires, band, size, since, finished, outbox, control):
                    return
                keep(held_r, message, wires)
                newest_r = wires[message + SEEN]
            elif kind == ACK:
                held_s.ends[HEAD] += 1
            else:
                ended_r = True
            take(wires, from_left)

        if ready(wires, from_right) and (right == NOWHERE or room(wires, right)):
            busy = True
            message = first(wires, from_right)
            if wires[message + KIND] == S:
                if not meet(held_r, message, wires, band, size, since, finished, outbox, control):
                    return
                keep(held_s, message, wires)
                newest_s = wires[message + SEEN]
                if right != NOWHERE:
                    send(wires, right, ACK, 0)
            else:
                ended_s = True
            take(wires, from_right)

        if right == NOWHERE:
            expire(held_r, newest_s - size)
        else:
            while (ended_r and ended_s and held_r.ends[HEAD] < held_r.ends[TAIL]) or over(
                held_r, held_r.ends[HEAD], share
            ):
                if not room(wires, right):
                    break
                move(held_r, held_r.ends[HEAD], R, wires, right)
                held_r.ends[HEAD] += 1
                busy = True

        if left == NOWHERE:
            expire(held_s, newest_r - size)
        elif not ended_s:
            while over(held_s, held_s.ends[SENT], share) and room(wires, left):
                move(held_s, held_s.ends[SENT], S, wires, left)
                held_s.ends[SENT] += 1
                busy = True
        elif not told_left and room(wires, left):
            send(wires, left, END, 0)
            told_left = True

        if ended_r and ended_s and told_left and (right == NOWHERE or held_r.ends[HEAD] == held_r.ends[TAIL]):
            if right != NOWHERE and wait_for_room(wires, right, control):
                send(wires, right, END, 0)
            if wait_for_room(wires, outbox, control):
                send(wires, outbox, END, 0)
            return
        if busy:
            tries = 0
        else:
            rest(control, tries)
            tries += 1


def handshake(circuit: Circuit) -> np.ndarray:
    """The threads of a run; gives the rings that the root is to read."""
    arrivals = circuit.job.arrivals
    return chain(circuit, join_core, [arrivals.of(R), arrivals.of(S)], expiring=False)
