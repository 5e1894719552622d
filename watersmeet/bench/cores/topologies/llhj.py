"""Low-latency handshake join: tuples run ahead of their windows (Roy, Teubner, Gemulla 2014).

                 core 0      core 1      core 2
    R6  -->     | R0 R3 |   | R1 R4 |   | R2 R5 |     R6 runs through all cores, and is stored in core 0, its home
                | S0 S3 |   | S1 S4 |   | S2 S5 |     <--  S6

A tuple does not wait until others push it on: a core hands it to the next one before it looks at it, compares it with
what it has stored of the other stream, and stores it if it is the tuple's home (homes take turns). When a tuple is in
no window any more, the feeder sends a message of its expiry to its home, by the way of the other stream and so behind
all tuples that still needed it: one for every tuple.

Of two tuples r and s, let c be the last core that saw r first: cores further left did as well, those further right saw
s first. If r's home is c or left of it, s finds r there. If s's home is right of c, r finds s there. So far two tuples
may find each other twice, or not at all:

    homes        r left, s left    r left, s right    r right, s left    r right, s right       of the place they cross
    found by     s                 both               nobody             r

    both      once r has been stored, it looks only for those of S that passed its home before it. It carries the
              position of the last of them (`mark`). The others will find it at home.
    nobody    they are compared where they cross. The core right of that place has sent s to the left, and it has not
              been acknowledged when r comes in (chain.py): so r meets all that it crosses, each once. It is compared
              with those whose homes, and its own, lie so that nobody else does it.

Partners are checked against the window by what both tuples carry (arrivals.py): expiry makes room, and decides nothing.

Cost: a tuple is compared with window / k tuples in each core at once, k hops one after the other, and twice the
messages.

Differs from the paper: there stored tuples are hidden until they have run to the end of the chain, and a message comes
back to say so. The mark does the same without one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.chain import NOWHERE, chain
from watersmeet.bench.cores.topologies.job import Circuit
from watersmeet.bench.cores.topologies.messages import (
    ACK,
    END,
    EXPIRE_R,
    EXPIRE_S,
    HOME,
    KIND,
    MARK,
    OWN,
    POSITION,
    SEEN,
    VALUES,
    R,
    S,
    copy,
    send,
    send_result,
    unpack,
    wait_for_room,
)  # fmt: skip
from watersmeet.bench.cores.topologies.rings import first, ready, room, take
from watersmeet.bench.cores.topologies.segment import HEAD, TAIL, append, bounds, first_from, matches, partners, scan
from watersmeet.bench.cores.topologies.waiting import here, rest, stopped
from watersmeet.cycles import cycles


@njit(nogil=True)
def scan_crossing(crossing, start, end, core, x, y, position, band, wires, outbox, control):
    """Compare a tuple of R with those that it crosses here and whose homes it has passed; says whether to go on."""
    low_x, high_x, low_y, high_y = bounds(R, x, band)
    for number in range(start, end):
        at = number & (crossing.x.size - 1)
        if crossing.note[at] < core and matches(crossing.x[at], crossing.y[at], low_x, high_x, y, low_y, high_y):
            if not wait_for_room(wires, outbox, control):
                return False
            other = crossing.position[at]
            send_result(wires, outbox, max(position, other), min(position, other), cycles())
    return True


@njit(nogil=True)
def forget(held, position):
    """All up to this position."""
    ends, mask = held.ends, held.x.size - 1
    while ends[HEAD] < ends[TAIL] and held.position[ends[HEAD] & mask] <= position:
        ends[HEAD] += 1


@njit(nogil=True, cache=True)
def join_core(
    wires, control, from_left, from_right, left, right, outbox, core, cores, held_r, held_s, crossing, band, size,
    since, finished,
):  # fmt: skip
    here(control)
    newest_s = np.int64(-1)  # position of the last tuple of S that was here
    expired_r, expired_s = np.int64(-1), np.int64(-1)  # positions; a tuple may come home after its expiry
    ended_r, ended_s = False, False
    tries = 0
    while not stopped(control):
        busy = False

        if ready(wires, from_left) and (right == NOWHERE or room(wires, right)):
            busy = True
            message = first(wires, from_left)
            kind, position, home = wires[message + KIND], wires[message + POSITION], wires[message + HOME]
            if kind == R:
                mark = wires[message + MARK]
                if home == core:
                    wires[message + MARK] = newest_s
                if right != NOWHERE:
                    copy(wires, message, right)
                own, seen = wires[message + OWN], wires[message + SEEN]
                x, y = unpack(wires[message + VALUES])
                take(wires, from_left)
                start, end = partners(held_s, position, own, seen, size, since)
                if home < core:
                    end = first_from(held_s.position, start, end, mark + 1)
                if not scan(held_s, start, end, R, x, y, position, band, wires, outbox, control):
                    return
                if home >= core:
                    start, end = partners(crossing, position, own, seen, size, since)
                    if not scan_crossing(crossing, start, end, core, x, y, position, band, wires, outbox, control):
                        return
                if home == core and position > expired_r:
                    append(held_r, x, y, position, own, seen, 0)
                if finished.size:
                    finished[position] = cycles()
            else:
                if kind == ACK:
                    crossing.ends[HEAD] += 1
                elif kind == EXPIRE_S and home == core:
                    forget(held_s, position)
                    expired_s = position
                elif right != NOWHERE:
                    copy(wires, message, right)
                ended_r = ended_r or kind == END
                take(wires, from_left)

        acknowledged = right != NOWHERE and not ended_r  # nobody waits for it any more when R has ended
        if (
            ready(wires, from_right) and (left == NOWHERE or room(wires, left))
            and (not acknowledged or room(wires, right))
        ):  # fmt: skip
            busy = True
            message = first(wires, from_right)
            kind, position, home = wires[message + KIND], wires[message + POSITION], wires[message + HOME]
            if kind == S:
                own, seen = wires[message + OWN], wires[message + SEEN]
                x, y = unpack(wires[message + VALUES])
                if left != NOWHERE:
                    copy(wires, message, left)
                    append(crossing, x, y, position, own, seen, home)
                if acknowledged:
                    send(wires, right, ACK, 0)
                take(wires, from_right)
                start, end = partners(held_r, position, own, seen, size, since)
                if not scan(held_r, start, end, S, x, y, position, band, wires, outbox, control):
                    return
                if home == core and position > expired_s:
                    append(held_s, x, y, position, own, seen, 0)
                newest_s = position
                if finished.size:
                    finished[position] = cycles()
            else:
                if kind == EXPIRE_R and home == core:
                    forget(held_r, position)
                    expired_r = position
                elif left != NOWHERE:
                    copy(wires, message, left)
                ended_s = ended_s or kind == END
                take(wires, from_right)

        if ended_r and ended_s:
            if wait_for_room(wires, outbox, control):
                send(wires, outbox, END, 0)
            return
        if busy:
            tries = 0
        else:
            rest(control, tries)
            tries += 1


def llhj(circuit: Circuit) -> np.ndarray:
    """The threads of a run; gives the rings that the root is to read."""
    job = circuit.job
    homes = [-(-job.arrivals.of(stream) // job.cores) for stream in (R, S)]
    under_way = 2 * job.capacity  # tuples in the ring to the left, acknowledgements in that from it
    return chain(circuit, join_core, [*homes, under_way], expiring=True)
