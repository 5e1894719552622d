"""Random predicates over nasty data: the plan's contract holds in both directions, for every pair of rows."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from query import data
from query.rows import planned, truth_table
from watersmeet.query import Call, Column, Constant, compile_plan, parse

MANY = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
SECOND = datetime.timedelta(seconds=1)


def c(value: object) -> Constant:
    return Constant(value)


def column(*names: str):
    return st.builds(Column, st.sampled_from(["l", "r"]), st.sampled_from(names))


exact_constants = st.sampled_from(
    [c(0), c(1), c(-3), c(7), c(Decimal("0.05")), c(Decimal("1.5")), c(2**63), c(-(2**63)), c(10**20)]
)
exact_leaves = column("a", "a", "b", "u", "d", "e") | exact_constants


def _exact(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.builds(lambda op, p: Call(op, p), st.sampled_from(["+", "-", "-", "*", "%", "div"]), pair),
        st.builds(lambda op, x: Call(op, (x,)), st.sampled_from(["neg", "abs"]), inner),
    )


exacts = st.recursive(exact_leaves, _exact, max_leaves=4)
float_leaves = column("x", "x", "y", "f", "a", "d") | st.sampled_from(
    [c(0.5), c(Decimal("0.05")), c(5), c(1e300)]
)


def _float(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        st.builds(lambda op, p: Call(op, p), st.sampled_from(["+", "-", "-", "*"]), pair),
        st.builds(lambda p: Call("/", (Call("cast", (p[0], c("double"))), p[1])), pair),
        st.builds(lambda op, x: Call(op, (x,)), st.sampled_from(["neg", "abs"]), inner),
    )


floats = st.recursive(float_leaves, _float, max_leaves=4)
spans = st.sampled_from(
    [c(SECOND), c(-SECOND), c(datetime.timedelta(microseconds=1)), c(datetime.timedelta(days=1))]
)
spans |= column("span")
moments = column("t0", "t6", "t9") | column("day")
MOMENTS = moments
moments |= st.builds(lambda op, a, b: Call(op, (a, b)), st.sampled_from(["+", "-"]), MOMENTS, spans)
moments |= st.sampled_from([c(datetime.datetime(1970, 1, 1, 0, 0, 1)), c(datetime.date(1970, 1, 2))])
differences = st.builds(lambda a, b: Call("-", (a, b)), moments, moments) | spans
differences |= st.builds(lambda a: Call("abs", (a,)), differences)
texts = column("s", "s", "k") | st.sampled_from([c(""), c("ab"), c("abcdefgh")])
binaries = column("z") | st.sampled_from([c(b""), c(b"abcdefgh")])
flags = column("flag") | st.sampled_from([c(True), c(False)])
families = [exacts, floats, moments, differences, texts, binaries, flags]


def _compared(family):
    return st.one_of(
        st.builds(lambda op, a, b: Call(op, (a, b)), SIGNS, family, family),
        st.builds(lambda a, b, d: Call("between", (a, b, d)), family, family, family),
        st.builds(lambda a, b, d: Call("in", (a, b, d)), family, family, family),
        st.builds(lambda a, b: Call("<=>", (a, b)), family, family),
        st.builds(lambda op, a, n: Call(op, (Call("abs", (a,)), n)), SIGNS, family, family)
        if family in (exacts, floats)
        else st.nothing(),
        st.builds(lambda op, a, b: Call(op, (Call("coalesce", (a, b)), a)), SIGNS, family, family),
    )


atoms = st.one_of(*(_compared(family) for family in families))
atoms |= column("flag") | st.sampled_from([c(True), c(None), c(False)])
atoms |= st.builds(lambda x: Call("is_null", (x,)), column("a", "x", "s", "none"))
atoms |= st.builds(
    lambda op, a: Call(op, (a, Column("r", "none"))), SIGNS, column("a", "x", "s", "t6", "flag")
)


def _logic(inner):
    return st.one_of(
        st.builds(lambda op, a, b: Call(op, (a, b)), st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda a: Call("not", (a,)), inner),
        st.builds(lambda op, a: Call(op, (a,)), st.sampled_from(["is_true", "is_false", "is_null"]), inner),
    )


predicates = st.recursive(atoms, _logic, max_leaves=4)


def holds(expr, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
    plan = compile_plan(expr, left.schema, right.schema)
    expected = truth_table(plan.predicate, left, right)
    for by_left in (True, False):
        found = planned(plan, left, right, by_left)
        assert (found == expected).all(), f"{expr}\n{plan.terms}\n{found.astype(int)}\n{expected.astype(int)}"


@MANY
@given(predicates, data.batches(), data.batches())
def test_a_plan_finds_exactly_the_pairs_for_which_the_predicate_is_true(expr, left, right):
    holds(expr, left, right)


@MANY
@given(atoms, data.batches(), data.batches())
def test_so_does_the_plan_of_a_single_comparison(expr, left, right):
    holds(expr, left, right)


# Shapes that the index serves, far denser than random trees would make them.
own, theirs = st.sampled_from(["l", "r"]), st.sampled_from(["a", "b", "d", "e", "u", "v"])
reals = st.sampled_from(["x", "y", "f"])
small = st.sampled_from(["0", "1", "3", "0.05", "1.5", "-2", "9223372036854775807", "1e0", "r.b", "l.d"])
shapes = st.one_of(
    st.builds("abs(l.{0} - r.{1}) {2} {3}".format, theirs | reals, theirs | reals, SIGNS, small),
    st.builds(
        "l.{0} - r.{1} between -{2} and {3}".format, theirs | reals, theirs | reals, st.just("3"), small
    ),
    st.builds("l.{0} between r.{1} - {2} and r.{1} + {2}".format, theirs | reals, theirs | reals, small),
    st.builds("l.{0} + r.{1} {2} {3}".format, theirs | reals, theirs | reals, SIGNS, small),
    st.builds("2 * l.{0} {2} 3 * r.{1} + {3}".format, theirs, theirs, SIGNS, small),
    st.builds("l.{0} {2} r.{1}".format, theirs | reals, theirs | reals, SIGNS),
    st.builds("l.s {0} r.{1}".format, SIGNS, st.sampled_from(["s", "k"])),
    st.builds(
        "l.{0} {2} r.{1} - interval '1' seconds".format,
        st.sampled_from(["t0", "t6", "t9", "day"]),
        st.sampled_from(["t0", "t6", "t9"]),
        SIGNS,
    ),
    st.builds("l.{0} in (r.{1}, r.{2}, 1)".format, theirs, theirs, theirs),
    st.builds("l.day - r.day {0} interval '1' day".format, SIGNS),
    st.builds("l.{0} * l.{1} {2} r.{1} * r.{0}".format, theirs | reals, theirs | reals, SIGNS),
    st.builds("(l.{0} {2} r.{1} or l.flag)".format, theirs, theirs, SIGNS),
)
indexed = st.builds(
    lambda parts, glue: glue.join(f"({p})" for p in parts),
    st.lists(shapes, min_size=1, max_size=3),
    st.sampled_from([" and ", " and ", " or "]),
)


@MANY
@given(indexed, data.batches(), data.batches())
@example(
    "abs(l.x - r.x) >= 0",
    data.batch({n: [None] for n in data.SCHEMA.names}),
    data.batch({n: [None] for n in data.SCHEMA.names}),
)
def test_bands_inequalities_and_equalities_lose_nothing_and_add_nothing(text, left, right):
    holds(parse(text), left, right)


@settings(max_examples=300, deadline=None)
@given(predicates)
def test_the_text_of_a_predicate_parses_to_the_same_predicate(expr):
    assert str(parse(str(expr))) == str(expr)
