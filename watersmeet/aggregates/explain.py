"""What a join with aggregates says of itself."""

from __future__ import annotations

from .core import AggregateCore
from .options import PerRow


def aggregate_lines(core: AggregateCore, per: PerRow) -> list[str]:
    """A line a fact."""
    away = "right" if per.side == "left" else "left"
    lines = [f"per: {per.side}, one row each{'' if per.keeps_all else ' that has partners'}"]
    lines += [f"  {field.name} {field.type} = {call.text}" for field, call in
              zip(core.aggregates.fields, per.calls, strict=True)]  # fmt: skip
    if per.updates:
        lines.append("emit: updates, rows that are new or have changed, with each push")
        lines.append(f"  each push goes through the {per.side} rows that wait")
    else:
        lines.append("emit: final, a row when no partner of it can come any more")
        lines.append(f"  it is looked up once; {away} rows are kept until then")
    lines.append("index: sorted runs")
    plan = core.plan
    if core.residual is None:
        lines.append("  no pairs are made: count from ranges, others from tables over them")
    else:
        lines.append("  pairs are made, in portions, checked and folded: the keys do not tell all")
        lines.append(f"checked on candidates: {core.residual.text}")
    lines.append("terms:")
    lines += [f"  {term.kind:<11} {term.text}" + (f"  -- {term.note}" if term.note else "") for term in plan.terms]
    lines.append("cores: 1")
    return lines
