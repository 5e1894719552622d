"""Where the time of pushes goes, when the cores of a join are processes.

    caller   | write | route ..... | step ................ | collect |
    core 0           | works, waits | works .............. |
    core 1           | works ...... | works, waits ....... |

In a phase that all cores take part in the caller waits for the last of them, and so do all others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from watersmeet.engine.metrics import PHASES

#: Those that cores take part in.
TOGETHER = ("route", "step")


class PhaseClock:
    """Seconds of each phase, by the caller's clock, and those that each of so many cores has worked in them."""

    def __init__(self, cores: int) -> None:
        self.phases = dict.fromkeys(PHASES, 0.0)
        self.works = [0.0] * cores

    @property
    def waits(self) -> list[float]:
        """Seconds that each core has waited for the others, and for messages. Where it has measured a little more than
        its caller: none."""
        together = sum(self.phases[phase] for phase in TOGETHER)
        return [max(together - worked, 0.0) for worked in self.works]

    def took(self, phase: str, since: float) -> float:
        """Count the time `since` then (of time.perf_counter); returns now."""
        now = time.perf_counter()
        self.phases[phase] += now - since
        return now

    def worked(self, seconds: Sequence[float]) -> None:
        """Each core has worked so long."""
        self.works = [before + more for before, more in zip(self.works, seconds, strict=True)]

    def save(self) -> tuple[dict[str, float], list[float]]:
        return dict(self.phases), self.works

    def restore(self, saved: tuple[dict[str, float], list[float]]) -> None:
        self.phases, self.works = dict(saved[0]), saved[1]
