"""Runs a scenario through `StreamJoin` and holds the outcome against the oracle."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from oracle import Advance, Close, Expected, Flush, Hopping, Last, Push, Step, Within, expect
from strategies import Scenario

import watersmeet as wm

EPOCH = datetime.datetime(1970, 1, 1)
VALUE_COLUMNS = {"k": pa.int64(), "x": pa.int64(), "f": pa.float64(), "s": pa.string(), "note": pa.string()}


# ------------------------------------------------------------------------------------ scenario to join


def schema(scenario: Scenario, side: str) -> pa.Schema:
    time = scenario.time[0] if side == "left" else scenario.time[1]
    time_type = pa.timestamp("us") if scenario.timestamps else pa.int64()
    return pa.schema({"id": pa.int64(), time: time_type, **VALUE_COLUMNS})


def batch(scenario: Scenario, side: str, rows) -> pa.RecordBatch:
    columns = schema(scenario, side)
    time = scenario.time[0] if side == "left" else scenario.time[1]
    data = {name: [row[name] for row in rows] for name in columns.names}
    data[time] = [moment(scenario, t) for t in data[time]]
    return pa.RecordBatch.from_pydict(data, schema=columns)


def moment(scenario: Scenario, t: int | None) -> Any:
    if t is None or not scenario.timestamps:
        return t
    return EPOCH + datetime.timedelta(seconds=t)


def window(scenario: Scenario) -> Any:
    """The oracle's window as the library's."""
    given = scenario.window
    if isinstance(given, Last):
        return wm.last(given.n) if given.n == given.n_right else wm.last(given.n, given.n_right)

    def span(n: int) -> Any:
        return datetime.timedelta(seconds=n) if scenario.timestamps else n

    left, right = (span(n) for n in given.lateness)
    time = scenario.time[0] if scenario.time[0] == scenario.time[1] else scenario.time
    options: dict[str, Any] = {"time": time, "lateness": left if left == right else (left, right)}
    if given.idle_after != (None, None):
        left, right = (None if n is None else span(n) for n in given.idle_after)
        options["idle_after"] = left if left == right else (left, right)
    if isinstance(given, Within):
        if given.before == given.after:
            return wm.within(span(given.before), **options)
        return wm.within(span(given.before), span(given.after), **options)
    assert isinstance(given, Hopping)
    if given.size == given.slide:
        return wm.tumbling(span(given.size), **options)
    return wm.hopping(span(given.size), span(given.slide), **options)


def make_join(scenario: Scenario, **options: Any) -> wm.StreamJoin:
    if not scenario.learn:
        options["left_schema"] = schema(scenario, "left")
        options["right_schema"] = schema(scenario, "right")
    if scenario.pick is not None:
        options |= {"pick": scenario.pick.way, "pick_by": scenario.pick.sql}
    return wm.StreamJoin(scenario.predicate.sql, window(scenario), scenario.how, **options)


def apply(join: wm.StreamJoin, scenario: Scenario, step: Step) -> Any:
    if isinstance(step, Push):
        sides = {"left": step.left, "right": step.right}
        return join.push(**{side: batch(scenario, side, rows) for side, rows in sides.items() if rows is not None})
    if isinstance(step, Advance):
        times = {"left": moment(scenario, step.left), "right": moment(scenario, step.right)}
        return join.advance(**{side: time for side, time in times.items() if time is not None})
    if isinstance(step, Flush):
        return join.flush()
    assert isinstance(step, Close)
    return join.close()


# ---------------------------------------------------------------------------------- outputs to positions


def positions(scenario: Scenario, output: str, result: Any) -> Counter:
    """A step's result rows as (left position, right position)."""
    one_sided = scenario.how in ("semi", "anti")
    if output == "pairs":
        assert result.column_names == (["left"] if one_sided else ["left", "right"])
        assert set(result.schema.types) == {pa.int64()}
        columns = [column.to_pylist() for column in result.columns]
    else:
        columns = [result["id"].to_pylist()] if one_sided else [c.to_pylist() for c in _ids(result)]
    rights = [None] * result.num_rows if one_sided else columns[1]
    return Counter(zip(columns[0], rights, strict=True))


def _ids(result: pa.Table):
    return result["id"], result["id_right"]


