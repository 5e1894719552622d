"""The way up: mergers gather the results of their children, and the root writes them down (SplitJoin, section 5).

    core 0   a3 a7 * b1 *        merger, outer:  a3 a7 a5 * b2 b1 *      from all that have not come to their star
    core 1   a5 * b2 *           merger, inner:  a3 a5 a7 * b1 b2 *      and the oldest partner first

A core sends a star behind the results of every tuple, or of every n tuples. A merger takes nothing more from a child
that has come to its star; when all have, it sends one star and opens them again. So what stands between two stars
belongs to the same tuples. Without stars whatever is there is handed on.

Strict inner order. In the paper every comparison ends in a star, so that mergers can take one result a core and a round
(cores store by turns, so the partners of a round are neighbours); that costs as many stars as comparisons, and is exact
only if all cores begin with the same round, which they do not when windows do not end with one. Here a result carries
the position of its partner, which it has to anyway, and results of a core lie between two stars with partners in order:
a merger waits until each child shows a result or a star, and takes the oldest. No more messages than for outer order,
and exact whatever the cores hold.

Differs from the paper: one tree for both streams and not one for each with a combiner at the end, so that the order is
that of the merged sequence: results of R and S tuples come in the order in which these arrived.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.bench.cores.topologies.messages import (
    COMPARED,
    EARLIER,
    END,
    KIND,
    LATER,
    STAR,
    copy,
    send,
    wait_for_room,
)
from watersmeet.bench.cores.topologies.rings import first, ready, take
from watersmeet.bench.cores.topologies.waiting import here, rest, stopped
from watersmeet.cycles import cycles

ENTERED, CLOSED, ENDED, TURN, WRITTEN, TIME = range(6)  # words of a merger's state
CHILDREN = 8  # from here on one a child: whether it is open
DONE, FULL = 0, 1  # how a kernel comes back
WRITE = -1  # instead of a ring above: the root


class Written(NamedTuple):
    """Results as the root writes them down."""

    later: np.ndarray
    earlier: np.ndarray
    compared: np.ndarray
    collected: np.ndarray


def new_written(results: int) -> Written:
    return Written(*(np.empty(results, np.int64) for _ in range(4)))


def new_state(children: int) -> np.ndarray:
    state = np.ones(CHILDREN + children, np.int64)
    state[:CHILDREN] = 0
    return state


@njit(nogil=True)
def any_open(wires, children, state):
    """The next open child that has a message, by turns; -1 if none has."""
    for step in range(1, children.size + 1):
        number = (state[TURN] + step) % children.size
        if state[CHILDREN + number] and ready(wires, children[number]):
            state[TURN] = number
            return number
    return -1


@njit(nogil=True)
def oldest(wires, children, state):
    """The open child with the oldest partner in front, or with a star; -1 if one of them has no message."""
    chosen, least = -1, 0
    for number in range(children.size):
        if state[CHILDREN + number]:
            if not ready(wires, children[number]):
                return -1
            message = first(wires, children[number])
            if wires[message + KIND] == STAR or wires[message + KIND] == END:
                return number
            partner = wires[message + EARLIER]
            if chosen < 0 or partner < least:
                chosen, least = number, partner
    return chosen


@njit(nogil=True)
def write(wires, message, state, written):
    at = state[WRITTEN]
    written.later[at] = wires[message + LATER]
    written.earlier[at] = wires[message + EARLIER]
    written.compared[at] = wires[message + COMPARED]
    written.collected[at] = cycles()
    state[WRITTEN] = at + 1


@njit(nogil=True, cache=True)
def merge(wires, control, children, above, inner, state, written):
    """Gather until all children have ended, or the page is full: then it is to be called again with a new one."""
    if not state[ENTERED]:
        state[ENTERED] = 1
        here(control)
    tries = 0
    while not stopped(control):
        if above == WRITE and state[WRITTEN] == written.later.size:
            return FULL
        number = oldest(wires, children, state) if inner else any_open(wires, children, state)
        if number < 0:
            rest(control, tries)
            tries += 1
            continue
        tries = 0
        if above != WRITE and not wait_for_room(wires, above, control):
            break
        message = first(wires, children[number])
        kind = wires[message + KIND]
        if kind in (STAR, END):
            state[CHILDREN + number] = 0
            state[CLOSED if kind == STAR else ENDED] += 1
            if state[ENDED] == children.size:
                state[TIME] = cycles()
                if above != WRITE:
                    send(wires, above, END, 0)
                break
            if state[CLOSED] == children.size:  # they come to their last star together
                state[CLOSED] = 0
                state[CHILDREN:] = 1
                if above != WRITE:
                    send(wires, above, STAR, 0)
        elif above == WRITE:
            write(wires, message, state, written)
        else:
            copy(wires, message, above)
        take(wires, children[number])
    return DONE
