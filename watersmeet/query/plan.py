"""From a predicate and two schemas to what the engine runs.

A plan says for each side how its tuples are stored (`keys`), how they probe the other side's window
(`probe`), and what is left to check on the pairs a probe finds (`residual`). The two directions are planned
apart: left tuples probing right ones need a key of the right side, and the other way round, and the best key
differs (`abs(l.x - r.x) < l.tol` confines r.x between two bounds, but l.x - l.tol only from above).

For a live probing tuple p and a live stored tuple s the predicate is true exactly if

    (no equality, or p.equal == s.equal)
    and (no range, or p.lows[i] <= s.ordered <= p.highs[i] for some i)
    and (no residual, or the residual keeps the pair)

Where a key does not tell all (a hash, a prefix, a clamped number, rounded arithmetic) the first two let too
much through, never too little, and the residual of that direction checks the conjunct again.

Most of a residual are comparisons of other keys (checks.py). An engine that keeps these checks them by `checks`, and
what is left by `rest`; one that does not has the whole `residual`.

Bands over several keys are one key, too (boxes.py), which holds the equalities as well; the residual then checks all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from . import keys as key_maps
from .boxes import MOST_DIMENSIONS, Box, Dimension
from .cells import specimens, width_of
from .checks import Checks, alike, by_keys, kept
from .distances import implied
from .evaluate import bind
from .expr import Call, Expr
from .kernels import mix
from .logic import boolean, connective
from .node import Node, Rows, is_null_constant, sideless, truth
from .parse import parse
from .ranges import MAX_BANDS, Found, Key, Ranges, intersection
from .terms import OTHER, Equality, conjuncts, equality, normal, ranges

_RANK = {"band": 0, "bands": 1, "inequality": 2, "not-equal": 3}


@dataclass(frozen=True)
class Term:
    kind: str  # equality, band, bands, distance, inequality, not-equal, one-sided, residual
    text: str
    note: str = ""


class Keys(NamedTuple):
    """How the tuples of a batch are stored. `live` None: all; a tuple not live can never match."""

    equal: np.ndarray | None
    ordered: np.ndarray | None
    live: np.ndarray | None


class Probe(NamedTuple):
    """What the tuples of a batch look for. Bands of one tuple are disjoint; low > high is an empty one."""

    equal: np.ndarray | None
    lows: tuple[np.ndarray, ...]
    highs: tuple[np.ndarray, ...]
    live: np.ndarray | None


class Residual:
    """What must be checked of the pairs that one side's probes find."""

    def __init__(self, node: Node) -> None:
        self.text = str(node.expr)
        names = sorted(columns_of(node))
        self.left_columns = tuple(name for side, name in names if side == "l")
        self.right_columns = tuple(name for side, name in names if side == "r")
        self._holds = truth(node)

    def keep(self, left: Mapping[str, pa.Array], right: Mapping[str, pa.Array], rows: int) -> np.ndarray:
        """Which of the `rows` pairs are matches; the columns are given by name, one value a pair."""
        with np.errstate(all="ignore"):
            return self._holds(Rows(left, right, rows))

    def __repr__(self) -> str:
        return f"Residual({self.text!r})"


def columns_of(node: Node) -> set[tuple[str, str]]:
    if node.op == "column":
        return {(node.key[1], node.key[2])}
    return {each for arg in node.args for each in columns_of(arg)}


#: Operations on whole numbers and texts of which NumPy never warns; to tell it not to takes longer than many of them.
_SILENT = frozenset(
    ("column", "constant", "rescale", "midnight", "neg", "abs", "+", "-", "and", "or", "not", "=", "<>", "<", "<=", ">",
     ">=")
)  # fmt: skip


def _silent(node: Node) -> bool:
    return node.op in _SILENT and node.type.kind != "float" and all(map(_silent, node.args))


