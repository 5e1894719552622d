"""Draws plots: Vega-Lite specifications, rendered by vl-convert, which needs neither a browser nor the internet.

Drawn for light pages; what is ink, grid or paper has colours of its own, which DARK replaces where a page is dark. The
colours of series are read on both. Ours is always blue, and thicker.
"""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

from watersmeet.bench.plots.plot import Plot, label

Layer = dict[str, Any]

HEIGHT = 300
VERSION = "6.4"  # of Vega-Lite
INK, GRID, QUIET = "#1f2328", "#d8dee4", "#59636e"
DARK = {INK: "#e6edf3", GRID: "#30363d", QUIET: "#9198a1"}
OURS = "#1f6feb"
COLOURS = ("#d9661f", "#1a8a45", "#a64ac9", "#9a7400", "#0e8a94", "#d14a86", "#6e7781", "#c93c37", "#7a5af5", "#5c7c1f")
KNOWN = {
    "watersmeet": OURS, "DuckDB": "#9a7400", "Polars": "#a64ac9", "DataFusion": "#d9661f",
    "DataFusion symmetric hash join": "#c93c37", "nested loop": "#c93c37", "argsort": "#6e7781", "bisort": OURS,
    "SplitJoin": OURS, "joins nothing": "#6e7781", "index": OURS, "hot_cold": OURS, "ASketch": OURS,
}  # fmt: skip
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"  # the first comes with vl-convert: same sizes everywhere


class NoPlots(ImportError):
    """What draws is not installed."""


@cache
def converter() -> Any:
    try:
        import vl_convert
    except ImportError:
        raise NoPlots("plots need vl-convert: pip install 'watersmeet[report]'") from None
    return vl_convert


def colours(names: list[str]) -> list[str]:
    """One a series, no two the same while there are enough; shades of blue for several of ours."""
    blues = iter((OURS, "#54aeff", "#8250df"))
    taken = {KNOWN[name] for name in names if name in KNOWN}
    rest = [colour for colour in COLOURS if colour not in taken]
    found, number = [], 0
    for name in names:
        if name in KNOWN:
            found.append(KNOWN[name])
        elif name.startswith("watersmeet"):
            found.append(next(blues, OURS))
        else:
            found.append(rest[number % len(rest)])
            number += 1
    return found


