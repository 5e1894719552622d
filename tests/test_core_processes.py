"""Cores that are processes: what they hand over, how they end, and what a join says of them."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from failures import Failing, Unopened
from harness import answer, check_timing, run
from hypothesis import given, settings
from hypothesis import strategies as st
from large import JOINS, N, batches, in_order, join_of, rows
from strategies import HOWS, capacities, scenarios
from test_cores import ORDERS, SOME, possible
from test_failures import NO_SHRINKING, check_with_failures

import watersmeet as wm
from watersmeet.engine.cores import process, spread
from watersmeet.engine.cores.member import Member
from watersmeet.engine.cores.segments import Outbox, Returned
from watersmeet.engine.cores.team import Lost, Team

pytestmark = pytest.mark.xdist_group("cores")  # so that processes are started once


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


def test_memory_for_the_results_of_calls_that_fail_is_used_again():
    """Cores that have done their part have written results, which nobody takes when another core fails."""

    def segments(join):
        return sum(len(returned._descriptors) for returned in join._core._returned)

    good, bad = (pa.table({"ts": range(80), "k": [*range(79), last]}) for last in (79, 77))
    options = {"index": Failing(caller=os.getpid()), "cores": 3, "route": "hash"}
    with wm.StreamJoin("l.k = r.k", wm.within(100, lateness=100), **options) as join:
        good = good.filter(pa.array([k != 77 for k in good["k"].to_pylist()]))
        assert join.push(left=good, right=good).num_rows == 79
        for number in range(12):
            with pytest.raises(ArithmeticError, match="not to my liking"):
                join.push(left=bad, right=bad)
            join.push(right=good)  # tells the cores what is free
            if number == 2:
                before = segments(join)
        assert segments(join) == before


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
from large import join_of, batches
join = join_of("hash", cores=2)
tables = [join.push(*batches(n)) for n in range(3)]
print(*join._core.pids, flush=True)
n = 3
while True:
    join.push(*batches(n))
    n += 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killing_the_caller_leaves_nothing_behind():
    code = CALLER.format(tests=os.path.dirname(__file__))
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in caller.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    named = [line for pid in (caller.pid, *pids) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
             if "/dev/shm/" in line]  # fmt: skip
    assert not named, "memory with a name would stay"
    caller.kill()
    caller.wait()
    assert all(gone(pid) for pid in pids)


def test_processes_that_end_just_as_they_are_taken_are_replaced():
    with join_of("hash") as join:
        join.push(*batches(0))
    first, second = (one.pid for one in list(process.Process.idle)[:2])
    os.kill(first, signal.SIGKILL)  # as if it had waited too long: nobody has noticed yet
    with join_of("hash") as join:
        assert join.push(*batches(0)).num_rows
        assert first not in join._core.pids and second in join._core.pids


def test_processes_wait_among_their_own_kind(request):
    """A join that is forgotten gives its processes back at any time, even while others are cores in threads."""
    kind = process.Process
    with join_of("hash") as join:
        join.push(*batches(0))
        request.getfixturevalue("threads")
    assert process.Process is not kind
    assert not any(one in process.Process.idle for one in kind.idle)
    leased = process.lease(2)
    assert {type(one) for one in leased} == {process.Process}
    process.give_back(leased)


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


def test_memory_of_results_is_mapped_again_only_where_it_has_grown():
    returned = Returned()
    outbox = Outbox(lambda number, descriptor: returned.know(number, os.dup(descriptor)))

    def passed(rows):
        batch = pa.record_batch({"x": np.arange(rows)})
        number, size = outbox.put([batch], batch.schema)
        returned.hold([number])
        (found,) = returned.take(number, size)
        assert found.equals(batch) and returned.freed() == []
        del found
        outbox.release(returned.freed())
        return number, returned._mapped[number]

    small = passed(10)
    assert passed(20) == small == passed(1000)
    large = passed(500_000)
    assert large[0] == small[0] and len(large[1]) > len(small[1])
    assert passed(10) == large == passed(400_000)


def test_explain_and_metrics_show_how_long_cores_work_and_wait():
    with join_of("hash", cores=1, route="single") as join:
        join.push(*batches(0))
        assert join.metrics.works == join.metrics.waits == [] and set(join.metrics.phases.values()) == {0.0}
        assert "phases" not in repr(join.metrics)
    with join_of("cells", cores=3) as join:
        join.push(*batches(0))
        first = join.metrics.to_dict()
        assert len(first["works"]) == len(first["waits"]) == 3
        assert min(first["works"]) > 0 and min(first["waits"]) >= 0 and min(first["phases"].values()) > 0
        together = first["phases"]["route"] + first["phases"]["step"]
        for worked, waited in zip(first["works"], first["waits"], strict=True):
            assert waited == pytest.approx(max(together - worked, 0))
        assert first["seconds"]["pick"] > 0 and first["seconds"]["hand"] > 0
        text = join.explain()
        held = [line for line in text.splitlines() if line.startswith("  core ")]
        assert [line.split(":")[1].split(",")[0] for line in held] == [f" holds {n // 1000}" for n in first["loads"]]
        assert all("worked " in line and "waited " in line for line in held) and "  the caller: write " in text
        assert "phases: write " in repr(join.metrics) and "a core: worked " in repr(join.metrics)
        join.metrics, join.explain()
        assert join.metrics.to_dict() == first, "to look at them adds nothing"
        join.push(*batches(1))
        later = join.metrics.to_dict()
        assert all(one > other for one, other in zip(later["works"], first["works"], strict=True))
    assert join.metrics.phases == later["phases"] and "  core 0" not in join.explain()


def test_a_call_that_fails_has_taken_no_time(monkeypatch, threads):
    with join_of("cells", cores=2) as join:
        join.push(*batches(0))
        before = join.metrics.to_dict()

        def fails(self, *arguments):
            raise ArithmeticError("not to my liking")

        with monkeypatch.context() as patch:
            patch.setattr(Team, "_collect", fails)
            with pytest.raises(ArithmeticError):
                join.push(*batches(1))
        assert join.metrics.to_dict() == before


def test_metrics_count_the_subwindows_of_each_side():
    with join_of("hash", cores=2, subwindows=3) as join:
        for number in range(4):
            join.push(left=batches(number)[0])
        metrics = join.metrics
        assert metrics.subwindows_left > metrics.subwindows_right >= 0


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
