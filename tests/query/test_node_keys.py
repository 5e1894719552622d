"""Keys of expressions: equal only where the values are, since conjuncts and stored rows are shared by them."""

from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.query import Call, Column, Constant, compile_plan
from watersmeet.query.evaluate import FUNCTIONS, bind
from watersmeet.query.node import Node, column, constant, sideless
from watersmeet.query.types import INT64_MAX, Type

SCHEMA = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int32()), ("x", pa.float64()), ("y", pa.float32()), ("d", pa.decimal128(9, 3)),
        ("e", pa.decimal128(9, 2)), ("s", pa.string()), ("t", pa.string()), ("p", pa.bool_()), ("q", pa.bool_()),
        ("ts", pa.timestamp("us")), ("at", pa.timestamp("ms")), ("day", pa.date32()),
    ]
)  # fmt: skip


def col(name: str) -> Column:
    return Column("l", name)


A, B, X, Y, D, E, S, T, P, Q, TS, AT, DAY = (col(name) for name in SCHEMA.names)
ONE, TWO, XX, YY = Constant(1), Constant(2), Constant("x"), Constant("y")

# For each function two values for each of its arguments; with some arguments more than once, for other types.
ARGUMENTS: dict[str, list] = {
    **{sign: [((A, D), (B, E)), ((X, S), (Y, T)), ((S, T), (T, S))][:1] for sign in ("=", "<>", "<", "<=", ">", ">=")},
    "<=>": [((A, B), (D, E))],
    **{sign: [((A, B), (D, E)), ((X, A), (Y, B))] for sign in ("+", "-", "*")},
    "/": [((X, A), (Y, B)), ((A, B), (B, ONE))],
    "%": [((A, B), (D, E)), ((X, A), (Y, B))],
    "div": [((A, B), (B, ONE))],
    "and": [((P, Q), (Q, P))],
    "or": [((P, Q), (Q, P))],
    **{name: [((P, Q),)] for name in ("not", "is_true", "is_false")},
    "between": [((A, B), (D, ONE), (E, TWO))],
    "in": [((A, B), (D, ONE), (E, TWO))],
    "is_null": [((A, B),)],
    "case": [((P, Q), (A, B), (D, ONE))],
    **{name: [((A, B), (D, ONE))] for name in ("coalesce", "nullif", "least", "greatest")},
    **{name: [((A, B),), ((D, E),), ((X, Y),)] for name in ("neg", "abs", "sign")},
    **{name: [((D, E),), ((X, Y),)] for name in ("floor", "ceil")},
    "round": [((D, E), (ONE, Constant(0))), ((X, Y), (ONE, TWO)), ((A, B), (Constant(-1), Constant(-2)))],
    **{name: [((A, X),)] for name in ("sqrt", "exp", "ln", "isnan")},
    "pow": [((A, X), (B, D))],
    **{name: [((A, X), (B, D), (X, A), (Y, B))] for name in ("distance", "haversine")},
    **{name: [((S, T),)] for name in ("upper", "lower", "length")},
    **{name: [((S, T), (XX, YY))] for name in ("trim", "ltrim", "rtrim")},
    "substring": [((S, T), (ONE, TWO), (ONE, TWO))],
    "concat": [((S, T), (XX, YY), (T, YY))],
    "||": [((S, T), (XX, YY))],
    **{name: [((S, T), (XX, YY), (Constant("!"), Constant("#")))] for name in ("like", "ilike")},
    **{name: [((S, T), (XX, YY))] for name in ("rlike", "starts_with", "ends_with", "contains")},
    **{name: [((TS, AT),)] for name in ("year", "month", "day", "hour", "minute", "second")},
    "date_trunc": [((Constant("hour"), Constant("day")), (TS, AT))],
    "to_date": [((TS, AT),)],
    "datediff": [((TS, DAY), (AT, DAY))],
    "cast": [
        ((A, B), (Constant("int"), Constant("smallint"))),
        ((A, D), (Constant("decimal(5,2)"), Constant("decimal(5,1)"))),
        ((A, D), (Constant("decimal(5,2)"), Constant("decimal(6,2)"))),
        ((X, Y), (Constant("float"), Constant("double"))),
        ((A, X), (Constant("float"), Constant("double"))),
    ],
}  # fmt: skip


