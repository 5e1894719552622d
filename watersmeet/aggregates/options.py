"""What `per`, `aggregate` and `emit` ask for, and what goes with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from watersmeet.engine.results import HOWS
from watersmeet.parameters import one_of
from watersmeet.query.windows import SIDES, Side, other

from .functions import Call, calls

Emit = Literal["final", "updates"]
EMITS = ("final", "updates")


@dataclass(frozen=True)
class PerRow:
    """One row for each tuple of a side, with aggregates of its partners."""

    side: Side
    calls: tuple[Call, ...]
    updates: bool  # with each push, instead of once, when it is complete
    keeps_all: bool  # also tuples without partners

    def text(self) -> str:
        return ", ".join(f"{call.name} = {call.text}" for call in self.calls)


def per_row(per: Any, aggregate: Any, emit: Any, how: Any) -> PerRow | None:
    """What was asked for, checked; None: nothing of the kind."""
    if per is None and aggregate is None:
        if emit is not None:
            raise ValueError(f"emit={emit!r} is for aggregates; give per= and aggregate= with it, or leave it out")
        return None
    if aggregate is None:
        raise ValueError(f"per={per!r} needs aggregate=, such as aggregate={{'n': 'count(*)'}}")
    if per is None:
        raise ValueError("aggregate needs per='left' (one row for each left row) or per='right'")
    one_of("per", per, SIDES)
    emit = "final" if emit is None else emit
    one_of("emit", emit, EMITS)
    if how is not None:
        one_of("how", how, HOWS)
        if how not in ("inner", per):
            raise ValueError(
                f"how must be {per!r} (each {per} row, as without it) or 'inner' (those with partners) where per is "
                f"{per!r}, got {how!r}"
            )
    return PerRow(per, calls(aggregate, other(per)), emit == "updates", how != "inner")


def check_alone(per: PerRow | None, **given: tuple[Any, Any]) -> None:
    """ValueError for options that aggregates have no use for: name=(value, the only one)."""
    if per is not None:
        for name, (value, only) in given.items():
            if value != only:
                remedy = "leave it out" if name != "output" else "leave it out: rows come out"
                raise ValueError(f"{name}={value!r} does not go with aggregate=, which needs {only!r}; {remedy}")
