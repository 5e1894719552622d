"""Does a micro-batch cost the same at the end of a stream as at its beginning, and how much more with a large window?

Part "flat" of `watersmeet bench spark`; for each of A and B, and (half as long) for the left join L:

    long     40 micro-batches with a window of 500,000 rows a side: the last ten against the second ten
    large    the same micro-batches with a window of 10M rows a side, once it is full: against those of `long`; and
             the most memory that driver and workers used together, with a heap of 2 GB for the driver

Micro-batches are compared by their medians. The larger a window, the more different keys there are, so that a row
always has about two matches.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.bench import targets
from watersmeet.bench.rounds import median
from watersmeet.bench.spark.data import answer, part, write
from watersmeet.bench.spark.pipelines import OURS
from watersmeet.bench.spark.processes import PeakMemory

if TYPE_CHECKING:
    from watersmeet.bench.spark import OnSpark, Sizes

FLAT = "flat"
JOINS = ("A", "B")
LEFT = "L"
SPACING_US = 20  # from row to row
LONG_BATCHES = 40
LEFT_BATCHES = 20
MEASURED = 10  # micro-batches that are compared
LARGE = 20  # windows of `long` in that of `large`
HEAP = "2g"


@dataclass(frozen=True)
class Stream:
    name: str
    rows: int  # of each side
    window_rows: int


def streams(sizes: Sizes, batches: int = LONG_BATCHES) -> list[Stream]:
    a_side = sizes.batch_rows // 2
    window = round(sizes.seconds * 1e6 / SPACING_US)
    large = LARGE * window
    return [
        Stream("long", batches * a_side, window),
        Stream("large", -(-large // a_side) * a_side + MEASURED * a_side, large),
    ]


def flat(bench: OnSpark) -> None:
    """Measure all joins on both streams."""
    for name in JOINS:
        long, large = (measure(bench, name, stream) for stream in streams(bench.sizes))
        second, last, full = (median(seconds) for seconds in compared(long, large))
        where = f"{name}, {FLAT}"
        bench.ratio(where, "last ten micro-batches, of the second ten", last / second, targets.LAST_TO_SECOND_TEN, "<")
        what = "a micro-batch with the large window, of one without"
        bench.ratio(where, what, full / last, targets.LARGE_WINDOW, "<")
        what = "GB of driver and workers, large window"
        bench.ratio(where, what, large["memory"] / 1e9, targets.LARGE_WINDOW_GB, "<")
    long, large = (measure(bench, LEFT, stream) for stream in streams(bench.sizes, LEFT_BATCHES))
    _, last, full = (median(seconds) for seconds in compared(long, large))
    what = "a micro-batch with the large window, of one without"
    bench.ratio(f"{LEFT}, {FLAT}", what, full / last, targets.LEFT_LARGE_WINDOW, "<")


def compared(long: dict[str, Any], large: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the second ten and the last ten of `long`, the last ten of `large`."""
    few, many = ([batch["seconds"] for batch in one["batches"] if batch["rows"]] for one in (long, large))
    return few[MEASURED : 2 * MEASURED], few[-MEASURED:], many[-MEASURED:]


def measure(bench: OnSpark, name: str, stream: Stream) -> dict[str, Any]:
    seconds = stream.window_rows * SPACING_US / 1e6
    sizes = replace(bench.sizes, rows=stream.rows, seconds=seconds, memory=HEAP)
    with tempfile.TemporaryDirectory(prefix="watersmeet-flat-") as folder:
        wanted, data = part(name, seconds), Path(folder, "data")
        write(wanted, data, sizes.rows, sizes.batch_rows)
        bench.say(f"{name}, {stream.name}: {2 * sizes.rows:,} rows in, windows of {stream.window_rows:,} rows")
        with PeakMemory() as peak:
            outcome = bench.measure(name, OURS, data, Path(folder, "scratch"), sizes)
        bench.check(name, OURS, outcome, answer(wanted, data))
    outcome |= {"memory": peak.whole, "private_memory": peak.private}
    bench.record(f"{name}, {FLAT}", f"{OURS}, {stream.name}", [outcome])
    return outcome
