"""What the site has besides docs/ (mkdocs.yml): README as its first page, changelog, license, the report, and every
source that a page links to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
STORED = sorted((ROOT / "docs/figures").glob("*.json"))
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "LICENSE": "LICENSE"}
OUTSIDE = re.compile(r"\]\(\.\./([\w./-]+)")


def on_config(config: Any) -> Any:
    """Guides that mkdocs.yml does not name come after those that it does."""
    named = re.findall(r"[\w-]+\.md", str(config.nav))
    guides = next(part["Guides"] for part in config.nav if "Guides" in part)
    guides += sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in named)
    return config


def on_files(files: Any, config: Any) -> Any:
    from watersmeet.bench.plots import runs
    from watersmeet.bench.plots.page import page

    made = {PAGES[name]: (ROOT / name).read_text() for name in PAGES}
    made["index.md"] = made["index.md"].replace("](", "](../").replace("](../docs/", "](").replace("](../#", "](#")
    made["report.html"] = page(runs.load(STORED))
    for text in [path.read_text() for path in (ROOT / "docs").glob("*.md")] + [made["index.md"]]:
        for name in OUTSIDE.findall(text):
            if name not in PAGES and (ROOT / name).is_file():
                made[source(name)] = (ROOT / name).read_text()
    made["assets/worker.js"] = (ROOT / "tools/site_worker.js").read_text()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """What a page links to outside of docs/ is in the site under another name."""
    return OUTSIDE.sub(lambda link: "](" + PAGES.get(link[1], source(link[1])), markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme would ask the internet for what search needs where there is no server; ours is in the site."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "assets/worker.js")


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    return on_post_page(output_content, None, config)


def source(name: str) -> str:
    """As text, which every browser shows."""
    return f"source/{name}.txt"
