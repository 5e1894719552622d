"""The kernel that several threads run at once over shared PIM-Trees, without Python's lock.

A step has a *lane* for each side: its tuples in order of arrival, what they look for and what is stored of them. Lanes
are cut into *tasks*, all of which are in one queue, the left ones first. A worker goes round:

    take     the next task
    probe    its tuples look for partners among those that came before them
    insert   and go into the index of their own side, a sub-tree at a time
    finish   the task is noted as done, and the edge moved on

A tuple must find exactly the partners that came before it, whoever has stored how much by then. All tuples from before
the step are in the index. Those of the step itself are not all, so there is an *edge*: the left tasks before it are
done. A right tuple notes the edge, takes from the index what is before it and nothing else, and looks through the left
tuples from the edge on one by one. Bounds of its window are a tuple's own as well: how many tuples of the other side
came before it, and the ticks that it reaches.

What an index gets in this step lies in sub-trees, each with a lock; the immutable tree and the sub-trees that are being
merged into a new one do not change and have none. No worker ever holds two locks.

Where a worker is, is in an array of its own (`mine`), so that it may come back to Python (when its room for results is
full, when it is no longer wanted, or after a number of turns, which lets tests go through schedules) and go on where it
was, on any thread.

Reference: PIM, sections 4.1 (edge tuple, saved window bounds, task queue) and 4.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, uint64

from watersmeet.atomics import fetch_add, load, lock, store, try_lock, uncounted, unlock
from watersmeet.index.base import Array, keep_within
from watersmeet.index.sorted.run_kernels import count_below
from watersmeet.index.trees.btree_changes import after, shift_up, split, take_leaf
from watersmeet.index.trees.btree_kernels import Nodes, count_upto, node_width
from watersmeet.index.trees.css_tree import Levels

CHUNK = 64  # tuples that go down a tree together
APART = 8  # int64s of a cache line, so that threads do not take it from each other

# Places of `queue`.
NEXT, EDGE, EDGE_LOCK, WANTED, STOPPED = range(0, 5 * APART, APART)
QUEUE = 5 * APART
# Places of `mine`: the task and where in it the worker is, pairs and segments that it has written, pairs in all. What
# lies before and behind them keeps other threads' memory away.
TASK, STAGE, AT, PAIRS, SEGMENTS, COUNT, TURNS = range(2 * APART, 2 * APART + 7)
MINE = 5 * APART
# Stages.
TAKE, PROBE, INSERT, FINISH = range(4)
# Why a worker comes back: there are no more tasks, no room, it is not wanted, it has had its turns.
OVER, FULL, UNWANTED, PAUSED = range(4)


class Lane(NamedTuple):
    """The tuples of one side that have arrived, in order of arrival."""

    keys: Array
    stores: Array  # whether a tuple goes into the index of its side
    asks: Array  # whether it looks for partners
    lows: Array  # ranges of keys that it looks for, one band after the other
    highs: Array
    bands: int
    mode: int  # how ticks are compared, see index/base.py
    low: Array
    high: Array
    ticks: Array
    first: int  # row of the first tuple in the window of its side
    limit: int  # tuples in the other's window that came before


class Sub(NamedTuple):
    """Sub-trees: which key belongs in which, and their nodes; rows are stored with `offset` added."""

    nodes: Nodes
    levels: Levels
    fan_out: int
    offset: int
    locks: Array


class View(NamedTuple):
    """A PIM-Tree as it is during a step."""

    keys: Array  # of the immutable tree
    rows: Array
    size: int
    levels: Levels
    fan_out: int
    offset: int
    merging: Sub
    active: Sub


# Threads must not count references to arrays that they share: they would take the counters from each other.


@njit
def uncounted_lane(lane):
    u = uncounted
    return Lane(
        u(lane.keys), u(lane.stores), u(lane.asks), u(lane.lows), u(lane.highs), lane.bands, lane.mode, u(lane.low),
        u(lane.high), u(lane.ticks), lane.first, lane.limit,
    )  # fmt: skip


@njit
def _levels(levels):
    return Levels(uncounted(levels.separators), uncounted(levels.begins), levels.fan_out, levels.depth)


@njit
def _sub(sub):
    u, n = uncounted, sub.nodes
    nodes = Nodes(
        u(n.keys), u(n.rows), u(n.filled), u(n.following), u(n.preceding), u(n.leaf_above), u(n.separators),
        u(n.children), u(n.counts), u(n.inner_above), u(n.books), u(n.roots), u(n.heights),
    )  # fmt: skip
    return Sub(nodes, _levels(sub.levels), sub.fan_out, sub.offset, u(sub.locks))


@njit
def _view(view):
    return View(
        uncounted(view.keys), uncounted(view.rows), view.size, _levels(view.levels), view.fan_out, view.offset,
        _sub(view.merging), _sub(view.active),
    )  # fmt: skip


@njit
def _route(levels, keys, first, count, places):
    """As `css_tree.route`, for keys in any order."""
    width = uint64(levels.fan_out)
    separators = levels.separators
    for i in range(count):
        places[i] = 0
    for level in range(levels.depth):
        begin = uint64(levels.begins[level])
        for i in range(count):
            at = uint64(places[i]) * width
            places[i] = at + count_below(separators, begin + at, width, keys[first + i])


@njit
def _starts(levels, keys, size, lows, first, count, starts):
    """starts[i] becomes the first place in the immutable tree whose key is not below lows[first + i]."""
    _route(levels, lows, first, count, starts)
    width = uint64(levels.fan_out)
    for i in range(count):
        at = uint64(starts[i]) * width
        starts[i] = min(at + count_below(keys, at, width, lows[first + i]), size)


# What is done for every tuple is inlined, and takes single arrays: a call would copy all that a tuple of arrays holds.


@njit(inline="always")
def _in_immutable(keys, rows, size, offset, at, most, edge, p, out_probe, out_row, n):
    """Write the rows below `edge` from place `at` on, up to the key `most`; returns where they end, -1: no room."""
    j = uint64(at)
    while j < size and keys[j] <= most:
        if n >= out_row.size:
            n = np.int64(-1)
            break
        row = np.int64(np.int32(rows[j] - offset))
        out_probe[n] = p
        out_row[n] = row
        n += np.int64(row >= 0) & np.int64(row < edge)
        j += uint64(1)
    return n


@njit(inline="always")
def _in_sub_trees(
    keys, rows, filled, following, separators, children, roots, heights, width, offset, locks, fences, begin, tree, low,
    most, edge, p, out_probe, out_row, n,
):  # fmt: skip
    """As `_in_immutable`, of all sub-trees that the range reaches, `tree` being the first.

    What must be found was inserted before the edge was read; so an empty tree needs no lock to be passed over.
    """
    reaches = True
    while reaches:
        if roots[tree] >= 0:
            if locks.size:
                lock(locks, APART * tree)
            leaf = np.int64(roots[tree])
            for _ in range(heights[tree]):
                at = uint64(leaf) * width
                leaf = np.int64(children[at + count_below(separators, at, width, low)])
            j = count_below(keys, uint64(leaf) * width, width, low)
            while leaf >= 0:
                at = uint64(leaf) * width
                end = uint64(filled[leaf])
                while j < end and keys[at + j] <= most and n >= 0:
                    if n >= out_row.size:
                        n = np.int64(-1)
                    else:
                        row = np.int64(np.int32(rows[at + j] - offset))
                        out_probe[n] = p
                        out_row[n] = row
                        n += np.int64(row >= 0) & np.int64(row < edge)
                    j += uint64(1)
                if j < end or n < 0:
                    break
                leaf = np.int64(following[leaf])
                j = uint64(0)
            if locks.size:
                unlock(locks, APART * tree)
        tree += 1
        reaches = n >= 0 and tree < roots.size and fences[begin + tree - 1] < most
    return n


@njit(inline="always")
def in_lane(keys, stores, first, start, low, most, p, out_probe, out_row, n):
    """As `_in_immutable`, of the tuples of a lane from `start` on, one by one."""
    if n + keys.size - start > out_row.size:
        n = np.int64(-1)
    else:
        for i in range(start, keys.size):
            out_probe[n] = p
            out_row[n] = first + i
            n += np.int64(low <= keys[i]) & np.int64(keys[i] <= most) & np.int64(stores[i])
    return n


@njit
def _split(nodes, fan_out, width, leaf, place):
    return np.int64(split(nodes, fan_out, width, leaf, place))


@njit
def _plant(nodes, width, tree):
    """The first leaf of a sub-tree."""
    leaf = np.int64(take_leaf(nodes, width))
    nodes.leaf_above[leaf] = -1 - tree
    nodes.heights[tree] = 0
    nodes.roots[tree] = leaf


@njit
def move_edge(queue, done):
    """Move the edge behind all tasks that are done; whoever finds another at it leaves it to that one."""
    while try_lock(queue, EDGE_LOCK):
        edge = load(queue, EDGE)
        while edge < done.size and load(done, edge) != 0:
            edge += 1
        store(queue, EDGE, edge)
        unlock(queue, EDGE_LOCK)
        if edge == done.size or load(done, edge) == 0:
            break


@njit
def _probe(queue, lane, view, other, task_rows, stop, mine, counts, out_probe, out_row, segments):
    """Let the tuples of a task look for partners. Returns FULL, PAUSED or OVER; `mine` says how far it has come.

    other: the left lane, for tuples of the right one; for those of the left one it has no tuples.
    """
    bands = lane.bands
    starts = np.empty(CHUNK * bands, np.int64)
    trees = np.empty(CHUNK * bands, np.int64)
    before = np.empty(CHUNK * bands, np.int64)
    asks, lows, highs, limit = lane.asks, lane.lows, lane.highs, np.int64(lane.limit)
    keys, rows, size, offset = view.keys, view.rows, uint64(view.size), view.offset
    a, a_levels = view.active.nodes, view.active.levels
    a_keys, a_rows, a_filled, a_following, a_separators = a.keys, a.rows, a.filled, a.following, a.separators
    a_children, a_roots, a_heights, a_offset = a.children, a.roots, a.heights, view.active.offset
    a_locks, a_fences, a_begin = view.active.locks, a_levels.separators, a_levels.begins[max(a_levels.depth - 1, 0)]
    m, m_levels = view.merging.nodes, view.merging.levels
    m_keys, m_rows, m_filled, m_following, m_separators = m.keys, m.rows, m.filled, m.following, m.separators
    m_children, m_roots, m_heights, m_offset = m.children, m.roots, m.heights, view.merging.offset
    m_locks, m_fences, m_begin = view.merging.locks, m_levels.separators, m_levels.begins[max(m_levels.depth - 1, 0)]
    other_keys, other_stores, other_first = other.keys, other.stores, np.int64(other.first)
    width = node_width(view.fan_out)
    merges = m_roots.size > 1 or m_roots[0] >= 0
    tuples = lane.keys.size
    while mine[AT] < stop:
        first = mine[AT]
        count = min(CHUNK, stop - first)
        for band in range(bands):
            at = band * CHUNK
            _starts(view.levels, keys, size, lows, band * tuples + first, count, starts[at:])
            _route(a_levels, lows, band * tuples + first, count, trees[at:])
            if merges:
                _route(m_levels, lows, band * tuples + first, count, before[at:])
        for i in range(count):
            if mine[TURNS] == 0:
                return PAUSED
            p = first + i
            begin = mine[PAIRS]
            n = begin
            if asks[p]:
                edge = limit
                if other_keys.size:
                    edge = min(edge, other_first + load(queue, EDGE) * task_rows)
                for band in range(bands):
                    low = lows[band * tuples + p]
                    most = highs[band * tuples + p]
                    if low > most or n < 0:
                        continue
                    at = band * CHUNK + i
                    n = _in_immutable(keys, rows, size, offset, starts[at], most, edge, p, out_probe, out_row, n)
                    if n >= 0:
                        n = _in_sub_trees(
                            a_keys, a_rows, a_filled, a_following, a_separators, a_children, a_roots, a_heights, width,
                            a_offset, a_locks, a_fences, a_begin, trees[at], low, most, edge, p, out_probe, out_row, n,
                        )  # fmt: skip
                    if n >= 0 and merges:
                        n = _in_sub_trees(
                            m_keys, m_rows, m_filled, m_following, m_separators, m_children, m_roots, m_heights, width,
                            m_offset, m_locks, m_fences, m_begin, before[at], low, most, edge, p, out_probe, out_row, n,
                        )  # fmt: skip
                    if n >= 0 and edge < limit:
                        n = in_lane(
                            other_keys, other_stores, other_first, edge - other_first, low, most, p, out_probe, out_row,
                            n,
                        )  # fmt: skip
                if n < 0:
                    return FULL
                n = np.int64(keep_within(lane.mode, lane.low, lane.high, lane.ticks, out_probe, out_row, begin, n))
            mine[COUNT] += n - begin
            if not counts:
                mine[PAIRS] = n
                segments[mine[SEGMENTS] - 1, 2] = n
            mine[AT] += 1
            mine[TURNS] -= 1
    return OVER


@njit
def _store(lane, sub, stop, mine):
    """Insert the tuples of a task, behind those with the same key; returns PAUSED or OVER."""
    trees = np.empty(CHUNK, np.int64)
    nodes, fan_out, offset, locks = sub.nodes, sub.fan_out, sub.offset, sub.locks
    keys, rows, filleds, separators = nodes.keys, nodes.rows, nodes.filled, nodes.separators
    children, roots, heights = nodes.children, nodes.roots, nodes.heights
    own, stores = lane.keys, lane.stores
    width = node_width(fan_out)
    while mine[AT] < stop:
        first = mine[AT]
        count = min(CHUNK, stop - first)
        _route(sub.levels, own, first, count, trees)
        for i in range(count):
            if mine[TURNS] == 0:
                return PAUSED
            p = first + i
            if stores[p]:
                key, tree = own[p], trees[i]
                lock(locks, APART * tree)
                if roots[tree] < 0:
                    _plant(nodes, width, tree)
                leaf = np.int64(roots[tree])
                bound = after(key)
                for _ in range(heights[tree]):
                    at = uint64(leaf) * width
                    leaf = np.int64(children[at + count_below(separators, at, width, bound)])
                place = count_upto(keys, filleds, width, leaf, key)
                filled = np.int64(filleds[leaf])
                if filled == fan_out:
                    right = _split(nodes, fan_out, width, leaf, place)
                    filled = np.int64(filleds[leaf])
                    if place >= filled:
                        place -= filled
                        leaf = right
                        filled = np.int64(filleds[leaf])
                at = uint64(leaf) * width
                shift_up(keys, rows, at + uint64(place), at + uint64(filled))
                keys[at + uint64(place)] = key
                rows[at + uint64(place)] = np.int32(lane.first + p + offset)
                filleds[leaf] = filled + 1
                unlock(locks, APART * tree)
            mine[AT] += 1
            mine[TURNS] -= 1
    return OVER


@njit
def _work(
    me, queue, done, task_rows, left, right, nobody, left_view, right_view, counts, mine, out_probe, out_row, segments
):  # fmt: skip
    left_tasks = done.size
    tasks = left_tasks + (right.keys.size + task_rows - 1) // task_rows
    if mine[STAGE] == PROBE:  # in the middle of a task: its pairs go on in a segment of their own
        segments[0, 0], segments[0, 1], segments[0, 2] = mine[TASK], 0, 0
        mine[SEGMENTS] = 1
    while True:
        if mine[TURNS] == 0:
            return PAUSED
        if mine[STAGE] == TAKE:
            if load(queue, STOPPED) != 0:
                return OVER
            if me >= load(queue, WANTED):
                return UNWANTED
            task = fetch_add(queue, NEXT, 1)
            if task >= tasks:
                return OVER
            mine[TASK] = task
            mine[AT] = (task if task < left_tasks else task - left_tasks) * task_rows
            s = mine[SEGMENTS]
            segments[s, 0], segments[s, 1], segments[s, 2] = task, mine[PAIRS], mine[PAIRS]
            mine[SEGMENTS] = s + 1
            mine[STAGE] = PROBE
            mine[TURNS] -= 1
            continue
        task = mine[TASK]
        is_left = task < left_tasks
        start = (task if is_left else task - left_tasks) * task_rows
        stop = min(start + task_rows, left.keys.size if is_left else right.keys.size)
        if mine[STAGE] == PROBE:
            if is_left:
                how = _probe(
                    queue, left, right_view, nobody, task_rows, stop, mine, counts, out_probe, out_row, segments
                )
            else:
                how = _probe(
                    queue, right, left_view, left, task_rows, stop, mine, counts, out_probe, out_row, segments
                )
            if how != OVER:
                return how
            mine[AT] = start
            mine[STAGE] = INSERT
        elif mine[STAGE] == INSERT:
            how = OVER
            if is_left:
                how = _store(left, left_view.active, stop, mine)
            else:
                how = _store(right, right_view.active, stop, mine)
            if how != OVER:
                return how
            mine[STAGE] = FINISH
        else:
            if is_left:
                store(done, task, 1)
                move_edge(queue, done)
            mine[STAGE] = TAKE
            mine[TURNS] -= 1


@njit(nogil=True, cache=True)
def work(
    me, queue, done, task_rows, left, right, nobody, left_view, right_view, counts, mine, out_probe, out_row, segments
):  # fmt: skip
    """Work on tasks until there are none, and say why that was the end: OVER, FULL, UNWANTED or PAUSED.

    mine[TURNS]: how many tuples are probed or inserted, and tasks taken or finished, at most; negative: any number.
    Pairs go to out_probe and out_row, from mine[PAIRS] on; segments[i] becomes (task, first pair, one behind the last).
    `nobody` is a lane without tuples.
    """
    u = uncounted
    return _work(
        me, u(queue), u(done), task_rows, uncounted_lane(left), uncounted_lane(right), uncounted_lane(nobody),
        _view(left_view), _view(right_view), counts, u(mine), u(out_probe), u(out_row), u(segments),
    )  # fmt: skip
