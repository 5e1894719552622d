"""A join over iterators instead of pushes: reading, joining and taking the results go on at the same time.

    left  --> [ . . ] --\
                         join --> [ . . ] --> for table in join.run(left, right)
    right --> [ . . ] --/

Each arrow is a thread, each box a queue of a few batches: who is too fast waits. Where both streams have a batch they
are pushed together, left first. A stream that is further ahead in time than the window reaches waits for the other, for
until that has come as far its tuples can complete nothing: so two files of any size are joined in the memory that their
windows need. In windows of the last n tuples the streams take turns, batch by batch, so that results do not depend on
who was faster.

An error, of an iterator or of the join, comes where the results would have come. Whoever stops taking them (break,
Ctrl-C) stops the rest; an iterator that never returns is left behind.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from watersmeet.query.windows import Last, Side, other

if TYPE_CHECKING:
    from watersmeet.engine.join import StreamJoin

Answer = TypeVar("Answer")

#: Samples of each stage that percentiles are made of: the newest.
_SAMPLES = 10_000
_PATIENCE = 0.5  # seconds that threads get to end


@dataclass
class Latencies:
    """Seconds that batches took, stage by stage.

    waiting: from when a batch was read to when it was pushed. joining: the push. taking: from its end to when the
    results were taken. whole: all of it.
    """

    waiting: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    joining: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    taking: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    whole: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES))

    def percentile(self, stage: str, percent: float) -> float:
        """Of the newest batches; NaN where there are none."""
        samples = getattr(self, stage)
        return float(np.percentile(list(samples), percent)) if samples else float("nan")

    def __repr__(self) -> str:
        stages = [
            f"{stage} {1e3 * self.percentile(stage, 50):.3g} ms (99%: {1e3 * self.percentile(stage, 99):.3g} ms)"
            for stage in ("waiting", "joining", "taking", "whole")
            if getattr(self, stage)
        ]
        return f"Latencies({', '.join(stages)})"


@dataclass(frozen=True)
class Progress:
    """How far a run is; given to its `progress` hook behind every push."""

    rows_in: int
    rows_out: int
    seconds: float
    latencies: Latencies


class _End:
    """An iterator has ended; with an error, or without."""

    def __init__(self, error: BaseException | None = None):
        self.error = error


class Run(Generic[Answer]):
    """An iterator over the answers that are not empty."""

    def __init__(
        self,
        join: StreamJoin[Answer],
        sources: dict[Side, Iterable[Any]],
        ahead: int,
        progress: Callable[[Progress], None] | None,
    ):
        self._join = join
        self._ahead = ahead
        self._progress = progress
        self.latencies = Latencies()
        self._changed = threading.Condition()
        self._read: dict[Side, deque[tuple[float, Any]]] = {side: deque() for side in sources}
        self._ended: set[Side] = set()
        self._answers: deque[tuple[float, float, Any]] = deque()  # (read, joined, answer)
        self._over: _End | None = None
        self._stopped = False
        self._begin = time.perf_counter()
        self._threads = [
            threading.Thread(target=self._read_all, args=(side, source), name=f"watersmeet {side}", daemon=True)
            for side, source in sources.items()
        ]
        self._threads.append(threading.Thread(target=self._join_all, name="watersmeet join", daemon=True))
        for thread in self._threads:
            thread.start()

    # -- taking ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Run[Answer]:
        return self

    def __next__(self) -> Answer:
        with self._changed:
            while not self._answers and self._over is None and not self._stopped:
                self._changed.wait()
            if self._answers:
                read, joined, answer = self._answers.popleft()
                self._changed.notify_all()
                now = time.perf_counter()
                self.latencies.taking.append(now - joined)
                self.latencies.whole.append(now - read)
                return answer
        over, self._over = self._over, _End()
        self.close()
        if over is not None and over.error is not None:
            raise over.error
        raise StopIteration

    def close(self) -> None:
        """Stop reading and joining. The join stays as it is: what was pushed was pushed."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        until = time.perf_counter() + _PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.perf_counter(), 0.0))

    def __enter__(self) -> Run[Answer]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._stopped = True

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read_all(self, side: Side, source: Iterable[Any]) -> None:
        end = _End()
        try:
            for batch in source:
                if not self._put(self._read[side], (time.perf_counter(), batch)):
                    return
        except BaseException as error:
            end = _End(error)
        with self._changed:
            self._ended.add(side)
            if end.error is not None and self._over is None:
                self._over = end
            self._changed.notify_all()

    def _put(self, queue: deque[Any], item: Any) -> bool:
        """Add to a queue once it has room; False: nobody wants it any more."""
        with self._changed:
            while len(queue) >= self._ahead and not self._stopped:
                self._changed.wait()
            queue.append(item)
            self._changed.notify_all()
            return not self._stopped

    # -- joining -----------------------------------------------------------------------------------------------------

    def _join_all(self) -> None:
        end = _End()
        try:
            metrics = self._join._metrics  # only counters that need no looking up
            while (taken := self._next()) is not None:
                begin = time.perf_counter()
                before = metrics.rows_out
                answer = self._join.push(**{side: batch for side, (_, batch) in taken.items()})
                joined = time.perf_counter()
                read = min(moment for moment, _ in taken.values())
                self.latencies.waiting.append(begin - read)
                self.latencies.joining.append(joined - begin)
                if metrics.rows_out > before and not self._put(self._answers, (read, joined, answer)):
                    return
                if self._progress is not None:
                    rows_in = metrics.rows_in_left + metrics.rows_in_right
                    self._progress(Progress(rows_in, metrics.rows_out, joined - self._begin, self.latencies))
            if self._stopped or self._over is not None:
                return
            begin, before = time.perf_counter(), metrics.rows_out
            answer = self._join.close()
            if metrics.rows_out > before:
                self._put(self._answers, (begin, time.perf_counter(), answer))
        except BaseException as error:
            end = _End(error)
        finally:
            with self._changed:
                if self._over is None:
                    self._over = end
                self._changed.notify_all()

    def _next(self) -> dict[Side, tuple[float, Any]] | None:
        """What to push; None: both streams have ended, or nobody wants it any more."""
        with self._changed:
            while not self._stopped and self._over is None:
                wanted = self._wanted()
                if wanted:
                    taken = {side: self._read[side].popleft() for side in wanted}
                    self._changed.notify_all()
                    return taken
                if all(side in self._ended and not queue for side, queue in self._read.items()):
                    return None
                self._changed.wait()
        return None

    def _wanted(self) -> list[Side]:
        """Streams of which a batch is to be pushed now."""
        going = [side for side in self._read if self._read[side] or side not in self._ended]
        there = [side for side in going if self._read[side]]
        if isinstance(self._join._asked.window, Last):
            return there if len(there) == len(going) else []
        return [side for side in there if not self._too_far(side)]

    def _too_far(self, side: Side) -> bool:
        """Whether the other stream, which is not at its end, must come nearer before this one is of use."""
        if len(self._read) < 2 or other(side) in self._ended:
            return False
        if self._join._core is None:
            return self._join._schemas[side] is not None  # it has shown itself, the other has not
        return self._join._clock.is_ahead(side)


