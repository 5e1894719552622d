"""Two streams as they would arrive from an exchange: trades and quotes, out of order, a few far too late.

Every row has an event time `ts`, when it happened, and arrives after a delay: 50 ms on average, but up
to 5 s for one row in 2,000, which took a slow path. Rows are delivered in order of arrival, so event times go
back and forth. `deliveries` cuts the arrivals into slices of 250 ms, one push each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from string import ascii_uppercase

import numpy as np
import pyarrow as pa

ROWS_PER_SECOND = 20_000  # on each stream
SYMBOLS = 1_000
DELAY_US = 50_000  # mean network delay
SLOW_SHARE, SLOW_US = 1 / 2_000, 5_000_000  # rows on the slow path, and their longest delay
DELIVERY_US = 250_000
Pushes = list[tuple[pa.Table, pa.Table]]
START = np.datetime64("2026-01-05T14:30:00", "us").astype(np.int64)


@dataclass(frozen=True)
class Stream:
    """All rows of one stream in order of arrival, and when each arrives (microseconds)."""

    rows: pa.Table
    arrival: np.ndarray


def symbols(count: int = SYMBOLS) -> np.ndarray:
    """Ticker symbols: AAA, AAR, ABI, ..."""
    every = ["".join(letters) for letters in product(ascii_uppercase, repeat=3)]
    return np.array(every[:: len(every) // count][:count])


def generate(rows: int, seed: int) -> tuple[Stream, Stream]:
    """Trades and quotes, `rows` of each, over the same stretch of time around the same prices."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(20, 200, SYMBOLS)  # each symbol's price, from which trades and quotes stray
    quantity = 100 * rng.integers(1, 50, rows)
    venue = np.array(["NYSE", "IEX", "BATS", "EDGX"])[rng.integers(0, 4, rows)]
    trades = _stream(rng, rows, middle, "trade_id", "quantity", quantity)
    quotes = _stream(rng, rows, middle, "quote_id", "venue", venue)
    return trades, quotes


def _stream(
    rng: np.random.Generator, rows: int, middle: np.ndarray, key: str, extra: str, values: np.ndarray
) -> Stream:
    happened = START + np.cumsum(rng.exponential(1e6 / ROWS_PER_SECOND, rows)).astype(np.int64)
    delay = rng.exponential(DELAY_US, rows)
    slow = rng.random(rows) < SLOW_SHARE
    delay[slow] = rng.uniform(0, SLOW_US, slow.sum())
    arrival = happened + delay.astype(np.int64)
    order = np.argsort(arrival, kind="stable")
    symbol = rng.integers(0, SYMBOLS, rows)
    price = np.round(middle[symbol] + rng.normal(0, 0.5, rows), 2)
    table = pa.table(
        {
            key: np.arange(rows),  # in order of arrival: the row's position in its stream
            "ts": pa.array(happened[order], pa.timestamp("us")),
            "symbol": symbols()[symbol],
            "price": price,
            extra: values,
        }
    )
    return Stream(table, arrival[order])


def deliveries(left: Stream, right: Stream) -> Iterator[tuple[pa.Table, pa.Table]]:
    """What arrives of both streams in each slice of time, in order."""
    if not len(left.arrival):
        return
    ends = np.arange(START, max(left.arrival[-1], right.arrival[-1]) + DELIVERY_US, DELIVERY_US)
    cuts = [np.searchsorted(stream.arrival, ends) for stream in (left, right)]
    for i in range(len(ends) - 1):
        left_rows, right_rows = (
            stream.rows.slice(cut[i], cut[i + 1] - cut[i]) for stream, cut in zip((left, right), cuts)
        )
        if left_rows.num_rows or right_rows.num_rows:
            yield left_rows, right_rows
