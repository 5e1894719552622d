"""Late rows that are kept come out once each, beside results that are as they were; on the stand-in."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import oracle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicates import FAMILIES

from watersmeet.spark.late import late_rows, results_among_late, with_late

from .standin import StandIn, specified
from .test_contract import HOWS, SCHEMA, WINDOWS, as_user_writes, expected, numbered, routes_for, streams


def late_of(batches, window):
    """(left id, right id) of all late tuples."""
    found, greatest, watermark = Counter(), {}, -oracle.INFINITY
    for both in batches:
        for side, rows in enumerate(both):
            late = [row["id"] for row in rows if row["ts"] < watermark]
            found.update((id, None) if side == 0 else (None, id) for id in late)
            if rows:
                greatest[side] = max(greatest.get(side, rows[0]["ts"]), max(row["ts"] for row in rows))
        marks = [greatest.get(side, -oracle.INFINITY) - window.lateness[side] for side in (0, 1)]
        watermark = max(watermark, oracle.joint_watermark(*marks, window.idle_after))
    return found


@pytest.mark.parametrize("how", HOWS)
@given(data=st.data())
def test_late_rows_come_out_once_and_results_are_those_of_brute_force(how, data):
    predicate = data.draw(st.sampled_from(FAMILIES[data.draw(st.sampled_from(sorted(FAMILIES)))]))
    window = data.draw(WINDOWS)
    batches = numbered(data.draw(streams(predicate)))
    route = data.draw(st.sampled_from(routes_for(predicate, how)))
    with tempfile.TemporaryDirectory() as folder:
        spec = specified(predicate.sql, as_user_writes(window), how, SCHEMA, SCHEMA, route, 3, keep_late=True)
        spark = StandIn(spec, Path(folder), data.draw(st.integers(0, 99)))
        fails = st.sampled_from([0, 0, 1])
        tables = [[pa.Table.from_pylist(rows, schema=SCHEMA) for rows in both] for both in batches]
        results = pa.concat_tables([spark.batch(*both, fails=data.draw(fails)) for both in tables])
    rows = results.to_pylist()
    assert all(row["late"] == ("right" if row["id"] is None else "left") for row in rows if row["late"])
    late = Counter((row["id"], row["id_right"]) for row in rows if row["late"])
    assert late == late_of(batches, window)
    wanted, _ = expected(batches, window, how, predicate.holds)
    assert Counter((row["id"], row["id_right"]) for row in rows if not row["late"]) == wanted
    assert spark.counts["rows_out"] == wanted.total()


def test_rows_keep_their_values_and_have_null_for_the_other_side():
    left, right = pa.schema([("a", pa.int64()), ("b", pa.string())]), pa.schema([("a", pa.float64())])
    schema = with_late(left, right, "_r")
    assert schema.names == ["a", "b", "a_r", "late"]
    of_left = pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}, {"a": None, "b": None}], left)
    assert late_rows("left", of_left, schema).to_pylist() == [
        {"a": 1, "b": "x", "a_r": None, "late": "left"}, {"a": None, "b": None, "a_r": None, "late": "left"}
    ]  # fmt: skip
    of_right = pa.RecordBatch.from_pylist([{"a": 0.5}], right)
    assert late_rows("right", of_right, schema).to_pylist() == [{"a": None, "b": None, "a_r": 0.5, "late": "right"}]
    semi = results_among_late(of_left.slice(0, 1), schema)
    assert semi.to_pylist() == [{"a": 1, "b": "x", "a_r": None, "late": None}]


def test_a_column_of_that_name_is_refused():
    schema = pa.schema([("late", pa.int64())])
    with pytest.raises(ValueError, match="late='keep' adds a column 'late'.*rename it"):
        with_late(schema, pa.schema([("a", pa.int64())]), "_r")
