"""Aggregates by brute force: for each tuple of one side all its partners, one by one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from oracle import Row, _arrive, _decided, _share_a_window
from strategies import Scenario

#: Aggregates over the columns that scenarios have: SQL, with @ for the other side, and what it is of one row.
AGGREGATES: dict[str, tuple[str, Any]] = {
    "n": ("count(*)", None),
    "nx": ("count(@.x)", lambda row: row["x"]),
    "total": ("sum(@.id)", lambda row: row["id"]),
    "third": ("sum(case when @.id % 3 = 0 then null else @.id end)", lambda row: row["id"] if row["id"] % 3 else None),
    "tenth": ("sum(@.id * cast(0.1 as double))", lambda row: row["id"] * 0.1),
    "doubles": ("sum(@.f)", lambda row: row["f"]),
    "low": ("min(@.x)", lambda row: row["x"]),
    "high": ("max(@.x)", lambda row: row["x"]),
    "least": ("min(@.f)", lambda row: row["f"]),
    "most": ("max(@.f)", lambda row: row["f"]),
    "mean": ("avg(@.id)", lambda row: row["id"]),
    "means": ("avg(@.f)", lambda row: row["f"]),
}


class Expected(NamedTuple):
    """A tuple with its partners."""

    id: int
    partners: list[Row]
    step: int  # in which it comes out, at the latest
    earliest: int
    came: int
    found: set[int]  # the steps in which partners were found


def expect(scenario: Scenario, per: str, how: str | None) -> list[Expected]:
    window, time = scenario.window, scenario.time
    left, right, watermarks = _arrive(scenario.steps, window, time)
    own, away = (left, right) if per == "left" else (right, left)
    answer = []
    for one in own:
        if one.late:
            continue
        partners, found = [], set()
        for two in away:
            a, b = (one, two) if per == "left" else (two, one)
            if not two.late and _share_a_window(a, b, window, time):
                if scenario.predicate.holds(a.row, b.row) is True:
                    partners.append(two.row)
                    found.add(max(one.step, two.step))
        if partners or how != "inner":
            step, earliest = _decided(one, own, per, window, time, watermarks)
            answer.append(Expected(one.row["id"], partners, step, earliest, one.step, found))
    return answer


def sql(per: str) -> dict[str, str]:
    return {name: text.replace("@", "r" if per == "left" else "l") for name, (text, _) in AGGREGATES.items()}


def _order(value: Any) -> tuple[bool, Any]:
    return (True, 0) if value != value else (False, value)


def check_row(row: dict[str, Any], partners: list[Row]) -> None:
    """That a result row has the aggregates of these partners."""
    for name, (text, of) in AGGREGATES.items():
        got = row[name]
        function = text.split("(")[0]
        if of is None:
            assert got == len(partners), (name, got, partners)
            continue
        values = [value for value in map(of, partners) if value is not None]
        if function == "count":
            assert got == len(values), (name, got, values)
        elif not values:
            assert got is None, (name, got)
        elif function in ("min", "max"):
            best = (min if function == "min" else max)(values, key=_order)
            assert got == best or (got != got and best != best), (name, got, best)
        else:
            check_sum(got, values, function, name)


def check_sum(got: Any, values: list[Any], function: str, name: str) -> None:
    if function == "sum" and all(isinstance(value, int) for value in values):
        assert got == sum(values), (name, got, values)
        return
    if any(value != value for value in values) or {math.inf, -math.inf} <= set(values):
        assert got != got, (name, got, values)
        return
    try:
        total = math.fsum(values)
    except OverflowError:
        total = math.copysign(math.inf, sum(values))
    if abs(total) > 1e308:  # may be more in between, in some order
        assert abs(got) > 1e307, (name, got, values)
        return
    wanted = total / (len(values) if function == "avg" else 1)
    error = 1e-13 * sum(map(abs, values)) if abs(total) < math.inf else 0
    assert got == wanted or abs(got - wanted) <= error, (name, got, wanted)
