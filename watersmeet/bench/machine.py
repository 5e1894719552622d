"""Where a benchmark ran: processor, cores, memory, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("watersmeet", "numpy", "numba", "pyarrow", "duckdb", "polars", "datafusion", "pyspark")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> dict[str, object]:
    """Everything about the machine that a reader of the results needs."""
    return {
        "cpu": cpu(),
        "cores": cores(),
        "memory_gib": memory(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    } | commit()


def cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


#: Of the source tree, if this package runs from one.
ROOT = Path(__file__).resolve().parents[2]


def commit() -> dict[str, str | bool | None]:
    """The commit of the checkout this package runs from, and whether it has changes; None elsewhere."""
    unknown: dict[str, str | bool | None] = {"commit": None, "dirty": None}
    if not (ROOT / ".git").exists():
        return unknown
    try:
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return unknown
    if head.returncode:
        return unknown
    return {"commit": head.stdout.strip(), "dirty": bool(status.stdout.strip())}
