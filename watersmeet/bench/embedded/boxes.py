"""Boxes, measured: bands over two and three columns, and SplitJoin's. `watersmeet bench embedded --only boxes`

    plane   x, y doubles, uniform; about one result a tuple; 1M rows a side in the window
    space   x, y, z likewise
    S6      R(x int, y float, z char[20]) and S(a int, b float, c double, d bool), uniform in 1..10^4, +-10 on both;
            as in SplitJoin, section VII

Every push has a batch of either side, and full rows come out. Against it, in turns and in one process: the same join by
one band, with the other checked on what that finds; and DuckDB with cells made by hand (a new batch is exploded to the
cells that its boxes touch, two a dimension, joined by equality with the rows kept, and filtered); and, in the plane,
SciPy's cKDTree, made anew of the rows kept for each batch, which is asked for the points in each box on all cores. All
must give as many rows, with the same sum of their positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.embedded.windows_by_hand import pushes, record
from watersmeet.engine import choose, finder
from watersmeet.query.plan import compile_plan

if TYPE_CHECKING:
    from watersmeet.bench.embedded import Embedded


@dataclass(frozen=True)
class Box:
    name: str
    columns: tuple[tuple[str, str], ...]  # (left, right) of each dimension
    widths: tuple[float, ...]  # on either side
    window: int
    make: Callable[[np.random.Generator, str, np.ndarray], dict[str, Any]]

    @property
    def on(self) -> str:
        bands = zip(self.columns, self.widths, strict=True)
        return " and ".join(f"abs(l.{a} - r.{b}) <= {width!r}" for (a, b), width in bands)

    def batch(self, side: str, start: int, rows: int) -> pa.RecordBatch:
        rng = np.random.default_rng([7, side == "right", start])
        position = np.arange(start, start + rows)
        return pa.record_batch({"ts": position, **self.make(rng, side, position)})


def uniform(dimensions: int, window: int) -> Box:
    """Points of which about one is in the box around another: each finds half of its partners, those before it."""
    names = "xyz"[:dimensions]
    length = (window * 1.0) ** (1 / dimensions)

    def make(rng: np.random.Generator, side: str, position: np.ndarray) -> dict[str, Any]:
        return {name: rng.random(position.size) * length for name in names} | {"value": position}

    return Box({2: "plane", 3: "space"}[dimensions], tuple((n, n) for n in names), (0.5,) * dimensions, window, make)


def splitjoin(window: int) -> Box:
    letters = pa.array(["abcdefghijklmnopqrst", "klmnopqrstabcdefghij"])

    def make(rng: np.random.Generator, side: str, position: np.ndarray) -> dict[str, Any]:
        n = position.size
        whole, real = rng.integers(1, 10_001, n).astype(np.int32), rng.uniform(1, 10_000, n).astype(np.float32)
        if side == "left":
            return {"x": whole, "y": real, "z": letters.take(pa.array(position % 2)), "value": position}
        return {"a": whole, "b": real, "c": rng.random(n), "d": pa.array(position % 2 == 0), "value": position}

    return Box("S6", (("x", "a"), ("y", "b")), (10, 10.0), window, make)


class Ours:
    """`boxes` False: one band is looked for, as it was before there were boxes."""

    def __init__(self, box: Box, boxes: bool):
        self.name = "watersmeet" if boxes else "watersmeet, one band"
        schemas: Any = {f"{side}_schema": box.batch(side, 0, 1).schema for side in ("left", "right")}
        made = choose.compile_plan
        choose.compile_plan = partial(compile_plan, boxes=boxes)  # type: ignore[assignment]
        try:
            self._join = wm.StreamJoin(box.on, wm.within(box.window, time="ts"), **schemas)
            assert ("(box" in self._join.explain()) == boxes
        finally:
            choose.compile_plan = made
        self.looked_at = 0  # candidates

    def fill(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        self._join.push(left=left, right=right)

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Table:
        with self._counting():
            return self._join.push(left=left, right=right)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        check = finder.Finder._checked

        def counted(one: Any, batch: Any, piece: Any) -> Any:
            self.looked_at += piece[1].size
            return check(one, batch, piece)

        finder.Finder._checked = counted  # type: ignore
        try:
            yield
        finally:
            finder.Finder._checked = check  # type: ignore


class DuckDB:
    def __init__(self, box: Box):
        import duckdb

        self.name = "DuckDB, cells"
        self._box = box
        self._rows = {"left": 0, "right": 0}
        self._connection = duckdb.connect()
        self._connection.execute("set preserve_insertion_order = false")
        for side in ("left", "right"):
            self._connection.register("first", self._kept(side, box.batch(side, 0, 1)))
            self._connection.execute(f"create table kept_{side} as from first limit 0")

    def _cells(self, side: str, batch: pa.RecordBatch, low: bool) -> list[np.ndarray]:
        names = [pair[side == "right"] for pair in self._box.columns]
        numbers = [batch.column(name).to_numpy().astype(np.float64) for name in names]
        widths = self._box.widths
        return [np.floor((x - w * low) / (2 * w)).astype(np.int64) for x, w in zip(numbers, widths, strict=True)]

    def _kept(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        for i, cell in enumerate(self._cells(side, batch, False)):
            batch = batch.append_column(f"cell{i}", pa.array(cell))
        return pa.table(batch)

    def _exploded(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        firsts = self._cells(side, batch, True)
        made = []
        for steps in itertools.product((0, 1), repeat=len(firsts)):
            one = batch
            for i, (first, step) in enumerate(zip(firsts, steps, strict=True)):
                one = one.append_column(f"cell{i}", pa.array(first + step))
            made.append(one)
        return pa.Table.from_batches(made)

    def fill(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        for side, batch in (("left", left), ("right", right)):
            self._keep(side, batch)

    def _keep(self, side: str, batch: pa.RecordBatch) -> None:
        self._connection.register("added", self._kept(side, batch))
        self._connection.execute(f"insert into kept_{side} from added")
        oldest = batch.column("ts")[0].as_py() - self._box.window  # the other side may not have got so far yet
        self._rows[side] += batch.num_rows
        if self._rows[side] > 1.5 * self._box.window:
            self._connection.execute(f"create or replace table kept_{side} as from kept_{side} where ts >= {oldest}")
            self._rows[side] = self._box.window

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Table:
        made = [self._joined("left", left)]
        self._keep("left", left)
        made.append(self._joined("right", right))
        self._keep("right", right)
        return pa.concat_tables(made)

    def _joined(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        self._connection.register("new", self._exploded(side, batch))
        box = self._box
        l, r = ("new", "kept_right") if side == "left" else ("kept_left", "new")  # noqa: E741
        same = " and ".join(f"l.cell{i} = r.cell{i}" for i in range(len(box.columns)))
        names = {one: box.batch(one, 0, 1).schema.names for one in ("left", "right")}
        columns = [f"l.{n}" for n in names["left"]] + [f"r.{n} as {n}_right" for n in names["right"]]
        query = f"""select {', '.join(columns)} from {l} l join {r} r on {same}
            where {box.on} and l.ts - r.ts between -{box.window} and {box.window}"""
        return self._connection.sql(query).to_arrow_table()


class KDTree:
    """In units of the box's width, so that a box is a ball of the maximum norm."""

    def __init__(self, box: Box):
        self.name = "cKDTree"
        self._box = box
        self._kept: dict[str, pa.Table | None] = {"left": None, "right": None}

    def _points(self, side: str, rows: pa.Table | pa.RecordBatch) -> np.ndarray:
        names = [pair[side == "right"] for pair in self._box.columns]
        columns = [rows.column(name).to_numpy() / width for name, width in zip(names, self._box.widths, strict=True)]
        return np.column_stack(columns)

    def fill(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        for side, batch in (("left", left), ("right", right)):
            self._keep(side, batch)

    def _keep(self, side: str, batch: pa.RecordBatch) -> None:
        added, kept = pa.table(batch), self._kept[side]
        whole = added if kept is None else pa.concat_tables([kept, added])
        more = whole.num_rows - self._box.window - 2 * batch.num_rows  # than a batch needs
        if more > 0.25 * self._box.window:
            whole = whole.slice(more).combine_chunks()
        self._kept[side] = whole

    def push(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Table:
        made = [self._joined("left", left)]
        self._keep("left", left)
        made.append(self._joined("right", right))
        self._keep("right", right)
        return pa.concat_tables(made)

    def _joined(self, side: str, batch: pa.RecordBatch) -> pa.Table:
        from scipy.spatial import cKDTree

        far = "right" if side == "left" else "left"
        kept = self._kept[far]
        assert kept is not None
        tree = cKDTree(self._points(far, kept))
        lists = tree.query_ball_point(self._points(side, batch), 1.0 + 1e-9, p=np.inf, workers=-1)
        sizes = np.fromiter(map(len, lists), np.int64, len(lists))
        partners = np.fromiter(itertools.chain.from_iterable(lists), np.int64, sizes.sum())
        rows = {side: pa.table(batch).take(np.repeat(np.arange(len(lists)), sizes)), far: kept.take(partners)}
        keep = np.abs(rows["left"]["ts"].to_numpy() - rows["right"]["ts"].to_numpy()) <= self._box.window
        for (a, b), width in zip(self._box.columns, self._box.widths, strict=True):
            keep &= np.abs(rows["left"][a].to_numpy() - rows["right"][b].to_numpy()) <= width
        names = [*rows["left"].column_names, *(f"{name}_right" for name in rows["right"].column_names)]
        whole = pa.table([*rows["left"].columns, *rows["right"].columns], names)
        return whole.filter(pa.array(keep))


def measure(bench: Embedded, window: int, rows: int, rounds: int) -> None:
    for box in (uniform(2, window), uniform(3, window), splitjoin(window)):
        race(bench, box, rows, rounds)


def race(bench: Embedded, box: Box, rows: int, rounds: int) -> None:
    ours = Ours(box, True)
    contenders: list[Any] = [ours, DuckDB(box), Ours(box, False)]
    if box.name == "plane":
        contenders.append(KDTree(box))
    seconds: dict[str, list[float]] = {each.name: [] for each in contenders}
    results = 0
    for found in pushes(contenders, box.batch, box.window, rows, rounds):
        answers = {}
        for each, (took, table) in zip(contenders, found, strict=True):
            seconds[each.name].append(took)
            value = table.column("value_right" if "value_right" in table.column_names else "value")
            answers[each.name] = (table.num_rows, int(np.sum(value.to_numpy())))
        if len(set(answers.values())) > 1:
            raise AnswersDiffer(f"boxes, {box.name}: (rows, sum of positions) differ: {answers}")
        results += answers[ours.name][0]
    about = {"workload": "boxes", "window": box.window, "batch": rows, "setting": f"{box.name}: {box.on}"}
    record(bench, about, seconds, results, targets.BOXES[box.name])
    candidates = ours.looked_at / max(results, 1)
    bench.ratio(
        "boxes", f"candidates a result: {box.name}", candidates, targets.CANDIDATES.get(box.name), "<", candidates,
        window=box.window, batch=rows,
    )  # fmt: skip
