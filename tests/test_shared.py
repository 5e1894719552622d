"""Threads that share one index: nothing lost, doubled or misplaced, whoever comes when."""

import threading
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from harness import answer, check_timing, run
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import HOWS, WINDOW_KINDS, scenarios
from test_failures import NO_SHRINKING, check_with_failures
from test_trees import GREATEST, LEAST, Model, fan_outs, inserts, live, lives, ratios

import watersmeet as wm
from watersmeet.engine import tasks
from watersmeet.engine.shared import SharedCore
from watersmeet.engine.tasks import Tasks, Worker
from watersmeet.index.trees import shared_kernels as kernels
from watersmeet.index.trees.shared_kernels import Lane
from watersmeet.index.trees.shared_tree import Coming, SharedPIMTree, SharedTree
from watersmeet.workers import ALONE, Workers

trees = st.builds(
    SharedPIMTree, merge_ratio=ratios, fan_out=fan_outs, insertion_depth=st.integers(0, 3), blocking=st.booleans()
)
NONE = np.zeros(0, np.int64)
ORDERS = ["none", "outer", "inner", wm.punctuate(7)]


@pytest.fixture
def many_tasks(monkeypatch):
    """Pushes of any size are cut into tasks of a few tuples, for all threads."""
    monkeypatch.setattr(tasks, "_MANY", 1)
    monkeypatch.setattr(SharedCore, "task_rows", 2)


def options_for(data, scenario):
    if "pim_tree" not in scenario.predicate.indexes:
        return None
    cores = data.draw(st.sampled_from([1, 2, 3, 4, 8]))
    return {"route": "shared", "cores": cores, "index": data.draw(trees)}


# -- joins -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", WINDOW_KINDS)
@given(data=st.data())
def test_every_window_and_join_type_on_any_number_of_threads(kind, how, data):
    scenario = data.draw(scenarios(kind=kind, how=how))
    options = options_for(data, scenario)
    if options is not None:
        check_timing(answer(scenario), run(scenario, data.draw(st.sampled_from(["rows", "pairs"])), **options))


@pytest.mark.usefixtures("many_tasks")
@given(data=st.data())
def test_counts_and_batch_mode(data):
    scenario = data.draw(scenarios())
    options = options_for(data, scenario)
    if options is not None:
        expected = run(scenario, "pairs", **options)
        assert run(scenario, "count", **options) == [step.total() for step in expected]
        batched = run(scenario, "pairs", batch_rows=5, **options)
        assert sum(map(len, batched)) == sum(map(len, expected))


@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=5, phases=NO_SHRINKING)
@given(data=st.data())
def test_a_step_that_fails_leaves_no_trace(how, data):
    scenario = data.draw(scenarios(how=how))
    if "pim_tree" in scenario.predicate.indexes:
        check_with_failures(scenario, {"route": "shared", "cores": 1, "index": data.draw(trees)}, data.draw)


def streams(seed, pushes=6, rows=5000):
    rng = np.random.default_rng(seed)
    for push in range(pushes):
        times = [np.sort(rng.integers(push * rows, (push + 1) * rows, n)) for n in rng.integers(0, rows, 2)]
        yield [pa.table({"ts": ts, "x": rng.integers(0, 4 * rows, ts.size)}) for ts in times]


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_results_are_in_order(how, order, monkeypatch):
    """As those of one core, row by row where the order says all, else in the order of the tuples that complete them."""
    monkeypatch.setattr(tasks, "_MANY", 1)
    options = {"output": "pairs", "order": order}
    on, window = "abs(l.x - r.x) <= 4", wm.within(9000)
    join = wm.StreamJoin(on, window, how, route="shared", cores=4, **options)
    alone = wm.StreamJoin(on, window, how, route="single", cores=1, **options)
    for left, right in streams(3):
        found, expected = join.push(left, right), alone.push(left, right)
        assert found.num_rows == expected.num_rows
        if order == "inner":
            assert found.equals(expected)
        elif order == "outer" and how == "inner":
            lefts = alone.metrics.rows_in_left - left.num_rows
            rights = alone.metrics.rows_in_right - right.num_rows
            assert [_completes(*pair, lefts, rights) for pair in _pairs(found)] == [
                _completes(*pair, lefts, rights) for pair in _pairs(expected)
            ]
    assert join.close().num_rows == alone.close().num_rows


def _pairs(table):
    return zip(*table.to_pydict().values(), strict=True)


def _completes(left, right, lefts, rights):
    return (1, right) if right >= rights else (0, left)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", ["l.x = r.x", "l.x = r.ts", "l.x <= r.ts and l.x >= r.ts - 3"])
