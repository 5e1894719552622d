"""What a join on a device says of itself."""

from __future__ import annotations

from typing import Any

from watersmeet.device.advise import advise
from watersmeet.device.errors import gib
from watersmeet.query.plan import JoinPlan


def device_lines(index: Any, plan: JoinPlan, core: Any, pairs: bool) -> list[str]:
    """What is on the device, and what bounds it. pairs: whether results are made, not only counted."""
    machine = index.machine()
    composite = plan.equality and plan.range is not None
    each = 2 * (20 if composite else 12)
    windows = len(core.shares)
    name = machine.name if not machine.total else f"{machine.name}, {gib(machine.total)}"
    lines = [
        f"device: {index.device} ({name})",
        f"  there: {'two keys' if composite else 'the key'} and the row number of each tuple, sorted; {each} bytes "
        "a tuple, with the room to merge",
        "  here: the tuples themselves, and their times; a batch sends its keys, and pairs or a count come back",
    ]
    most = index.most_bytes
    if most is not None:
        lines.append(f"  bounded by most_bytes: {most // each:,} tuples a window")
    elif machine.total:
        rows = min(machine.total // (each * windows), machine.most // 8)  # the largest array is one of keys
        lines.append(f"  bounded by its memory: less than {rows:,} tuples a window")
    if index.device != "gpu":
        return lines
    said = advise(equality=plan.range is None, pairs=pairs, early_results=True)  # each push is joined as it comes
    lines.append(f"  the study's guideline: {said}")
    return lines
