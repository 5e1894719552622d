"""The documentation runs: README, docs/ and docstrings.

In Markdown, the ```python blocks of a file run in order in one namespace; a ```text block right after one is
exactly what it prints. A ```console block is a `$ watersmeet ...` command and what it prints.

`UPDATE_DOCS=1 make test ARGS=tests/test_docs.py` writes what is printed into the pages, instead of comparing.
"""

import contextlib
import doctest
import importlib
import io
import os
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import watersmeet
from watersmeet.cli import app
from watersmeet.query.evaluate import supported

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers that docs/spark.md starts
UPDATE = bool(os.environ.get("UPDATE_DOCS"))
MODULES = [
    module.name
    for module in pkgutil.walk_packages(watersmeet.__path__, "watersmeet.")
    if not module.name.endswith("__main__")
]
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
CONSOLE = re.compile(r"^```console\n\$ (?P<code>.*?[^\\])\n(?P<output>.*?)^```$", re.MULTILINE | re.DOTALL)


def run_blocks(page, pattern, run):
    """Run every block of the page that fits the pattern; what it prints must be what the page says."""
    __tracebackhide__ = True
    text, changes = page.read_text(), []
    for block in pattern.finditer(text):
        line = text.count("\n", 0, block.start("code"))
        printed = "".join(row.rstrip() + "\n" for row in run(block["code"], line).strip("\n").splitlines())
        if block["output"] is not None and printed != block["output"]:
            assert UPDATE, (
                f"{page.name}, line {line + 1}, prints\n{printed}but the page says\n{block['output']}"
            )
            changes.append((*block.span("output"), printed))
    for start, end, printed in reversed(changes):
        text = text[:start] + printed + text[end:]
    if changes:
        page.write_text(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_the_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}

    def run(code, line):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Empty lines first, so that a traceback names the line of the page.
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
        return printed.getvalue()

    run_blocks(page, PYTHON, run)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_page_print_what_it_says(page, monkeypatch):
    # Explain names the number of cores; the pages show two.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)

    def run(code, line):
        program, *arguments = shlex.split(code.replace("\\\n", " "))
        assert program == "watersmeet", f"{page.name}, line {line + 1}: only watersmeet can be run here"
        return CliRunner().invoke(app, arguments).output

    run_blocks(page, CONSOLE, run)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def test_every_function_is_documented():
    page = (ROOT / "docs" / "predicates.md").read_text()
    assert [name for name in supported() if f"`{name}" not in page] == []


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
