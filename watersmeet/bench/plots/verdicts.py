"""What the papers claim and what we ask of ourselves, over all runs: who holds, who misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from watersmeet.bench.plots.runs import Run
from watersmeet.bench.report import miss, number, target

PAPERS = {
    "P": "PanJoin", "M": "PIM-Tree", "S": "SplitJoin", "T": "STA", "G": "GPU study", "H": "handshake join",
}  # fmt: skip
VERDICTS = ("yes", "in part", "no", "not judged")
AGAINST = {
    "discard: input rows/s": "a pipeline that joins nothing, rows/s in",
    "identity: input rows/s": "a pipeline that joins nothing, rows/s in",
    "identity: input rows/s, of files": "a pipeline that joins nothing and reads by Spark, rows/s in of parquet_files",
    "spark, rocksdb: input rows/s": "Spark's own join, RocksDB, rows/s in",
    "spark, hdfs: input rows/s": "Spark's own join, state in memory, rows/s in",
    "cells, rocksdb: input rows/s": "Spark's workaround by cells, RocksDB, rows/s in",
}
WORKLOADS = {
    ("embedded", "A2"): "equality", ("embedded", "B"): "band", ("embedded", "band_last"): "last(n)",
    ("spark", "A"): "Spark, equality", ("spark", "B"): "Spark, band", ("spark", "B17"): "Spark, band, 17 matches",
    ("spark", "C"): "Spark, inequality", ("spark", "D"): "Spark, left join",
    ("spark", "A, flat"): "Spark, equality, long",
    ("spark", "B, flat"): "Spark, band, long",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    run: str
    row: str
    paper: str
    claim: str
    theirs: str
    ours: str
    holds: str


@dataclass(frozen=True)
class Target:
    run: str
    what: str
    against: str
    value: str
    target: str
    met: bool
    line: str  # all of it in words, if missed


def claims(runs: Iterable[Run]) -> list[Claim]:
    return [
        Claim(
            run.name,
            str(one["row"]),
            PAPERS.get(str(one["row"])[:1], "other"),
            str(one["claim"]),
            str(one["paper"]),
            str(one.get("ours") or "-"),
            verdict(one),
        )  # fmt: skip
        for run in runs
        for one in run.data["claims"]
    ]


def verdict(one: dict[str, Any]) -> str:
    held = one.get("holds")
    return held if held in VERDICTS else "not judged"


def targets(runs: Iterable[Run]) -> list[Target]:
    """Those that were judged, the missed ones first."""
    found = []
    for run in runs:
        for row in run.data["ratios"]:
            if row.get("ok") is None or row.get("target") is None:
                continue
            name = WORKLOADS.get((run.benchmark, row["workload"]), f"{run.benchmark}, {row['workload']}")
            sense = row.get("sense", ">=")
            against = AGAINST.get(row["against"], row["against"])
            line = "" if row["ok"] else miss(row | {"sense": sense, "against": against}, name)
            wanted = target(row | {"sense": sense})
            found.append(Target(run.name, where(row, name), against, number(row["value"]), wanted, row["ok"], line))
    return sorted(found, key=lambda one: one.met)


def where(row: dict[str, Any], name: str) -> str:
    parts = [name] + [f"{what} {row[what]:,}" for what in ("window", "batch") if row.get(what)]
    return ", ".join(parts)


def counted(all_claims: Iterable[Claim]) -> dict[str, int]:
    held = Counter(one.holds for one in all_claims)
    return {verdict: held[verdict] for verdict in VERDICTS if held[verdict]}
