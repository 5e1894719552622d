"""Random joins against the brute-force answer, for as long as you like: `make fuzz MINUTES=10`.

    python tests/fuzz.py --minutes 10 --jobs 2        look for something that nobody has thought of
    python tests/fuzz.py --seed 123 --rounds 1        the same joins again, as printed with a finding

Each join is drawn whole: a predicate over columns of 18 types, a window, a join type, an index with tiny capacities,
routes over cores and orders, how the streams are cut into pushes, and failures in the middle of calls. What comes out,
and when, must be what the oracle says. A round is so many joins of one seed; Hypothesis draws them and makes a finding
small.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from failures import Injected, Lines
from harness import check_batched, check_timing, positions
from harness import window as window_of
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from in_thread import InThread
from oracle import Advance, Close, Expected, Flush, Last, Push, Step, Window, expect
from query import data, rows
from query.test_properties import indexed, predicates
from strategies import HOWS, INDEXES, WINDOW_KINDS, capacities, windows

import watersmeet as wm
from watersmeet.engine.cores import process
from watersmeet.query import Expr, compile_plan, parse

JOINS = 100  # a round
ROUTES = ("hash", "cells", "split", "broadcast", "hot_cold")  # with cores of their own
TIMES = {"int64": pa.int64(), "s": pa.timestamp("s"), "us": pa.timestamp("us"), "ns": pa.timestamp("ns", "UTC")}


@dataclass(frozen=True)
class Case:
    """A join and what is done to it."""

    expr: Expr
    window: Window
    how: str
    unit: str
    output: str
    options: dict[str, Any]
    steps: list[Step]
    failures: list[int | None]  # for each step, the line at which it fails before it is done
    time: tuple[str, str] = ("ts", "ts")

    @property
    def timestamps(self) -> bool:
        return self.unit != "int64"


@st.composite
def cases(draw) -> Case:
    expr = draw(predicates | indexed.map(parse))
    kind = draw(st.sampled_from(WINDOW_KINDS))
    window = draw(windows(kind))
    index = draw(st.sampled_from(INDEXES))
    options = draw(capacities(index)) | {"cores": draw(st.sampled_from([1, 2]))}
    if index == "pim_tree" and draw(st.booleans()):
        options = {"index": index, "cores": options["cores"], "route": "shared"}
    elif draw(st.integers(0, 3)) == 0:
        options |= {"cores": draw(st.sampled_from([2, 3])), "route": draw(st.sampled_from(ROUTES))}
    if draw(st.integers(0, 3)) == 0:
        options["order"] = draw(st.sampled_from(["outer", "inner", wm.punctuate(every=2)]))
    if draw(st.integers(0, 4)) == 0:
        options["batch_rows"] = draw(st.sampled_from([2, 5, 9]))
    unit = draw(st.sampled_from(list(TIMES)))
    clock = 0
    ids = {"left": 0, "right": 0}
    steps: list[Step] = []

    def arrived(side: str) -> list[dict[str, Any]]:
        nonlocal clock
        batch = draw(data.batches(4))
        values = rows.rows_of(batch)
        times = []
        for _ in values:
            clock += draw(st.sampled_from([0, 0, 1, 1, 2, 8]))
            times.append(clock - draw(st.sampled_from([0, 0, 0, 1, 3, 9])))
        first = ids[side]
        ids[side] += len(values)
        arrow = [batch.slice(i, 1) for i in range(len(values))]
        return [
            {"id": first + i, "ts": t, "values": v, "arrow": a}
            for i, (t, v, a) in enumerate(zip(times, values, arrow, strict=True))
        ]

    choices = ["left", "right", "both", "both"] + ([] if isinstance(window, Last) else ["advance"]) + ["flush"]
    for action in draw(st.lists(st.sampled_from(choices), max_size=7)):
        if action == "advance":
            steps.append(Advance(clock if draw(st.booleans()) else None, clock))
        elif action == "flush":
            steps.append(Flush())
        else:
            left = arrived("left") if action != "right" else None
            right = arrived("right") if action != "left" else None
            steps.append(Push(left, right))
    steps.append(Close())
    fail = draw(st.booleans()) and options.get("route") not in ROUTES  # cores are threads here, and would be hit, too
    failures = [draw(st.integers(1, 900)) if fail and draw(st.booleans()) else None for _ in steps]
    how, output = draw(st.sampled_from(HOWS)), draw(st.sampled_from(["pairs", "rows"]))
    return Case(expr, window, how, unit, output, options, steps, failures)


# -- running ---------------------------------------------------------------------------------------------------------


def ticks(unit: str, times: list[int]) -> pa.Array:
    """A unit of the oracle's time is a second."""
    scale = {"int64": 1, "s": 1, "us": 10**6, "ns": 10**9}[unit]
    return pa.array([t * scale for t in times], pa.int64()).cast(TIMES[unit])


def schema(case: Case) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("ts", TIMES[case.unit]), *data.SCHEMA])


def batch(case: Case, pushed: list[dict[str, Any]]) -> pa.RecordBatch:
    if not pushed:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema(case)], schema=schema(case))
    table = pa.Table.from_batches([row["arrow"] for row in pushed]).unify_dictionaries().combine_chunks()
    columns = [pa.array([row["id"] for row in pushed]), ticks(case.unit, [row["ts"] for row in pushed])]
    columns += [column.chunk(0) if column.num_chunks else column.combine_chunks() for column in table.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema(case))


