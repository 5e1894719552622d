"""How windows are cut into subwindows."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.index import Index
from watersmeet.query.windows import BoundWindow, Side
from watersmeet.window.chain import Chain
from watersmeet.workers import Workers

#: Into how many subwindows a window is cut where its index cannot forget.
_SUBWINDOWS = 2


@dataclass(frozen=True)
class Sizes:
    """None: as suits the index."""

    subwindows: int | None = None
    subwindow_rows: int | None = None
    least_rows: int = 1024

    def chain(
        self, index: Index, window: BoundWindow, sides: tuple[Side, ...], keeps_settled: bool, workers: Workers
    ) -> Chain:
        """An empty chain for the tuples of a stream that has this side of the join, or both."""
        if self._whole(index):
            return Chain(index, None, None, 0, keeps_settled, window.counts, forgets=True, workers=workers)
        lifetime = max(window.lifetime(side) for side in sides)
        share = max(lifetime // (self.subwindows or _SUBWINDOWS), 1)
        least = self.least_rows if self.subwindow_rows is None else min(self.least_rows, self.subwindow_rows)
        span, rows = (None, max(share, least)) if window.counts else (share, None)
        if self.subwindow_rows is not None:
            rows = self.subwindow_rows
        return Chain(index, span, rows, least, keeps_settled, window.counts, workers=workers)

    def text(self, index: Index) -> str:
        if self._whole(index):
            return "1 a window, which forgets its oldest rows"
        return f"{self.subwindows or _SUBWINDOWS} a window"

    def _whole(self, index: Index) -> bool:
        return self.subwindows is None and self.subwindow_rows is None and index.forgets
