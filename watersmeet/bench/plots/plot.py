"""A plot, before anything draws it: what stands on its axes, and points with their spread.

A point is the median of the rounds of a measurement, and reaches from the worst of them to the best. Which library
draws plots is vega.py's business alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from watersmeet.bench.report import count
from watersmeet.bench.rounds import median

Row = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """`names`: what stands there is names, in the order of the points, not numbers."""

    title: str
    log: bool = True
    names: bool = False
    powers: bool = False  # label powers of two as such


@dataclass(frozen=True)
class Point:
    series: str
    x: float | str
    y: float
    low: float
    high: float
    rounds: int


@dataclass(frozen=True)
class Plot:
    """`kind`: lines over a number, or bars beside each other for each name."""

    name: str  # of its file and of its place on a page
    section: str
    title: str
    about: str
    x: Axis
    y: Axis
    points: Sequence[Point] = field(repr=False)
    kind: Literal["lines", "bars"] = "lines"
    line: tuple[float, str] | None = None  # a level to compare with, in words

    def __post_init__(self) -> None:
        for one in self.points:
            if isinstance(one.x, str) != self.x.names:
                raise ValueError(f"a place of plot {self.name} is {one.x!r}")

    @property
    def series(self) -> list[str]:
        return list(dict.fromkeys(point.series for point in self.points))

    @property
    def places(self) -> list[float | str]:
        """What is on the x axis: names as they come, numbers in order."""
        found = list(dict.fromkeys(point.x for point in self.points))
        return found if self.x.names else sorted(found)  # type: ignore[type-var]


def spread(series: str, x: float | str, rounds: Sequence[float], unit: float = 1.0) -> Point:
    """The point of a measurement."""
    values = [value / unit for value in rounds]
    return Point(series, x, median(values), min(values), max(values), len(values))


def single(series: str, x: float | str, value: float) -> Point:
    """The point of a figure that has no rounds."""
    return Point(series, x, value, value, value, 1)


def points(
    rows: Iterable[Row], series: Callable[[Row], str], x: Callable[[Row], float | str], unit: float = 1.0
) -> list[Point]:
    """A point a row that has rounds."""
    return [spread(series(row), x(row), row["rounds"], unit) for row in rows if row.get("rounds")]


def having(rows: Iterable[Row], *names: str, **values: Any) -> list[Row]:
    """The rows that have all of these, and these values: older or partial runs may lack some."""
    return [
        row
        for row in rows
        if all(row.get(name) is not None for name in names)
        and all(row.get(key) == want for key, want in values.items())
    ]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    return list(dict.fromkeys(row[name] for row in rows))


def plain(*words: str) -> str:
    """Words as the name of a file.

    >>> plain("band", "windows of 1 MB")
    'band-windows-of-1-mb'
    """
    text = "".join(c if c.isalnum() else " " for c in " ".join(words).lower())
    return "-".join(text.split())


def label(value: float | str, powers: bool = False) -> str:
    """What stands at a place of an axis.

    >>> label(5000.0), label(500_000), label(1 << 20, powers=True), label(0.25), label("equality")
    ('5,000', '500,000', '2^20', '0.25', 'equality')
    """
    if isinstance(value, str):
        return value
    if powers:
        return count(int(value))
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
