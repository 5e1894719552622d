"""The helper that looks at pages in a browser sees what is wrong with them."""

import pytest

pytestmark = pytest.mark.long

HEAD = "<!doctype html><meta name='viewport' content='width=device-width'><style>body { margin: 0 }</style>"


@pytest.fixture
def show(chromium, tmp_path):
    pages = []

    def show(body, **options):
        path = tmp_path / "page.html"
        path.write_text(HEAD + body)
        pages.append(chromium.open(path, **options))
        return pages[-1]

    yield show
    for page in pages:
        page.close()


def test_a_good_page_has_nothing_wrong(show, tmp_path):
    page = show("<p>text</p><svg width=50 height=50><rect width=9 height=9 /><path d='M0 0L9 9' /></svg>", width=390)
    assert (page.errors, page.too_wide(), page.cut_off(), page.empty_plots()) == ([], [], [], [])
    assert page.evaluate("innerWidth") == 390
    assert page.screenshot(tmp_path / "page.png").read_bytes()[:4] == b"\x89PNG"


def test_errors_of_scripts_the_console_and_missing_files_are_seen(show):
    page = show("<script>console.error('said', 1); missing()</script><img src=none.png>")
    page.wait_for("document.readyState === 'complete'")
    text = "\n".join(page.errors)
    assert "console error: said 1" in text and "missing is not defined" in text and "ERR_FILE_NOT_FOUND" in text
    assert any(url.endswith("none.png") for url in page.requests)


@pytest.mark.parametrize("body", ["<div style='width:800px'>wide</div>", "<p>" + "x" * 300 + "</p>"])
def test_what_is_too_wide_is_named(show, body):
    assert show(body, width=390).too_wide() != []
    assert show(f"<div style='overflow-x:auto'>{body}</div>", width=390).too_wide() == []


def test_text_that_is_cut_off_is_named(show):
    assert show("<div style='width:50px;overflow:hidden;white-space:nowrap'>much too long</div>").cut_off() != []


@pytest.mark.parametrize(
    "plot", ["<svg width=50 height=50></svg>", "<canvas></canvas>", "<svg width=0><rect width=9 height=9 /></svg>"]
)
def test_empty_plots_are_named(show, plot):
    assert len(show(plot).empty_plots()) == 1


def test_a_canvas_with_something_on_it_is_not_empty(show):
    drawn = "document.querySelector('canvas').getContext('2d').fillRect(1, 1, 5, 5)"
    assert show(f"<canvas></canvas><script>{drawn}</script>").empty_plots() == []


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(show, dark):
    assert show("<p>", dark=dark).evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
