"""DuckDB as a second oracle: it orders NaN as Spark does, and agrees wherever nothing overflows."""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from query.rows import planned
from watersmeet.query import compile_plan

RNG = np.random.default_rng(7)
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


def side(rows: int) -> pa.RecordBatch:
    def holes(values: list) -> list:
        return [None if RNG.random() < 0.1 else value for value in values]

    reals = RNG.choice([0.0, -0.0, 0.5, 1.0, 2.25, math.nan, math.inf, -math.inf, 0.1, 0.3], rows)
    return pa.record_batch(
        {
            "a": pa.array(holes(RNG.integers(-5, 6, rows).tolist()), pa.int64()),
            "b": pa.array(holes(RNG.integers(-5, 6, rows).tolist()), pa.int32()),
            "d": pa.array(holes(RNG.integers(-50, 60, rows).tolist()), pa.int64()).cast(pa.decimal128(20, 0)),
            "x": pa.array(holes(reals.tolist()), pa.float64()),
            "y": pa.array(holes(RNG.permutation(reals).tolist()), pa.float64()),
            "s": pa.array(holes(RNG.choice(["", "a", "ab", "abcdefgh", "abcdefghi", "é"], rows).tolist())),
            "flag": pa.array(holes(RNG.choice([True, False], rows).tolist())),
            "t": pa.array(holes(RNG.integers(0, 5, rows).tolist()), pa.int64()).cast(pa.timestamp("s")),
        }
    )


def predicate() -> str:
    def pick(*choices: str) -> str:
        return str(RNG.choice(choices))

    number = pick("a", "b", "d", "x", "y")
    other = pick(number, "a", "x")
    sign = pick(*SIGNS)
    shape = pick(
        f"abs(l.{number} - r.{other}) {sign} {pick('0', '1', '3')}",
        f"l.{number} between r.{other} - 2 and r.{other} + 1",
        f"l.{number} + r.{other} {sign} 3",
        f"l.{number} {sign} r.{other}",
        f"l.s {sign} r.s",
        f"l.t {sign} r.t + interval '1' second",
        f"l.{number} in (r.{other}, r.a, 2)",
        "l.flag",
        f"r.{number} is null",
        f"l.a % 3 {sign} r.b",
        f"coalesce(l.{number}, r.{other}, 0) {sign} 1",
        f"case when l.flag then l.a else r.b end {sign} 2",
        "l.s is not distinct from r.s",
    )
    return shape


@pytest.mark.parametrize(
    "glue", ["{0}", "{0} and {1}", "({0}) or ({1})", "not ({0}) and {1}", "{0} and ({1} or {2})"]
)
def test_duckdb_finds_the_same_pairs(glue):
    connection = duckdb.connect()
    for _ in range(40):
        left, right = side(12), side(9)
        text = glue.format(*(f"({predicate()})" for _ in range(3)))
        tables = {"l": pa.Table.from_batches([left]), "r": pa.Table.from_batches([right])}
        for name, table in tables.items():
            connection.register(name, table.append_column("row", pa.array(range(len(table)))))
        answer = connection.execute(f"select l.row, r.row from l, r where {text}").fetchall()
        expected = np.zeros((12, 9), bool)
        for i, j in answer:
            expected[i, j] = True
        plan = compile_plan(text, left.schema, right.schema)
        for by_left in (True, False):
            assert (planned(plan, left, right, by_left) == expected).all(), text
