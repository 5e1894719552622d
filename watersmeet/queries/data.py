"""The data sets of the seven queries: streams like them, by what is published, and where the real files are read.

The paper (STA-Join, section 4.3 and table 3) gives for each data set the attribute that is joined on, the exponent of
its keys' distribution and how many tuples were used. How many keys there are, and which are frequent, it shows only in
plots of two of them; the code archive that it names is empty. What we chose where it says nothing:

    data set   the paper                                  chosen here
    taxi       fare of a trip, 17 fields, Zipf 2.24,      fares of $2.50 to $502.50 in steps of 50 cents (the meter's
               173M tuples                                steps); $6.50 comes most, others the more the nearer
    blond      V x I of a circuit, three circuits a       whole watts from 0 to 4,095, the smaller the more frequent;
               file, Zipf 1.8, 200M                       left and right are circuits 1 and 2
    traces     data_len of packets, five kinds of         0 to 65,535 bytes; 1,460 comes most, other frequent ones are
               traffic, Zipf 1.4, 14M                     anywhere; even packets left, odd ones right
    stocks     highest price of a ticker and day,         0.01 to 655.36 dollars in cents; frequent prices are anywhere
               Zipf 1.22, 10M
    zipf       Zipf 0.1 to 2.0, 32M                       100,000 keys, the smaller the more frequent; 1.5 if not told

Event times are those at which rows are sent: the paper plays its files at a given rate, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from watersmeet.queries import files
from watersmeet.queries.zipf import ranks, uniform

Columns = dict[str, pa.Array]
KINDS = files.KINDS


@dataclass(frozen=True)
class DataSet:
    """`fields`: of a row, without its number and time. `made`: rows at some positions of a stream, by exponent and
    seed. `read`: rows of the real files for a stream, 0 or 1; None: there are no files."""

    name: str
    fields: tuple[tuple[str, pa.DataType], ...]
    key: str
    zipf: float
    tuples: int
    made: Callable[[np.ndarray, int, float, int], Columns]
    read: Callable[[Path, int], Iterator[Columns]] | None


def _taxi(positions: np.ndarray, stream: int, zipf: float, seed: int) -> Columns:
    rank = ranks(positions, zipf, 1001, stream, seed)
    step = np.where(rank % 2, (rank + 1) // 2, -(rank // 2)) + 8  # 8: $6.50; one up, one down, two up, ...
    step = np.where(rank > 16, rank, step)  # nothing below $2.50
    medallion = (uniform(positions, stream + 2, seed) * 13_000).astype(np.int64)
    return {"medallion": pa.array(medallion).cast(pa.string()), "fare": pa.array(2.5 + 0.5 * step)}


def _blond(positions: np.ndarray, stream: int, zipf: float, seed: int) -> Columns:
    power = ranks(positions, zipf, 4096, stream, seed).astype(float)
    voltage = 225 + 10 * uniform(positions, stream + 2, seed)
    return {"voltage": pa.array(voltage), "current": pa.array(power / voltage), "power": pa.array(power)}


def _scattered(rank: np.ndarray, first: int) -> np.ndarray:
    """Each rank another of 65,536 values, far from its neighbours."""
    return (rank * 40_503 + first) % 65_536


def _traces(positions: np.ndarray, stream: int, zipf: float, seed: int) -> Columns:
    kind = (uniform(positions, stream + 2, seed) * len(KINDS)).astype(np.int64)
    length = _scattered(ranks(positions, zipf, 65_536, stream, seed), 1_460)
    return {"kind": pa.array(KINDS).take(pa.array(kind)), "data_len": pa.array(length)}


def _stocks(positions: np.ndarray, stream: int, zipf: float, seed: int) -> Columns:
    ticker = (uniform(positions, stream + 2, seed) * 8_000).astype(np.int64)
    cents = _scattered(ranks(positions, zipf, 65_536, stream, seed), 2_500) + 1
    return {"symbol": pa.array(ticker).cast(pa.string()), "high": pa.array(np.round(cents / 100, 2))}


def _zipf(positions: np.ndarray, stream: int, zipf: float, seed: int) -> Columns:
    return {"t": pa.array(ranks(positions, zipf, 100_000, stream, seed))}


_TEXT, _WHOLE, _REAL = pa.string(), pa.int64(), pa.float64()
TAXI = DataSet("NYC taxi", (("medallion", _TEXT), ("fare", _REAL)), "fare", 2.24, 173_000_000, _taxi, files.taxi)
BLOND = DataSet(
    "BLOND", (("voltage", _REAL), ("current", _REAL), ("power", _REAL)), "power", 1.8, 200_000_000, _blond, files.blond
)
TRACES = DataSet(
    "internet traces", (("kind", _TEXT), ("data_len", _WHOLE)), "data_len", 1.4, 14_000_000, _traces, files.traces
)
STOCKS = DataSet("stock market", (("symbol", _TEXT), ("high", _REAL)), "high", 1.22, 10_000_000, _stocks, files.stocks)
ZIPF = DataSet("Zipf", (("t", _WHOLE),), "t", 1.5, 32_000_000, _zipf, None)
