"""Bad input: an error of ours that names parameter, value and remedy, before anything has changed.

Each case says what the message has to contain (regular expressions, in any order). Every error is provoked in
the middle of a running join, whose results must then be those of a join that never saw it.
"""

import re
from collections import Counter
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

import watersmeet as wm

# A message ends with what to do ("...; write l.k or r.k"), or lists what is allowed, or points at the place.
REMEDY = r"; \w|\b(must|one of|needs|use|give|expected)\b|line \d+, column \d+"


def table(n=3, **changes):
    columns = {
        "ts": pa.array(range(10, 10 + n), pa.int64()),
        "k": pa.array([i % 2 for i in range(n)], pa.int64()),
        "s": pa.array(["a", "b", "a"][:n], pa.string()),
        "v": pa.array([float(i) for i in range(n)], pa.float64()),
    }
    columns |= changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


SCHEMA = table().schema


def check_message(error, *fragments):
    message = str(error.value)
    for fragment in fragments:
        assert re.search(fragment, message), f"{fragment!r} is not in: {message}"
    assert re.search(REMEDY, message), f"no remedy in: {message}"
    assert type(error.value) in (ValueError, TypeError) or type(error.value).__module__.startswith("watersmeet")


# ---------------------------------------------------------------------------------------- construction

KWARGS = {"on": "l.k = r.k", "window": wm.within(5), "left_schema": SCHEMA, "right_schema": SCHEMA}

BAD_JOINS = {
    "unknown column": ({"on": "l.nope = r.k"}, [r"nope", r"\bk\b"]),
    "unknown column on the right": ({"on": "l.k = r.nope"}, [r"nope", r"\bk\b"]),
    "column without side": ({"on": "k = r.k"}, [r"\bk\b", r"l\.|l\.k"]),
    "column of a third stream": ({"on": "x.k = r.k"}, [r"\bx\b", r"\bl\b", r"\br\b"]),
    "incomparable types": (
        {"on": "l.k = r.ts and l.v < r.day", "right_schema": SCHEMA.append(pa.field("day", pa.date32()))},
        [r"l\.v", r"r\.day", r"double|float", r"date"],
    ),
    "predicate that is a number": ({"on": "l.k + r.k"}, [r"l\.k \+ r\.k", r"bool|predicate"]),
    "predicate that is a column": ({"on": "l.s"}, [r"l\.s", r"bool|predicate"]),
    "predicate that does not parse": ({"on": "l.k = = r.k"}, [r"\bon\b", r"= ="]),
    "empty predicate": ({"on": ""}, [r"\bon\b"]),
    "predicate of the wrong type": ({"on": 5}, [r"\bon\b", r"5|int"]),
    "unknown function": ({"on": "frobnicate(l.k) = r.k"}, [r"(?i)frobnicate"]),
    "aggregate in the predicate": ({"on": "sum(l.k) = r.k"}, [r"(?i)sum"]),
    "how": ({"how": "outer"}, [r"how", r"outer", r"full"]),
    "how of the wrong type": ({"how": 3}, [r"how", r"3", r"inner"]),
    "output": ({"output": "tuples"}, [r"output", r"tuples", r"pairs"]),
    "index": ({"index": "r_tree"}, [r"index", r"r_tree", r"bisort"]),
    "index of the wrong type": ({"index": 3}, [r"index", r"3", r"bisort"]),
    "hash index without an equality": ({"on": "l.k < r.k", "index": "hash"}, [r"hash", r"equality"]),
    "no cores": ({"cores": 0}, [r"cores", r"0"]),
    "negative cores": ({"cores": -1}, [r"cores", r"-1"]),
    "cores of the wrong type": ({"cores": "two"}, [r"cores", r"two"]),
    "no batch rows": ({"batch_rows": 0}, [r"batch_rows", r"0"]),
    "negative batch rows": ({"batch_rows": -5}, [r"batch_rows", r"-5"]),
    "batch rows of the wrong type": ({"batch_rows": 1.5}, [r"batch_rows", r"1\.5"]),
    "negative batch delay": ({"batch_delay": timedelta(seconds=-1)}, [r"batch_delay", r"-1"]),
    "batch delay that says no time": ({"batch_delay": "soon"}, [r"batch_delay", r"soon"]),
    "negative keep_late": ({"keep_late": -1}, [r"keep_late", r"-1"]),
    "suffix that does not help": ({"suffix": ""}, [r"suffix", r"\bts\b|\bk\b"]),
    "suffix of the wrong type": ({"suffix": 5}, [r"suffix", r"5"]),
    "suffix that makes a new collision": (
        {"suffix": "_r", "left_schema": SCHEMA.append(pa.field("k_r", pa.int64()))},
        [r"suffix", r"k_r"],
    ),
    "window of the wrong type": ({"window": "10 seconds"}, [r"window", r"10 seconds", r"within"]),
    "missing time column": ({"window": wm.within(5, time="when")}, [r"when", r"time", r"\bts\b"]),
    "missing time column on one side": (
        {"window": wm.within(5, time=("ts", "when"))},
        [r"when", r"time|right"],
    ),
    "time column that is no time": ({"window": wm.within(5, time="s")}, [r"\bs\b", r"string|utf8"]),
    "floating point time column": ({"window": wm.within(5, time="v")}, [r"\bv\b", r"double|float"]),
    "text span for an integer time": ({"window": wm.within("5 seconds")}, [r"before|within|window", r"int"]),
    "integer span for a timestamp": (
        {
            "left_schema": SCHEMA.set(0, pa.field("ts", pa.timestamp("us"))),
            "right_schema": SCHEMA.set(0, pa.field("ts", pa.timestamp("us"))),
        },
        [r"5", r"timestamp"],
    ),
    "integer slide for a timestamp": (
        {
            "window": wm.hopping("5 seconds", 1),
            "left_schema": SCHEMA.set(0, pa.field("ts", pa.timestamp("us"))),
            "right_schema": SCHEMA.set(0, pa.field("ts", pa.timestamp("us"))),
        },
        [r"slide", r"1", r"timestamp"],
    ),
    "integer time against timestamp": (
        {"right_schema": SCHEMA.set(0, pa.field("ts", pa.timestamp("us")))},
        [r"\bts\b", r"int64", r"timestamp"],
    ),
    "duplicate column names": (
        {"left_schema": pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("k", pa.int64())])},
        [r"\bk\b", r"left|twice|duplicate|more than once"],
    ),
    "schema of the wrong type": ({"left_schema": ["ts", "k"]}, [r"left_schema", r"list|\["]),
}


