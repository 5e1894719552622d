"""What may come behind a join, for drivers that are killed: a windowed count, and a join with a third stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import watersmeet as wm
from watersmeet.spark import stream_join

from .cases import LATENESS, SECOND, WINDOWS, Case, from_duckdb, read

FIRST = Case("abs(l.x - r.x) <= 2", "within", "inner", "cells")
BEHIND = ("count", "three")
WINDOW_S = 2  # of the count
THIRD_S = 1  # how near, in time, the third is to the first


def behind(spark, folder: Path):
    """Both in one query, as (case, l, r): (0, begin of a window, how many), (1, first and second, third)."""
    from pyspark.sql import functions as F

    left, right, third = (read(spark, folder / side) for side in ("left", "right", "left"))
    pairs = stream_join(left, right, FIRST.on, WINDOWS[FIRST.window][0], name="pairs")
    counts = pairs.groupBy(F.window("ts", f"{WINDOW_S} seconds")).count()
    begin = F.unix_timestamp("window.start").alias("l")
    counts = counts.select(F.lit(0).alias("case"), begin, F.col("count").alias("r"))
    window = wm.within(f"{THIRD_S} seconds", lateness=(None, LATENESS[0]))
    three = stream_join(pairs, third, "l.k = r.k and l.x = r.x", window, suffix="_third", name="three")
    both = (F.col("id") * 1_000_000 + F.col("id_right")).alias("l")
    return counts.union(three.select(F.lit(1).alias("case"), both, F.col("id_third").alias("r")))


def expected(data) -> list[Counter]:
    """By brute force over DuckDB's pairs."""
    left = {row["id"]: row for row in data["left"]}
    pairs = list(from_duckdb(data, FIRST).elements())
    windows = Counter(left[one]["ts"] // SECOND // WINDOW_S * WINDOW_S for one, _ in pairs)
    by_key: dict = {}
    for row in left.values():
        if row["k"] is not None and row["x"] is not None:
            by_key.setdefault((row["k"], row["x"]), []).append(row)
    three: Counter = Counter()
    for one, two in pairs:
        for row in by_key.get((left[one]["k"], left[one]["x"]), ()):
            if abs(row["ts"] - left[one]["ts"]) <= THIRD_S * SECOND:
                three[one * 1_000_000 + two, row["id"]] += 1
    return [Counter(windows.items()), three]
