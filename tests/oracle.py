"""The brute-force answer to a stream join: plain Python, one tuple at a time, nothing clever.

A stream join is described here by

- `steps`: what the caller does, in order (`Push`, `Advance`, `Flush`, `Close`); a row is a dict,
- `window`: one of `Within`, `Last`, `Hopping` (tumbling is hopping with slide = size),
- `how`: inner, left, right, full, semi, anti,
- `predicate(l, r)`: a Python function of two rows that answers True, False or None (unknown).

`expect(...)` answers with every result, by the positions of its two tuples in their streams, and with the
step at which it has to come out. A result is `Result(left, right, step, earliest)`; a position is None where
the side is null-extended (and for the right side of semi and anti). `step` is exact: the result comes out in
that step, not before and not after. Only for a tuple that lies in no window at all (hopping with gaps) is
nothing to wait for, so that it may come out anywhere from `earliest` to `step`.

How the answer is found:

1. Tuples arrive one by one: pushes in order, in a push the left rows, then the right rows.
2. A tuple is late if its time is below the smaller of the two streams' watermarks at that moment. A stream's
   watermark is its greatest time so far - lateness, and minus infinity before its first tuple. A stream that is more
   than its `idle_after` behind the other counts as just that far behind.
   Late tuples take part in nothing.
3. Every remaining left tuple is compared with every remaining right tuple: window, then predicate.
   The pair comes out in the step in which the later of the two arrived.
4. A tuple without partner comes out in the first step after which the join watermark is greater than the
   greatest time a partner could have (`last` windows: once n younger tuples of its own stream have arrived),
   and at `Close` at the latest.
5. With `pick`, every left tuple comes out once, with the best of its partners or (how="left") without any, when a tuple
   without partner would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

INFINITY = float("inf")
Row = dict[str, Any]
Holds = Callable[[Row, Row], "bool | None"]


# ---------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Push:
    left: Sequence[Row] | None = None
    right: Sequence[Row] | None = None


@dataclass(frozen=True)
class Advance:
    left: int | None = None
    right: int | None = None


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Close:
    pass


Step = Push | Advance | Flush | Close


# -------------------------------------------------------------------------------------------- windows


@dataclass(frozen=True)
class Within:
    before: int
    after: int
    lateness: tuple[int, int] = (0, 0)
    idle_after: tuple[int | None, int | None] = (None, None)

    def together(self, lt: int, rt: int) -> bool:
        return -self.before <= rt - lt <= self.after

    def greatest_partner(self, t: int, side: str) -> int:
        return t + (self.after if side == "left" else self.before)


@dataclass(frozen=True)
class Hopping:
    size: int
    slide: int
    lateness: tuple[int, int] = (0, 0)
    idle_after: tuple[int | None, int | None] = (None, None)

    def windows(self, t: int) -> set[int]:
        """The numbers k of all windows [k * slide, k * slide + size) that contain t."""
        nearest = t // self.slide
        reach = self.size // self.slide + 2
        candidates = range(nearest - reach, nearest + reach + 1)
        return {k for k in candidates if k * self.slide <= t < k * self.slide + self.size}

    def together(self, lt: int, rt: int) -> bool:
        return bool(self.windows(lt) & self.windows(rt))

    def greatest_partner(self, t: int, side: str) -> float:
        ends = [k * self.slide + self.size - 1 for k in self.windows(t)]
        return max(ends, default=-INFINITY)


@dataclass(frozen=True)
class Last:
    n: int
    n_right: int


Window = Within | Hopping | Last


@dataclass(frozen=True)
class Pick:
    """One partner: "latest", "earliest" or "nearest", by a value of two rows (None: by time); sql: the same as text."""

    way: str
    value: Callable[[Row, Row], Any] | None = None
    sql: str | None = None

    def __repr__(self) -> str:
        return f"Pick({self.way!r}, {self.sql!r})"


# ------------------------------------------------------------------------------------------- arrivals


@dataclass
class Arrival:
    """One tuple: its position in its own stream, the step that brought it, and what was there before it."""

    row: Row
    position: int
    step: int
    order: int  # over both streams
    others: int  # tuples of the other stream that arrived before it
    late: bool = False
    matched_at: list[int] = field(default_factory=list)


class Result(NamedTuple):
    left: int | None
    right: int | None
    step: int
    earliest: int


@dataclass
class Expected:
    results: list[Result]
    late_left: list[int]  # positions
    late_right: list[int]
    steps: int

    def pairs(self) -> Counter:
        return Counter((result.left, result.right) for result in self.results)

    def by_step(self) -> list[Counter]:
        """What each step has to return (where `earliest` leaves a choice: at the latest)."""
        steps = [Counter() for _ in range(self.steps)]
        for result in self.results:
            steps[result.step][result.left, result.right] += 1
        return steps


def expect(
    steps: Sequence[Step],
    window: Window,
    how: str,
    predicate: Holds,
    time: tuple[str, str] = ("ts", "ts"),
    pick: Pick | None = None,
) -> Expected:
    left, right, watermarks = _arrive(steps, window, time)

    pairs = []
    for a in left:
        for b in right:
            if a.late or b.late or not _share_a_window(a, b, window, time):
                continue
            if predicate(a.row, b.row) is True:
                step = max(a.step, b.step)
                a.matched_at.append(step)
                b.matched_at.append(step)
                pairs.append(Result(a.position, b.position, step, step))

    results = []
    if pick is not None:
        for a in left:
            partners = [right[pair.right] for pair in pairs if pair.left == a.position]
            if not a.late and (partners or how == "left"):
                best = _best(pick, a, partners, time).position if partners else None
                results.append(Result(a.position, best, *_decided(a, left, "left", window, time, watermarks)))
    elif how in ("inner", "left", "right", "full"):
        results += pairs
    if how == "semi":
        for a in left:
            if a.matched_at:
                first = min(a.matched_at)
                results.append(Result(a.position, None, first, first))
    if how in ("left", "full", "anti") and pick is None:
        for a in left:
            if not a.late and not a.matched_at:
                step, earliest = _decided(a, left, "left", window, time, watermarks)
                results.append(Result(a.position, None, step, earliest))
    if how in ("right", "full"):
        for b in right:
            if not b.late and not b.matched_at:
                step, earliest = _decided(b, right, "right", window, time, watermarks)
                results.append(Result(None, b.position, step, earliest))

    return Expected(
        results=results,
        late_left=[a.position for a in left if a.late],
        late_right=[b.position for b in right if b.late],
        steps=len(steps),
    )


def _best(pick: Pick, a: Arrival, partners: list[Arrival], time) -> Arrival:
    """Of several partners of a left tuple the one that is picked."""

    def rank(b: Arrival) -> tuple:
        when = b.row[time[1]]
        if pick.value is not None:
            value = pick.value(a.row, b.row)
        else:
            value = abs(when - a.row[time[0]]) if pick.way == "nearest" else when
        known = value is not None
        if not known:
            value = 0
        ordered = (value != value, 0 if value != value else value)  # NaN is the greatest
        if pick.way == "latest":
            return known, ordered, when, b.position
        turned = (-ordered[0], -ordered[1])
        if pick.way == "nearest":
            return known, turned, when, b.position
        return known, turned, -when, -b.position

    return max(partners, key=rank)


def joint_watermark(left, right, idle_after):
    """The join's watermark when those of the streams are these."""
    left_idle, right_idle = idle_after
    if left_idle is not None and right - left > left_idle:
        return right - left_idle
    if right_idle is not None and left - right > right_idle:
        return left - right_idle
    return min(left, right)


