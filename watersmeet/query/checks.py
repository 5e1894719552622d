"""What the index does not tell of a pair, as comparisons of keys.

The index serves one key of the stored side. What the predicate says of other columns is checked on the pairs that the
index finds, and mostly that is a range of a stored key again: `l.y < r.y`, `l.id <> r.id`, a second equality or band.
So those keys are kept beside the tuples, each probe's limits are computed once, and a pair costs a comparison of
integers (window/kept.py). What is no such range (texts, products of both sides, sums of doubles) is the residual's.

    l.k = r.k and l.y < r.y and l.id <> r.id        left probes: right tuples keep y and id
      by the index   r.k = l.k
      by keys        r.y in [l.y + 1, ..]   and   r.id in [.., l.id - 1] or [l.id + 1, ..]

A stored tuple without one of these keys (a null) can never match, as one without an index key; nor can a probe without
limits. So neither is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import keys as key_maps
from .node import Node, Rows, sideless
from .ranges import Key, Ranges, intersection
from .terms import exactly
from .vector import Valid, both

#: Keys of a tuple that are kept at most: a cache line.
MOST_KEYS = 8


@dataclass(frozen=True)
class Check:
    """Pairs must have the stored tuple's key number `place` in one of the ranges of the probing tuple."""

    ranges: Ranges
    place: int

    def limits(self, rows: Rows) -> tuple[np.ndarray, Valid]:
        """(low, high) of each range, row by row; and which rows can match at all."""
        bands = self.ranges.bands
        limits = np.empty((rows.count, 2 * len(bands)), np.int64)
        possible: Valid = None
        for i, band in enumerate(bands):
            low, high, may = band.run(rows)
            limits[:, 2 * i], limits[:, 2 * i + 1] = low, high
            if len(bands) == 1:
                possible = None if may is None else key_maps.full((low, may), rows.count)[1]
            elif may is not None:
                limits[~np.broadcast_to(may, rows.count), 2 * i : 2 * i + 2] = key_maps.INT64_MAX, key_maps.INT64_MIN
        return limits, possible


@dataclass(frozen=True)
class Checks:
    """What the probes of one side compare. keys: those that tuples of the other side keep for it."""

    checks: tuple[Check, ...]
    keys: tuple[Key, ...]
    text: str

    def limits(self, rows: Rows) -> tuple[list[np.ndarray], Valid]:
        """Of each check, and which rows can match at all."""
        found = [check.limits(rows) for check in self.checks]
        possible: Valid = None
        for _, may in found:
            possible = both(possible, may)
        return [limits for limits, _ in found], possible


def kept(keys: tuple[Key, ...], rows: Rows) -> tuple[list[np.ndarray], Valid]:
    """The keys of tuples, and which of these have them all."""
    found = [key_maps.full(key.run(rows), rows.count) for key in keys]
    valid: Valid = None
    for _, each in found:
        valid = both(valid, each)
    return [np.ascontiguousarray(data) for data, _ in found], valid


def by_keys(items: list[Node], stored: str) -> tuple[Checks | None, list[Node]]:
    """What of these conjuncts is compared by keys of the stored side, and which are not."""
    keys: dict[tuple, Key] = {}
    found: list[Ranges] = []
    rest, texts = [], []
    for item in items:
        ranges = _keyed(exactly(item, stored))
        new = {each.key.id: each.key for each in ranges or () if each.key is not None}
        if not ranges or len(keys | new) > MOST_KEYS:
            rest.append(item)
            continue
        keys |= new
        found += ranges
        texts.append(str(item.expr))
    if not found:
        return None, rest
    places = {each: place for place, each in enumerate(keys)}
    checks = [Check(each, places[each.key.id]) for each in _joined(found) if each.key is not None]
    checks.sort(key=lambda check: _RANK[check.ranges.kind])
    return Checks(tuple(checks), tuple(keys.values()), " and ".join(texts)), rest


#: What is likely to leave the fewest pairs comes first.
_RANK = {"band": 0, "bands": 1, "inequality": 2, "not-equal": 3}


def _keyed(ranges: list[Ranges] | None) -> list[Ranges] | None:
    """With what concerns the probing tuple alone as part of another; None where there is no other."""
    if ranges is None:
        return None
    first = next((each for each in ranges if each.key is not None), None)
    if first is None:
        return None
    alone = [each for each in ranges if each.key is None]
    whole = intersection([first, *alone]) if alone else first
    if whole is None or not whole.exact:
        return None
    return [whole, *(each for each in ranges if each.key is not None and each is not first)]


def _joined(found: list[Ranges]) -> list[Ranges]:
    """Single ranges of one key as one."""
    answer: list[Ranges] = []
    for each in found:
        at = next((i for i, one in enumerate(answer) if _joins(one, each)), None)
        whole = None if at is None else intersection([answer[at], each])
        if at is None or whole is None:
            answer.append(each)
        else:
            answer[at] = whole
    return answer


def _joins(one: Ranges, other: Ranges) -> bool:
    assert one.key is not None and other.key is not None
    return one.key.id == other.key.id and len(one.bands) == len(other.bands) == 1


def alike(left: Checks | None, right: Checks | None) -> bool:
    """Whether tuples of one schema keep the same keys as left and as right."""
    ids = [[sideless(key.id) for key in checks.keys] if checks is not None else [] for checks in (left, right)]
    return ids[0] == ids[1]
