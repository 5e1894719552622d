"""A stream's window as a chain of subwindows.

    oldest                                        newest
    [ subwindow | subwindow | subwindow | subwindow . . . ]  <- inserts
       expires
       whole

Inserts go to the newest only. When it spans its share of the window (in ticks) or holds its share of tuples it is
sealed and another begins. The oldest is dropped whole, once none of its tuples can find partners any more. So no
structure ever deletes a tuple. Each subwindow knows the least and the greatest tick in it: a batch skips the
subwindows out of its reach, and has its partners' ticks checked only in those at the edge.

A structure that can `forget` its oldest rows, many at a time, needs no chain: one subwindow then holds the whole
window, and a probe has one place to look. It says when forgetting is worth its cost; until then probes see the
expired rows, and leave them out by their ticks.

For joins that must know which tuples had no partner, a subwindow has a byte a row: `settled`. A row is settled when it
has found a partner, when it was late, or when it has been handed out as partnerless. In a self join a tuple has two
roles, and a bit for each.

A step that fails must leave no trace. `restore` makes the window again what it was at `save`: a subwindow notes what it
is before its first change, arrays are only written behind what was there, settled bits are noted as they are set, and a
structure that has changed in the meantime is made anew from the tuples (by whoever has them), which costs a window's
worth of inserts, but only then.

Cost: append O(its structure's insert), expire O(rows handed out), targets O(subwindows).
Reference: PanJoin, section III-A and III-G.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit

from watersmeet.index.base import Forgetting, Index, Structure, TickBounds, appended
from watersmeet.memory import repeated, room
from watersmeet.window.ticks import Span
from watersmeet.workers import ALONE, SMALL, Workers

Array = np.ndarray

_NO_TICKS = np.zeros(0, np.int64)
_NO_POSITIONS = np.zeros(0, np.int64)

#: Row numbers are 32 bits wide, so no subwindow gets more rows than this.
_MOST_ROWS = 1 << 30


@njit(nogil=True, cache=True)
def settle(settled, rows, role, fresh):
    """Mark rows as settled; writes the number of those that were not to `fresh`, and behind it which they are."""
    n = 0
    for row in rows:
        fresh[1 + n] = row
        n += settled[row] & role == 0
        settled[row] |= role
    fresh[0] = n


@njit(nogil=True, cache=True)
def _leading_below(ticks, tick, at):
    """The first row from `at` on that is not below this tick."""
    while at < ticks.size and ticks[at] < tick:
        at += 1
    return at


@njit(nogil=True, cache=True)
def _rows_within(ticks, low, high, low_rows, high_rows, start, stop):
    """Bounds low[i] and high[i] on ticks, which are sorted, as bounds on rows, both inclusive."""
    _as_rows(ticks, low, False, start, stop, low_rows)
    _as_rows(ticks, high, True, start, stop, high_rows)


@njit
def _as_rows(ticks, bounds, strict, start, stop, rows):
    """For each bound, how many of the sorted ticks are below it (strict: at most it), less one if strict.

    Bounds of one batch mostly rise a little from row to row, so each search gallops from the last answer.
    """
    n = ticks.size
    at = 0
    for i in range(start, stop):
        bound = bounds[i]
        if n and (ticks[n - 1] < bound or (strict and ticks[n - 1] == bound)):  # as for most, where streams keep pace
            at = n
            rows[i] = n - strict
            continue
        step = 1
        if at < n and (ticks[at] < bound or (strict and ticks[at] == bound)):
            low = at + 1
            while low + step <= n and (ticks[low + step - 1] < bound or (strict and ticks[low + step - 1] == bound)):
                low += step
                step <<= 1
            high = min(low + step - 1, n)
        else:
            high = at
            while high - step >= 0 and not (
                ticks[high - step] < bound or (strict and ticks[high - step] == bound)
            ):
                high -= step
                step <<= 1
            low = max(high - step + 1, 0)
        while low < high:
            middle = (low + high) >> 1
            if ticks[middle] < bound or (strict and ticks[middle] == bound):
                low = middle + 1
            else:
                high = middle
        at = low
        rows[i] = at - strict


def _less(bounds: Array, base: int) -> Array:
    """bounds - base; one value that is repeated by its stride stays so."""
    if bounds.strides == (0,):
        return repeated(bounds[:1] - base, bounds.size)
    return bounds - base


class Subwindow:
    """Some tuples that arrived one after the other."""

    def __init__(self, base: int, structure: Structure, keeps_settled: bool, counts: bool):
        self.base = base  # position of row 0 in the stream
        self.size = 0
        self.structure = structure
        self.least: int | None = None  # of the ticks
        self.greatest: int | None = None
        self.in_order = True
        self._swept = {1: 0, 2: 0}  # by role: rows before this are all settled
        self._expired = 0  # rows before this have expired
        self._start = 0  # where row 0 lies in the arrays below; what lies before it has been forgotten
        self._ticks = None if counts else np.empty(0, np.int64)  # None: ticks are positions
        self._settled = np.empty(0, np.uint8) if keeps_settled else None
        self._late = _NO_POSITIONS  # of the tuples that are not in the structure because they were late
        self._changes = 0  # of the structure
        self._was: dict[str, Any] | None = None  # what it was at `save`, if it has changed since
        self._journal: list[tuple[int, Array, int]] = []  # (base, count and rows, role) settled since then

    @classmethod
    def adopted(
        cls, base: int, structure: Structure, ticks: Array, span: Span, settled: Array | None
    ) -> Subwindow:
        """A sealed subwindow over what is there already, by reference."""
        sub = cls(base, structure, settled is not None, False)
        sub.size = ticks.size
        sub.least, sub.greatest, sub.in_order = span
        sub._ticks, sub._settled = ticks, settled
        return sub

    @property
    def keeps_settled(self) -> bool:
        return self._settled is not None

    @property
    def span(self) -> Span:
        assert self.least is not None and self.greatest is not None
        return Span(self.least, self.greatest, self.in_order)

    @property
    def ticks(self) -> Array:
        if self._ticks is None:
            return np.arange(self.base, self.base + self.size)
        return self._ticks[self._start : self._start + self.size]

    @property
    def settled(self) -> Array:
        assert self._settled is not None
        return self._settled[self._start : self._start + self.size]

    def save(self) -> None:
        """`restore` is to lead back to here. O(1)."""
        self._was = None

    def _note(self) -> None:
        """Before a change."""
        if self._was is None:
            self._journal = []
            self._was = dict(self.__dict__, _swept=dict(self._swept))

    def restore(self) -> bool:
        """As it was saved, but for the structure; says whether that has changed since. O(rows settled since)."""
        if self._was is None:
            return False
        changed, journal = self._changes != self._was["_changes"], self._journal
        self.__dict__.update(self._was)
        for base, fresh, role in journal:
            rows = fresh[1 : 1 + fresh[0]] + (base - self.base)  # some may have been forgotten before
            self.settled[rows[rows < self.size]] &= np.uint8(0xFF ^ role)
        return changed

    def live(self, start: int, stop: int) -> Array:
        """Which of these rows were not late when they came."""
        live = np.ones(stop - start, bool)
        late = self._late - self.base
        live[late[(late >= start) & (late < stop)] - start] = False
        return live

    def append(self, ticks: Array, span: Span, entries: Any, settled: Array | None, late: Array | None = None) -> None:
        self._note()
        self._changes += 1
        if late is not None:
            self._late = np.concatenate([self._late, np.flatnonzero(late) + (self.base + self.size)])
        self.in_order &= span.in_order and (self.greatest is None or span.least >= self.greatest)
        self.least = span.least if self.least is None else min(self.least, span.least)
        self.greatest = span.greatest if self.greatest is None else max(self.greatest, span.greatest)
        if self._ticks is not None:
            self._ticks = appended(self._ticks, self._start + self.size, ticks)
        if self._settled is not None:
            assert settled is not None
            self._settled = appended(self._settled, self._start + self.size, settled)
        self.structure.insert(entries, self.size)
        self.size += ticks.size

    def seal(self) -> None:
        self._note()
        self._changes += 1
        self.structure.seal()
        ticks, settled = self._ticks, self._settled
        if ticks is not None:
            ticks = self.ticks.copy()
        if settled is not None:
            settled = self.settled.copy()
        self._ticks, self._settled, self._start = ticks, settled, 0

    def settle(self, rows: Array, role: int) -> Array:
        """Those of these rows (int32) that were not settled in this role; from now on they are. O(rows)."""
        self._note()
        fresh = np.empty(1 + rows.size, np.int32)
        fresh[0] = 0
        self._journal.append((self.base, fresh, role))  # before anything is set: what follows may be interrupted
        settle(self.settled, rows, np.uint8(role), fresh)
        return fresh[1 : 1 + fresh[0]]

    def settle_below(self, tick: int | None, role: int) -> Array:
        """Rows not settled whose tick is below (None: all of them); from now on they are."""
        assert self.least is not None and self.greatest is not None
        if tick is not None and tick <= self.least:
            return np.zeros(0, np.int64)
        self._note()
        if tick is not None and tick > self.greatest:  # it may lie beyond int64, too
            tick = None
        if self.in_order:
            if tick is None:
                stop = self.size
            else:
                stop = tick - self.base if self._ticks is None else int(np.searchsorted(self.ticks, tick))
            swept = self._swept[role]
            rows = np.flatnonzero(self.settled[swept:stop] & role == 0) + swept
            self._swept[role] = max(swept, stop)
        else:
            open_rows = self.settled & role == 0
            rows = np.flatnonzero(open_rows if tick is None else open_rows & (self.ticks < tick))
        self._journal.append((self.base, np.concatenate([[rows.size], rows]), role))
        self.settled[rows] |= role
        return rows

    def expire(self, tick: int) -> int:
        """How many rows, from the oldest on and one after the other, are below this tick."""
        if self._ticks is None:
            return min(max(tick - self.base, 0), self.size)
        assert self.least is not None and self.greatest is not None
        if tick <= self.least:  # it may lie beyond int64, on both ends
            return 0
        if tick > self.greatest:
            return self.size
        if self.in_order:
            return int(self.ticks.searchsorted(tick))
        self._note()
        self._expired = _leading_below(self.ticks, tick, self._expired)
        return self._expired

    def forget(self, gone: int) -> None:
        """Let go of the oldest rows; the others are numbered from 0 again. O(gone), beside the structure's cost."""
        self._note()
        self._changes += 1
        cast(Forgetting, self.structure).forget(gone)
        self.base += gone
        self.size -= gone
        self._start += gone
        if self._start >= self.size:
            kept = slice(self._start, self._start + self.size)  # copied: `restore` may need what was before it
            self._ticks = None if self._ticks is None else self._ticks[kept].copy()
            self._settled = None if self._settled is None else self._settled[kept].copy()
            self._start = 0
        self._late = self._late[self._late >= self.base]
        self._swept = {role: max(swept - gone, 0) for role, swept in self._swept.items()}
        self._expired = max(self._expired - gone, 0)
        if self._ticks is None:
            self.least = self.base
        elif self.in_order:
            self.least = int(self.ticks[0])
        else:
            ticks = self.ticks
            self.least = int(ticks.min())
            self.in_order = bool(np.all(ticks[1:] >= ticks[:-1]))  # what was not may have gone

    def bounds(self, low: Array, high: Array, workers: Workers) -> TickBounds:
        """Bounds on ticks for this subwindow; as rows where those are in order of ticks."""
        if self._ticks is None:
            return TickBounds(_less(low, self.base), _less(high, self.base), _NO_TICKS)
        if not self.in_order:
            return TickBounds(low, high, self.ticks)
        low_rows, high_rows = room(low.size, np.int64), room(high.size, np.int64)
        workers.over(partial(_rows_within, self.ticks, low, high, low_rows, high_rows), low.size, 2 * SMALL, each=1)
        return TickBounds(low_rows, high_rows, _NO_TICKS)

    def nbytes(self) -> int:
        flat = sum(array.nbytes for array in (self._ticks, self._settled) if array is not None)
        return self.structure.nbytes() + flat


