"""A call that fails has changed nothing: the join goes on as if it had not been made."""

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from aggregates import check_row, expect, sql
from failures import Injected, Lines
from harness import answer, apply, check_timing, make_join, positions
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from oracle import Pick, Push
from predicates import servable_by
from strategies import HOWS, INDEXES, WINDOW_KINDS, capacities, scenarios

import watersmeet as wm
from watersmeet.engine.core import JoinCore


def ghost(draw, step, ids):
    """A step that is not in the scenario: it takes the place of `step`, fails, and must leave no trace."""
    if not isinstance(step, Push):
        return step

    def other(rows):
        if rows is None:
            return None
        kept = [dict(row) for row in rows if draw(st.booleans())]
        for row in kept:
            row["id"] = next(ids)
        return kept

    left, right = other(step.left), other(step.right)
    return Push(left, right) if draw(st.booleans()) else Push(left, step.right)


def lines_of(scenario, options, done, step):
    """How many lines a step runs, behind those that are done."""
    with make_join(scenario, **options) as join:
        for one in done:
            apply(join, scenario, one)
        lines = Lines()
        lines.run(lambda: apply(join, scenario, step))
        return lines.count


def somewhere(draw, total):
    """One of so many lines; how many may differ when an example is run again, what is drawn must not."""
    return 1 + draw(st.integers(0, 9999)) * total // 10_000


def books(join):
    """All metrics but one: a structure that was made anew may have more or less room to spare."""
    metrics = join.metrics.to_dict()
    del metrics["index_bytes"]
    return metrics


def check_with_failures(scenario, options, draw, output="pairs"):
    """Run a scenario; before some of its steps another one fails, at any line."""
    returned = []
    options = {**options, "output": output}
    ids = iter(range(10**6, 10**7))
    failed = 0
    with make_join(scenario, **options) as join:
        for number, step in enumerate(scenario.steps):
            if draw(st.booleans()):
                doomed = ghost(draw, step, ids)
                total = lines_of(scenario, options, scenario.steps[:number], doomed)
                at = somewhere(draw, total)
                before = books(join)
                lines = Lines(at)
                try:
                    lines.run(lambda doomed=doomed: apply(join, scenario, doomed))
                except Injected:
                    failed += 1
                else:
                    assume(False)  # fewer lines than counted: something was compiled or cached the first time
                assert books(join) == before, lines.where
                join.check_invariants()
            returned.append(positions(scenario, output, apply(join, scenario, step)))
            join.check_invariants()
    check_timing(answer(scenario), returned)
    return failed


