"""The part `elements` of `watersmeet bench skew`: what an element of each strategy can take (figures 10 to 18, 23, 24).

The paper runs 10 to 50 elements on a cluster. Here the busiest element of each strategy is built, with what it would
hold of a full window, and timed alone: inserts and searches of as many tuples as come to it in a tenth of a second. So
the number of elements is not bounded by that of cores, and nothing is measured of the network between them.

    strategy         holds, at the busiest                    gets to insert      gets to search for
    STA, hot         half of all hot tuples, a B+-Tree        half of the hot     every tuple
    STA, cold        all cold tuples, which are shared:       its share of the    its share of all
                     a B+-Tree for each slide                 cold
    PIM              inserts: its hash's share, a PIM-Tree;   its hash's share    every tuple
                     searches: the window, which one element holds merged
    chained index    its hash's share, a B+-Tree a slide      its hash's share    every tuple
    split            its turn's share, a list                 its turn            every tuple
    broadcast        the window, a list                       every tuple         its hash's share
    hot_cold         its share by the route, BI-Sort          its share           every tuple

(Algorithm 3, sections 3.3, 4.1 and 5.5; where the text has two versions, that of 5.5.) The figure is the rate of the
stream at which the busiest element would be busy all the time, with inserts or with searches alone; a latency is the
longest time that a tenth of a second's tuples took. Times are of one processor, whoever else uses the machine. Searches
count partners: at these rates and windows a tuple has
up to a million. Lists, which are scanned, are timed with few searches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from watersmeet.bench.rounds import Row
from watersmeet.bench.skew.data import JOINS, Router, band, believed, keys, partitioned
from watersmeet.index import BISort, BTree, PIMTree
from watersmeet.queries import QUERIES, Query
from watersmeet.routing.base import hashed
from watersmeet.workers import Workers

if TYPE_CHECKING:
    from watersmeet.bench.skew import Skew

PIECES = 10  # a second
SLIDES = 6  # of a window
LEAST = 64  # tuples of a batch that is timed
_ALONE = Workers(1)
_SORTED = BISort()
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Setting:
    query: Query
    rate: int
    elements: int
    minutes: float
    zipf: float | None = None

    def text(self) -> str:
        zipf = "" if self.zipf is None else f", Zipf {self.zipf:g}"
        return f"{self.query.name}, {self.rate:,}/s, {self.minutes:g} min{zipf}"


def settings(bench: Skew) -> list[Setting]:
    """As the paper's: one of rate, elements and window varies, the others are 10,000, 10 and 2 minutes."""
    rates, elements, minutes = bench.sizes.rates, bench.sizes.elements, bench.sizes.minutes
    base = rates[0], elements[0], minutes[0]
    varied = {
        "rate": [(rate, *base[1:]) for rate in rates],
        "elements": [(base[0], count, base[2]) for count in elements],
        "window": [(*base[:2], length) for length in minutes],
    }
    sweeps = {
        "q3": ("rate", "elements", "window"), "q4": ("rate", "elements", "window"), "q5": ("rate", "window"),
        "q6": ("elements", "window"),
    }  # fmt: skip
    found: list[Setting] = []
    for name in bench.queries:
        for sweep in sweeps.get(name, ()):
            found += [Setting(QUERIES[name], *one) for one in varied[sweep]]
        if name == "q7":  # a minute, figures 16 to 18
            zipfs = (1.0, 1.5, 2.0)
            found += [Setting(QUERIES[name], rate, base[1], minutes[0] / 2, z) for z in zipfs for rate in rates[:2]]
    return list(dict.fromkeys(found))


def elements(bench: Skew) -> None:
    for setting in settings(bench):
        work = Work(setting, bench.sizes.rounds)
        for contender, strategy in STRATEGIES.items():
            about: Row = {
                "part": "elements", "setting": setting.text(), "elements": setting.elements, "contender": contender,
                "query": setting.query.name, "rate": setting.rate, "minutes": setting.minutes, "zipf": setting.zipf,
            }  # fmt: skip
            bench.record(about | strategy(work))


