"""Hypothesis strategies for whole joins: what is pushed, in which order, over which window.

Everything is small and on purpose narrow: keys from a tiny pool, so that duplicates are the rule; times that
sit exactly on, one before and one after a window's edge; nulls, NaN, infinities and int64 extremes among the
values; pushes of no rows at all; tuples out of order within the lateness and beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st
from oracle import Advance, Close, Flush, Hopping, Last, Pick, Push, Row, Step, Window, Within
from predicates import PREDICATES, Predicate

import watersmeet as wm

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

HOWS = ("inner", "left", "right", "full", "semi", "anti")
WINDOW_KINDS = ("within", "last", "tumbling", "hopping", "gaps")

# ---------------------------------------------------------------------------------------------- values

VALUES = {
    "k": st.sampled_from([0, 1, 2, None]),
    "x": st.one_of(
        st.integers(0, 7),
        st.integers(0, 7),
        st.none(),
        st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX, -1, 2**53 + 1]),
    ),
    "f": st.sampled_from(
        # 0.4 - 0.3 > 0.1 but 0.3 + 0.1 = 0.4: bounds computed in floating point are not the predicate.
        [0.1, 0.2, 0.3, 0.4, 0.0, -0.0, 1.0, 3.0, float("nan"), float("inf"), -float("inf"), 1e308, 5e-324]
        + [None, float(2**63)]
    ),
    "s": st.sampled_from(["", "a", "b", "ab", "é", "a long common prefix 1", "a long common prefix 2", None]),
}
FILLER = {"k": 0, "x": 0, "f": 0.0, "s": "-"}


@st.composite
def key_pools(draw, predicate: Predicate) -> list[Row]:
    """A few values for the columns that the predicate reads; all rows take theirs from here."""
    row = st.fixed_dictionaries({name: VALUES[name] for name in predicate.columns})
    return [FILLER | values for values in draw(st.lists(row, min_size=1, max_size=6))]


# --------------------------------------------------------------------------------------------- windows


def lateness() -> st.SearchStrategy[tuple[int, int]]:
    one = st.sampled_from([0, 2, 5, 1000])
    return st.one_of(one.map(lambda n: (n, n)), st.tuples(one, one))


def idle_after() -> st.SearchStrategy[tuple[int | None, int | None]]:
    one = st.sampled_from([None, 0, 1, 4, 1000])
    return st.one_of(st.just((None, None)), one.map(lambda n: (n, n)), st.tuples(one, one))


def windows(kind: str) -> st.SearchStrategy[Window]:
    if kind == "within":
        side = st.sampled_from([0, 1, 3, 5])
        return st.builds(Within, side, side, lateness(), idle_after())
    if kind == "last":
        n = st.sampled_from([1, 2, 3, 4, 7, 100])
        return st.one_of(n.map(lambda n: Last(n, n)), st.builds(Last, n, n))
    size = st.integers(1, 7)
    if kind == "tumbling":
        return st.builds(lambda size, late, idle: Hopping(size, size, late, idle), size, lateness(), idle_after())
    if kind == "hopping":  # overlapping windows; the slide need not divide the size
        pairs = [(size, slide) for size in range(2, 8) for slide in range(1, size)]
    else:  # "gaps": some times lie in no window
        pairs = [(size, slide) for size in range(1, 6) for slide in range(size + 1, 9)]
    hops = st.sampled_from(pairs)
    return st.builds(lambda pair, late, idle: Hopping(*pair, late, idle), hops, lateness(), idle_after())


def _edges(window: Window) -> list[int]:
    """Distances in time at which something changes, and their neighbours."""
    if isinstance(window, Within):
        corners = [0, window.before, window.after]
    elif isinstance(window, Hopping):
        corners = [0, window.slide, window.size]
    else:
        corners = [0]
    return sorted({corner + step for corner in corners for step in (-1, 0, 1)})


# ----------------------------------------------------------------------------------------------- joins


@dataclass(frozen=True)
class Scenario:
    """A join and all that is done to it, in the terms of the oracle."""

    predicate: Predicate
    window: Window
    how: str
    steps: list[Step] = field(repr=False)
    time: tuple[str, str] = ("ts", "ts")
    timestamps: bool = False  # time columns of type timestamp (one unit = a second) instead of int64
    learn: bool = False  # the join learns its schemas from the first push
    pick: Pick | None = None

    def __repr__(self) -> str:
        steps = "".join(f"\n  {step}," for step in self.steps)
        options = f"time={self.time}, timestamps={self.timestamps}, learn={self.learn}"
        options += "" if self.pick is None else f", pick={self.pick}"
        return f"Scenario({self.predicate!r}, {self.window}, {self.how!r}, {options}, steps=[{steps}\n])"


class Setting:
    """What every scenario begins with: predicate, window and join type, the values that rows take, and a clock."""

    def __init__(self, draw, kind, how, predicates, in_order, start):
        self._draw = draw
        self.predicate = draw(st.sampled_from(predicates))
        self.window = draw(windows(kind or draw(st.sampled_from(WINDOW_KINDS))))
        if in_order and not isinstance(self.window, Last):  # however far one is behind, nothing of it is late
            self.window = replace(self.window, idle_after=(None, None))
        self.how = how or draw(st.sampled_from(HOWS))
        self.timed = timed = not isinstance(self.window, Last)
        self.time = draw(st.sampled_from([("ts", "ts"), ("ts", "rts")])) if timed else ("ts", "ts")
        self.timestamps = draw(st.booleans()) if timed and start is None else False
        # The clock starts anywhere: around 0, where floor and truncation differ, and at both ends of int64.
        starts = [0, 0, -9, 50] if self.timestamps or not timed else [0, 0, -9, 50, INT64_MIN, INT64_MAX - 20]
        self.clock = draw(st.sampled_from(starts)) if start is None else start
        self.pool = draw(key_pools(self.predicate))
        edges = _edges(self.window)
        self._jitters = [0] if in_order else draw(st.sampled_from([[0], edges, [*edges, -9, 9]]))
        self.learn = draw(st.booleans())

    def moment(self) -> int:
        return min(max(self.clock + self._draw(st.sampled_from(self._jitters)), INT64_MIN), INT64_MAX)

    def values(self, most: int) -> list[Row]:
        """Those of the columns that the predicate reads, for a few rows."""
        return [self.pool[i] for i in self._draw(st.lists(st.integers(0, len(self.pool) - 1), max_size=most))]

    def actions(self, choices: list[str]):
        """One after the other, while time goes on."""
        for action in self._draw(st.lists(st.sampled_from(choices), min_size=3, max_size=9)):
            self.clock = min(self.clock + self._draw(st.sampled_from([0, 1, 1, 2, 3, 8])), INT64_MAX)
            yield action

    def scenario(self, steps: list[Step]) -> Scenario:
        return Scenario(
            self.predicate, self.window, self.how, [*steps, Close()], self.time, self.timestamps, self.learn
        )


@st.composite
def scenarios(
    draw,
    *,
    kind: str | None = None,
    how: str | None = None,
    predicates: list[Predicate] = PREDICATES,
    flush: bool = False,
    in_order: bool = False,
    start: int | None = None,
) -> Scenario:
    setting = Setting(draw, kind, how, predicates, in_order, start)
    positions = {"left": 0, "right": 0}
    steps: list[Step] = []

    def rows(side: str) -> list[Row]:
        made = []
        for values in setting.values(5):
            name = setting.time[0] if side == "left" else setting.time[1]
            position = positions[side]
            made.append({"id": position, name: setting.moment(), **values, "note": f"{side}{position}"})
            positions[side] += 1
        return made

    choices = ["left", "right", "both", "left", "right", "both"]
    choices += ["advance"] if setting.timed else []
    choices += ["flush"] if flush else []
    if setting.learn:
        steps.append(Push(rows("left"), rows("right")))
    for action in setting.actions(choices):
        if action == "left":
            steps.append(Push(left=rows("left")))
        elif action == "right":
            steps.append(Push(right=rows("right")))
        elif action == "both":
            steps.append(Push(rows("left"), rows("right")))
        elif action == "flush":
            steps.append(Flush())
        else:
            which = draw(st.sampled_from(["left", "right", "both"]))
            steps.append(
                Advance(
                    setting.moment() if which in ("left", "both") else None,
                    setting.moment() if which in ("right", "both") else None,
                )
            )
    return setting.scenario(steps)


@st.composite
def self_scenarios(draw, *, kind=None, how=None, predicates=PREDICATES, flush=False, in_order=False, start=None):
    """One stream that is both sides: every push is `Push(rows, rows)`, and rows have both time columns."""
    setting = Setting(draw, kind, how, predicates, in_order, start)
    position = 0

    def push() -> Push:
        nonlocal position
        rows = []
        for values in setting.values(6):
            times = {"ts": setting.moment(), "rts": setting.moment()}
            rows.append({"id": position, **times, **values, "note": f"row {position}"})
            position += 1
        return Push(rows, rows)

    steps: list[Step] = [push()] if setting.learn else []
    choices = ["push"] * 4 + (["advance"] if setting.timed else []) + (["flush"] if flush else [])
    for action in setting.actions(choices):
        if action == "push":
            steps.append(push())
        elif action == "flush":
            steps.append(Flush())
        else:
            there = setting.moment()
            steps.append(Advance(there, there))
    return setting.scenario(steps)


# ------------------------------------------------------------------------------------------- structures

TREES = {tree.name: tree for tree in (wm.index.BTree, wm.index.FrozenBTree, wm.index.IMTree, wm.index.PIMTree)}
INDEXES = ("nested_loop", "hash", "bisort", "rap_table", "wib_tree", "adaptive", *TREES, "auto")


@st.composite
def capacities(draw, index: str) -> dict[str, Any]:
    """Options of a join that make the structures as small as they can be."""
    options: dict[str, Any] = {"index": index}
    sizes = st.sampled_from([3, 4, 7])
    if index == "bisort" and draw(st.booleans()):
        options["index"] = wm.index.BISort(buffer_rows=draw(sizes), partition_rows=draw(sizes))
    if index == "rap_table" and draw(st.booleans()):
        options["index"] = wm.index.RaPTable(partitions=draw(st.sampled_from([1, 3, 4, 7])), sigma=1.1)
    if index == "wib_tree" and draw(st.booleans()):
        options["index"] = wm.index.WiBTree(leaf_rows=draw(sizes), fan_out=draw(sizes))
    if index in TREES and draw(st.integers(0, 3)):
        options["index"] = TREES[index](fan_out=draw(sizes))
    for name, values in (("subwindows", [None, 1, 3, 7]), ("subwindow_rows", [None, 3, 4, 7])):
        value = draw(st.sampled_from(values))
        if value is not None:
            options[name] = value
    return options