@pytest.mark.parametrize("name", BAD_JOINS)
def test_a_bad_join_is_refused_at_construction(name):
    changes, fragments = BAD_JOINS[name]
    with pytest.raises((ValueError, TypeError)) as error:
        wm.StreamJoin(**(KWARGS | changes))
    check_message(error, *fragments)


BAD_WINDOWS = {
    "negative before": (lambda: wm.within(-1), [r"before", r"-1"]),
    "negative after": (lambda: wm.within(1, -2), [r"after", r"-2"]),
    "negative text span": (lambda: wm.within("-3 seconds"), [r"before", r"-3"]),
    "negative timedelta": (lambda: wm.within(timedelta(seconds=-3)), [r"before", r"-"]),
    "negative lateness": (lambda: wm.within(1, lateness=-1), [r"lateness", r"-1"]),
    "negative lateness of one side": (lambda: wm.within(1, lateness=(0, -1)), [r"lateness", r"-1"]),
    "lateness of three": (lambda: wm.within(1, lateness=(0, 1, 2)), [r"lateness"]),
    "span without unit": (lambda: wm.within("10"), [r"before", r"10", r"second"]),
    "unknown unit": (lambda: wm.within("10 fortnights"), [r"before", r"fortnight", r"second"]),
    "span of the wrong type": (lambda: wm.within(None), [r"before", r"None"]),
    "fractional span": (lambda: wm.within(1.5), [r"before", r"1\.5"]),
    "last none": (lambda: wm.last(0), [r"\bn\b", r"0"]),
    "last negative": (lambda: wm.last(-4), [r"\bn\b", r"-4"]),
    "last none on the right": (lambda: wm.last(1, 0), [r"n_right", r"0"]),
    "last of text": (lambda: wm.last("10"), [r"\bn\b", r"10"]),
    "last fractional": (lambda: wm.last(1.5), [r"\bn\b", r"1\.5"]),
    "tumbling zero": (lambda: wm.tumbling(0), [r"size", r"0"]),
    "tumbling negative": (lambda: wm.tumbling(-1), [r"size", r"-1"]),
    "hopping no slide": (lambda: wm.hopping(5, 0), [r"slide", r"0"]),
    "hopping negative slide": (lambda: wm.hopping(5, -1), [r"slide", r"-1"]),
    "time of the wrong type": (lambda: wm.within(1, time=5), [r"time", r"5"]),
    "time of three": (lambda: wm.within(1, time=("a", "b", "c")), [r"time"]),
}


