"""What the benchmarks are held against: all targets, in one place.

A ratio is judged by its median (rounds.py), in runs at full size only. One that is missed is named by the run at its
end, by `--strict` in its exit code, and by tools/figures.py where the figure stands in README and docs.
"""

from __future__ import annotations

from typing import Literal

# -- embedded -------------------------------------------------------------------------------------------------
LAST_BATCH = 1 << 15  # batches of band_last that are judged
ARGSORT = {1 << 20: 0.2, 1 << 23: 0.12}  # window -> of np.argsort's keys/s
NESTED_LOOP = {1 << 23: 1000.0}  # window -> times a nested loop
GROWTH = 4.0  # of the cost per tuple, smallest to largest window, less than
BY_HAND = {  # (part, batch) -> times the best peer
    ("B", 5_000): 6.0,
    ("B", 50_000): 4.0,
    ("B", 500_000): 2.5,
    ("A2", 5_000): 4.0,
    ("A2", 50_000): 2.0,
    ("A2", 500_000): 1.5,
}
CORES_WINDOW = 1 << 20  # of the join over the last n that is judged on many cores
CORES = {  # (cores, what comes out, batch) -> times one core
    (2, "rows", 50_000): 1.6,
    (2, "rows", 500_000): 1.6,
    (8, "rows", 50_000): 3.0,
    (8, "rows", 500_000): 5.0,
    (8, "positions", LAST_BATCH): 5.0,
    (16, "rows", 50_000): 4.0,
    (16, "rows", 500_000): 9.0,
}
PUSH = 120.0  # microseconds of a push of a few rows, at most
SORT = {44: 7.0, 64: 17.0}  # keys of up to so many bits -> ns a key, at most
COUNT = 25e6  # tuples/s of a join that counts, in batches of
COUNT_BATCH = 500_000
PAGE = 0.99  # of the speed without one, with a live page and twenty browsers
BOXES = {  # part, by its contenders -> times their tuples/s
    "plane": {"DuckDB, cells": 2.0, "cKDTree": 10.0},
    "space": {"DuckDB, cells": 2.0},
    "S6": {"watersmeet, one band": 20.0},
}
CANDIDATES = {"plane": 6.0}  # looked at for a result, less than
ASOF = {5_000: 3.0, 50_000: 1.0}  # batch -> times Polars' join_asof, with keys
AGGREGATES = 1e6  # left rows/s with a count and a sum, over a million right rows, one core

# -- indexes --------------------------------------------------------------------------------------------------
AUTO_TO_BEST = 0.9  # `auto` in each join, of the best index
AUTO_TO_BISORT = 1.0
SLOWEST_TO_LOOP = 10.0  # the slowest index, times a nested loop,
LOOP_ABOVE = 1 << 12  # in windows above this

# -- Spark ----------------------------------------------------------------------------------------------------
INPUT_ROWS = {  # (part, contender) -> times its input rows/s
    ("A", "spark, rocksdb"): 15.0,
    ("A", "spark, hdfs"): 5.0,
    ("B", "cells, rocksdb"): 15.0,
    ("A", "identity"): 0.7,
    ("B", "identity"): 0.7,
    ("D", "identity"): 0.5,
}
RESULT_ROWS = {"B17": 5e6}  # result rows/s
LAST_TO_SECOND_TEN = 1.2  # micro-batches of 40, less than
LARGE_WINDOW = 3.0  # a micro-batch with 10M rows a side in the window, of one with 500,000, less than
LEFT_LARGE_WINDOW = 2.0  # the same of a left join
LARGE_WINDOW_GB = 6.0  # driver and workers together, less than
FIRST_MICRO_BATCH_S = 3.0  # of a fresh session, beyond the third, less than
SKEWED_MICRO_BATCH = 1.3  # of one with uniform keys, less than
KAFKA = {"micro-batch": 2.0, "p50": 2.2, "p99": 2.2}  # times the same query without a join, less than

# -- GPU ------------------------------------------------------------------------------------------------------
TUPLES_TO_LINK = 0.9  # GB/s of counting joins, lazy, many windows a launch, of copies alone
KEYS_TO_LINK = 2.5  # the same where keys travel alone, in tuples
SMALL_TO_LARGE = 0.7  # GB/s with windows of 1 MB, of those of 16 MB
# GB/s at zipf 1, of that at zipf 0
SKEWED: dict[Literal["hash", "sort_merge"], float] = {"sort_merge": 0.9, "hash": 0.5}
# (device, what travels) -> MB of a window -> (GB/s of the study's program on an H200, times that)
STUDY_HASH: dict[tuple[Literal["cpu", "gpu"], Literal["tuples", "keys"]], dict[int, tuple[float, float]]] = {
    ("gpu", "keys"): {1: (30.0, 1.7), 16: (7.8, 6.0)},
    ("cpu", "tuples"): {1: (7.3, 2.0), 16: (0.26, 20.0)},
}
STUDY_HASH_SKEWED = {1: (14.0, 3.0), 16: (0.9, 40.0)}
STUDY_COUNT_KERNEL = 0.65  # GB/s at 1 MB
COUNTED_TO_STUDY = 4.0
COUNTED_TO_ATOMIC = 5.0
EAGER_TO_LAZY = 1.7  # time of a window, less than
GPU_JOIN_TO_CPU = 5.0  # StreamJoin, band, pairs, last(2^23), batches of 2^18
GPU_JOIN = 60e6  # tuples/s
GPU_LARGE_WINDOW = 0.7  # last(2^26)
GPU_COUNT_TO_PAIRS = 3.0

# -- skew -----------------------------------------------------------------------------------------------------
SKEW_BUSIEST = 1.2  # of the average core's tuples stored and of its probes, hot_cold, Zipf 1.5, 8 cores
SKEW_TO_HASH = 3.0  # rows/s on 8 real cores, Zipf 1.5
SKEW_TO_UNIFORM = 0.7  # the same, of uniform keys with as many results
SKETCH_TOP = 0.95  # of the true top 32
SKETCH_KEYS = 50e6  # keys/s on one core
