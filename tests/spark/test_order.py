"""`order=` on Spark: in each partition of a micro-batch results are in order of event time."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark import TaskContext

import watersmeet as wm
from watersmeet.spark import explain_join, stream_join

from .standin import StandIn, specified

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.int64())])
SECOND = 1_000_000
BEGIN = 1_767_225_600 * SECOND
WINDOW = wm.within("2 seconds", lateness="1 second")


def rows(pick: random.Random, batch: int, count: int) -> pa.Table:
    """Out of order within the micro-batch; many with the same time."""
    ids = [batch * 10_000 + n for n in range(count)]
    times = [BEGIN + batch * SECOND + pick.randrange(20) * SECOND // 20 for _ in ids]
    return pa.table({"id": ids, "ts": pa.array(times, SCHEMA.field("ts").type), "x": [pick.randrange(12) for _ in ids]})


def place(row: tuple, order: str) -> tuple:
    """Where a result belongs, by the words of the documentation."""
    left, right = row
    if left is None or right is None:
        return (1, 0, left) if right is None else (1, 1, right)
    later = (right, 1) if right >= left else (left, 0)
    return (0, *later, min(left, right)) if order == "inner" else (0, *later)


@pytest.mark.parametrize("order", ["outer", "inner", wm.punctuate(every=3)], ids=str)
@pytest.mark.parametrize(
    ("on", "how", "cores"),
    [
        ("l.x = r.x", "full", 1), ("abs(l.x - r.x) <= 1", "inner", 3), ("l.x < r.x - 7", "left", 2),
        ("l.x = r.x", "semi", 2),
    ],
)
def test_each_cores_results_of_a_micro_batch_are_in_order(tmp_path, on, how, cores, order):
    pick = random.Random(5)
    batches = [(rows(pick, n, 60), rows(pick, n, 60)) for n in range(6)] + [(rows(pick, 90, 3), rows(pick, 90, 3))]
    found = {}
    for wanted in ("none", order):
        spark = StandIn(specified(on, WINDOW, how, SCHEMA, SCHEMA, cores=cores, order=wanted), tmp_path / str(wanted))
        parts = []
        attempts = spark._attempt

        def attempt(packs, attempts=attempts, parts=parts):
            frames, results = attempts(packs)
            parts.extend(results)  # a batch of results is of one core, for they are few
            return frames, results

        spark._attempt = attempt
        found[wanted] = [row for left, right in batches for row in spark.batch(left, right, fails=0).to_pylist()]
        if wanted == "none":
            continue
        assert sum(part.num_rows for part in parts) == len(found[wanted]) > 100
        for part in parts:
            left = part.column("ts").to_pylist()
            if how == "semi":
                assert left == sorted(left)
            else:
                places = [place(pair, order) for pair in zip(left, part.column("ts_right").to_pylist(), strict=True)]
                assert places == sorted(places)
    key = lambda row: tuple((value is None, value) for value in row.values())  # noqa: E731
    assert sorted(found[order], key=key) == sorted(found["none"], key=key)


def test_results_without_an_order_are_not_in_one(tmp_path):
    """Else the tests above would show nothing."""
    pick = random.Random(5)
    spark = StandIn(specified("l.x = r.x", WINDOW, "inner", SCHEMA, SCHEMA, cores=1), tmp_path)
    for n in range(3):
        found = spark.batch(rows(pick, n, 60), rows(pick, n, 60))
    places = [place(pair, "outer") for pair in zip(found["ts"].to_pylist(), found["ts_right"].to_pylist(), strict=True)]
    assert places != sorted(places)


def test_a_sink_sees_the_order_and_mistakes_are_named_as_embedded(spark, tmp_path):
    pick = random.Random(1)
    frames = []
    for side in ("left", "right"):
        spark.createDataFrame(rows(pick, 0, 200).to_pandas()).coalesce(1).write.parquet(str(tmp_path / side))
        frames.append(spark.readStream.schema("id long, ts timestamp, x long").parquet(str(tmp_path / side)))
    for wrong, message in (("sideways", "order must be one of none, outer, inner or punctuate"), (3, "order must be")):
        with pytest.raises(ValueError, match=message) as here:
            stream_join(*frames, "l.x = r.x", WINDOW, order=wrong)
        with pytest.raises(ValueError) as there:
            wm.StreamJoin("l.x = r.x", WINDOW, order=wrong)
        assert str(here.value) == str(there.value)
    assert "order: inner, by event time, in each partition" in explain_join(*frames, "l.x = r.x", WINDOW, order="inner")
    joined = stream_join(*frames, "l.x = r.x", WINDOW, order="inner")

    def numbered(batches):
        for batch in batches:
            count = [TaskContext.get().partitionId()] * batch.num_rows
            yield batch.append_column("part", pa.array(count, pa.int32()))

    seen = []

    def sink(frame, number):
        wanted = "id long, ts timestamp, x long, id_right long, ts_right timestamp, x_right long, part int"
        seen.extend(frame.mapInArrow(numbered, wanted).select("part", "ts", "ts_right").collect())

    query = joined.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert len(seen) > 1000 and {row.part for row in seen} == {0, 1}
    for part in (0, 1):
        places = [place((row.ts, row.ts_right), "inner") for row in seen if row.part == part]
        assert places == sorted(places)
