"""One caller at a time.

A join may be shared by threads: their calls take turns, in the order in which they get them. A caller that comes back
in the middle of its own call (from a signal handler, say) would meet a join that is half changed, so it is refused.
"""

from __future__ import annotations

from threading import RLock
from typing import Any


class Turns:
    """`with turns.of("push"): ...`"""

    def __init__(self) -> None:
        self._lock: Any = RLock()  # which knows its owner, though typeshed does not know that it does

    def of(self, call: str) -> Any:
        """The lock itself, so that nothing can come between taking and holding it."""
        if self._lock._is_owned():
            raise RuntimeError(f"{call} was called from within another call of the same join; call it afterwards")
        return self._lock
