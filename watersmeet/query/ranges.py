"""Ranges of a stored key, and how they combine.

An AND of ranges over the same key is their intersection, an OR their union. Ranges are found by key id, so
that only those over the same key meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .keys import Band, KeyRun
from .node import Node
from .types import Type

SWAPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
MAX_BANDS = 16


@dataclass(frozen=True)
class Key:
    """How a stored tuple is keyed: equal `id`s mean equal keys."""

    id: tuple
    run: KeyRun
    text: str
    type: Type | None = None  # of which a countable key is a number


@dataclass(frozen=True)
class Ranges:
    """The ranges of one key in which every match lies; `exact` if all that lies there matches."""

    key: Key | None  # None: the condition concerns the probing tuple alone, and suits any key
    bands: tuple[Band, ...]
    exact: bool
    kind: str  # "band", "bands", "inequality", "not-equal"

    @property
    def two_sided(self) -> bool:
        return all(band.lows and band.highs for band in self.bands)


Found = dict[tuple | None, Ranges]


def combine(parts: list[Found], is_and: bool) -> Found:
    ids: list = []
    for part in parts:
        ids += [each for each in part if each not in ids]
    if ids != [None]:
        ids = [each for each in ids if each is not None]
    answer: Found = {}
    for each in ids:
        having = [
            found for part in parts if (found := part.get(each) or (part.get(None) if is_and else None))
        ]
        if not having or (len(having) < len(parts) and not is_and):
            continue
        whole = (intersection if is_and else union)(having)
        if whole is not None:
            answer[each] = (
                whole if len(having) == len(parts) else Ranges(whole.key, whole.bands, False, whole.kind)
            )
    return answer


def intersection(parts: list[Ranges]) -> Ranges | None:
    key = next((part.key for part in parts if part.key is not None), None)
    bands: list[Band] = [Band((), ())]
    exact, kept = True, []
    for part in parts:
        if len(bands) * len(part.bands) > MAX_BANDS:
            exact = False
            continue
        bands = [Band(a.lows + b.lows, a.highs + b.highs) for a in bands for b in part.bands]
        exact = exact and part.exact
        kept.append(part)
    if not kept:
        return None
    if len(bands) == 1:
        kind = "band" if bands[0].lows and bands[0].highs else "inequality"
    else:
        kind = kept[0].kind if len(kept) == 1 else "bands"
    return Ranges(key, tuple(bands), exact, kind)


def union(parts: list[Ranges]) -> Ranges | None:
    key = next((part.key for part in parts if part.key is not None), None)
    bands = tuple(band for part in parts for band in part.bands)
    if len(bands) > MAX_BANDS:
        return None
    return Ranges(key, bands, all(part.exact for part in parts), "bands" if len(bands) > 1 else parts[0].kind)


def one_range(key: Key, sign: str, bound: Callable[[str], KeyRun], exact: bool) -> Ranges | None:
    """The range `key (sign) bound`; `bound(sign)` gives the inclusive bound for one of > >= < <=."""
    if sign == "<>":
        if not exact:
            return None
        return Ranges(key, (Band((), (bound("<"),)), Band((bound(">"),), ())), True, "not-equal")
    if sign == "=":
        return Ranges(key, (Band((bound(">="),), (bound("<="),)),), exact, "band")
    if sign in (">", ">="):
        return Ranges(key, (Band((bound(sign),), ()),), exact, "inequality")
    return Ranges(key, (Band((), (bound(sign),)),), exact, "inequality")


def facing_stored(sign: str, a: Node, b: Node, stored: str) -> tuple[str, Node, Node] | None:
    """The comparison with the stored side's operand first, where the operands do not mix."""
    if stored in b.sides:
        sign, a, b = SWAPPED[sign], b, a
    if a.sides != {stored} or stored in b.sides:
        return None
    return sign, a, b