def test_self_joins(on, how, monkeypatch):
    monkeypatch.setattr(tasks, "_MANY", 1)
    monkeypatch.setattr(SharedCore, "task_rows", 7)
    options = {"self_join": True, "output": "pairs", "order": "inner"}
    join = wm.StreamJoin(on, wm.within(150), how, route="shared", cores=3, **options)
    alone = wm.StreamJoin(on, wm.within(150), how, route="single", cores=1, **options)
    for left, _ in streams(5, rows=100):
        assert join.push(left).equals(alone.push(left))
        join.check_invariants()
    assert join.close().equals(alone.close())


def test_many_results_of_one_tuple_need_more_room_than_there_is():
    left = pa.table({"ts": np.arange(70_000), "x": np.zeros(70_000, np.int64)})
    right = pa.table({"ts": [69_999], "x": [0]})
    join = wm.StreamJoin("l.x = r.x", wm.within(100_000), route="shared", cores=2, output="pairs")
    assert sorted(join.push(left, right)["left"].to_pylist()) == list(range(70_000))
    assert join.push(right=right).num_rows == 70_000


# -- schedules -------------------------------------------------------------------------------------------------------


def lane(keys, reach, first, limit):
    n = keys.size
    on = np.ones(n, np.uint8)
    return Lane(keys, on, on, keys - reach, keys + reach, 1, 0, NONE, NONE, NONE, first, limit)


def scheduled(seed):
    """Some steps, in each of which workers go on in turns that a scheduler draws, a tuple at a time."""
    rng = np.random.default_rng(seed)
    config = SharedPIMTree(
        merge_ratio=float(rng.choice([1 / 8, 1 / 2, 1])), fan_out=int(rng.choice([3, 4])),
        insertion_depth=int(rng.integers(0, 3)), blocking=bool(rng.integers(2)),
    )  # fmt: skip
    both = {side: SharedTree(config, ALONE if rng.integers(2) else Workers(2)) for side in ("left", "right")}
    held = {"left": NONE, "right": NONE}
    domain, reach = int(rng.choice([3, 40])), int(rng.integers(0, 3))
    for _ in range(3):
        task_rows = int(rng.integers(1, 4))
        new = {side: rng.integers(0, domain, rng.integers(0, 9)) for side in both}
        first = {side: held[side].size for side in both}
        for side, tree in both.items():
            tree.insert(Coming(new[side].size), first[side])
        lanes = {
            "left": lane(new["left"], reach, first["left"], first["right"]),
            "right": lane(new["right"], reach, first["right"], first["left"] + new["left"].size),
        }
        views = {side: tree.view(new[side].size) for side, tree in both.items()}
        todo = Tasks(lanes, views, False, task_rows)
        workers = {n: Worker(todo, n) for n in range(int(rng.integers(2, 5)))}
        todo.want(len(workers))
        going = dict(workers)
        while going:
            number = int(rng.choice(list(going)))
            if rng.random() < 0.05:  # threads come and go; one is always wanted
                todo.want(int(rng.integers(1, len(workers) + 1)))
            how = going[number].go_on(int(rng.integers(1, 4)))
            if how == kernels.OVER or (how == kernels.UNWANTED and len(going) > 1 and number):
                del going[number]
        found = []
        for worker in workers.values():
            for segment in worker.found:
                is_left = segment.task < todo.number("left")
                offset = first["left" if is_left else "right"]
                rows, partners = (segment.rows + offset).tolist(), segment.partners.tolist()
                found += zip(rows, partners, strict=True) if is_left else zip(partners, rows, strict=True)
        for side, tree in both.items():
            tree.landed(new[side].size)
            held[side] = np.concatenate([held[side], new[side]])
            tree.check_invariants()
        meets = np.abs(held["left"][:, None] - held["right"]) <= reach
        meets[: first["left"], : first["right"]] = False  # these have met before
        assert sorted(found) == [tuple(pair) for pair in np.argwhere(meets).tolist()], f"schedule {seed}"


