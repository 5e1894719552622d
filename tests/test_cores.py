"""One join on several cores: the same results at any number, on any route, whatever goes wrong."""

import functools
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import test_self_join
from failures import Failing, Unopened
from harness import (
    VALUE_COLUMNS,
    answer,
    apply,
    check_batched,
    check_books,
    check_rows,
    check_timing,
    make_join,
    positions,
    run,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Close, Last, Push
from predicates import PREDICATES, servable_by
from strategies import FILLER, HOWS, INDEXES, WINDOW_KINDS, Scenario, capacities, scenarios, self_scenarios
from test_failures import NO_SHRINKING, check_with_failures
from test_order import arrived, rank

import watersmeet as wm
from watersmeet.engine.cores import process, spread
from watersmeet.engine.cores.channel import Channel
from watersmeet.engine.cores.collect import merge
from watersmeet.engine.cores.member import Member
from watersmeet.engine.cores.team import Lost, Team
from watersmeet.query.parse import parse
from watersmeet.query.plan import compile_plan
from watersmeet.routing.choose import choose_route

pytestmark = pytest.mark.xdist_group("cores")  # so that processes are started once

#: Fewer examples than elsewhere, but of many tests.
SOME = settings(max_examples=settings().max_examples if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 5)
CORES = (2, 3, 4, 8)
ROUTES = ("hash", "cells", "split", "broadcast")
ORDERS = ("none", "outer", "inner", wm.punctuate(3))
SCHEMA = pa.schema(VALUE_COLUMNS)


# -- cores that are threads of this process: they start at once, and there may be many ---------------------------------


class InThread(process.Process):
    pid = 0

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        threading.Thread(target=self._serve, args=(Channel(theirs),), daemon=True).start()

    def _serve(self, channel):
        process.serve_joins(channel)
        channel.close()

    def how_it_ended(self):
        return "it has ended"

    def end(self):
        self.channel.close()


IDLE_THREADS = []


@pytest.fixture
def threads(monkeypatch):
    monkeypatch.setattr(process, "Process", InThread)
    monkeypatch.setattr(process, "_idle", IDLE_THREADS)


@functools.cache
def possible(predicate, how):
    """The routes that a join may ask for."""
    found = []
    for route in ROUTES:
        try:
            choose_route(route, compile_plan(parse(predicate.sql), SCHEMA, SCHEMA), SCHEMA, SCHEMA, how, 4, talk=True)
            found.append(route)
        except ValueError:
            pass
    return found


def on(route, how):
    """The predicates that this route can serve."""
    return [predicate for predicate in PREDICATES if route in possible(predicate, how)]


def structures(predicate, route):
    """Options for an index that serves it. Cells need one that has the order of the band, too."""
    if route == "cells" and predicate.equality:
        return capacities("bisort")
    return st.sampled_from(predicate.indexes).flatmap(capacities)


def outcome(scenario, output, table):
    """Results as (left, right) positions, in their order."""
    one_sided = scenario.how in ("semi", "anti")
    if output == "rows":
        table = table.select(["id"] if one_sided else ["id", "id_right"])
    columns = [column.to_pylist() for column in table.columns]
    return [(row[0], None if one_sided else row[1]) for row in zip(*columns, strict=True)]


def completions(scenario, number, pairs, completed):
    """Which tuple completed each of these results of a step; of those that come out alone, who they are."""
    now = arrived(scenario.steps, number)
    if scenario.how == "semi":
        return [min(rank(pair, now)[:2] for pair in completed[number] if pair[0] == left) for left, _ in pairs]
    return [rank(pair, now)[:2] for pair in pairs]


def check_order(scenario, order, number, found, expected, completed):
    """The results of a step on several cores, against those of one core."""
    assert sorted(found, key=str) == sorted(expected, key=str)
    if order == "inner":
        assert found == expected
    elif order != "none":
        both = [completions(scenario, number, pairs, completed) for pairs in (found, expected)]
        if order != "outer":
            both = [[(phase, position // order.every) for phase, position in one] for one in both]
        assert both[0] == both[1] == sorted(both[0])


def check_cores(scenario, route, cores, order, output, options):
    """Every result of every step: that it is the oracle's, and in the order in which one core would give it."""
    scenario = replace(scenario, learn=False)
    options |= {"order": order, "output": output}
    completed = answer(replace(scenario, how="inner")).by_step()
    returned = []
    with (
        make_join(scenario, cores=cores, route=route, **options) as join,
        make_join(scenario, cores=1, **options) as alone,
    ):
        for number, step in enumerate(scenario.steps):
            table = apply(join, scenario, step)
            table.validate(full=True)
            if output == "rows":
                check_rows(scenario, table)
            pairs = [outcome(scenario, output, each) for each in (table, apply(alone, scenario, step))]
            check_order(scenario, order, number, *pairs, completed)
            returned.append(Counter(pairs[0]))
            join.check_invariants()
        assert isinstance(join._core, Team) == (cores > 1)
        check_books(join, scenario, returned)
    check_timing(answer(scenario), returned)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("route", ROUTES)
@SOME
@given(data=st.data())
def test_every_route_and_join_type_in_any_order(route, how, data):
    if not on(route, how):
        assert (route, how) == ("broadcast", "full")
        return
    scenario = data.draw(scenarios(how=how, predicates=on(route, how)))
    options = data.draw(structures(scenario.predicate, route))
    order, output = data.draw(st.sampled_from(ORDERS)), data.draw(st.sampled_from(["rows", "pairs"]))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, output, options)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@SOME
@given(data=st.data())
def test_every_window_in_every_order(kind, order, data):
    scenario = data.draw(scenarios(kind=kind))
    route = data.draw(st.sampled_from(possible(scenario.predicate, scenario.how)))
    output = data.draw(st.sampled_from(["rows", "pairs"]))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, output, {})


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("index", INDEXES)
@SOME
@given(data=st.data())
def test_every_index(index, data):
    scenario = data.draw(scenarios(predicates=servable_by(index)))
    routes = possible(scenario.predicate, scenario.how)
    route = data.draw(st.sampled_from(routes if "hash" not in routes else ["hash", "split"]))
    order = data.draw(st.sampled_from(ORDERS))
    check_cores(scenario, route, data.draw(st.sampled_from(CORES)), order, "pairs", data.draw(capacities(index)))


def dense(sql, how, seed):
    """Steps in which many tuples find partners, some of them in the same push."""
    rng = np.random.default_rng(seed)
    (predicate,) = (one for one in PREDICATES if one.sql == sql)
    steps, ends = [], {"left": 0, "right": 0}

    def made(side, n):
        rows = [FILLER | {"id": ends[side] + i, "ts": ends[side] + i, "note": "", "k": k, "x": x}
                for i, (k, x) in enumerate(rng.integers(0, 9, (n, 2)).tolist())]  # fmt: skip
        ends[side] += n
        return rows

    for left, right in ((5, 9), (9, 0), (0, 9), (8, 8), (1, 7), (12, 6)):
        steps.append(Push(made("left", left) if left else None, made("right", right) if right else None))
    return Scenario(predicate, Last(12, 9), how, [*steps, Close()])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("order", [*ORDERS[1:], wm.punctuate(100)], ids=str)
@pytest.mark.parametrize("how", HOWS)
def test_many_partners(how, order):
    for seed, (sql, route) in enumerate(
        [("l.k = r.k", "hash"), ("abs(l.x - r.x) < 2", "cells"), ("l.x < r.x", "split"), ("l.x < r.x", "broadcast")]
    ):
        scenario = dense(sql, how, seed)
        if route in possible(scenario.predicate, how):
            check_cores(scenario, route, 3, order, "pairs", {})


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("route", ["cells", "split"])
def test_batches_longer_than_windows(route):
    """They are taken in slices, each stored in another subwindow before it is known who has met whom."""
    options = {"order": "inner", "window": wm.within(500), "subwindows": 2}
    with (
        join_of("cells", cores=2, route=route, **options) as join,
        join_of("cells", cores=1, route="single", **options) as alone,
    ):
        for number in range(2):
            assert join.push(*batches(number)) == alone.push(*batches(number))
            join.check_invariants()
        assert join.close() == alone.close()


@pytest.mark.long
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("cores", [1, *CORES])
@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("route", ROUTES)
@given(data=st.data())
def test_every_route_join_type_order_and_number_of_cores(route, how, order, cores, data):
    if on(route, how):
        scenario = data.draw(scenarios(how=how, predicates=on(route, how)))
        options = data.draw(structures(scenario.predicate, route))
        check_cores(scenario, route, cores, order, data.draw(st.sampled_from(["rows", "pairs"])), options)


@pytest.mark.usefixtures("threads")
@given(data=st.data())
def test_counts_and_batch_mode(data):
    scenario = data.draw(scenarios(flush=True))
    route = data.draw(st.sampled_from(possible(scenario.predicate, scenario.how)))
    options = data.draw(structures(scenario.predicate, route))
    many = {"cores": data.draw(st.sampled_from(CORES)), "route": route}
    expected = run(scenario, "pairs", cores=1, **options)
    order = data.draw(st.sampled_from(ORDERS))  # counts have none
    assert run(scenario, "count", order=order, **many, **options) == [step.total() for step in expected]
    options |= {"batch_rows": data.draw(st.sampled_from([2, 5, 9])), "output": "pairs", "order": "inner"}
    returned = []
    with make_join(scenario, **many, **options) as join, make_join(scenario, cores=1, **options) as alone:
        for step in scenario.steps:
            table = apply(join, scenario, step)
            assert table == apply(alone, scenario, step)
            returned.append(positions(scenario, "pairs", table))
    check_batched(answer(scenario), scenario, returned)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("how", HOWS)
@SOME
@given(data=st.data())
def test_self_joins(how, data):
    """Whose two roles may look at different columns, and have different windows."""
    scenario = replace(data.draw(self_scenarios(how=how)), learn=False)
    route = data.draw(st.sampled_from(possible(scenario.predicate, how)))
    options = data.draw(structures(scenario.predicate, route))
    options |= {"batch_rows": data.draw(st.sampled_from([None, 5]))}
    options |= {"output": data.draw(st.sampled_from(["rows", "pairs", "count"]))}
    options |= {"order": data.draw(st.sampled_from(ORDERS))}
    cores = data.draw(st.sampled_from(CORES))
    completed = test_self_join.answer(replace(scenario, how="inner")).by_step()
    with (
        test_self_join.make_join(scenario, False, cores=cores, route=route, **options) as join,
        test_self_join.make_join(scenario, False, cores=1, **options) as alone,
    ):
        for number, step in enumerate(scenario.steps):
            found, expected = (test_self_join.apply(each, scenario, step, False) for each in (join, alone))
            if options["output"] == "count":
                assert found == expected
                continue
            pairs = [outcome(scenario, options["output"], each) for each in (found, expected)]
            order = options["order"]
            if options["batch_rows"] is not None and order != "inner":
                order = "none"  # which pushes a step has taken together is not seen here
            check_order(scenario, order, number, *pairs, completed)


@given(runs=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=9).map(sorted), min_size=1, max_size=9))
def test_runs_are_merged(runs):
    words = np.array([word for run in runs for word in run], np.uint64)
    starts = np.cumsum([0, *map(len, runs[:-1])])
    order = np.full(words.size, -1)
    merge(words, starts, order)
    assert sorted(order) == list(range(words.size))
    assert words[order].tolist() == sorted(words.tolist())


