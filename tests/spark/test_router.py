"""Packs: what leaves the router, how much memory that takes, and what markers say."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark.clock import SHIFT
from watersmeet.spark.marker import Marker
from watersmeet.spark.narrow import widened
from watersmeet.spark.packs import ALL, HOME, PACK, PACK_ARROW
from watersmeet.spark.router import Router

from .standin import specified

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
ROWS = 50_000


def rows(count=ROWS):
    random = np.random.default_rng(1)
    return pa.record_batch(
        {"ts": np.sort(random.integers(0, 2**40, count)), "x": random.integers(0, 2**60, count)}, schema=SCHEMA
    )


@pytest.mark.parametrize("how, side", [("inner", "left"), ("inner", "right"), ("left", "right")])
def test_rows_that_go_to_all_cores_are_packed_once_however_many_cores_there_are(how, side):
    cores = 200
    spec = specified("l.x < r.x", wm.within(5), how, SCHEMA, SCHEMA, route="split", cores=cores)
    batch = rows()
    list(Router(spec, side)(iter([batch.slice(0, 10)])))  # what is compiled is no memory of this
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    packs = list(Router(spec, side)(iter([batch])))  # all at once, which Spark never holds
    peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    blobs = {pack.column("blob").buffers()[2].address: pack.column("blob").buffers()[2].size for pack in packs}
    assert sum(blobs.values()) <= 1.1 * batch.nbytes, "one copy of the rows"
    assert peak <= 8 * batch.nbytes, "not one for each core"
    assert [pack["home"][0].as_py() for pack in packs] == [ALL] * cores + [HOME]
    assert {pack["core"][0].as_py() for pack in packs} == set(spec.keys)
    assert widened(packs[7]["blob"][0].as_py(), SCHEMA).equals(batch)


def test_an_anchored_row_stays_at_home():
    spec = specified("l.x < r.x", wm.within(5), "left", SCHEMA, SCHEMA, route="split", cores=8)
    packs = list(Router(spec, "left")(iter([rows(1000)])))
    assert {pack["home"][0].as_py() for pack in packs} == {HOME}
    assert sum(widened(pack["blob"][0].as_py(), SCHEMA).num_rows for pack in packs) == 1000


def test_a_task_sends_one_marker_which_says_how_far_the_other_side_has_come():
    window = wm.within(5, lateness=(30, 7), idle_after=(100, 0))
    spec = specified("l.x = r.x", window, "inner", SCHEMA, SCHEMA)
    schema = pa.schema([SCHEMA.field(0)])
    times = [rows(10).select(["ts"]), pa.record_batch({"ts": [2**41, None, 2**60]}, schema=schema)]
    for side, lateness, away, idle_after in (("left", 30, 7, 100), ("right", 7, 30, 0)):
        (marker,) = Marker(spec, side)(iter(times))
        assert marker.schema == PACK_ARROW and marker.schema.names == PACK.names
        assert marker.num_rows == 1
        millisecond = marker["ts"].cast(pa.int64())[0].as_py() / 1000
        # Spark takes off this side's lateness: what is left is the other's watermark, less idle_after.
        assert millisecond - lateness == SHIFT + 2**41 - away - idle_after
        assert widened(marker["blob"][0].as_py(), SCHEMA).num_rows == 0
    assert list(Marker(spec, "left")(iter([]))) == []
    assert list(Marker(spec, "left")(iter([times[1].slice(1)]))) == [], "no usable time, no marker"
