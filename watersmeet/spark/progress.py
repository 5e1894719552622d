"""What a running query has done so far, and how it looks in a terminal.

Spark describes each micro-batch by a progress record. `Watch` reads the new ones from a query, without a listener (so
it works on Spark Connect too), and adds them up in `Totals`; `panel` and `line` show them. Records that Spark repeats
while nothing arrives have no rows and add nothing.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from watersmeet.query.windows import SIDES, Side
from watersmeet.spark.clock import shown
from watersmeet.spark.packs import LOADS, OBSERVED

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

SILENT = 3  # micro-batches without a row of one side, before that is worth a warning
FIRST = "first micro-batch: workers start"


@dataclass
class Totals:
    """Sums over micro-batches, and what the latest of them said."""

    rows_in: int = 0
    rows_out: int | None = None  # None: neither the join nor the sink counts them
    late: tuple[int, int] | None = None
    bad: tuple[int, int] = (0, 0)
    batches: int = 0
    batch_id: int = -1
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of each micro-batch that had rows
    warm: tuple[int, int] = (0, 0)  # rows in and out without the first micro-batch, in which Python workers start
    watermark: str | None = None
    memory_bytes: int = 0  # that the state store takes, much of it caches
    state_rows: int | None = None
    state_bytes: int = 0
    runs: int | None = None  # sorted ones that the windows are in
    sides: tuple[int, int] | None = None  # rows in of each, where the join counts them
    sides_per_s: tuple[float, float] | None = None  # in the latest micro-batch
    silent: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})  # micro-batches since its last row
    before_1970: bool = False  # as stream_join had it; True of integer times, too
    hot: tuple[int, int] = (0, 0)  # rows of hot keys, where these are spread
    hot_keys: dict[str, int] = field(default_factory=dict)  # of the latest micro-batch with rows
    loads: list[int] = field(default_factory=list)  # rows that each core holds
    probes: list[int] = field(default_factory=list)  # rows that looked for partners in each core, in that micro-batch
    _standing: int = 0  # micro-batches since the watermark last moved
    _kept: dict[Side, int] = field(default_factory=lambda: {"left": 0, "right": 0})  # rows stored when it fell silent

    def add(self, record: dict[str, Any]) -> None:
        """Take in the record of one micro-batch."""
        took = record["durationMs"].get("triggerExecution", record.get("batchDuration", 0)) / 1000
        counted, rows = counters(record), rows_in(record)
        by_side = None
        if "rows_left" in counted:
            by_side = counted["rows_left"] or 0, counted["rows_right"] or 0
            self.sides = by_side if self.sides is None else (self.sides[0] + by_side[0], self.sides[1] + by_side[1])
        sunk = (record.get("sink") or {}).get("numOutputRows", -1)
        out = counted.get("rows_out", sunk if sunk is not None and sunk >= 0 else None)
        self.batch_id = record["batchId"]
        self.rows_in += rows
        if out is not None:
            self.rows_out = (self.rows_out or 0) + out
        if "late_left" in counted:
            late = self.late or (0, 0)
            self.late = late[0] + (counted["late_left"] or 0), late[1] + (counted["late_right"] or 0)
        if "bad_left" in counted:
            self.bad = self.bad[0] + (counted["bad_left"] or 0), self.bad[1] + (counted["bad_right"] or 0)
        if rows:
            self.batches += 1
            if self.batches > 1:
                self.warm = self.warm[0] + rows, self.warm[1] + (out or 0)
            self.seconds.append(took)
            self.in_per_s = rows / max(took, 1e-3)
            self.out_per_s = (out or 0) / max(took, 1e-3)
        else:
            self.in_per_s = self.out_per_s = 0.0
        if by_side is not None:
            self.sides_per_s = by_side[0] / max(took, 1e-3), by_side[1] / max(took, 1e-3)
        watermark = (record.get("eventTime") or {}).get("watermark")
        if counted and watermark:  # without our counters it is not our query
            before, self.watermark = self.watermark, shown(watermark, self.before_1970) or self.watermark
            self._standing = self._standing + (rows > 0) if before == self.watermark else 0
        operators = record.get("stateOperators") or []
        if operators:
            self.memory_bytes = sum(operator["memoryUsedBytes"] for operator in operators)
        if rows and "rows_left" in counted:
            for side in SIDES:
                if counted[f"rows_{side}"] or counted[f"bad_{side}"]:
                    self.silent[side] = 0
                elif self.silent[side] == 0:
                    self.silent[side], self._kept[side] = 1, self.state_rows or 0
                else:
                    self.silent[side] += 1
        told = loads(counted)
        if told:
            self.hot = self.hot[0] + (counted["hot_left"] or 0), self.hot[1] + (counted["hot_right"] or 0)
        if rows and told:
            self.loads, self.probes = ([each[name] for each in told] for name in ("stored", "probes"))
            keys = [pair for each in told for pair in each["hot"].items()]
            self.hot_keys = dict(sorted(keys, key=lambda pair: -pair[1]))
        if rows and "stored_left" in counted:  # else only those cores are counted whose timers fired
            self.state_rows = (counted["stored_left"] or 0) + (counted["stored_right"] or 0)
            self.state_bytes = counted.get("stored_bytes") or 0
            self.runs = counted.get("runs")

    @property
    def rates(self) -> tuple[float, float] | None:
        """Rows in and out a second, over all micro-batches but the first; None if there is no other."""
        took = sum(self.seconds[1:])
        return (self.warm[0] / took, self.warm[1] / took) if took else None

    @property
    def warning(self) -> str | None:
        """What should be done something about: a side that is silent, while the other's rows pile up."""
        for side in SIDES:
            silent, rows = self.silent[side], self.state_rows or 0
            # The watermark of a micro-batch is known with the next: so it may move once more after the last row.
            if silent >= SILENT and self._standing >= SILENT - 1 and rows > self._kept[side]:
                return (
                    f"{side} has sent nothing for {silent:,} micro-batches: the watermark stands still and {rows:,} "
                    f"rows wait; give the window an idle_after, so that it is not waited for"
                )
        return None


