"""The latest quote before each trade: copy, change, run.

    python examples/latest_quote.py

Trades and quotes come in small batches, a little out of order. What was the last price quoted for its symbol when each
trade was made, if there was any in the 2 seconds before? A trade comes out once, when no better quote can come.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa

import watersmeet as wm

OPENING = datetime(2026, 1, 5, 14, 30)
TRADES = pa.schema({"trade": pa.int64(), "ts": pa.timestamp("ms"), "symbol": pa.string(), "quantity": pa.int64()})
QUOTES = pa.schema({"ts": pa.timestamp("ms"), "symbol": pa.string(), "bid": pa.float64(), "ask": pa.float64()})


def at(milliseconds: int) -> datetime:
    return OPENING + timedelta(milliseconds=milliseconds)


def trades() -> Iterator[pa.Table]:
    """Batches of trades; in earnest from a socket, a queue, a file that grows."""
    rows = [(1, 100, "AAPL", 50), (2, 900, "MSFT", 10), (3, 850, "AAPL", 20), (4, 4000, "AAPL", 70),
            (5, 4100, "MSFT", 5)]  # fmt: skip
    for start in range(0, len(rows), 2):
        some = [dict(zip(TRADES.names, (n, at(ms), *rest), strict=True)) for n, ms, *rest in rows[start : start + 2]]
        yield pa.Table.from_pylist(some, schema=TRADES)


def quotes() -> Iterator[pa.Table]:
    rows = [(0, "AAPL", 187.20, 187.24), (800, "AAPL", 187.30, 187.33), (850, "MSFT", 402.00, 402.05),
            (820, "AAPL", 187.31, 187.34), (2500, "AAPL", 187.10, 187.15), (4050, "AAPL", 187.00, 187.09)]  # fmt: skip
    for start in range(0, len(rows), 3):
        some = [dict(zip(QUOTES.names, (at(ms), *rest), strict=True)) for ms, *rest in rows[start : start + 3]]
        yield pa.Table.from_pylist(some, schema=QUOTES)


def main() -> None:
    # ---- the part to copy ---------------------------------------------------------------------------------
    window = wm.within("2 seconds", "0 seconds", time="ts", lateness="100 ms")
    join = wm.StreamJoin("l.symbol = r.symbol", window, how="left", pick="latest")
    for table in join.run(trades(), quotes()):
        for row in table.to_pylist():
            quoted = "no quote" if row["bid"] is None else f"{row['bid']:.2f} / {row['ask']:.2f}"
            print(f"trade {row['trade']}: {row['quantity']:3} {row['symbol']} at {row['ts']:%H:%M:%S.%f}, {quoted}")
    # -------------------------------------------------------------------------------------------------------


if __name__ == "__main__":
    main()
