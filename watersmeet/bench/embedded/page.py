"""What a live page costs the join that it shows: `watersmeet bench embedded --only page`.

One join of a band over last(n), one thread, results counted, in five ways that take turns, each turn longer than a
page's second:

    alone       no page
    page        a page that nobody looks at
    browsers    a page that twenty look at: another process asks for what is new as often as they do
    closed      a page that was opened, looked at and closed
    neighbours  no page; twenty look at the page of another join, in another process: what any neighbour costs that is
                as busy as that

Speeds are by the clock on the wall, and by the time that this process was on a core (which neighbours on the machine
disturb less). The ways are compared round by round; batches are the same in all, so counts must be, too. Beside that,
what a page takes is counted: the time on a core of calls, of its thread and of its process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.rounds import median
from watersmeet.page.sampler import Sampler

if TYPE_CHECKING:
    from watersmeet.bench.embedded import Embedded

WINDOW = 1 << 17
BATCH = 1 << 13
BATCHES = 16  # that are pushed again and again
BROWSERS = 20
WAYS = {
    "alone": "no page", "page": "a page", "browsers": f"a page, {BROWSERS} browsers", "closed": "a closed page",
    "neighbours": f"no page, {BROWSERS} browsers at another join's",
}  # fmt: skip

#: As a browser asks: one connection, once a second, for what is later than the last point. In a process of its own,
#: which ends with its input.
ASK = """
import http.client, json, select, sys, time
host, many = sys.argv[1], int(sys.argv[2])
open = [[http.client.HTTPConnection(host), "/data"] for _ in range(many)]
while True:
    for one in open:
        one[0].request("GET", one[1])
        data = json.loads(one[0].getresponse().read())
        if data["points"]:
            one[1] = f"/data?since={data['points'][-1][0]}&of={data['about']['id']}"
        if select.select([sys.stdin], [], [], 1 / many)[0]:
            sys.exit()
"""

#: Another join with a page, which ends with its input.
OTHER = """
import sys
import watersmeet as wm
with wm.StreamJoin("l.key = r.key", wm.last(10)) as join, join.page(0) as page:
    print(page.url, flush=True)
    sys.stdin.read()
"""


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen]:
    """Another Python, until the end of this."""
    with subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        yield one
        assert one.stdin is not None
        one.stdin.close()


@contextmanager
def looked_at(url: str) -> Iterator[None]:
    """By twenty browsers."""
    with process("-I", "-c", ASK, url.strip().removeprefix("http://").rstrip("/"), str(BROWSERS)):
        time.sleep(1.0)  # until all have what was before
        yield


class Way:
    """One join, and what it took."""

    def __init__(self, name: str, batches: list[pa.RecordBatch]):
        self.name = name
        self._batches = batches
        self._join = wm.StreamJoin("abs(l.key - r.key) <= 2", wm.last(WINDOW), cores=1, output="count")
        self.counts: list[int] = []
        self.speeds: list[float] = []
        self.cpu_speeds: list[float] = []
        self.taken: dict[str, list[float]] = {"join": [], "process": []}  # by the page, of each second
        while len(self.counts) * BATCH < 2 * WINDOW:
            self._push()

    def _push(self) -> None:
        at = len(self.counts)
        left, right = self._batches[at % BATCHES], self._batches[(at + 1) % BATCHES]
        self.counts.append(self._join.push(left=left, right=right))

    def turn(self, seconds: float) -> None:
        with self._as_it_is():
            spent, pushes = self._spent(), len(self.counts)
            begin, cpu = time.perf_counter(), time.process_time()
            while time.perf_counter() - begin < seconds:
                self._push()
            rows, passed = 2 * BATCH * (len(self.counts) - pushes), time.perf_counter() - begin
            self.speeds.append(rows / passed)
            self.cpu_speeds.append(rows / (time.process_time() - cpu))
            for name, (now, then) in zip(self.taken, zip(self._spent(), spent)):
                self.taken[name].append((now - then) / passed)

    def _spent(self) -> tuple[float, float]:
        """Seconds that the page has taken: from the join's process, and in its own."""
        sampler = self._join._calls.watcher
        if not isinstance(sampler, Sampler):
            return 0.0, 0.0
        with open(f"/proc/{sampler.page._popen.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return sum(sampler.spent.values()), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def _as_it_is(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self.name == "neighbours":
                other = stack.enter_context(process("-c", OTHER))
                assert other.stdout is not None
                stack.enter_context(looked_at(other.stdout.readline()))
            elif self.name != "alone":
                page = stack.enter_context(self._join.page(0))
                while json.load(urllib.request.urlopen(page.url + "data", timeout=60))["sample"] is None:
                    time.sleep(0.05)
                if self.name == "closed":
                    page.close()
                    while self._join._calls.watcher is not None:
                        time.sleep(0.05)
                elif self.name == "browsers":
                    stack.enter_context(looked_at(page.url))
            yield

    def result(self, pairs: int) -> dict[str, Any]:
        return {
            "workload": "page", "window": WINDOW, "batch": BATCH, "contender": "watersmeet", "form": WAYS[self.name],
            "tuples_per_s": max(self.speeds), "rounds": self.speeds, "cpu_rounds": self.cpu_speeds, "taken": self.taken,
            "results_per_tuple": sum(self.counts) / (2 * BATCH * len(self.counts)), "checked_pairs": pairs,
        }  # fmt: skip


def measure(bench: Embedded, seconds: float, rounds: int) -> None:
    random = np.random.default_rng(7)
    batches = [pa.record_batch({"key": random.integers(0, WINDOW, BATCH)}) for _ in range(BATCHES)]
    ways = [Way(name, batches) for name in WAYS]
    for number in range(rounds):
        for at in range(len(ways)):
            ways[(number + at) % len(ways)].turn(seconds)
    alone = ways[0]
    common = min(len(way.counts) for way in ways)
    for way in ways:
        if way.counts[:common] != alone.counts[:common]:
            raise AnswersDiffer(f"page: {way.name} counts other results than {alone.name}")
        bench.record(way.result(sum(way.counts[:common])))
    for way in ways[1:]:
        for what, speeds, before in (
            ("no page", way.speeds, alone.speeds), ("no page, in time on a core", way.cpu_speeds, alone.cpu_speeds),
        ):  # fmt: skip
            found = [one / other for one, other in zip(speeds, before)]
            ratio(bench, f"{what}: {WAYS[way.name]}", found, targets.PAGE if way.name != "neighbours" else None)
    for way in ways[1:3]:
        ratio(bench, f"a core's time, taken from the join: {WAYS[way.name]}", way.taken["join"], 1 - targets.PAGE, "<")
        ratio(bench, f"a core's time, in a process of its own: {WAYS[way.name]}", way.taken["process"])


def ratio(bench: Embedded, what: str, found: list[float], target: float | None = None, sense: str = ">=") -> None:
    best = max(found) if sense == ">=" and target else min(found)
    bench.ratio("page", what, median(found), target, sense, best, window=WINDOW, batch=BATCH)
    bench.say(f"  to {what}: {median(found):.4f}")
