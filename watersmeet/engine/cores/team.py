"""The cores of one join, as StreamJoin sees them: like one core.

A call goes to all members at once, and ends when all have answered. Should it fail, anywhere, all take it back. A
member that is gone has taken its part of the windows with it, so the join cannot go on then.
"""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from watersmeet.engine.arrival import Arrival
from watersmeet.engine.core import JoinCore, Ticks
from watersmeet.engine.cores.channel import packed
from watersmeet.engine.cores.clock import PhaseClock
from watersmeet.engine.cores.collect import Collector
from watersmeet.engine.cores.member import Sent, Share
from watersmeet.engine.cores.process import TYPES, Process, give_back, lease
from watersmeet.engine.cores.segments import Returned, Segment, write, written_size
from watersmeet.engine.metrics import STEPS, Metrics
from watersmeet.engine.results import Results
from watersmeet.interrupts import uninterrupted
from watersmeet.query.windows import SIDES, Side
from watersmeet.routing import HotCold
from watersmeet.routing.beliefs import Beliefs
from watersmeet.routing.hot_cold import Guide, words
from watersmeet.workers import Workers

Array = np.ndarray

#: For each side: the position of its first tuple, and where each part of it lies, as (offset, bytes).
Places = dict[Side, tuple[int, dict[str, tuple[int, int]]]]
#: Of a member: how many results there are, and in which segment, and how many bytes of it, they are.
Answer = tuple[int, tuple[int, int] | None]

#: Tuples handed over at a time when a window moves.
_MOVED_ROWS = 1 << 18
_ALIGNED = 64
NOTHING: Mapping[str, int] = {}


class Lost(RuntimeError):
    """A core is gone, and its part of the windows with it."""


