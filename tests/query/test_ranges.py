"""How ranges combine: what the index cannot serve is left to the residual, and nothing is lost or added."""

from __future__ import annotations

from decimal import Decimal

import pytest

from query import data
from query.rows import planned, truth_table
from watersmeet.query import compile_plan, parse

ROWS = {
    "a": [0, 1, 2, 3, 5, 7, None, data.TOP, data.BOTTOM],
    "b": [0, 1, 2, 3, 5, -1, None, 2, 1],
    "d": [Decimal(v) for v in ("0.00", "1.00", "1.50", "2.00", "-1.00", "0.05", "1.49", "1.50")] + [None],
    "e": [Decimal(v) for v in ("0", "1", "1.50000", "1.49999", "-1", "1.5", "1.49", "1.50001")] + [None],
}


def batch():
    nothing = dict.fromkeys(data.SCHEMA.names, [None] * 9)
    return data.batch(nothing | ROWS)


def holds(text):
    rows = batch()
    plan = compile_plan(parse(text), rows.schema, rows.schema)
    expected = truth_table(plan.predicate, rows, rows)
    for by_left in (True, False):
        found = planned(plan, rows, rows, by_left)
        assert (found == expected).all(), f"{text}\n{plan.terms}\n{found.astype(int)}\n{expected.astype(int)}"
    return plan, int(expected.sum())


def any_of(steps):
    return "(" + " or ".join(f"l.a = r.a + {step}" for step in steps) + ")"


def test_more_bands_than_an_index_is_asked_for_are_checked_on_the_pairs():
    """Five times five are too many to intersect: those of one part are looked up, the other part is checked."""
    _, found = holds(f"{any_of(range(5))} and {any_of(range(2, 7))}")
    assert found > 5
    _, found = holds(any_of(range(17)))
    assert found > 5
    _, found = holds(f"({any_of(range(5))} and {any_of(range(2, 7))}) or l.a = r.a + 7")
    assert found > 5
    holds(f"{any_of(range(4))} and {any_of(range(2, 6))}")


@pytest.mark.parametrize("text", ["l.d <=> r.e", "l.e <=> r.d", "l.d = r.e", "l.a <=> r.e", "l.d <=> r.a"])
def test_decimals_of_different_scales_are_equal_by_their_value(text):
    _, found = holds(text)
    assert found >= 3


@pytest.mark.parametrize("sign", ["=", "<", ">=", "<>"])
@pytest.mark.parametrize("sum_", ["l.a + {}", "{} + l.a", "l.a - {}", "{} - l.a", "2 * l.a - 3 * {}", "-{} + l.a"])
def test_a_sum_with_null_is_null(sum_, sign):
    _, found = holds(f"{sum_.format('cast(null as bigint)')} {sign} r.a")
    assert found == 0


def test_bands_with_two_ends_are_looked_up_before_those_with_one():
    open_, closed = "(abs(l.a - r.a) <= 3 or l.a > r.a + 100)", "(l.b = r.b + 1 or l.b = r.b + 3)"
    for text in (f"{open_} and {closed}", f"{closed} and {open_}"):
        plan, found = holds(text)
        assert found > 0
        assert {"r.b" in term.text for term in plan.terms if term.kind == "bands"} == {True}


def test_a_condition_of_the_probing_tuple_alone_is_part_of_its_range():
    """A right tuple that does not meet it looks for nothing; a left one cannot know, and checks its pairs."""
    plan, found = holds("(l.a between r.a and r.a + 3 and r.b > 1) or (l.a = r.a + 4 and r.b <= 1)")
    assert found > 5
    assert [(term.kind, term.note) for term in plan.terms] == [("bands", "left probes check it again")]


def test_a_between_that_is_not_looked_up_is_checked_by_keys():
    """Of both its ends, and so without taking columns of the pairs found."""
    plan, _ = holds("l.d = r.d and l.b between r.a and r.b")
    assert plan.left.checks is not None and len(plan.left.checks.checks) == 2 and plan.left.rest is None