def counters(progress: Any, name: str = OBSERVED) -> dict[str, Any]:
    """The join's counters in one progress record of a query, classic or Connect; empty if it has none.

    Connect gives an observed row as {"values": [...], "schema": {...}}.
    """
    row = (progress.get("observedMetrics") or {}).get(name)
    if row is None:
        return {}
    found = row.asDict() if hasattr(row, "asDict") else dict(row)
    if set(found) == {"values", "schema"}:
        return dict(zip((column["name"] for column in found["schema"]["fields"]), found["values"], strict=True))
    return found


def rows_in(progress: Any) -> int:
    """Rows that came in a micro-batch, by the join's counters; Spark, which gives them, may count files."""
    counted = counters(progress)
    if "rows_left" in counted:
        return sum(counted[name] or 0 for name in ("rows_left", "rows_right", "bad_left", "bad_right"))
    return sum(source["numInputRows"] for source in progress["sources"])  # Connect has no total


def loads(counted: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each core: rows `stored`, `probes` of this micro-batch, and its `hot` keys; of routes for skew."""
    nothing = {"stored": 0, "probes": 0, "hot": {}}
    return [json.loads(each) if each else nothing for each in counted.get(LOADS) or []]


class Watch:
    """Follows one query."""

    def __init__(self, query: StreamingQuery, before_1970: bool = False) -> None:
        self.query, self.totals = query, Totals(before_1970=before_1970)
        self.started = time.monotonic()
        self._seen: tuple[int, str] = (-1, "")
        self._next = 0  # the micro-batch that is to come

    def poll(self) -> bool:
        """Take in what is new; True if anything is."""
        latest = self.query.lastProgress
        if latest is None:
            return False
        record = json.loads(latest.json)
        key = record["batchId"], record["timestamp"]
        if key == self._seen:
            return False
        # Asking for all recent records is slow (thousands of calls into the JVM): only when some were missed.
        records = [record]
        if record["batchId"] > self._next:
            records = [json.loads(one.json) for one in self.query.recentProgress]
        for one in records:
            this = one["batchId"], one["timestamp"]
            if this > self._seen:
                self.totals.add(one)
                self._seen = this
                # A query that waits tells so under the number of the micro-batch to come.
                self._next = one["batchId"] + ("addBatch" in one["durationMs"])
        return True

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started


def panel(watch: Watch, title: str, status: str, ended: bool = False) -> Group:
    """Everything, for a terminal that is redrawn."""
    totals = watch.totals
    head = Text.assemble((title, "bold"), (f"  {clock(watch.elapsed)}  {status}", "dim"))
    table = Table(show_header=False, box=None)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, value in facts(totals, ended):
        table.add_row(f"  {name}", value)
    warned = [Text(f"  warning: {totals.warning}", style="yellow")] if totals.warning else []
    return Group(head, table, *warned)


def facts(totals: Totals, ended: bool = False) -> list[tuple[str, str]]:
    """Name and value of what a watcher wants to know; rates of the latest micro-batch, or of all when it has ended."""
    took = totals.seconds
    rates: tuple[float, float] | None = totals.in_per_s, totals.out_per_s
    if ended or _is_first(totals):
        rates = totals.rates
    rows_in, rows_out = (f"  ({rate:,.0f} rows/s)" for rate in rates) if rates else (f"  ({FIRST})", "")
    later = took[1:] or took
    batch = f"{took[-1]:.2f} s, {sum(later) / len(later):.2f} s on average" if took else "-"
    state = stored(totals)
    late = "-" if totals.late is None else f"{totals.late[0]:,} left, {totals.late[1]:,} right"
    return [
        ("rows in", f"{totals.rows_in:,}{rows_in if took else ''}"),
        ("rows out", "-" if totals.rows_out is None else f"{totals.rows_out:,}{rows_out}"),
        ("micro-batches", f"{totals.batches:,}"),
        ("batch time", batch),
        ("watermark", moment(totals.watermark)),
        ("state", state),
        ("late rows", late),
        *_skew(totals),
        *([("bad rows", f"{totals.bad[0]:,} left, {totals.bad[1]:,} right")] if any(totals.bad) else []),
    ]


def _skew(totals: Totals) -> list[tuple[str, str]]:
    """Hot keys, and how even cores are loaded; nothing for routes that do not look at skew."""
    if not totals.loads:
        return []
    keys = [f"{text} ({count:,})" for text, count in list(totals.hot_keys.items())[:3]]
    share = sum(totals.hot) / max(totals.rows_in, 1)
    more = len(totals.hot_keys) - len(keys)
    hot = ", ".join(keys + ([f"{more} more"] if more else []))
    average = sum(totals.loads) / len(totals.loads)
    busiest = f"{max(totals.loads) / average:.2f} of the average" if average else "-"
    each = " ".join(f"{load:,}" for load in totals.loads[:8]) + (" ..." if len(totals.loads) > 8 else "")
    return [("hot rows", f"{share:.0%}; now {hot or 'none'}"), ("load by core", f"{each} rows, the most {busiest}")]


def _is_first(totals: Totals) -> bool:
    """Whether the latest record is of the first micro-batch with rows, whose speed means nothing."""
    return totals.batches == 1 and totals.in_per_s > 0


def stored(totals: Totals) -> str:
    """What the windows hold; of a query that does not count it, what Spark says of its state store."""
    if totals.state_rows is None:
        return f"{size(totals.memory_bytes)} of memory"
    return f"{totals.state_rows:,} rows, {size(totals.state_bytes)}"


def line(totals: Totals) -> str:
    """The same in one line, for a log."""
    rates = [f"{totals.in_per_s:,.0f} rows/s in", f"{totals.out_per_s:,.0f} rows/s out"]
    parts = [f"batch {totals.batch_id}", *([FIRST] if _is_first(totals) else rates)]
    if totals.seconds:
        parts.append(f"{totals.seconds[-1]:.2f} s")
    parts += [f"watermark {moment(totals.watermark)}", f"state {stored(totals)}"]
    if totals.late is not None:
        parts.append(f"late {sum(totals.late):,}")
    if any(totals.bad):
        parts.append(f"bad {sum(totals.bad):,}")
    return ", ".join(parts)


def moment(watermark: str | None) -> str:
    """2026-01-05T14:30:00.120Z as people write it."""
    return "-" if watermark is None else watermark.replace("T", " ").replace("Z", " UTC")


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError(count)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
