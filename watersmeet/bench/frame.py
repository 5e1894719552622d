"""What all benchmarks have in common: checked options, ratios held against targets, a report that is stored.

A stored report is all that report.py and tools/figures.py read: the machine, versions, the commit and whether the tree
had changes, the command that makes it again, every round of every contender, ratios by median and by best.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from watersmeet.bench import machine


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def check_names(parameter: str, given: Sequence[str] | None, allowed: Collection[str]) -> None:
    for name in given or ():
        if name not in allowed:
            raise ValueError(f"{parameter} must name some of {'; '.join(allowed)}, got {name!r}")


def check_least(parameter: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{parameter} must be at least {least}, got {value}")


def check_strict(small: bool) -> None:
    if small:
        raise ValueError("strict must be given for a run at full size only: smaller ones are not held against targets")


def command(name: str) -> str:
    """The command that this process was started with, if it is the benchmark's own."""
    arguments = sys.argv[1:]
    if arguments[:2] == ["bench", name]:
        return shlex.join(["watersmeet", *arguments])
    if Path(sys.argv[0]).parent.name == name:  # its __main__.py
        return shlex.join(["python", "-m", f"watersmeet.bench.{name}", *arguments])
    return f"watersmeet.bench.{name}.run"


class Bench:
    """Collects results, ratios and what was skipped. `say` gets a line a measurement."""

    def __init__(self, judged: bool, say: Callable[[str], None] | None) -> None:
        self.judged = judged  # whether ratios are held against their targets
        self.say = say or to_stderr
        self.results: list[dict[str, Any]] = []
        self.ratios: list[dict[str, Any]] = []
        self.skipped: dict[str, str] = {}

    def ratio(
        self, workload: str, against: str, value: float, target: float | None = None, sense: str = ">=",
        best: float | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """`value` is by the medians of the rounds and is what is judged, `best` by the best of them."""
        if not self.judged:
            target = None
        ok = None if target is None else bool(value >= target if sense == ">=" else value < target)
        self.ratios.append(
            {"workload": workload} | more
            | {"against": against, "value": value, "best": best, "target": target, "sense": sense, "ok": ok}
        )  # fmt: skip

    def report(
        self, name: str, quick: bool, about: dict[str, Any], measure: Callable[[], None], out: Path | str | None
    ) -> dict[str, Any]:
        """Measure; the results with all that a reader must know of them, stored if `out` is given. After Ctrl-C those
        that there are, and also, though the run has failed, after any error."""
        out = Path(out) if out is not None else None
        if out is not None and not out.parent.is_dir():
            raise ValueError(f"out must be in a folder that exists, got {out}")
        start = perf_counter()
        report = {
            "benchmark": name,
            "quick": quick,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command(name),
            "machine": machine.describe(),
        } | about
        failed: BaseException | None = None
        try:
            measure()
        except BaseException as error:
            if not self.results:
                raise
            failed = error
            self.skipped["what was to follow"] = (
                "interrupted by Ctrl-C" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
            )
        report |= {
            "results": self.results,
            "ratios": self.ratios,
            "skipped": self.skipped,
            "seconds": round(perf_counter() - start, 1),
        }
        if out is not None:
            out.write_text(json.dumps(report, indent=1) + "\n")
        if failed is not None and not isinstance(failed, KeyboardInterrupt):
            raise failed
        return report
