"""DuckDB as a second, independent oracle: random predicates over typed columns, in one query over all tuples.

DuckDB's values are Spark's except for a few, which the predicates here leave alone: division by zero (DuckDB
answers with infinity or an error), division of decimals, arithmetic beyond 64 bits (DuckDB's overflows),
float32 with anything else, a string compared with a number, a date minus a date, concat() of nulls.
"""

import datetime
import decimal
import re
from collections import Counter

import duck
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Hopping, Last, Within
from strategies import HOWS, INT64_MAX, INT64_MIN, WINDOW_KINDS, windows

import watersmeet as wm

# ------------------------------------------------------------------------------------------------ data

DAY = datetime.date(2024, 2, 27)
NOON = datetime.datetime(2024, 2, 28, 12)

COLUMNS = {
    "i": (pa.int64(), [*range(-2, 7), None]),
    "j": (pa.int32(), [*range(5), None]),
    "u": (pa.uint8(), [0, 1, 2, 255, None]),
    "big": (pa.int64(), [INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX, None]),
    "d": (
        pa.float64(),
        [0.1, 0.2, 0.3, 0.4, -0.0, 0.0, 2.0, float("nan"), float("inf"), float("-inf"), None],
    ),
    "g": (pa.float32(), [0.5, 1.0, -1.0, float("nan"), float("inf"), None]),
    "m": (pa.decimal128(10, 2), [decimal.Decimal(n) / 20 for n in range(-3, 8)] + [None]),
    "s": (
        pa.string(),
        ["", "a", "ab", "b", "B", "é", "a long common prefix 1", "a long common prefix 2", None],
    ),
    "day": (pa.date32(), [DAY + datetime.timedelta(days=n) for n in range(5)] + [None]),
    "at": (pa.timestamp("us"), [NOON + datetime.timedelta(hours=7 * n) for n in range(-3, 4)] + [None]),
    "b": (pa.bool_(), [True, False, None]),
}


def make_table(rows, used):
    arrays = {
        "id": pa.array(range(len(rows)), pa.int64()),
        "ts": pa.array([row["ts"] for row in rows], pa.int64()),
    }
    for name in used:
        arrays[name] = pa.array([row[name] for row in rows], COLUMNS[name][0])
    return pa.table(arrays)


# ------------------------------------------------------------------------------------------ predicates

OPERATORS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
NUMERIC_PAIRS = st.sampled_from(
    [
        ("i", "i"),
        ("i", "i"),
        ("i", "j"),
        ("d", "d"),
        ("m", "m"),
        ("i", "d"),
        ("m", "d"),
        ("i", "m"),
        ("j", "m"),
    ]
)
WHOLE = st.integers(-3, 5).map(str)
EXACT = st.sampled_from(["0.05", "0.1", "1.5", "2", "0", "1"])


@st.composite
def one_side(draw, side, column):
    """A number computed from one side's columns."""
    text = f"{side}.{column}"
    form = draw(st.sampled_from(["{}", "{}", "{}", "{} + {c}", "{} - {c}", "2 * {}", "-{}", "abs({})", "{} * {o}"]))
    return form.format(text, c=draw(EXACT), o=f"{side}.{draw(st.sampled_from(['i', 'j']))}")


@st.composite
def number_terms(draw):
    a, b = draw(NUMERIC_PAIRS)
    op, c, e = draw(OPERATORS), draw(EXACT), draw(WHOLE)
    form = draw(
        st.sampled_from(
            [
                f"{draw(one_side('l', a))} {op} {draw(one_side('r', b))}",
                f"{draw(one_side('r', a))} {op} {draw(one_side('l', b))}",
                f"abs(l.{a} - r.{b}) {draw(st.sampled_from(['<', '<=', '>']))} {c}",
                f"l.{a} between r.{b} - {c} and r.{b} + {draw(EXACT)}",
                f"l.{a} not between r.{b} - {c} and r.{b} + {draw(EXACT)}",
                f"l.{a} - r.{b} between {e} and {draw(WHOLE)}",
                f"l.{a} + r.{b} {op} {c}",
                f"l.i / 2 {op} r.{b}",
                f"l.i % 3 {op} r.j % 2",
                f"l.{a} * r.i {op} {c}",
                f"least(l.i, r.j) {op} {e}",
                f"coalesce(l.{a}, 1) {op} r.{a}",
                f"(case when l.i > {e} then r.j else r.i end) {op} {draw(WHOLE)}",
            ]
        )
    )
    return form


@st.composite
def other_terms(draw):
    op, n = draw(OPERATORS), draw(st.integers(0, 3))
    return draw(
        st.sampled_from(
            [
                f"l.s {op} r.s",
                "l.s = r.s",
                "l.s like 'a%' and r.s is not null",
                "l.s in ('a', 'b', '') and r.s <> 'a'",
                "l.s || r.s = 'ab'",
                f"l.day {op} r.day",
                f"l.day between r.day - interval {n} day and r.day + interval 1 day",
                f"l.at {op} r.at",
                f"l.at between r.at - interval {n * 7} hour and r.at + interval 7 hour",
                f"l.day {op} r.at",
                "l.b = r.b",
                "l.b",
                "not r.b",
                "l.b or r.b",
                f"l.big {op} r.big",
                f"l.u {op} r.u",
                f"l.u {op} r.i",
                f"l.g {op} r.g",
                f"l.big {op} r.d",
                "l.i is not distinct from r.i",
                "l.i is distinct from r.j",
                "l.i is null",
                "r.d is not null",
                f"l.i {op} 2",
                f"r.m {op} 0.1",
                f"l.i in (1, 2, {n}) and r.i not in (0, 1)",
                "true",
                "false",
                "null",
            ]
        )
    )