def call(join: wm.StreamJoin, case: Case, step: Step) -> Any:
    if isinstance(step, Push):
        given = {"left": step.left, "right": step.right}
        return join.push(**{side: batch(case, rows) for side, rows in given.items() if rows is not None})
    if isinstance(step, Advance):
        times = {"left": step.left, "right": step.right}
        return join.advance(**{s: ticks(case.unit, [t])[0].as_py() for s, t in times.items() if t is not None})
    return join.flush() if isinstance(step, Flush) else join.close()


def expected(case: Case) -> Expected:
    predicate = compile_plan(case.expr, schema(case), schema(case)).predicate

    def holds(left: dict[str, Any], right: dict[str, Any]) -> bool | None:
        answer: Any = rows.evaluate(predicate, left["values"], right["values"])
        return answer

    return expect(case.steps, case.window, case.how, holds, case.time)


def servable(case: Case) -> Case:
    """With an index that can serve the predicate."""
    options = dict(case.options)
    known = {"left_schema": schema(case), "right_schema": schema(case)}
    try:
        wm.StreamJoin(case.expr, window_of(case), case.how, **options, **known)
    except ValueError:
        options["index"] = "auto"
        options.pop("route", None)
    return replace(case, options=options)


def check(case: Case) -> None:
    """The join gives what the oracle says, each result in its step, with the values that were pushed."""
    case = servable(case)
    returned = []
    known = {"left_schema": schema(case), "right_schema": schema(case)}
    with wm.StreamJoin(case.expr, window_of(case), case.how, output=case.output, **case.options, **known) as join:
        for step, line in zip(case.steps, case.failures, strict=True):
            try:
                result = Lines(line).run(lambda step=step: call(join, case, step))
            except Injected:
                result = call(join, case, step)
            join.check_invariants()
            result.validate(full=True)
            returned.append(positions(case, case.output, result))
            if case.output == "rows":
                check_values(case, result)
    answer = expected(case)
    if "batch_rows" in case.options:
        check_batched(answer, case, returned)
    else:
        check_timing(answer, returned)


def check_values(case: Case, result: pa.Table) -> None:
    """Every column of a result is that of the tuple with its id, to the bit."""
    for side, suffix in (("left", ""), ("right", "_right")):
        if f"id{suffix}" not in result.column_names:
            continue
        pushed = [r for step in case.steps if isinstance(step, Push) for r in getattr(step, side) or []]
        whole = pa.Table.from_batches([batch(case, pushed)])
        taken = whole.take(result[f"id{suffix}"])
        for name in whole.column_names:
            assert bits(taken[name]) == bits(result[name + suffix]), f"{name}{suffix} of {result.to_pylist()}"


def bits(column: pa.ChunkedArray) -> list[Any]:
    """Values that compare as they are: NaN is NaN, and the sign of zero counts."""
    if pa.types.is_floating(column.type):
        return [None if v is None else v.hex() for v in column.to_pylist()]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = column.cast(width)
    return column.to_pylist()


# -- rounds ----------------------------------------------------------------------------------------------------------


def play(number: int, joins: int = JOINS, shrink: bool = True) -> Counter:
    """One round; raises what it finds. Says how many joins and failures there were."""
    done: Counter = Counter()

    @seed(number)
    @settings(
        max_examples=joins, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate], report_multiple_bugs=False,
    )  # fmt: skip
    @given(cases())
    def one(case: Case) -> None:
        check(case)
        done["joins"] += 1
        done["failures"] += sum(line is not None for line in case.failures)

    with patch.object(process, "Process", InThread):  # no process for each of so many joins
        one()
    return done


def played(number: int) -> tuple[int, Counter, str | None]:
    try:
        return number, play(number), None
    except BaseException as error:
        notes = "\n".join(getattr(error, "__notes__", []))
        return number, Counter(), "".join(traceback.format_exception(error)) + notes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=None, help="of the first round; by default another each time")
    parser.add_argument("--rounds", type=int, default=None, help="stop after so many")
    given = parser.parse_args()
    first = time.time_ns() % 10**9 if given.seed is None else given.seed
    end = time.monotonic() + 60 * given.minutes
    total: Counter = Counter()
    rounds = asked = 0
    told = 0.0
    begin = time.monotonic()
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        waiting = set()
        while True:
            while len(waiting) < 2 * given.jobs and (given.rounds is None or asked < given.rounds):
                if time.monotonic() >= end and given.rounds is None:
                    break
                waiting.add(pool.submit(played, first + asked))
                asked += 1
            if not waiting:
                break
            future = next(as_completed(waiting))
            waiting.discard(future)
            number, done, finding = future.result()
            if finding is not None:
                print(f"{finding}\n\nfound by: python tests/fuzz.py --seed {number} --rounds 1", flush=True)
                pool.shutdown(cancel_futures=True)
                return 1
            rounds, total = rounds + 1, total + done
            minutes = (time.monotonic() - begin) / 60
            if sys.stdout.isatty() or minutes >= told + 1:  # into a log, a line a minute
                told, (begins, ends) = minutes, ("\r", "") if sys.stdout.isatty() else ("", "\n")
                print(f"{begins}{minutes:5.1f} min  {total['joins']:,} joins, {total['failures']:,} calls made to fail",
                      end=ends, flush=True)  # fmt: skip
    print(f"\nno finding in {total['joins']:,} joins, {total['failures']:,} calls of which were made to fail "
          f"(rounds {first} to {first + rounds - 1})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