def _arrive(steps, window, time):
    """All tuples in their order of arrival, and the join watermark at the end of each step."""
    left: list[Arrival] = []
    right: list[Arrival] = []
    greatest = {"left": -INFINITY, "right": -INFINITY}
    lateness = dict(zip(("left", "right"), getattr(window, "lateness", (0, 0)), strict=True))

    def join_watermark():
        # Not `greatest - lateness` on floats: times may be int64 extremes.
        left, right = (g if g == -INFINITY else g - lateness[side] for side, g in greatest.items())
        return joint_watermark(left, right, getattr(window, "idle_after", (None, None)))

    def arrive(rows, side, own, others, column, number):
        for row in rows:
            arrival = Arrival(row, len(own), number, len(left) + len(right), len(others))
            if not isinstance(window, Last):
                arrival.late = row[column] < join_watermark()
                greatest[side] = max(greatest[side], row[column])
            own.append(arrival)

    watermarks = []
    for number, step in enumerate(steps):
        if isinstance(step, Push):
            arrive(step.left or [], "left", left, right, time[0], number)
            arrive(step.right or [], "right", right, left, time[1], number)
        elif isinstance(step, Advance):
            if step.left is not None:
                greatest["left"] = max(greatest["left"], step.left)
            if step.right is not None:
                greatest["right"] = max(greatest["right"], step.right)
        watermarks.append(join_watermark())
    return left, right, watermarks


def _share_a_window(a: Arrival, b: Arrival, window: Window, time) -> bool:
    if not isinstance(window, Last):
        return window.together(a.row[time[0]], b.row[time[1]])
    if a.order > b.order:  # the left tuple came later: is the right one among the last n_right then?
        return b.position >= a.others - window.n_right
    return a.position >= b.others - window.n


def _decided(tuple_, stream, side, window, time, watermarks) -> tuple[int, int]:
    """The step that proves that no partner can come any more, and the first in which that may be known."""
    close = len(watermarks) - 1
    if isinstance(window, Last):
        n = window.n if side == "left" else window.n_right
        pushed_out_by = tuple_.position + n
        step = stream[pushed_out_by].step if pushed_out_by < len(stream) else close
        return step, step
    t = tuple_.row[time[0] if side == "left" else time[1]]
    high = window.greatest_partner(t, side)
    if high == -INFINITY:  # in no window: nothing to wait for
        high, earliest = t, tuple_.step
    else:
        earliest = None
    step = close
    for number in range(tuple_.step, len(watermarks)):
        if watermarks[number] > high:
            step = number
            break
    return step, step if earliest is None else earliest
