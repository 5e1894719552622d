"""Draw the pictures of docs/cookbook.md from what its code returns: python tools/pictures.py

Two streams, time from left to right, a line for each pair; rows that are results by themselves (left, semi and anti
joins) have a ring.
"""

from __future__ import annotations

import contextlib
import io
import re
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/cookbook.md"
#: picture -> left stream, right stream and results as the page calls them; what stands at rows of each
PICTURES = {
    "near": ("trades", "quotes", "near", "{symbol} {price:.2f}", "{price:.2f}"),
    "limits": ("readings", "limits", "alarms", "{room} {degrees}", "{room} > {above}"),
    "ships": ("reports", "contacts", "seen", "{ship}", "{echo}"),
    "ads": ("shown", "bought", "led", "{person} {ad}", "{person} {item}"),
    "orders": ("orders", "payments", "unpaid", "{order} {amount}", "{paid} {amount}"),
    "met": ("ships", "ships", "met", "{ship} {x}", "{ship} {x}"),
    "cards": ("uses", "uses", "doubtful", "{card} {city}", "{card} {city}"),
    "deployments": ("errors", "deployments", "after", "{error} {service}", "{version} {service}"),
    "loads": ("loads", "sources", "short", "{amperes} A", "{plant} {watts:.0f}"),
    "offers": ("bids", "offers", "taken", "{bid} {most}", "{offer} {least}"),
}
WIDTH, HEIGHT, EDGE, ABOVE, BELOW = 720, 210, 60, 66, 148
STYLE = (
    "text{fill:#1f2328}.quiet{fill:#59636e}.lane{stroke:#afb8c1}.pair{stroke:#1a8a45}.l{fill:#d9661f}.r{fill:#1f6feb}"
    ".ring{stroke:#1a8a45}@media (prefers-color-scheme: dark){text{fill:#e6edf3}.quiet{fill:#9198a1}"
    ".lane{stroke:#484f58}.pair,.ring{stroke:#3fb950}}"
)
Row = dict[str, Any]


def run() -> dict[str, Any]:
    """All names of the page, after its code has run."""
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, str(PAGE), "exec"), names)
    return names


def pictures() -> dict[str, str]:
    """The pictures by the names of their files."""
    names = run()
    drawn = {}
    for name, (left, right, results, above, below) in PICTURES.items():
        rows = [names[one].to_pylist() for one in (left, right)]
        drawn[f"cookbook-{name}.svg"] = draw((left, right), rows, names[results].to_pylist(), (above, below))
    return drawn


def draw(streams: tuple[str, str], rows: list[list[Row]], results: list[Row], texts: tuple[str, str]) -> str:
    timed = "ts" in rows[0][0]
    # Without a time, rows stand in order of arrival: left before right.
    starts = (0, len(rows[0]))
    times = [[row["ts"] if timed else k + i for i, row in enumerate(side)] for k, side in zip(starts, rows)]
    first, last = min(map(min, times)), max(map(max, times))

    def across(time: float) -> float:
        return EDGE + (WIDTH - 2 * EDGE) * (time - first) / (last - first)

    pairs, alone = found(rows, results)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="Liberation Sans, Arial, Helvetica, sans-serif" font-size="13" text-anchor="middle">',
        f"<style>{STYLE}</style>",
    ]
    for name, y, at in zip(streams, (ABOVE, BELOW), (18, HEIGHT - 8)):
        parts.append(f'<text class="quiet" x="8" y="{at}" text-anchor="start">{escape(name)}</text>')
        parts.append(f'<line class="lane" x1="8" x2="{WIDTH - 8}" y1="{y}" y2="{y}" stroke-width="2"/>')
    for i, j in pairs:
        parts.append(
            f'<line class="pair" x1="{across(times[0][i]):.1f}" y1="{ABOVE}" x2="{across(times[1][j]):.1f}" '
            f'y2="{BELOW}" stroke-width="2.5"/>'
        )
    for k, (side, y, text) in enumerate(zip(rows, (ABOVE, BELOW), texts)):
        for i, row in enumerate(side):
            x = across(times[k][i])
            ring = ' stroke-width="4"' if k == 0 and i in alone else ' stroke="none"'
            kind = f"{'lr'[k]}{' ring' if k == 0 and i in alone else ''}"
            parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="8"{ring}/>')
            words = escape(text.format(**row))
            parts.append(f'<text x="{x:.1f}" y="{y - 16 if k == 0 else y + 27}">{words}</text>')
            if timed:
                at = y - 32 if k == 0 else y + 43
                parts.append(f'<text class="quiet" font-size="11" x="{x:.1f}" y="{at}">{row["ts"]}</text>')
    return "\n".join([*parts, "</svg>", ""])


def found(rows: list[list[Row]], results: list[Row]) -> tuple[list[tuple[int, int]], set[int]]:
    """Results as positions in both streams, and those of the left that stand alone."""
    columns = [list(side[0]) for side in rows]
    names = [name + "_right" if name in columns[0] else name for name in columns[1]]
    pairs, alone = [], set()
    for result in results:
        i = next(i for i, row in enumerate(rows[0]) if all(result[name] == row[name] for name in columns[0]))
        partner = [result.get(name) for name in names]
        if all(value is None for value in partner):
            alone.add(i)
        else:
            pairs.append((i, next(j for j, row in enumerate(rows[1]) if list(row.values()) == partner)))
    return sorted(pairs), alone


def main() -> None:
    for name, text in pictures().items():
        (ROOT / "docs/pictures" / name).write_text(text)


if __name__ == "__main__":
    main()
