"""Hot and cold keys on Spark: exact whatever routers believe, and whichever attempt of a map task a core has heard.

On the stand-in for Spark; tests/spark/cases.py and test_crash.py have the route on a real one.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicates import FAMILIES

import watersmeet as wm
from watersmeet.routing import Spread, spread
from watersmeet.spark import held
from watersmeet.spark import router as router_module
from watersmeet.spark.narrow import widened
from watersmeet.spark.packs import HOME, HOT
from watersmeet.spark.router import Router
from watersmeet.spark.spec import compiled
from watersmeet.spark.stores import Tuples

from .standin import StandIn, specified
from .test_contract import LIMITED, SCHEMA, WINDOWS, as_user_writes, expected, numbered, streams

ROWS = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("k", pa.int64())])


def taken(predicate) -> bool:
    try:
        spec = specified(predicate.sql, wm.within(5), "inner", SCHEMA, SCHEMA, "hot_cold", 3)
    except ValueError:
        return False
    return isinstance(spec.route, Spread)


PREDICATES = [each for family in FAMILIES.values() for each in family if taken(each)]


def hash_of(*values) -> int:
    return random.Random(repr(values)).getrandbits(30)


def believes(kind: str, seed: int):
    """Beliefs that have nothing to do with the keys. A task that runs again believes the same: a tuple's own values
    and the counts of its task's input are all that they depend on."""

    def believed(route, side, tuples, counts):
        units, live = route.units(side, tuples)
        live = np.ones(units.size, bool) if live is None else live
        if kind in ("everything", "nothing"):
            return live & (kind == "everything")
        task = hash_of(seed, side, counts.tobytes())
        return live & np.array([hash_of(task, int(unit)) % 2 == 0 for unit in units], bool)

    return believed


class Rerun(StandIn):
    """Every map task runs twice, its input in another order and cut otherwise, and each core hears one of the two."""

    def _packs(self, side, table):
        if table is None or not table.num_rows:
            return []
        order = list(range(table.num_rows))
        attempts = []
        for _ in range(2):
            pieces = table.take(order).to_batches(max_chunksize=self._random.choice([2, 5, 1000]))
            packs = []
            for row in Router(self.spec, side)(iter(pieces)):
                packs += row.set_column(3, "ts", row.column("ts").view(pa.int64())).to_pylist()
            attempts.append(packs)
            self._random.shuffle(order)
        heard = {key: self._random.choice(attempts) for key in self.spec.keys}
        return [pack for key, packs in heard.items() for pack in packs if pack["core"] == key]


@pytest.mark.parametrize("kind", ["everything", "nothing", "random"])
@given(data=st.data())
def test_results_are_those_of_brute_force_whatever_is_believed(kind, data):
    predicate = data.draw(st.sampled_from(PREDICATES))
    window = data.draw(WINDOWS)
    batches = numbered(data.draw(streams(predicate)))
    cores, width = data.draw(st.sampled_from([(1, 16), (2, 16), (3, 2), (8, 16), (8, 3)]))
    carrier = Rerun if window.idle_after == (None, None) and data.draw(st.booleans()) else StandIn
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(router_module, "believed", believes(kind, data.draw(st.integers(0, 99))))
        patch.setattr(spread, "WIDTH", width)
        patch.setattr(held, "HELD_BYTES", 100)
        spec = specified(predicate.sql, as_user_writes(window), "inner", SCHEMA, SCHEMA, "hot_cold", cores)
        spark = carrier(spec, Path(folder), data.draw(st.integers(0, 99)), data.draw(st.sampled_from(LIMITED)))
        results = []
        for both in batches:
            tables = [pa.Table.from_pylist(rows, schema=SCHEMA) for rows in both]
            results.append(spark.batch(*tables, fails=data.draw(st.sampled_from([0, 0, 1]))))
            if data.draw(st.sampled_from([False, False, True])):
                spark.forget_files()
    table = pa.concat_tables(results)
    found = Counter(zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True))
    wanted, late = expected(batches, window, "inner", predicate.holds)
    assert found == wanted
    assert spark.counts["late_left"] + spark.counts["late_right"] == late
    assert spark.counts["rows_left"] == sum(len(left) for left, _ in batches)
    hot = spark.counts["hot_left"] + spark.counts["hot_right"]
    if kind == "nothing":
        assert hot == 0
    elif kind == "everything" and cores > 1:
        assert hot >= found.total() ** 0.5  # all that have partners


def skewed(seed: int, hot: list[int], count: int = 700) -> list[pa.Table]:
    """A micro-batch of both sides for each hot key: half of its rows have it."""
    pick = np.random.default_rng(seed)
    tables = []
    for number, key in enumerate(hot):
        keys = np.where(pick.random(count) < 0.5, key, pick.integers(100, 400, count))
        ts = number * 1000 + np.sort(pick.integers(0, 1000, count))
        tables.append(pa.table({"id": np.arange(count) + number * count, "ts": ts, "k": keys}, schema=ROWS))
    return tables


