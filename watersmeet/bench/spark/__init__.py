"""The join on Spark, measured: `watersmeet bench spark`.

Two streams of 4M rows, 20 us from row to row, window 10 s, 1M rows a micro-batch, available now, RocksDB with changelog
checkpoints, local[2]. data.py has the streams and joins, pipelines.py the contenders, worker.py runs
one of them in a process of its own. flat.py has long streams and large windows, kafka.py small
micro-batches and latency from topic to topic, first.py the first micro-batch of a session, skew.py has hot
keys.

The results of every timed run are compared with DuckDB's, by a checksum over all columns that the sink computes. Every
round is kept; ratios are by the medians, with those of the best beside them. `run` returns plain data and stores it as
JSON; report.py turns that into tables. A quick or scaled-down run shows that everything works: its ratios are not held
against targets.py.
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

from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.rounds import median
from watersmeet.bench.spark import first, flat, kafka, skew
from watersmeet.bench.spark.checksum import Answer
from watersmeet.bench.spark.data import JOINS, answer, compare, part, write
from watersmeet.bench.spark.pipelines import CONTENDERS, JOINERS, ON_REQUEST, OURS, OURS_FILES, RETURNED, SLOW, settings
from watersmeet.bench.spark.worker import rates


@dataclass(frozen=True)
class Sizes:
    """How much a run measures."""

    rows: int = 4_000_000  # of each stream: a cold micro-batch and seven warm ones
    batch_rows: int = 1_000_000  # of both streams together
    seconds: float = 10  # of the window
    cores: int = 2
    memory: str = "6g"
    rounds: int = 5


FULL = Sizes()
QUICK = Sizes(rows=200_000, batch_rows=100_000, seconds=1, memory="2g", rounds=1)

#: Parts that have their contenders to themselves.
WHOLE = {flat.FLAT: flat.flat, first.FIRST: first.first, kafka.KAFKA: kafka.kafka, skew.SKEW: skew.skew}
PARTS = (*JOINS, *WHOLE)


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
    chosen = replace(chosen, batch_rows=min(chosen.batch_rows, chosen.rows))  # the first micro-batch is not timed
    bench = OnSpark(chosen, judged=replace(chosen, rounds=FULL.rounds) == FULL, say=say)

    def measure() -> None:
        for name in only or PARTS:
            wanted = [
                one for one in CONTENDERS[name]
                if (one in contenders if contenders else (name, one) not in ON_REQUEST)
            ]  # fmt: skip
            if wanted and name in WHOLE:
                WHOLE[name](bench)
            elif wanted:
                bench.part(name, wanted)

    about = {
        "rounds": chosen.rounds,
        "within_seconds": chosen.seconds,
        "rows": chosen.rows,
        "batch_rows": chosen.batch_rows,
        "cores": chosen.cores,
        "cold_apart": True,  # rates are without the first micro-batch
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
            wanted, data = part(name, sizes.seconds), Path(folder, "data")
            write(wanted, data, sizes.rows, sizes.batch_rows)
            right = answer(wanted, data)
            each = right.rows / sizes.rows / 2
            self.say(f"{name}: {2 * sizes.rows:,} rows in, {right.rows:,} results ({each:.2f} a row)")
            outcomes: dict[str, list[dict[str, Any]]] = {contender: [] for contender in contenders}
            for round in range(sizes.rounds):
                for contender in contenders:
                    if not round or contender not in SLOW:
                        outcome = self.measure(name, contender, data, Path(folder, "scratch"), sizes)
                        self.check(name, contender, outcome, right)
                        outcomes[contender].append(outcome)
            for contender, rounds in outcomes.items():
                self.record(name, contender, rounds)
        self.compare_speeds(name)

    def measure(
        self, name: str, contender: str, data: Path, scratch: Path, sizes: Sizes, partitions: int | None = None,
        route: str = "auto",
    ) -> dict[str, Any]:  # fmt: skip
        """What a process that runs a contender tells; by default with as many partitions as cores."""
        scratch.mkdir()
        spec = {
            "part": name,
            "contender": contender,
            "data": str(data),
            "scratch": str(scratch),
            "seconds": sizes.seconds,
            "cores": sizes.cores,
            "partitions": partitions or sizes.cores,
            "route": route,
            "memory": sizes.memory,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "watersmeet.bench.spark.worker"],
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
        found = rates(outcome)
        self.say(f"{name:4} {contender:16} {found['rows_per_s']:12,.0f} rows/s in, cold {found['cold_s']:.1f} s")
        return outcome

    def check(self, name: str, contender: str, outcome: dict[str, Any], right: Answer) -> None:
        """Joins must give DuckDB's results; what joins nothing, all rows or none."""
        got = answer_of(outcome)
        if contender in JOINERS:
            compare(name, contender, got, right)
        elif got.rows != RETURNED[contender] * outcome["rows_in"]:
            raise AnswersDiffer(f"{name}: {contender} gives {got.rows:,} rows for {outcome['rows_in']:,}")

    def record(self, name: str, contender: str, outcomes: list[dict[str, Any]]) -> None:
        """All of its rounds."""
        found = [rates(one) for one in outcomes]
        rounds = {what: [one[what] for one in found] for what in found[0]}
        earliest = outcomes[0]
        self.results.append(
            {
                "workload": name,
                "contender": contender,
                "settings": settings(contender),
                "rows_per_s": max(rounds["rows_per_s"]),
                "results_per_s": max(rounds["results_per_s"]),
                "rounds": rounds["rows_per_s"],
                "results_rounds": rounds["results_per_s"],
                "with_cold_rounds": rounds["with_cold"],
                "cold_s": rounds["cold_s"],
                "rows_in": earliest["rows_in"],
                "rows_out": earliest["rows_out"],
                "checksum": None if contender in RETURNED else str(answer_of(earliest)),
                "runs": [
                    {key: one[key] for key in ("session_s", "wall_s", "batches", "durations", "state_bytes")}
                    for one in outcomes
                ],
            }
            | {key: earliest[key] for key in ("memory", "private_memory") if key in earliest}
        )

    def compare_speeds(self, name: str) -> None:
        mine = {row["contender"]: row for row in self.results if row["workload"] == name}
        for who, of in ((OURS, ""), (OURS_FILES, ", of files")):
            for contender, row in mine.items() if who in mine else ():
                if contender in (who, OURS_FILES):
                    continue
                ours = mine[who]
                value, with_cold = (median(ours[key]) / median(row[key]) for key in ("rounds", "with_cold_rounds"))
                goal = targets.INPUT_ROWS.get((name, contender)) if who == OURS else None  # others read by Spark
                best = ours["rows_per_s"] / row["rows_per_s"]
                self.ratio(name, f"{contender}: input rows/s{of}", value, goal, best=best, with_cold=with_cold)
        if OURS in mine and name in targets.RESULT_ROWS:
            ours = mine[OURS]
            speed, goal = median(ours["results_rounds"]) / 1e6, targets.RESULT_ROWS[name] / 1e6
            self.ratio(name, "million result rows/s", speed, goal, best=ours["results_per_s"] / 1e6)


def answer_of(outcome: dict[str, Any]) -> Answer:
    return Answer(outcome["rows_out"], outcome["checksum"])