@pytest.mark.parametrize("name", BAD_WINDOWS)
def test_a_bad_window_is_refused_at_construction(name):
    make, fragments = BAD_WINDOWS[name]
    with pytest.raises((ValueError, TypeError)) as error:
        make()
    check_message(error, *fragments)


# ------------------------------------------------------------------------------------- errors on the way


def later(n, **changes):
    """A good batch after `table()`."""
    return table(n, **{"ts": pa.array(range(14, 14 + n), pa.int64()), **changes})


def with_null_time(n=3):
    return table(n, ts=pa.array([14, None, 16][:n], pa.int64()))


BAD_CALLS = {
    "null time": (lambda join: join.push(left=with_null_time()), [r"\bts\b", r"null", r"left"]),
    "null time on the right": (
        lambda join: join.push(right=with_null_time()),
        [r"\bts\b", r"null", r"right"],
    ),
    "null time in the second half of a push": (
        lambda join: join.push(left=later(3), right=with_null_time()),
        [r"\bts\b", r"null", r"right"],
    ),
    "missing column": (lambda join: join.push(left=later(3, s=None)), [r"\bs\b", r"left"]),
    "missing time column": (lambda join: join.push(right=later(3, ts=None)), [r"\bts\b", r"right"]),
    "extra column": (lambda join: join.push(left=later(3, extra=pa.array([1, 2, 3]))), [r"extra", r"left"]),
    "other type": (
        lambda join: join.push(left=later(3, k=pa.array(["1", "2", "3"]))),
        [r"\bk\b", r"int64", r"string"],
    ),
    "other type in the second half of a push": (
        lambda join: join.push(left=later(3), right=later(3, v=pa.array([True, False, None]))),
        [r"\bv\b", r"double", r"bool", r"right"],
    ),
    "a list": (lambda join: join.push(left=[1, 2, 3]), [r"left", r"list", r"(?i)arrow"]),
    "a dict": (lambda join: join.push(right={"ts": [1]}), [r"right", r"dict", r"(?i)arrow"]),
    "a string": (lambda join: join.push(left="rows"), [r"left", r"str", r"(?i)arrow"]),
    "an array": (lambda join: join.push(left=pa.array([1, 2])), [r"left", r"Array", r"(?i)arrow"]),
    "advance to text": (lambda join: join.advance(left="noon"), [r"left", r"noon"]),
    "advance to a float": (lambda join: join.advance(right=1.5), [r"right", r"1\.5"]),
    "advance an integer time to a datetime": (
        lambda join: join.advance(right=datetime(2024, 1, 1)),
        [r"right", r"datetime|2024", r"int"],
    ),
    "late tuples of neither side": (
        lambda join: join.take_late("both"),
        [r"side", r"both", r"left", r"right"],
    ),
}


def results_of(join, bad_call=None):
    """All results of a fixed course of pushes, with a bad call after every one of them."""
    seen = []

    def keep(result):
        columns = [column.to_pylist() for column in result.columns]
        seen.append(Counter(map(repr, zip(*columns, strict=True))))
        if bad_call is not None:
            before = join.metrics
            counts = (before.rows_in_left, before.rows_in_right, before.late_left, before.stored_left)
            with pytest.raises((ValueError, TypeError)):
                bad_call(join)
            after = join.metrics
            assert counts == (after.rows_in_left, after.rows_in_right, after.late_left, after.stored_left)
            join.check_invariants()

    keep(join.push(left=table(3), right=table(2)))
    keep(join.push(right=table(3)))
    keep(join.push(left=later(3)))
    keep(join.push(left=table(1), right=later(2)))
    keep(join.advance(left=100))
    keep(join.advance(right=101))
    seen.append(join.close().num_rows)
    return seen, join.take_late("left").to_pylist(), join.take_late("right").to_pylist()


@pytest.mark.parametrize("options", [{}, {"batch_rows": 4}], ids=["direct", "batched"])
@pytest.mark.parametrize("name", BAD_CALLS)
def test_after_an_error_the_join_goes_on_as_if_nothing_had_happened(name, options):
    bad_call, fragments = BAD_CALLS[name]
    given = KWARGS | {"how": "full", "window": wm.within(2)} | options
    with pytest.raises((ValueError, TypeError)) as error:
        bad_call(wm.StreamJoin(**given))
    check_message(error, *fragments)
    assert results_of(wm.StreamJoin(**given), bad_call) == results_of(wm.StreamJoin(**given))


