"""What comes behind a join in the same query: three streams, and the promise that makes windowed counts exact.

On the stand-in, with random streams: two joins in a row have one watermark, as on Spark, and a result must be later
than the watermark of the micro-batch before, for all that Spark does behind a join rests on it. test_event_time.py has
the same on a real Spark.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import TimestampType

import watersmeet as wm
from watersmeet.query.durations import Duration
from watersmeet.query.windows import SIDES
from watersmeet.spark.event_time import Given, chosen
from watersmeet.spark.spec import compile_spec, compiled
from watersmeet.spark.watermark import Declared

from .standin import StandIn, specified

BEGIN = 1_700_000_000_000
TIME = pa.timestamp("ms", "UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("ts", TIME), ("k", pa.int64())])
END = 10**9  # ids from here on are those of tuples far ahead, which end all waits


def ms(number):
    return f"{number} ms"


def timed(spec, watermarks, event_time="auto"):
    """The spec with the event time that stream_join would give it, and the name of its column."""
    columns = compile_spec(spec).results.names
    names = {"left": spec.window.time[0]}
    if spec.how not in ("semi", "anti"):
        names["right"] = columns[len(spec.left) + spec.right.get_field_index(spec.window.time[1])]
    about = Given(compile_spec(spec).window, spec.how, columns, names, watermarks, [TimestampType()] * 2)
    found, timing = chosen(event_time, about, False, False)
    return replace(spec, timing=timing), found


class Query:
    """Two joins, (a with b) with c, that share one watermark; the sources of a, b and c move it."""

    def __init__(self, first, second, folder, seed):
        self.joins = [StandIn(spec, Path(folder) / str(n), seed) for n, (spec, _) in enumerate((first, second))]
        self.times = [found.column if found else None for _, found in (first, second)]
        self.delays = dict(zip("ab", map(compiled(first[0]).clock.delay, SIDES), strict=True))
        self.delays["c"] = compiled(second[0]).clock.delay("right")
        self.held_back = dict(zip("ab", first[0].timing.held_back, strict=True)) | {"c": second[0].timing.held_back[1]}
        self.watermark = self.before = 0
        self.greatest = {}
        self.results = []
        self.late = []

    def batch(self, rows, fails=0):
        for name, some in rows.items():
            below = self.watermark + self.held_back[name] if self.watermark else 0
            self.late += [(name, row["id"]) for row in some if row["ts"] < below]
        self._run(rows, fails)
        for name, some in rows.items():
            if some:
                self.greatest[name] = max(self.greatest.get(name, 0), max(row["ts"] for row in some))
        marks = [self.greatest.get(name, 0) - delay for name, delay in self.delays.items()]
        moved = max(self.watermark, min(marks))
        self.before, self.watermark, moved = self.watermark, moved, moved > self.watermark
        if moved:
            self._run({"a": [], "b": [], "c": []}, fails)
            self.before = self.watermark

    def _run(self, rows, fails):
        tables = {name: pa.Table.from_pylist(some, schema=SCHEMA) for name, some in rows.items()}
        first, second = self.joins
        middle = self._joined(0, first, tables["a"], tables["b"], fails)
        self.results += self._joined(1, second, middle, tables["c"], fails).to_pylist()

    def _joined(self, n, join, left, right, fails):
        join.watermark = self.watermark
        left, right = left.cast(join.spec.left), right.cast(join.spec.right)
        found = join._attempts(join._packs("left", left) + join._packs("right", right), fails)
        table = pa.Table.from_batches(found, schema=compiled(join.spec).results)
        if self.times[n] is not None:
            times = table.column(self.times[n]).cast(pa.int64()).to_pylist()
            least = self.before + (0 not in join.spec.timing.held_back)  # rows may be at watermarks as they are
            assert all(time is not None and time >= least for time in times), "Spark would drop it"
        return table


def joined(left, right, how, window, times):
    """Brute force: (left row or None, right row or None), of rows that are dicts."""
    before, after = window
    pairs = [
        (a, b)
        for a in left
        for b in right
        if a["k"] is not None and a["k"] == b["k"] and -before <= b[times[1]] - a[times[0]] <= after
    ]
    if how == "semi":
        return [(a, None) for a in left if any(a is one for one, _ in pairs)]
    alone = [(a, None) for a in left if not any(a is one for one, _ in pairs)]
    if how == "anti":
        return alone
    found = list(pairs)
    if how in ("left", "full"):
        found += alone
    if how in ("right", "full"):
        found += [(None, b) for b in right if not any(b is one for _, one in pairs)]
    return found


def spans():
    return st.sampled_from([0, 1, 3, 6])


@st.composite
def streams(draw):
    """Micro-batches of rows of three streams; time goes on, by little or by much, with a jitter."""
    batches, now, count = [], BEGIN, 0
    for _ in range(draw(st.integers(1, 6))):
        rows = {}
        for name in "abc":
            rows[name] = []
            some = st.tuples(st.integers(-5, 5), st.sampled_from([None, 1, 1, 2]))
            for jitter, k in draw(st.lists(some, max_size=4)):
                count += 1
                rows[name].append({"id": count, "ts": now + jitter, "k": k})
        batches.append(rows)
        now += draw(st.sampled_from([0, 1, 4, 30]))
    return batches


@pytest.mark.parametrize("second_how", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("first_how", ["inner", "left", "right", "anti"])
@settings(max_examples=settings().max_examples // 2 or 1)
@given(data=st.data())
def test_three_streams_in_one_query_are_joined_exactly_and_no_result_is_late(first_how, second_how, data):
    windows = [data.draw(st.tuples(spans(), spans())) for _ in range(2)]
    lateness = [data.draw(spans()) for _ in range(3)]
    taken = data.draw(st.sampled_from([(), ("left",), ("right",)]))  # sides of a and b that have watermarks already
    names = {"left": "ts", "right": "ts_right"}
    side = "right" if first_how == "right" or ("right" in taken and windows[0][1] > 0) else "left"
    if side == "right" and first_how not in ("inner", "right"):
        taken, side = (), "left"
    if side == "right" and "left" in taken:
        taken = ()
    watermarks = {
        one: Declared("ts", Duration(late * 10**6), False) if one in taken else None
        for one, late in zip(SIDES, lateness[:2], strict=True)
    }
    near = wm.within(*map(ms, windows[0]), lateness=tuple(map(ms, lateness[:2])))
    first = timed(specified("l.k = r.k", near, first_how, SCHEMA, SCHEMA), watermarks, names[side])
    middle = compiled(first[0]).results
    time, key = names[side], "k" if side == "left" else "k_right"
    behind = {"left": Declared(time, Duration(first[1].delay * 10**6), True), "right": None}
    near = wm.within(*map(ms, windows[1]), time=(time, "ts"), lateness=(ms(first[1].delay), ms(lateness[2])))
    on = f"l.{key} = r.k"
    plain = specified(on, near, second_how, middle, SCHEMA, suffix="_c")
    second = timed(plain, behind)
    batches = data.draw(streams())
    with tempfile.TemporaryDirectory() as folder:
        query = Query(first, second, folder, data.draw(st.integers(0, 99)))
        for rows in batches:
            query.batch(rows, fails=data.draw(st.sampled_from([0, 0, 1])))
        kept = {name: [row for rows in batches for row in rows[name] if (name, row["id"]) not in query.late]
                for name in "abc"}  # fmt: skip
        for n in range(2):  # far ahead, so that all waits are over
            far = {"ts": BEGIN + 10_000 * (n + 1), "k": None}
            query.batch({name: [{"id": END + n} | far] for name in "abc"})
    found = Counter(
        tuple(row.get(name) for name in ("id", "id_right", "id_c"))
        for row in query.results
        if not any((row.get(name) or 0) >= END for name in ("id", "id_right", "id_c"))
    )
    both = []
    for a, b in joined(kept["a"], kept["b"], first_how, windows[0], ("ts", "ts")):
        row = {"a": a and a["id"], "b": b and b["id"]}
        both.append(row | {key: (b if side == "right" else a)["k"], time: (b if side == "right" else a)["ts"]})
    wanted = Counter()
    sided = [row | {"k": row[key]} for row in both]
    for row, c in joined(sided, kept["c"], second_how, windows[1], (time, "ts")):
        row = row or {"a": None, "b": None}
        wanted[row["a"], None if first_how == "anti" else row["b"], c and c["id"]] += 1
    assert found == wanted
    assert sum(join.counts["late_left"] + join.counts["late_right"] for join in query.joins) == len(query.late)
