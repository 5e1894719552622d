"""The live page in a real browser: drawn, readable, and right while a join runs."""

import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.page.page import Page
from watersmeet.page.spark import sample_of
from watersmeet.spark.progress import Totals

pytestmark = pytest.mark.long

SCRIPT = "<script>document.title = 'run'</script>"
CHARTS = ("rates", "latency", "lag", "rows", "bytes", "busy", "runs", "late")
ROWS = 20_000


class Running:
    """A join that gets about a million rows a second, and notes its metrics behind every push."""

    def __init__(self, **options):
        random = np.random.default_rng(1)
        self.join = wm.StreamJoin(
            f'abs(l.k - r.k) <= 1 and l."{SCRIPT}" >= 0', wm.within("1 second", lateness="100 ms"), output="count",
            **options,
        )  # fmt: skip
        self.columns = [(random.integers(0, 1 << 20, ROWS), random.random(ROWS)) for _ in range(2)]
        self.began = time.time()
        self.seen = {}
        self.thread = threading.Thread(target=self.push)
        self.going = True

    def batch(self, number, side):
        k, text = self.columns[side]
        ticks = int(self.began * 1e6) + np.arange(number * ROWS, (number + 1) * ROWS) * 2 - side * 7_000
        return pa.record_batch({"ts": pa.array(ticks, pa.timestamp("us")), "k": k, SCRIPT: text})

    def push(self):
        begin = time.perf_counter()
        number = 0
        while self.going:
            self.join.push(left=self.batch(number, 0), right=self.batch(number, 1))
            self.seen[self.join.metrics.pushes] = self.join.metrics.to_dict()
            number += 1
            time.sleep(max(begin + number * 2 * ROWS / 1e6 - time.perf_counter(), 0))

    def __enter__(self):
        self.page = self.join.page(0)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.going = False
        self.thread.join()
        self.page.close()
        self.join.close()


@pytest.fixture(scope="module")
def running():
    with Running(cores=1) as one:
        time.sleep(3)
        yield one


def drawn(page):
    """Wait until every chart has lines of several points."""
    charts = ", ".join(f"#chart-{name} path.series" for name in CHARTS)
    page.wait_for(f"new Set([...document.querySelectorAll('{charts}')].filter((one) => "
                  "one.getAttribute('d').split('L').length > 2).map((one) => one.closest('.card').id)).size"
                  f" === {len(CHARTS)}")  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_everything_is_drawn_and_nothing_is_cut_off(running, chromium, tmp_path, width, dark):
    with chromium.open(running.page.url, width=width, dark=dark) as page:
        drawn(page)
        assert page.empty_plots(".card:not([hidden]) svg") == []
        assert page.errors == [] and page.too_wide() == [] and page.cut_off() == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(14, 19, 24)" if dark else "rgb(246, 247, 249)")
        assert page.screenshot(tmp_path / "page.png").stat().st_size > 20_000
        here = running.page.address
        assert {one.split("?")[0] for one in page.requests} <= {here, here + "data", "data:,"}
        for button in range(3):
            page.evaluate(f"document.querySelectorAll('#ranges button')[{button}].click()")
            assert page.empty_plots(".card:not([hidden]) svg") == []


SHOWN = """(() => { const found = {pushes: sample.metrics.pushes, metrics: sample.metrics};
  found.plan = document.querySelector('#plan pre').textContent;
  for (const one of document.querySelectorAll('#sides td')) found[one.dataset.name] = one.textContent;
  for (const one of document.querySelectorAll('.tile')) found['tile ' + one.dataset.name] = one.textContent;
  return found; })()"""


def test_what_is_shown_are_the_metrics_of_the_join(running, chromium):
    with chromium.open(running.page.url) as page:
        looked = set()
        while len(looked) < 4:
            new = f"sample && sample.metrics.pushes && !{sorted(looked)}.includes(sample.metrics.pushes)"
            shown = page.wait_for(f"{new} && {SHOWN}")
            metrics = running.seen[shown["pushes"]]
            looked.add(shown["pushes"])
            for side in ("left", "right"):
                assert shown[f"rows_in_{side}"] == f"{metrics[f'rows_in_{side}']:,}"
                assert shown[f"stored_{side}"] == f"{metrics[f'stored_{side}']:,}"
                assert shown[f"late_{side}"] == f"{metrics[f'late_{side}']:,}"
            assert f"{metrics['rows_in_left'] + metrics['rows_in_right']:,} so far" in shown["tile rows_in"]
            assert f"{metrics['rows_out']:,} so far" in shown["tile rows_out"]
            assert f"{metrics['pushes']:,} pushes" in shown["tile calls"]
            assert metrics["watermark"] in shown["tile watermark"]
            timed = {"seconds": None}
            assert shown["metrics"] | timed == metrics | timed
        assert shown["plan"] == running.join.explain()


def test_markup_is_shown_as_text(running, chromium):
    with chromium.open(running.page.url) as page:
        page.wait_for("document.querySelector('#plan pre').textContent")
        assert SCRIPT in page.evaluate("document.querySelector('#title').textContent")
        assert SCRIPT in page.evaluate("document.querySelector('#plan pre').textContent")
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        assert page.evaluate("document.title").endswith("Watersmeet") and page.errors == []


