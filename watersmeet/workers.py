"""The threads that one join works with.

Kernels release the GIL, so plain threads use all cores. Work is cut into more parts than there are threads, and
threads take the next part when they are done with one, so that an uneven part does not hold up the rest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Generic, TypeVar

from watersmeet.interrupts import uninterrupted
from watersmeet.parameters import MOST_CORES

T = TypeVar("T")

#: Below this many rows handing work to another thread, and waiting for it, costs more than it saves.
SMALL = 1 << 14


def all_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pending(Generic[T]):
    """What another thread does, or is to do. To wait for it may be interrupted, all else is done as a whole: a future's
    own methods are made of Python's steps, and Ctrl-C between two of them leaves its lock taken, for ever."""

    def __init__(self, future: Future[T]):
        self._future = future
        ended = self._ended = Lock()
        ended.acquire()
        with uninterrupted():
            release: Any = ended.__exit__  # which takes an argument, and is in C, so that nothing can come between
            future.add_done_callback(release)

    def result(self) -> T:
        with self._ended:  # which nobody has for longer than the task takes
            pass
        with uninterrupted():
            return self._future.result()

    def done(self) -> bool:
        with uninterrupted():
            return self._future.done()

    def cancel(self) -> bool:
        with uninterrupted():
            return self._future.cancel()

    def cancelled(self) -> bool:
        with uninterrupted():
            return self._future.cancelled()


class Workers:
    """`threads` threads, the caller's own included; started on first use."""

    def __init__(self, threads: int | None = None):
        self.threads = all_cores() if threads is None else threads
        self._pool: ThreadPoolExecutor | None = None

    def parts(self, n: int, small: int = SMALL, each: int = 4, most: int | None = None) -> list[tuple[int, int]]:
        """Cut range(n) into (start, stop) parts, none smaller than `small`: at most one for each thread, or some, up to
        `each`, where n is large; more where a part would be larger than `most`."""
        count, threads = 1, self.threads  # which another thread may change meanwhile
        if threads > 1:
            count = max(n // small, 1)
            if count > threads:
                count = threads * min(each, count // threads)
        if most is not None:
            count = max(count, -(-n // most))
        return [(0, n)] if count == 1 else [(n * i // count, n * (i + 1) // count) for i in range(count)]

    def begun(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin `work` on another thread, or do it now where there is none; a call of what this returns waits for it.

        Whoever fails before that call leaves the work going on: see `stop`.
        """
        if self.threads > 1:
            return self.submit(work).result
        done = work()
        return lambda: done

    def map(self, work: Callable[..., T], items: Iterable[Any]) -> list[T]:
        """[work(item) for item in items], spread over the threads. Where one fails others may be going on: `stop`."""
        items = list(items)
        if self.threads == 1 or len(items) < 2:
            return [work(item) for item in items]
        numbered = deque(enumerate(items))  # which threads may share, with or without a GIL

        def drain() -> list[tuple[int, T]]:
            mine: list[tuple[int, T]] = []
            while True:
                try:
                    number, item = numbered.popleft()
                except IndexError:
                    return mine
                mine.append((number, work(item)))

        tasks = [self.submit(drain) for _ in range(min(self.threads, len(items)) - 1)]
        results = drain()
        for task in tasks:
            # One that has not begun has nothing left to do; to wait for it would be for ever if this is its thread.
            if not task.cancel():
                results += task.result()
        results.sort(key=lambda pair: pair[0])
        return [result for _, result in results]

    def over(self, work: Callable[[int, int], object], n: int, small: int = SMALL, each: int = 4) -> None:
        """work(start, stop) for all `parts` of range(n)."""
        if self.threads == 1 or n <= small:
            work(0, n)
        else:
            self.map(lambda part: work(*part), self.parts(n, small, each))

    def each(self, work: Callable[..., T], items: Iterable[Any]) -> Iterator[T]:
        """As `map`; with one thread a result is handed over before the next is worked on."""
        if self.threads == 1:
            return (work(item) for item in items)
        return iter(self.map(work, items))

    def start(self, work: Callable[[], T]) -> Pending[T]:
        """Do `work` on another thread, where there is one, and go on; else do it now. `stop` waits for it."""
        if self.threads > 1:
            return self.submit(work)
        done: Future[T] = Future()
        done.set_result(work())
        return Pending(done)

    def submit(self, work: Callable[[], T]) -> Pending[T]:
        """Do `work` on another thread, whatever `threads` says."""
        with uninterrupted():  # or a thread might have begun of which the pool does not know
            if self._pool is None:
                # It starts a thread when there is work and none is idle; nobody hands out work for more than `threads`.
                self._pool = ThreadPoolExecutor(MOST_CORES, thread_name_prefix="watersmeet")
            return Pending(self._pool.submit(work))

    def stop(self) -> None:
        """No thread works any more when this returns, whatever was handed out: what they worked on may be touched.

        Whoever handed it out may have failed between any two lines, before it had anything to wait for; so all
        threads are awaited here, where they end. The next work starts others.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


#: For what is small, or runs on one of several threads already.
ALONE = Workers(1)
