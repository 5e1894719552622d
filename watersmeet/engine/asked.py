"""What a join was asked to be: all of its options, checked, before anything is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.aggregates.options import PerRow, check_alone, per_row
from watersmeet.engine.choose import check_index, check_pick_alone, on_device
from watersmeet.engine.order import Order, check_order
from watersmeet.engine.results import HOWS, OUTPUTS, How, Output
from watersmeet.engine.sizes import Sizes
from watersmeet.engine.sta import check_elements
from watersmeet.index import Index
from watersmeet.parameters import MOST_CORES, one_of, whole, whole_or_none
from watersmeet.query.durations import duration
from watersmeet.query.expr import Expr
from watersmeet.query.pick import Pick, checked_pick
from watersmeet.query.predicate import predicate
from watersmeet.query.windows import Hopping, Last, Within
from watersmeet.routing.choose import ROUTES
from watersmeet.routing.sta import STA
from watersmeet.workers import all_cores

_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Asked:
    """The parameters of StreamJoin as they are to be, see there."""

    on: Expr
    window: Within | Hopping | Last
    how: How
    output: Output
    self_join: bool
    per: PerRow | None
    pick: Pick | None
    index: Index | str
    device: str
    route: str
    sta: STA | None
    elements: int  # cores that are simulated
    cores: int
    order: Order
    suffix: str
    sizes: Sizes
    batch_rows: int | None
    delay: float | None  # in seconds
    keep_late: int

    @property
    def left_only(self) -> bool:
        """Whether results have no right columns."""
        return self.how in ("semi", "anti")


def checked(
    on: Any, window: Any, how: Any, *, per: Any, aggregate: Any, emit: Any, pick: Any, pick_by: Any, self_join: Any,
    output: Any, index: Any, cores: Any, route: Any, order: Any, device: Any, suffix: Any, batch_rows: Any,
    batch_delay: Any, keep_late: Any, subwindows: Any, subwindow_rows: Any,
) -> Asked:  # fmt: skip
    """ValueError or TypeError where something cannot be, or does not go together."""
    if not isinstance(window, Within | Hopping | Last):
        raise TypeError(f"window must be made by within, last, tumbling or hopping, got {window!r}")
    rows_of = per_row(per, aggregate, emit, how)
    if how is None:
        how = "inner" if rows_of is None else rows_of.side
    one_of("how", how, HOWS)
    one_of("output", output, OUTPUTS)
    if not isinstance(self_join, bool):
        raise TypeError(f"self_join must be True or False, got {self_join!r}")
    check_index(index)
    given_cores = whole_or_none("cores", cores, most=MOST_CORES)
    cores = given_cores or all_cores()
    sta = STA() if route == "sta" else route if isinstance(route, STA) else None
    if sta is None:
        one_of("route", route, ROUTES)
    check_order(order)
    check_alone(
        rows_of, output=(output, "rows"), index=(index, "auto"), order=(order, "none"), device=(device, "cpu"),
        route=("auto" if route == "single" else route, "auto"), subwindows=(subwindows, None),
        subwindow_rows=(subwindow_rows, None), pick=(pick, None),
    )  # fmt: skip
    picked = checked_pick(pick, pick_by, how, window)
    if picked is not None:
        check_pick_alone(self_join, order, device, index, route)
        route = "single"
    elements = 0
    if sta is not None:
        elements, route, cores = check_elements(given_cores), "single", 1
    rows = max(window.n, window.n_right) if isinstance(window, Last) else 0
    index, device, route = on_device(index, device, route, rows)
    batch_rows = whole_or_none("batch_rows", batch_rows)
    keep_late = whole("keep_late", keep_late, 0)
    sizes = Sizes(whole_or_none("subwindows", subwindows), whole_or_none("subwindow_rows", subwindow_rows))
    if not isinstance(suffix, str):
        raise TypeError(f"suffix must be text, got {suffix!r}")
    delay = _seconds(batch_delay)
    if batch_rows is None and delay is not None:
        batch_rows = _NO_LIMIT
    text = predicate(on)
    if route == "shared" and sizes != Sizes():
        raise ValueError("route 'shared' has one tree a window: leave out subwindows and subwindow_rows")
    return Asked(
        text, window, how, output, self_join, rows_of, picked, index, device, str(route), sta, elements, cores,
        "none" if output == "count" else order,  # a number has none
        suffix, sizes, batch_rows, delay, keep_late,
    )  # fmt: skip


def _seconds(batch_delay: Any) -> float | None:
    if batch_delay is None:
        return None
    delay = duration(batch_delay, "batch_delay")
    if delay.unitless:
        raise TypeError(f"batch_delay must be a length of time such as '100 ms', got {batch_delay!r}")
    return delay.amount / 1e9


def batches_text(asked: Asked) -> str:
    """For explain()."""
    rows, delay = asked.batch_rows, asked.delay
    if rows is None:
        return "every push is processed at once"
    limits = [f"{rows} rows"] if rows < _NO_LIMIT else []
    limits += [f"{delay:g} s"] if delay is not None else []
    return "pushes are collected up to " + " or ".join(limits)