def check_rows(scenario: Scenario, result: pa.Table) -> None:
    """Every result row carries, column by column, what was pushed."""
    pushed: dict[str, dict[int, dict]] = {"left": {}, "right": {}}
    for step in scenario.steps:
        if isinstance(step, Push):
            pushed["left"] |= {row["id"]: row for row in step.left or []}
            pushed["right"] |= {row["id"]: row for row in step.right or []}
    left, right = schema(scenario, "left"), schema(scenario, "right")
    names = {"left": {name: name for name in left.names}, "right": {}}
    if scenario.how not in ("semi", "anti"):
        names["right"] = {name: name + "_right" if name in left.names else name for name in right.names}
    assert result.column_names == [*names["left"].values(), *names["right"].values()]
    types = left.types + (right.types if names["right"] else [])
    assert result.schema.types == types

    for row in result.to_pylist():
        for side, columns in names.items():
            if not columns:
                continue
            position = row[columns["id"]]
            for name, column in columns.items():
                if position is None:
                    assert row[column] is None
                    continue
                expected = pushed[side][position][name]
                if name in scenario.time:
                    expected = moment(scenario, expected)
                assert same(row[column], expected), (row, name, expected)


def same(a: Any, b: Any) -> bool:
    """Equal as a payload: NaN is NaN, and the sign of zero is kept."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


# ------------------------------------------------------------------------------------------ comparison


def run(scenario: Scenario, output: str = "pairs", check_values: bool = True, **options: Any) -> list[Any]:
    """What every step returned: Counters of positions, or numbers for output="count"."""
    returned = []
    with make_join(scenario, output=output, **options) as join:
        for step in scenario.steps:
            result = apply(join, scenario, step)
            if output == "count":
                assert type(result) is int
                returned.append(result)
            else:
                assert isinstance(result, pa.Table)
                result.validate(full=True)
                returned.append(positions(scenario, output, result))
                if output == "rows" and check_values:
                    check_rows(scenario, result)
            join.check_invariants()
        check_books(join, scenario, returned)
    return returned


def check_books(join: wm.StreamJoin, scenario: Scenario, returned: list[Any]) -> None:
    """Late tuples and metrics."""
    expected = answer(scenario)
    pushes = [step for step in scenario.steps if isinstance(step, Push)]
    metrics = join.metrics
    assert metrics.late_left == len(expected.late_left)
    assert metrics.late_right == len(expected.late_right)
    assert sorted(join.take_late("left")["id"].to_pylist()) == expected.late_left
    assert sorted(join.take_late("right")["id"].to_pylist()) == expected.late_right
    assert join.take_late("left").num_rows == join.take_late("right").num_rows == 0
    assert metrics.rows_in_left == sum(len(step.left or []) for step in pushes)
    assert metrics.rows_in_right == sum(len(step.right or []) for step in pushes)
    out = sum(r if isinstance(r, int) else r.total() for r in returned)
    assert metrics.rows_out == out


def answer(scenario: Scenario) -> Expected:
    holds = scenario.predicate.holds
    return expect(scenario.steps, scenario.window, scenario.how, holds, scenario.time, scenario.pick)


def check_timing(expected: Expected, returned: Sequence[Counter]) -> None:
    """Every result in its step, once, and nothing else."""
    left_over = [Counter(step) for step in returned]
    missing = []
    for result in sorted(expected.results, key=lambda result: result.earliest != result.step):
        pair = (result.left, result.right)
        for step in range(result.earliest, result.step + 1):
            if left_over[step][pair] > 0:
                left_over[step][pair] -= 1
                break
        else:
            missing.append(result)
    unexpected = [(step, +pairs) for step, pairs in enumerate(left_over) if +pairs]
    assert not missing and not unexpected, f"missing: {missing}; unexpected (step, rows): {unexpected}"


def check_batched(expected: Expected, scenario: Scenario, returned: Sequence[Counter]) -> None:
    """Batch mode may keep results back, but has all of them out after a flush, and invents none."""
    out: Counter = Counter()
    for number, (step, pairs) in enumerate(zip(scenario.steps, returned, strict=True)):
        out += pairs
        allowed = Counter((r.left, r.right) for r in expected.results if r.earliest <= number)
        assert out <= allowed, f"step {number}: too early or wrong: {out - allowed}"
        if isinstance(step, Flush | Close):
            due = Counter((r.left, r.right) for r in expected.results if r.step <= number)
            assert due <= out, f"step {number}: still missing {due - out}"
    assert out == expected.pairs()
