"""The join on Spark, measured: `watersmeet bench spark`.

Two streams of 4M rows, 20 us from row to row, window 10 s, 1M rows a micro-batch, available now, sink that throws rows
away, RocksDB with changelog checkpoints, local[2]. spark_data.py has the streams and joins, spark_pipelines.py the
contenders, spark_worker.py runs one of them in a process of its own.

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
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from watersmeet.bench import machine
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.spark_data import PARTS, Answer, answer, part, write
from watersmeet.bench.spark_pipelines import CELLS, CELLS_HDFS, CONTENDERS, DISCARD, OURS, SPARK, SPARK_HDFS


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
    rounds: int = 1


FULL = Sizes()
QUICK = Sizes(rows=200_000, batch_rows=100_000, seconds=1, check_rows=20_000, check_seconds=0.1, memory="2g")

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
    known = dict.fromkeys(name for names in CONTENDERS.values() for name in names)
    for parameter, given, allowed in (("only", only, PARTS), ("contenders", contenders, known)):
        for name in given or ():
            if name not in allowed:
                raise ValueError(f"{parameter} must name some of {'; '.join(allowed)}, got {name!r}")
    for parameter, value, least in (("rounds", rounds, 1), ("rows", rows, 1000)):
        if value is not None and value < least:
            raise ValueError(f"{parameter} must be at least {least}, got {value}")
    out = Path(out) if out is not None else None
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"out must be in a folder that exists, got {out}")
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds, rows=rows or chosen.rows)
    start = perf_counter()
    report: dict[str, Any] = {
        "benchmark": "spark",
        "quick": quick or chosen.rows < FULL.rows,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "rounds": chosen.rounds,
        "within_seconds": chosen.seconds,
        "rows": chosen.rows,
        "batch_rows": chosen.batch_rows,
        "cores": chosen.cores,
    }
    bench = Bench(chosen, judged=replace(chosen, rounds=FULL.rounds) == FULL, say=say or to_stderr)
    for name in only or PARTS:
        bench.part(name, [one for one in CONTENDERS[name] if not contenders or one in contenders])
    report |= {
        "results": bench.results,
        "ratios": bench.ratios,
        "skipped": {},
        "seconds": round(perf_counter() - start, 1),
    }
    if out is not None:
        out.write_text(json.dumps(report, indent=1) + "\n")
    return report


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class Bench:
    """Collects results and ratios, part by part."""

    def __init__(self, sizes: Sizes, judged: bool, say: Callable[[str], None]) -> None:
        self.sizes, self.judged, self.say = sizes, judged, say
        self.results: list[dict[str, Any]] = []
        self.ratios: list[dict[str, Any]] = []

    def part(self, name: str, contenders: Sequence[str]) -> None:
        """All contenders on the streams of one part, in turns."""
        if not contenders:
            return
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
            for _ in range(sizes.rounds):
                for contender in contenders:
                    outcome = self.measure(name, contender, data, Path(folder, "scratch"))
                    if contender != DISCARD:
                        compare(name, contender, outcome, answers)
                    outcomes[contender].append(outcome)
            for contender, rounds in outcomes.items():
                self.record(name, contender, rounds, answers)
        self.compare_speeds(name)

    def measure(self, name: str, contender: str, data: dict[str, Path], scratch: Path) -> dict[str, Any]:
        sizes = self.sizes
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

    def ratio(self, name: str, against: str, value: float, target: float | None) -> None:
        ok = None if target is None or not self.judged else value >= target
        self.ratios.append(
            {"workload": name, "against": against, "value": value, "target": target, "sense": ">=", "ok": ok}
        )


def compare(name: str, contender: str, outcome: dict[str, Any], answers: dict[str, Answer]) -> None:
    """The results must be DuckDB's."""
    got = Answer(outcome["check"]["rows_out"], outcome["check"]["checksum"])
    if got != answers["check"]:
        raise AnswersDiffer(f"{name}, small streams: {contender} gives {got}, DuckDB {answers['check']}")
    if outcome["measured"]["rows_out"] != answers["measured"].rows:
        got_rows, rows = outcome["measured"]["rows_out"], answers["measured"].rows
        raise AnswersDiffer(f"{name}: {contender} gives {got_rows:,} results, DuckDB {rows:,}")