PREDICATES = st.recursive(
    st.one_of(number_terms(), other_terms()),
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)


# ---------------------------------------------------------------------------------------------- streams


@st.composite
def streams(draw, used):
    """Pushes as (left rows, right rows), in order of time or not at all."""
    value = st.fixed_dictionaries({name: st.sampled_from(COLUMNS[name][1]) for name in used})
    pool = draw(st.lists(value, min_size=1, max_size=6))
    in_order = draw(st.booleans())
    clock = draw(st.sampled_from([-6, 0, 100]))

    def rows():
        nonlocal clock
        made = []
        for pick in draw(st.lists(st.integers(0, len(pool) - 1), max_size=5)):
            clock += draw(st.sampled_from([0, 0, 1, 2, 3] if in_order else [-3, -1, 0, 1, 4]))
            made.append({"ts": clock, **pool[pick]})
        return made

    return in_order, [(rows(), rows()) for _ in range(draw(st.integers(1, 4)))]


def with_arrival(pushes):
    """All rows of each side, with what a `last` window looks at."""
    left, right = [], []
    for left_rows, right_rows in pushes:
        for rows, own, other in ((left_rows, left, right), (right_rows, right, left)):
            for row in rows:
                arrival = {"pos": len(own), "arrived": len(own) + len(other), "others": len(other)}
                own.append(row | arrival)
    return left, right


def load(connection, name, rows, used):
    table = make_table(rows, used)
    for column in ("pos", "arrived", "others"):
        table = table.append_column(column, pa.array([row[column] for row in rows], pa.int64()))
    connection.register("given", table)
    connection.execute(f"create or replace temp table {name} as select * from given")
    connection.unregister("given")


def library_window(window, lateness=None):
    if isinstance(window, Last):
        return wm.last(window.n, window.n_right)
    lateness = window.lateness if lateness is None else lateness
    if isinstance(window, Within):
        return wm.within(window.before, window.after, lateness=lateness)
    assert isinstance(window, Hopping)
    return wm.hopping(window.size, window.slide, lateness=lateness)


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_duckdb_agrees_on_random_predicates(connection, kind, how, data):
    predicate = data.draw(PREDICATES, "predicate")
    window = data.draw(windows(kind), "window")
    used = sorted(set(re.findall(r"\b[lr]\.(\w+)", predicate)))
    in_order, pushes = data.draw(streams(used), "in order, pushes")
    left, right = with_arrival(pushes)
    load(connection, "l", left, used)
    load(connection, "r", right, used)
    expected = duck.answer(connection, f"({predicate}) and {duck.window_sql(window)}", how)

    left_table, right_table = make_table(left, used), make_table(right, used)
    index = data.draw(st.sampled_from(["auto", "nested_loop"]), "index")
    schemas = {"left_schema": left_table.schema, "right_schema": right_table.schema}
    found = Counter()
    with wm.StreamJoin(
        predicate, library_window(window, 0 if in_order else 10_000), how, index=index, **schemas
    ) as join:
        left_from = right_from = 0
        for left_rows, right_rows in pushes:
            found += ids(join.push(left=left_table.slice(left_from, len(left_rows))), how)
            found += ids(join.push(right=right_table.slice(right_from, len(right_rows))), how)
            left_from += len(left_rows)
            right_from += len(right_rows)
        found += ids(join.close(), how)
        assert join.metrics.late_left == join.metrics.late_right == 0
    assert found == expected


def ids(table, how):
    right = [None] * table.num_rows if how in ("semi", "anti") else table["id_right"].to_pylist()
    return Counter(zip(table["id"].to_pylist(), right, strict=True))


# ------------------------------------------------------------------------------------- thousands of rows

LARGER = {
    "equality": ("l.i = r.i", ["auto", "hash", "bisort"]),
    "string equality": ("l.s = r.s and l.i < 50", ["auto", "hash", "bisort"]),
    "band": ("abs(l.i - r.i) <= 3", ["auto", "bisort"]),
    "float band": ("abs(l.d - r.d) <= 0.3", ["auto", "bisort"]),
    "inequality": ("l.i + 170 < r.i", ["auto", "bisort"]),
    "composite": ("l.j = r.j and l.i between r.i - 20 and r.i + 5", ["auto", "hash", "bisort"]),
    "bands": ("l.i between r.i - 9 and r.i - 8 or l.i between r.i + 3 and r.i + 4", ["auto", "bisort"]),
    "not equal": ("l.j = r.j and l.i <> r.i and r.i < 3", ["auto", "hash", "bisort"]),
    "residual": ("l.i * r.j = 36", ["auto"]),
}
LARGER_WINDOWS = [
    Within(150, 40, (30, 30)),
    Last(120, 200),
    Hopping(90, 90, (30, 30)),
    Hopping(100, 37, (0, 30)),
]


