"""Hypothesis strategies for whole joins: what is pushed, in which order, over which window.

Everything is small and on purpose narrow: keys from a tiny pool, so that duplicates are the rule; times that
sit exactly on, one before and one after a window's edge; nulls, NaN, infinities and int64 extremes among the
values; pushes of no rows at all; tuples out of order within the lateness and beyond it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from oracle import Advance, Close, Flush, Hopping, Last, Push, Row, Step, Window, Within
from predicates import PREDICATES, Predicate

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


def windows(kind: str) -> st.SearchStrategy[Window]:
    if kind == "within":
        side = st.sampled_from([0, 1, 3, 5])
        return st.builds(Within, side, side, lateness())
    if kind == "last":
        n = st.sampled_from([1, 2, 3, 4, 7, 100])
        return st.one_of(n.map(lambda n: Last(n, n)), st.builds(Last, n, n))
    size = st.integers(1, 7)
    if kind == "tumbling":
        return st.builds(lambda size, late: Hopping(size, size, late), size, lateness())
    if kind == "hopping":  # overlapping windows; the slide need not divide the size
        pairs = [(size, slide) for size in range(2, 8) for slide in range(1, size)]
    else:  # "gaps": some times lie in no window
        pairs = [(size, slide) for size in range(1, 6) for slide in range(size + 1, 9)]
    return st.builds(lambda pair, late: Hopping(*pair, late), st.sampled_from(pairs), lateness())


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

    def __repr__(self) -> str:
        steps = "".join(f"\n  {step}," for step in self.steps)
        options = f"time={self.time}, timestamps={self.timestamps}, learn={self.learn}"
        return f"Scenario({self.predicate!r}, {self.window}, {self.how!r}, {options}, steps=[{steps}\n])"


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
    predicate = draw(st.sampled_from(predicates))
    window = draw(windows(kind or draw(st.sampled_from(WINDOW_KINDS))))
    how = how or draw(st.sampled_from(HOWS))
    timed = not isinstance(window, Last)
    time = draw(st.sampled_from([("ts", "ts"), ("ts", "rts")])) if timed else ("ts", "ts")
    timestamps = draw(st.booleans()) if timed and start is None else False
    # The clock starts anywhere: around 0, where floor and truncation differ, and at both ends of int64.
    starts = [0, 0, -9, 50] if timestamps or not timed else [0, 0, -9, 50, INT64_MIN, INT64_MAX - 20]
    clock = draw(st.sampled_from(starts)) if start is None else start

    pool = draw(key_pools(predicate))
    jitters = [0] if in_order else draw(st.sampled_from([[0], _edges(window), [*_edges(window), -9, 9]]))
    positions = {"left": 0, "right": 0}
    steps: list[Step] = []

    def moment() -> int:
        return min(max(clock + draw(st.sampled_from(jitters)), INT64_MIN), INT64_MAX)

    def rows(side: str) -> list[Row]:
        made = []
        for number in draw(st.lists(st.integers(0, len(pool) - 1), max_size=5)):
            name = time[0] if side == "left" else time[1]
            made.append({"id": positions[side], name: moment(), **pool[number], "note": f"{side}{positions[side]}"})
            positions[side] += 1
        return made

    actions = ["left", "right", "both", "left", "right", "both"]
    actions += ["advance"] if timed else []
    actions += ["flush"] if flush else []
    learn = draw(st.booleans())
    if learn:
        steps.append(Push(rows("left"), rows("right")))
    for action in draw(st.lists(st.sampled_from(actions), min_size=3, max_size=9)):
        clock = min(clock + draw(st.sampled_from([0, 1, 1, 2, 3, 8])), INT64_MAX)
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
                    moment() if which in ("left", "both") else None,
                    moment() if which in ("right", "both") else None,
                )
            )
    steps.append(Close())
    return Scenario(predicate, window, how, steps, time, timestamps, learn)
