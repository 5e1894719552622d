"""Seeded streams of Arrow batches, and the joins that the benchmarks run over them.

A workload is two endless streams and one join. A row's key is a hash of (seed, side, position), so any batch
can be made just before it is pushed (outside the clock), every contender sees the same rows whatever the
batch size, and nothing has to be kept. `value` is the row's position in its stream, which makes a result
checkable: a result is the pair (left value, right value).

    band_last  key, value       |l.key - r.key| <= 2, last(n)
    A2         ts, key, value   l.key = r.key, within 10 s          20 us between rows: 500,000 rows a window
    B          ts, key, value   |l.key - r.key| <= 2, within 10 s   the same
    push       ts, key, value   as A2 and as B, within 0.2 s        10,000 rows a window, a few rows a batch

Batches alternate: one left, one right, one left, ...

"About 2 matches a tuple" means: an arriving tuple finds 2 partners, on average, among the tuples of the
opposite window that arrived before it (n tuples for `last`, the 500,000 of the last 10 s for A2 and B). Keys
are uniform over a domain chosen for that: n / matches for equality, n * (2 * band + 1) / matches for a band.
Each result is found by the later of its two tuples, so a long run gives `matches` result rows per input row,
both streams counted as input. (Over its life a tuple of A2 or B then takes part in twice as many results:
those of the 10 s before it and of the 10 s after it.) Runners print the measured figure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

BAND = 2
SIDES = ("left", "right")


def mix(bits: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: nearby numbers in, unrelated 64-bit numbers out."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    return bits


@dataclass(frozen=True)
class Workload:
    """Two streams of uniform keys, or of `keys` ones as in Zipf's law, and the join over them.

    `window_rows` is what one side's window holds. `spacing_us` is the time between two rows of a stream; 0
    means that the streams have no time column and the window is `last(window_rows)`.
    """

    name: str
    window_rows: int
    batch_rows: int
    band: int  # 0: equality
    matches: float = 2.0
    spacing_us: int = 0
    seed: int = 7
    zipf: float = 0.0
    keys: int = 0  # how many; 0: as many as give `matches`

    def __post_init__(self) -> None:
        for field in ("window_rows", "batch_rows"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.domain >= 1 << 32:
            raise ValueError(f"window_rows of {self.window_rows} needs keys beyond 32 bits: use a smaller window")
        if self.band < 0 or self.spacing_us < 0 or self.matches <= 0:
            raise ValueError("band and spacing_us must not be negative, matches must be positive")

    @property
    def domain(self) -> int:
        """Keys are uniform over [0, domain)."""
        return self.keys or max(1, round(self.window_rows * (2 * self.band + 1) / self.matches))

    @property
    def window_us(self) -> int:
        return self.window_rows * self.spacing_us

    @property
    def on(self) -> str:
        return "l.key = r.key" if self.band == 0 else f"abs(l.key - r.key) <= {self.band}"

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field("key", pa.int64()), pa.field("value", pa.int64())]
        if self.spacing_us:
            fields.insert(0, pa.field("ts", pa.timestamp("us")))
        return pa.schema(fields)

    def batch(self, side: str, index: int) -> pa.RecordBatch:
        """Batch number `index` of a side."""
        return self.rows(side, index * self.batch_rows, self.batch_rows)

    def rows(self, side: str, start: int, rows: int) -> pa.RecordBatch:
        """The rows at positions start .. start + rows of a side."""
        position = np.arange(start, start + rows, dtype=np.int64)
        stream = np.uint64(2 * self.seed + SIDES.index(side)) << np.uint64(40)
        bits = mix(position.view(np.uint64) + stream) >> np.uint64(32)
        if self.zipf:
            key = np.searchsorted(np.cumsum(shares(self.keys, self.zipf)), bits / 2.0**32).astype(np.uint64)
        else:
            key = (bits * np.uint64(self.domain)) >> np.uint64(32)  # 32 random bits scaled to [0, domain)
        columns = [pa.array(key.view(np.int64)), pa.array(position)]
        if self.spacing_us:
            columns.insert(0, pa.array(position * self.spacing_us).cast(pa.timestamp("us")))
        return pa.record_batch(columns, schema=self.schema)

    def batches_for(self, rows: int) -> int:
        """How many batches of one side hold at least so many rows."""
        return -(-rows // self.batch_rows)

    def scaled(self, **changes: object) -> Workload:
        return replace(self, **changes)  # type: ignore[arg-type]


def shares(keys: int, zipf: float) -> np.ndarray:
    """How often each key comes, as in Zipf's law."""
    weights = 1.0 / np.arange(1, keys + 1) ** zipf
    return weights / weights.sum()


def skewed(zipf: float, *, keys: int = 10_000, matches: float = 2.0, seed: int = 7) -> Workload:
    """An equality, with a window as long as gives so many matches; 20 us between the rows of a stream."""
    window = round(matches / float((shares(keys, zipf) ** 2).sum()))
    return Workload("skewed", window, 1, 0, matches, 20, seed, zipf, keys)


def band_last(window: int, batch: int, *, matches: float = 2.0, seed: int = 7) -> Workload:
    """A band of +-2 over `last(window)`."""
    return Workload("band_last", window, batch, BAND, matches, 0, seed)


def pushes(band: int, rows: int, *, window: int = 10_000, matches: float = 2.0, seed: int = 7) -> Workload:
    """A few rows a push into a window of time; band 0: an equality."""
    return Workload("push", window, rows, band, matches, 20, seed)


def a2(batch: int, *, seconds: float = 10, matches: float = 2.0, seed: int = 7) -> Workload:
    """Equality within 10 s, 20 us between the rows of a stream."""
    return Workload("A2", round(seconds * 50_000), batch, 0, matches, 20, seed)


def b(batch: int, *, seconds: float = 10, matches: float = 2.0, seed: int = 7) -> Workload:
    """A band of +-2 within 10 s, 20 us between the rows of a stream."""
    return Workload("B", round(seconds * 50_000), batch, BAND, matches, 20, seed)
