"""Samples of a query on Spark: what its progress records have told, as the terminal shows it too."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from watersmeet.page.page import Page
from watersmeet.query.windows import SIDES
from watersmeet.spark.progress import Totals, moment

EVERY = 1.0
_LONGEST = 10 * 365 * 86400.0  # seconds; a watermark that is farther behind the clock is not of the clock's kind


class JobPage:
    """Feeds a page. plan: as `explain_join` tells it."""

    def __init__(self, page: Page, plan: str):
        self._page = page
        self._plan = plan
        self._at = float("-inf")
        self._lost = (0, 0)  # late and bad rows by then

    def show(self, totals: Totals, state: str, now: bool = False) -> None:
        """Once a second, or `now`."""
        at = time.monotonic()
        passed = at - self._at
        if passed >= EVERY or now:
            self._at = at
            lost = sum(totals.late or (0, 0)), sum(totals.bad)
            rates = [(new - old) / passed for new, old in zip(lost, self._lost)]  # the first: none in all time before
            self._lost = lost
            self._page.send(sample_of(totals, state, self._plan, at, rates, time.time()))


def sample_of(
    totals: Totals, state: str, plan: str, at: float, lost: list[float], clock: float
) -> dict[str, Any]:
    """What a page shows of a query. lost: late and bad rows a second. clock: seconds since 1970."""
    took, sides = totals.seconds, totals.sides
    later = took[1:] or took  # Python workers start in the first
    by_side = totals.sides_per_s or (None, None)
    late = totals.late or (None, None)
    figures = {
        "in_left": by_side[0], "in_right": by_side[1], "in": None if totals.sides_per_s else totals.in_per_s,
        "out": None if totals.rows_out is None else totals.out_per_s,
        "p50": took[-1] if took else None, "lag": behind(totals.watermark, clock),
        "rows": totals.state_rows, "runs": totals.runs,
        "bytes": totals.memory_bytes if totals.state_rows is None else totals.state_bytes,
        "late": lost[0], "bad": lost[1],
    }  # fmt: skip
    return {
        "at": at, "state": state, "warning": totals.warning, "figures": figures, "unit": "s",
        "totals": {
            "rows_in": totals.rows_in, "rows_out": totals.rows_out, "calls": totals.batches,
            "late": sum(totals.late or (0, 0)), "bad": sum(totals.bad),
            "mean": sum(later) / len(later) if later else None,
        },
        "watermark": None if totals.watermark is None else moment(totals.watermark),
        "sides": {} if sides is None else {
            side: {"rows_in": sides[i], "late": late[i], "bad": totals.bad[i]} for i, side in enumerate(SIDES)
        },
        "loads": totals.loads, "probes": totals.probes, "hot": totals.hot_keys,
        "hot_share": sum(totals.hot) / max(totals.rows_in, 1), "plan": plan,
    }  # fmt: skip


def behind(watermark: str | None, clock: float) -> float | None:
    """Seconds that a watermark is behind the clock.

    >>> behind("2026-01-05T14:30:00.120Z", 1767623401.62), behind(None, 0.0)
    (1.5, None)
    """
    try:
        then = datetime.fromisoformat(watermark or "").astimezone(UTC).timestamp()
    except ValueError:
        return None
    lag = round(clock - then, 3)
    return lag if abs(lag) < _LONGEST else None
