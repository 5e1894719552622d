"""The Bw-Tree of the benchmarks: what it holds, whoever changes it meanwhile, and the join over it."""

import threading

import numpy as np
import pytest
from numba import njit

from watersmeet.bench.cores.bw_tree import kernels, records
from watersmeet.bench.cores.bw_tree.join import BwWindows
from watersmeet.bench.cores.bw_tree.records import DELETE, GREATEST, IDS, INSERT, LEAST
from watersmeet.bench.cores.bw_tree.tree import BwTree
from watersmeet.bench.cores.bw_tree.work import work
from watersmeet.bench.cores.shared_parts import REACH, banded
from watersmeet.engine import tasks
from watersmeet.engine.tasks import Step, Tasks, Worker
from watersmeet.index.trees import shared_kernels
from watersmeet.workers import Workers

SIZES = [(3, 2), (4, 3), (7, 2), (7, 7)]  # fan-out, chain


def ints(*values):
    return np.array(values, np.int64)


def pairs(keys, rows):
    return set(zip(keys.tolist(), rows.tolist(), strict=True))


def at_once(works):
    """On a thread each, as nearly at the same time as can be; what they return."""
    start, results = threading.Barrier(len(works)), {}

    def go(number, work):
        start.wait()
        results[number] = work()

    threads = [threading.Thread(target=go, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(works))]


# -- one thread --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fan_out", "chain"), SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_it_holds_what_a_sorted_list_holds(fan_out, chain, seed):
    rng = np.random.default_rng(seed)
    tree, model = BwTree(fan_out, chain), set()
    domain = ints(LEAST, GREATEST, LEAST + 1, GREATEST - 1, *range(8)) if seed else ints(5)
    for step in range(40):
        keys, rows = rng.choice(domain, (n := int(rng.integers(0, 30)))), rng.integers(0, 40, n)
        if step % 3 == 2:  # mostly of what is there, twice as well
            tree.delete(keys, rows)
            model -= pairs(keys, rows)
        else:
            tree.insert(keys, rows)
            model |= pairs(keys, rows)
        tree.check_invariants()
        assert tree.entries() == sorted(model)
        lows = np.append(rng.choice(domain, 5), LEAST)
        highs = np.append(rng.choice(domain, 5), GREATEST)
        expected = [(p, row) for p in range(6) for key, row in model if lows[p] <= key <= highs[p]]
        found = tree.find(lows, highs)
        assert sorted(zip(*(part.tolist() for part in found), strict=True)) == sorted(expected)
    assert tree.height >= 1


@pytest.mark.parametrize("keys", [range(500), range(500, 0, -1), [7] * 500])
def test_keys_in_order_and_all_the_same(keys):
    tree, keys, rows = BwTree(4, 3), ints(*keys), np.arange(500)
    tree.insert(keys, rows)
    tree.check_invariants()
    assert tree.entries() == sorted(pairs(keys, rows)) and tree.height >= 4
    tree.delete(keys, rows)
    tree.check_invariants()
    assert tree.entries() == [] and tree.find(ints(LEAST), ints(GREATEST))[0].size == 0


def test_a_window_that_slides_needs_no_more_memory():
    tree, rng = BwTree(8, 4), np.random.default_rng(0)
    keys = rng.integers(0, 1 << 40, 8 * 512)
    sizes = []
    for step in range(40):
        rows = np.arange(512 * step, 512 * (step + 1))
        tree.insert(keys[rows % keys.size], rows)
        if step >= 8:
            tree.delete(keys[rows % keys.size], rows - keys.size)
        sizes.append(tree.nbytes())
    tree.check_invariants()
    assert len(set(sizes[20:])) == 1


@pytest.mark.parametrize("bad", [(2, 2), (4, 1), (4, 5)])
def test_sizes_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match="fan_out must be 3 or more, and chain"):
        BwTree(*bad)


def test_without_room_it_stops_instead_of_writing_elsewhere():
    tree = BwTree(3, 2)
    with pytest.raises(MemoryError, match="was not given room"):
        kernels.change(tree.tree, INSERT, np.arange(100), np.arange(100))


# -- half of something, which threads may see at any time --------------------------------------------------------------


@njit
def _consolidate(tree, node, head):
    """The first step of a split, without the second. Gives how many posts are left to be done."""
    book = records.claim(tree.control)
    records.enter(tree.control, book)
    n = kernels.consolidate(tree, book, node, head, np.empty((kernels.MOST_POSTS, 5), np.int64), 0)
    records.leave(tree, book)
    records.release(tree.control, book)
    return n


