"""What a join says of itself."""

from __future__ import annotations

from watersmeet.engine import self_join
from watersmeet.engine.choose import index_text
from watersmeet.engine.core import JoinCore
from watersmeet.engine.cores.team import Team
from watersmeet.engine.sizes import Sizes
from watersmeet.query.windows import SIDES


def chosen_lines(core: JoinCore | Team, why: str, sizes: Sizes) -> list[str]:
    """What was chosen once the schemas were known, and why; a line a fact."""
    plan = core.plan
    lines = []
    if core.self_join:
        lines.append(f"self join: {self_join.text(plan, core.window)}")
    lines.append(f"index: {index_text(core.index, plan)}")
    lines.append(f"  because {why}")
    lines.append("terms:")
    lines += [f"  {term.kind:<11} {term.text}" + (f"  -- {term.note}" if term.note else "") for term in plan.terms]
    for side in SIDES:
        residual = getattr(plan, side).residual
        if residual is not None:
            lines.append(f"checked on candidates found by {side}: {residual.text}")
    lines.append(f"subwindows: {sizes.text(core.index)}")
    for sides, kinds in core.kinds():
        if any(kinds):  # chosen one by one
            lines.append(f"  {' and '.join(sides)} now: {', '.join(map(str, kinds))}")
    return lines


def batches_text(rows: int | None, delay: float | None) -> str:
    if rows is None:
        return "every push is processed at once"
    limits = [f"{rows} rows"] if rows < 1 << 62 else []
    limits += [f"{delay:g} s"] if delay is not None else []
    return "pushes are collected up to " + " or ".join(limits)
