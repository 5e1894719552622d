"""`on` as a function of two rows: the same expression as in SQL, and errors that say what to write instead."""

# ruff: noqa: E741  (the rows of predicates are called l and r)

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.query import Call, Column, Constant, parse, predicate

SAME = [
    (lambda l, r: (l.price - r.price).abs() <= Decimal("0.05"), "abs(l.price - r.price) <= 0.05"),
    (lambda l, r: abs(l.x - r.x) <= 5, "abs(l.x - r.x) <= 5"),
    (lambda l, r: (l.x - r.x).abs() <= 0.5, "abs(l.x - r.x) <= 5e-1"),
    (lambda l, r: (l.x - r.x).abs() <= np.int32(5), "abs(l.x - r.x) <= 5"),
    (lambda l, r: np.float64(1) < l.x, "l.x > 1e0"),
    (lambda l, r: (l.a == r.a) & (l.b < r.b) & ~(l.c == 3), "l.a = r.a and l.b < r.b and not (l.c = 3)"),
    (lambda l, r: (l.a != r.a) | (l.b >= r.b) | (l.c > 3) & (r.c < 4),
     "l.a <> r.a or l.b >= r.b or (l.c > 3 and r.c < 4)"),
    (lambda l, r: l.a.between(r.b - 3, r.b + 7), "l.a between r.b - 3 and r.b + 7"),
    (lambda l, r: l.s.isin("a", "b") | l.k.isin([1, 2]), "l.s in ('a', 'b') or l.k in (1, 2)"),
    (lambda l, r: l["unit price"].cast("Double").round(2) == 2 * r.p,
     "round(cast(l.`unit price` as double), 2) = 2 * r.p"),
    (lambda l, r: l.a.eqNullSafe(r.a) & l.b.isNull() & r.b.isNotNull(),
     "l.a <=> r.a and l.b is null and r.b is not null"),
    (lambda l, r: l.t - r.t <= datetime.timedelta(seconds=5), "l.t - r.t <= interval '5' seconds"),
    (lambda l, r: l.s.lower().startswith(r.p) & l.s.like("a%") & l.s.substr(1, 2).rlike("x"),
     "startswith(lower(l.s), r.p) and l.s like 'a%' and substring(l.s, 1, 2) rlike 'x'"),
    (lambda l, r: -l.a * 2 + 1 - (1 - r.a) / 2 < l.a % 3 + 7 % r.a, "-l.a * 2 + 1 - (1 - r.a) / 2 < l.a % 3 + 7 % r.a"),
    (lambda l, r: l.a.div(2) == 10 / r.a, "l.a div 2 = 10 / r.a"),
    (lambda l, r: l.a.coalesce(r.b, 0).greatest(1) > l.a**2, "greatest(coalesce(l.a, r.b, 0), 1) > pow(l.a, 2)"),
    (lambda l, r: l.t.date_trunc("hour") == r.t.date_trunc("hour"),
     "date_trunc('hour', l.t) = date_trunc('hour', r.t)"),
    (lambda l, r: True, "true"),
    (lambda left, right: left.a == right.a, "l.a = r.a"),
]  # fmt: skip


@pytest.mark.parametrize("function, text", SAME, ids=[text for _, text in SAME])
def test_a_function_says_what_sql_says(function, text):
    assert predicate(function) == parse(text)


def test_text_and_objects_are_taken_as_they_are():
    expr = Call("=", (Column("l", "a"), Constant(1)))
    assert predicate("l.a = 1") == expr == predicate(expr) == predicate(lambda l, r: expr)


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda l, r: l.a == 1 and r.a == 1, "asks whether l.a = 1 is true.*write & for and"),
        (lambda l, r: 1 < l.a < 2, r"x.between\(a, b\) for a <= x <= b"),
        (lambda l, r: not l.a, "~ for not"),
        (lambda l: l.a, "called with two rows, raised TypeError.*takes 1 positional argument"),
        (lambda l, r: 3, "must give a comparison of columns.*but gave 3"),
        (lambda l, r: l, "must give a comparison of columns"),
        (lambda l, r: None, "but gave None"),
        (lambda l, r: l.a.rounded(), "unknown method rounded of l.a; known: abs, .*round"),
        (lambda l, r: l.a // 2, r"x.div\(y\)"),
        (lambda l, r: l.a < [1], r"on has \[1\], which is no constant"),
        (lambda l, r: l.a.isin(), r"isin\(\) without values"),
        (lambda l, r: l[0] == 1, "asks a row for 0; columns have names"),
        (lambda l, r: sum(l.a) < 3, "as if it were a list"),
        (lambda l, r: l.a.cast(3) < 3, "give the type as text"),
        (lambda l, r: 1 / 0, "raised ZeroDivisionError"),
        (3, "SQL text such as 'l.id = r.id', or a function of two rows such as on=lambda"),
        (None, "SQL text such as"),
    ],
)
def test_what_a_function_cannot_say_is_refused_with_a_remedy(function, message):
    with pytest.raises(TypeError, match=message) as error:
        wm.StreamJoin(function, wm.last(5))
    assert type(error.value) is TypeError


def test_a_column_of_spark_gets_the_right_form():
    functions = pytest.importorskip("pyspark.sql.connect.functions")  # columns of Connect need no session
    with pytest.raises(TypeError, match="column of Spark.*tell the two streams apart.*on=lambda l, r"):
        wm.StreamJoin(functions.col("l.a") == functions.col("r.a"), wm.last(5))


def test_a_join_on_a_function_finds_what_the_same_in_sql_finds():
    pick = np.random.default_rng(1)
    tables = [pa.table({"x": pick.integers(0, 50, 200), "k": pick.integers(0, 3, 200)}) for _ in range(2)]

    def found(on):
        join = wm.StreamJoin(on, wm.last(100), "left", output="pairs")
        pushed = pa.concat_tables([join.push(left=tables[0], right=tables[1]), join.close()])
        assert "bisort (composite)" in join.explain()
        return sorted(zip(*(pushed.column(i).to_pylist() for i in range(2)), strict=True), key=str)

    by_function = found(lambda l, r: ((l.x - r.x).abs() <= 2) & (l.k == r.k))
    assert by_function == found("abs(l.x - r.x) <= 2 and l.k = r.k")
    assert len(by_function) > 200
