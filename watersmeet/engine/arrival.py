"""Tuples of one side that have arrived, as the core takes them in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.window.ticks import Span, span_of

Array = np.ndarray

#: A batch that spans many windows is processed in slices of at least this many rows.
_SLICE_ROWS = 4096


class Arrival:
    """Tuples judged for lateness, with the ticks that their partners may have.

    partners: gives the least and greatest ticks of theirs; worked out when asked for.
    positions: in the stream, where a core has only some of its tuples.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        ticks: Array,
        span: Span,
        late: Array | None,
        partners: Callable[[], tuple[Array, Array]],
        positions: Array | None = None,
    ):
        self.batch = batch
        self.rows = batch.num_rows
        self.ticks = ticks
        self.span = span
        self.late = late
        self._partners = partners
        self.positions = positions
        self._bounds: tuple[Array, Array] | None = None

    @property
    def bounds(self) -> tuple[Array, Array]:
        if self._bounds is None:
            self._bounds = self._partners()
        return self._bounds

    @property
    def low(self) -> Array:
        return self.bounds[0]

    @property
    def high(self) -> Array:
        return self.bounds[1]

    @property
    def on_time(self) -> Array | None:
        """Which tuples are not late; None: all."""
        return None if self.late is None else ~self.late

    def slice(self, start: int, stop: int) -> Arrival:
        if stop - start == self.rows:
            return self
        cut = slice(start, stop)
        late = None if self.late is None else self.late[cut]
        return Arrival(
            self.batch.slice(start, stop - start), self.ticks[cut], span_of(self.ticks[cut]), late,
            lambda: (self.low[cut], self.high[cut]), None if self.positions is None else self.positions[cut],
        )  # fmt: skip

    def cuts(self) -> list[tuple[int, int]]:
        """(start, stop) of slices such that each meets few subwindows that are out of its reach.

        One slice, unless the batch spans many windows over time. O(rows).
        """
        n = self.rows
        if n < 2 * _SLICE_ROWS:
            return [(0, n)]
        reach = max(int(self.high[0]) - int(self.low[0]), 1)
        if self.span.greatest - self.span.least <= 2 * reach:
            return [(0, n)]
        so_far = np.maximum.accumulate(self.ticks)
        starts, start = [0], 0
        while n - start >= 2 * _SLICE_ROWS:
            edge = min(int(so_far[start]) + reach, np.iinfo(np.int64).max)
            beyond = int(np.searchsorted(so_far, edge))
            start = max(beyond, start + _SLICE_ROWS)
            if start < n:
                starts.append(start)
        return list(zip(starts, [*starts[1:], n], strict=True))
