"""A stream joined with itself: one window instead of two.

Every tuple of the stream has two roles, left and right. A push does what pushing the batch as left, then as right does,
but the tuples are kept once, and mostly in one index:

    two streams                                      one stream
    left batch   probes the right window             batch, as left,   probes the window: older tuples, as right
                 is stored in the left window        batch             is stored in the window
    right batch  probes the left window              batch, as right,  probes the window: older and new ones, as left
                 is stored in the right window

Each pair (l, r) is found once: by l if r came in an earlier push, else by r. So storing comes after all probing as left
(also where a large batch is cut into slices), and cannot run beside it.

Worked example: `l.x <= r.x`, the window holds a = 1, and b = 2 comes. As left b finds no r >= 2; then it is stored; as
right it finds l <= 2: the pairs (a, b) and (b, b). Had a = 2 been there, b as left would have found (b, a) as well.

A tuple stays until it has expired in both roles, which may be at different times (`within(0, 10)`, `last(5, 9)`). Its
window is wider than one of the roles then; that does no harm, as every probe bounds the ticks of its partners. Joins
that must know who found a partner keep that for each role, one bit each.

One index serves both roles if a tuple has the same keys and the same tick in both. Else (`l.a < r.b`,
`time=("a", "b")`) each role has its own, over one copy of the tuples.

A tuple with one time is late once, for both roles, judged tuple by tuple: below the greatest time before it, less the
lateness (the greater, if the two roles have different ones). Judged as two streams, where a whole batch arrives on the
left before its first tuple arrives on the right, it could be late as right only, depending on how batches are cut.

Cost: memory and inserts of one window instead of two; as many probes as with two.
Reference: PIM, section 5 (self-join: an identical stream as both R and S).
Differs from the paper: any predicate and window, with different lengths for the two roles.
"""

from __future__ import annotations

from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import BoundCountWindow, BoundWindow


def one_time(window: BoundWindow) -> bool:
    """Whether a tuple has the same tick in both roles."""
    return isinstance(window, BoundCountWindow) or window.spec.time[0] == window.spec.time[1]


def why_two_indexes(plan: JoinPlan, window: BoundWindow) -> str | None:
    """Why one index cannot serve both roles; None if it can."""
    return plan.unlike if one_time(window) else "the two roles have different time columns"


def text(plan: JoinPlan, window: BoundWindow) -> str:
    """For explain()."""
    why = why_two_indexes(plan, window)
    return "one window, one index" if why is None else f"one window, two indexes, because {why}"