def key(call: Call) -> tuple:
    return bind(call, SCHEMA, SCHEMA).key


def test_every_function_is_listed():
    assert set(ARGUMENTS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_another_argument_is_another_key(name):
    for choices in ARGUMENTS[name]:
        args = [first for first, _ in choices]
        for i, (_, second) in enumerate(choices):
            changed = Call(name, (*args[:i], second, *args[i + 1 :]))
            assert key(Call(name, tuple(args))) != key(changed), f"{Call(name, tuple(args))} and {changed}"


def test_another_function_is_another_key():
    families = [(A,), (D,), (X,), (P,), (S,), (TS,), (A, B), (X, Y), (P, Q), (S, XX), (A, Constant("int"))]
    for args in families:
        keys: dict[tuple, str] = {}
        for name, (_, least, most) in FUNCTIONS.items():
            if not least <= len(args) <= most or name in ("cast", "date_trunc"):
                continue
            try:
                node = bind(Call(name, args), SCHEMA, SCHEMA)
            except (TypeError, ValueError):
                continue
            if node.op == "column":  # `floor(l.a)` is l.a
                continue
            other = keys.setdefault(node.key, name)
            alike = {other, name} <= {"=", "in"} or {other, name} <= {"concat", "||"}
            assert other == name or alike or len(args) == 1 < most, f"{other} and {name} of {args}"


@pytest.mark.parametrize("part", [part for part in fields(Type) if part.compare], ids=lambda part: part.name)
def test_another_type_is_another_key(part):
    arg = constant(1)
    one = Type("exact")
    other = replace(one, **{part.name: "date" if part.name == "kind" else getattr(one, part.name) ^ 1})
    nodes = [Node("op", (arg,), type, Constant(0), frozenset(), lambda rows: None) for type in (one, other)]
    assert nodes[0].key != nodes[1].key


def test_another_leaf_is_another_key():
    leaves = [constant(v) for v in (None, 0, 1, True, 0.0, -0.0, 1.0, float("nan"), "", "0", b"", b"0", INT64_MAX)]
    leaves += [column(side, name, pa.int64(), Type("exact"), A) for side in "lr" for name in "ab"]
    assert len({leaf.key for leaf in leaves}) == len(leaves)
    assert sideless(leaves[-1].key) == sideless(leaves[-3].key) != sideless(leaves[-2].key)


def test_conjuncts_that_differ_only_in_a_parameter_are_both_kept():
    schema = pa.schema([("s", pa.string()), ("x", pa.float64()), ("ts", pa.timestamp("us"))])
    for text in [
        "ltrim('x', l.s) = r.s and ltrim('y', l.s) = r.s",
        "substring(l.s, 1) = r.s and substring(l.s, 2) = r.s",
        "round(l.x, 1) = r.x and round(l.x, 2) = r.x",
        "date_trunc('hour', l.ts) = r.ts and date_trunc('day', l.ts) = r.ts",
        "l.s like 'a!%' escape '!' and l.s like 'a!%' escape '#'",
    ]:
        assert len(compile_plan(text, schema, schema).terms) == 2, text
    assert len(compile_plan("ltrim('x', l.s) = r.s and ltrim('x', l.s) = r.s", schema, schema).terms) == 1


def test_a_self_join_of_two_trims_keeps_its_pairs():
    on = "trim(both 'x' from l.s) = trim(both 'y' from r.s)"
    texts = ["xa", "ya", "a", "xy"]
    answers = []
    for twice in (False, True):
        join = wm.StreamJoin(on, wm.last(100), output="pairs", self_join=not twice)
        pairs = []
        for text in texts:
            batch = pa.table({"s": [text]})
            found = join.push(left=batch, right=batch) if twice else join.push(batch)
            pairs += zip(found["left"].to_pylist(), found["right"].to_pylist(), strict=True)
        answers.append(sorted(pairs))
    every = range(len(texts))
    assert answers[1] == [(i, j) for i in every for j in every if texts[i].strip("x") == texts[j].strip("y")]
    assert answers[0] == answers[1]