@pytest.mark.parametrize("on", ["l.k = r.k", "abs(l.k - r.k) <= 1"])
@pytest.mark.parametrize("cores, width", [(2, 16), (8, 16), (8, 3)])
def test_hot_keys_that_change_are_spread(on, cores, width, tmp_path, monkeypatch):
    """By what map tasks see of them, with attempts mixed."""
    monkeypatch.setattr(spread, "WIDTH", width)
    hot = [7, 7, 50, 90, 7]
    sides = skewed(1, hot), skewed(2, hot)
    spec = specified(on, wm.within(30), "inner", ROWS, ROWS, "hot_cold", cores)
    spark = Rerun(spec, tmp_path, 3)
    tables = [spark.batch(left, right) for left, right in zip(*sides, strict=True)]
    found = Counter(
        pair for table in tables for pair in zip(table["id"].to_pylist(), table["id_right"].to_pylist(), strict=True)
    )
    left, right = (pa.concat_tables(side).to_pylist() for side in sides)
    near = 1 if "abs" in on else 0
    by_tick = {}
    for row in right:
        by_tick.setdefault(row["ts"], []).append(row)
    wanted = Counter(
        (a["id"], b["id"])
        for a in left for ts in range(a["ts"] - 30, a["ts"] + 31) for b in by_tick.get(ts, ())
        if abs(a["k"] - b["k"]) <= near
    )  # fmt: skip
    assert found == wanted and found.total() > 5_000
    share = (spark.counts["hot_left"] + spark.counts["hot_right"]) / (2 * 700 * len(hot))
    assert share > 0.45
    assert near or share < 0.6, "of cells, others are hot as well: there are few of them"


def test_hot_rows_that_have_expired_are_let_go_of_though_no_others_come(tmp_path):
    """Stores that get nothing any more are gone through as well."""
    spark = StandIn(specified("l.k = r.k", wm.within(30), "inner", ROWS, ROWS, "hot_cold", 4), tmp_path, 3)
    for left, right in zip(skewed(1, [7, 7]), skewed(2, [7, 7]), strict=True):
        spark.batch(left, right)
    full = spark.state_bytes()
    assert spark.counts["hot_left"] > 300
    for number in range(50, 54):
        keys = np.arange(40)
        few = pa.table({"id": keys, "ts": number * 1000 + keys, "k": 1000 + keys + number}, schema=ROWS)
        spark.batch(few, few)
    assert spark.last["stored_left"] <= 80 and spark.state_bytes() < full / 5


def test_a_hot_key_is_kept_by_all_its_cores_and_a_cold_one_at_home():
    spec = specified("l.k = r.k", wm.within(30), "inner", ROWS, ROWS, "hot_cold", 8)
    (table,) = skewed(1, [7], 10_000)
    packs = [row.to_pylist()[0] for row in Router(spec, "left")(iter(table.to_batches(max_chunksize=777)))]
    assert Counter(pack["home"] for pack in packs)[HOT] == 8, "one blob for all"
    kept = []
    join = compiled(spec)
    for key in spec.keys:
        tuples = Tuples(spec, key)
        for pack in packs:
            if pack["core"] == key:
                tuples.add(join, "left", pack["home"], widened(pack["blob"], ROWS))
        counts = tuples.counts()
        kept.append(counts["rows_left"])
        for batch in tuples.home["left"]:
            assert 7 not in batch["k"].to_pylist()
        if tuples.silent["left"]:
            assert tuples.hot(join) == {"left k = 7": table["k"].to_pylist().count(7)}
    assert sum(kept) == 10_000
    assert max(kept) <= 1.2 * 10_000 / 8
    by_hash = np.bincount(np.asarray(table["k"])).max() / (10_000 / 8)
    assert by_hash > 3, "the test has skew"
    assert HOME in {pack["home"] for pack in packs}


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_it_is_for_inner_joins(how):
    with pytest.raises(ValueError, match=f"for inner joins on Spark, not for how='{how}'.*use 'auto' or 'split'"):
        specified("l.k = r.k", wm.within(30), how, ROWS, ROWS, "hot_cold", 8)


def test_an_inequality_is_split():
    assert specified("l.k < r.k", wm.within(30), "inner", ROWS, ROWS, "hot_cold", 8).route.name == "split"
    with pytest.raises(ValueError, match="needs keys that may be hot.*use 'split'"):
        specified("true", wm.within(30), "inner", ROWS, ROWS, "hot_cold", 8)


def test_what_is_held_beyond_memory_is_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(held, "application_folder", lambda: tmp_path)
    (table,) = skewed(1, [7])
    batches = table.to_batches(max_chunksize=100)
    with held.Held(ROWS, most=3000) as kept:
        for number, batch in enumerate(batches):
            kept.add(batch, number)
        assert [(batch.equals(batches[at]), number) for at, (batch, number) in enumerate(kept)] == [
            (True, number) for number in range(len(batches))
        ]
        assert not list(tmp_path.iterdir()), "it has no name"
