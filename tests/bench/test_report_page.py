"""The report in a real browser: every plot drawn, nothing cut off, nothing loaded, light and dark, wide and narrow.

Screenshots are kept in the folder that WATERSMEET_SCREENSHOTS names, if it does.
"""

import os
import zlib
from pathlib import Path

import pytest

from watersmeet.bench import plots
from watersmeet.bench.plots import runs
from watersmeet.bench.plots.page import page as made

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
STORED = sorted((ROOT / "docs" / "figures").glob("*.json"))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(made(runs.load(STORED)))
    return path


@pytest.fixture
def screenshots(tmp_path):
    folder = Path(os.environ.get("WATERSMEET_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def shown(chromium, report, **options):
    page = chromium.open(report, **options)
    page.wait_for("document.documentElement.dataset.drawn")
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_looks_right(chromium, report, screenshots, width, dark):
    wanted = [plot.name for run in runs.load(STORED) for plot in plots.plots(run)]
    with shown(chromium, report, width=width, dark=dark) as page:
        assert page.errors == [] and page.requests == [report.as_uri()]
        assert page.evaluate("document.querySelectorAll('figure .plot svg').length") == len(wanted)
        assert page.empty_plots("figure .plot svg") == []
        assert page.too_wide() == [] and page.cut_off() == []
        for name in wanted:  # points or bars in each
            marks = f"document.querySelectorAll('#{name} .mark-symbol path, #{name} .mark-rect path').length"
            assert page.evaluate(marks) > 1, name
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)"
        )
        picture = page.screenshot(screenshots / f"report-{width}-{'dark' if dark else 'light'}.png").read_bytes()
        assert len(zlib.compress(picture)) > 50_000  # not a white sheet


# Words of a plot that reach over the edge of its picture.
OUTSIDE = """[...document.querySelectorAll('figure .plot svg')].flatMap((svg) => {
  const all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((one) => { const box = one.getBoundingClientRect();
    return box.width && (box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 ||
      box.bottom > all.bottom + 1); }).map((one) => svg.closest('figure').id + ': ' + one.textContent); })"""


def test_words_are_readable_where_it_is_dark(chromium, report):
    inks = {}
    for dark in (False, True):
        with shown(chromium, report, dark=dark) as page:
            inks[dark] = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
    assert inks == {False: "rgb(31, 35, 40)", True: "rgb(230, 237, 243)"}


def test_claims_are_filtered(chromium, report):
    visible = (
        "[...document.querySelectorAll('.claims tbody tr')].filter((one) => one.checkVisibility())"
        ".map((one) => ({ paper: one.dataset.paper, holds: one.dataset.holds }))"
    )
    change = (
        "(() => {{ const form = document.querySelector('.filter'); form.{0}.value = {1!r};"
        "form.dispatchEvent(new Event('input')); }})()"
    )
    with shown(chromium, report) as page:
        whole = page.evaluate(visible)
        page.evaluate(change.format("holds", "no"))
        some = page.evaluate(visible)
        assert some == [one for one in whole if one["holds"] == "no"] and 0 < len(some) < len(whole)
        page.evaluate(change.format("paper", "SplitJoin"))
        few = page.evaluate(visible)
        assert few == [one for one in some if one["paper"] == "SplitJoin"] and 0 < len(few) < len(some)
        assert page.evaluate("document.querySelector('.filter output').textContent") == f"{len(few)} of {len(whole)}"
        page.evaluate(change.format("text", "no such words"))
        assert page.evaluate(visible) == [] and page.errors == []


def test_links_to_sections_lead_somewhere(chromium, report):
    with shown(chromium, report) as page:
        links = "[...document.querySelectorAll('nav a')].map((one) => one.getAttribute('href'))"
        assert page.evaluate(f"{links}.length") > 6
        assert page.evaluate(f"{links}.filter((link) => !document.querySelector(link))") == []
