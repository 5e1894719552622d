"""Distances between points, and the boxes that hold all points within one.

    distance(x1, y1, x2, y2)            in a plane; of six arguments, in space
    haversine(lat1, lon1, lat2, lon2)   on the earth as a sphere, in metres; degrees in

`distance(...) <= d` holds only where abs(x1 - x2) <= d and abs(y1 - y2) <= d: bands that the planner can look for
(boxes.py), while the distance itself is checked on what they find. On a sphere latitude and longitude are poor
dimensions: at the poles all longitudes meet, and -180 lies beside 180. Points in space have neither trouble: within m
metres along the surface is within 2 R sin(m / 2R) in a straight line, so the dimensions are x, y and z, seen from the
centre of the earth, whatever the place. Limits are a little wider than they should be, by more than all roundings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .arithmetic import absolute, addition, numbers
from .expr import Call, Expr
from .logic import compare
from .node import Builder, Node, Rows, as_float, constant, make, unify
from .types import FLOAT64
from .vector import Valid, Vector, both

EARTH_METRES = 6_371_008.8  # mean radius
_ONE = constant(1.0)


def _coordinates(args: list[Node], expr: Call) -> list[Node]:
    numbers(args, expr)
    if len(args) % 2:
        raise ValueError(f"on has {expr}; distance takes the coordinates of one point, then as many of the other")
    return [as_float(node) for node in unify([*args, _ONE], expr)[:-1]]


def _values(runs: list, rows: Rows) -> tuple[list[np.ndarray], Valid]:
    valid: Valid = None
    found = []
    for run in runs:
        data, also = run(rows)
        found.append(data)
        valid = both(valid, also)
    return found, valid


def _distance(args: list[Node], expr: Call) -> Node:
    nodes = _coordinates(args, expr)
    runs, half = [node.run for node in nodes], len(nodes) // 2

    def run(rows: Rows) -> Vector:
        values, valid = _values(runs, rows)
        length: Any = np.abs(values[0] - values[half])
        for one, other in zip(values[1:half], values[half + 1 :], strict=True):
            gap = np.abs(one - other)
            # hypot neither overflows nor vanishes where squares do; but of infinity and NaN it makes infinity.
            length = np.where(np.isnan(gap + length), np.nan, np.hypot(length, gap))
        return length, valid

    return make("distance", nodes, FLOAT64, expr, run)


def _on_earth(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    return (np.abs(lat) <= 90) & (np.abs(lon) <= 360)


def _haversine(args: list[Node], expr: Call) -> Node:
    nodes = _coordinates(args, expr)
    runs = [node.run for node in nodes]

    def run(rows: Rows) -> Vector:
        (lat1, lon1, lat2, lon2), valid = _values(runs, rows)
        across = np.sin(np.radians(lat2 - lat1) / 2) ** 2
        along = np.sin(np.radians(lon2 - lon1) / 2) ** 2
        square = across + np.cos(np.radians(lat1)) * np.cos(np.radians(lat2)) * along
        metres = 2 * EARTH_METRES * np.arcsin(np.sqrt(np.minimum(square, 1)))
        return metres, both(valid, _on_earth(lat1, lon1) & _on_earth(lat2, lon2))

    return make("haversine", nodes, FLOAT64, expr, run)


DISTANCES: dict[str, tuple[Builder, int, int]] = {"distance": (_distance, 4, 6), "haversine": (_haversine, 4, 4)}


# --- what follows from a distance -----------------------------------------------------------------


def implied(item: Node) -> list[Node]:
    """Bands over both sides that hold wherever this conjunct does; they need no check, as the conjunct gets one."""
    if item.op == "and":  # a BETWEEN
        return [band for arg in item.args for band in implied(arg)]
    if item.op not in ("<", "<=", "=", ">", ">=") or not item.args:
        return []
    length, limit = item.args if item.op[0] != ">" else item.args[::-1]
    if length.op == "distance":
        half = len(length.args) // 2
        limit = make("outward", (limit,), FLOAT64, limit.expr, _moved(limit, _outward))
        pairs = list(zip(length.args[:half], length.args[half:], strict=True))
    elif length.op == "haversine":
        limit = make("chord", (limit,), FLOAT64, limit.expr, _moved(limit, _chord))
        pairs = [(_axis(axis, *length.args[:2]), _axis(axis, *length.args[2:])) for axis in "xyz"]
    else:
        return []
    bands = [_band(one, other, limit) for one, other in pairs]
    return [band for band in bands if len(band.sides) == 2]


def _band(one: Node, other: Node, limit: Node) -> Node:
    """abs(one - other) <= limit"""
    expr: Expr = Call("-", (one.expr, other.expr))
    gap = absolute([addition("-")([one, other], expr)], Call("abs", (expr,)))  # type: ignore[arg-type]
    return compare("<=", gap, limit, Call("<=", (gap.expr, limit.expr)))


def _moved(limit: Node, move: Any) -> Any:
    inner = limit.run
    return lambda rows: (move((v := inner(rows))[0]), v[1])


def _outward(limit: np.ndarray) -> np.ndarray:
    """The roundings of `distance` are some last places; those next to 0 are all of one size."""
    return limit * (1 + 2.0**-48) + 2.0**-1070


def _chord(metres: np.ndarray) -> np.ndarray:
    straight = 2 * EARTH_METRES * np.sin(np.minimum(metres / EARTH_METRES, np.pi) / 2)
    return straight * (1 + 1e-9) + 1e-6


def _axis(axis: str, lat: Node, lon: Node) -> Node:
    """x, y or z of a point on the earth, in metres from its centre."""
    runs = [lat.run, lon.run]

    def computed(rows: Rows) -> Vector:
        (lats, lons), valid = _values(runs, rows)
        valid = both(valid, _on_earth(lats, lons))
        if axis == "z":
            return EARTH_METRES * np.sin(np.radians(lats)) + 0 * lons, valid
        turned = np.radians(lons)
        return EARTH_METRES * np.cos(np.radians(lats)) * (np.cos(turned) if axis == "x" else np.sin(turned)), valid

    def run(rows: Rows) -> Vector:
        if node.key not in rows.seen:  # asked for twice by a probe, and once more where it is stored
            rows.seen[node.key] = computed(rows)
        return rows.seen[node.key]

    node = make(f"earth_{axis}", (lat, lon), FLOAT64, Call(f"earth_{axis}", (lat.expr, lon.expr)), computed)
    if node.op != "constant":
        node.run = run
    return node