@njit
def _begin(tree):
    book = records.claim(tree.control)
    records.enter(tree.control, book)
    return book


@njit
def _end(tree, book):
    records.leave(tree, book)
    records.release(tree.control, book)


def half_split(above=0):
    """A tree with a leaf that was split, of which its parent does not know; `above`: keys in other leaves before."""
    tree = BwTree(4, 4, threads=2)
    tree.insert(np.arange(above), np.arange(above))
    held = set(tree.entries())
    while True:
        room = tree.reserve(8)
        leaf = next(reversed(tree._levels()[-1]))
        if len(tree.node(leaf).entries) > 4:
            break
        new = ints(100 + len(held))
        kernels.change(room, INSERT, new, new)
        held |= pairs(new, new)
    assert _consolidate(room, leaf, room.table[leaf]) == 1
    with pytest.raises(AssertionError, match="siblings|named"):
        tree.check_invariants()
    return tree, held


@pytest.mark.parametrize("above", [0, 40])
@pytest.mark.parametrize("what", ["search", "insert", "delete"])
def test_whoever_comes_across_half_a_split_completes_it(what, above):
    tree, held = half_split(above)
    assert tree.entries() == sorted(held)
    last = max(held)[0]
    if what == "search":
        probe, rows = tree.find(ints(last), ints(last))
        assert rows.tolist() == [last]
    elif what == "insert":
        kernels.change(tree.tree, INSERT, ints(last + 1), ints(0))
        held.add((last + 1, 0))
    else:
        kernels.change(tree.tree, DELETE, ints(last), ints(last))
        held.remove((last, last))
    tree.check_invariants()
    assert tree.entries() == sorted(held)


def test_a_search_that_does_not_need_the_sibling_leaves_half_a_split_alone():
    tree, held = half_split(40)
    assert tree.find(ints(0), ints(10))[1].tolist() == list(range(11))
    with pytest.raises(AssertionError, match="named"):
        tree.check_invariants()


@pytest.mark.parametrize("entries", [2, 6])  # of which one is split
def test_who_loses_a_swap_gives_all_back(entries):
    tree = BwTree(4, 4, threads=2)
    tree.insert(*[np.arange(entries)] * 2)
    room = tree.reserve(8)
    node = next(iter(tree._levels()[-1]))
    seen = room.table[node]
    kernels.change(room, INSERT, ints(-1), ints(0))  # somebody else
    before = room.control[IDS]
    assert _consolidate(room, node, seen) == 0
    tree.check_invariants()
    assert room.control[IDS] <= before + 1 and (-1, 0) in tree.entries()


def test_what_a_reader_may_be_looking_at_is_not_used_again():
    tree, rng = BwTree(4, 4, threads=2), np.random.default_rng(0)
    tree.insert(*[np.arange(4)] * 2)
    room = tree.reserve(20_000)
    head = int(room.table[0])

    def churn():
        for _ in range(10):
            keys = rng.integers(0, 50, 500)
            kernels.change(room, INSERT, keys, keys)
            kernels.change(room, DELETE, keys, keys)

    reader, before = _begin(room), room.deltas[head * 8 : head * 8 + 7].tolist()  # the last word is not the reader's
    churn()
    assert room.table[0] != head and room.deltas[head * 8 : head * 8 + 7].tolist() == before
    used = int(room.control[records.DELTAS])
    assert used > 10_000
    _end(room, reader)
    churn()
    assert room.control[records.DELTAS] - used < used / 10  # those of before were used again


# -- many threads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fan_out", "chain"), [(3, 2), (7, 7), (64, 8)])
@pytest.mark.parametrize("domain", [3, 1 << 40])
def test_many_threads_lose_and_double_nothing(fan_out, chain, domain):
    """Each inserts its own and deletes some of it; meanwhile others search, and find what is always there."""
    threads, n = 4, 3000
    rng = np.random.default_rng(fan_out)
    tree = BwTree(fan_out, chain, threads=threads + 2)
    always = rng.integers(0, domain, 500)
    tree.insert(always, np.arange(500))
    keys = rng.integers(0, domain, (threads, n))
    rows = 1000 + np.arange(threads * n).reshape(threads, n)
    room = tree.reserve(2 * threads * n)

    def change(number):
        for at in range(0, n, 300):
            cut = slice(at, at + 300)
            kernels.change(room, INSERT, keys[number, cut], rows[number, cut])
            kernels.change(room, DELETE, keys[number, cut][::2], rows[number, cut][::2])

    def look():
        out, wrong = np.empty((2, 20_000), np.int64), 0
        for _ in range(30):
            found = out[1, : kernels.search(room, ints(LEAST), ints(GREATEST), *out)]
            wrong += np.unique(found).size != found.size or np.count_nonzero(found < 1000) != 500
        return wrong

    works = [lambda number=number: change(number) for number in range(threads)]
    assert at_once([*works, look, look])[threads:] == [0, 0]
    tree.check_invariants()
    left = pairs(always, np.arange(500)).union(*(pairs(keys[i, 1::2], rows[i, 1::2]) for i in range(threads)))
    assert tree.entries() == sorted(left)


