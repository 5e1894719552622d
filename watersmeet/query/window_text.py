"""Windows written as text, for the command line and for job files: "within 10 seconds", "last 1000", ...

    10 seconds                      the same as within 10 seconds
    within 0, 1 hour                within(0, "1 hour")
    tumbling 1 minute               tumbling("1 minute")
    hopping 1 hour, 5 minutes       hopping("1 hour", "5 minutes")
    last 1000, 500                  last(1000, 500)
"""

from __future__ import annotations

import re
from typing import Any

from watersmeet.query.windows import Window, hopping, last, tumbling, within

# What makes it, an example of its sizes, how many there may be.
KINDS: dict[str, tuple[Any, str, range]] = {
    "within": (within, "10 seconds", range(1, 3)),
    "last": (last, "1000", range(1, 3)),
    "tumbling": (tumbling, "1 minute", range(1, 2)),
    "hopping": (hopping, "1 hour, 5 minutes", range(2, 3)),
}

NEVER = "never"


def window_of(text: str, time: Any, lateness: Any, name: str, idle_after: Any = None) -> Window:
    """The window that the text describes; `name` is what errors call it. idle_after may be "never", for a side."""
    kind, sizes = _parts(text, name)
    make = KINDS[kind][0]
    if kind == "last":
        return make(*sizes)
    late = [number_or_text(one) for one in lateness] if isinstance(lateness, list | tuple) else number_or_text(lateness)
    idle = idle_after if isinstance(idle_after, list | tuple) else (idle_after, idle_after)
    idle = [None if one == NEVER else number_or_text(one) for one in idle]
    return make(*sizes, time=time, lateness=late, idle_after=idle)


def counts_whole_numbers(text: str, name: str) -> bool | None:
    """Whether the window suits integer times (True) or timestamps (False); None if it has no times."""
    kind, sizes = _parts(text, name)
    return None if kind == "last" else all(isinstance(size, int) for size in sizes)


def number_or_text(value: Any) -> Any:
    """Whole numbers in digits as numbers; everything else as it is."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+\s*", value):
        return int(value)
    return value


def _parts(text: str, name: str) -> tuple[str, list[Any]]:
    kind, _, rest = text.strip().partition(" ")
    if kind[:1].isdigit():
        kind, rest = "within", text
    if kind not in KINDS:
        raise ValueError(f"{name} must begin with one of {', '.join(KINDS)}, not {text!r}")
    _, example, count = KINDS[kind]
    sizes = [number_or_text(part.strip()) for part in rest.split(",") if part.strip()]
    if len(sizes) not in count:
        raise ValueError(f'{name} must read for instance "{kind} {example}", not {text!r}')
    return kind, sizes