@pytest.mark.parametrize("part", range(4))
def test_random_schedules(part):
    for seed in range(100 * part, 100 * (part + 1)):
        scheduled(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_random_schedules(part):
    for seed in range(1000 * (part + 2), 1000 * (part + 3)):
        scheduled(seed)


@pytest.mark.parametrize("task_rows", [1, 16, 256])
def test_threads_that_really_run_come_and_go(task_rows, monkeypatch):
    monkeypatch.setattr(SharedCore, "task_rows", task_rows)
    options = {"output": "pairs", "order": "inner"}
    on, window = "abs(l.x - r.x) <= 4", wm.last(20_000)
    join = wm.StreamJoin(on, window, "full", route="shared", cores=4, **options)
    alone = wm.StreamJoin(on, window, "full", route="single", cores=1, **options)
    over = threading.Event()

    def change():
        rng = np.random.default_rng(task_rows)
        while not over.is_set():
            join.cores = int(rng.integers(1, 9))
            time.sleep(0.0005)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        for left, right in streams(task_rows, pushes=12, rows=8000):
            assert join.push(left, right).equals(alone.push(left, right))
            join.check_invariants()
    finally:
        over.set()
        changing.join()
    assert join.close().equals(alone.close())


# -- the structure ---------------------------------------------------------------------------------------------------


class SharedModel(Model):
    def check(self):
        self.structure.check_invariants()
        keys, rows = self.structure.entries()
        assert sorted(zip(keys.tolist(), rows.tolist(), strict=True)) == sorted(self.held)


@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_a_structure_holds_what_was_inserted_and_not_forgotten(data):
    live(SharedModel(data.draw(trees)), data.draw(lives))


@settings(max_examples=2 * settings().max_examples)
@given(batches=st.lists(inserts, max_size=8), config=trees)
def test_there_is_room_for_all_that_comes(batches, config):
    """Which the kernel does not look for."""
    tree, other = SharedTree(config), SharedTree(config)
    expected = []
    for batch in batches:
        keys = np.array(batch, np.int64)
        first = len(expected)
        tree.insert(Coming(keys.size), first)
        none = np.zeros(keys.size, np.uint8)
        one = Lane(keys, np.ones(keys.size, np.uint8), none, keys, keys, 1, 0, NONE, NONE, NONE, first, 0)
        lanes = {"left": one, "right": lane(NONE, 0, 0, 0)}
        views = {"left": tree.view(keys.size), "right": other.view()}
        assert Worker(Tasks(lanes, views, False, 4), 0).go_on() == kernels.OVER
        tree.landed(keys.size)
        expected += batch
        tree.check_invariants()
        nodes, _ = tree._active.trees.parts
        assert nodes.books.min() >= -1, nodes.books  # no node was taken that is not there
        keys, rows = tree.entries()
        assert [expected[row] for row in rows] == keys.tolist() and rows.size == len(expected)


def test_what_was_forgotten_does_not_come_back():
    """Though almost nothing goes into the tree, so that it has no other reason to merge."""
    model = SharedModel(SharedPIMTree())
    model.insert(range(100))
    for _ in range(9):
        model.rows = 1 << 28
        model.insert([0], [False])
        model.forget(1 << 28)
        model.probe([(LEAST, GREATEST)])
        model.check()


def test_a_signal_handler_may_change_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(tasks, "_MANY", 1)
    batch = pa.table({"ts": range(5000), "x": range(5000)})
    join = wm.StreamJoin("l.x = r.x", wm.within(10_000), route="shared", cores=2, output="count")
    submit = Workers.submit

    def interrupted(self, work):
        monkeypatch.setattr(Workers, "submit", submit)
        join.cores = 3  # as a handler would, on this very thread
        return submit(self, work)

    monkeypatch.setattr(Workers, "submit", interrupted)
    found = []
    thread = threading.Thread(target=lambda: found.append(join.push(batch, batch)), daemon=True)
    thread.start()
    thread.join(60)
    assert found == [5000]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_as_many_threads_as_are_wanted_are_called(monkeypatch, cores):
    monkeypatch.setattr(tasks, "_MANY", 1)
    called = []
    submit = Workers.submit
    monkeypatch.setattr(Workers, "submit", lambda self, work: called.append(work) or submit(self, work))
    batch = pa.table({"ts": range(5000), "x": range(5000)})
    join = wm.StreamJoin("l.x = r.x", wm.within(10_000), route="shared", cores=3, output="count")
    join.cores = cores
    assert join.push(batch, batch) == 5000
    assert sum(isinstance(work, partial) and work.func.__name__ == "work" for work in called) == cores - 1


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_in_our_words():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    both = {"left_schema": schema, "right_schema": schema, "route": "shared"}
    with pytest.raises(ValueError, match="route 'shared' has a PIM-Tree as its index; leave out index='hash'"):
        wm.StreamJoin("l.x = r.x", wm.within(5), index="hash", **both)
    with pytest.raises(ValueError, match="leave out subwindows"):
        wm.StreamJoin("l.x = r.x", wm.within(5), subwindows=2, **both)
    with pytest.raises(ValueError, match="needs an equality, band or inequality"):
        wm.StreamJoin("true", wm.within(5), **both)
    join = wm.StreamJoin("l.x = r.x", wm.within(5), cores=2, **both)
    assert "cores: 2 threads, which share one index" in join.explain() and "pim_tree" in join.explain()
    join.cores = 3
    assert join.cores == 3 and "cores: 3 threads" in join.explain()
    for bad in (0, 1.5, 5000):
        with pytest.raises((ValueError, TypeError), match="cores must be"):
            join.cores = bad


def test_processes_cannot_come_and_go():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int64()})
    join = wm.StreamJoin("l.x = r.x", wm.within(5), cores=2, route="hash", left_schema=schema, right_schema=schema)
    with pytest.raises(ValueError, match="use route='shared'"):
        join.cores = 3
