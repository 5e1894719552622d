"""Two streams of the sea, as they would arrive: what ships report of themselves, and what coastal radars see.

Ships move about a sea of 40 by 30 degrees. Each says by radio every few seconds who and where it is (`reports`). Radars
see the same ships (`contacts`), a little off and without a name: that is why nothing is equal to join on. Rows arrive
after a delay, 100 ms on average; one in 2,000 took a slow path and comes up to 40 s later, out of order or too late.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_SECOND = 20_000  # on each stream
SHIPS = 100_000
SEA = (-10.0, 30.0, 30.0, 60.0)  # longitude from, to; latitude from, to
DEGREES_PER_SECOND = 1e-4  # a fast ship, about 20 knots
SEEN_OFF = 0.001  # what radars err by, in degrees: about 100 m
DELAY_US = 100_000
SLOW_SHARE, SLOW_US = 1 / 2_000, 40_000_000
START = np.datetime64("2026-01-05T06:00:00", "us").astype(np.int64)


@dataclass(frozen=True)
class Sea:
    """Where each ship is at the start, and where it goes."""

    place: np.ndarray  # (ships, 2): longitude, latitude
    speed: np.ndarray  # degrees/s

    def at(self, ship: np.ndarray, micros: np.ndarray) -> np.ndarray:
        return self.place[ship] + self.speed[ship] * ((micros - START) / 1e6)[:, None]


def generate(rows: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """Reports and contacts, `rows` of each, in order of arrival."""
    rng = np.random.default_rng(seed)
    low, high = np.array(SEA[::2]), np.array(SEA[1::2])
    place = rng.uniform(low, high, (SHIPS, 2))
    sea = Sea(place, rng.uniform(-DEGREES_PER_SECOND, DEGREES_PER_SECOND, (SHIPS, 2)))
    names = np.array([f"{200_000_000 + 37 * number}" for number in range(SHIPS)])  # maritime identities have 9 digits
    stations = np.array([f"radar-{number:02}" for number in range(24)])

    ship, micros = _arrivals(rng, rows)
    where = np.round(sea.at(ship, micros), 5)
    reports = {"report_id": np.arange(rows), "ts": _times(micros), "ship": names[ship]}
    reports |= {"lon": where[:, 0], "lat": where[:, 1]}

    ship, micros = _arrivals(rng, rows)
    where = np.round(sea.at(ship, micros) + rng.normal(0, SEEN_OFF, (rows, 2)), 5)
    contacts = {"contact_id": np.arange(rows), "ts": _times(micros), "station": stations[ship % len(stations)]}
    contacts |= {"lon": where[:, 0], "lat": where[:, 1]}
    return pa.table(reports), pa.table(contacts)


def _arrivals(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Which ship, and when, in order of arrival."""
    happened = START + np.cumsum(rng.exponential(1e6 / ROWS_PER_SECOND, rows)).astype(np.int64)
    delay = rng.exponential(DELAY_US, rows)
    slow = rng.random(rows) < SLOW_SHARE
    delay[slow] = rng.uniform(0, SLOW_US, slow.sum())
    order = np.argsort(happened + delay, kind="stable")
    return rng.integers(0, SHIPS, rows), happened[order]


def _times(micros: np.ndarray) -> pa.Array:
    return pa.array(micros, pa.timestamp("us", "UTC"))


def write(table: pa.Table, folder: Path, files: int) -> list[pa.Table]:
    """The stream as files, one a micro-batch, and what is in each. Spark reads files in order of modification."""
    folder.mkdir(parents=True)
    cuts = [table.num_rows * number // files for number in range(files + 1)]
    parts = [table.slice(start, end - start) for start, end in zip(cuts, cuts[1:])]
    for number, part in enumerate(parts):
        path = folder / f"{number:04}.parquet"
        pq.write_table(part, path)
        os.utime(path, (1_767_000_000 + number,) * 2)
    return parts