# -- cores that are processes ------------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch):
    """Joins move to several cores at once, and wait until these are there."""
    monkeypatch.setattr(spread, "LARGE", 1)
    monkeypatch.setattr(spread, "ENOUGH", 1)
    monkeypatch.setattr(spread, "MANY", 2)
    monkeypatch.setattr(spread, "WORTH", ("hash", "cells", "split"))
    monkeypatch.setattr(Team, "ready", lambda self: self._settle() is not None)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("how", HOWS)
@SOME
@given(data=st.data())
def test_the_route_that_a_join_takes_by_itself(how, data):
    scenario = data.draw(scenarios(how=how))
    options = data.draw(capacities(data.draw(st.sampled_from(scenario.predicate.indexes))))
    check_timing(answer(scenario), run(scenario, data.draw(st.sampled_from(["rows", "pairs"])), cores=2, **options))


@given(data=st.data())
def test_a_join_that_moves_in_the_middle(data):
    scenario = data.draw(scenarios())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread, "LARGE", 1)
        patch.setattr(spread, "MANY", 2)
        patch.setattr(spread, "WORTH", ("hash", "cells", "split"))
        patch.setattr(spread, "ENOUGH", data.draw(st.integers(1, 12)))
        patch.setattr(Team, "ready", lambda self: self._settle() is not None)
        check_timing(answer(scenario), run(scenario, data.draw(st.sampled_from(["rows", "pairs"])), cores=2))


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=5, phases=NO_SHRINKING)
@given(data=st.data())
def test_a_step_that_fails_leaves_no_trace_in_any_core(how, data):
    scenario = data.draw(scenarios(how=how))
    route, order = data.draw(st.sampled_from(possible(scenario.predicate, how))), data.draw(st.sampled_from(ORDERS))
    options = {"cores": 2, "route": route, "order": order}
    check_with_failures(scenario, options, data.draw)


