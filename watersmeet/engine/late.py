"""Late tuples, kept for whoever wants them, the newest up to a limit."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa


class LateRows:
    def __init__(self, limit: int):
        self._limit = limit
        self._batches: deque[pa.RecordBatch] = deque()
        self._rows = 0

    def add(self, batch: pa.RecordBatch, late: np.ndarray) -> None:
        rows = batch.filter(pa.array(late))
        self._batches.append(rows)
        self._rows += rows.num_rows
        while self._rows > self._limit:
            oldest = self._batches.popleft()
            self._rows -= oldest.num_rows
            surplus = self._limit - self._rows
            if surplus > 0:
                kept = oldest.slice(oldest.num_rows - surplus)
                self._batches.appendleft(kept)
                self._rows += kept.num_rows

    def take(self, schema: pa.Schema) -> pa.Table:
        """Those kept since the last call."""
        table = pa.Table.from_batches(list(self._batches), schema=schema)
        self._batches.clear()
        self._rows = 0
        return table