class SidePlan:
    """Everything the tuples of one side need."""

    def __init__(
        self,
        side: str,
        filters: list[Node],
        equal: Callable[[Rows], key_maps.Keyed] | None,
        ordered: Key | None,
        bands: tuple[key_maps.Band, ...] | None,
        residual: Residual | None,
        silent: bool,
        boxes: tuple[Box, Box] | None = None,
        checks: Checks | None = None,
        rest: Residual | None = None,
        kept: tuple[Key, ...] = (),
    ) -> None:
        self.residual = residual
        self.checks = checks  # of the residual, as far as that can be told by keys
        self.rest = rest  # of the residual
        self.kept = kept  # the keys of these tuples that the other side's checks compare
        self._quietly: Any = nullcontext if silent else partial(np.errstate, all="ignore")
        self._left = side == "l"
        self._filters = [truth(node) for node in filters]
        self._equal = equal
        self._ordered = ordered
        self._bands = bands
        self.boxes = boxes  # in which these tuples are stored, and in which they look for others

    @property
    def keys_are_doubles(self) -> bool:
        """Whether the key of one band is that of a double, which is not the number but its bits."""
        return self._ordered is not None and self._ordered.id[0] == "float"

    def of(self, batch: pa.RecordBatch) -> Tuples:
        """The tuples of a batch of this side, to be asked for their keys."""
        return Tuples(self, Rows(batch, None, len(batch)) if self._left else Rows(None, batch, len(batch)))


