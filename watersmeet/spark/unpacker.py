"""The last stage: packs of results become rows.

It runs in the same task as the joiner, hence on the same host: the results themselves go from one to the other through
a memory-mapped file, and through Spark only the path. (Through Spark they would be copied eight times instead of
twice.)
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from watersmeet.spark.cache import in_use, query_folder, take_results
from watersmeet.spark.task import spare_collector

#: Rows handed to Spark at a time: enough that it costs nothing, few enough for its memory.
ROWS = 1 << 17


def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function for `mapInArrow`."""
    spare_collector()
    with in_use(query_folder()):  # from before the first results are written until the last are taken
        for batch in batches:
            for path in batch.column("path").to_pylist():
                for results in take_results(path) if path is not None else ():
                    for start in range(0, results.num_rows, ROWS):
                        yield results.slice(start, ROWS)
