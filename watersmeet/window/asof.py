"""As-of joins by a merge: the partner next in time, for every left row, in O(1).

Left rows are asked about in order of time, right rows are taken in in order of time, and bounds on partners rise with
the time of left rows. So nothing is ever searched for: a hash table has a list for each key, of its right rows in order
of time, and cursors only move forward.

    key A    [ 3 | 7 | 9 ] <- tail          latest: the tail, if it is not below the bound
               ^ cursor                      earliest: the cursor, moved on to the bound
                                             nearest: the cursor, moved on to the left row's time, or the one behind it

Worked example: within(5, 0), latest, right rows of A at 3, 7, 9. A left row of A at 8 takes in 3 and 7, and finds the
tail, 7. One at 13 takes in 9 and finds it; one at 15 finds 9, which is below 15 - 5: it has no partner.

Right rows of one key and one time are one place in the list: the last of them by "latest" and "nearest", the first by
"earliest". "latest" needs no more than the tail, and keeps no list at all.

What is here is only a short cut to what the window holds; it can be made from that at any time.

Cost: O(1) a row, amortised; rows of the past go when the arrays are full, at most every other time that they fill.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.query.keys import frozen

Array = np.ndarray

WAYS = {"latest": 0, "earliest": 1, "nearest": 2}
_LATEST, _EARLIEST = 0, 1
_NONE = -1
_LEAST_ROOM = 64


class Block(NamedTuple):
    """Right rows in order of time; of equal times, in order of arrival."""

    ticks: Array
    positions: Array
    keys: Array


class _Lists(NamedTuple):
    ticks: Array  # of each place
    positions: Array
    keys: Array
    nexts: Array  # the place behind it in its list
    slots: Array  # of the table: key
    heads: Array  # the cursor; _NONE: nothing is left
    tails: Array
    used: Array
    size: Array  # places, slots in use


def _made(places: int) -> _Lists:
    slots = 1 << int(2 * places - 1).bit_length()
    ticks, positions, keys, nexts = (np.empty(places, np.int64) for _ in range(4))
    table, heads, tails = (np.empty(slots, np.int64) for _ in range(3))
    used, size = np.zeros(slots, np.uint8), np.zeros(2, np.int64)
    return _Lists(ticks, positions, keys, nexts, table, heads, tails, used, size)


@njit
def _slot(lists, key):
    """Where a key is in the table, or is to be."""
    mask = lists.slots.size - 1
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))
    while lists.used[at] and lists.slots[at] != key:
        at = (at + 1) & mask
    return at


@njit
def _put(lists, tick, position, key, way):
    at = _slot(lists, key)
    if not lists.used[at]:
        lists.used[at] = 1
        lists.slots[at] = key
        lists.heads[at] = _NONE
        lists.tails[at] = _NONE
        lists.size[1] += 1
    tail = lists.tails[at]
    if tail != _NONE and (way == _LATEST or lists.ticks[tail] == tick):
        if way != _EARLIEST:
            lists.ticks[tail] = tick
            lists.positions[tail] = position
        return
    place = lists.size[0]
    lists.size[0] = place + 1
    lists.ticks[place] = tick
    lists.positions[place] = position
    lists.keys[place] = key
    lists.nexts[place] = _NONE
    if tail != _NONE:
        lists.nexts[tail] = place
    if lists.heads[at] == _NONE:
        lists.heads[at] = place
    lists.tails[at] = place


@njit(nogil=True, cache=True)
def _copied(lists, kept_from, way, into):
    """All that is not below this tick."""
    for place in range(lists.size[0]):
        if lists.ticks[place] >= kept_from:
            _put(into, lists.ticks[place], lists.positions[place], lists.keys[place], way)


@njit(nogil=True, cache=True)
def _merged(lists, way, new, ticks, lows, highs, keys, live, found):
    """For each left row, in order of time, the position of its partner, or _NONE. The new right rows, none of
    them above the bounds of all left rows, are taken in on the way."""
    taken = 0
    for i in range(ticks.size):
        while taken < new.ticks.size and new.ticks[taken] <= highs[i]:
            _put(lists, new.ticks[taken], new.positions[taken], new.keys[taken], way)
            taken += 1
        found[i] = _NONE
        if not live[i]:
            continue
        at = _slot(lists, keys[i])
        if not lists.used[at] or lists.tails[at] == _NONE:
            continue
        if way == _LATEST:
            place = lists.tails[at]
        else:
            place = lists.heads[at]
            while place != _NONE and lists.ticks[place] < lows[i]:
                place = lists.nexts[place]
            lists.heads[at] = place
            if place == _NONE:
                lists.tails[at] = _NONE
                continue
            if way != _EARLIEST:
                behind = lists.nexts[place]
                while behind != _NONE and lists.ticks[behind] <= ticks[i]:
                    place, behind = behind, lists.nexts[behind]
                lists.heads[at] = place
                # Both distances fit 64 bits without a sign; of equal ones the later.
                if behind != _NONE and lists.ticks[place] < ticks[i]:
                    before = np.uint64(ticks[i]) - np.uint64(lists.ticks[place])
                    if np.uint64(lists.ticks[behind]) - np.uint64(ticks[i]) <= before:
                        place = behind
        if lists.ticks[place] >= lows[i]:
            found[i] = lists.positions[place]


class Merge:
    """Right rows that wait to be taken in, and those that were."""

    def __init__(self, way: str):
        self._way = WAYS[way]
        self._waiting: list[Block] = []
        self._lists = _made(_LEAST_ROOM)

    def add(self, ticks: Array, positions: Array, keys: Array, in_order: bool) -> None:
        """Right rows that have arrived, with rising positions."""
        if ticks.size:
            self._waiting.append(_in_order(Block(ticks, positions, keys), in_order))

    def partners(self, ticks: Array, lows: Array, highs: Array, keys: Array, live: Array) -> Array:
        """Positions of the partners of left rows, -1 for none. These come in order of time, here and from call to call,
        and all right rows up to their bounds have been added."""
        new = self._taken(int(highs[-1]))
        self._reserve(new.ticks.size, int(lows[0]))
        found = np.empty(ticks.size, np.int64)
        new = Block(*map(frozen, new))
        ticks, lows, highs, keys, live = map(frozen, (ticks, lows, highs, keys, live))
        _merged(self._lists, self._way, new, ticks, lows, highs, keys, live, found)
        return found

    def _taken(self, high: int) -> Block:
        """Of the right rows that wait, those up to a tick."""
        taken, kept = [], []
        for block in self._waiting:
            stop = int(np.searchsorted(block.ticks, high, "right")) if block.ticks[0] <= high else 0
            if stop:
                taken.append(Block(*(each[:stop] for each in block)))
            if stop < block.ticks.size:
                kept.append(Block(*(each[stop:] for each in block)) if stop else block)
        self._waiting = kept
        if len(taken) == 1:
            return taken[0]
        if not taken:
            return Block(*(np.empty(0, np.int64) for _ in range(3)))
        whole = Block(*map(np.concatenate, zip(*taken, strict=True)))
        return _in_order(whole, all(a.ticks[-1] <= b.ticks[0] for a, b in zip(taken, taken[1:], strict=False)))

    def _reserve(self, rows: int, kept_from: int) -> None:
        """Have room for so many more, by letting go of what is below this tick if need be."""
        places, slots = (int(each) for each in self._lists.size)
        if places + rows > self._lists.ticks.size or 2 * (slots + rows) > self._lists.slots.size:
            needed = int(np.count_nonzero(self._lists.ticks[:places] >= kept_from))
            larger = _made(max(2 * (needed + rows), _LEAST_ROOM))
            _copied(self._lists, kept_from, self._way, larger)
            self._lists = larger

    def nbytes(self) -> int:
        return sum(each.nbytes for each in self._lists) + sum(each.nbytes for block in self._waiting for each in block)

    def check_invariants(self) -> None:
        lists = self._lists
        places, slots = lists.size
        assert places <= lists.ticks.size and np.count_nonzero(lists.used) == slots, lists
        for block in self._waiting:
            assert np.all(block.ticks[1:] >= block.ticks[:-1]), block
        for at in np.flatnonzero(lists.used):
            place, before = lists.heads[at], None
            while place != _NONE:
                assert lists.keys[place] == lists.slots[at] and place < places, lists
                assert before is None or lists.ticks[before] < lists.ticks[place], lists
                place, before = lists.nexts[place], place
            assert before is None or before == lists.tails[at], lists


def _in_order(block: Block, in_order: bool) -> Block:
    if in_order:
        return block
    order = np.argsort(block.ticks, kind="stable")
    return Block(*(each[order] for each in block))
