"""How joins and their figures look where they are printed: a line at the prompt, a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """Bytes as people read them.

    >>> size_text(512), size_text(1536), size_text(5 << 30)
    ('512 B', '1.5 KiB', '5.0 GiB')
    """
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def facts(metrics: Any) -> list[tuple[str, str]]:
    """What a join has done and holds, as (name, text)."""

    def both(name: str) -> str:
        return f"{getattr(metrics, name + '_left'):,} left, {getattr(metrics, name + '_right'):,} right"

    seconds, phases = (
        ", ".join(f"{step} {spent:.3f}" for step, spent in times.items() if spent)
        for times in (metrics.seconds, metrics.phases)
    )
    found = [
        ("rows in", both("rows_in")),
        ("rows out", f"{metrics.rows_out:,}"),
        ("late", both("late")),
        ("stored", both("stored")),
        ("waiting", f"{metrics.waiting:,}"),
        ("pushes", f"{metrics.pushes:,}"),
        ("held", f"{size_text(metrics.index_bytes)} of indexes, {size_text(metrics.payload_bytes)} of rows"),
        ("watermark", "none yet" if metrics.watermark is None else str(metrics.watermark)),
        ("seconds", seconds or "none yet"),
    ]
    if metrics.waits:
        worked, waited = (f"{min(times):.3f} to {max(times):.3f}" for times in (metrics.works, metrics.waits))
        found += [("phases", phases or "none yet"), ("a core", f"worked {worked}, waited {waited}")]
    return found


def line(name: str, parts: Iterable[tuple[str, str]]) -> str:
    """<Name key: value; key: value>"""
    return f"<{name} {'; '.join(f'{key}: {value}' for key, value in parts)}>"


def table(title: str, parts: Iterable[tuple[str, str]], below: str = "") -> str:
    """The same as HTML, with some preformatted text below it."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(key)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for key, value in parts
    )
    more = f"<details><summary>explain</summary><pre>{escape(below)}</pre></details>" if below else ""
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{more}</div>"


class Plan(str):
    """What `explain()` tells: a text, and in a notebook one with its lines."""

    def _repr_html_(self) -> str:
        return f"<pre style='text-align:left'>{escape(self)}</pre>"
