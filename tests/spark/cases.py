"""The core of the suite on a real Spark: joins of every kind, in one streaming query.

`check(spark, folder)` runs on any session, classic or Connect. All joins are one query (a union), because what takes
time on Spark is a micro-batch, not what is in it. Each answer is compared with Spark's own batch join and with DuckDB.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duck import answer
from pyspark.errors import StreamingQueryException

import watersmeet as wm
from watersmeet.spark import explain_join, parquet_files, stream_join
from watersmeet.spark.progress import counters, loads

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("k", pa.int32()),
        ("x", pa.int64()),
        ("f", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.string()),
    ]
)
COLUMNS = "id long, ts timestamp, k int, x long, f double, d decimal(9,2), s string"
LATENESS = ("3 seconds", "2 seconds")
#: Spark gives the Python of a driver 10 seconds to start, on however busy a machine; then it is to be started again.
SLOW = "Timed out while waiting for the Python worker to connect back"

#: Each with the same as a condition in SQL; {0} and {1} are the two times in microseconds.
WINDOWS = {
    "within": (wm.within("2 seconds", "1 second", lateness=LATENESS), "{1} - {0} between -2000000 and 1000000"),
    "long": (wm.within("20 seconds", lateness=LATENESS), "{1} - {0} between -20000000 and 20000000"),
    "narrow": (wm.within("100 ms", lateness=LATENESS), "{1} - {0} between -100000 and 100000"),
    "tumbling": (wm.tumbling("3 seconds", lateness=LATENESS), "floor({0} / 3000000) = floor({1} / 3000000)"),
    "hopping": (  # windows begin with each second: two tuples share one if their seconds are less than 4 apart
        wm.hopping("4 seconds", "1 second", lateness=LATENESS),
        "abs(floor({0} / 1000000) - floor({1} / 1000000)) < 4",
    ),
}


@dataclass(frozen=True)
class Case:
    on: str
    window: str
    how: str
    route: str  # that it must take
    wanted: str = "auto"


CASES = [
    Case("l.k = r.k", "within", "inner", "hash"),
    Case("l.k = r.k and l.x < r.x", "tumbling", "full", "hash"),
    Case("l.s = r.s", "hopping", "anti", "hash"),
    Case("abs(l.x - r.x) <= 2", "within", "inner", "cells"),
    Case("abs(l.x - r.x) <= 1", "hopping", "left", "cells"),
    Case("l.f between r.f - 0.5 and r.f + 0.5", "tumbling", "right", "cells"),
    Case("abs(l.x - r.x) <= 4 and abs(l.f - r.f) <= 2.5", "long", "left", "cells"),
    Case("l.k = r.k and abs(l.x - r.x) <= 5 and abs(l.d - r.d) <= 3", "hopping", "full", "hash"),
    Case("l.s = r.s", "within", "inner", "hot_cold", "hot_cold"),
    Case("l.x < r.x", "narrow", "inner", "split"),
    Case("l.f <= r.f", "narrow", "left", "broadcast", "broadcast"),
    Case("l.d * 2 > r.d + 1 and l.k <> r.k", "narrow", "semi", "split"),
    Case("l.d >= r.d", "narrow", "full", "single"),
]


def tuples(seed: int, count: int) -> list[dict]:
    """A stream out of order by less than its lateness, with nulls and NaN, duplicates, and times that many share."""
    pick = random.Random(seed)
    found = []
    for n in range(count):
        ts = BEGIN + n * 50_000 - pick.choice([0, 0, SECOND, pick.randrange(SECOND)])
        found.append(
            {
                "id": n,
                "ts": ts - ts % pick.choice([1, 1000, SECOND // 2]),
                "k": pick.choice([None, *range(6)]),
                "x": pick.choice([None, *range(30)]),
                "f": pick.choice([None, float("nan"), *(i / 4 for i in range(60))]),
                "d": pick.choice([None, *range(20)]),
                "s": pick.choice([None, "", "a", "b", "a longer text"]),
            }
        )
    return found


def write(folder: Path, batches: list[list[dict]]) -> None:
    """A file for each micro-batch; files are read in the order of their times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(batches, len(list(folder.iterdir()))):
        path = folder / f"{number:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def cut(rows: list[dict], pieces: int, seed: int) -> list[list[dict]]:
    """At random places; then a tuple far ahead, which proves that no more partners come."""
    cuts = sorted(random.Random(seed).sample(range(1, len(rows)), pieces - 1))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    nothing = dict.fromkeys(SCHEMA.names) | {"id": -1, "ts": BEGIN + 3600 * SECOND}
    return [*parts, [nothing]]


