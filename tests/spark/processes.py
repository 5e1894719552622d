"""Which of Spark's processes to kill, and how."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from watersmeet.bench.spark.processes import below


def python_workers(pid: int) -> list[int]:
    """Spark's Python workers below a process; not the daemon that forks them."""
    daemons = [one for one, line in below(pid).items() if "spark.daemon" in line]
    return [one for daemon in daemons for one, line in below(daemon).items() if "spark.daemon" in line]


def executors(pid: int) -> list[int]:
    return [one for one, line in below(pid).items() if "CoarseGrainedExecutorBackend" in line]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def stands_still(pid: int) -> bool:
    """Whether all threads of a group of processes that was stopped have come to a halt."""
    try:
        group = [one for one in (pid, *below(pid)) if os.getpgid(one) == pid]
        threads = [path for one in group for path in Path(f"/proc/{one}/task").glob("*/stat")]
        return all(path.read_text().rpartition(")")[2].split()[0] in "TtZX" for path in threads)
    except (FileNotFoundError, ProcessLookupError):
        return False


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
