"""Rows that cannot be joined because their time is null, or is one that Spark's clock cannot hold.

By default such a row ends the query, with an error that names it (`bad_rows="fail"`). Tried again it ends it again: so
it may be left out instead, and counted (`bad_rows="drop"`). One word for both sides, or a pair: left, right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.query.windows import SIDES, BoundTimeWindow, Side
from watersmeet.spark.clock import SparkClock

BAD_ROWS = ("fail", "drop")
REMEDY = "filter such rows out before the join, or have it leave them out and count them with bad_rows='drop'"
_ANY = pa.decimal128(20, 0)


def check_bad_rows(value: Any) -> None:
    each = value if isinstance(value, tuple | list) and len(value) == 2 else (value,)
    if any(one not in BAD_ROWS for one in each):
        raise ValueError(f"bad_rows must be one of {', '.join(BAD_ROWS)}, got {value!r}")


def drops(bad_rows: str | Sequence[str], side: Side) -> bool:
    """Whether bad rows of this side are left out."""
    return (bad_rows if isinstance(bad_rows, str) else bad_rows[SIDES.index(side)]) == "drop"


def good_rows(window: BoundTimeWindow, clock: SparkClock, batch: pa.RecordBatch, side: Side) -> pa.Array | None:
    """Mask of the rows whose time can be used; None: all of them. O(n)."""
    numbers, factor = window.numbers(batch, side)
    first, last = -(-clock.first // factor), clock.last // factor
    found = pc.min_max(numbers).as_py()
    if found["min"] is None or first <= found["min"] <= found["max"] <= last:
        return numbers.is_valid() if numbers.null_count else None
    # Compared as decimals: the bounds may be beyond the column's type.
    wide = numbers.cast(_ANY)
    good = pc.and_(pc.greater_equal(wide, pa.scalar(first, _ANY)), pc.less_equal(wide, pa.scalar(last, _ANY)))
    return pc.fill_null(good, False)


def refuse(window: BoundTimeWindow, clock: SparkClock, batch: pa.RecordBatch, side: Side, good: pa.Array) -> None:
    """Raise for the first row that is not good."""
    name = window.spec.time[SIDES.index(side)]
    row = pc.index(good, False).as_py()
    number = window.numbers(batch, side)[0][row].as_py()
    if number is None:
        raise ValueError(
            f"time column {name!r} of the {side} stream is null in row {row} of this batch; every row needs a time: "
            f"{REMEDY}"
        )
    earlier = " (times before 1970 are taken with before_1970=True)" if clock.since_1970 and number < 0 else ""
    raise ValueError(
        f"time column {name!r} of the {side} stream has a time that Spark's clock cannot hold in row {row} of this "
        f"batch, {number} as a number; it holds {clock.reach}{earlier}: {REMEDY}"
    )
