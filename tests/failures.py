"""Failures made to order: an exception at the n-th line that the library runs.

An exception may come anywhere (no memory, Ctrl-C), so it is raised anywhere: a trace function counts the lines that
run in the library's own modules and raises at the one it was told. Indexes that fail do so in a core that is another
process than the caller's.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import watersmeet as wm

#: What takes care of failures must itself not fail here: Ctrl-C is put off while it runs.
SHELTERED = ("undo", "uninterrupted", "restore", "stop", "_send", "_receive", "_part_with_cores")
#: Where cores hear what they are to do.
SERVING = ("watersmeet.engine.cores.process", "watersmeet.engine.cores.channel")
#: Of these no line fails: they only begin and end calls.
THIN = ("close",)


class Injected(BaseException):
    """Not an Exception: nothing in the library may catch it and go on."""


def _between_blocks(frame: Any) -> bool:
    """A `with` line runs again when its block ends, just before the block's __exit__ is called, and a `try` line does
    nothing. Python itself looks for Ctrl-C when a function is entered or left and when a loop goes round, never there,
    or no lock were safe."""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
    return text.startswith(("with ", "try:"))


def _sheltered(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_name in SHELTERED and frame.f_globals.get("__name__", "").startswith("watersmeet."):
            return True
        frame = frame.f_back
    return False


class Lines:
    """Counts the lines of a package or module; raises at line `at`."""

    def __init__(self, at: int | None = None, within: str = "watersmeet."):
        self.at = at
        self.within = within
        self.count = 0
        self.where: str | None = None
        self._lock = threading.Lock()

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(self.within) or (event == "call" and _sheltered(frame)):
            return None
        if name in SERVING and threading.current_thread() is not threading.main_thread():
            return None  # a core that is a thread serves other joins, too
        if event == "line" and not _between_blocks(frame) and frame.f_code.co_name not in THIN:
            with self._lock:
                self.count += 1
                due = self.count == self.at
            if due:
                self.where = f"{name}:{frame.f_lineno}"
                raise Injected(self.where)
        return self

    def run(self, call: Callable[[], Any]) -> Any:
        """Call it, on this thread and all those that it starts, line by line."""
        before = sys.gettrace()
        threading.settrace(self)
        sys.settrace(self)
        try:
            return call()
        finally:
            sys.settrace(before)
            threading.settrace(None)  # type: ignore[arg-type]
            self.at = None  # threads that go on afterwards go on counting


@dataclass(frozen=True)
class Failing(wm.index.Hash):
    """Fails when a key is 77."""

    caller: int = 0

    def entries(self, equal, ordered, live, n, workers):
        if equal is not None and 77 in equal.tolist() and os.getpid() != self.caller:
            raise ArithmeticError("77 is not to my liking")
        return super().entries(equal, ordered, live, n, workers)


@dataclass(frozen=True)
class Unopened(wm.index.Hash):
    """Fails when a core opens."""

    caller: int = 0

    @property
    def forgets(self):
        if os.getpid() != self.caller:
            raise ArithmeticError("not today")
        return False
