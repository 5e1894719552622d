"""Is the demo's answer right? Worked out again from the whole input, by other means than the engine's.

First which rows were late, from the definition (`late_rows`). Then the pairs among the others, all of them
with DuckDB when it is installed, else those of a sample of trades with NumPy, each compared with every quote.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.demo.streams import Pushes

NEVER = np.iinfo(np.int64).min

DUCKDB_PAIRS = """
    with t as (select *, epoch_us(ts) // {width} as cell from trades),
         q as (select *, epoch_us(ts) // {width} + unnest([-1, 0, 1]) as cell from quotes)
    select trade_id, quote_id from t join q on t.symbol = q.symbol and t.cell = q.cell
    where abs(epoch_us(t.ts) - epoch_us(q.ts)) <= {width} and abs(t.price - q.price) <= {band}
"""


def microseconds(rows: pa.Table) -> np.ndarray:
    return rows["ts"].cast(pa.int64()).to_numpy()


def late_rows(pushes: Pushes, lateness: int) -> tuple[np.ndarray, np.ndarray]:
    """For each row of the left and of the right stream: had the join's watermark passed it when it came?"""
    times = [microseconds(rows) for push in pushes for rows in push]
    is_right = np.repeat(np.arange(len(times)) % 2 == 1, [len(t) for t in times])
    time = np.concatenate(times)
    # The watermark of each stream when a row arrives: the greatest time it has shown, less the lateness.
    seen = [np.maximum.accumulate(np.where(is_right == side, time, NEVER)) for side in (False, True)]
    reached = np.minimum(*seen)
    late = (reached != NEVER) & (time < reached - np.where(reached == NEVER, 0, lateness))
    return late[~is_right], late[is_right]


def all_pairs(trades: pa.Table, quotes: pa.Table, band: float, width: int) -> np.ndarray:
    """The answer according to DuckDB, as sorted rows (trade_id, quote_id)."""
    import duckdb

    with duckdb.connect() as db:
        db.register("trades", trades)
        db.register("quotes", quotes)
        pairs = db.sql(DUCKDB_PAIRS.format(width=width, band=band)).fetchnumpy()
    return sorted_pairs(np.asarray(pairs["trade_id"]), np.asarray(pairs["quote_id"]))


def pairs_of(sample: pa.Table, quotes: pa.Table, band: float, width: int) -> np.ndarray:
    """The pairs of a few trades by brute force, as sorted rows (trade_id, quote_id)."""
    times, prices = microseconds(quotes), quotes["price"].to_numpy()
    found = []
    for row in range(sample.num_rows):
        trade = {name: sample[name][row] for name in sample.column_names}
        match = pc.equal(quotes["symbol"], trade["symbol"]).to_numpy().copy()
        match &= np.abs(times - trade["ts"].value) <= width
        match &= np.abs(prices - trade["price"].as_py()) <= band
        found.append(np.flatnonzero(match))
    left = np.repeat(sample["trade_id"].to_numpy(), [len(rows) for rows in found])
    return sorted_pairs(left, quotes["quote_id"].to_numpy()[np.concatenate([*found, np.empty(0, np.int64)])])


def sorted_pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    order = np.lexsort((right, left))
    return np.stack([left[order], right[order]], axis=1)


def same_payload(result: pa.Table, trades: pa.Table, quotes: pa.Table) -> bool:
    """Does every result row carry the columns of its trade and of its quote?"""
    expected = [*trades.take(result["trade_id"]).columns, *quotes.take(result["quote_id"]).columns]
    return len(expected) == result.num_columns and all(
        got.equals(want) for got, want in zip(result.columns, expected)
    )
