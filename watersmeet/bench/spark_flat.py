"""Does a micro-batch cost the same at the end of a stream as at its beginning, and how much more with a large window?

    python -m watersmeet.bench.spark_flat                    10 to 20 minutes on 2 cores
    python -m watersmeet.bench.spark_flat --rows 10000       a first look

    long     40 micro-batches with a window of 500,000 rows a side: the last ten against the second ten
    large    the same micro-batches with a window of 10M rows a side, once it is full: against those of `long`; and
             the most memory that driver and workers used together

Joins, streams and checks are those of `watersmeet bench spark` (spark_data.py): the larger a window, the more different
keys there are, so that a row always has about two matches.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from watersmeet.bench import machine
from watersmeet.bench.frame import to_stderr
from watersmeet.bench.processes import PeakMemory
from watersmeet.bench.spark import FULL, OnSpark, compare
from watersmeet.bench.spark_data import answer, part, write
from watersmeet.bench.spark_pipelines import OURS

SPACING_US = 20  # from row to row
LONG_BATCHES = 40
MEASURED = 10  # micro-batches that are compared
LARGE = 20  # windows of `long` in that of `large`
GROWTH, LARGE_RATIO, MEMORY_GB = 1.2, 3.0, 6.0


@dataclass(frozen=True)
class Stream:
    name: str
    rows: int  # of each side
    window_rows: int


def streams(window_rows: int, batch_rows: int) -> list[Stream]:
    a_side = batch_rows // 2
    large = LARGE * window_rows
    return [
        Stream("long", LONG_BATCHES * a_side, window_rows),
        Stream("large", -(-large // a_side) * a_side + MEASURED * a_side, large),
    ]


def run(name: str, window_rows: int, batch_rows: int, memory: str) -> dict[str, Any]:
    """Measure one join on both streams."""
    outcome: dict[str, Any] = {"workload": name}
    for stream in streams(window_rows, batch_rows):
        outcome[stream.name] = measure(name, stream, batch_rows, memory)
    second, last, large = (mean(seconds) for seconds in compared(outcome))
    outcome["ratios"] = [
        ratio("last ten micro-batches, of the second ten", last / second, GROWTH),
        ratio("micro-batch with the large window, of the other", large / last, LARGE_RATIO),
        ratio("GB of driver and workers, large window", outcome["large"]["memory"] / 1e9, MEMORY_GB),
    ]
    return outcome


def compared(outcome: dict[str, Any]) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the second ten and the last ten of `long`, the last ten of `large`."""
    long, large = (
        [batch["seconds"] for batch in outcome[stream]["batches"] if batch["rows"]] for stream in ("long", "large")
    )
    return long[MEASURED : 2 * MEASURED], long[-MEASURED:], large[-MEASURED:]


def measure(name: str, stream: Stream, batch_rows: int, memory: str) -> dict[str, Any]:
    seconds = stream.window_rows * SPACING_US / 1e6
    sizes = replace(FULL, rows=stream.rows, batch_rows=batch_rows, seconds=seconds, check_rows=20_000,
                    check_seconds=0.1, memory=memory)  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="watersmeet-flat-") as folder:
        data = {"check": Path(folder, "check"), "measured": Path(folder, "measured")}
        checks, measured = part(name, sizes.check_seconds), part(name, seconds)
        write(checks, data["check"], sizes.check_rows, sizes.check_rows // 2)
        write(measured, data["measured"], stream.rows, batch_rows)
        to_stderr(f"{name}, {stream.name}: {stream.rows:,} rows a side, window {stream.window_rows:,} rows")
        with PeakMemory() as peak:
            outcome = OnSpark(sizes, judged=False, say=to_stderr).measure(name, OURS, data, Path(folder, "scratch"))
        compare(name, OURS, outcome, {which: answer(one, data[which])
                                      for which, one in (("check", checks), ("measured", measured))})  # fmt: skip
    return outcome["measured"] | {"memory": peak.whole, "private_memory": peak.private}


def ratio(text: str, value: float, most: float) -> dict[str, Any]:
    return {"what": text, "value": round(value, 3), "most": most, "ok": value <= most}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m watersmeet.bench.spark_flat", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("A", "B"), action="append", help="this join; both by default")
    parser.add_argument("--rows", type=int, default=500_000, help="of the window of `long`, a side (%(default)s)")
    parser.add_argument("--batch-rows", type=int, help="of a micro-batch, both sides (2 x rows)")
    parser.add_argument("--memory", default="2g", help="heap of the driver (%(default)s)")
    parser.add_argument("--out", type=Path, help="store the results here, as JSON")
    given = parser.parse_args()
    report: dict[str, Any] = {"benchmark": "spark_flat", "machine": machine.describe(), "rows": given.rows}
    batch_rows = given.batch_rows or 2 * given.rows
    report["results"] = [run(name, given.rows, batch_rows, given.memory) for name in given.only or ("A", "B")]
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1) + "\n")
    for outcome in report["results"]:
        for one in outcome["ratios"]:
            mark = "ok" if one["ok"] else "missed"
            print(f"{outcome['workload']}  {one['what']:<50} {one['value']:6.2f}  (at most {one['most']})  {mark}")


if __name__ == "__main__":
    main()
