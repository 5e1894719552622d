"""What the benchmarks are held against: all targets, in one place.

A ratio is judged by its median (rounds.py), in runs at full size only. One that is missed is named by the run at its
end, by `--strict` in its exit code, and by tools/figures.py where the figure stands in README and docs.
"""

from __future__ import annotations

# -- embedded -------------------------------------------------------------------------------------------------
LAST_BATCH = 1 << 15  # batches of band_last that are judged
ARGSORT = {1 << 20: 0.2, 1 << 23: 0.12}  # window -> of np.argsort's keys/s
NESTED_LOOP = {1 << 23: 1000.0}  # window -> times a nested loop
GROWTH = 4.0  # of the cost per tuple, smallest to largest window, less than
BY_HAND = {  # (part, batch) -> times the best peer
    ("B", 5_000): 8.0,
    ("B", 50_000): 3.0,
    ("B", 500_000): 1.5,
    ("A2", 5_000): 3.0,
    ("A2", 500_000): 1.0,
}
PUSH = 120.0  # microseconds of a push of a few rows, at most
COUNT = 25e6  # tuples/s of a join that counts, in batches of
COUNT_BATCH = 500_000

# -- indexes --------------------------------------------------------------------------------------------------
AUTO_TO_BEST = 0.9  # `auto` in each join, of the best index
AUTO_TO_BISORT = 1.0
SLOWEST_TO_LOOP = 10.0  # the slowest index, times a nested loop,
LOOP_ABOVE = 1 << 12  # in windows above this

# -- Spark ----------------------------------------------------------------------------------------------------
INPUT_ROWS = {  # (part, contender) -> times its input rows/s
    ("A", "spark, rocksdb"): 12.0,
    ("A", "spark, hdfs"): 4.0,
    ("B", "cells, rocksdb"): 10.0,
    ("A", "discard"): 0.75,
    ("B", "discard"): 0.75,
}
RESULT_ROWS = {"B17": 5e6}  # result rows/s
LAST_TO_SECOND_TEN = 1.2  # micro-batches of 40, less than
LARGE_WINDOW = 3.0  # a micro-batch with 10M rows a side in the window, of one with 500,000, less than
LARGE_WINDOW_GB = 6.0  # driver and workers together, less than
