"""The embedded engine, measured: `watersmeet bench embedded`.

Five parts, each checked as well as timed (see workloads.py for the streams, race.py for how contenders take
turns):

    band_last   one thread, pairs out, against np.argsort of a window of keys, and against a nested loop
    A2, B       all cores, full rows out, against what users hand-roll (peers.py) and, for A2, DataFusion's
                symmetric hash join (symmetric.py)
    subwindows  a whole window in one structure that forgets, against chains of 1 to 8 subwindows: the same joins, one
                thread
    threads     A2 and B on one thread, two, four, ... up to as many as there are cores

`run` returns plain data and stores it as JSON; report.py turns that into tables. A quick run uses small
windows and a few batches to show that everything works: its ratios are not held against the targets.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.bench import workloads
from watersmeet.bench.baselines import argsort_speed, baseline, nested_loops
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.peers import PEERS, Peer
from watersmeet.bench.race import FILL_ROWS, Lane, Ours, agree, peer_lane
from watersmeet.bench.symmetric import SymmetricHashJoin
from watersmeet.bench.workloads import Workload
from watersmeet.workers import Workers

PARTS = ("band_last", "A2", "B", "subwindows", "threads")
OURS = "watersmeet"


@dataclass(frozen=True)
class Sizes:
    """How much a run measures."""

    windows: tuple[int, ...] = (1 << 14, 1 << 17, 1 << 20, 1 << 23)
    last_batches: tuple[int, ...] = (1 << 10, 1 << 15, 1 << 18)
    seconds: float = 10  # of within()
    batches: tuple[int, ...] = (5_000, 50_000, 500_000)
    turn: float = 0.5  # seconds that a contender is timed in a round
    rounds: int = 6
    unbounded_windows: int = 5  # how much of its streams the symmetric hash join reads
    subwindows: tuple[int | None, ...] = (None, 1, 2, 4, 8)  # None: as the index chooses


FULL = Sizes()
QUICK = Sizes(
    windows=(1 << 14, 1 << 17),
    last_batches=(1 << 10, 1 << 15),
    seconds=1,
    batches=(5_000, 50_000),
    turn=0.2,
    rounds=2,
)

# (part, batch) -> how many times the best peer; None: measured without a target
PEER_TARGETS = {
    ("B", 5_000): 8.0,
    ("B", 50_000): 3.0,
    ("B", 500_000): 1.5,
    ("A2", 5_000): 3.0,
    ("A2", 500_000): 1.0,
}
ARGSORT_TARGETS = {1 << 20: 0.2, 1 << 23: 0.12}  # window -> of argsort's tuples/s, at batches of 2^15
TARGET_BATCH = 1 << 15
NESTED_LOOP_TARGET = 1000.0  # at the largest window
GROWTH_TARGET = 4.0  # of the cost per tuple, smallest to largest window


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    out: Path | str | None = None,
    rounds: int | None = None,
    *,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts; `say` gets a line a measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_least("rounds", rounds, 1)
    judged = not quick and sizes is None
    sizes = sizes or (QUICK if quick else FULL)
    sizes = replace(sizes, rounds=rounds or sizes.rounds)
    bench = Embedded(sizes, judged, say)

    def measure() -> None:
        for part in PARTS:
            if not only or part in only:
                if part == "band_last":
                    bench.last()
                elif part == "subwindows":
                    bench.subwindows()
                elif part == "threads":
                    bench.threads()
                else:
                    bench.within(part)

    return bench.report(
        "embedded", quick, {"rounds": sizes.rounds, "within_seconds": sizes.seconds}, measure, out
    )


class Embedded(Bench):
    """Part by part."""

    def __init__(self, sizes: Sizes, judged: bool, say: Callable[[str], None] | None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes

    # -- band_last: against sorting and a nested loop ---------------------------------------------------

    def last(self) -> None:
        sizes = self.sizes
        speeds: dict[tuple[int, int], float] = {}
        for window in sizes.windows:
            lanes = {batch: self.last_lane(window, batch) for batch in sizes.last_batches}
            sort = []
            for _ in range(sizes.rounds):
                for lane in lanes.values():
                    lane.turn(sizes.turn, least_rows=window // 4)
                sort.append(argsort_speed(window, sizes.turn))
            for batch, lane in lanes.items():
                self.record(lane.result())
                speeds[window, batch] = lane.speed
            self.record(baseline("argsort", f"np.argsort of {window} keys", window, None, sort))
            nested = nested_loops(window, sizes.turn)
            for name, loops in nested.items():
                self.record(baseline(name, "1 thread, few tuples", window, None, loops))
            for batch in sizes.last_batches:
                goal = ARGSORT_TARGETS.get(window) if batch == TARGET_BATCH else None
                value = speeds[window, batch] / max(sort)
                self.ratio("band_last", "np.argsort", value, goal, window=window, batch=batch)
            at = TARGET_BATCH if TARGET_BATCH in sizes.last_batches else sizes.last_batches[-1]
            goal = NESTED_LOOP_TARGET if window == sizes.windows[-1] else None
            for name, loops in nested.items():
                self.ratio("band_last", name, speeds[window, at] / max(loops), goal, window=window, batch=at)
            del lanes
            gc.collect()
        growth = speeds[sizes.windows[0], at] / speeds[sizes.windows[-1], at]
        what = f"cost per tuple, against a window of {sizes.windows[0]}"
        self.ratio("band_last", what, growth, GROWTH_TARGET, "<", window=sizes.windows[-1], batch=at)

    def last_lane(self, window: int, batch: int) -> Lane:
        workload = workloads.band_last(window, batch)
        join = Ours(workload, output="pairs", threads=1)
        lane = Lane(OURS, f"{join.index}, 1 thread, pairs", workload, join)
        lane.fill(window + window // 4, max(batch, min(window // 4, FILL_ROWS)))
        lane.turn(self.sizes.turn / 2, timed=False)
        return lane

    # -- A2 and B: against hand-rolled joins ------------------------------------------------------------

    def within(self, part: str) -> None:
        make = workloads.a2 if part == "A2" else workloads.b
        symmetric: SymmetricHashJoin | None = None
        available = [peer for peer in PEERS if self.available(peer)]
        if part == "A2" and self.available(SymmetricHashJoin):
            workload = make(self.sizes.batches[0], seconds=self.sizes.seconds)
            symmetric = SymmetricHashJoin(workload, self.sizes.unbounded_windows * workload.window_rows)
        try:
            for batch in self.sizes.batches:
                self.against_peers(make(batch, seconds=self.sizes.seconds), available, symmetric)
        finally:
            if symmetric:
                symmetric.close()

    def available(self, peer: type[Peer] | type[SymmetricHashJoin]) -> bool:
        why = peer.missing()
        if why:
            self.skipped[peer.name] = why
        return not why

    def against_peers(self, workload: Workload, peers: list[type[Peer]], symmetric: SymmetricHashJoin | None) -> None:
        """Rounds of ours and every form of every peer; after the first, only forms near their peer's best."""
        sizes, kept = self.sizes, 2 * workload.window_rows
        join = Ours(workload)
        ours = Lane(OURS, f"{join.index}, all threads, rows", workload, join)
        ours.fill(kept)
        ours.turn(sizes.turn / 2, timed=False)
        forms = {peer: [peer_lane(peer, workload, kept, form) for form in peer.forms] for peer in peers}
        tried: dict[str, dict[str, float]] = {peer.name: {} for peer in peers}
        least: list[Lane] = []  # the same with no more rows kept than a batch needs
        passes = []
        for round in range(sizes.rounds):
            ours.turn(sizes.turn)
            for lane in [lane for lanes in forms.values() for lane in lanes]:
                lane.turn(sizes.turn)
                tried[lane.name][lane.form] = lane.speed
            if round == 0:
                agree([ours] + [lane for lanes in forms.values() for lane in lanes])
                forms = {peer: near_best(lanes) for peer, lanes in forms.items()}
                if workload.window_rows + workload.batch_rows < kept:
                    least = [least_lane(peer, workload, fastest(lanes).form) for peer, lanes in forms.items()]
            for lane in least:
                lane.turn(sizes.turn)
            if symmetric:
                passes += [symmetric.run(workload.batch_rows, form) for form in symmetric.forms]
        checked = agree([ours] + [lane for lanes in forms.values() for lane in lanes] + least)
        best = [fastest(lanes) for lanes in forms.values()]
        check = {"checked_pairs": checked.pairs, "checksum": str(checked)}
        for lane in [ours] + best + least:
            self.record(lane.result() | check | {"forms_tried": tried.get(lane.name)})
        self.compare(workload, ours, best, "best hand-rolled", judged=True)
        self.compare(workload, ours, least, "best hand-rolled, least buffer", judged=False)
        if symmetric:
            self.against_symmetric(workload, ours, symmetric, passes)
        gc.collect()

    def against_symmetric(self, workload: Workload, ours: Lane, symmetric: SymmetricHashJoin, passes: list) -> None:
        mine = whole_checksum(workload, symmetric.rows)
        for one in passes:
            if one.check != mine:
                raise AnswersDiffer(f"A2: {symmetric.name} gives {one.check}, {OURS} {mine} (pairs:checksum)")
        by_form = {
            form: [2 * symmetric.rows / one.seconds for one in passes if one.form == form] for form in symmetric.forms
        }
        best = max(by_form, key=lambda form: max(by_form[form]))
        speeds = by_form[best]
        row = baseline(symmetric.name, best, workload.window_rows, workload.batch_rows, speeds)
        row |= {"workload": workload.name, "results_per_tuple": mine.pairs / (2 * symmetric.rows)}
        row |= {"forms_tried": {form: max(found) for form, found in by_form.items()}}
        self.record(row | {"checked_pairs": mine.pairs, "checksum": str(mine)})
        goal = PEER_TARGETS.get((workload.name, workload.batch_rows))
        self.peer_ratio(workload, symmetric.name, ours.speed / max(speeds), goal)

    def compare(self, workload: Workload, ours: Lane, lanes: list[Lane], what: str, judged: bool) -> None:
        if lanes:
            best = fastest(lanes)
            goal = PEER_TARGETS.get((workload.name, workload.batch_rows)) if judged else None
            against = f"{what} ({best.name.partition(',')[0]} {best.form})"
            self.peer_ratio(workload, against, ours.speed / best.speed, goal)

    def peer_ratio(self, workload: Workload, against: str, value: float, goal: float | None) -> None:
        self.ratio(workload.name, against, value, goal, window=workload.window_rows, batch=workload.batch_rows)

    # -- subwindows, threads: how many are best ---------------------------------------------------------

    def subwindows(self) -> None:
        sizes = self.sizes
        middle = sizes.windows[len(sizes.windows) // 2]
        races = [workloads.band_last(middle, batch) for batch in sizes.last_batches[:2]]
        races += [make(sizes.batches[0], seconds=sizes.seconds) for make in (workloads.a2, workloads.b)]
        forms = {
            f"{count or 'default'} subwindows": {"threads": 1, "subwindows": count} for count in sizes.subwindows
        }
        for workload in races:
            self.among_ourselves("subwindows", workload, forms)

    def threads(self) -> None:
        cores = Workers().threads
        counts = [1 << i for i in range(cores.bit_length()) if 1 << i < cores] + [cores]
        for make in (workloads.a2, workloads.b):
            for batch in self.sizes.batches[1:]:
                workload = make(batch, seconds=self.sizes.seconds)
                self.among_ourselves("threads", workload, {f"threads={n}": {"threads": n} for n in counts})

    def among_ourselves(self, part: str, workload: Workload, forms: dict[str, dict[str, Any]]) -> None:
        """A race of joins that differ in their options."""
        sizes = self.sizes
        output = "rows" if workload.spacing_us else "pairs"
        lanes = []
        for form, options in forms.items():
            join = Ours(workload, output=output, **options)
            lane = Lane(f"{workload.name}, {join.index}", form, workload, join)
            lane.fill(2 * workload.window_rows)
            lane.turn(sizes.turn / 2, timed=False)
            lanes.append(lane)
        for _ in range(sizes.rounds):
            for lane in lanes:
                lane.turn(sizes.turn, least_rows=workload.window_rows)
        checked = agree(lanes)
        for lane in lanes:
            self.record(lane.result() | {"workload": part, "checked_pairs": checked.pairs})
        del lanes
        gc.collect()

    # -- collecting -------------------------------------------------------------------------------------

    def record(self, row: dict[str, Any]) -> None:
        self.results.append(row)
        batch = f", batches of {row['batch']:,}" if row["batch"] else ""
        self.say(
            f"{row['workload']}, window {row['window']:,}{batch}: {row['contender']} ({row['form']}) "
            f"{row['tuples_per_s'] / 1e6:.4g} M tuples/s"
        )


def fastest(lanes: list[Lane]) -> Lane:
    return max(lanes, key=lambda lane: lane.speed)


def near_best(lanes: list[Lane]) -> list[Lane]:
    """Lanes that may yet turn out the fastest."""
    return [lane for lane in lanes if lane.speed >= 0.6 * fastest(lanes).speed]


def least_lane(peer: type[Peer], workload: Workload, form: str) -> Lane:
    """This form of the peer, keeping only the window and one batch."""
    least = peer_lane(peer, workload, workload.window_rows + workload.batch_rows, form)
    least.name = f"{peer.name}, least buffer"
    return least


def whole_checksum(workload: Workload, rows: int) -> Checksum:
    """Our results over the first `rows` rows of each stream."""
    total, ours = Checksum(), Ours(workload)
    for start in range(0, rows, workload.window_rows):
        for side in workloads.SIDES:
            batch = workload.rows(side, start, min(workload.window_rows, rows - start))
            total += Checksum.of(*ours.pairs(ours.push(side, batch)))
    return total
