"""Late tuples, kept for whoever wants them, the newest up to a limit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

#: (batches, the first of them that is kept, rows of it that are not, rows kept)
Saved = tuple[int, int, int, int]


class LateRows:
    """Batches of late tuples, appended at the end and let go from the front."""

    def __init__(self, limit: int):
        self._limit = limit
        self._batches: list[pa.RecordBatch] = []
        self._first = 0  # the oldest batch of which something is kept
        self._gone = 0  # rows of it that are not
        self._rows = 0

    def save(self) -> Saved:
        """What it takes to `restore` it. O(1), amortised: what was let go before is dropped here."""
        if 2 * self._first > len(self._batches):
            self._batches, self._first = self._batches[self._first :], 0
        return len(self._batches), self._first, self._gone, self._rows

    def restore(self, saved: Saved) -> None:
        length, self._first, self._gone, self._rows = saved
        del self._batches[length:]

    def add(self, batch: pa.RecordBatch, late: np.ndarray) -> None:
        rows = batch.filter(pa.array(late))
        self._batches.append(rows)
        self._rows += rows.num_rows
        while self._rows > self._limit:
            surplus = self._rows - self._limit
            left = self._batches[self._first].num_rows - self._gone
            self._rows -= min(surplus, left)
            if surplus < left:
                self._gone += surplus
            else:
                self._first, self._gone = self._first + 1, 0

    def take(self, schema: pa.Schema) -> pa.Table:
        """Those kept since the last call."""
        kept = self._batches[self._first :]
        if self._gone:
            kept[0] = kept[0].slice(self._gone)
        table = pa.Table.from_batches(kept, schema=schema)
        self._batches, self._first, self._gone, self._rows = [], 0, 0, 0
        return table
