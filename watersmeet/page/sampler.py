"""Samples of an embedded join, once a second.

Calls of a join take turns, and a page must not make a push wait. So it only says that it wants to know, and the next
call leaves a look behind before it ends, in its own turn. Where no call comes, the turn is free, and the sampler looks
itself. What can be worked out from two looks (rates) is worked out here, in a thread of its own.

A look costs as much as `join.metrics`: a fraction of a millisecond, and a message to each core that is a process.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from watersmeet.page.page import Page
from watersmeet.query.durations import UNIT_NS
from watersmeet.query.windows import SIDES, BoundTimeWindow, Side

if TYPE_CHECKING:
    from watersmeet.engine.join import StreamJoin

EVERY = 1.0
_IDLE = 0.1  # seconds without a call, after which the sampler looks itself
_CALLS = 1 << 15  # whose times are kept, between two looks


class Sampler:
    """Knows of the calls of one join. Threads: `done` and `refused` in those that call, the rest in its own."""

    def __init__(self, join: StreamJoin[Any], page: Page, every: float = EVERY):
        self.page = page
        self._join = weakref.ref(join)
        self._every = every
        self._wanted = False
        self._looked = threading.Event()
        self._look: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._refused = 0
        self.spent = {"calls": 0.0, "thread": 0.0}  # seconds of a core that it took: within calls, and in its thread
        self._thread = threading.Thread(target=self._follow, name="watersmeet page", daemon=True)
        self._thread.start()

    # -- in the turn of a call -----------------------------------------------------------------------------------------

    def done(self, since: float) -> None:
        self._seconds.append(time.perf_counter() - since)
        if self._wanted:
            self._take()

    def refused(self) -> None:
        self._refused += 1

    def _take(self) -> None:
        join = self._join()
        if join is not None and self._wanted:
            begin = time.thread_time()
            try:
                self._look = look(join) | {"refused": self._refused}
            except Exception:  # a core is lost: of that its callers are told
                self._look = {}
            self._wanted = False
            self._looked.set()
            if threading.current_thread() is not self._thread:
                self.spent["calls"] += time.thread_time() - begin

    # -- in a thread of its own ----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        while self._sample():
            time.sleep(self._every)
        join = self._join()
        if join is not None:
            with join._calls.turn("a page's end"):
                if join._calls.watcher is self:
                    join._calls.watcher = None  # a page that is closed costs nothing

    def _sample(self) -> bool:
        """Show how it goes; False: that is of no use any more."""
        self._looked.clear()
        self._wanted = True
        while not self._looked.wait(_IDLE):
            join = self._join()
            if join is None or self.page.closed:
                self.page.close()
                return False
            join._calls.if_free(self._take)
            del join  # which nothing but its users keeps alive
        if not self._look:
            return True
        self._seconds, seconds = deque(maxlen=_CALLS), self._seconds
        sample = sample_of(self._look, self._before, list(seconds))
        self._before = self._look
        self.spent["thread"] = time.thread_time()
        return self.page.send(sample)


def page_of(join: StreamJoin[Any], address: str | int | None, token: str | None, every: float = EVERY) -> Page:
    """The page of a join; the one that it has, if none in particular is asked for."""
    with join._calls.turn("page"):
        known = join._calls.watcher
        if isinstance(known, Sampler) and not known.page.closed:
            if address is not None or token is not None:
                raise ValueError(f"address: the join has a page already, at {known.page.address}; close that first")
            return known.page
        page = Page(str(join._asked.on), "embedded", address, token)
        join._calls.watcher = Sampler(join, page, every)
        return page


def look(join: StreamJoin[Any]) -> dict[str, Any]:
    """What a join tells of itself, within its turn."""
    state = dict(join._identity())["state"]
    found = {"at": time.monotonic(), "metrics": join._measured().to_dict(), "plan": join._explained(), "state": state}
    window = None if join._core is None else join._core.window
    if isinstance(window, BoundTimeWindow) and join._clock.watermarks is not None:
        ticks: dict[Side, int | None] = {side: join._clock.watermarks.of(side) for side in SIDES}
        found["watermarks"] = {side: None if t is None else str(window.show(t)) for side, t in ticks.items()}
        found["behind"] = behind(window, ticks, time.time_ns())
    return found


def behind(window: BoundTimeWindow, ticks: dict[Side, int | None], now: int) -> dict[str, Any]:
    """How far the watermark of each side is behind that of the other, and behind the clock (of nanoseconds since 1970),
    if its times are of that kind: in seconds, or as times are counted where they are integers."""
    known = [tick for tick in ticks.values() if tick is not None]
    scale = 1 if window.unit is None else UNIT_NS[window.unit] / 1e9
    found: dict[str, Any] = {"unit": "" if window.unit is None else "s", "other": {}, "clock": {}}
    for side, tick in ticks.items():
        if tick is not None:
            found["other"][side] = (max(known) - tick) * scale
            if window.unit is not None and pa.types.is_timestamp(window._time_type()):
                found["clock"][side] = now / 1e9 - tick * scale
    return found


def since(now: dict[str, Any], then: dict[str, Any] | None, name: str) -> list[float]:
    """What has been added to the seconds of each core."""
    before = then[name] if then else []
    before = before if len(before) == len(now[name]) else [0.0] * len(now[name])
    return [max(one - other, 0.0) for one, other in zip(now[name], before, strict=True)]


def sample_of(look: dict[str, Any], before: dict[str, Any], seconds: list[float]) -> dict[str, Any]:
    """What a page shows of a join. before: the look before this one. seconds: that calls took since then."""
    now, then = look["metrics"], before.get("metrics")
    passed = look["at"] - before["at"] if before else 0.0

    def rate(*names: str) -> float | None:
        return None if then is None or passed <= 0 else sum(now[name] - then[name] for name in names) / passed

    p50, p99 = np.percentile(seconds, (50, 99)).tolist() if seconds else (None, None)
    lag = look.get("behind", {"unit": "", "other": {}, "clock": {}})
    figures = {
        "in_left": rate("rows_in_left"), "in_right": rate("rows_in_right"), "out": rate("rows_out"),
        "p50": p50, "p99": p99, "busy": min(sum(seconds) / passed, 1.0) if passed > 0 else None,
        "lag_left": lag["other"].get("left"), "lag_right": lag["other"].get("right"),
        "rows_left": now["stored_left"], "rows_right": now["stored_right"],
        "index_bytes": now["index_bytes"], "payload_bytes": now["payload_bytes"],
        "runs_left": now["subwindows_left"], "runs_right": now["subwindows_right"],
        "late": rate("late_left", "late_right"),
        "bad": None if not before or passed <= 0 else (look["refused"] - before["refused"]) / passed,
    }  # fmt: skip
    sides = {
        side: {
            "rows_in": now[f"rows_in_{side}"], "stored": now[f"stored_{side}"], "late": now[f"late_{side}"],
            "watermark": look.get("watermarks", {}).get(side), "behind_other": lag["other"].get(side),
            "behind_clock": lag["clock"].get(side),
        }
        for side in SIDES
    }  # fmt: skip
    steps, phases = (
        {step: spent - (then[times][step] if then else 0.0) for step, spent in now[times].items()}
        for times in ("seconds", "phases")
    )
    return {
        "at": look["at"], "state": look["state"], "warning": None, "figures": figures, "unit": lag["unit"],
        "totals": {
            "rows_in": now["rows_in_left"] + now["rows_in_right"], "rows_out": now["rows_out"], "calls": now["pushes"],
            "late": now["late_left"] + now["late_right"], "bad": look["refused"],
        },
        "metrics": now, "watermark": now["watermark"], "sides": sides, "steps": steps, "phases": phases,
        "loads": now["loads"], "probes": now["probes"], "works": since(now, then, "works"),
        "waits": since(now, then, "waits"), "hot": now["hot"], "hot_share": now["hot_share"], "plan": look["plan"],
    }  # fmt: skip
