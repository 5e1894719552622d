"""Records of a Bw-Tree in flat memory, and how they are used again: by epochs.

    deltas   8 words each: what changed, how many lie below (depth), the next below, key, row, child or sibling
    bases    a head of 8 words, then room for `capacity` keys, as many rows, as many children (of inner nodes)
    control  shared counters, a cache line each, then a *book* for each thread at work

A record that readers may see does not change. One that was taken out of its node may still be looked at by threads that
came before; so each thread announces the epoch in which it begins an operation, and what it takes out is *retired*:

    collecting   what it has retired lately
    waiting      a bag of that, stamped with the epoch in which it was closed; closing it begins the next epoch
    free         when all threads that are at work have announced later epochs, the bag is free, for this thread

Lists go through a word of the records that readers do not look at. What a thread has not, it takes in blocks of what
has never been used.

Invariant: a record is in one node, or in one list of one thread, or among the fresh ones.

Cost: O(1) a record; announcing costs an operation one fence, closing a bag a look at all books.

Reference: Levandoski, Lomet, Sengupta: The Bw-Tree, ICDE 2013, section IV.B (epochs).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.atomics import compare_and_swap, fence, fetch_add, load, store, uncounted
from watersmeet.index.base import Array

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

LINE = 8  # int64s of a cache line
# Words of a delta. The head of a base has its size for a kind, and fence and right sibling where a SPLIT has them.
KIND, LEVEL, DEPTH, BELOW, KEY, ROW, CHILD, LINK = range(LINE)
SIZE = KIND
INSERT, DELETE, SPLIT = range(3)

# Words of `control`.
ROOT, IDS, EPOCH, DELTAS, BASES = range(0, 5 * LINE, LINE)
BOOKS = 5 * LINE
# Words of a book: the first line is what other threads look at.
ANNOUNCED, TAKEN = 0, 1
FREE, COLLECTED, LAST, WAITING, LAST_WAITING = LINE, LINE + 2, LINE + 4, LINE + 6, LINE + 8  # of deltas; + 1: of bases
COUNT, STAMP, SPARE = LINE + 10, LINE + 11, LINE + 12
BOOK = 4 * LINE
IDLE = GREATEST  # announced by a thread that is not at work
BAG = 64
BLOCK = 32


class Tree(NamedTuple):
    """A Bw-Tree as kernels see it. A reference is the number of a delta, or ~ the number of a base."""

    table: Array  # node id -> reference to its newest record
    deltas: Array
    bases: Array
    fresh_deltas: Array  # numbers of those that are not in use, from control[DELTAS] on
    fresh_bases: Array
    control: Array
    capacity: int  # entries of a base
    fan_out: int  # from which on a node is split
    chain: int  # deltas of a leaf, at most


@njit
def shared(tree):
    """Threads must not count references to arrays that they share: they would take the counters from each other."""
    u = uncounted
    return Tree(
        u(tree.table), u(tree.deltas), u(tree.bases), u(tree.fresh_deltas), u(tree.fresh_bases), u(tree.control),
        tree.capacity, tree.fan_out, tree.chain,
    )  # fmt: skip


@njit(inline="always")
def words(tree):
    """Of a base."""
    return LINE + 3 * tree.capacity


# -- books -----------------------------------------------------------------------------------------------------------


@njit
def claim(control):
    """A book that is this thread's until `release`."""
    while True:
        for book in range(BOOKS, control.size, BOOK):
            if load(control, book + TAKEN) == 0 and compare_and_swap(control, book + TAKEN, 0, 1):
                return book


@njit
def release(control, book):
    store(control, book + TAKEN, 0)


@njit
def enter(control, book):
    """Records that can be reached from now on stay as they are until `leave`."""
    store(control, book + ANNOUNCED, load(control, EPOCH))
    fence()


@njit
def leave(tree, book):
    control = tree.control
    store(control, book + ANNOUNCED, IDLE)
    if control[book + COUNT] >= BAG:
        control[book + COUNT] = 0
        _close(tree, book)


@njit
def _close(tree, book):
    """Free the bag that waits, if nobody can be looking into it any more; then close the one that was collected."""
    control = tree.control
    waits = control[book + WAITING] >= 0 or control[book + WAITING + 1] >= 0
    if waits:
        fence()
        earliest = IDLE
        for other in range(BOOKS, control.size, BOOK):
            earliest = min(earliest, load(control, other + ANNOUNCED))
        if earliest <= control[book + STAMP]:
            return
        for pool in range(2):
            first = control[book + WAITING + pool]
            if first >= 0:
                _set_link(tree, pool, control[book + LAST_WAITING + pool], control[book + FREE + pool])
                control[book + FREE + pool] = first
    for pool in range(2):
        control[book + WAITING + pool] = control[book + COLLECTED + pool]
        control[book + LAST_WAITING + pool] = control[book + LAST + pool]
        control[book + COLLECTED + pool] = -1
    control[book + STAMP] = fetch_add(control, EPOCH, 1)


# -- records: pool 0 has deltas, pool 1 bases ------------------------------------------------------------------------


@njit
def _link(tree, pool, i):
    return tree.deltas[LINE * i + LINK] if pool == 0 else tree.bases[words(tree) * i + LINK]


@njit
def _set_link(tree, pool, i, to):
    if pool == 0:
        tree.deltas[LINE * i + LINK] = to
    else:
        tree.bases[words(tree) * i + LINK] = to


@njit
def take(tree, book, pool):
    """A record of one's own."""
    control = tree.control
    i = control[book + FREE + pool]
    if i < 0:
        fresh = tree.fresh_deltas if pool == 0 else tree.fresh_bases
        at = fetch_add(control, DELTAS + pool * (BASES - DELTAS), BLOCK)
        for place in range(at, min(at + BLOCK, fresh.size)):
            give_back(tree, book, pool, fresh[place])
        i = control[book + FREE + pool]
        if i < 0:
            raise MemoryError("a Bw-Tree was not given room for what it was to do")
    control[book + FREE + pool] = _link(tree, pool, i)
    return i


@njit
def give_back(tree, book, pool, i):
    """One that nobody else has seen."""
    _set_link(tree, pool, i, tree.control[book + FREE + pool])
    tree.control[book + FREE + pool] = i


@njit
def retire(tree, book, pool, i):
    """One that others may be looking at."""
    control = tree.control
    if control[book + COLLECTED + pool] < 0:
        control[book + LAST + pool] = i
    _set_link(tree, pool, i, control[book + COLLECTED + pool])
    control[book + COLLECTED + pool] = i
    control[book + COUNT] += 1


@njit
def take_id(tree, book):
    """A node that nobody else knows."""
    control = tree.control
    spare = control[book + SPARE]
    if spare >= 0:
        control[book + SPARE] = -1
        return spare
    new = fetch_add(control, IDS, 1)
    if new >= tree.table.size:
        raise MemoryError("a Bw-Tree was not given room for so many nodes")
    return new


@njit(cache=True)
def unused(tree, pool, out):
    """Write the numbers of all records in no node to `out`, and say how many; while no thread is at work."""
    control = tree.control
    fresh = tree.fresh_deltas if pool == 0 else tree.fresh_bases
    n = 0
    for place in range(control[DELTAS + pool * (BASES - DELTAS)], fresh.size):
        out[n] = fresh[place]
        n += 1
    for book in range(BOOKS, control.size, BOOK):
        for which in (FREE, COLLECTED, WAITING):
            i = control[book + which + pool]
            while i >= 0:
                out[n] = i
                n += 1
                i = _link(tree, pool, i)
    return n
