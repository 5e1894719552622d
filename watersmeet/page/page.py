"""A page: a process that serves it, and the pipe by which it gets its samples.

The socket is made here, so that whatever is wrong with the address is told to who gave it. The process has the socket,
and ends when the pipe does: with `close`, with the last reference to the page, or with this process, however it ends.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import weakref
from html import escape
from pathlib import Path
from typing import Any

from watersmeet.page.address import Address, address_of, check_token, is_loopback, listening

_PATIENCE = 2.0  # seconds that the process gets to end

#: What the charts show, and how several samples become one: their mean, the greatest, or the last.
SERIES = {
    "in_left": "mean", "in_right": "mean", "in": "mean", "out": "mean",
    "p50": "mean", "p99": "max", "busy": "mean",
    "lag_left": "max", "lag_right": "max", "lag": "max",
    "rows_left": "last", "rows_right": "last", "rows": "last",
    "index_bytes": "last", "payload_bytes": "last", "bytes": "last",
    "runs_left": "last", "runs_right": "last", "runs": "last",
    "late": "mean", "bad": "mean",
}  # fmt: skip


class Page:
    """title: what it is about. kind: "embedded" or "spark". address, token: see address.py; parameter, token_parameter:
    what these are called where they were given."""

    def __init__(
        self,
        title: str,
        kind: str,
        address: str | int | None = None,
        token: str | None = None,
        parameter: str = "address",
        token_parameter: str = "token",
    ):
        wanted = address_of(address, parameter)
        token = check_token(token, token_parameter)
        if not sys.executable:
            raise RuntimeError("a page is a process, and this Python cannot tell how it was started")
        with listening(wanted, token, parameter, token_parameter) as server:
            host, port = server.getsockname()[:2]
            self.address = Address(wanted.host, port).url
            self.url = self.address + (f"?token={token}" if token else "")
            self._popen = _start(server.fileno())
        self._lock = threading.Lock()
        self._closing = weakref.finalize(self, _end, self._popen)
        self._write({
            "listen": server_names(wanted.host, host), "token": token, "series": SERIES,
            "about": {"id": os.urandom(8).hex(), "title": title, "kind": kind},
        })  # fmt: skip

    def send(self, sample: dict[str, Any]) -> bool:
        """Show this from now on; False: nobody can see it any more."""
        return self._write(sample)

    def _write(self, message: dict[str, Any]) -> bool:
        line = json.dumps(plain(message), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if not self._closing.alive:
                return False
            try:
                assert self._popen.stdin is not None
                self._popen.stdin.write(line)
                self._popen.stdin.flush()
                return True
            except (OSError, ValueError):  # it has ended, or was ended, if just now
                return False

    @property
    def closed(self) -> bool:
        return not self._closing.alive

    def close(self) -> None:
        """Nobody can see it from now on. What it was about goes on."""
        self._closing()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Page {self.address}{' closed' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        state = " (closed)" if self.closed else ""
        return f"<a href='{escape(self.url)}' target='_blank' rel='noopener'>{escape(self.address)}</a>{state}"


def server_names(given: str, bound: str) -> dict[str, Any]:
    """What a browser may call the server; see serving/requests.py."""
    return {"loopback": is_loopback(bound), "names": ["localhost", given.lower(), os.uname().nodename.lower()]}


def plain(value: Any) -> Any:
    """As JSON has it: no NaN, no infinities."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _start(server: int) -> subprocess.Popen[bytes]:
    # By its folder, since `import watersmeet` takes a second and a hundred megabytes that it has no use for.
    folder = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); from serving.serve import main; main({server})"
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", code], pass_fds=[server], stdin=subprocess.PIPE)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        pass
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
