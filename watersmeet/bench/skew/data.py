"""What the parts of `watersmeet bench skew` have in common: keys, and where routes and partitioners put them.

Elements are counted, not run: a route says of every tuple which element stores it and which ones it probes, so there
may be more of them than cores. `routed` asks the routes of the library; `partitioned` is what the paper compares,
hash, round robin, random, and its own (sections 3.1 and 3.2): a tuple whose key is in the filter of an ASketch of 32
keys and 16 KB goes to one of two elements by turns, all others to a random one of the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.queries import QUERIES, Query
from watersmeet.queries.zipf import uniform
from watersmeet.query.expr import Call, Column, Constant, Expr
from watersmeet.query.plan import compile_plan
from watersmeet.query.windows import Side
from watersmeet.routing.base import hashed
from watersmeet.routing.beliefs import Beliefs
from watersmeet.routing.choose import choose_route
from watersmeet.routing.hot_cold import HotCold
from watersmeet.sketch import ASketch

ZIPF = QUERIES["q7"]
FILTER, WIDTH, DEPTH = 32, 512, 4  # 16 KB of counters, section 4.4

_L, _R = Column("l", "t"), Column("r", "t")
#: Joins of the same keys. As objects: text needs a package that may not be there.
JOINS = {
    "equality": Call("=", (_L, _R)),
    "band": Call("<=", (Call("abs", (Call("-", (_L, _R)),)), Constant(1))),
    "inequality": Call(">", (_L, _R)),
}


def band(reach: int) -> Expr:
    return Call("<=", (Call("abs", (Call("-", (_L, _R)),)), Constant(reach)))


def keys(query: Query, start: int, count: int, stream: int = 0, zipf: float | None = None) -> np.ndarray:
    """The keys that a query is about, as whole numbers in their order."""
    found = query.rows(start, count, stream, zipf=zipf)[query.data.key].to_numpy(zero_copy_only=False)
    return found if found.dtype.kind == "i" else np.round(found * 100).astype(np.int64)


@dataclass(frozen=True)
class Spread:
    """Tuples that each element stores, and tuples that look for partners in it; `tuples`: of both streams."""

    stored: np.ndarray
    probes: np.ndarray
    tuples: int

    @staticmethod
    def busiest(loads: np.ndarray) -> float:
        """To the average one."""
        return float(loads.max() / loads.mean())

    def summary(self) -> dict[str, Any]:
        return {
            "stored": self.busiest(self.stored), "probes": self.busiest(self.probes),
            "imbalance": float(self.stored.max() - self.stored.mean()) / self.tuples,
            "visits": float(self.probes.sum() / self.tuples),
        }  # fmt: skip


def routed(route_name: str, join: str, zipf: float, elements: int, pushes: int, batch: int) -> Spread:
    """What a route does with two Zipf streams. ValueError where it cannot do such a join."""
    router = Router(route_name, JOINS[join], elements)
    stored, probes = np.zeros(elements, np.int64), np.zeros(elements, np.int64)
    for push in range(pushes):
        start = push * batch
        sides = [keys(ZIPF, start, batch, number, zipf) for number in (0, 1)]
        for side, (home, visits) in router.places(start, *sides).items():
            arrived = visits.sum(axis=0, dtype=np.int64)
            probes += arrived
            stored += arrived if router.stores_copies(side) else np.bincount(home, minlength=elements)
    return Spread(stored, probes, 2 * batch * pushes)


class Router:
    """A route of the library, asked batch by batch."""

    def __init__(self, route_name: str, on: Expr, elements: int) -> None:
        schema = pa.schema({"t": pa.int64()})
        plan = compile_plan(on, schema, schema)
        self._route: Any = choose_route(route_name, plan, schema, schema, "inner", elements, talk=True)[0]
        self._beliefs = Beliefs(self._route, plan) if isinstance(self._route, HotCold) else None
        self._plans: dict[Side, Any] = {"left": plan.left, "right": plan.right}

    def stores_copies(self, side: Side) -> bool:
        return self._route.anchor is not None and side != self._route.anchor

    def places(self, start: int, left: np.ndarray, right: np.ndarray) -> dict[Side, tuple[np.ndarray, np.ndarray]]:
        """For each side the element that stores each tuple, and whether it visits each element."""
        rows: dict[Side, pa.RecordBatch] = {
            "left": pa.record_batch({"t": left}), "right": pa.record_batch({"t": right})
        }  # fmt: skip
        if self._beliefs is not None:
            arrived = {side: (batch, start + batch.num_rows - 1) for side, batch in rows.items()}
            self._route = self._route.guided(self._beliefs.look(arrived))
        return {side: self._placed(side, start, batch) for side, batch in rows.items()}

    def _placed(self, side: Side, start: int, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        count, elements = batch.num_rows, self._route.cores
        places = self._route.places(side, self._plans[side].of(batch), np.arange(start, start + count))
        if places.everywhere:
            return places.home, np.ones((count, elements), bool)
        if places.visits is not None:
            bits = np.unpackbits(places.visits.view(np.uint8), axis=1, bitorder="little")
            return places.home, bits[:, :elements].astype(bool)
        visits = np.zeros((count, elements), bool)
        visits[np.arange(count), places.home] = True
        visits[places.rows, places.cores] = True
        return places.home, visits


def partitioned(name: str, found: np.ndarray, elements: int, seed: int = 1) -> np.ndarray:
    """The element that stores each tuple."""
    positions = np.arange(found.size)
    if name == "hash":
        return hashed(found, elements)
    if name == "round robin":
        return positions % elements
    chance = uniform(positions, 9, seed)
    if name == "random":
        return (chance * elements).astype(np.int64)
    assert name == "sta", name
    hot = believed(found)
    home = (chance * (elements - 2)).astype(np.int64)
    home[hot] = elements - 2 + np.arange(int(hot.sum())) % 2
    return home


def believed(found: np.ndarray, step: int = 1000) -> np.ndarray:
    """Which tuples are hot when they come, by the paper's sketch; a step is told apart as a whole."""
    sketch, hot = ASketch(FILTER, WIDTH, DEPTH), np.zeros(found.size, bool)
    for start in range(0, found.size, step):
        some = found[start : start + step]
        if start:  # the filter takes whatever comes first, and calls it cold: Algorithm 1, line 7
            hot[start : start + step] = sketch.hot(some)
        sketch.add(some)
    return hot