#: Lines are counted by running the step before: to shrink an example would take very long.
NO_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@settings(max_examples=2 * settings().max_examples, phases=NO_SHRINKING)
@given(data=st.data())
def test_a_step_that_fails_at_any_line_leaves_no_trace(kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    check_with_failures(scenario, {**options, "cores": 1}, data.draw)


@pytest.mark.parametrize("index", INDEXES)
@settings(phases=NO_SHRINKING)
@given(data=st.data())
def test_a_step_that_fails_leaves_no_trace_in_any_index(index, data):
    scenario = data.draw(scenarios(predicates=servable_by(index)))
    check_with_failures(scenario, {**data.draw(capacities(index)), "cores": 1}, data.draw, "rows")


@pytest.mark.parametrize("index", ["auto", "bisort"])
@settings(max_examples=2 * settings().max_examples, phases=NO_SHRINKING)
@given(data=st.data())
def test_a_step_that_fails_leaves_no_trace_where_one_partner_is_picked(index, data):
    kind = data.draw(st.sampled_from([kind for kind in WINDOW_KINDS if kind != "last"]))
    how = data.draw(st.sampled_from(["inner", "left"]))
    scenario = data.draw(scenarios(kind=kind, how=how, predicates=servable_by(index)))
    pick = Pick(data.draw(st.sampled_from(["latest", "earliest", "nearest"])))
    check_with_failures(replace(scenario, pick=pick), {"index": index, "cores": 1}, data.draw)


@given(data=st.data())
@settings(phases=NO_SHRINKING)
def test_batch_mode_keeps_what_it_has_collected(data):
    scenario = data.draw(scenarios(flush=True))
    options = {"batch_rows": data.draw(st.sampled_from([2, 5, 9])), "cores": 1, "output": "pairs"}
    out: Counter = Counter()
    ids = iter(range(10**6, 10**7))
    with make_join(scenario, **options) as join:
        for number, step in enumerate(scenario.steps):
            doomed = ghost(data.draw, step, ids)
            total = lines_of(scenario, options, scenario.steps[:number], doomed)
            try:
                Lines(somewhere(data.draw, total)).run(lambda doomed=doomed: apply(join, scenario, doomed))
            except Injected:
                pass
            else:
                assume(False)  # as above
            out += positions(scenario, "pairs", apply(join, scenario, step))
    assert out == answer(scenario).pairs()


@pytest.mark.parametrize("emit", ["final", "updates"])
@given(data=st.data())
@settings(phases=NO_SHRINKING)
def test_aggregates_forget_a_step_that_fails_at_any_line(emit, data):
    scenario = data.draw(scenarios(how="left"))
    options = {"per": "left", "aggregate": sql("left"), "emit": emit, "cores": 1}
    ids = iter(range(10**6, 10**7))
    last: dict = {}
    with make_join(scenario, **options) as join:
        for number, step in enumerate(scenario.steps):
            doomed = ghost(data.draw, step, ids)
            total = lines_of(scenario, options, scenario.steps[:number], doomed)
            before = books(join)
            try:
                Lines(somewhere(data.draw, total)).run(lambda doomed=doomed: apply(join, scenario, doomed))
            except Injected:
                pass
            else:
                assume(False)  # as above
            assert books(join) == before
            rows = apply(join, scenario, step).to_pylist()
            assert emit == "updates" or not last.keys() & {row["id"] for row in rows}
            last |= {row["id"]: row for row in rows}
            join.check_invariants()
    expected = {one.id: one for one in expect(scenario, "left", None)}
    assert last.keys() == expected.keys()
    for id, row in last.items():
        check_row(row, expected[id].partners)


# -- threads, Ctrl-C and what cannot be undone -----------------------------------------------------------------------


def rows(start, n, seed):
    rng = np.random.default_rng(seed)
    columns = {"ts": np.arange(start, start + n), "k": rng.integers(0, n, n), "x": rng.integers(0, 10 * n, n)}
    return pa.table({**columns, "s": pa.array(rng.integers(0, n, n)).cast(pa.string())})


JOINS = {
    "equality": ("l.k = r.k", "inner"),
    "band": ("abs(l.x - r.x) <= 3", "full"),
    "residual": ("l.k = r.k and l.s < r.s", "left"),
    "semi": ("abs(l.x - r.x) <= 3", "semi"),
}
N = 40_000  # more than the least that is worth a second thread


def in_order(table):
    return table.sort_by([(name, "ascending") for name in table.column_names])


def large_join(name, **options):
    on, how = JOINS[name]
    schema = rows(0, 0, 0).schema
    schemas = {"left_schema": schema, "right_schema": schema}
    return wm.StreamJoin(on, wm.within(2 * N), how, route="single", **schemas, **options)


def batches(number):
    return rows(number * N, N, 2 * number), rows(number * N, N, 2 * number + 1)


@pytest.mark.parametrize("name", JOINS)
def test_a_failure_on_any_thread_leaves_no_trace(name):
    rng = np.random.default_rng(5)
    with large_join(name, cores=3) as join, large_join(name, cores=3) as untouched:
        for number in range(4):
            left, right = batches(number)
            doomed = batches(number + 100)
            failed = 0
            for at in rng.integers(1, 1500, 4).tolist():
                try:
                    Lines(at).run(lambda doomed=doomed: join.push(*doomed))
                except Injected:
                    failed += 1
                    continue
                untouched.push(*doomed)  # it was done before the line was reached
            assert failed or number
            assert in_order(join.push(left, right)) == in_order(untouched.push(left, right))
            join.check_invariants()
        assert in_order(join.close()) == in_order(untouched.close())


@pytest.mark.parametrize("name", JOINS)
def test_no_thread_goes_on_behind_a_failure(name):
    """The line that fails is one of those that hand work to threads and wait for it: each of them once."""
    with large_join(name, cores=3) as join, large_join(name, cores=3) as untouched:
        for each in (join, untouched):
            each.push(*batches(0))
        doomed = batches(100)
        for at in range(1, 10_000):
            before = books(join)
            try:
                Lines(at, "watersmeet.workers").run(lambda: join.push(*doomed))
            except Injected:
                assert books(join) == before
            else:
                break
        assert at > 50
        untouched.push(*doomed)
        join.check_invariants()
        assert in_order(join.push(*batches(1))) == in_order(untouched.push(*batches(1)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", JOINS)
def test_ctrl_c_at_any_moment_leaves_no_trace(name, threads):
    rng = np.random.default_rng(7)
    interrupted = 0
    with large_join(name, cores=threads) as join, large_join(name, cores=threads) as untouched:
        for number in range(8):
            left, right = batches(number)
            done = join.metrics.pushes
            delay = rng.random() * 0.06
            try:
                killer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
                killer.start()
                join.push(*batches(number + 100))
                killer.join()
                time.sleep(0.01)  # for one that comes too late
            except KeyboardInterrupt:
                killer.join()
                interrupted += 1
            if join.metrics.pushes > done:  # it came behind the end of the push
                untouched.push(*batches(number + 100))
            join.check_invariants()
            assert in_order(join.push(left, right)) == in_order(untouched.push(left, right))
    assert interrupted


def test_what_cannot_be_undone_is_refused_from_then_on(monkeypatch):
    join = large_join("band")
    join.push(*batches(0))
    monkeypatch.setattr(type(join._core), "restore", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
    with pytest.raises(MemoryError):
        Lines(400).run(lambda: join.push(*batches(1)))
    for call in (lambda: join.push(*batches(2)), lambda: join.advance(left=10**9), join.flush, join.close):
        with pytest.raises(RuntimeError, match="after a push that failed .* make a new StreamJoin"):
            call()


def test_threads_may_share_a_join():
    """Whoever's turn comes first, every pair in the window is found once."""
    n, pushes = 500, 20
    schema = rows(0, 0, 0).schema
    options = {"left_schema": schema, "right_schema": schema, "output": "pairs"}
    with wm.StreamJoin("l.k = r.k", wm.within(n, lateness=n), **options) as join:
        seeds = {"left": range(pushes), "right": range(1000, 1000 + pushes)}
        tables = {side: [rows(0, n, seed) for seed in seeds[side]] for side in seeds}
        found: list[int] = []

        def work(side):
            for table in tables[side]:
                found.append(join.push(**{side: table}).num_rows)

        workers = [threading.Thread(target=work, args=(side,)) for side in ("left", "right", "left", "right")]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        join.check_invariants()
    counts = {side: Counter(k for table in tables[side] for k in table["k"].to_pylist()) for side in tables}
    assert sum(found) == sum(4 * count * counts["right"][k] for k, count in counts["left"].items())


def test_a_join_cannot_be_called_from_within_its_own_call():
    """A handler of signals runs in the middle of whatever the main thread does."""
    join = wm.StreamJoin("l.k = r.k", wm.within(10**6), batch_rows=10**9, clock=lambda: join.metrics.pushes)
    table = rows(0, 10, 0)
    join.push(left=table)
    with pytest.raises(RuntimeError, match="from within another call of the same join"):
        join.push(right=table)


def test_data_may_come_from_code_that_pushes():
    """Reading is not part of the turn: a reader may feed the same join."""
    join = wm.StreamJoin("l.k = r.k", wm.within(10**6), output="count")

    def pieces():
        join.push(right=rows(0, 10, 1))
        yield from rows(0, 10, 1).to_batches()

    reader = pa.RecordBatchReader.from_batches(rows(0, 0, 0).schema, pieces())
    assert join.push(left=reader) >= 10


def test_a_failure_before_both_streams_are_known_leaves_nothing_waiting():
    table = rows(0, 10, 1)

    def join():
        return wm.StreamJoin("l.k = r.k", wm.within(100), "full", output="count")

    expected = join()
    expected.push(left=table)
    answers = expected.push(right=table), expected.close()
    counted, other = Lines(), join()
    counted.run(lambda: other.push(left=rows(0, 7, 2)))
    for at in range(1, counted.count + 1):
        failing = join()
        with pytest.raises(Injected):
            Lines(at).run(lambda failing=failing: failing.push(left=rows(0, 7, 2)))
        assert failing.metrics.waiting == 0
        failing.push(left=table)
        assert (failing.push(right=table), failing.close()) == answers


@pytest.mark.parametrize("index", ["btree", "bisort", "pim_tree", "hash"])
@pytest.mark.parametrize("how", ["left", "full", "anti"])
def test_an_end_that_fails_behind_its_last_step_leaves_no_trace(index, how, monkeypatch):
    """In which rows are settled, others forgotten, and what is left settled again."""

    def rows(times, keys):
        return pa.table({"ts": pa.array(times, pa.int64()), "x": pa.array(keys, pa.int64())})

    def closed(fails):
        options = {"output": "pairs", "index": index, "batch_rows": 10**6, "cores": 1}
        join = wm.StreamJoin("l.x = r.x", wm.within(30), how, **options)
        found = []
        for times in (range(40), range(40, 42)):
            found.append(join.push(rows(times, times), rows(times, [-1] * len(times))))
            found.append(join.flush())
        found.append(join.push(rows([50], [50]), rows([50], [-1])))
        if fails:
            finish = JoinCore.finish

            def failing(self, results):
                finish(self, results)
                raise MemoryError

            with monkeypatch.context() as patch:
                patch.setattr(JoinCore, "finish", failing)
                with pytest.raises(MemoryError):
                    join.close()
        return in_order(pa.concat_tables([*found, join.close()]))

    assert closed(True).equals(closed(False))
