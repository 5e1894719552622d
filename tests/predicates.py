# ruff: noqa: E741  (`l` and `r` are what the SQL calls them)
"""The predicates that the contract suite runs: each as SQL text and as a Python function of two rows.

`equality` and `ordered` say which keys a planner can find in it (an index over no key at all is refused), and
`columns` which columns it reads, so that the strategies vary only those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logic import absolute, add, and_, between, eq, ge, gt, le, lt, mul, ne, not_, or_, rem, sub
from oracle import Row


@dataclass(frozen=True)
class Predicate:
    sql: str
    holds: Callable[[Row, Row], bool | None]
    columns: str
    equality: bool = False
    ordered: bool = False

    @property
    def indexes(self) -> list[str]:
        """The names of the indexes that can serve it."""
        names = ["auto", "nested_loop"]
        if self.equality:
            names.append("hash")
        if self.equality or self.ordered:
            names += ["bisort", "rap_table", "wib_tree", "adaptive", "btree", "frozen_btree", "im_tree", "pim_tree"]
        return names

    def __repr__(self) -> str:
        return f"Predicate({self.sql!r})"


EQUALITY = [
    Predicate("l.k = r.k", lambda l, r: eq(l["k"], r["k"]), "k", equality=True),
    Predicate("l.x = r.x", lambda l, r: eq(l["x"], r["x"]), "x", equality=True),
    Predicate("l.s = r.s", lambda l, r: eq(l["s"], r["s"]), "s", equality=True),
    Predicate("l.f = r.f", lambda l, r: eq(l["f"], r["f"]), "f", equality=True),
    Predicate("l.x = r.f", lambda l, r: eq(l["x"], r["f"]), "xf", equality=True),
    Predicate("l.x + 1 = r.x - 1", lambda l, r: eq(add(l["x"], 1), sub(r["x"], 1)), "x", equality=True),
    Predicate("l.x % 3 = r.x % 3", lambda l, r: eq(rem(l["x"], 3), rem(r["x"], 3)), "x", equality=True),
    Predicate(
        "l.k = r.k and l.s = r.s",
        lambda l, r: and_(eq(l["k"], r["k"]), eq(l["s"], r["s"])),
        "ks",
        equality=True,
    ),
    Predicate(
        "l.k = r.k and l.x = r.x and l.f = r.f",
        lambda l, r: and_(eq(l["k"], r["k"]), eq(l["x"], r["x"]), eq(l["f"], r["f"])),
        "kxf",
        equality=True,
    ),
]

BAND = [
    Predicate("abs(l.x - r.x) <= 2", lambda l, r: le(absolute(sub(l["x"], r["x"])), 2), "x", ordered=True),
    Predicate("abs(l.x - r.x) < 2", lambda l, r: lt(absolute(sub(l["x"], r["x"])), 2), "x", ordered=True),
    Predicate(
        "l.x between r.x - 1 and r.x + 3",
        lambda l, r: between(l["x"], sub(r["x"], 1), add(r["x"], 3)),
        "x",
        ordered=True,
    ),
    Predicate(
        "l.x - r.x <= 2 and r.x - l.x < 3",
        lambda l, r: and_(le(sub(l["x"], r["x"]), 2), lt(sub(r["x"], l["x"]), 3)),
        "x",
        ordered=True,
    ),
    Predicate(
        "abs(l.f - r.f) <= 0.1",
        lambda l, r: le(absolute(sub(l["f"], r["f"])), 0.1),
        "f",
        ordered=True,
    ),
    Predicate(
        "l.f between r.f - 0.1 and r.f + 0.1",
        lambda l, r: between(l["f"], sub(r["f"], 0.1), add(r["f"], 0.1)),
        "f",
        ordered=True,
    ),
]

INEQUALITY = [
    Predicate("l.x < r.x", lambda l, r: lt(l["x"], r["x"]), "x", ordered=True),
    Predicate("l.x >= r.x", lambda l, r: ge(l["x"], r["x"]), "x", ordered=True),
    Predicate("not (l.x < r.x)", lambda l, r: not_(lt(l["x"], r["x"])), "x", ordered=True),
    Predicate("l.x + r.x > 6", lambda l, r: gt(add(l["x"], r["x"]), 6), "x", ordered=True),
    Predicate("2 * l.x <= r.x + 3", lambda l, r: le(mul(2, l["x"]), add(r["x"], 3)), "x", ordered=True),
    Predicate("l.x * l.k > r.x * r.k", lambda l, r: gt(mul(l["x"], l["k"]), mul(r["x"], r["k"])), "xk", ordered=True),
    Predicate("l.f < r.f", lambda l, r: lt(l["f"], r["f"]), "f", ordered=True),
    Predicate("l.f >= r.f", lambda l, r: ge(l["f"], r["f"]), "f", ordered=True),
    Predicate("l.x <= r.f", lambda l, r: le(l["x"], r["f"]), "xf", ordered=True),
]

COMPOSITE = [
    Predicate(
        "l.k = r.k and abs(l.x - r.x) <= 1",
        lambda l, r: and_(eq(l["k"], r["k"]), le(absolute(sub(l["x"], r["x"])), 1)),
        "kx",
        equality=True,
        ordered=True,
    ),
    Predicate(
        "l.k = r.k and l.s = r.s and l.x < r.x",
        lambda l, r: and_(eq(l["k"], r["k"]), eq(l["s"], r["s"]), lt(l["x"], r["x"])),
        "ksx",
        equality=True,
        ordered=True,
    ),
    Predicate(
        "l.s = r.s and abs(l.f - r.f) <= 0.1",
        lambda l, r: and_(eq(l["s"], r["s"]), le(absolute(sub(l["f"], r["f"])), 0.1)),
        "sf",
        equality=True,
        ordered=True,
    ),
]

BOX = [
    Predicate(
        "abs(l.x - r.x) <= 2 and abs(l.f - r.f) <= 0.1",
        lambda l, r: and_(le(absolute(sub(l["x"], r["x"])), 2), le(absolute(sub(l["f"], r["f"])), 0.1)),
        "xf",
        ordered=True,
    ),
    Predicate(
        "abs(l.k - r.k) <= 1 and l.x between r.x - 1 and r.x + 3 and l.x * r.k <> 6",
        lambda l, r: and_(
            le(absolute(sub(l["k"], r["k"])), 1),
            between(l["x"], sub(r["x"], 1), add(r["x"], 3)),
            ne(mul(l["x"], r["k"]), 6),
        ),
        "kx",
        ordered=True,
    ),
    Predicate(
        "abs(l.x - r.k) < 2 and abs(l.k - r.x) < 3",
        lambda l, r: and_(lt(absolute(sub(l["x"], r["k"])), 2), lt(absolute(sub(l["k"], r["x"])), 3)),
        "kx",
        ordered=True,
    ),
    Predicate(
        "abs(l.x - r.x) <= 0 and abs(l.k - r.k) <= 0",
        lambda l, r: and_(le(absolute(sub(l["x"], r["x"])), 0), le(absolute(sub(l["k"], r["k"])), 0)),
        "kx",
        ordered=True,
    ),
    Predicate(
        "abs(l.f - r.f) <= 1.0 and abs(l.x - r.x) <= 2 and abs(l.k - r.k) <= 1 and l.x < 5",
        lambda l, r: and_(
            le(absolute(sub(l["f"], r["f"])), 1.0),
            le(absolute(sub(l["x"], r["x"])), 2),
            le(absolute(sub(l["k"], r["k"])), 1),
            lt(l["x"], 5),
        ),
        "kxf",
        ordered=True,
    ),
    Predicate(
        "l.s = r.s and abs(l.x - r.x) <= 2 and abs(l.f - r.f) <= 0.1",
        lambda l, r: and_(
            eq(l["s"], r["s"]), le(absolute(sub(l["x"], r["x"])), 2), le(absolute(sub(l["f"], r["f"])), 0.1)
        ),
        "sxf",
        equality=True,
        ordered=True,
    ),
]

BANDS = [
    Predicate(
        "l.x between r.x - 5 and r.x - 4 or l.x between r.x + 1 and r.x + 2",
        lambda l, r: or_(
            between(l["x"], sub(r["x"], 5), sub(r["x"], 4)), between(l["x"], add(r["x"], 1), add(r["x"], 2))
        ),
        "x",
        ordered=True,
    ),
    Predicate(
        "abs(l.x - r.x) <= 1 or l.x = r.x + 4 or l.x between r.x - 2 and r.x + 1",
        lambda l, r: or_(
            le(absolute(sub(l["x"], r["x"])), 1),
            eq(l["x"], add(r["x"], 4)),
            between(l["x"], sub(r["x"], 2), add(r["x"], 1)),
        ),
        "x",
        ordered=True,
    ),
    Predicate(
        "l.k = r.k and (l.x < r.x - 2 or l.x > r.x + 2)",
        lambda l, r: and_(eq(l["k"], r["k"]), or_(lt(l["x"], sub(r["x"], 2)), gt(l["x"], add(r["x"], 2)))),
        "kx",
        equality=True,
        ordered=True,
    ),
]

NOT_EQUAL = [
    Predicate("l.x <> r.x", lambda l, r: ne(l["x"], r["x"]), "x", ordered=True),
    Predicate("l.f <> r.f", lambda l, r: ne(l["f"], r["f"]), "f", ordered=True),
    Predicate("l.s <> r.s", lambda l, r: ne(l["s"], r["s"]), "s"),
    Predicate(
        "l.k = r.k and l.x <> r.x",
        lambda l, r: and_(eq(l["k"], r["k"]), ne(l["x"], r["x"])),
        "kx",
        equality=True,
        ordered=True,
    ),
]

#: An index serves one key; the others are compared on candidates.
BY_KEYS = [
    Predicate(
        "l.x < r.x and l.k <> r.k and l.f >= r.f",
        lambda l, r: and_(lt(l["x"], r["x"]), ne(l["k"], r["k"]), ge(l["f"], r["f"])),
        "kxf",
        ordered=True,
    ),
    Predicate(
        "l.x between r.k and r.x and l.s <> r.s",
        lambda l, r: and_(between(l["x"], r["k"], r["x"]), ne(l["s"], r["s"])),
        "kxs",
        ordered=True,
    ),
    Predicate(
        "abs(l.x - r.x) < l.k and (l.f < r.f or l.f > r.f)",
        lambda l, r: and_(lt(absolute(sub(l["x"], r["x"])), l["k"]), or_(lt(l["f"], r["f"]), gt(l["f"], r["f"]))),
        "kxf",
        ordered=True,
    ),
    Predicate(
        "l.k = r.k and l.f = r.f and l.x + r.k <= r.x and l.x * r.x <> 4",
        lambda l, r: and_(
            eq(l["k"], r["k"]), eq(l["f"], r["f"]), le(add(l["x"], r["k"]), r["x"]), ne(mul(l["x"], r["x"]), 4)
        ),
        "kxf",
        equality=True,
        ordered=True,
    ),
    Predicate(
        "l.x <= r.k and l.k < r.f", lambda l, r: and_(le(l["x"], r["k"]), lt(l["k"], r["f"])), "kxf", ordered=True
    ),
]

RESIDUAL = [
    Predicate("l.k * r.k > l.k + r.k", lambda l, r: gt(mul(l["k"], r["k"]), add(l["k"], r["k"])), "k"),
    Predicate("l.k = r.k or l.s = r.s", lambda l, r: or_(eq(l["k"], r["k"]), eq(l["s"], r["s"])), "ks"),
    Predicate("l.x is null or r.x is null", lambda l, r: l["x"] is None or r["x"] is None, "x"),
    Predicate(
        "l.k = r.k and l.x * r.x > 6",
        lambda l, r: and_(eq(l["k"], r["k"]), gt(mul(l["x"], r["x"]), 6)),
        "kx",
        equality=True,
    ),
    Predicate("not (l.k = r.k and l.x < 3)", lambda l, r: not_(and_(eq(l["k"], r["k"]), lt(l["x"], 3))), "kx"),
]

ONE_SIDED = [
    Predicate("l.k > 0 and l.x = r.x", lambda l, r: and_(gt(l["k"], 0), eq(l["x"], r["x"])), "kx", equality=True),
    Predicate("r.s = 'a' and l.k = r.k", lambda l, r: and_(eq(r["s"], "a"), eq(l["k"], r["k"])), "ks", equality=True),
    Predicate("l.k >= 1 and r.x < 3", lambda l, r: and_(ge(l["k"], 1), lt(r["x"], 3)), "kx"),
    Predicate("l.k > 0", lambda l, r: gt(l["k"], 0), "k"),
    Predicate("r.f > 0.1", lambda l, r: gt(r["f"], 0.1), "f"),
    Predicate("true", lambda l, r: True, "k"),
    Predicate("false", lambda l, r: False, "k"),
    Predicate("l.k = r.k and false", lambda l, r: and_(eq(l["k"], r["k"]), False), "k"),
]

FAMILIES = {
    "equality": EQUALITY,
    "band": BAND,
    "inequality": INEQUALITY,
    "composite": COMPOSITE,
    "box": BOX,
    "bands": BANDS,
    "not_equal": NOT_EQUAL,
    "by_keys": BY_KEYS,
    "residual": RESIDUAL,
    "one_sided": ONE_SIDED,
}
PREDICATES = [predicate for family in FAMILIES.values() for predicate in family]


def servable_by(index: str) -> list[Predicate]:
    return [predicate for predicate in PREDICATES if index in predicate.indexes]