class Target(NamedTuple):
    """A subwindow to be probed."""

    subwindow: Subwindow
    bounds: TickBounds | None  # None: all of it is within reach of the whole batch


class Chain:
    """The window of one stream.

    span, rows: the newest subwindow is sealed when its ticks span `span` and it has `least_rows`, or has `rows` tuples.
    counts: ticks are positions.
    forgets: subwindows let go of their oldest rows as these expire.
    workers: for large inserts.
    """

    def __init__(
        self,
        index: Index,
        span: int | None,
        rows: int | None,
        least_rows: int,
        keeps_settled: bool,
        counts: bool,
        forgets: bool = False,
        workers: Workers = ALONE,
    ):
        self._index = index
        self._workers = workers
        self._forgets = forgets
        self._span = span
        self._rows = rows
        self._least_rows = least_rows
        self.keeps_settled = keeps_settled
        self._counts = counts
        self._subwindows: list[Subwindow] = []
        self._open = False  # whether the newest takes inserts

    @property
    def subwindows(self) -> list[Subwindow]:
        return self._subwindows

    @property
    def stored(self) -> int:
        return sum(sub.size for sub in self._subwindows)

    def nbytes(self) -> int:
        return sum(sub.nbytes() for sub in self._subwindows)

    def save(self) -> tuple[list[Subwindow], bool]:
        """What it takes to `restore` it. O(subwindows)."""
        for sub in self._subwindows:
            sub.save()
        return self._subwindows, self._open

    def restore(self, saved: tuple[list[Subwindow], bool], remade: Callable[[Subwindow], Structure]) -> None:
        """As it was saved; `remade` makes the structure of a subwindow from its tuples."""
        self._subwindows, self._open = saved
        for sub in self._subwindows:
            if sub.restore():
                del sub.structure  # its memory may be what the other needs
                sub.structure = remade(sub)

    def append(
        self,
        position: int,
        ticks: Array,
        span: Span,
        entries: Any,
        settled: Array | None,
        late: Array | None = None,
    ) -> None:
        """Store a batch, not an empty one, whose first tuple has this position. late: those not in the entries."""
        if not self._open:
            like = self._subwindows[-1].structure if self._subwindows else None
            structure = self._index.structure(like, self._workers)
            newest = Subwindow(position, structure, self.keeps_settled, self._counts)
            self._subwindows = [*self._subwindows, newest]  # another list: `restore` may need this one
            self._open = True
        newest = self._subwindows[-1]
        assert position == newest.base + newest.size
        newest.append(ticks, span, entries, settled, late)
        spans = self._span is not None and newest.greatest - newest.least >= self._span  # type: ignore[operator]
        full = newest.size >= (self._rows or _MOST_ROWS)
        if full or (spans and newest.size >= self._least_rows):
            self.seal()

    def adopt(self, subwindow: Subwindow) -> None:
        """Take in a sealed subwindow as the newest; its positions follow those that are here."""
        self.seal()
        self._subwindows = [*self._subwindows, subwindow]

    def seal(self) -> None:
        """Let the next batch begin a new subwindow."""
        if self._open:
            self._subwindows[-1].seal()
            self._open = False

    def clear(self) -> None:
        self._subwindows = []
        self._open = False

    def targets(self, low: Array, high: Array, in_order: bool) -> list[Target]:
        """The subwindows that hold ticks in reach of a batch with these bounds, newest first."""
        if not self._subwindows:
            return []
        lows, highs = (low, high) if in_order else (np.sort(low), np.sort(high))
        low_least, low_greatest = int(lows[0]), int(lows[-1])
        high_least, high_greatest = int(highs[0]), int(highs[-1])
        found = []
        for sub in reversed(self._subwindows):
            assert sub.least is not None and sub.greatest is not None
            if sub.greatest >= low_least and sub.least <= high_greatest:
                inside = sub.least >= low_greatest and sub.greatest <= high_least
                found.append(Target(sub, None if inside else sub.bounds(low, high, self._workers)))
        return found

    def holding(self, position: int) -> Subwindow:
        """The subwindow with the tuple of this position, one of the newest. O(1) for the newest."""
        return next(sub for sub in reversed(self._subwindows) if sub.base <= position)

    def settle(self, positions: Array, role: int) -> Array:
        """Tuples at these positions, ascending and among the newest, are settled; gives those that were not before.
        O(positions and their subwindows)."""
        stop = positions.size
        fresh = [_NO_POSITIONS]
        for sub in reversed(self._subwindows):
            if not stop:
                break
            start = int(np.searchsorted(positions[:stop], sub.base))
            fresh.append(sub.settle((positions[start:stop] - sub.base).astype(np.int32), role) + np.int64(sub.base))
            stop = start
        assert not stop, f"tuples at {positions[:stop]} are not here"
        return np.concatenate(fresh[::-1])

    def settle_below(self, tick: int | None, role: int = 1) -> Array:
        """Positions of the tuples below this tick (None: all) that never found a partner; each is given out once."""
        found = [
            sub.settle_below(tick, role) + sub.base
            for sub in self._subwindows
            if tick is None or (sub.least is not None and sub.least < tick)
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def expire(self, tick: int) -> bool:
        """Drop the subwindows all of whose ticks are below this one; says whether anything has gone.

        In a stream that is in order those are the oldest. One tuple with a time far ahead must not hold up all the
        subwindows behind it, so a younger one may go first.
        """
        gone = False
        if self._forgets:
            for sub in self._subwindows:
                expired = sub.expire(tick)
                structure = cast(Forgetting, sub.structure)
                if 0 < expired < sub.size and structure.worth_forgetting(expired, sub.size):
                    sub.forget(expired)
                    gone = True
        kept = [sub for sub in self._subwindows if sub.greatest >= tick]  # type: ignore[operator]
        if len(kept) == len(self._subwindows):
            return gone
        self._open = self._open and bool(kept) and kept[-1] is self._subwindows[-1]
        self._subwindows = kept
        return True

    def positions(self) -> list[tuple[int, int]]:
        """The (first, one behind the last) positions kept, ascending."""
        return [(sub.base, sub.base + sub.size) for sub in self._subwindows]

    def check_invariants(self) -> None:
        previous = None
        for sub in self._subwindows:
            assert sub.size, "an empty subwindow is kept"
            assert previous is None or previous.base + previous.size <= sub.base, "subwindows overlap"
            assert (sub.least, sub.greatest) == (sub.ticks.min(), sub.ticks.max()), f"ticks are not {sub.ticks}"
            assert not sub.in_order or np.all(np.diff(sub.ticks) >= 0), f"ticks are out of order: {sub.ticks}"
            sub.structure.check_invariants()
            previous = sub

