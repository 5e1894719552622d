"""When a join moves from one core to many.

It begins in the caller's process: most joins are small, and a process costs a second to start, and every push through
it a message. When enough has come in large pushes the processes are started; as soon as they are there, and until then
nobody waits, they take over what the windows hold. A route that was asked for is taken at once.

By then the windows show whether keys are skewed: where the route would give one core far more than the others, hot keys
are spread instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from watersmeet.engine.core import JoinCore
from watersmeet.engine.cores.member import Share
from watersmeet.engine.cores.team import Team
from watersmeet.engine.order import Order
from watersmeet.query.plan import JoinPlan
from watersmeet.query.windows import SIDES
from watersmeet.routing import Route, Single
from watersmeet.routing.choose import choose_route, copies_lines
from watersmeet.workers import Workers

#: Rows that arrive together, from which on several cores are faster than one.
LARGE = 1 << 17
#: From so many cores on processes are faster; fewer are put to better use as helpers of one (docs/cores.md).
MANY = 8
#: And by these routes.
WORTH = ("hash", "cells")
#: So many rows in large pushes: it is not going to be over in a moment.
ENOUGH = 1 << 20
#: Tuples of the busiest core to those of the average one, from which on hot keys are spread.
SKEWED = 2.0
#: So few tuples do not tell, and more than so many of the newest are not looked at.
FEW, NEWEST = 1 << 12, 1 << 16


class Spread:
    """cores, route: as they were asked for. workers: threads of the caller."""

    def __init__(self, cores: int, route: str, workers: Workers):
        self.cores = cores
        self.workers = workers
        self._wanted = route
        self._seen = 0
        self._team: Team | None = None  # on its way
        self.route: Route = Single()
        self._usual: Route = self.route  # that it takes where keys are not skewed
        self._hot_cold: Route | None = None  # that it may take instead
        self.why = ""

    @property
    def shares(self) -> bool:
        """Whether threads share one index."""
        return self._wanted == "shared"

    def bind(
        self,
        plan: JoinPlan,
        left: pa.Schema,
        right: pa.Schema,
        how: str,
        order: Order,
        share: Callable[[Route], Share],
    ) -> None:
        """The join is known now. Raises for a route that it cannot take."""
        if self.shares:
            return
        self.route, self.why = choose_route(self._wanted, plan, left, right, how, self.cores, talk=True)
        self._hot_cold = None
        if self._wanted == "auto" and self.cores > 1:
            if order != "none":
                self.route, self.why = Single(), "results are to be in order"
            elif self.cores < MANY or self.route.name not in WORTH:
                self.route, self.why = Single(), "that is faster here than processes"
            elif how == "inner" and self.route.name in ("hash", "cells") and plan.boxes is None:
                self._hot_cold, _ = choose_route("hot_cold", plan, left, right, how, self.cores, talk=True)
        self._usual = self.route
        self._share = share

    def core(self, core: JoinCore | Team, rows: int) -> JoinCore | Team:
        """Who takes the next step, with so many rows."""
        if isinstance(core, Team) or self.route.cores == 1:
            return core
        at_once = self._wanted != "auto"
        if rows >= LARGE:
            self._seen += rows
        if not at_once and self._seen < ENOUGH:
            return core
        team, self._team = self._team, None  # should anything fail, all begins anew
        if team is None:
            if self._hot_cold is not None:
                self._look_for_skew(core)
            team = Team(self._share(self.route), core, self.workers)
        if not at_once and not team.ready():
            self._team = team
            return core
        self._seen = 0
        team.take_over(core)
        return team

    def _look_for_skew(self, core: JoinCore) -> None:
        """Spread hot keys, if the usual route would give one core far more tuples than the others."""
        counts = np.zeros(self.cores, np.int64)
        for side in SIDES:
            batch = core.newest(side, NEWEST)
            if batch is not None:
                tuples = getattr(core.plan, side).of(batch)
                home = self._usual.places(side, tuples, np.arange(batch.num_rows)).home
                counts += np.bincount(home, minlength=self.cores)
        times = counts.max() / max(counts.mean(), 1)
        if counts.sum() >= FEW and times >= SKEWED and self._hot_cold is not None:
            self.route = self._hot_cold
            self.why = f"by {self._usual.name!r} the busiest core would get {times:.1f} times the tuples of the average"

    def lines(self, core: JoinCore | Team | None) -> list[str]:
        """The route, for explain()."""
        lines = [f"route: {self.route.name}", f"  because {self.why}", *copies_lines(self.route)]
        return lines + core.belief_lines() if isinstance(core, Team) else lines

    def text(self, core: JoinCore | Team | None) -> str:
        """For explain()."""
        if self.shares:
            return f"{self.cores} threads, which share one index"
        if self.cores == 1 or (self.route.cores == 1 and core is not None):
            return "1" if self.cores == 1 else f"1, {self.cores - 1} more help it with large pushes, because {self.why}"
        if isinstance(core, Team):
            return f"{self.cores} processes"
        if self._wanted != "auto":
            return f"{self.cores} processes, from the first push on"
        return f"1 for now, {self.cores} when much has come in large pushes"
