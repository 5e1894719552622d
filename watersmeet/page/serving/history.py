"""The last hour in few points: all samples of the last minutes, then one for every ten seconds.

    an hour ago                  five minutes ago        now
    |  .  .  .  .  .  .  .  .  .  |..................... |
      slots of ten seconds           samples

A sample that gets old goes to the slot of its time, with the others that are there. A series says how they become one:
its mean, its greatest or its last value. A value that is not known (None) does not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

KEPT = 3600.0
FINE = 300.0
SLOT = 10.0


class _Slot:
    """Samples that have become one."""

    def __init__(self, number: int, kinds: Sequence[str]):
        self.number = number
        self.at = 0.0
        self.values: list[float | None] = [None] * len(kinds)
        self._counts = [0] * len(kinds)
        self._kinds = kinds

    def add(self, at: float, values: Sequence[float | None]) -> None:
        self.at = at
        for i, (kind, new) in enumerate(zip(self._kinds, values)):
            if new is None:
                continue
            old = self.values[i]
            self._counts[i] += 1
            if old is None or kind == "last":
                self.values[i] = new
            elif kind == "max":
                self.values[i] = max(old, new)
            else:
                self.values[i] = old + (new - old) / self._counts[i]


class History:
    """series: by name, "mean", "max" or "last"."""

    def __init__(self, series: Mapping[str, str], kept: float = KEPT, fine: float = FINE, slot: float = SLOT):
        self.names = list(series)
        self._kinds = list(series.values())
        self._kept, self._fine, self._slot = kept, fine, slot
        self._new: deque[tuple[float, list[float | None]]] = deque()
        self._old: deque[_Slot] = deque()

    def add(self, at: float, values: Mapping[str, float | None]) -> None:
        """A sample of this time, in seconds of a clock that does not go back."""
        self._new.append((at, [values.get(name) for name in self.names]))
        while self._new and self._new[0][0] <= at - self._fine:
            self._age(*self._new.popleft())
        while self._old and self._old[0].at <= at - self._kept:
            self._old.popleft()

    def _age(self, at: float, values: list[float | None]) -> None:
        number = int(at // self._slot)
        if not self._old or self._old[-1].number != number:
            self._old.append(_Slot(number, self._kinds))
        self._old[-1].add(at, values)

    def points(self, since: float | None = None) -> list[list[Any]]:
        """[time, value, value, ...] by name, the oldest first; since: only later ones."""
        found = [[slot.at, *slot.values] for slot in self._old if since is None or slot.at > since]
        return found + [[at, *values] for at, values in self._new if since is None or at > since]