def larger_side(rng, n, start_noise):
    """n rows over n units of time, each at most `start_noise` out of order."""
    times = np.arange(n) + rng.integers(0, start_noise + 1, n)
    values = rng.integers(0, 200, n)
    return pa.table(
        {
            "id": np.arange(n),
            "ts": times,
            "i": pa.array(values, mask=rng.random(n) < 0.02),
            "j": rng.integers(0, 8, n),
            "d": pa.array(values / 10, mask=rng.random(n) < 0.02),
            "s": pa.array([f"symbol {value}" for value in values]),
        }
    )


@pytest.mark.parametrize("window", LARGER_WINDOWS, ids=str)
@pytest.mark.parametrize("name", LARGER)
def test_duckdb_agrees_on_thousands_of_rows(connection, name, window):
    predicate, indexes = LARGER[name]
    rng = np.random.default_rng([len(name), LARGER_WINDOWS.index(window)])
    n = 2000
    sides = {"left": larger_side(rng, n, 0), "right": larger_side(rng, n, 30)}
    # by turns, in random pieces
    pieces, done = [], {"left": 0, "right": 0}
    while done["left"] < n or done["right"] < n:
        side = "left" if done["left"] <= done["right"] else "right"
        size = int(rng.choice([1, 5, 30, 200, 700]))
        pieces.append((side, sides[side].slice(done[side], size)))
        done[side] = min(done[side] + size, n)
    arrival = {"left": [], "right": []}
    for side, piece in pieces:
        other = "right" if side == "left" else "left"
        for _ in range(piece.num_rows):
            arrival[side].append(len(arrival["left"]) + len(arrival["right"]))
        arrival.setdefault(f"{side} others", []).extend([len(arrival[other])] * piece.num_rows)
    for side, table in (("left", "l"), ("right", "r")):
        given = sides[side].append_column("pos", pa.array(np.arange(n)))
        given = given.append_column("arrived", pa.array(arrival[side]))
        given = given.append_column("others", pa.array(arrival[f"{side} others"]))
        connection.register("given", given)
        connection.execute(f"create or replace temp table {table} as select * from given")
        connection.unregister("given")

    condition = f"({predicate}) and {duck.window_sql(window)}"
    for how in ("full", "semi"):
        expected = duck.answer(connection, condition, how)
        for index in indexes:
            options = {"index": index, "cores": int(rng.choice([1, 2]))}
            if rng.random() < 0.5:
                options["subwindow_rows"] = 64
            if rng.random() < 0.3:
                options["batch_rows"] = 100
            schemas = {"left_schema": sides["left"].schema, "right_schema": sides["right"].schema}
            found = Counter()
            with wm.StreamJoin(predicate, library_window(window), how, **options, **schemas) as join:
                for side, piece in pieces:
                    found += ids(join.push(**{side: piece}), how)
                    join.check_invariants()
                found += ids(join.close(), how)
                assert join.metrics.late_left == join.metrics.late_right == 0
            assert found == expected, (how, options)


@pytest.mark.parametrize("together", [True, False], ids=["one push", "two pushes"])
@pytest.mark.parametrize("noise", [0, 500], ids=["in order", "out of order"])
@pytest.mark.parametrize(
    "window",
    [Within(300, 20), Within(0, 1000), Hopping(400, 400), Hopping(300, 77), Hopping(40, 90), Last(700, 90)],
    ids=str,
)
def test_one_batch_may_span_many_windows(connection, window, noise, together):
    rng = np.random.default_rng(5)
    n = 50_000
    sides = {"left": larger_side(rng, n, noise), "right": larger_side(rng, n, noise)}
    first = {"left": (0, 0), "right": (n, n)}  # order of arrival, and tuples of the other side before it
    for side, table in (("left", "l"), ("right", "r")):
        arrived, others = first[side]
        given = sides[side].append_column("pos", pa.array(np.arange(n)))
        given = given.append_column("arrived", pa.array(np.arange(arrived, arrived + n)))
        given = given.append_column("others", pa.array(np.full(n, others)))
        connection.register("given", given)
        connection.execute(f"create or replace temp table {table} as select * from given")
        connection.unregister("given")
    # of the equal keys, the few that are also close in time
    condition = f"l.i = r.i and l.j = r.j and {duck.window_sql(window)}"
    expected = duck.answer(connection, condition, "full")
    on = "l.i = r.i and l.j = r.j"
    for index in ("hash", "bisort"):
        found = Counter()
        with wm.StreamJoin(on, library_window(window, noise), "full", index=index, cores=2) as join:
            if together:
                found += ids(join.push(**sides), "full")
            else:
                join.push(left=sides["left"])
                found += ids(join.push(right=sides["right"]), "full")
            join.check_invariants()
            found += ids(join.close(), "full")
            assert join.metrics.late_left == join.metrics.late_right == 0
        assert found == expected
