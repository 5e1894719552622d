"""The watermark that a DataFrame has already.

Spark allows one watermark a stream, and notes it in the metadata of its column, where classic Spark and Connect show it
alike. So a DataFrame with a watermark is taken as it is: the column is the window's time, the delay its lateness.

Rows that come out of an operator with state (an aggregation, a join of Spark's or of ours) may be below the watermark
of their micro-batch, for it is the watermark that has let them out; but never below that of the micro-batch before.
They are in time. That there is such an operator our own results say in their metadata; of Spark's own the plan tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile
from typing import Any

from pyspark.sql.types import StructField, StructType

from watersmeet.query.durations import Duration
from watersmeet.query.windows import SIDES, Hopping, Side, Within
from watersmeet.spark.checks import WATERMARK
from watersmeet.spark.packs import OBSERVED

#: In the metadata of an event time of ours: the names of the joins that its rows have come through.
JOINS = "watersmeet.joins"
_STATEFUL = re.compile("Aggregate|Distinct|Deduplicate|FlatMapGroups.*WithState|TransformWithState")


@dataclass(frozen=True)
class Declared:
    column: str
    delay: Duration
    let_out: bool  # by an operator with state
    joins: tuple[str, ...] = ()  # of ours, by name

    def __str__(self) -> str:
        return f"a watermark on {self.column!r} with a delay of {self.delay}"


def declared(frame: Any, side: Side) -> Declared | None:
    """The watermark of a streaming DataFrame; ValueError if it has one that cannot be used."""
    marked = [field for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    plan = _plan(frame)
    if not marked:
        if any(name == "EventTimeWatermark" for _, name in plan):
            raise ValueError(
                f"{side} has a watermark, and Spark allows no other, but none of its columns is marked with it: keep "
                f"the column of withWatermark (a new name is fine, a new value is not), or leave withWatermark out. If "
                f"{side} is the result of a stream_join, name its event time there, with event_time="
            )
        return None
    found = _time_column(marked, side)
    delay = Duration(int(found.metadata[WATERMARK]) * 1_000_000)
    joins = tuple(found.metadata.get(JOINS, ()))
    ways = _through_state(plan)
    if len(ways) > 1:
        raise ValueError(
            f"{side} unites rows of a source with rows that an operator with state has let out, and when such rows are "
            f"late is not the same; join them one by one, and unite the results"
        )
    return Declared(found.name, delay, bool(joins) or True in ways, joins)


def _time_column(marked: list[StructField], side: Side) -> StructField:
    """Of the columns that are marked: Spark marks windows, too."""
    times = [field for field in marked if not isinstance(field.dataType, StructType)]
    if not times:
        raise ValueError(
            f"{side} has a watermark on {marked[0].name!r}, which is a window; add a time to join by, such as "
            f"withColumn('ts', F.window_time('{marked[0].name}'))"
        )
    if len(times) > 1:
        names = " and ".join(repr(field.name) for field in times)
        raise ValueError(f"{side} has two columns marked as its event time, {names}; drop one of them")
    return times[0]


def taken(window: Within | Hopping, left: Declared | None, right: Declared | None) -> Within | Hopping:
    """The window with time and lateness of the watermarks that there are; ValueError if it says otherwise."""
    times, lateness = list(window.time), list(window.lateness)
    for i, (side, found) in enumerate(zip(SIDES, (left, right), strict=True)):
        if found is None:
            continue
        if window.said.time[i] and times[i] != found.column:
            raise ValueError(
                f"{side} has {found}, but the window's time of that side is {times[i]!r}; leave time out, for it is "
                f"the watermark's column, or put withWatermark on {times[i]!r}"
            )
        if window.said.lateness[i] and lateness[i].amount != found.delay.amount:
            raise ValueError(
                f"{side} has {found}, but the window's lateness of that side is {lateness[i]}; leave lateness out, for "
                f"it is the watermark's delay (lateness=(None, '2 seconds') is that of the right side alone), or make "
                f"them the same"
            )
        if window.idle_after != (None, None):
            raise ValueError(
                f"{side} has {found}, which only its own rows move on; with idle_after, leave withWatermark out and "
                f"give the window time={found.column!r} and lateness='{found.delay}'"
            )
        times[i], lateness[i] = found.column, found.delay
    return replace(window, time=(times[0], times[1]), lateness=(lateness[0], lateness[1]))


def check_clock(watermarks: dict[Side, Declared | None], later: bool) -> None:
    """ValueError if a join with a clock of its own gets a watermark by Spark's."""
    for side, found in watermarks.items():
        if found is not None and later:
            raise ValueError(
                f"{side} has {found}, which knows no times before 1970; with before_1970=True leave withWatermark out "
                f"and give the window its lateness"
            )


def own_name(name: Any, watermarks: dict[Side, Declared | None]) -> str:
    """The name of a join among those whose results it joins: Spark wants them to differ."""
    left, right = (set(found.joins if found is not None else ()) for found in watermarks.values())
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"name must be a text, got {name!r}")
    if left & right:
        shared = min(left & right)
        raise ValueError(f"left and right both come from a stream_join named {shared!r}; give one another name=")
    if name in left | right:
        raise ValueError(f"name {name!r} is that of a stream_join before this one; give another")
    free = (OBSERVED if n == 1 else f"{OBSERVED}_{n}" for n in count(1))
    return name or next(one for one in free if one not in left | right)


# -- looking into the plan --------------------------------------------------------------------------------------------


def _plan(frame: Any) -> list[tuple[int, str]]:
    """Depth and name of each node of the analyzed plan, parents first; empty if it cannot be seen."""
    try:
        if hasattr(frame, "_explain_string"):  # Spark Connect
            text = frame._explain_string(mode="extended")
            text = text.partition("== Analyzed Logical Plan ==")[2].partition("\n==")[0]
        else:
            text = frame._jdf.queryExecution().analyzed().toString()
    except Exception:  # not of this Spark; then the metadata must do
        return []
    return list(_nodes(text))


def _nodes(text: str) -> Iterator[tuple[int, str]]:
    """
    >>> list(_nodes("Project [a]\\n+- ~Join Inner\\n   :- ~EventTimeWatermark ts\\n   :  +- Relation\\n   +- Scan"))
    [(0, 'Project'), (3, 'Join'), (6, 'EventTimeWatermark'), (9, 'Relation'), (6, 'Scan')]
    """
    for line in text.splitlines():
        match = re.match(r"([ :+-]*)[~!']*([A-Za-z]\w*)", line)  # ~ marks streams
        if match is not None:
            yield len(match[1]), match[2]


def _through_state(plan: list[tuple[int, str]]) -> set[bool]:
    """Whether rows go through an operator with state on their way from a watermark; of each watermark in the plan.

    >>> _through_state([(0, "Union"), (3, "EventTimeWatermark"), (3, "Aggregate"), (6, "EventTimeWatermark")])
    {False, True}
    """
    found = set()
    above: list[tuple[int, bool]] = []  # depth of each node on the way down, and whether it has state
    for at, (depth, name) in enumerate(plan):
        above = [(other, state) for other, state in above if other < depth]
        if name == "EventTimeWatermark":
            found.add(any(state for _, state in above))
        above.append((depth, bool(_STATEFUL.match(name)) or (name == "Join" and _streams(plan[at:]) > 1)))
    return found


def _streams(plan: list[tuple[int, str]]) -> int:
    """How many streams the first node of the plan brings together."""
    depth = plan[0][0]
    below = takewhile(lambda node: node[0] > depth, plan[1:])
    return sum(name.startswith("Streaming") for _, name in below)
