"""Whatever is written as a predicate ends in a plan that runs on any data, or in an error of ours."""

from __future__ import annotations

import functools

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings

from query import data, texts
from query.rows import planned
from watersmeet.query import compile_plan, parse

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@functools.cache
def every_value() -> pa.RecordBatch:
    """Each of the nasty values of each column, and a null."""
    size = max(len(pool) for _, pool in data.COLUMNS.values()) + 1
    return data.batch({name: [*pool, *[None] * (size - len(pool))] for name, (_, pool) in data.COLUMNS.items()})


def plan_or_refusal(text: str, schema: pa.Schema = data.SCHEMA):
    try:
        return compile_plan(text, schema, schema)
    except (ValueError, TypeError) as error:
        assert type(error) in (ValueError, TypeError), f"{type(error)} from {text!r}"
        assert str(error).startswith("on "), f"{error} from {text!r}"
        return None


@MANY
@given(texts.words)
@example("l.a = 'a")
@example("l.a = x'abc'")
@example("l.a < interval '1..5' days")
def test_any_words_are_a_predicate_or_refused(text):
    plan_or_refusal(text)


@MANY
@given(texts.calls | texts.mixed)
@example("l.s rlike 'a{99999999999999}'")
@example("l.s rlike '" + "(" * 500 + ")" * 500 + "'")
@example("'a' rlike (l.s || '{99999999999999}')")
@example("nullif(0, - l.b) <= r.a")
@example("if(r.a > 1, least(interval '999999999' days, interval '-1' microsecond), null) = l.span")
def test_any_calls_are_refused_or_run_on_any_data(text):
    plan = plan_or_refusal(text)
    if plan is not None:
        str(plan.predicate)
        batch = every_value()
        assert (planned(plan, batch, batch, True) == planned(plan, batch, batch, False)).all()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50 + "l.a = r.a" + ")" * 50,
        " + ".join(["l.a"] * 95) + " = r.a",
        " + ".join(["l.x"] * 95) + " < r.x",
        " || ".join(["l.s"] * 95) + " = r.s",
        " or ".join(["l.a < r.a"] * 400),
        "not " * 98 + "(l.a < r.b)",
        f"l.a in ({', '.join(map(str, range(1000)))})",
        "substring(l.s, 9999999999999999999) = r.s",
        "substring(l.s, -9999999999999999999, 9999999999999999999) = r.s",
        "cast(l.flag as decimal(38,38)) = r.a",
        "l.a = " + "1" * 900,
    ],
    ids=lambda text: text[:30],
)
def test_large_predicates_work(text):
    plan = compile_plan(text, data.SCHEMA, data.SCHEMA)
    str(plan.predicate)
    batch = every_value()
    assert (planned(plan, batch, batch, True) == planned(plan, batch, batch, False)).all()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "l.a = r.a" + ")" * 5000,
        " + ".join(["l.a"] * 500) + " = r.a",
        " + ".join(["l.a"] * 5_000) + " = r.a",
        "not " * 2000 + "l.flag",
        "- " * 500 + "l.a = 1",
        "interval '99999999999' days > l.span",
        "l.a = " + "1" * 5000,
    ],
    ids=lambda text: text[:30],
)
def test_larger_ones_are_refused(text):
    with pytest.raises(ValueError, match="^on "):
        parse(text)
