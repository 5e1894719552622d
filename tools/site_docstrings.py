"""For the site's API page (mkdocs.yml): parameters of a docstring, one a line (`name: what it is`), become a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"^ *([a-z][a-z_]*(?:, [a-z][a-z_]*)*): +", re.M)


def listed(text: str) -> str:
    """
    >>> print(listed("Joins.\\n\\non: a text\\n    or two\\nhow, suffix: others"))
    Joins.
    <BLANKLINE>
    - **on**: a text
        or two
    - **how, suffix**: others
    """
    if len(PARAMETER.findall(text)) < 2:
        return text
    return PARAMETER.sub(lambda found: f"- **{found[1]}**: ", text)


class Parameters(griffe.Extension):
    def on_object(self, *, obj: Any, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)
