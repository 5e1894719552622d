"""output="count" of joins that must know who has found a partner: as many as there would be rows, and no pairs kept."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.engine import finder

WINDOWS = {"within": wm.within(30, 7, lateness=5), "last": wm.last(40), "hopping": wm.hopping(30, 10, lateness=5)}
PREDICATES = ["l.x < r.x", "l.x = r.x", "abs(l.x - r.x) <= 2", "l.x <= r.x and l.y * r.y > 3"]


def batches(seed, pushes, rows):
    """Left and right, out of order by no more than the lateness; some keys are null."""
    rng = np.random.default_rng(seed)
    for push in range(pushes):
        both = {}
        for side in ("left", "right"):
            n = int(rng.integers(0, rows))
            ts = 3 * push + rng.integers(0, 5, n)
            x = pa.array(rng.integers(0, 12, n), mask=rng.random(n) < 0.1)
            both[side] = pa.table({"ts": ts, "x": x, "y": rng.integers(-3, 4, n)})
        yield both


def outputs(options, **more):
    """What every push and the end give."""
    with wm.StreamJoin(**options, **more) as join:
        return [join.push(**both) for both in batches(3, 12, 30)] + [join.close()]


@pytest.fixture
def few_kept(monkeypatch):
    """Pairs are not kept any more as soon as there are four, and a batch is probed in many parts; gives how often."""
    condensed = []
    pieces = finder.Met.pieces
    monkeypatch.setattr(finder, "KEPT", 3)
    monkeypatch.setattr(finder.Met, "pieces", lambda self: condensed.append(self) or pieces(self))
    return condensed


@pytest.mark.parametrize("index", ["auto", "nested_loop", "pim_tree"])
@pytest.mark.parametrize("on", PREDICATES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_every_push_counts_as_many_as_it_has_rows(few_kept, how, window, on, index):
    if index == "pim_tree" and on == "l.x = r.x":
        index = "hash"
    options = {"on": on, "window": WINDOWS[window], "how": how, "index": index, "cores": 1}
    counts = outputs(options, output="count")
    assert bool(few_kept) == (how != "inner")
    assert counts == [table.num_rows for table in outputs(options)]


@pytest.mark.parametrize("how", ["left", "full", "semi", "anti"])
def test_parts_of_a_batch_are_put_together(few_kept, monkeypatch, how):
    """Several parts, each of which tells who was met, in one subwindow and in several."""
    monkeypatch.setattr(finder, "PAIRS", 64)
    monkeypatch.setattr(finder, "_LEAST_PROBES", 8)
    monkeypatch.setattr(finder, "SMALL", 4)
    options = {"on": "l.x < r.x", "window": wm.within(30, 7, lateness=5), "how": how, "cores": 2, "route": "single"}
    for subwindows in (None, 3):
        counts = outputs(options, output="count", subwindows=subwindows)
        assert counts == [table.num_rows for table in outputs(options)]
    assert len(few_kept) > 30


@pytest.mark.parametrize(("rows", "partners"), [(1, 90), (90, 1)])
def test_there_is_room_for_the_side_of_which_more_were_met(monkeypatch, rows, partners):
    monkeypatch.setattr(finder, "settle", finder.settle.py_func)  # in Python, a place that is none is an error
    met = finder.Met(100)
    met.add((SimpleNamespace(size=100), np.arange(rows, dtype=np.int32), np.arange(partners, dtype=np.int32)))
    [(_, *noted)] = met.pieces()
    assert [one.tolist() for one in noted] == [list(range(rows)), list(range(partners))]


@pytest.mark.parametrize("how", ["left", "semi"])
def test_a_self_join_counts_likewise(few_kept, how):
    def run(output):
        with wm.StreamJoin("l.x < r.x", wm.within(10), how, self_join=True, output=output, cores=1) as join:
            found = [join.push(pa.table({"ts": range(i, i + 5), "x": [3, 1, 4, 1, 5 + i]})) for i in range(8)]
            return [*found, join.close()]

    assert run("count") == [table.num_rows for table in run("rows")]
    assert few_kept


def test_a_number_has_no_order():
    """Where results are counted there is nothing to be sorted, whatever order is asked for."""
    options = {"on": "l.x < r.x", "window": wm.last(40), "how": "semi", "cores": 1}
    assert outputs(options, output="count", order="inner") == outputs(options, output="count")


def test_a_call_that_fails_behind_it_has_changed_nothing(few_kept, monkeypatch):
    from watersmeet.engine.core import JoinCore

    options = {"on": "l.x < r.x", "window": wm.within(30, 7, lateness=5), "how": "full", "cores": 1}
    wanted = outputs(options, output="count")
    let_go, fails = JoinCore.let_go, iter(range(1000))

    def failing(self, *arguments):
        if next(fails) % 3 == 0:
            raise MemoryError
        let_go(self, *arguments)

    monkeypatch.setattr(JoinCore, "let_go", failing)
    with wm.StreamJoin(**options, output="count") as join:
        found = []
        for both in batches(3, 12, 30):
            while len(found) < 1_000:
                try:
                    found.append(join.push(**both))
                    break
                except MemoryError:
                    continue
        while True:
            try:
                found.append(join.close())
                break
            except MemoryError:
                continue
    assert found == wanted