# -- joins -------------------------------------------------------------------------------------------------------------


class Streams:
    """Both windows, and by brute force what a batch of each side finds in them."""

    def __init__(self, window, fan_out, chain, threads):
        self.window, self.windows = window, BwWindows(window, lambda: BwTree(fan_out, chain, threads))
        self.keys = {"left": ints(), "right": ints()}

    def step(self, new, run):
        """run(lanes, views) gives (left row, right row) as rows of the windows."""
        sizes = self.windows.sizes
        first = {side: held.size for side, held in self.keys.items()}
        lanes = banded(new, sizes, self.window)
        found = self.windows.push(new, lambda views: run(lanes, views))
        for side, keys in new.items():
            self.keys[side] = np.append(self.keys[side], keys)
        base = {side: first[side] - sizes[side] for side in sizes}
        lefts, rights = (np.arange(self.keys[side].size) for side in ("left", "right"))
        meets = np.abs(self.keys["left"][:, None] - self.keys["right"]) <= REACH
        is_new = (lefts[:, None] >= first["left"]) & (rights < first["right"])
        is_new &= rights >= first["right"] - self.window  # a left tuple sees what was there before
        later = rights >= first["right"]  # a right one this batch's, too
        later = later & (lefts[:, None] >= first["left"] + new["left"].size - self.window)
        expected = [(i - base["left"], j - base["right"]) for i, j in np.argwhere(meets & (is_new | later)).tolist()]
        assert sorted(found) == sorted(expected)
        for held in self.windows.held.values():
            held.tree.check_invariants()
        return len(expected)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
@pytest.mark.parametrize(("fan_out", "chain"), [(3, 2), (7, 4)])
def test_a_join_finds_what_brute_force_finds(threads, fan_out, chain, monkeypatch):
    monkeypatch.setattr(tasks, "_MANY", 1)
    rng = np.random.default_rng(threads)
    workers = Workers(threads)
    streams = Streams(400, fan_out, chain, threads)

    def run(lanes, views):
        pieces, _ = Step(Tasks(lanes, views, False, 16, kernel=work), workers, 0).run()
        found = []
        for side, parts in pieces.items():
            for rows, others in parts:
                rows = rows + lanes[side].first
                found += pairs(rows, others) if side == "left" else pairs(others, rows)
        return found

    total = 0
    for _ in range(6):
        left, right = (rng.integers(0, 500, int(rng.integers(0, 300))) for _ in range(2))
        total += streams.step({"left": left, "right": right}, run)
    workers.stop()
    assert total > 3000


def scheduled(seed):
    """Some steps, in each of which workers go on in turns that a scheduler draws, a tuple at a time."""
    rng = np.random.default_rng(seed)
    streams = Streams(int(rng.integers(1, 30)), *SIZES[seed % len(SIZES)], 4)
    domain = int(rng.choice([3, 60]))

    def run(lanes, views):
        todo = Tasks(lanes, views, False, int(rng.integers(1, 4)), kernel=work)
        workers = [Worker(todo, number) for number in range(int(rng.integers(2, 5)))]
        todo.want(len(workers))
        going = list(workers)
        while going:
            worker = going[int(rng.integers(len(going)))]
            if worker.go_on(int(rng.integers(1, 4))) == shared_kernels.OVER:
                going.remove(worker)
        found = []
        for segment in (segment for worker in workers for segment in worker.found):
            side = "left" if segment.task < todo.number("left") else "right"
            rows, others = (segment.rows + lanes[side].first).tolist(), segment.partners.tolist()
            found += zip(rows, others, strict=True) if side == "left" else zip(others, rows, strict=True)
        return found

    for _ in range(4):
        streams.step({side: rng.integers(0, domain, int(rng.integers(0, 12))) for side in ("left", "right")}, run)


def test_random_schedules():
    for seed in range(60):
        scheduled(seed)
