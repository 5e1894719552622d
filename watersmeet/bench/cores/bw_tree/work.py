"""The kernel that threads run over two Bw-Trees, as index/trees/shared_kernels.py has it over PIM-Trees.

Tasks, lanes and the edge are the same: what a tuple finds is decided by the edge and its bounds, whoever has stored or
deleted how much by then. Beside its own key a tuple's insert brings the deletion of what left the window with an
earlier step, shared out evenly: nobody finds that any more, so it does not matter when it goes.

Reference: PIM, sections 4.1 (task queue, edge tuple) and 5.4 (parallel join over a Bw-Tree).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from watersmeet.atomics import fetch_add, load, store, uncounted
from watersmeet.bench.cores.bw_tree.kernels import MOST_POSTS, post, scan
from watersmeet.bench.cores.bw_tree.records import DELETE, INSERT, Tree, claim, enter, leave, release, shared
from watersmeet.index.base import Array, keep_within
from watersmeet.index.trees.shared_kernels import (
    AT,
    COUNT,
    EDGE,
    FINISH,
    FULL,
    NEXT,
    OVER,
    PAIRS,
    PAUSED,
    PROBE,
    SEGMENTS,
    STAGE,
    STOPPED,
    TAKE,
    TASK,
    TURNS,
    UNWANTED,
    WANTED,
    in_lane,
    move_edge,
    uncounted_lane,
)
from watersmeet.index.trees.shared_kernels import INSERT as STORE


class View(NamedTuple):
    """A window as it is during a step. Rows are stored with `offset` added: the first of the window as just that."""

    tree: Tree
    offset: int
    gone: Array  # keys that have left the window and are still stored, the last of them as row offset - 1


@njit
def _view(view):
    return View(shared(view.tree), view.offset, uncounted(view.gone))


@njit
def _probe(queue, lane, view, book, other, task_rows, stop, mine, counts, out_probe, out_row, segments, todo):
    """Let the tuples of a task look for partners. Returns FULL, PAUSED or OVER; `mine` says how far it has come."""
    tree, bands, tuples = view.tree, lane.bands, lane.keys.size
    while mine[AT] < stop:
        if mine[TURNS] == 0:
            return PAUSED
        p = mine[AT]
        begin = mine[PAIRS]
        n = begin
        if lane.asks[p]:
            edge = np.int64(lane.limit)
            if other.keys.size:
                edge = min(edge, other.first + load(queue, EDGE) * task_rows)
            for band in range(bands):
                low, most = lane.lows[band * tuples + p], lane.highs[band * tuples + p]
                if low > most or n < 0:
                    continue
                enter(tree.control, book)
                n = scan(tree, book, low, most, view.offset, edge, p, out_probe, out_row, n, todo)
                leave(tree, book)
                if n >= 0 and edge < lane.limit:
                    n = in_lane(
                        other.keys, other.stores, other.first, edge - other.first, low, most, p, out_probe, out_row, n
                    )
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
def _change(tree, book, kind, key, row, todo):
    enter(tree.control, book)
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = kind, 0, key, row, -1
    post(tree, book, todo, 1)
    leave(tree, book)


@njit
def _store(lane, view, book, stop, mine, todo):
    """Insert the tuples of a task, and delete their share of what has left the window; returns PAUSED or OVER."""
    tree, gone, tuples = view.tree, view.gone, lane.keys.size
    while mine[AT] < stop:
        if mine[TURNS] == 0:
            return PAUSED
        p = mine[AT]
        if lane.stores[p]:
            _change(tree, book, INSERT, lane.keys[p], lane.first + p + view.offset, todo)
        for i in range(p * gone.size // tuples, (p + 1) * gone.size // tuples):
            _change(tree, book, DELETE, gone[i], view.offset - gone.size + i, todo)
        mine[AT] += 1
        mine[TURNS] -= 1
    return OVER


@njit
def _work(
    me, queue, done, task_rows, left, right, nobody, left_view, right_view, left_book, right_book, counts, mine,
    out_probe, out_row, segments, todo,
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
                    queue, left, right_view, right_book, nobody, task_rows, stop, mine, counts, out_probe, out_row,
                    segments, todo,
                )  # fmt: skip
            else:
                how = _probe(
                    queue, right, left_view, left_book, left, task_rows, stop, mine, counts, out_probe, out_row,
                    segments, todo,
                )  # fmt: skip
            if how != OVER:
                return how
            mine[AT] = start
            mine[STAGE] = STORE
        elif mine[STAGE] == STORE:
            if is_left:
                how = _store(left, left_view, left_book, stop, mine, todo)
            else:
                how = _store(right, right_view, right_book, stop, mine, todo)
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
    """As `work` of shared_kernels.py, over windows that are Bw-Trees."""
    u = uncounted
    left_view, right_view = _view(left_view), _view(right_view)
    left_book, right_book = claim(left_view.tree.control), claim(right_view.tree.control)
    todo = np.empty((MOST_POSTS, 5), np.int64)
    how = _work(
        me, u(queue), u(done), task_rows, uncounted_lane(left), uncounted_lane(right), uncounted_lane(nobody),
        left_view, right_view, left_book, right_book, counts, u(mine), u(out_probe), u(out_row), u(segments), todo,
    )  # fmt: skip
    release(left_view.tree.control, left_book)
    release(right_view.tree.control, right_book)
    return how
