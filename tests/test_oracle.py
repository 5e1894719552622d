"""The oracle is itself checked, against DuckDB, before anything is checked against it."""

import duck
import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Push, expect
from strategies import HOWS, WINDOW_KINDS, scenarios


def arrivals(steps):
    """All pushed rows of each side, with what DuckDB needs to know for `last` windows."""
    sides = {"left": [], "right": []}
    order = 0
    for step in steps:
        if isinstance(step, Push):
            for side, rows in (("left", step.left or []), ("right", step.right or [])):
                for row in rows:
                    others = len(sides["right" if side == "left" else "left"])
                    extra = {"pos": len(sides[side]), "arrived": order, "others": others}
                    sides[side].append({**row, **extra})
                    order += 1
    return sides


def load(connection, name, rows, time):
    columns = {"id": pa.int64(), time: pa.int64(), "k": pa.int64(), "x": pa.int64(), "f": pa.float64()}
    columns |= {"s": pa.string(), "pos": pa.int64(), "arrived": pa.int64(), "others": pa.int64()}
    arrays = [pa.array([row[column] for row in rows], type_) for column, type_ in columns.items()]
    connection.register("given", pa.table(arrays, names=list(columns)))
    # hugeint: the arithmetic of the oracle is exact, DuckDB's bigint would overflow
    connection.execute(
        f"create or replace table {name} as select id, {time}::hugeint as {time}, k::hugeint as k, "
        "x::hugeint as x, f, s, pos, arrived, others from given"
    )
    connection.unregister("given")


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_oracle_agrees_with_duckdb(connection, kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how))
    expected = expect(scenario.steps, scenario.window, how, scenario.predicate.holds, scenario.time)
    sides = arrivals(scenario.steps)
    late = {"left": set(expected.late_left), "right": set(expected.late_right)}
    for side, name, time in (("left", "l", scenario.time[0]), ("right", "r", scenario.time[1])):
        load(connection, name, [row for row in sides[side] if row["id"] not in late[side]], time)
    condition = f"({scenario.predicate.sql}) and {duck.window_sql(scenario.window, scenario.time)}"
    assert expected.pairs() == duck.answer(connection, condition, how)
