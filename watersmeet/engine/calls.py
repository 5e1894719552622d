"""Calls on a join: one at a time, each done as a whole or not at all.

Threads may share a join: their calls take turns, in the order in which they get them. A caller that comes back in the
middle of its own call (from a signal handler, say) would meet a join that is half changed, so it is refused.

A call that fails, for whatever reason and at whatever point, is undone: the join tells how before anything changes.
Should that fail, too, nobody knows what the join holds, and every later call is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from time import perf_counter
from typing import Any, Protocol, TypeVar

from watersmeet.interrupts import uninterrupted

T = TypeVar("T")


class Watcher(Protocol):
    """Who wants to know of calls (a page). Told within the turn, so it must be quick and must not fail."""

    def done(self, since: float) -> None:
        """A call that began then, of time.perf_counter, has done its work."""

    def refused(self) -> None:
        """A call has raised, and changed nothing."""


class Calls:
    """check: raises where a call of this name is not possible any more. save: gives what undoes all that follows."""

    def __init__(self, check: Callable[[str], None], save: Callable[[], Callable[[], None]]):
        self._check = check
        self._save = save
        self._lock: Any = RLock()  # which knows its owner, though typeshed does not know that it does
        self._half_done: str | None = None  # a call that could not be undone
        self.watcher: Watcher | None = None

    def turn(self, call: str) -> Any:
        """For a `with`. The lock itself, so that nothing can come between taking and holding it."""
        if self._lock._is_owned():
            raise RuntimeError(f"{call} was called from within another call of the same join; call it afterwards")
        return self._lock

    def whole(self, call: str, work: Callable[..., T], *given: Any) -> T:
        """work(*given), which changes the join, in its turn."""
        with self.turn(call):
            if self._half_done is not None:
                raise RuntimeError(
                    f"{call} after a {self._half_done} that failed in the middle and could not be undone, so that "
                    f"results might be wrong; make a new StreamJoin and push the last window again"
                )
            watcher = self.watcher
            begin = 0.0 if watcher is None else perf_counter()
            undo = self._save()
            try:
                self._half_done = call
                self._check(call)
                answer = work(*given)
                if watcher is not None:
                    watcher.done(begin)
                self._half_done = None
                return answer
            except BaseException:
                with uninterrupted():
                    undo()
                    self._half_done = None
                    if watcher is not None:
                        watcher.refused()
                raise

    def if_free(self, look: Callable[[], None]) -> bool:
        """look() now, if nobody has the turn; says whether."""
        if self._lock._is_owned() or not self._lock.acquire(blocking=False):
            return False
        try:
            look()
        finally:
            self._lock.release()
        return True
