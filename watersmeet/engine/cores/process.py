"""The processes of cores. One serves a join after the other, so that only the first join waits until it has started.

A process ends when its caller does, however that ends: its socket then has no other end. One that has nothing to do for
a while ends, too. Ctrl-C is the caller's business.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.engine.cores.channel import Channel, Gone
from watersmeet.engine.cores.member import Member, Sent, Share
from watersmeet.engine.cores.segments import Mapped, Outbox, mapped, read
from watersmeet.engine.results import Results

#: Seconds after which a process without a join ends.
IDLE = 60.0

# -- the caller's end ------------------------------------------------------------------------------------------------


class Process:
    """A process, which may have a join to work for."""

    #: Without a join; each kind waits among its own. Given back also by the garbage collector, at any time: no locks.
    idle: ClassVar[deque[Process]] = deque()

    def __init__(self) -> None:
        if not sys.executable:
            raise RuntimeError("cores are processes, and this Python cannot tell how it was started; use cores=1")
        ours, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join(part or os.getcwd() for part in sys.path)
            code = f"from watersmeet.engine.cores.process import serve; serve({theirs.fileno()})"
            self._popen = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def answers(self, message: str) -> bool:
        """Whether one that has nothing to do is still there, and hears this; it then waits for a join as long again."""
        try:
            self.channel.send((message,))
            self.channel.wait(5)
            self.channel.receive()
            self.channel.wait(None)
        except (Gone, TimeoutError):
            return False
        return True

    def how_it_ended(self) -> str:
        """In words, of one that has ended or is about to."""
        try:
            code = self._popen.wait(5)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        if code < 0:
            return f"killed by signal {-code} ({signal.Signals(-code).name})"
        return f"it ended with exit code {code}"

    def end(self) -> None:
        """Now, whatever it does."""
        self.channel.close()
        self._popen.kill()
        self._popen.wait()


def lease(count: int) -> list[Process]:
    """So many processes, started or about to."""
    found: list[Process] = []
    while len(found) < count and (process := _without_a_join()) is not None:
        if process.answers("awake"):  # else it has ended, or was about to
            found.append(process)
        else:
            process.end()
    return found + [Process() for _ in range(count - len(found))]


def _without_a_join() -> Process | None:
    try:
        return Process.idle.popleft()
    except IndexError:
        return None


def give_back(processes: list[Process]) -> None:
    """They have no join any more."""
    for process in processes:
        process.idle.append(process)


@atexit.register
def end_idle() -> None:
    while (process := _without_a_join()) is not None:
        process.end()


os.register_at_fork(after_in_child=Process.idle.clear)  # they serve whoever started them


# -- the other end ---------------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """What a process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)  # the other cores have their own work
    gc.collect()
    gc.freeze()  # or now and then one core looks through all that is loaded, and the others wait for it
    serve_joins(Channel(socket.socket(fileno=descriptor)))


def serve_joins(channel: Channel) -> None:
    """One join after the other, until nobody is there any more."""
    try:
        while True:
            channel.wait(IDLE)
            (what, *arguments), descriptors = channel.receive()
            channel.wait(None)
            if what == "open":
                _serve_join(channel, descriptors[0], *arguments)
            else:  # is it still there? or: whoever had it did not get as far as to open a join
                channel.send(("done", None))
    except (Gone, TimeoutError):
        pass


def _serve_join(channel: Channel, inbox: int, share: Share, number: int) -> None:
    """From its opening to its end."""
    try:
        try:
            member = Member(share, number)
        except BaseException as error:
            channel.send(("failed", _sendable(error), [], [], 0.0))
        else:
            channel.send(("done", None, [], [], 0.0))
            _Server(channel, inbox, share, number, member).serve()
    finally:
        os.close(inbox)