class Tuples:
    """What a plan says of the tuples of one batch. What storing and probing share is computed once."""

    def __init__(self, plan: SidePlan, rows: Rows) -> None:
        self._plan = plan
        self._rows = rows
        self._equality: tuple[np.ndarray | None, np.ndarray | None] | None = None

    @property
    def equality(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The equality keys, and the live rows as far as these and the conditions on this side tell."""
        if self._equality is None:
            self._equality = self._worked_out()
        return self._equality

    def _worked_out(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        plan, rows = self._plan, self._rows
        live: np.ndarray | None = None
        if plan._equal is None and not plan._filters:
            return None, None
        with plan._quietly():
            for holds in plan._filters:
                live = key_maps.both(live, holds(rows))
            if plan._equal is None:
                return None, live
            equal, valid = key_maps.full(plan._equal(rows), rows.count)
            return equal, key_maps.both(live, valid)

    def keys(self) -> Keys:
        """How they are stored."""
        plan, rows = self._plan, self._rows
        if plan.boxes is None:
            return self.keys_of_one_band()
        equal, live = self.equality
        with plan._quietly():
            ordered, valid = plan.boxes[0].keys(rows, equal)
        return Keys(None, ordered, key_maps.both(live, valid))

    def probe(self) -> Probe:
        """How they probe the other side's window."""
        plan, rows = self._plan, self._rows
        if plan.boxes is None:
            return self.probe_of_one_band()
        equal, live = self.equality
        with plan._quietly():
            lows, highs, possible = plan.boxes[1].ranges(rows, equal)
        return Probe(None, lows, highs, key_maps.both(live, possible))

    def kept(self) -> tuple[list[np.ndarray], np.ndarray | None]:
        """The keys that the other side's checks compare, and which tuples have them all."""
        with self._plan._quietly():
            return kept(self._plan.kept, self._rows)

    def limits(self) -> tuple[list[np.ndarray], np.ndarray | None]:
        """What these tuples' checks compare with, and which tuples can match by them."""
        assert self._plan.checks is not None
        with self._plan._quietly():
            return self._plan.checks.limits(self._rows)

    def keys_of_dimensions(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The keys of a box apart, one row a dimension, and which tuples are live: for routes."""
        plan = self._plan
        assert plan.boxes is not None
        with plan._quietly():
            keys, valid = plan.boxes[0].numbers(self._rows)
        return keys, key_maps.both(self.equality[1], valid)

    def probe_of_dimensions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Lows and highs likewise, and which tuples look for anything."""
        plan = self._plan
        assert plan.boxes is not None
        with plan._quietly():
            lows, highs, possible = plan.boxes[1].bounds(self._rows)
        return lows, highs, key_maps.both(self.equality[1], possible)

    def keys_of_one_band(self) -> Keys:
        """As `keys`, by the best key alone where there are several in a box."""
        plan, rows = self._plan, self._rows
        equal, live = self.equality
        if plan._ordered is None:
            return Keys(equal, None, live)
        with plan._quietly():
            ordered, valid = key_maps.full(plan._ordered.run(rows), rows.count)
        return Keys(equal, ordered, key_maps.both(live, valid))

    def probe_of_one_band(self) -> Probe:
        """As `probe`, likewise."""
        plan, rows = self._plan, self._rows
        equal, live = self.equality
        if plan._bands is None:
            return Probe(equal, (), (), live)
        with plan._quietly():
            lows, highs, possible = key_maps.bands_of(plan._bands, rows)
        return Probe(equal, lows, highs, key_maps.both(live, possible))


@dataclass(frozen=True)
class JoinPlan:
    left: SidePlan
    right: SidePlan
    terms: tuple[Term, ...]
    predicate: Expr
    equality: bool  # there are equality keys, on both sides
    range: str | None  # None, "band", "bands", "inequality", "not-equal" or "box": there is an ordered key
    unlike: str | None  # why tuples of one schema get other keys as left than as right; None: they get the same
    columns: frozenset[tuple[str, str]] = frozenset()  # that the predicate looks at: ("l" or "r", name)
    boxes: tuple[Box, Box] | None = None  # of left tuples and of right ones, as they are stored

    @property
    def checks_alike(self) -> bool:
        """Whether tuples of one schema keep the same keys for checks as left and as right."""
        return alike(self.left.checks, self.right.checks)

    @property
    def composite(self) -> bool:
        """Whether tuples have two keys, an equality's and a range's."""
        return self.equality and self.range not in (None, "box")


# --- making a plan --------------------------------------------------------------------------------


@dataclass
class _Direction:
    """One side's tuples stored, the other's probing: the key chosen, and which conjuncts it serves."""

    key: Key | None
    ranges: Ranges | None
    used: dict[int, Ranges]
    box: Box | None = None
    parts: tuple[dict[int, Ranges], ...] = ()  # of a box: what serves each dimension

    @property
    def rank(self) -> float:
        return 9 if self.ranges is None else _rank(self.ranges)


def _rank(found: Ranges) -> float:
    if found.kind == "bands" and not found.two_sided:
        return 2.5
    return _RANK[found.kind]


def compile_plan(
    on: str | Expr, left: pa.Schema, right: pa.Schema, ordered: bool = True, boxes: bool = True
) -> JoinPlan:
    """The plan of predicate `on` over tuples of two schemas; ValueError or TypeError where there is none.

    ordered: whether the index has a use for an ordered key; if not, ranges are left to the residual.
    boxes: whether several bands are to be one key; if not, all but one are left to the residual.
    """
    expr = parse(on) if isinstance(on, str) else on
    root = bind(expr, left, right)
    if root.type.kind not in ("bool", "null"):
        raise TypeError(f"on must be a predicate, but {expr} is {root.type}; compare it with something")
    items = list({item.key: item for item in conjuncts(normal(boolean(root, expr)))}.values())
    filters: dict[str, list[Node]] = {"l": [], "r": []}
    equalities: dict[int, Equality] = {}
    open_items: list[int] = []
    for i, item in enumerate(items):
        if len(item.sides) < 2:
            always = item.op == "constant" and not is_null_constant(item) and bool(item.constant[0][0])
            for side in () if always else (item.sides or ("l", "r")):
                filters[side].append(item)
        elif (found := equality(item)) is not None:
            equalities[i] = found
        else:
            open_items.append(i)

    # What follows from a distance is looked for, but needs no check of its own.
    following = {i: implied(items[i]) for i in open_items}
    owners = [i for i, bands in following.items() for _ in bands]
    conditions = {i: items[i] for i in open_items}
    conditions |= dict(enumerate((band for bands in following.values() for band in bands), len(items)))
    found_ranges = {
        stored: {i: ranges(item, stored) for i, item in conditions.items()} for stored in ("l", "r")
    }
    directions = {stored: _choose(found_ranges[stored]) for stored in ("l", "r")}
    best = min(directions.values(), key=lambda each: each.rank)
    if not ordered or (equalities and best.rank >= _RANK["not-equal"]):
        # Among equal keys almost all differ, and cutting them in two finds hardly fewer pairs: check them
        # instead.
        directions = {stored: _Direction(None, None, {}) for stored in ("l", "r")}
        best = directions["l"]
    ranged = best.ranges is not None
    if ranged and boxes:
        schemas = {"l": left, "r": right}
        boxed = {stored: _boxed(directions[stored], found_ranges[stored], stored, schemas) for stored in ("l", "r")}
        if all(each.box for each in boxed.values()):
            directions = boxed
    in_box = directions["l"].box is not None
    equal_exact = not in_box and len(equalities) <= 1 and all(each.exact for each in equalities.values())

    unchecked = {
        side: [
            item
            for i, item in enumerate(items)
            if (i in equalities and not equal_exact)
            or (i in open_items and (in_box or not _tells_all(directions[OTHER[side]].used.get(i))))
        ]
        for side in ("l", "r")
    }
    checks = {side: by_keys(some, OTHER[side]) for side, some in unchecked.items()}
    sides = {}
    for side in ("l", "r"):
        probed = directions[OTHER[side]]
        by_checks, rest = checks[side]
        compared = checks[OTHER[side]][0]
        equal = _equal_keys([each.left if side == "l" else each.right for each in equalities.values()])
        stored_key = (directions[side].key or _anywhere()) if ranged else None
        bands = None
        if ranged:
            bands = probed.ranges.bands if probed.ranges is not None else (key_maps.Band((), ()),)
        silent = all(map(_silent, items))
        own, others = directions[side].box, probed.box
        both_boxes = (own, others) if own is not None and others is not None else None
        sides[side] = SidePlan(
            side, filters[side], equal, stored_key, bands, _residual(unchecked[side]), silent, both_boxes,
            by_checks, _residual(rest), () if compared is None else compared.keys,
        )  # fmt: skip
    terms = _terms(items, equalities, directions, equal_exact, owners)
    kind = "box" if in_box else best.ranges.kind if best.ranges is not None else None
    unlike = _unlike(filters, list(equalities.values()), directions if ranged else None)
    return JoinPlan(
        sides["l"], sides["r"], terms, expr, bool(equalities), kind, unlike, frozenset(columns_of(root)),
        sides["l"].boxes,
    )  # fmt: skip


def _tells_all(found: Ranges | None) -> bool:
    return found is not None and found.exact


def _residual(items: list[Node]) -> Residual | None:
    return Residual(connective("and")(items, Call("and", tuple(each.expr for each in items)))) if items else None


def _unlike(
    filters: dict[str, list[Node]], equalities: list[Equality], directions: dict[str, _Direction] | None
) -> str | None:
    conditions = [{sideless(node.key) for node in filters[side]} for side in ("l", "r")]
    if conditions[0] != conditions[1]:
        return "the conditions on one side alone differ"
    if not all(each.alike for each in equalities):
        return "an equality compares two different keys"
    if directions is not None and directions["l"].box is not None:
        first, second = (directions[side].box for side in ("l", "r"))
        if first is not None and second is not None and sideless(first.id) != sideless(second.id):
            return "the dimensions of their boxes differ"
    elif directions is not None:
        left, right = (directions[side].key or _anywhere() for side in ("l", "r"))
        if sideless(left.id) != sideless(right.id):
            return f"the ordered keys differ ({left.text or 'none'}, {right.text or 'none'})"
    return None


def _anywhere() -> Key:
    """The key of a side that has none of its own: all tuples at 0, found by ranges that hold everything."""
    return Key(("anywhere",), lambda rows: (np.zeros(rows.count, np.int64), None), "")


def _equal_keys(runs: list[key_maps.KeyRun]) -> Callable[[Rows], key_maps.Keyed] | None:
    if len(runs) < 2:
        return runs[0] if runs else None

    def run(rows: Rows) -> key_maps.Keyed:
        data, valid = key_maps.full(runs[0](rows), rows.count)
        state = np.array(data, np.int64)
        for each in runs[1:]:
            data, also = key_maps.full(each(rows), rows.count)
            mix(state, key_maps.frozen(data))
            valid = key_maps.both(valid, also)
        return state, valid

    return run


def _by_key(found: dict[int, Found]) -> Iterator[_Direction]:
    """For every key of the stored side, what it is confined to, and by which conjuncts."""
    for each in dict.fromkeys(each for by_key in found.values() for each in by_key if each is not None):
        used: dict[int, Ranges] = {}
        count = 1
        for i, by_key in found.items():
            part = by_key.get(each)
            if part is not None and count * len(part.bands) <= MAX_BANDS:
                used[i] = part
                count *= len(part.bands)
        whole = intersection(list(used.values()))
        if whole is not None and whole.key is not None:
            yield _Direction(whole.key, whole, used)


def _choose(found: dict[int, Found]) -> _Direction:
    """The stored side's best key: bounded on both sides first, then the most conjuncts served exactly."""
    best = _Direction(None, None, {})
    best_score: tuple = (9,)
    for each in _by_key(found):
        score = (each.rank, -sum(part.exact for part in each.used.values()), -len(each.used))
        if score < best_score:
            best, best_score = each, score
    return best


def _boxed(chosen: _Direction, found: dict[int, Found], stored: str, schemas: dict[str, pa.Schema]) -> _Direction:
    """The chosen key and others in a box, if there are several that are confined to a band of fixed width."""
    batch = specimens(schemas[OTHER[stored]])
    rows = Rows(batch, None, len(batch)) if stored == "r" else Rows(None, batch, len(batch))
    dimensions: list[Dimension] = []
    parts: list[dict[int, Ranges]] = []
    for each in _by_key(found):
        assert each.key is not None
        if each.key.id[0] in ("count", "float") and not any(each.used.keys() <= part.keys() for part in parts):
            dimension, used = _dimension(each.key, each.used, rows)
            if dimension is not None and len(dimensions) < MOST_DIMENSIONS:
                dimensions.append(dimension)
                parts.append(used)
    if len(dimensions) < 2:
        return chosen
    # A band of one whole number is all cell: there is nothing to put in order.
    first = next((i for i, each in enumerate(dimensions) if each.doubles or each.width > 1), 0)
    dimensions.insert(0, dimensions.pop(first))
    parts.insert(0, parts.pop(first))
    used = {i: part for each in parts for i, part in each.items()}
    return _Direction(chosen.key, chosen.ranges, used, Box(tuple(dimensions)), tuple(parts))


def _dimension(key: Key, used: dict[int, Ranges], rows: Rows) -> tuple[Dimension | None, dict[int, Ranges]]:
    """A key with what confines it to one band of fixed width, if anything does: all its conjuncts, or one alone."""
    single = {i: part for i, part in used.items() if len(part.bands) == 1}
    for some in (single, *({i: part} for i, part in single.items() if part.kind == "band")):
        confined = intersection(list(some.values()))
        if confined is not None and confined.kind == "band":
            with np.errstate(all="ignore"):
                width = width_of(confined.bands, rows, key.id[0] == "float")
            if width is not None:
                return Dimension(key, confined, width), some
    return None, {}


def _terms(
    items: list[Node],
    equalities: dict[int, Equality],
    directions: dict[str, _Direction],
    equal_exact: bool,
    owners: list[int],
) -> tuple[Term, ...]:
    partners = _partners(directions)
    terms, done = [], set()
    for i, item in enumerate(items):
        if i in done:
            continue
        text = str(item.expr)
        if len(item.sides) < 2:
            side = "".join(item.sides)
            note = {"l": "filters the left side", "r": "filters the right side"}.get(side, "constant")
            terms.append(Term("one-sided", text, note))
        elif i in equalities:
            terms.append(Term("equality", text, "" if equal_exact else "by hash, checked again"))
        elif i in partners:
            group = sorted(partners[i])
            done.update(group)
            text = " and ".join(_inside(items[each]) for each in group)
            terms.append(Term("band", text, _note(group, directions)))
        else:
            kinds = [each.used[i] for each in directions.values() if i in each.used]
            followers = [len(items) + n for n, owner in enumerate(owners) if owner == i]
            if kinds:
                terms.append(Term(min(kinds, key=_rank).kind, text, _note([i], directions)))
            elif any(n in each.used for n in followers for each in directions.values()):
                terms.append(Term("distance", text, "within bands, then checked on the pairs found"))
            else:
                terms.append(Term("residual", text, "checked on the pairs found"))
    return tuple(terms)


def _inside(item: Node) -> str:
    return f"({item.expr})" if item.op == "or" else str(item.expr)


def _partners(directions: dict[str, _Direction]) -> dict[int, list[int]]:
    """Inequalities that together bound one key from both sides: each with all of its group."""
    answer: dict[int, list[int]] = {}
    for used in (used for direction in directions.values() for used in direction.parts or (direction.used,)):
        group = [i for i, part in used.items() if part.kind == "inequality"]
        bands = [used[i].bands[0] for i in group]
        if any(band.lows for band in bands) and any(band.highs for band in bands):
            for i in group:
                answer.setdefault(i, group)
    return answer


def _note(group: list[int], directions: dict[str, _Direction]) -> str:
    notes = []
    box = directions["l"].box
    if box is not None:
        places = [n for n, part in enumerate(directions["l"].parts) if group[0] in part]
        return box.place_text(places[0]) if places else ""
    for stored, direction in directions.items():
        parts = [direction.used[i] for i in group if i in direction.used]
        if len(parts) < len(group):
            notes.append(f"{'right' if stored == 'l' else 'left'} probes check it on the pairs found")
        elif not all(part.exact for part in parts):
            notes.append(f"{'right' if stored == 'l' else 'left'} probes check it again")
    if len(notes) == 2 and notes[0].split(" ", 1)[1] == notes[1].split(" ", 1)[1] == "probes check it again":
        return "checked again on the pairs found"
    return "; ".join(notes)
