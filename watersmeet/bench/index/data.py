"""Streams for the benchmarks of indexes: keys of several distributions, drifting or increasing if wanted.

As in workloads.py, a row's key depends on (seed, side, position) only, so that any batch can be made just before it is
pushed and all contenders see the same rows. Keys are whole numbers, mostly below 2^32:

    uniform       over all of it
    gaussian      mean 0.5, deviation 0.125 of it                                    (PIM, section 5)
    gamma 3, 3    shape 3, scale 3, with 64 as 2^32; and gamma 1, 5                  (the same)
    rank-size     the key of rank k is C / k: 99% of the keys in 0.01% of the range  (PanJoin, section V: view counts)
    multimodal    eight narrow Gaussians side by side                                (PanJoin, section V)
    increasing    2^10 from row to row, and a little noise: no key comes back

A band is as wide as gives the wanted number of partners, on average, in a full window (the larger, if they differ); for
an equality the keys are as many as that. Rank-size keys are often equal, and have more partners in a large window
whatever the band. Predicates are given as objects, so that no SQL parser is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from watersmeet.bench.workloads import SIDES, mix
from watersmeet.query.expr import Call, Column, Constant, Expr
from watersmeet.query.windows import Last, last

Array = np.ndarray
Uniforms = Callable[[int], Array]  # the n-th array of numbers above 0 and below 1

KEYS = 1 << 32
STEP = 1 << 10  # from row to row of increasing keys
_SAMPLE = 1 << 16
_MODES = 8


def _normal(u: Uniforms) -> Array:
    return np.sqrt(-2 * np.log(u(0))) * np.cos(2 * np.pi * u(1))


DISTRIBUTIONS: dict[str, Callable[[Uniforms], Array]] = {
    "uniform": lambda u: u(0),
    "gaussian": lambda u: 0.5 + 0.125 * _normal(u),
    "gamma 3, 3": lambda u: -np.log(u(0) * u(1) * u(2)) * 3 / 64,
    "gamma 1, 5": lambda u: -np.log(u(0)) * 5 / 64,
    "rank-size": lambda u: np.minimum(2.0**-20 / u(0), 1.0),
    "multimodal": lambda u: (np.floor(u(2) * _MODES) + 0.5) / _MODES + 0.005 * _normal(u),
}
INCREASING = "increasing"


def keys(distribution: str, positions: Array, stream: int, domain: int = KEYS, shift: Array | float = 0.0) -> Array:
    """The keys of a stream at these positions; `shift` moves them, in multiples of the domain."""

    def uniforms(n: int) -> Array:
        salt = np.uint64(8 * stream + n) << np.uint64(40)
        bits = mix(positions.astype(np.uint64) + salt) >> np.uint64(11)
        return (bits + 0.5) * 2.0**-53

    if distribution == INCREASING:
        return positions * STEP + (uniforms(0) * STEP).astype(np.int64)
    return np.floor((DISTRIBUTIONS[distribution](uniforms) + shift) * domain).astype(np.int64)


@cache
def band_for(distribution: str, rows: int, matches: float) -> int:
    """The half width of a band in which a key finds so many partners among so many rows, on average."""
    if distribution == INCREASING:
        return round(matches * STEP)
    if distribution == "uniform":
        return max(0, round((matches * KEYS / rows - 1) / 2))
    stored = np.sort(keys(distribution, np.arange(_SAMPLE), 0))
    probes = np.sort(keys(distribution, np.arange(_SAMPLE), 1))  # in order they are found sooner

    def found(band: int) -> float:
        inside = np.searchsorted(stored, probes + band, "right") - np.searchsorted(stored, probes - band)
        return float(inside.mean()) * rows / _SAMPLE

    low, high = 0, KEYS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) >= matches else (middle + 1, high)
    return low


@dataclass(frozen=True)
class Streams:
    """Two streams and a join over their last rows.

    right_rows: of the right window, if it is not as large as the left one.
    rate: rows of the right stream for every row of the left.
    drift: how far the keys move, in multiples of their range, from position `drift_from` on over `drift_rows` rows.
    """

    name: str
    window_rows: int
    batch_rows: int
    distribution: str = "uniform"
    matches: float = 2.0
    equality: bool = False
    right_rows: int | None = None
    rate: int = 1
    drift: float = 0.0
    drift_from: int = 0
    drift_rows: int = 1
    seed: int = 7

    @property
    def most_rows(self) -> int:
        """Of the larger window."""
        return max(self.window_rows, self.right_rows or 0)

    @property
    def domain(self) -> int:
        return max(1, round(self.window_rows / self.matches)) if self.equality else KEYS

    @property
    def band(self) -> int:
        return 0 if self.equality else band_for(self.distribution, self.most_rows, self.matches)

    @property
    def on(self) -> Expr:
        left, right = Column("l", "key"), Column("r", "key")
        if self.equality:
            return Call("=", (left, right))
        return Call("<=", (Call("abs", (Call("-", (left, right)),)), Constant(self.band)))

    @property
    def window(self) -> Last:
        return last(self.window_rows, self.right_rows or self.window_rows)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("key", pa.int64())])

    def keys(self, side: str, start: int, rows: int) -> Array:
        times = self.rate if side == "right" else 1
        positions = np.arange(start * times, (start + rows) * times, dtype=np.int64)
        shift: Array | float = 0.0
        if self.drift:
            shift = self.drift * np.clip((positions / times - self.drift_from) / self.drift_rows, 0, 1)
        return keys(self.distribution, positions, 2 * self.seed + SIDES.index(side), self.domain, shift)

    def rows(self, side: str, start: int, rows: int) -> pa.RecordBatch:
        """The rows at positions start .. start + rows of the left stream, or what the right has meanwhile."""
        return pa.record_batch([pa.array(self.keys(side, start, rows))], schema=self.schema)