class _Server:
    """One join: what its caller asks for, one thing after the other."""

    def __init__(self, channel: Channel, inbox: int, share: Share, number: int, member: Member):
        self._channel = channel
        self._number = number
        self._inbox = inbox
        self._schema = share.layout.schema
        self._member = member
        self._memory: Mapped | None = None
        self._made: list[tuple[int, int]] = []  # (number, descriptor) of segments that the caller does not know yet
        self._outbox = Outbox(lambda number, descriptor: self._made.append((number, descriptor)))

    def serve(self) -> None:
        while True:
            (what, *arguments), _ = self._channel.receive()
            if what == "close":
                break
            self._answer(lambda what=what, arguments=arguments: getattr(self, "_" + what)(*arguments))
        self._channel.send(("done", None))

    def _answer(self, work: Any) -> None:
        begin = time.perf_counter()
        try:
            answer = ("done", work())
        except BaseException as error:
            answer = ("failed", _sendable(error))
        made, self._made = self._made, []
        written, self._outbox.written = self._outbox.written, []
        spent = time.perf_counter() - begin
        self._channel.send(
            (*answer, [number for number, _ in made], written, spent), tuple(descriptor for _, descriptor in made)
        )

    def _route(self, size: int, sent: Any, guides: Any) -> Any:
        """Rows and cores of copies, and how many rows are hot, by side."""
        return {side: self._member.route(side, one, guides) for side, one in self._read(size, sent).items()}

    def _visit(self, call: int, size: int, sent: Any) -> None:
        self._member.begin(call)
        self._member.visit(self._read(size, sent))

    def _step(self, call: int, size: int, sent: Any, expired_below: Any, free: list[list[int]]) -> Any:
        self._outbox.release(free[self._number])
        self._member.begin(call)
        return self._put(self._member.step(self._read(size, sent), expired_below))

    def _let_go(self, size: int, sent: Any, expired_below: Any) -> Any:
        return self._put(self._member.let_go(self._read(size, sent), expired_below))

    def _store(self, size: int, sent: Any) -> None:
        for side, one in self._read(size, sent).items():
            self._member.store(side, one)

    def _finish(self, call: int, free: list[list[int]]) -> Any:
        self._outbox.release(free[self._number])
        self._member.begin(call)
        return self._put(self._member.finish())

    def _undo(self, call: int) -> None:
        self._member.undo(call)

    def _held(self) -> Any:
        return self._member.held()

    def _check(self) -> None:
        self._member.core.check_invariants()

    def _read(self, size: int, sent: dict[Any, tuple[int, dict[str, tuple[int, int]]]]) -> dict[Any, Sent]:
        """What was sent, by reference to where it lies."""
        if sent and (self._memory is None or len(self._memory) < size):
            self._memory = mapped(self._inbox, size, writes=True)
        buffer = None if self._memory is None else pa.py_buffer(self._memory)
        found: dict[Any, Sent] = {}
        batches: dict[int, pa.RecordBatch] = {}
        for side, (first, places) in sent.items():
            assert buffer is not None
            at, length = places["batch"]
            if at not in batches:
                (batches[at],) = read(buffer.slice(at, length))
            arrays: dict[str, Any] = {
                name: np.frombuffer(buffer, TYPES[name], length // np.dtype(TYPES[name]).itemsize, at)
                for name, (at, length) in places.items() if name != "batch"
            }  # fmt: skip
            found[side] = Sent(batches[at], first, **arrays)
        return found

    def _put(self, results: Results) -> tuple[int, tuple[int, int] | None]:
        """(rows, where they are)."""
        begin, batches = time.perf_counter(), results.batches
        where = self._outbox.put(batches, self._schema) if batches else None
        self._member.metrics.took("hand", begin)
        return results.rows, where


#: Of what is sent beside a batch.
TYPES: dict[str, Any] = {
    "late": bool, "low": np.int64, "high": np.int64, "settled": bool, "home": np.uint16, "copy_rows": np.int32,
    "copy_cores": np.uint16, "visits": np.uint64, "met": np.uint8,
}  # fmt: skip


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
