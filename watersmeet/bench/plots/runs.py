"""What runs of `watersmeet bench` stored, checked before anything is made of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REMEDY = "give files that `watersmeet bench ... --out FILE` has written"
#: what the rows of each list must have
NEEDED = {"results": (), "ratios": ("workload", "against", "value"), "claims": ("row", "claim", "paper")}


@dataclass(frozen=True)
class Run:
    """`name` tells it from others, in headings and in names of plots."""

    name: str
    path: Path
    data: dict[str, Any] = field(repr=False)

    @property
    def benchmark(self) -> str:
        return self.data["benchmark"]

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.data["results"]

    @property
    def machine(self) -> dict[str, Any]:
        return self.data["machine"]

    def part(self, name: str) -> list[dict[str, Any]]:
        return [row for row in self.results if (row.get("part") or row.get("workload")) == name]


def load(paths: Iterable[Path]) -> list[Run]:
    """The runs of these files, each under a name of its own."""
    runs: list[Run] = []
    for path in paths:
        data = read(path)
        taken = {run.name for run in runs}
        name = next(n for n in (path.stem, *(f"{path.stem}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)
        runs.append(Run(name, path, data))
    if not runs:
        raise ValueError(f"results must name at least one file, got none: {REMEDY}")
    return runs


def default() -> list[Path]:
    """The stored figures of the project, or else all that was measured from this folder."""
    for folder in ("docs/figures", "bench-results"):
        found = sorted(Path(folder).glob("*.json"))
        if found:
            return found
    raise ValueError(f"results must be given where there are neither docs/figures nor bench-results: {REMEDY}")


def read(path: Path) -> dict[str, Any]:
    """What a run stored; a ValueError that says what is wrong with it otherwise."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: {REMEDY}")
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: {REMEDY}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text: {REMEDY}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty: the run that should have written it has not ended; {REMEDY}")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON (line {error.lineno}: {error.msg}), perhaps cut off: {REMEDY}") from None
    complaint = wrong(data)
    if complaint:
        raise ValueError(f"{path} is not the result of a benchmark: {complaint}; {REMEDY}")
    for name in NEEDED:
        data[name] = data.get(name) or []
    return data


def wrong(data: Any) -> str | None:
    """What keeps it from being a run."""
    if not isinstance(data, dict):
        return f"it is a {type(data).__name__}, not an object"
    for name, kind in (("benchmark", str), ("machine", dict), ("results", list)):
        if not isinstance(data.get(name), kind):
            return f"its {name!r} is missing" if name not in data else f"its {name!r} is {data[name]!r:.40}"
    for name, needed in NEEDED.items():
        for number, row in enumerate(data.get(name) or []):
            where = f"{name}[{number}]"
            if not isinstance(row, dict):
                return f"{where} is {row!r:.40}, not an object"
            missing = [key for key in needed if key not in row]
            if missing:
                return f"{where} has no {missing[0]!r}"
            rounds = row.get("rounds")
            if rounds is not None and not (isinstance(rounds, list) and all(map(number_of, rounds))):
                return f"the rounds of {where} are {rounds!r:.40}, not numbers"
            if name == "ratios" and not number_of(row["value"]):
                return f"the value of {where} is {row['value']!r:.40}, not a number"
    return None


def number_of(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
