"""The stores of a core, and who arrives in each or visits it.

All routes but one have a single store. For hot and cold keys there are further ones (routing/spread.py), in state and
files like the first. The silent ones are two, one for each side: who is stored there must not look for partners there,
and in a store of one side there are none to be found.

                   arrive                                          visit
    own            cold at home, hot kept at home                  other cold ones, all other hot ones
    away           hot kept here, at home elsewhere                all other hot ones
    silent_left    hot left ones at home here, kept elsewhere      cold right ones
    silent_right   hot right ones, likewise                        cold left ones
"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa

from watersmeet.query.windows import SIDES, Side, other
from watersmeet.routing import Route, Spread
from watersmeet.spark.canonical import row_hashes
from watersmeet.spark.packs import ALL, COPIES, HOME, HOT
from watersmeet.spark.spec import Compiled, JoinSpec

Batches = dict[Side, list[pa.RecordBatch]]

#: Hot keys of a side that a core tells of.
TOLD = 8


def further(route: Route) -> tuple[str, ...]:
    """Stores beside the first."""
    return ("away", "silent_left", "silent_right") if isinstance(route, Spread) else ()


class Tuples:
    """What a core gets in a micro-batch, by what it is to do with it."""

    def __init__(self, spec: JoinSpec, key: int):
        self._spec = spec
        self._core = spec.keys.index(key)
        self.home: Batches = {"left": [], "right": []}
        self.copies: Batches = {"left": [], "right": []}
        self.kept: Batches = {"left": [], "right": []}  # hot, at home here and kept here
        self.away: Batches = {"left": [], "right": []}
        self.silent: Batches = {"left": [], "right": []}
        self.passing: Batches = {"left": [], "right": []}  # hot, and only visiting

    def add(self, join: Compiled, side: Side, home: int, batch: pa.RecordBatch) -> None:
        """The tuples of a pack."""
        if home == HOME:
            _put(self.home[side], batch)
        elif home == COPIES:
            _put(self.copies[side], batch)
        else:
            tuples, route = join.side_plan(side).of(batch), self._spec.route
            if home == ALL:
                mine = route.places(side, tuples, join.window.read(batch, side)).home == self._core
                _put(self.home[side], batch, mine)
                _put(self.copies[side], batch, ~mine)
                return
            assert home == HOT and isinstance(route, Spread)
            spots = route.spots(side, tuples, row_hashes(batch))
            at_home, keeps = spots.home == self._core, spots.keeper == self._core
            _put(self.kept[side], batch, at_home & keeps)
            _put(self.away[side], batch, ~at_home & keeps)
            _put(self.silent[side], batch, at_home & ~keeps)
            _put(self.passing[side], batch, ~at_home & ~keeps)

    def leave_late(self, join: Compiled, side: Side, watermark: int | None) -> list[pa.RecordBatch]:
        """Leave out tuples that are late; gives those that this core would have kept."""
        found = []
        for each in self.all():
            each[side], late = _in_time(join, side, each[side], watermark)
            if any(each is kept for kept in (self.home, self.kept, self.away)):
                found += late
        return found

    def all(self) -> tuple[Batches, ...]:
        return self.home, self.copies, self.kept, self.away, self.silent, self.passing

    def arrive(self, store: str, side: Side) -> list[pa.RecordBatch]:
        if store == "":
            stored = self.copies[side] if self._spec.route.anchor is not None else self.kept[side]
            return self.home[side] + stored
        if store == "away":
            return self.away[side]
        return self.silent[side] if store == f"silent_{side}" else []

    def visit(self, store: str, side: Side) -> list[pa.RecordBatch]:
        if self._spec.route.anchor is not None:
            return []
        if store == "":
            return self.copies[side] + self.away[side] + self.silent[side] + self.passing[side]
        if store == "away":
            return self.kept[side] + self.silent[side] + self.passing[side]
        return self.home[side] + self.copies[side] if store == f"silent_{other(side)}" else []

    def counts(self) -> dict[str, int]:
        """Each tuple is counted in the core that keeps it."""
        counts = {"probes": sum(_rows(each[side]) for each in self.all() for side in SIDES)}
        for side in SIDES:
            counts[f"hot_{side}"] = _rows(self.kept[side]) + _rows(self.away[side])
            counts[f"rows_{side}"] = _rows(self.home[side]) + counts[f"hot_{side}"]
        return counts

    def hot(self, join: Compiled) -> dict[str, int]:
        """The hot keys that are at home here, as "left k = 7", and how often they came; the most frequent."""
        found: Counter[str] = Counter()
        route = self._spec.route
        for side in SIDES:
            batches = self.kept[side] + self.silent[side]
            if not batches or not isinstance(route, Spread):
                continue
            units = [route.units(side, join.side_plan(side).of(batch))[0] for batch in batches]
            each, counts = np.unique(np.concatenate(units), return_counts=True)
            columns = sorted(name for one, name in join.plan.columns if one == side[0])
            for at in np.argsort(-counts, kind="stable")[:TOLD]:
                rows = [batch.select(columns).filter(pa.array(those == each[at])).slice(0, 16)
                        for batch, those in zip(batches, units, strict=True)]  # fmt: skip
                found[f"{side} {_text(pa.Table.from_batches(rows), int(each[at]))}"] += int(counts[at])
        return dict(found.most_common(TOLD))


def about(stored: int, probes: int, hot: dict[str, int]) -> str:
    """A core's load, as it travels to those who watch the query."""
    return json.dumps({"stored": stored, "probes": probes, "hot": hot})


def _text(rows: pa.Table, unit: int) -> str:
    """A unit in the user's words: the columns that are the same in all of its tuples."""
    values = {name: rows[name].to_pylist() for name in rows.column_names}
    same = [f"{name} = {some[0]!r}" for name, some in values.items() if some and all(one == some[0] for one in some)]
    return " and ".join(same) or f"cell {unit}"


def _in_time(
    join: Compiled, side: Side, batches: list[pa.RecordBatch], watermark: int | None
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """The tuples that are not late, and those that are."""
    if watermark is None:
        return batches, []
    kept, late = [], []
    for batch in batches:
        ticks = join.window.read(batch, side)
        if int(ticks.min()) < watermark:
            late.append(batch.filter(pa.array(ticks < watermark)))
            batch = batch.filter(pa.array(ticks >= watermark))
        if batch.num_rows:
            kept.append(batch)
    return kept, late


def _put(into: list[pa.RecordBatch], batch: pa.RecordBatch, which: np.ndarray | None = None) -> None:
    if which is not None and not which.all():
        batch = batch.filter(pa.array(which))
    if batch.num_rows:
        into.append(batch)


def _rows(batches: list[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