# -- large streams ---------------------------------------------------------------------------------------------------

N = 20_000
JOINS = {
    "hash": ("l.k = r.k", "left"),
    "cells": ("abs(l.x - r.x) <= 3", "full"),
    "split": ("l.x * 100 <= r.k", "semi"),
    "broadcast": ("abs(l.x - r.x) <= 3", "inner"),
}


def rows(start, n, seed):
    rng = np.random.default_rng(seed)
    columns = {"ts": np.arange(start, start + n), "k": rng.integers(0, n, n), "x": rng.integers(0, 10 * n, n)}
    return pa.table({**columns, "s": pa.array(rng.integers(0, n, n)).cast(pa.string())})


def batches(number):
    return rows(number * N, N, 2 * number), rows(number * N, N, 2 * number + 1)


def join_of(kind, window=None, how=None, **options):
    on, how = JOINS[kind][0], how or JOINS[kind][1]
    schema = rows(0, 0, 0).schema
    options = {"cores": 2, "route": kind, "left_schema": schema, "right_schema": schema, **options}
    return wm.StreamJoin(on, window or wm.within(2 * N), how, **options)


def in_order(table):
    return table.sort_by([(name, "ascending") for name in table.column_names])


@pytest.mark.parametrize(("cores", "order"), [(2, "none"), (3, "inner")])
@pytest.mark.parametrize("route", JOINS)
def test_large_batches(route, cores, order):
    same = in_order if order == "none" else lambda table: table
    with (
        join_of(route, cores=cores, order=order) as join,
        join_of(route, cores=1, route="single", order=order) as alone,
    ):
        for number in range(5):
            assert same(join.push(*batches(number))) == same(alone.push(*batches(number)))
        assert same(join.close()) == same(alone.close())
        assert join.metrics.rows_out == alone.metrics.rows_out