def read(spark, folder: Path, files: Sequence[str] = ()):
    """A stream of a folder's files; where it is one of these sides by parquet_files."""
    if folder.name in files:
        return parquet_files(spark, str(folder), COLUMNS, maxFilesPerTrigger=1)
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder))


def run(frame, folder: Path):
    """To the end of what is there; the query, when it is done."""
    writer = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
    )
    query = writer.start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if SLOW not in str(error):
            raise
        query = writer.start()
        query.awaitTermination()
    return query


def joined(spark, folder: Path, cases: list[Case], files: Sequence[str] = (), **options):
    """All cases over the streams in this folder, as one stream of (case, l, r)."""
    from pyspark.sql import functions as F

    frames = []
    for number, case in enumerate(cases):
        left, right = (read(spark, folder / side, files) for side in ("left", "right"))
        window = WINDOWS[case.window][0]
        given = {"route": case.wanted} | options
        assert f"route: {case.route} over" in explain_join(left, right, case.on, window, case.how, **given)
        frame = stream_join(left, right, case.on, window, case.how, name=f"case {number}", **given)
        both = (F.col("id"), F.lit(None).cast("long") if case.how in ("semi", "anti") else F.col("id_right"))
        frames.append(frame.select(F.lit(number).alias("case"), both[0].alias("l"), both[1].alias("r")))
    return reduce(lambda a, b: a.union(b), frames)


def counted(table: pa.Table, cases: list[Case]) -> list[Counter]:
    """The results of each case."""
    results: list[Counter] = [Counter() for _ in cases]
    for row in table.to_pylist():
        results[row["case"]][row["l"], row["r"]] += 1
    return results


def check(spark, folder: Path, cases: list[Case] = CASES, rows: int = 300, **options) -> None:
    data = {side: tuples(seed, rows) for side, seed in (("left", 1), ("right", 2))}
    for side, given in data.items():
        write(folder / side, cut(given, 3, len(side)))
    query = run(joined(spark, folder, cases, **options), folder)
    observed = [counters(each, name) for each in query.recentProgress for name in each["observedMetrics"]]
    assert observed
    assert all(each["rebuilt_runs"] == 0 for each in observed), "every run was found in its file"
    if any(case.route == "hot_cold" for case in cases):
        assert sum(each["hot_left"] for each in observed) > 100, "and there were hot keys"
        assert any("left s = 'a longer text'" in core["hot"] for each in observed for core in loads(each))
    for case, found in zip(cases, counted(pq.read_table(folder / "out"), cases), strict=True):
        assert found, f"{case}: the test has no results"
        assert found == from_spark(spark, data, case), case
        assert found == from_duckdb(data, case), case


def from_spark(spark, data, case: Case) -> Counter:
    """Spark's own batch join, which needs no state and knows any predicate."""
    left, right = (
        spark.createDataFrame(
            [tuple(row[name] / SECOND if name == "ts" else row[name] for name in SCHEMA.names) for row in rows],
            COLUMNS.replace("ts timestamp", "ts double").replace("d decimal(9,2)", "d int"),
        ).selectExpr("id", f"cast(round(ts * {SECOND}) as long) as ts", "k", "x", "f", "cast(d as decimal(9,2)) d", "s")
        for rows in data.values()
    )
    left.createOrReplaceTempView("l")
    right.createOrReplaceTempView("r")
    condition = f"({case.on}) and {WINDOWS[case.window][1].format('l.ts', 'r.ts')}"
    kind = {"semi": "left semi", "anti": "left anti"}.get(case.how, case.how)
    columns = "l.id, null" if case.how in ("semi", "anti") else "l.id, r.id"
    return Counter(map(tuple, spark.sql(f"select {columns} from l {kind} join r on {condition}").collect()))


def from_duckdb(data, case: Case) -> Counter:
    connection = duckdb.connect()
    for name, rows in zip("lr", data.values(), strict=True):
        connection.register(f"{name}_rows", pa.Table.from_pylist(rows, schema=SCHEMA))
        connection.execute(f"create table {name} as select * exclude ts, epoch_us(ts) as ts from {name}_rows")
    condition = f"({case.on}) and {re.sub(' / ', ' // ', WINDOWS[case.window][1]).format('l.ts', 'r.ts')}"
    return answer(connection, condition, case.how)