WRONG_WHATEVER_THE_SCHEMA = [
    "null time",
    "null time on the right",
    "null time in the second half of a push",
    "missing time column",
    "a list",
    "a dict",
    "a string",
    "an array",
]


@pytest.mark.parametrize("name", WRONG_WHATEVER_THE_SCHEMA)
def test_an_error_before_the_schemas_are_known_leaves_a_fresh_join(name):
    bad_call, fragments = BAD_CALLS[name]
    options = {"on": "l.k = r.k", "window": wm.within(2)}
    join = wm.StreamJoin(**options)
    with pytest.raises((ValueError, TypeError)) as error:
        bad_call(join)
    check_message(error, *fragments)
    assert results_of(join) == results_of(wm.StreamJoin(**options))


@pytest.mark.parametrize(
    ("first", "on", "fragments"),
    [
        ({"left": table(3, k=None)}, "l.k = r.k", [r"\bk\b", r"left|l\."]),
        ({"left": table(), "right": table(3, k=None)}, "l.k = r.k", [r"\bk\b", r"right|r\."]),
        ({"left": table(), "right": table(3, k=pa.array([[1], [], None]))}, "l.k = r.k", [r"r\.k", r"list"]),
        ({"left": table(3, ts=None), "right": table()}, "l.k = r.k", [r"\bts\b", r"left"]),
        ({"left": table(3, s=None, v=None), "right": table()}, "l.s = 'x'", [r"\bs\b"]),
    ],
    ids=["unknown column", "unknown column on the right", "incomparable", "no time", "one-sided"],
)
def test_a_first_push_that_does_not_fit_the_predicate_is_refused_and_forgotten(first, on, fragments):
    join = wm.StreamJoin(on, wm.within(2))
    with pytest.raises((ValueError, TypeError)) as error:
        join.push(**first)
        join.push(right=table())  # a side alone may be held until the other is known
    check_message(error, *fragments)


def test_a_bad_first_push_does_not_fix_the_schema():
    join = wm.StreamJoin("l.k = r.k", wm.within(2))
    with pytest.raises((ValueError, TypeError)):
        join.push(left=table(), right=table(3, ts=None))
    assert results_of(join) == results_of(wm.StreamJoin("l.k = r.k", wm.within(2)))


def test_duplicate_column_names_in_a_push_are_refused():
    twice = pa.table([pa.array([1]), pa.array([1]), pa.array([2])], names=["ts", "k", "k"])
    join = wm.StreamJoin("l.k = r.k", wm.within(2))
    with pytest.raises((ValueError, TypeError)) as error:
        join.push(left=twice)
    check_message(error, r"\bk\b", r"left")


@pytest.mark.parametrize("call", ["push", "advance", "flush", "close"])
def test_a_closed_join_takes_nothing_more(call):
    join = wm.StreamJoin(**KWARGS)
    join.push(left=table())
    join.close()
    calls = {
        "push": lambda: join.push(left=table()),
        "advance": lambda: join.advance(left=500),
        "flush": lambda: join.flush(),
        "close": lambda: join.close(),
    }
    if call in ("flush", "close"):  # nothing to do is no error
        try:
            assert calls[call]().num_rows == 0
        except ValueError as error:
            assert "close" in str(error)
        return
    with pytest.raises(ValueError) as error:
        calls[call]()
    check_message(error, r"close")


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_count_window_has_no_time_to_advance(side):
    join = wm.StreamJoin("l.k = r.k", wm.last(3), left_schema=SCHEMA, right_schema=SCHEMA)
    with pytest.raises(ValueError) as error:
        join.advance(**{side: 5})
    check_message(error, r"advance", r"last")


def test_misspelt_parameters_are_pythons_business():
    with pytest.raises(TypeError):
        wm.StreamJoin("l.k = r.k", wm.within(5), hwo="left")


@pytest.mark.parametrize("window, rows", [
    (wm.last(10, 2000), 2000), (wm.last(2000, 10), 2000), (wm.last(7), 7), (wm.within(5), 0),
])  # fmt: skip
def test_a_device_is_asked_for_the_larger_window(monkeypatch, window, rows):
    """Before anything starts, so that one too small for it is named at once."""
    asked = []

    def on_device(index, device, route, rows):
        asked.append(rows)
        return index, "cpu", route

    monkeypatch.setattr("watersmeet.engine.asked.on_device", on_device)
    wm.StreamJoin("l.k = r.k", window)
    assert asked == [rows]