@pytest.mark.parametrize("every", [N // 3, 10 * N])
@pytest.mark.parametrize("route", ["hash", "cells"])
def test_large_groups(route, every):
    """Those of one group are not put in order among themselves, nor copied."""
    options = {"order": wm.punctuate(every), "how": "inner"}
    with join_of(route, cores=3, **options) as join, join_of(route, cores=1, route="single", how="inner") as alone:
        for number in range(3):
            table = join.push(*batches(number))
            assert in_order(table) == in_order(alone.push(*batches(number)))
            left, right = table["ts"].to_numpy(), table["ts_right"].to_numpy()  # which are positions, here
            by_right = right >= number * N
            groups = np.where(by_right, right, left) // every
            assert np.all(np.diff(1000 * by_right + groups) >= 0)
            assert table["ts"].num_chunks >= 6 or every < N  # at least one of each core and phase


def test_results_stay_as_they_are_while_others_come():
    """They lie in memory that is used again, but not before nothing refers to them."""
    with join_of("hash") as join:
        kept = [join.push(*batches(number)) for number in range(4)]
        copies = [pa.Table.from_batches([batch.take(pa.array(range(batch.num_rows))) for batch in table.to_batches()])
                  for table in kept]  # fmt: skip
        for number in range(4, 12):
            join.push(*batches(number))
        assert all(one.equals(two) for one, two in zip(kept, copies, strict=True))
        segments = sum(len(returned._descriptors) for returned in join._core._returned)
        del kept, copies
        gc.collect()
        for number in range(12, 18):
            join.push(*batches(number))
        assert sum(len(returned._descriptors) for returned in join._core._returned) <= segments + 2
    with pytest.raises(ValueError, match="let go of its cores"):
        join.close()


def test_what_comes_out_outlives_the_join():
    with join_of("hash") as join:
        table = join.push(*batches(0))
    del join
    gc.collect()
    process.end_idle()
    assert len(table.to_pylist()) == table.num_rows > 0


@pytest.mark.parametrize("route", JOINS)
def test_ctrl_c_leaves_no_trace(route):
    rng = np.random.default_rng(7)
    interrupted = 0
    with join_of(route) as join, join_of(route, cores=1, route="single") as untouched:
        join.push(*batches(50))
        untouched.push(*batches(50))
        for number in range(51, 59):
            done = join.metrics.pushes
            try:
                killer = threading.Timer(rng.random() * 0.02, os.kill, (os.getpid(), signal.SIGINT))
                killer.start()
                join.push(*batches(number + 100))
                killer.join()
                time.sleep(0.01)
            except KeyboardInterrupt:
                killer.join()
                interrupted += 1
            if join.metrics.pushes > done:
                untouched.push(*batches(number + 100))
            join.check_invariants()
            assert in_order(join.push(*batches(number))) == in_order(untouched.push(*batches(number)))
    assert interrupted


# -- ends ------------------------------------------------------------------------------------------------------------


def gone(pid):
    """Whether there is no such process, within seconds."""
    for _ in range(100):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_a_core_that_is_killed_ends_the_join():
    with join_of("hash", cores=2) as join:
        join.push(*batches(0))
        pids = join._core.pids
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(Lost, match=r"core 1 of 2 .* killed by signal 9 \(SIGKILL\).*make a new StreamJoin"):
            join.push(*batches(1))
        assert all(gone(pid) for pid in pids)
        with pytest.raises(RuntimeError, match="make a new StreamJoin"):
            join.push(*batches(2))
    with join_of("hash", cores=2) as join:  # whose death nobody has noticed
        join.push(*batches(0))
        os.kill(join._core.pids[1], signal.SIGKILL)
    with join_of("hash", cores=2) as join:  # another one works
        assert join.push(*batches(0)).num_rows


CALLER = """
import sys, time
sys.path.insert(0, {tests!r})
from test_cores import join_of, batches
join = join_of("hash", cores=2)
tables = [join.push(*batches(n)) for n in range(3)]
print(*join._core.pids, flush=True)
n = 3
while True:
    join.push(*batches(n))
    n += 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")
def test_killing_the_caller_leaves_nothing_behind():
    before = set(os.listdir("/dev/shm"))
    code = CALLER.format(tests=os.path.dirname(__file__))
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    caller.kill()
    caller.wait()
    assert all(gone(pid) for pid in pids)
    assert set(os.listdir("/dev/shm")) <= before


def test_processes_that_end_just_as_they_are_taken_are_replaced():
    with join_of("hash") as join:
        join.push(*batches(0))
    first, second = (one.pid for one in process._idle[:2])
    os.kill(first, signal.SIGKILL)  # as if it had waited too long: nobody has noticed yet
    with join_of("hash") as join:
        assert join.push(*batches(0)).num_rows
        assert first not in join._core.pids and second in join._core.pids


@pytest.mark.usefixtures("threads")
def test_a_core_that_ends_before_it_has_opened_is_no_loss(monkeypatch):
    """Nothing was there to be lost: the same join goes on, with other cores."""
    taken = process.lease

    def ends(count):
        processes = taken(count)
        processes[1].end()
        monkeypatch.setattr("watersmeet.engine.cores.team.lease", taken)
        return processes

    monkeypatch.setattr("watersmeet.engine.cores.team.lease", ends)
    with join_of("hash") as join, join_of("hash", cores=1, route="single") as alone:
        with pytest.raises(Lost, match="core 1 of 2"):
            join.push(*batches(0))
        assert in_order(join.push(*batches(0))) == in_order(alone.push(*batches(0)))


@pytest.mark.parametrize("route", ["hash", "auto"])
def test_a_core_that_cannot_open_is_heard_and_the_join_goes_on(route, monkeypatch):
    monkeypatch.setattr(spread, "LARGE", 1)
    monkeypatch.setattr(spread, "ENOUGH", 1)
    monkeypatch.setattr(spread, "MANY", 2)
    failed = pushed = 0
    with join_of("hash", route=route, index=Unopened(caller=os.getpid())) as join, join_of("hash", cores=1) as alone:
        while failed < 2:
            try:
                found = join.push(*batches(pushed))
            except ArithmeticError as error:
                assert any("of 2" in note for note in error.__notes__)
                failed += 1
                continue
            assert route == "auto"  # nobody waits until they have started
            assert in_order(found) == in_order(alone.push(*batches(pushed)))
            pushed += 1
    with join_of("hash") as join:  # the processes are as good as new
        assert join.push(*batches(0)).num_rows


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("half", ["step", "let_go"])
@pytest.mark.parametrize("route", ["cells", "split"])
def test_a_core_that_fails_in_either_half_of_a_step_leaves_no_trace(route, half, monkeypatch):
    whole = getattr(Member, half)

    def fails(self, *arguments):
        results = whole(self, *arguments)
        if self._number == 1:
            raise ArithmeticError("not to my liking")
        return results

    with (
        join_of("cells", cores=3, route=route, order="inner") as join,
        join_of("cells", cores=1, route="single", order="inner") as alone,
    ):
        assert join.push(*batches(0)) == alone.push(*batches(0))
        for number in (1, 2):
            monkeypatch.setattr(Member, half, fails)
            with pytest.raises(ArithmeticError, match="not to my liking"):
                join.push(*batches(number + 10))
            monkeypatch.setattr(Member, half, whole)
            join.check_invariants()
            assert join.push(*batches(number)) == alone.push(*batches(number))
        assert join.close() == alone.close()


def test_a_core_that_raises_is_heard_and_the_others_go_on():
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64()})
    good = pa.table({"ts": [1, 2, 3], "k": [1, 2, 3]}, schema=schema)
    options = {"index": Failing(caller=os.getpid()), "cores": 3, "route": "hash", "output": "count"}
    bad = pa.table({"ts": [4, 5], "k": [2, 77]}, schema=schema)
    with wm.StreamJoin("l.k = r.k", wm.within(100, lateness=100), **options) as join:
        assert join.push(left=good, right=good) == 3
        with pytest.raises(ArithmeticError, match="not to my liking") as failed:
            join.push(left=bad)
        assert any("of 3" in note for note in failed.value.__notes__)
        assert join.push(right=good) == 3
        join.check_invariants()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"route": "hush"}, ValueError, "route must be one of .* did you mean 'hash'"),
        ({"route": 3}, ValueError, "route must be one of"),
        ({"route": "hash"}, ValueError, "needs an equality"),
        ({"route": "cells"}, ValueError, "needs a band of the same width"),
        ({"route": "broadcast", "how": "full"}, ValueError, "cannot do a full join"),
        ({"cores": 0}, ValueError, "cores must be at least 1"),
        ({"cores": 10_000}, ValueError, "cores must be at most"),
        ({"cores": 1.5}, TypeError, "cores must be a whole number"),
    ],
)
def test_bad_values_are_refused(options, error, text):
    schema = rows(0, 0, 0).schema
    with pytest.raises(error, match=text):
        wm.StreamJoin("l.x < r.x", wm.within(5), left_schema=schema, right_schema=schema, **{"cores": 2, **options})


def test_explain_and_metrics_show_cores_and_their_load():
    with join_of("hash", cores=3) as join:
        assert "cores: 3 processes, from the first push on" in join.explain()
        join.push(*batches(0))
        text = join.explain()
        assert "cores: 3 processes" in text and "route: hash\n  because as asked for" in text
        metrics = join.metrics
        assert len(metrics.loads) == 3 and sum(metrics.loads) == metrics.stored_left + metrics.stored_right == 2 * N
        assert min(metrics.loads) > 0.2 * sum(metrics.loads)
        assert metrics.seconds["probe"] > 0
    with join_of("broadcast", cores=2, order="inner", index="adaptive") as join:
        join.push(*batches(0))
        text = join.explain()
        assert "route: broadcast\n  because as asked for\n  stored: the right side at home" in text
        assert "copies: every left row goes to all 2 cores" in text and "order: inner" in text
        kinds = [line.split(": ")[1] for line in text.splitlines() if line.startswith(("  left now", "  right now"))]
        assert len(kinds) == 2 and all(len(kind.split(", ")) >= 2 for kind in kinds)
    assert "cores: 2 processes" in join.explain()  # which are gone
    with join_of("hash", cores=8, route="auto", order="outer") as join:
        assert "cores: 1, 7 more help it with large pushes, because results are to be in order" in join.explain()
    with join_of("hash", cores=8, route="auto") as join:
        assert "cores: 1 for now, 8 when much has come" in join.explain()
    with join_of("cells", cores=2, route="auto") as join:
        assert "cores: 1, 1 more help it with large pushes, because that is faster here" in join.explain()
    with join_of("cells", cores=1, route="auto") as join:
        assert "cores: 1\n" in join.explain()
