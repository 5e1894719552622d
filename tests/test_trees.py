"""The tree indexes on their own: random inserts, probes, forgetting and sealing, against a list of (key, row).

Nodes hold 3 to 9 entries, so that trees of a few dozen rows are several levels high, split, shrink and merge.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.index import BISort, BTree, FrozenBTree, IMTree, PIMTree
from watersmeet.index.base import TickBounds
from watersmeet.workers import Workers

LEAST, GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ALONE = Workers(1)
NO_TICKS = np.zeros(0, np.int64)

fan_outs = st.sampled_from([3, 4, 7, 8, 9])
ratios = st.sampled_from([1 / 64, 1 / 8, 1 / 3, 1])
WHOLE = {  # those that forget
    "btree": st.builds(BTree, fan_out=fan_outs),
    "im_tree": st.builds(IMTree, merge_ratio=ratios, fan_out=fan_outs),
    "pim_tree": st.builds(PIMTree, merge_ratio=ratios, fan_out=fan_outs, insertion_depth=st.integers(0, 4)),
}
ALL = WHOLE | {"frozen_btree": st.builds(FrozenBTree, fan_out=fan_outs)}

narrow = st.integers(-20, 20)
wide = st.one_of(narrow, st.sampled_from([LEAST, LEAST + 1, -(2**61), 2**61, GREATEST - 1, GREATEST]))


def batches(keys):
    return st.lists(keys, max_size=30)


@st.composite
def ascending(draw):
    return sorted(draw(st.lists(st.integers(-1000, 1000), max_size=40)))


inserts = st.one_of(
    batches(narrow), batches(wide), batches(st.just(7)), batches(st.just(GREATEST)), ascending(),
    ascending().map(lambda keys: keys[::-1]), st.lists(wide, min_size=1, max_size=1),
)  # fmt: skip
ranges = st.one_of(
    st.tuples(wide, wide), st.tuples(narrow, narrow), wide.map(lambda key: (key, key)), st.just((LEAST, GREATEST))
)
probe = st.tuples(st.just("probe"), st.tuples(st.lists(ranges, max_size=12), st.sampled_from(["", "rows", "ticks"])))
insert = st.tuples(st.just("insert"), inserts)
forget = st.tuples(st.just("forget"), st.floats(0, 1))


class Model:
    """A structure, and beside it a list of what it must hold."""

    def __init__(self, index):
        self.index = index
        self.structure = index.structure()
        self.held: list[tuple[int, int]] = []
        self.rows = 0

    def insert(self, keys, live=None):
        """Store a batch; with `live`, only its rows that are."""
        given = np.array(keys, np.int64)
        mask = None if live is None else np.array(live, bool)
        self.structure.insert(self.index.entries(None, given, mask, given.size, ALONE), self.rows)
        self.held += [(int(key), self.rows + i) for i, key in enumerate(keys) if live is None or live[i]]
        self.rows += len(keys)

    def forget(self, gone):
        self.structure.forget(gone)
        self.held = [(key, row - gone) for key, row in self.held if row >= gone]
        self.rows -= gone

    def probe(self, asked, bounded=""):
        n = len(asked)
        lows, highs = np.array(asked, np.int64).reshape(n, 2).T.copy()
        probes = self.index.probes(None, (lows,), (highs,), None, n, ALONE)
        low, high = self.rows // 4, self.rows // 2
        ticks = (np.arange(self.rows) * 7 + 3) % max(self.rows, 1) if bounded == "ticks" else NO_TICKS
        bounds = TickBounds(np.full(n, low), np.full(n, high), ticks) if bounded and self.rows else None
        tick = (lambda row: ticks[row]) if ticks.size else (lambda row: row)
        expected = sorted(
            (p, row)
            for p, (a, b) in enumerate(asked)
            for key, row in self.held
            if a <= key <= b and (bounds is None or low <= tick(row) <= high)
        )
        found = [pair for one in self.structure.find(probes, 0, n, bounds) for pair in zip(*one, strict=True)]
        assert sorted((int(p), int(row)) for p, row in found) == expected
        assert self.structure.count(probes, 0, n, bounds) == len(expected)
        middle = n // 2
        halves = [self.structure.count(probes, a, b, bounds) for a, b in ((0, middle), (middle, n))]
        assert sum(halves) == len(expected)

    def check(self):
        self.structure.check_invariants()
        assert self.structure.size == len(self.held)


lives = st.lists(st.one_of(insert, insert, forget, probe), max_size=25)


def live(model, life):
    """All that happens to a structure, with a look at it behind each."""
    for what, value in life:
        if what == "insert":
            model.insert(value)
        elif what == "forget":
            model.forget(int(value * model.rows))
        else:
            model.probe(*value)
        model.check()
    model.probe([(LEAST, GREATEST)])


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=4 * settings().max_examples)
@given(data=st.data())
def test_a_structure_holds_what_was_inserted_and_not_forgotten(name, data):
    live(Model(data.draw(WHOLE[name])), data.draw(lives))


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=2 * settings().max_examples)
@given(data=st.data())
def test_a_sealed_structure_answers_as_before(name, data):
    model = Model(data.draw(ALL[name]))
    for keys in data.draw(st.lists(inserts, max_size=6)):
        flags = st.lists(st.booleans(), min_size=len(keys), max_size=len(keys))
        model.insert(keys, data.draw(st.one_of(st.none(), flags)))
        model.check()
    asked = data.draw(probe)[1]
    model.probe(*asked)
    model.structure.seal()
    model.check()
    model.probe(*asked)
    model.probe([(LEAST, GREATEST)] * 3)


@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=settings().max_examples // 3)
@given(data=st.data(), step=st.integers(1, 40), domain=st.sampled_from([1, 5, 1000]))
def test_a_window_that_slides_for_long_stays_exact_and_small(name, data, step, domain):
    """As the engine does: a batch comes, as much expires, and the structure says when to let it go."""
    model = Model(data.draw(WHOLE[name]))
    rng = np.random.default_rng(step)
    window, expired = 150, 0
    sizes = []
    for turn in range(60):
        model.insert(rng.integers(-domain, domain, step).tolist(), (rng.random(step) < 0.9).tolist())
        expired = max(model.rows - window, 0)
        if expired and model.structure.worth_forgetting(expired, model.rows):
            model.forget(expired)
        model.check()
        assert model.rows <= 2 * window + 2 * step
        if turn % 7 == 0:
            model.probe([(int(low), int(low) + 3) for low in rng.integers(-domain, domain, 5)])
        sizes.append(model.structure.nbytes())
    assert sizes[-1] <= 2 * max(sizes[:40])


@pytest.mark.parametrize("name", ALL)
def test_large_batches_need_more_room_than_there_is_and_get_it(name):
    """Portions of pairs overflow, pools of nodes grow in the middle of a batch, chunks of probes follow each other."""
    rng = np.random.default_rng(3)
    index = {"btree": BTree(7), "frozen_btree": FrozenBTree(7), "im_tree": IMTree(1 / 2, 7)}.get(name, PIMTree(1, 5))
    structure, reference = index.structure(), BISort().structure()
    rows = 0
    for size in (3000, 1, 2000, 700):
        keys = rng.integers(0, 3000, size)
        for one, kind in ((structure, index), (reference, BISort())):
            one.insert(kind.entries(None, keys, None, size, ALONE), rows)
        rows += size
    lows = rng.integers(-100, 3100, 2000)
    highs = lows + rng.choice([-1, 0, 2, 50, 10**6], lows.size)
    for bounds in (None, TickBounds(np.full(2000, 1000), np.full(2000, 4000), NO_TICKS)):
        answers = []
        for one, kind in ((structure, index), (reference, BISort())):
            probes = kind.probes(None, (lows,), (highs,), None, 2000, ALONE)
            pairs = [np.stack(pair).astype(np.int64) for pair in one.find(probes, 0, 2000, bounds)]
            found = np.concatenate(pairs, axis=1)
            answers.append(np.sort(found[0] << 32 | found[1]))
            assert one.count(probes, 0, 2000, bounds) == found.shape[1]
        assert np.array_equal(*answers)
    structure.check_invariants()


def test_rows_may_be_numbered_beyond_32_bits():
    model = Model(BTree(4))
    model.structure._base = (1 << 32) - 5  # as if that many had gone: what is stored wraps round
    for _ in range(5):
        model.insert([3, 1, 2, 2])
        model.forget(2)
        model.check()
        model.probe([(LEAST, GREATEST), (2, 2)])


def test_keys_that_ascend_fill_their_leaves():
    tree = BTree(8).structure()
    keys = np.arange(800)
    tree.insert(BTree().entries(None, keys, None, 800, ALONE), 0)
    assert tree._trees._nodes.books[0] == 100


def test_deleting_from_many_equal_keys_does_not_look_at_all_of_them():
    """Equal keys lie in order of arrival, so the oldest is the first to be looked at."""
    index = BTree()
    model = index.structure()
    keys = np.full(200_000, 7)
    model.insert(index.entries(None, keys, None, keys.size, ALONE), 0)
    for _ in range(10):
        model.forget(19_000)  # quadratic, this would be minutes
    assert model.size == 10_000
    model.check_invariants()


def test_sub_trees_spread_with_the_keys():
    index = PIMTree(merge_ratio=1, fan_out=4, insertion_depth=2)
    model = Model(index)
    model.insert(range(0, 2000, 2))
    assert model.structure._mutable._nodes.roots.size == 16
    model.insert(range(1, 1000, 2))
    assert np.count_nonzero(model.structure._mutable._nodes.roots >= 0) == 8
    model.probe([(0, 3), (240, 260), (0, 1000), (1500, 3000)])
    model.check()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BTree(fan_out=2), ["fan_out", "3", "2", "good value"]),
        (lambda: FrozenBTree(fan_out=0), ["fan_out", "3", "0", "good value"]),
        (lambda: IMTree(merge_ratio=0), ["merge_ratio", "above 0", "good value"]),
        (lambda: IMTree(merge_ratio=1.5), ["merge_ratio", "at most 1", "1.5", "good value"]),
        (lambda: PIMTree(merge_ratio=float("nan")), ["merge_ratio", "nan", "good value"]),
        (lambda: PIMTree(insertion_depth=-1), ["insertion_depth", "negative", "-1", "good value"]),
        (lambda: PIMTree(fan_out=1), ["fan_out", "1", "good value"]),
    ],
)
def test_parameters_out_of_range_are_named(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    "make",
    [lambda: BTree(fan_out=2.5), lambda: IMTree(merge_ratio="a"), lambda: PIMTree(insertion_depth=1.0)],
)
def test_parameters_of_the_wrong_type_are_named(make):
    with pytest.raises(TypeError, match="fan_out|merge_ratio|insertion_depth"):
        make()


def test_a_sealed_tree_gives_back_its_spare_room():
    before = Model(BTree(fan_out=4))
    before.insert(list(range(3000)))
    model = Model(BTree(fan_out=4))
    model.structure = model.index.structure(before.structure)
    model.insert(list(range(300)))
    room = model.structure._trees._nodes.keys.size
    assert room > 3000
    model.structure.seal()
    assert model.structure._trees._nodes.keys.size < room / 4
    model.probe([(LEAST, GREATEST)])


def test_a_sealed_frozen_tree_is_read_only_and_smaller():
    trees = {index: Model(index) for index in (BTree(fan_out=8), FrozenBTree(fan_out=8))}
    for model in trees.values():
        model.insert(list(range(2000)))
        model.structure.seal()
    kept, frozen = (model.structure for model in trees.values())
    assert kept._frozen is None and frozen._frozen is not None
    assert frozen.nbytes() < kept.nbytes()