def test_a_page_opened_again_shows_what_was_before(running, chromium):
    with chromium.open(running.page.url) as page:
        drawn(page)
        first = page.evaluate("points[0][0]")
    with chromium.open(running.page.url) as page:
        assert page.wait_for("points.length && points[0][0]") == first


def test_twenty_pages_are_served(running, chromium):
    pages = [chromium.open(running.page.url) for _ in range(20)]
    try:
        for page in pages:
            page.send("Page.bringToFront")
            page.wait_for("sample && sample.metrics.pushes > 0")
            assert page.errors == []
    finally:
        for page in pages:
            page.close()


def test_the_page_says_when_the_join_is_closed_and_when_it_is_gone(chromium):
    rows = pa.table({"ts": range(2000), "k": [7 if i % 2 else i for i in range(2000)]})
    with wm.StreamJoin("l.k = r.k", wm.within(100), cores=2, route="hot_cold", output="count") as join:
        live = join.page(0)
        with chromium.open(live.url) as page:
            join.push(left=rows, right=rows)
            page.wait_for("document.querySelectorAll('#cores .fill').length === 2")
            keys = page.wait_for("[...document.querySelectorAll('#hot .name')].map((one) => one.textContent)")
            assert keys == list(join.metrics.hot)
            join.close()
            page.wait_for("document.querySelector('#state').textContent === 'closed'")
            assert page.errors == [] and page.too_wide() == []
            live.close()
            page.wait_for("document.querySelector('#state').textContent.startsWith('not answering')")


def test_a_page_with_a_token_opens_and_is_not_for_others(chromium):
    join = wm.StreamJoin("l.k = r.k", wm.within(100))
    with join.page(0, token="0123456789abcdef") as live:
        with chromium.open(live.address) as page:
            assert "refused" in page.evaluate("document.body.textContent")
        with chromium.open(live.url) as page:
            page.wait_for("document.querySelector('#state').textContent.startsWith('waiting for the columns')")
            assert page.evaluate("location.href") == live.address and page.errors == []


def test_a_page_of_another_site_learns_nothing(running, chromium, tmp_path):
    join = wm.StreamJoin("l.x = r.x", wm.within(1))  # a page goes with its join
    with join.page(0) as other, chromium.open(other.url) as page:
        asked = f"fetch('{running.page.address}data', {{mode: 'MODE'}}).then((a) => a.text(), (error) => 'failed')"
        page.send("Page.setBypassCSP", enabled=True)
        page.go(other.url)
        assert page.evaluate(asked.replace("MODE", "cors")) == "failed"
        assert page.evaluate(asked.replace("MODE", "no-cors")) in ("", "failed")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_job_on_spark(chromium, tmp_path, width):
    """What a query's records have told, with markup in the job's name, its predicate and its plan."""
    totals = Totals(
        rows_in=300, rows_out=7, late=(1, 2), bad=(3, 0), batches=3, seconds=[9.0, 1.0, 2.0], in_per_s=50.0,
        out_per_s=3.5, watermark="2026-01-05T14:30:00.120Z", state_rows=1234, state_bytes=1 << 20, runs=6,
        sides=(100, 200), sides_per_s=(20.0, 30.0), loads=[900, 334], probes=[200, 100], hot=(60, 30),
        hot_keys={f"left k = {SCRIPT!r}": 40},
    )  # fmt: skip
    with Page(f"{SCRIPT}.toml: {SCRIPT}", "spark", 0) as live, chromium.open(live.url, width=width) as page:
        now = time.monotonic()
        for ago in range(30, -1, -1):
            live.send(sample_of(totals, "running", f"plan {SCRIPT}", now - ago, [0.5, 0.1], 1767623401.62))
        page.wait_for("points.length > 30")
        shown = page.evaluate("[...document.querySelectorAll('#charts .card:not([hidden])')].map((one) => one.id)")
        assert shown == [f"chart-{name}" for name in CHARTS if name != "busy"]
        assert page.empty_plots(".card:not([hidden]) svg") == []
        assert page.errors == [] and page.too_wide() == [] and page.cut_off() == []
        tiles = page.evaluate("[...document.querySelectorAll('.tile')].map((one) => one.textContent)")
        assert tiles == [
            "Rows in50/s300 so far", "Rows out3.5/s7 so far", "Micro-batch2 s3 so far, 1.5 s on average",
            "In the window1234rows1 MiB", "Watermark2026-01-05 14:30:00.120 UTC1.5 s behind the clock",
            "Late and bad rows63 late, 3 bad",
        ]  # fmt: skip
        assert page.evaluate("document.querySelector('#title').textContent") == f"{SCRIPT}.toml: {SCRIPT}"
        assert page.evaluate("document.querySelector('#plan pre').textContent") == f"plan {SCRIPT}"
        assert page.evaluate("document.querySelectorAll('script').length") == 1
        details = page.evaluate("['cores', 'hot'].map((id) => document.getElementById(id).textContent)")
        assert "core 1900core 2334" in details[0] and "1.46 times the average" in details[0]
        assert f"left k = {SCRIPT!r}40" in details[1] and "30% of the rows so far were hot" in details[1]
        page.screenshot(tmp_path / "spark.png")