def spec(plot: Plot, width: int | str = 640, legend: bool = False) -> dict[str, Any]:
    """As Vega-Lite; a width of "container" follows the page, which then has its own legend (`swatches`)."""
    names = plot.series
    colour: dict[str, Any] = {
        "field": "series", "type": "nominal", "scale": {"domain": names, "range": colours(names)}, "legend": None,
    }  # fmt: skip
    if legend and len(names) > 1 and isinstance(width, int):
        columns = max(1, width // (60 + 7 * max(map(len, names))))
        colour["legend"] = {"title": None, "orient": "top", "columns": columns, "labelLimit": 0}
    shape = {"field": "series", "scale": {"domain": names, "range": shapes(len(names))}, "legend": colour["legend"]}
    layers, height = (lines if plot.kind == "lines" else bars)(plot, {"color": colour}, {"shape": shape})
    values = [
        {"series": one.series, "x": one.x, "y": one.y, "low": one.low, "high": one.high, "rounds": one.rounds}
        for one in plot.points
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": width, "height": height, "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None, "padding": {"left": 6 if plot.kind == "lines" else 22, "top": 6, "right": 10, "bottom": 6},
        "data": {"values": values}, "layer": layers, "config": CONFIG,
    }  # fmt: skip


def swatches(plot: Plot) -> list[tuple[str, str]]:
    """(series, colour): the legend, for a page."""
    return list(zip(plot.series, colours(plot.series)))


def lines(plot: Plot, colour: Layer, shape: Layer) -> tuple[list[Layer], int]:
    """A line a series over what varies, with a rule from the worst round to the best at each point."""
    places = [float(place) for place in plot.places]
    log = plot.x.log and min(places) > 0
    axis: Layer = {"title": plot.x.title, "labelOverlap": "greedy", "labelSeparation": 8}
    if len(places) <= 10:  # the places that were measured
        words = json.dumps({text_of(place): label(place, plot.x.powers) for place in places})
        axis |= {"values": places, "labelExpr": f"({words})[datum.value + ''] || ''"}
    scale: Layer = {"type": "log"} if log else {"type": "linear", "zero": False}
    x = {"x": {"field": "x", "type": "quantitative", "axis": axis, "scale": scale | {"nice": False, "padding": 14}}}
    y = of_value(plot)
    thick = {"condition": {"test": "indexof(datum.series, 'watersmeet') == 0", "value": 3}, "value": 1.8}
    layers: list[Layer] = [
        {"mark": {"type": "line"}, "encoding": x | {"y": y, "strokeWidth": thick} | colour},
        {"mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.55},
         "encoding": x | {"y": y | {"field": "low"}, "y2": {"field": "high"}} | colour},
        {"mark": {"type": "point", "filled": True, "size": 46, "opacity": 1},
         "encoding": x | {"y": y, "tooltip": tooltip(plot)} | colour | shape},
    ]  # fmt: skip
    return layers + level(plot, "y", "x"), HEIGHT


def bars(plot: Plot, colour: Layer, shape: Layer) -> tuple[list[Layer], int]:
    """Names below each other. Where speeds differ by orders of magnitude there is no zero, so points instead of "
    "bars."""
    names = plot.series
    axis: Layer = {
        "title": plot.x.title or None,
        "labelLimit": 150,
        "labelExpr": "split(datum.label, ', ')",
        "grid": True,
    }
    y: Layer = {"y": {"field": "x", "type": "nominal", "sort": None, "axis": axis, "scale": {"padding": 0.2}}}
    if len(names) > 1 and not logarithmic(plot):
        y["yOffset"] = {"field": "series", "sort": names, "scale": {"domain": names}}
    x, log = of_value(plot), logarithmic(plot)
    mark = {"type": "point", "filled": True, "size": 80, "opacity": 1} if log else {"type": "bar"}
    rule = colour if log else {"color": {"value": INK}}
    layers: list[Layer] = [
        {"mark": mark, "encoding": y | {"x": x, "tooltip": tooltip(plot)} | colour | (shape if log else {})},
        {"mark": {"type": "rule", "strokeWidth": 1.5},
         "encoding": y | {"x": x | {"field": "low"}, "x2": {"field": "high"}} | rule},
    ]  # fmt: skip
    return layers + level(plot, "x", "y"), len(plot.places) * (36 if log else max(36, 16 * len(names)))


def of_value(plot: Plot) -> Layer:
    """What was measured, on its axis: ticks at 1, 2 and 5, or at powers of ten where there are many."""
    axis: Layer = {"title": plot.y.title, "labelExpr": "format(datum.value, datum.value >= 1000 ? ',' : '~g')"}
    value: Layer = {"field": "y", "type": "quantitative", "axis": axis}
    if not logarithmic(plot):
        return value | {"scale": {"zero": True, "nice": True}, "axis": axis | {"tickCount": 6}}
    ends = [end for one in plot.points for end in (one.low, one.high)] + ([plot.line[0]] if plot.line else [])
    low, high = min(ends), max(ends)
    steps = [m * 10.0**e for e in range(-12, 16) for m in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low)
    last = min(i for i, step in enumerate(steps) if step >= high)
    chosen = steps[first : last + 1]
    shown = chosen if len(chosen) <= 9 else [step for step in chosen if round(math.log10(step), 9) % 1 == 0]
    return value | {
        "scale": {"type": "log", "domain": [chosen[0], chosen[-1]], "nice": False},
        "axis": axis | {"values": shown},
    }


def logarithmic(plot: Plot) -> bool:
    return plot.y.log and all(one.low > 0 for one in plot.points)


def tooltip(plot: Plot) -> list[Layer]:
    kind = "nominal" if plot.x.names else "quantitative"
    figure = {"type": "quantitative", "format": ".4~g"}
    return [
        {"field": "series", "type": "nominal", "title": "who"},
        {"field": "x", "type": kind, "title": plot.x.title or "what"},
        {"field": "y", "title": f"{plot.y.title}, median"} | figure,
        {"field": "low", "title": "worst round"} | figure,
        {"field": "high", "title": "best round"} | figure,
        {"field": "rounds", "type": "quantitative", "title": "rounds"},
    ]


def level(plot: Plot, along: str, across: str) -> list[Layer]:
    """The level to compare with, and its words."""
    if plot.line is None:
        return []
    value, words = plot.line
    data = {"values": [{"level": value, "words": words}]}
    at = {along: {"field": "level", "type": "quantitative"}}
    words_at: Layer = {"align": "right", "dx": -5, "dy": -7} if along == "y" else {"align": "center", "dy": -8}
    place: Layer = {across: {"value": "width" if across == "x" else 0}}
    return [
        {"data": data, "encoding": at,
         "mark": {"type": "rule", "strokeDash": [5, 4], "color": INK, "strokeWidth": 1.5}},
        {"data": data, "mark": {"type": "text", "color": INK, "fontSize": 11} | words_at,
         "encoding": at | place | {"text": {"field": "words"}}},
    ]  # fmt: skip


def text_of(value: float) -> str:
    """A number as JavaScript prints it."""
    return str(int(value)) if value == int(value) else repr(value)


def shapes(count: int) -> list[str]:
    return [SHAPES[i % len(SHAPES)] for i in range(count)]


CONFIG: dict[str, Any] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": QUIET, "gridColor": GRID, "domainColor": GRID, "tickColor": GRID,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8,
    },
    "legend": {
        "labelColor": INK, "labelFontSize": 12, "symbolSize": 70, "symbolOpacity": 1, "columnPadding": 30,
        "rowPadding": 3,
    },
}  # fmt: skip


def svg(plot: Plot, width: int = 640) -> str:
    """As a picture by itself, its title in it, for light and dark pages."""
    title = {"text": plot.title, "color": INK, "fontSize": 15, "anchor": "start", "frame": "group", "offset": 10}
    text = converter().vegalite_to_svg(spec(plot, width, legend=True) | {"title": title}, vl_version=VERSION)
    head, _, rest = text.partition(">")
    return f"{head}><style>{style()}</style>{rest}\n"


def style(scope: str = "") -> str:
    """CSS that makes plots readable where a page is dark."""
    rules = "".join(
        f'{scope}[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{{rules}}}"


def script(snippet: str) -> str:
    """JavaScript with all that draws plots in a browser, and this."""
    return converter().javascript_bundle(snippet, vl_version=VERSION)
