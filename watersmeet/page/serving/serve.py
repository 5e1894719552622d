"""HTTP: the page, and its data as JSON.

    /                     the page; with a token, /?token=… leaves a cookie and leads on to it
    /data?since=T&of=ID   what is about, the latest sample, and the points of the last hour that are later than T

Lines of JSON come by standard input: first how to serve, then samples. Its end is the end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import pkgutil
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .history import History
from .requests import refusal, shows_token

#: Browsers and others that may be connected at a time.
MOST = 256


class Shown:
    """What is to be seen. Lines come from one thread, and are read by many."""

    def __init__(self, about: dict[str, Any], series: dict[str, str], now: Callable[[], float] = time.monotonic):
        self.about = about
        self._now = now
        self._history = History(series)
        self._latest: dict[str, Any] | None = None
        self._said: dict[float | None, bytes] = {}  # since the latest sample: many ask for the same
        self._lock = threading.Lock()

    def add(self, sample: dict[str, Any]) -> None:
        with self._lock:
            self._latest = sample
            self._said.clear()
            self._history.add(sample["at"], sample["figures"])

    def data(self, since: float | None, of: str | None) -> bytes:
        """What is new for a browser that has seen all up to a time, of the page that it saw."""
        since = since if of == self.about["id"] else None
        with self._lock:
            said = self._said.get(since)
            if said is None:
                found = {
                    "about": self.about, "names": self._history.names, "all": since is None,
                    "points": self._history.points(since), "sample": self._latest,
                }  # fmt: skip
                said = json.dumps(found, separators=(",", ":")).encode()
                if len(self._said) < MOST:
                    self._said[since] = said
        return b'{"now":%s,' % json.dumps(self._now()).encode() + said[1:]


def policy(html: str) -> str:
    """A Content-Security-Policy by which a page may run and look like what is written in it, and ask only us."""

    def hashes(tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Server(ThreadingHTTPServer):
    """listen: what we may be called, see requests.py."""

    daemon_threads = True

    def __init__(self, bound: socket.socket, listen: dict[str, Any], token: str | None, shown: Shown):
        super().__init__(bound.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.listen, self.token, self.shown = listen, token, shown
        self.cookie = f"watersmeet-{bound.getsockname()[1]}"
        found = pkgutil.get_data(__package__ or "serving", "page.html")
        assert found is not None
        self.html, self.policy = found, policy(found.decode())
        self._room = threading.BoundedSemaphore(MOST)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers go when they like."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "watersmeet", ""
    timeout = 60  # seconds that a connection may be silent
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        server = self.server
        why = refusal(self.headers, **server.listen)
        if why is not None:
            return self._answer(403, f"refused: {why}\n".encode())
        asked = urlsplit(self.path)
        query = parse_qs(asked.query)
        if server.token is not None:
            if not shows_token(server.token, query, self.headers, server.cookie):
                return self._answer(403, b"refused: open the page with ?token=TOKEN, as it was started with\n")
            if asked.path == "/" and "token" in query:  # so that it is not in the browser's history
                cookie = f"{server.cookie}={server.token}; HttpOnly; SameSite=Lax; Path=/"
                return self._answer(303, b"", {"Location": "/", "Set-Cookie": cookie})
        if asked.path == "/":
            return self._answer(200, server.html, kind="text/html; charset=utf-8")
        if asked.path == "/data":
            since = _number(query.get("since"))
            return self._answer(200, server.shown.data(since, query.get("of", [None])[0]), kind="application/json")
        self._answer(404, b"there are / and /data\n")

    do_HEAD = do_GET

    def _answer(
        self, status: int, body: bytes, more: dict[str, str] | None = None, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
            "Content-Security-Policy": self.server.policy, "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }  # fmt: skip
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        if status == 403:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _number(texts: list[str] | None) -> float | None:
    try:
        value = float(texts[0]) if texts else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def serve(bound: socket.socket, lines: Iterable[str]) -> None:
    """Until there are no more lines."""
    source = iter(lines)
    first = next(source, None)
    if first is None:
        return
    how = json.loads(first)
    shown = Shown(how["about"], how["series"])
    server = Server(bound, how["listen"], how["token"], shown)
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        for line in source:
            shown.add(json.loads(line))
    finally:
        server.shutdown()
        server.server_close()


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the join; we end with it
    os.nice(5)  # who looks waits, not who joins
    serve(socket.socket(fileno=descriptor), sys.stdin)
