"""What a join says of itself."""

from __future__ import annotations

from typing import Any

from watersmeet.aggregates.explain import aggregate_lines
from watersmeet.engine import self_join
from watersmeet.engine.asked import Asked, batches_text
from watersmeet.engine.choose import box_lines, index_text
from watersmeet.engine.core import JoinCore
from watersmeet.engine.cores.spread import Spread
from watersmeet.engine.cores.team import Team
from watersmeet.engine.pick import PickCore
from watersmeet.engine.sizes import Sizes
from watersmeet.engine.sta import sta_lines
from watersmeet.query.windows import SIDES, Side


def waiting_lines(asked: Asked, unknown: list[Side]) -> list[str]:
    """Of a join that does not know the columns of these streams yet."""
    whose = "stream" if asked.self_join else f"{' and '.join(unknown)} stream"
    lines = ["self join: one window"] if asked.self_join else []
    return [*_asked_lines(asked), *lines, f"index: not chosen yet, the schema of the {whose} is not known"]


def bound_lines(asked: Asked, core: Any, why: str, spread: Spread) -> list[str]:
    """Of a join that knows all; a line a fact."""
    lines = _asked_lines(asked)
    if asked.per is not None:
        lines += aggregate_lines(core, asked.per)
    else:
        lines += chosen_lines(core, why, asked.sizes, asked.output != "count")
        lines += [f"cores: {spread.text(core)}"] if asked.sta is None else sta_lines(core)
        lines += core.core_lines() if isinstance(core, Team) else []
        lines += spread.lines(core) if spread.route.cores > 1 else []
        lines += [f"order: {asked.order}"] if asked.order != "none" else []
    return [*lines, f"batches: {batches_text(asked)}"]


def _asked_lines(asked: Asked) -> list[str]:
    return [f"predicate: {asked.on}", f"window: {asked.window}", f"how: {asked.how}", f"output: {asked.output}"]


def chosen_lines(core: JoinCore | Team, why: str, sizes: Sizes, pairs: bool) -> list[str]:
    """What was chosen once the schemas were known, and why. pairs: whether results are made, not only counted."""
    plan = core.plan
    lines = []
    if core.self_join:
        lines.append(f"self join: {self_join.text(plan, core.window)}")
    if isinstance(core, PickCore):
        lines += core.lines()
    if not (isinstance(core, PickCore) and core.merges):
        lines.append(f"index: {index_text(core.index, plan)}")
        lines.append(f"  because {why}")
        lines += box_lines(plan)
    if hasattr(core.index, "device"):
        from watersmeet.device.explain import device_lines

        lines += device_lines(core.index, plan, core, pairs)
    lines.append("terms:")
    lines += [f"  {term.kind:<11} {term.text}" + (f"  -- {term.note}" if term.note else "") for term in plan.terms]
    for side in SIDES:
        its = getattr(plan, side)
        by_keys = core.keeps_keys and its.checks is not None
        if by_keys:
            lines.append(f"checked on candidates found by {side}, by keys: {its.checks.text}")
        residual = its.rest if by_keys else its.residual
        if residual is not None:
            lines.append(f"checked on candidates found by {side}: {residual.text}")
    lines.append(f"subwindows: {sizes.text(core.index)}")
    for sides, kinds in core.kinds():
        if any(kinds):  # chosen one by one
            lines.append(f"  {' and '.join(sides)} now: {', '.join(map(str, kinds))}")
    return lines
