"""A real browser for tests of pages: Debian's Chromium, headless, driven through a pipe (DevTools protocol).

    with Browser() as chromium, chromium.open(url, width=390, dark=True) as page:
        page.wait_for("document.querySelector('svg')")
        assert page.errors == [] and page.too_wide() == []
        page.screenshot(path)

`chromium`, a fixture of conftest.py, is one for a module; its tests are skipped where there is none to find.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--metrics-recording-only", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip


def find() -> str | None:
    """The browser's program: what WATERSMEET_CHROMIUM names, or the first that is on the path."""
    return next(filter(None, map(shutil.which, (os.environ.get("WATERSMEET_CHROMIUM", ""), *NAMES))), None)


class Browser:
    """A browser with a profile of its own, gone with it."""

    def __init__(self, seconds: float = 60.0) -> None:
        program = find()
        if program is None:
            raise FileNotFoundError(f"none of {', '.join(NAMES)} is on the path: apt-get install chromium")
        self.seconds = seconds  # that a command may take
        self._profile = tempfile.TemporaryDirectory(prefix="watersmeet-chromium-", ignore_cleanup_errors=True)
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}
        self._changed = threading.Condition()
        self._ended = False
        # Chromium reads commands from descriptor 3 and writes to 4; ours are elsewhere, for the shell to move.
        for_it, self._write = os.pipe()
        self._read, from_it = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (for_it, from_it)]
        command = shlex.join([program, *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"])
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command} 3<&{ends[0]} 4>&{ends[1]}"], pass_fds=ends, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (for_it, from_it, *ends):
            os.close(end)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Answers and events, as they come; each ends with a zero byte."""
        rest = b""
        while block := os.read(self._read, 1 << 16):
            *messages, rest = (rest + block).split(b"\0")
            with self._changed:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers[message["id"]] = message
                    elif page := self._pages.get(message.get("sessionId", "")):
                        page._happened(message["method"], message["params"])
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def send(self, method: str, session: str | None = None, /, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or self._ended, self.seconds)
            if number not in self._answers:
                raise RuntimeError(f"{method}: {'the browser has ended' if self._ended else 'no answer'}")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(
        self, url: str | Path, width: int = 1280, height: int = 900, dark: bool = False, wait: bool = True
    ) -> Page:
        """A new page at an address or a file, loaded if it should `wait` for that."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, target, session, width)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.send("Emulation.setEmulatedMedia", features=[scheme])
        page.wait_for("document.readyState === 'complete'")  # else its end is taken for the next page's
        page.go(url.absolute().as_uri() if isinstance(url, Path) else url, wait)
        return page

    def close(self) -> None:
        try:
            self.send("Browser.close")
            self._process.wait(10)
        except (RuntimeError, OSError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own processes: it was started as a group
            self._process.wait()
        os.close(self._write)
        self._profile.cleanup()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Page:
    """What is open in a tab. `errors`: what went wrong on it; `requests`: all addresses it asked for."""

    def __init__(self, browser: Browser, target: str, session: str, width: int) -> None:
        self.browser, self.width = browser, width
        self._target, self._session = target, session
        self._loaded = threading.Event()
        self.errors: list[str] = []
        self.requests: list[str] = []

    def _happened(self, method: str, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Network.loadingFailed" and not event.get("canceled"):
            self.errors.append(f"not loaded: {event['errorText']}")
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            texts = [str(one.get("value", one.get("description", ""))) for one in event["args"]]
            self.errors.append(f"console {event['type']}: {' '.join(texts)}")
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{event['entry']['text']} {event['entry'].get('url', '')}".strip())

    def send(self, method: str, /, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self._session, **parameters)

    def go(self, url: str, wait: bool = True) -> None:
        """To another address, or to the same again."""
        self._loaded.clear()
        answer = self.send("Page.navigate", url=url)
        if "errorText" in answer:
            raise RuntimeError(f"{url}: {answer['errorText']}")
        if wait and not self._loaded.wait(self.browser.seconds):
            raise RuntimeError(f"{url} was not loaded in {self.browser.seconds:g} s")

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression, as JSON can say it; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = 60.0) -> Any:
        """The first true value of an expression."""
        end = monotonic() + seconds
        while not (value := self.evaluate(script)):
            if monotonic() > end:
                raise RuntimeError(f"not true after {seconds:g} s: {script}; errors of the page: {self.errors}")
            sleep(0.05)
        return value

    def screenshot(self, path: Path | str, whole: bool = True) -> Path:
        """A PNG of the whole page, or of what the window shows of it."""
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path = Path(path)
        path.write_bytes(base64.b64decode(image["data"]))
        return path

    def too_wide(self) -> list[str]:
        """What makes the page scroll sideways: elements that reach over its right edge, none in a box that scrolls."""
        return self._look(TOO_WIDE.replace("WIDTH", str(self.width)))

    def cut_off(self) -> list[str]:
        """Texts of which a part cannot be seen: wider or higher than a box that hides the rest."""
        return self._look(CUT_OFF)

    def empty_plots(self, selector: str = "svg, canvas") -> list[str]:
        """Plots without size or without marks: SVGs with no visible shape, canvases of one colour."""
        return self._look(EMPTY_PLOTS.replace("SELECTOR", selector))

    def _look(self, body: str) -> list[str]:
        return self.evaluate("(() => {" + NAMED + body + "})()")

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self._target)
        self.browser._pages.pop(self._session, None)

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


NAMED = """
const named = (one) => one.tagName.toLowerCase() + (one.id ? '#' + one.id : '') +
  (typeof one.className === 'string' && one.className ? '.' + one.className.split(' ').join('.') : '') +
  ' "' + (one.textContent || '').trim().slice(0, 40) + '"';
const shown = (one) => { const box = one.getBoundingClientRect(); return box.width > 0 && box.height > 0 &&
  one.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}); };
"""

TOO_WIDE = """
const scrolls = (one) => { for (let up = one.parentElement; up && up !== document.body; up = up.parentElement)
  if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(up).overflowX) &&
      up.getBoundingClientRect().right <= WIDTH + 1) return true;
  return false; };
const found = [...document.body.querySelectorAll('*')].filter((one) => shown(one) && !scrolls(one) &&
  one.getBoundingClientRect().right + window.scrollX > WIDTH + 1).map(named);
if (!found.length && document.documentElement.scrollWidth > WIDTH + 1)
  found.push('page: ' + document.documentElement.scrollWidth);
return found;"""

CUT_OFF = """
return [...document.body.querySelectorAll('*')].filter((one) => { const style = getComputedStyle(one);
  if (!shown(one) || one instanceof SVGElement || one.children.length && !one.innerText?.trim()) return false;
  const hides = (overflow) => overflow === 'hidden' || overflow === 'clip';
  return hides(style.overflowX) && one.scrollWidth > one.clientWidth + 1 ||
    hides(style.overflowY) && one.scrollHeight > one.clientHeight + 1; }).map(named);"""

EMPTY_PLOTS = """
const drawn = (one) => {
  if (!shown(one)) return false;
  if (one.tagName.toLowerCase() === 'svg')
    return [...one.querySelectorAll('path, line, rect, circle, text, polyline, polygon')].filter((part) => {
      const box = part.getBoundingClientRect(); return box.width + box.height > 0; }).length > 1;
  const pixels = new Uint32Array(one.getContext('2d').getImageData(0, 0, one.width, one.height).data.buffer);
  return pixels.some((pixel) => pixel !== pixels[0]); };
return [...document.querySelectorAll('SELECTOR')].filter((one) => !drawn(one)).map(named);"""