def run(
    join: StreamJoin[Answer],
    left: Iterable[Any],
    right: Iterable[Any] | None,
    ahead: int,
    progress: Callable[[Progress], None] | None,
) -> Run[Answer]:
    sources: dict[Side, Iterable[Any]] = {"left": left}
    if right is not None:
        sources["right"] = right
    return Run(join, sources, ahead, progress)


async def run_async(
    join: StreamJoin[Answer],
    left: Iterable[Any] | AsyncIterable[Any],
    right: Iterable[Any] | AsyncIterable[Any] | None,
    ahead: int,
    progress: Callable[[Progress], None] | None,
) -> AsyncIterator[Answer]:
    """As `run`, for `async for`. Asynchronous iterators are read in the caller's own loop."""
    loop = asyncio.get_running_loop()
    given = [left] if right is None else [left, right]
    plain = [_plain(one, loop) for one in given]
    running = run(join, plain[0], plain[1] if len(plain) > 1 else None, ahead, progress)
    try:
        while (answer := await loop.run_in_executor(None, next, running, None)) is not None:
            yield answer
    finally:
        await loop.run_in_executor(None, running.close)


def _plain(source: Any, loop: asyncio.AbstractEventLoop) -> Iterable[Any]:
    """An asynchronous iterator as one that another thread can read."""
    if not hasattr(source, "__aiter__"):
        return source

    def items() -> Iterator[Any]:
        iterator = source.__aiter__()
        while True:
            try:
                yield asyncio.run_coroutine_threadsafe(iterator.__anext__(), loop).result()
            except StopAsyncIteration:
                return

    return items()
