"""The seven queries: Q1 and Q2 of the paper's introduction, Q3 to Q7 of its evaluation (STA-Join, sections 1 and 4.3).

    q1   power of two generators, l > r          slide 10 min, length 60 min
    q2   packet sizes at two routers, band       the paper leaves threshold, slide and length open: 100, 10 s, 60 s
    q3   taxi fares, self, l > r                 slide 10 s, length 60 s, the standard of section 4.4, as for q4 to q6
    q4   power of two circuits, l > r
    q5   lengths of packets, |l - r| < 1000
    q6   stocks' highest prices, self, band      the paper leaves the threshold open: 5 cents
    q7   Zipf, self, l > r                       the last 60 s before each row

`SLIDE d ON w` is `hopping(w, d)`: a pair is a result if one of the windows has both. `RANGE w PRECEDING` is
`within(w)`. In a self join a stream meets itself; both orders of a pair, and a row with itself, are asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.queries.data import BLOND, STOCKS, TAXI, TRACES, ZIPF, DataSet
from watersmeet.query.expr import Call, Column, Constant, Expr
from watersmeet.query.windows import Hopping, Within, hopping, within

START_US = 1_767_225_600_000_000  # of event times: 2026-01-01
RATE = 10_000  # tuples/s of a stream, the paper's standard
SECONDS = {"second": 1, "seconds": 1, "minute": 60, "minutes": 60}


@dataclass(frozen=True)
class Query:
    """`streams`: names of the two, or of the one that is joined with itself. `threshold`: of a band; None: l > r."""

    name: str
    about: str
    data: DataSet
    streams: tuple[str, ...]
    threshold: float | None = None
    length: str = "60 seconds"
    slide: str | None = "10 seconds"

    @property
    def is_self(self) -> bool:
        return len(self.streams) == 1

    @property
    def on(self) -> Expr:
        """As an object: text needs a package that may not be there."""
        left, right = Column("l", self.data.key), Column("r", self.data.key)
        if self.threshold is None:
            return Call(">", (left, right))
        return Call("<", (Call("abs", (Call("-", (left, right)),)), Constant(self.threshold)))

    @property
    def sql(self) -> str:
        key = self.data.key
        return f"l.{key} > r.{key}" if self.threshold is None else f"abs(l.{key} - r.{key}) < {self.threshold:g}"

    @property
    def window_text(self) -> str:
        """For job files."""
        return f"within {self.length}" if self.slide is None else f"hopping {self.length}, {self.slide}"

    def window(self, length: Any = None, slide: Any = None, lateness: Any = None) -> Within | Hopping:
        """The paper's, unless lengths are given."""
        length = self.length if length is None else length
        if self.slide is None:
            return within(length, time="ts", lateness=lateness)
        return hopping(length, self.slide if slide is None else slide, time="ts", lateness=lateness)

    @property
    def seconds(self) -> int:
        """Length of the window."""
        number, unit = self.length.split()
        return int(number) * SECONDS[unit]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), *self.data.fields])

    @property
    def spark_schema(self) -> str:
        """Of messages."""
        names = {pa.string(): "string", pa.float64(): "double", pa.int64(): "bigint"}
        return ", ".join(
            f"{name} {names.get(kind, 'timestamp')}" for name, kind in zip(self.schema.names, self.schema.types)
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """Of its streams."""
        return tuple(f"{self.name}-{stream.replace('_', '-')}" for stream in self.streams)

    @property
    def results(self) -> str:
        """The topic of its results."""
        return f"{self.name}-results"

    # -- rows --------------------------------------------------------------------------------------------------------

    def rows(
        self, start: int, count: int, stream: int = 0, rate: float = RATE, seed: int = 1,
        zipf: float | None = None, since: int = START_US,
    ) -> pa.RecordBatch:  # fmt: skip
        """The rows at these positions of a generated stream, so many a second of event time. O(count).

        since: event time of the first row, in microseconds.
        """
        positions = np.arange(start, start + count)
        columns = self.data.made(positions, stream, self.data.zipf if zipf is None else zipf, seed)
        return self._numbered(columns, start, rate, since)

    def read(
        self, path: Path | str, stream: int = 0, rate: float = RATE, rows: int | None = None, since: int = START_US
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the real files, played at this rate; ValueError where they are not what they should be."""
        if self.data.read is None:
            raise ValueError(f"{self.name} has generated data only; leave out the file")
        seen = 0
        for columns in self.data.read(Path(path), stream):
            count = len(columns[self.data.key])
            count = count if rows is None else min(count, rows - seen)
            if count:
                columns = {name: column.slice(0, count) for name, column in columns.items()}
                yield self._numbered(columns, seen, rate, since)
            seen += count
            if rows is not None and seen >= rows:
                return
        if not seen:
            raise ValueError(f"{path} has no rows with {self.data.key}")

    def _numbered(self, columns: dict[str, pa.Array], start: int, rate: float, since: int) -> pa.RecordBatch:
        numbers = np.arange(start, start + len(columns[self.data.key]))
        times = since + (numbers * (1e6 / rate)).astype(np.int64)
        arrays = [pa.array(numbers), pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))]
        arrays += [columns[name].cast(kind) for name, kind in self.data.fields]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


QUERIES = {
    one.name: one
    for one in (
        Query("q1", "power of two generators", BLOND, ("r_gen", "s_gen"), None, "60 minutes", "10 minutes"),
        Query("q2", "packet sizes at two routers", TRACES, ("r_router", "s_router"), 100),
        Query("q3", "taxi fares, self", TAXI, ("taxi",)),
        Query("q4", "power of two circuits", BLOND, ("r_generator", "s_generator")),
        Query("q5", "lengths of packets, band", TRACES, ("r_traces", "s_traces"), 1000),
        Query("q6", "highest prices, self band", STOCKS, ("stock_market",), 0.05),
        Query("q7", "Zipf, self", ZIPF, ("zipf",), None, "60 seconds", None),
    )
}


def query(name: str) -> Query:
    """By its name, in either case."""
    found = QUERIES.get(str(name).lower())
    if found is None:
        raise ValueError(f"query must be one of {', '.join(QUERIES)}, got {name!r}")
    return found
