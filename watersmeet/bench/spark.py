"""The join on Spark, measured: `watersmeet bench spark`.

Two streams of 4M rows, 20 us from row to row, window 10 s, 1M rows a micro-batch, available now, sink that throws rows
away, RocksDB with changelog checkpoints, local[2]. spark_data.py has the streams and joins, spark_pipelines.py the
contenders, spark_worker.py runs one of them in a process of its own. spark_flat.py has long streams and large windows.

Every contender's results are compared with DuckDB's: count and checksum on a small stream, the count on the measured
one. `run` returns plain data and stores it as JSON; report.py turns that into tables. A quick or scaled-down run shows
that everything works: its ratios are not held against the targets.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.spark_data import JOINS, Answer, answer, compare, part, write
from watersmeet.bench.spark_flat import FLAT, flat
from watersmeet.bench.spark_pipelines import CELLS, CELLS_HDFS, CONTENDERS, DISCARD, OURS, SLOW, SPARK, SPARK_HDFS


@dataclass(frozen=True)
class Sizes:
    """How much a run measures."""

    rows: int = 4_000_000  # of each stream
    batch_rows: int = 1_000_000  # of both streams together
    seconds: float = 10  # of the window
    check_rows: int = 200_000
    check_seconds: float = 1
    cores: int = 2
    memory: str = "6g"
    rounds: int = 3


FULL = Sizes()
QUICK = Sizes(rows=200_000, batch_rows=100_000, seconds=1, check_rows=20_000, check_seconds=0.1, memory="2g", rounds=1)

# (part, against) -> how many times its input rows/s
TARGETS = {
    ("A", SPARK): 12.0,
    ("A", SPARK_HDFS): 4.0,
    ("B", CELLS): 10.0,
    ("B", CELLS_HDFS): None,
    ("A", DISCARD): 0.75,
    ("B", DISCARD): 0.75,
}
RESULTS_TARGET = {"B17": 5e6}  # result rows/s
PARTS = (*JOINS, FLAT)


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    contenders: Sequence[str] | None = None,
    rows: int | None = None,
    rounds: int | None = None,
    out: Path | str | None = None,
    *,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts, `contenders` those to run in them; `say` gets a line a measurement."""
    check_names("only", only, PARTS)
    check_names("contenders", contenders, dict.fromkeys(name for names in CONTENDERS.values() for name in names))
    check_least("rounds", rounds, 1)
    check_least("rows", rows, 1000)
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds, rows=rows or chosen.rows)
    bench = OnSpark(chosen, judged=replace(chosen, rounds=FULL.rounds) == FULL, say=say)

    def measure() -> None:
        for name in only or PARTS:
            wanted = [one for one in CONTENDERS[name] if not contenders or one in contenders]
            if wanted and name == FLAT:
                flat(bench)
            elif wanted:
                bench.part(name, wanted)

    about = {
        "rounds": chosen.rounds,
        "within_seconds": chosen.seconds,
        "rows": chosen.rows,
        "batch_rows": chosen.batch_rows,
        "cores": chosen.cores,
    }
    return bench.report("spark", quick or chosen.rows < FULL.rows, about, measure, out)


class OnSpark(Bench):
    """Part by part."""

    def __init__(self, sizes: Sizes, judged: bool, say: Callable[[str], None] | None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes

    def part(self, name: str, contenders: Sequence[str]) -> None:
        """All contenders on the streams of one part, in turns; those that take many minutes, once."""
        sizes = self.sizes
        with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as folder:
            data = {"check": Path(folder, "check"), "measured": Path(folder, "measured")}
            checks, measured = part(name, sizes.check_seconds), part(name, sizes.seconds)
            write(checks, data["check"], sizes.check_rows, max(4, sizes.check_rows // 2))
            write(measured, data["measured"], sizes.rows, sizes.batch_rows)
            answers = {"check": answer(checks, data["check"]), "measured": answer(measured, data["measured"])}
            rows = answers["measured"].rows
            self.say(f"{name}: {2 * sizes.rows:,} rows in, {rows:,} results ({rows / sizes.rows / 2:.2f} a row)")
            outcomes: dict[str, list[dict[str, Any]]] = {contender: [] for contender in contenders}
            for round in range(sizes.rounds):
                for contender in contenders:
                    if round and contender in SLOW:
                        continue
                    outcome = self.measure(name, contender, data, Path(folder, "scratch"), sizes)
                    if contender != DISCARD:
                        compare(name, contender, outcome, answers)
                    outcomes[contender].append(outcome)
            for contender, rounds in outcomes.items():
                self.record(name, contender, rounds, answers)
        self.compare_speeds(name)

    def measure(
        self, name: str, contender: str, data: dict[str, Path], scratch: Path, sizes: Sizes
    ) -> dict[str, Any]:
        scratch.mkdir()
        spec = {
            "part": name,
            "contender": contender,
            "scratch": str(scratch),
            "seconds": sizes.seconds,
            "check_seconds": sizes.check_seconds,
            "cores": sizes.cores,
            "memory": sizes.memory,
        } | {which: str(folder) for which, folder in data.items()}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "watersmeet.bench.spark_worker"],
                input=json.dumps(spec),
                capture_output=True,
                text=True,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if not line.startswith(("\tat ", "\t... "))]
            raise RuntimeError(f"{name}, {contender} failed:\n" + "\n".join(lines[-40:]))
        outcome = json.loads(done.stdout)
        speed = outcome["measured"]["rows_in"] / outcome["measured"]["seconds"]
        self.say(f"{name:4} {contender:16} {speed:12,.0f} rows/s in")
        return outcome

    def record(self, name: str, contender: str, rounds: list[dict[str, Any]], answers: dict[str, Answer]) -> None:
        """The best of its rounds."""
        speeds = [one["measured"]["rows_in"] / one["measured"]["seconds"] for one in rounds]
        best = rounds[speeds.index(max(speeds))]
        measured = best["measured"]
        self.results.append(
            {
                "workload": name,
                "contender": contender,
                "rows_per_s": max(speeds),
                "results_per_s": measured["rows_out"] / measured["seconds"],
                "rounds": speeds,
                "checked_rows": None if contender == DISCARD else answers["measured"].rows,
                "checked_sum": None if contender == DISCARD else answers["check"].checksum,
                "session_s": best["session_s"],
            }
            | {key: value for key, value in measured.items() if key != "checksum"}
        )

    def compare_speeds(self, name: str) -> None:
        mine = {row["contender"]: row for row in self.results if row["workload"] == name}
        if OURS not in mine:
            return
        for contender, row in mine.items():
            if contender != OURS:
                ratio = mine[OURS]["rows_per_s"] / row["rows_per_s"]
                self.ratio(name, f"{contender}: input rows/s", ratio, TARGETS.get((name, contender)))
        if name in RESULTS_TARGET:
            speed = mine[OURS]["results_per_s"] / 1e6
            self.ratio(name, "million result rows/s", speed, RESULTS_TARGET[name] / 1e6)