class Team:
    """`share.route.cores` members. like: the core whose place they will take, see `take_over`. workers: threads that
    put results in order."""

    _ends: dict[Side, int]  # positions that the next tuples get; from `take_over` on

    def __init__(self, share: Share, like: JoinCore, workers: Workers):
        self._share = share
        self.plan, self.window, self.index, self.self_join = like.plan, like.window, like.index, like.self_join
        self.keeps_keys = like.keeps_keys
        self._columns = {side: getattr(share, side).names for side in SIDES}
        route = share.route
        self._beliefs = Beliefs(route, like.plan) if isinstance(route, HotCold) else None
        self._collector = Collector(share.order, share.layout, share.schema, share.how == "semi", workers)
        self._seconds = dict.fromkeys(STEPS, 0.0)  # that the core before took
        self._inbox = Segment()
        self._inbox.reserve(1)
        self._call = 0
        self._asked = False  # whether any member has heard of this call
        self._processes = lease(share.route.cores)
        self._returned = [Returned() for _ in self._processes]
        self._owe: set[int] = set()  # members that have not answered
        self._spent = [0.0] * self.cores  # seconds, on their latest answer
        self._clock = PhaseClock(self.cores)
        self._lost: str | None = None
        self._let_go = weakref.finalize(self, _let_go, self._processes, self._owe)
        for number in range(self.cores):
            self._send(number, packed(("open", share, number)), (self._inbox.descriptor,))

    @property
    def cores(self) -> int:
        return len(self._processes)

    @property
    def ended(self) -> bool:
        return not self._processes

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def ready(self) -> bool:
        """Whether all have started. Does not wait."""
        while self._owe:
            channels = {self._processes[number].channel.fileno(): number for number in self._owe}
            answered = _readable(channels, 0)
            if not answered:
                return False
            for descriptor in answered:
                how, answer = self._receive(channels[descriptor])
                if how == "failed":
                    raise answer
        return True

    # -- as a core ---------------------------------------------------------------------------------------------------

    def step(self, arrivals: dict[Side, Arrival], expired_below: Ticks, results: Results) -> None:
        begin = time.perf_counter()
        sent = {side: self._sent(side, arrival) for side, arrival in arrivals.items()}
        firsts = dict(self._ends)
        for side, arrival in arrivals.items():
            self._ends[side] += arrival.rows
        routed = bool(sent) and not self._share.route.by_turns
        talks = bool(sent) and self._share.talks
        noted = {name: width for name, width, wanted in (
            ("home", 1, routed), ("visits", words(self.cores), routed and self._beliefs is not None), ("met", 1, talks),
        ) if wanted}  # fmt: skip
        size, places = self._write(sent, noted)
        begin = self._clock.took("write", begin)
        if routed:
            guides = None
            if self._beliefs is not None:
                guides = self._beliefs.look({side: (one.batch, one.span.greatest) for side, one in arrivals.items()})
            size, places = self._routed(size, places, guides)
            begin = self._clock.took("route", begin)
        self._asked = True
        if talks and self._share.visits_first:
            self._together(lambda: ("visit", self._call, size, places))
            talks = False
        answers = self._together(lambda: ("step", self._call, size, places, expired_below, self._freed()))
        halves = [answers]
        if talks:
            halves.append(self._together(lambda: ("let_go", size, places, expired_below)))
        if self._beliefs is not None:
            self._beliefs.let_go(expired_below)
        begin = self._clock.took("step", begin)
        self._collect(halves, firsts, results)
        self._clock.took("collect", begin)

    def finish(self, results: Results) -> None:
        begin = time.perf_counter()
        self._asked = True
        answers = self._together(lambda: ("finish", self._call, self._freed()))
        begin = self._clock.took("step", begin)
        self._collect([answers], self._ends, results)
        self._clock.took("collect", begin)

    def release(self) -> None:
        """What the members hold goes with them, see `end`."""

    def end(self) -> None:
        """Let go of the processes; from now on the windows are empty."""
        if self._processes:
            try:
                self._seconds = self._steps()
            except Lost:
                return  # and so are the others
            self._let_go()
            self._processes = []

    def save(self) -> Any:
        self._call += 1
        self._asked = False
        beliefs = None if self._beliefs is None else self._beliefs.save()
        return dict(self._ends), beliefs, self._clock.save()

    def restore(self, saved: Any) -> None:
        """As it was saved: all members take back what they have done since."""
        try:
            self._settle()
        except Exception:
            if self._lost is not None:
                raise  # of any other error it is being told already
        if self._asked:
            self._ask(lambda: ("undo", self._call))
        for returned in self._returned:
            returned.drop()
        self._ends = dict(saved[0])
        if self._beliefs is not None:
            self._beliefs.restore(saved[1])
        self._clock.restore(saved[2])

    def measure(self, metrics: Metrics) -> None:
        held = self._ask(lambda: ("held",))
        metrics.seconds = self._steps(held)
        for name in (
            "stored_left", "stored_right", "subwindows_left", "subwindows_right", "index_bytes", "payload_bytes",
        ):  # fmt: skip
            setattr(metrics, name, sum(one[name] for one in held))
        metrics.loads = [one["stored_left"] + one["stored_right"] for one in held]
        metrics.probes = [one["probed"] for one in held]
        clock = self._clock
        metrics.phases, metrics.works, metrics.waits = dict(clock.phases), list(clock.works), clock.waits
        if self._beliefs is not None:
            metrics.hot, metrics.hot_share = self._beliefs.hot(), self._beliefs.hot_share

    def belief_lines(self) -> list[str]:
        """What is hot, for explain()."""
        return [] if self._beliefs is None else self._beliefs.lines()

    def core_lines(self) -> list[str]:
        """What each core holds, and how long it has worked and waited, for explain()."""
        if self.ended:
            return []
        works, waits, phases = self._clock.works, self._clock.waits, self._clock.phases
        lines = [
            f"  core {number}: holds {one['stored_left'] + one['stored_right']:,}, {one['probed']:,} have looked for "
            f"partners; worked {works[number]:.3f} s, waited {waits[number]:.3f} s"
            for number, one in enumerate(self._ask(lambda: ("held",)))
        ]
        return [*lines, f"  the caller: {', '.join(f'{phase} {spent:.3f} s' for phase, spent in phases.items())}"]

    def _steps(self, held: list[Any] | None = None) -> dict[str, float]:
        """Seconds of each step, of all members and of the core before them."""
        held = self._ask(lambda: ("held",)) if held is None else held
        return {step: before + sum(one["seconds"][step] for one in held) for step, before in self._seconds.items()}

    def kinds(self) -> list[tuple[tuple[Side, ...], list[Any]]]:
        """Of all members' structures, member by member."""
        if self.ended:
            return []
        found: dict[tuple[Side, ...], list[Any]] = {}
        for one in self._ask(lambda: ("held",)):
            for sides, kinds in one["kinds"]:
                found.setdefault(sides, []).extend(kinds)
        return list(found.items())

    def check_invariants(self) -> None:
        self._ask(lambda: ("check",))

    # -- taking over -------------------------------------------------------------------------------------------------

    def take_over(self, core: JoinCore) -> None:
        """Store what a core has stored. O(window)."""
        self._settle()
        self._seconds = dict(core.metrics.seconds)
        self._ends = {side: core.payloads[side].end for side in SIDES}
        for side, first, batch, settled, late in core.stored(_MOVED_ROWS):
            nowhere = np.full(batch.num_rows, -1)  # they do not look for partners
            size, places = self._write({side: Sent(batch, first, late, nowhere, nowhere, settled)})
            message = ("store", size, places)
            self._ask(lambda message=message: message)  # type: ignore[misc]

    # -- sending -----------------------------------------------------------------------------------------------------

    def _sent(self, side: Side, arrival: Arrival) -> Sent:
        bounds = (arrival.low, arrival.high) if self.window.counts else (None, None)
        return Sent(arrival.batch, self._ends[side], arrival.late, *bounds)

    def _write(self, sent: dict[Side, Sent], noted: Mapping[str, int] = NOTHING) -> tuple[int, Places]:
        """Put batches, and what belongs to them, where all members see them; says where that is.

        noted: what members will note there, so many words of each row.
        """
        todo: list[tuple[int, int, Any]] = []
        known: dict[Any, tuple[int, int]] = {}  # a self join has one batch for both sides
        end = 0
        places: Places = {}
        for side, one in sent.items():
            batch = one.batch
            found: dict[str, tuple[int, int]] = {}
            wanted = batch.select(self._columns[side])
            twin = (id(batch), *wanted.schema.names)
            if twin not in known:
                length = written_size([wanted], wanted.schema)
                known[twin] = (end, length)
                todo.append((end, length, wanted))
                end = _aligned(end + length)
            found["batch"] = known[twin]
            arrays = {"late": one.late, "low": one.low, "high": one.high, "settled": one.settled}
            for name, array in arrays.items():
                if array is not None:
                    found[name] = (end, array.nbytes)
                    todo.append((end, array.nbytes, np.ascontiguousarray(array)))
                    end = _aligned(end + array.nbytes)
            for name, width in noted.items():
                size = batch.num_rows * width * np.dtype(TYPES[name]).itemsize
                found[name] = (end, size)
                if name != "home":  # of which they write all
                    todo.append((end, size, np.zeros(size, np.uint8)))
                end = _aligned(end + size)
            places[side] = (one.first, found)
        memory = self._inbox.reserve(end)
        for at, length, what in todo:
            place = memory[at : at + length]
            if isinstance(what, pa.RecordBatch):
                write(pa.FixedSizeBufferWriter(pa.py_buffer(place)), [what], what.schema)
            else:
                np.frombuffer(place, what.dtype)[:] = what
        return self._inbox.size, places

    def _routed(self, size: int, places: Places, guides: dict[Side, Guide] | None) -> tuple[int, Places]:
        """Let the members work out the route, each for its share of the rows; says where that is."""
        found = self._together(lambda: ("route", size, places, guides))
        if self._beliefs is not None:
            self._beliefs.rows += sum(parts["home"][1] for _, parts in places.values()) // TYPES["home"]().itemsize
            self._beliefs.hot_rows += sum(hot for one in found for _, _, hot in one.values())
        end = _aligned(max(at + length for _, parts in places.values() for at, length in parts.values()))
        for side, (_, parts) in places.items():
            copies = [one[side][:2] for one in found]
            for name, arrays in zip(("copy_rows", "copy_cores"), zip(*copies, strict=True), strict=True):
                array = np.concatenate(arrays)
                if array.size:
                    parts[name] = (end, array.nbytes)
                    np.frombuffer(self._inbox.reserve(end + array.nbytes), array.dtype, array.size, end)[:] = array
                    end = _aligned(end + array.nbytes)
        return self._inbox.size, places

    def _collect(self, halves: list[list[Answer]], firsts: dict[Side, int], results: Results) -> None:
        """Take the results of a step that began at these positions."""
        rows = 0
        batches: list[pa.RecordBatch] = []
        for answers in halves:
            for returned, (count, where) in zip(self._returned, answers, strict=True):
                rows += count
                batches += [] if where is None else returned.take(*where)
        results.add(rows, self._collector.in_order(batches, firsts) if self._share.ordered else batches)

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ask(self, message: Callable[[], tuple[Any, ...]]) -> list[Any]:
        """The answers of all members. message: made, and packed, once for all of them, when they can hear it."""
        self._settle()
        with uninterrupted():
            data = packed(message())
            for number in range(self.cores):
                self._send(number, data)
        return self._settle()

    def _freed(self) -> list[list[int]]:
        """Of each member, segments of results that nothing refers to any more."""
        return [returned.freed() for returned in self._returned]

    def _together(self, message: Callable[[], tuple[Any, ...]]) -> list[Any]:
        """As `_ask`, in one of the phases in which all work."""
        answers = self._ask(message)
        self._clock.worked(self._spent)
        return answers

    def _send(self, number: int, data: bytes, descriptors: tuple[int, ...] = ()) -> None:
        with uninterrupted():  # half a message would be the end of all
            try:
                self._processes[number].channel.send_packed(data, descriptors)
            except BaseException as error:  # whatever it is, half a message may be on its way
                self._lose(number, error)
            self._owe.add(number)

    def _settle(self) -> list[Any]:
        """Wait until all have answered. Raises the first error there is."""
        if self._lost is not None:
            raise Lost(self._lost)
        answers: dict[int, Any] = {}
        errors: list[BaseException] = []
        while self._owe:
            channels = {self._processes[number].channel.fileno(): number for number in self._owe}
            for descriptor in _readable(channels):
                number = channels[descriptor]
                how, answer = self._receive(number)
                if how == "failed":
                    errors.append(answer)
                answers[number] = answer
        if errors:
            raise errors[0]
        return [answers[number] for number in sorted(answers)]

    def _receive(self, number: int) -> tuple[str, Any]:
        with uninterrupted():
            try:
                (how, answer, made, written, spent), descriptors = self._processes[number].channel.receive()
            except BaseException as error:
                self._lose(number, error)
            self._owe.discard(number)
            self._spent[number] = spent
            for segment, descriptor in zip(made, descriptors, strict=True):
                self._returned[number].know(segment, descriptor)
            self._returned[number].hold(written)
        if how == "failed":
            answer.add_note(f"in core {number} of {self.cores}")
        return how, answer

    def _lose(self, number: int, error: BaseException) -> NoReturn:
        how = self._processes[number].how_it_ended()
        self._lost = (
            f"core {number} of {self.cores} (process {self._processes[number].pid}) is gone: {how}. Its part of the "
            f"windows went with it; make a new StreamJoin and push the last window again"
        )
        self._owe.clear()
        for process in self._processes:
            process.end()
        self._processes = []
        raise Lost(self._lost) from error


def _readable(descriptors: Iterable[int], milliseconds: int | None = None) -> list[int]:
    """Those from which something may be read, or whose other end is gone; waits for one, so long at most."""
    poll = select.poll()  # select.select takes none beyond 1,023
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(milliseconds)]


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _let_go(processes: list[Process], owe: set[int]) -> None:
    """The processes have no join any more; those that are still at work are not worth waiting for."""
    free = []
    for number, process in enumerate(processes):
        if number not in owe and process.answers("close"):
            free.append(process)
        else:
            process.end()
    give_back(free)
