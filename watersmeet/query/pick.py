"""One partner for each left row: which of several is the best.

    latest      the greatest r.time                   pick_by: the greatest value
    earliest    the least r.time                      pick_by: the least value
    nearest     the least distance of the two times   pick_by: the least value, which is the distance

Of equally good ones the later in time is taken, and of those with equal times the last to arrive; by "earliest" it is
the earlier in time, and the first to arrive. A partner whose value is null is taken only if there is no other. Values
compare as in predicates: NaN is greater than every number.

A value is compared as two int64, its high and its low part, so that integers and decimals that int64 does not hold are
exact, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from watersmeet.parameters import one_of

from . import keys as key_maps
from .evaluate import bind
from .expr import Expr
from .node import Node, Rows
from .plan import JoinPlan, columns_of
from .predicate import predicate
from .vector import Valid
from .windows import Last

Array = np.ndarray
PickName = Literal["latest", "earliest", "nearest"]
PICKS = ("latest", "earliest", "nearest")
_SIGN = np.int64(-(2**63))
_WIDEST = 2**127


@dataclass(frozen=True)
class Pick:
    """by: None for the time."""

    way: PickName
    by: Expr | None = None

    def __str__(self) -> str:
        return self.way if self.by is None else f"{self.way} by {self.by}"


def checked_pick(pick: Any, pick_by: Any, how: str, window: Any) -> Pick | None:
    """What was asked for, or None; errors that need no schema."""
    if pick is None:
        if pick_by is not None:
            raise ValueError("pick_by is for joins that pick one partner; give pick= as well, as in pick='nearest'")
        return None
    one_of("pick", pick, PICKS)
    if how not in ("inner", "left"):
        raise ValueError(
            f"pick gives each left row one partner, so how must be 'inner' or 'left' (which keeps rows without a "
            f"partner), got {how!r}; leave out pick, or swap the streams"
        )
    if isinstance(window, Last):
        raise ValueError(
            f"pick needs a window over time, which tells when a row's partners are complete, got {window!r}; use "
            f"within, tumbling or hopping"
        )
    return Pick(pick, None if pick_by is None else _said(lambda: predicate(pick_by)))


def _said(work: Any) -> Any:
    """What `work` gives; its errors speak of predicates."""
    try:
        return work()
    except (ValueError, TypeError) as error:
        text = re.sub(r"^on\b", "pick_by", str(error))
        raise type(error)(text.replace("on=lambda", "pick_by=lambda")) from None


class BoundPick:
    """A pick over two known schemas."""

    def __init__(self, pick: Pick, left: pa.Schema, right: pa.Schema):
        self.pick = pick
        self.way = pick.way
        self._node: Node | None = None
        self.columns: frozenset[tuple[str, str]] = frozenset()
        if pick.by is not None:
            by = pick.by
            self._node = _said(lambda: bind(by, left, right))
            self.columns = frozenset(columns_of(self._node))
            kind = self._node.type
            if not (kind.countable or kind.kind in ("float", "bool")):
                raise TypeError(f"pick_by must be a number, a time or a boolean, but {pick.by} is {kind}; cast it")
            if kind.countable and not -_WIDEST <= kind.low <= kind.high < _WIDEST:
                raise TypeError(f"pick_by may be beyond what is compared exactly ({pick.by}); cast it to double")

    @property
    def by_time(self) -> bool:
        return self._node is None

    def values(
        self, left: Mapping[str, pa.Array], right: Mapping[str, pa.Array], rows: int
    ) -> tuple[Array, Array, Valid]:
        """High and low parts of the values of pairs, which compare as int64 do, and which of them are not null."""
        assert self._node is not None
        with np.errstate(all="ignore"):
            data, valid = self._node.run(Rows(left, right, rows))
        if self._node.type.kind == "float":
            data = key_maps.doubles_key(data)
        elif self._node.type.kind == "bool":
            data = data.astype(np.int64)
        data, valid = _full(data, valid, rows)
        if data.dtype == object:
            high = np.array([int(value) >> 64 for value in data], np.int64)
            low = np.array([int(value) & (2**64 - 1) for value in data], np.uint64).view(np.int64)
        else:
            high, low = data >> np.int64(63), data
        return high, low ^ _SIGN, valid


def _full(data: Any, valid: Valid, rows: int) -> tuple[Array, Valid]:
    """One value a pair, also where all pairs share one."""
    if len(data) != rows:
        data = np.full(rows, data[0], data.dtype)
    if valid is not None and len(valid) != rows:
        valid = np.full(rows, valid[0], bool)
    return data, valid


def by_merging(pick: BoundPick, plan: JoinPlan) -> bool:
    """Whether the keys of equalities and the times tell all: then a merge in order of time finds the partners.

    Keys that are hashes are checked again; those of <=> are not told apart from null often enough for that.
    """
    kinds = {term.kind for term in plan.terms}
    plain = not any("<=>" in term.text for term in plan.terms)
    return pick.by_time and plain and kinds <= {"equality", "one-sided"}
