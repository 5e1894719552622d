"""The site: built from docs/, searched without a server, nothing loaded from elsewhere, broken links refused."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_of_the_cookbook_are_what_its_code_returns():
    drawn = tool("pictures").pictures()
    assert len(drawn) == 10
    for name, text in drawn.items():
        assert (DOCS / "pictures" / name).read_text() == text, f"docs/pictures/{name}: run tools/pictures.py"
        assert f"pictures/{name}" in (DOCS / "cookbook.md").read_text()


def build(source, out):
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(source)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    ran = build(ROOT, out)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return out


@pytest.mark.long
def test_a_broken_link_fails_the_build(tmp_path):
    pytest.importorskip("mkdocs")
    for name in ("docs", "tools", "watersmeet", "examples", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("mkdocs.yml", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    page = tmp_path / "docs" / "gpu.md"
    page.write_text(page.read_text() + "\n[nowhere](nowhere.md) [no heading](windows.md#nothing-of-that-name)\n")
    ran = build(tmp_path, tmp_path / "site")
    said = ran.stdout + ran.stderr
    assert ran.returncode != 0 and "nowhere.md" in said and "nothing-of-that-name" in said


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index", "cookbook", "architecture", "papers", "api", "reproduction"])
def test_pages_load_nothing_and_fit(chromium, site, name, width, dark):
    with chromium.open(site / f"{name}.html", width=width, dark=dark) as page:
        page.wait_for("[...document.images].every((one) => one.complete)")
        assert page.errors == [] and page.too_wide() == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
        assert page.evaluate("[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)") == []
        scheme = page.evaluate("document.body.getAttribute('data-md-color-scheme')")
        assert scheme == ("slate" if dark else "default")


@pytest.mark.long
def test_search_works_without_a_server(chromium, site):
    with chromium.open(site / "index.html") as page:
        page.evaluate("document.querySelector('.md-search__input').focus()")
        page.send("Input.insertText", text="watermark")
        page.send("Input.dispatchKeyEvent", type="keyUp", key="k")
        page.wait_for("document.querySelectorAll('.md-search-result__item').length > 3")
        assert "Windows" in page.evaluate("document.querySelector('.md-search-result__list').innerText")
        assert page.errors == [] and all(url.startswith(("file:", "data:")) for url in page.requests)


def test_every_page_of_docs_is_in_the_site_and_its_navigation(site):
    text = (site / "index.html").read_text()
    for path in DOCS.glob("*.md"):
        assert f'href="{path.stem}.html" class="md-nav__link"' in text, path.name


@pytest.mark.long
def test_public_names_are_in_the_reference(site):
    text = (site / "api.html").read_text()
    for name in ("StreamJoin", "push", "advance", "within", "tumbling", "hopping", "last", "stream_join", "ASketch"):
        assert f">{name}<" in text or f".{name}&quot;" in text or f'.{name}"' in text, name
    assert "<strong>batch_rows, batch_delay</strong>" in text
