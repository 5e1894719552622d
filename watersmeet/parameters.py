"""Checks of parameters that the engine and Spark share: choices and whole numbers, said in the user's words."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Sequence
from typing import Any

#: What other systems call a join type.
_OTHER_NAMES = {
    "outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right", "leftsemi": "semi",
    "leftanti": "anti", "exists": "semi", "notexists": "anti",
}  # fmt: skip

#: Cores of one join; more help nobody.
MOST_CORES = 1024


def one_of(parameter: str, value: Any, choices: Sequence[str], what: str = "") -> None:
    """Raise unless `value` is one of the choices; `what`: what else there is, in words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{parameter} must be one of {', '.join(choices)}{what}, got {value!r}{hint(value, choices)}")


def hint(value: Any, choices: Sequence[str]) -> str:
    """ "; did you mean 'full'?", or nothing where nobody can tell."""
    if not isinstance(value, str):
        return ""
    plain = value.strip().lower()
    squeezed = plain.replace("_", "").replace("-", "").replace(" ", "")
    if squeezed in ("cross", "crossjoin") and "inner" in choices:
        return "; for a cross join use how='inner' with on='true'"
    meant = _OTHER_NAMES.get(squeezed)
    if meant not in choices:
        close = difflib.get_close_matches(plain, choices, 1)
        same = [choice for choice in choices if choice.replace("_", "") == squeezed]
        meant = next(iter(same + close), None)
    return "" if meant is None else f"; did you mean {meant!r}?"


def whole(parameter: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """The value, a whole number of Python or NumPy, as Python's; raise where it is none, or out of bounds."""
    try:
        if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's as well
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{parameter} must be a whole number, at least {least}, got {value!r}") from None
    if number < least:
        raise ValueError(f"{parameter} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{parameter} must be at most {most}, got {number}")
    return number


def whole_or_none(parameter: str, value: Any, least: int = 1, most: int | None = None) -> int | None:
    return None if value is None else whole(parameter, value, least, most)