class Work:
    """The keys of a full window and of the tenths of a second after it, and who gets them."""

    def __init__(self, setting: Setting, rounds: int) -> None:
        self.setting, self.rounds = setting, rounds
        query, self.n = setting.query, setting.elements
        self.size = round(setting.rate * 60 * setting.minutes)
        self.piece = max(setting.rate // PIECES, 1)
        count = self.size + (rounds + 1) * self.piece
        self.keys = keys(query, 0, count, 0, setting.zipf)
        self.probes = self.keys if query.is_self else keys(query, 0, count, 1, setting.zipf)
        self.reach: int | None = None
        if query.threshold is not None:
            self.reach = round(query.threshold * (100 if query.data.key == "high" else 1)) - 1
        self.hot = believed(self.keys)
        self.by_hash = hashed(self.keys, self.n)
        self.busiest = int(np.bincount(self.by_hash, minlength=self.n).argmax())
        self.partners: dict[str, int] = {}

    def bounds(self, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of a tuple's partners: smaller keys, or those in its band."""
        if self.reach is None:
            return np.full(found.size, _LEAST), found - 1
        return found - self.reach, found + self.reach

    def batches(self, mine: np.ndarray | None, of: np.ndarray, most: int) -> tuple[list[np.ndarray], float]:
        """Batches of an element's tuples, one to warm up and one a round, and how many such batches come to it in a
        tenth of a second. An element may get a tuple in a second, or none: a batch has at least LEAST, so that it is
        tuples that are timed and not the call."""
        theirs = of[self.size :] if mine is None else of[self.size :][mine[self.size :]]
        arriving = self.piece * (1.0 if mine is None else float(mine.mean()))
        size = int(min(max(arriving, LEAST), most))
        if theirs.size < (self.rounds + 1) * size:  # others like them
            theirs = np.concatenate([theirs, of[: self.size] if mine is None else of[: self.size][mine[: self.size]]])
        theirs = np.resize(theirs, (self.rounds + 1, size)) if theirs.size else np.zeros((self.rounds + 1, 0), np.int64)
        return list(theirs), arriving / size

    def held(self, mine: np.ndarray) -> np.ndarray:
        """An element's part of the window."""
        return self.keys[: self.size][mine[: self.size]]


class Chain:
    """A window in so many structures, the last of which takes inserts."""

    def __init__(self, index: Any, found: np.ndarray, slides: int = 1) -> None:
        self._structures, self._row = [], 0
        for piece in np.array_split(found, slides):
            self._structures.append(index.structure())
            self._row = 0
            for some in np.array_split(piece, max(piece.size >> 16, 1)):
                self.insert(some)

    def insert(self, some: np.ndarray) -> None:
        if some.size:
            self._structures[-1].insert(_SORTED.entries(None, some, None, some.size, _ALONE), self._row)
            self._row += some.size

    def count(self, lows: np.ndarray, highs: np.ndarray) -> int:
        probes = _SORTED.probes(None, (lows,), (highs,), None, lows.size, _ALONE)
        return sum(structure.count(probes, 0, lows.size, None) for structure in self._structures)

    most = 512  # searches that are timed


class Scanned:
    """A window in a list."""

    most = 16

    def __init__(self, found: np.ndarray) -> None:
        self._keys, self._size = np.concatenate([found, np.zeros(found.size // 4 + 4096, np.int64)]), found.size

    def insert(self, some: np.ndarray) -> None:
        self._keys[self._size : self._size + some.size] = some
        self._size += some.size

    def count(self, lows: np.ndarray, highs: np.ndarray) -> int:
        there = self._keys[: self._size]
        return sum(int(np.count_nonzero((there >= low) & (there <= high))) for low, high in zip(lows, highs))


def inserts(work: Work, window: Chain | Scanned, mine: np.ndarray | None = None) -> list[float]:
    """Seconds of a tenth of a second's inserts, round by round."""
    took = []
    batches, share = work.batches(mine, work.keys, 1 << 16)
    for some in batches:
        begin = thread_time()
        window.insert(some)
        took.append((thread_time() - begin) * share)
    return took[1:]


def searches(work: Work, window: Chain | Scanned, mine: np.ndarray | None = None) -> list[float]:
    """The same of searches, by some of them."""
    took = []
    batches, share = work.batches(mine, work.probes, window.most)
    for some in batches:
        bounds = work.bounds(some)
        begin = thread_time()
        window.count(*bounds)
        took.append((thread_time() - begin) * share)
    return took[1:]


def timed(work: Work, inserting: list[float], searching: list[float]) -> Row:
    """Rounds are rates of the stream that would keep the element busy."""

    def rates(took: list[float]) -> list[float]:
        return [work.piece / max(seconds, 1e-9) for seconds in took]

    return {
        "insert_rounds": rates(inserting), "search_rounds": rates(searching),
        "insert_ms": 1e3 * max(inserting), "search_ms": 1e3 * max(searching),
    }  # fmt: skip


def both(work: Work, window: Chain | Scanned, stores: np.ndarray | None = None, asks: np.ndarray | None = None) -> Row:
    """Searches first, while the window is as it was filled. `stores`, `asks`: whose tuples; None: all."""
    searching = searches(work, window, asks)
    return timed(work, inserts(work, window, stores), searching)


# -- strategies ------------------------------------------------------------------------------------------------------


def sta_hot(work: Work) -> Row:
    turn = np.zeros(work.keys.size, bool)
    turn[np.nonzero(work.hot)[0][::2]] = True
    window = Chain(BTree(), work.held(turn))
    return both(work, window, turn)


def sta_cold(work: Work) -> Row:
    mine = partitioned("sta", work.keys, work.n) == 0
    window = Chain(BTree(), work.held(~work.hot), SLIDES)
    asked = np.arange(work.keys.size) % max(work.n - 2, 1) == 0
    return both(work, window, mine, asked)


def pim(work: Work) -> Row:
    mine = work.by_hash == work.busiest
    merged = Chain(PIMTree(), work.held(np.ones(work.keys.size, bool)))
    searching = searches(work, merged)
    begin = thread_time()
    Chain(PIMTree(), work.held(np.ones(work.keys.size, bool))[: work.size // SLIDES])
    merging = thread_time() - begin
    return timed(work, inserts(work, Chain(PIMTree(), work.held(mine)), mine), searching) | {"merge_s": merging}


def chained(work: Work) -> Row:
    mine = work.by_hash == work.busiest
    window = Chain(BTree(), work.held(mine), SLIDES)
    return both(work, window, mine)


def split(work: Work) -> Row:
    mine = np.arange(work.keys.size) % work.n == 0
    window = Scanned(work.held(mine))
    return both(work, window, mine)


def broadcast(work: Work) -> Row:
    window = Scanned(work.keys[: work.size])
    asked = hashed(work.probes, work.n) == work.busiest
    return both(work, window, asks=asked)


def hot_cold(work: Work) -> Row:
    """By the route itself, asked second by second."""
    router = Router("hot_cold", JOINS["inequality"] if work.reach is None else band(work.reach), work.n)
    homes, asked = np.zeros(work.keys.size, np.int64), np.ones((work.keys.size, work.n), bool)
    step = max(work.setting.rate, 1)
    for start in range(0, work.keys.size, step):
        span = slice(start, start + step)
        placed = router.places(start, work.keys[span], work.probes[span])
        homes[span], asked[span] = placed["left"][0], placed["right"][1]
    busiest = int(np.bincount(homes[: work.size], minlength=work.n).argmax())
    window = Chain(BISort(), work.held(homes == busiest))
    return both(work, window, homes == busiest, asked[:, busiest])


STRATEGIES: dict[str, Callable[[Work], Row]] = {
    "hot_cold": hot_cold, "STA, hot": sta_hot, "STA, cold": sta_cold, "PIM": pim, "chained index": chained,
    "split": split, "broadcast": broadcast,
}  # fmt: skip
