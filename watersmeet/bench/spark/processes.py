"""The processes below one of ours, and the memory they use, from /proc (Linux)."""

from __future__ import annotations

import os
import threading
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


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process: all, and those not of files. What several processes share is divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sizes["Pss"], sizes.get("Pss_Anon", 0)


class PeakMemory:
    """Watches all descendants of this process, until the end of the `with` block.

    whole: the most that they used together, bytes. private: the most without mapped files, which the system can drop
    and read again.
    """

    def __init__(self, seconds: float = 1.0):
        self.whole = self.private = 0
        self._seconds = seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            sizes = [memory(pid) for pid in below(os.getpid())]
            self.whole = max(self.whole, sum(whole for whole, _ in sizes))
            self.private = max(self.private, sum(private for _, private in sizes))
