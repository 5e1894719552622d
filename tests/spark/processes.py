"""Processes below one of ours, from /proc; and how to end them."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def below(pid: int) -> dict[int, str]:
    """All descendants of a process: their ids and command lines."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, todo = {}, [pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
            todo.append(child)
    return found


def python_workers(pid: int) -> list[int]:
    """Spark's Python workers below a process; not the daemon that forks them."""
    daemons = [one for one, line in below(pid).items() if "pyspark.daemon" in line]
    return [one for daemon in daemons for one, line in below(daemon).items() if "pyspark.daemon" in line]


def executors(pid: int) -> list[int]:
    return [one for one, line in below(pid).items() if "CoarseGrainedExecutorBackend" in line]


def kill(pid: int) -> bool:
    """kill -9; whether it was still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
