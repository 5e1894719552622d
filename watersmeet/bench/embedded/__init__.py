"""The embedded engine, measured: `watersmeet bench embedded`.

Parts, each checked as well as timed (see workloads.py for the streams, race.py for how contenders take
turns):

    band_last   one thread, pairs out, against np.argsort of a window of keys, and against a nested loop
    A2, B       all cores, full rows out, against what users hand-roll (peers.py) and, for A2, DataFusion's
                symmetric hash join (symmetric.py)
    subwindows  a whole window in one structure that forgets, against chains of 1 to 8 subwindows: the same joins, one
                thread
    cores       A2, B and a band over last(n) on one core, two, four, ... up to as many as there are: as processes, and
                as threads of one; and how the time of a push divides (core_counts.py)
    push        what a push costs however few its rows are: 1, 16 and 256 of them, an equality and a band, one thread
    count       A2 with its results counted, all cores
    sort        what it takes to put the keys of a batch in order, against np.argsort, one thread (sort.py)
    page        what a live page costs the join that it shows, with and without browsers (page.py)
    boxes       bands over several columns, against cells and trees by hand (boxes.py)
    asof        the latest partner of each left row, against Polars' and DuckDB's as-of joins (asof.py)
    aggregates  an inequality, a count and a sum for each left row, one core; and a few of them with the pairs made

Of the rounds of each contender all are kept; ratios are by the medians, with those of the best beside them.

`run` returns plain data and stores it as JSON; report.py turns that into tables. A quick run uses small
windows and a few batches to show that everything works: its ratios are not held against targets.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from watersmeet.bench import targets, workloads
from watersmeet.bench.checksum import AnswersDiffer, Checksum
from watersmeet.bench.embedded import aggregates, asof, boxes, core_counts, page, sort
from watersmeet.bench.embedded.baselines import argsort_speed, baseline, last_rows, nested_loops
from watersmeet.bench.embedded.symmetric import SymmetricHashJoin
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.peers import PEERS, Peer
from watersmeet.bench.plain import command_line
from watersmeet.bench.race import FILL_ROWS, Lane, Ours, agree, peer_lane
from watersmeet.bench.rounds import median
from watersmeet.bench.workloads import Workload
from watersmeet.workers import all_cores

PARTS = ("band_last", "A2", "B", "subwindows", "cores", "sort", "push", "count", "boxes", "asof", "aggregates", "page")
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
    push_rows: tuple[int, ...] = (1, 16, 256)
    push_pairs: int = 500  # pushes of either side in a round
    by_hand_window: int = 1_000_000  # rows a side of boxes and as-of joins
    by_hand_batches: tuple[int, ...] = (5_000, 50_000)
    by_hand_rounds: int = 9
    page_turn: float = 3.0  # seconds; a page takes a sample every second
    page_rounds: int = 12


FULL = Sizes()
QUICK = Sizes(
    windows=(1 << 14, 1 << 17),
    last_batches=(1 << 10, 1 << 15),
    seconds=1,
    batches=(5_000, 50_000),
    turn=0.2,
    rounds=2,
    by_hand_window=50_000,
    by_hand_batches=(2_500, 10_000),
    by_hand_rounds=3,
    page_turn=1.0,
    page_rounds=2,
)


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    out: Path | str | None = None,
    rounds: int | None = None,
    most: int | None = None,
    *,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts; `most` is how many cores the part `cores` uses (default: all of the
    machine); `say` gets a line a measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_least("rounds", rounds, 1)
    check_least("most", most, 1)
    judged = not quick and sizes is None
    sizes = sizes or (QUICK if quick else FULL)
    if rounds:
        sizes = replace(sizes, rounds=rounds, by_hand_rounds=rounds, page_rounds=rounds)
    bench = Embedded(sizes, judged, say, most)

    def measure() -> None:
        for part in PARTS:
            if not only or part in only:
                getattr(bench, part)()

    return bench.report("embedded", quick, {"rounds": sizes.rounds, "within_seconds": sizes.seconds}, measure, out)


class Embedded(Bench):
    """Part by part."""

    def __init__(self, sizes: Sizes, judged: bool, say: Callable[[str], None] | None, most: int | None = None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes
        self.most = most or all_cores()

    # -- band_last: against sorting and a nested loop ---------------------------------------------------

    def band_last(self) -> None:
        sizes = self.sizes
        found: dict[tuple[int, int], Lane] = {}
        for window in sizes.windows:
            lanes = {batch: self.last_lane(window, batch) for batch in sizes.last_batches}
            sort = []
            for _ in range(sizes.rounds):
                for lane in lanes.values():
                    lane.turn(sizes.turn, least_rows=window // 4)
                sort.append(argsort_speed(window, sizes.turn))
            for batch, lane in lanes.items():
                checked = last_rows(lane)
                self.record(lane.result() | {"checked_pairs": checked.pairs, "checksum": str(checked)})
                found[window, batch] = lane
            self.record(baseline("argsort", f"np.argsort of {window} keys", window, None, sort))
            nested = nested_loops(window, sizes.turn)
            for name, loops in nested.items():
                self.record(baseline(name, "1 thread, few tuples", window, None, loops))
            for batch in sizes.last_batches:
                goal = targets.ARGSORT.get(window) if batch == targets.LAST_BATCH else None
                self.last_ratio("np.argsort", found[window, batch], sort, goal)
            at = targets.LAST_BATCH if targets.LAST_BATCH in sizes.last_batches else sizes.last_batches[-1]
            for name, loops in nested.items():
                self.last_ratio(name, found[window, at], loops, targets.NESTED_LOOP.get(window))
            for lane in lanes.values():
                lane.leave()
            gc.collect()
        small, large = found[sizes.windows[0], at], found[sizes.windows[-1], at]
        what = f"cost per tuple, against a window of {sizes.windows[0]}"
        self.ratio(
            "band_last", what, small.median / large.median, targets.GROWTH, "<", small.speed / large.speed,
            window=sizes.windows[-1], batch=at,
        )  # fmt: skip

    def last_ratio(self, against: str, lane: Lane, speeds: list[float], goal: float | None) -> None:
        self.ratio(
            "band_last", against, lane.median / median(speeds), goal, best=lane.speed / max(speeds),
            window=lane.workload.window_rows, batch=lane.workload.batch_rows,
        )  # fmt: skip

    def last_lane(self, window: int, batch: int) -> Lane:
        workload = workloads.band_last(window, batch)
        join = Ours(workload, output="pairs", cores=1)
        lane = Lane(OURS, f"{join.index}, 1 thread, pairs", workload, join)
        lane.fill(window + window // 4, max(batch, min(window // 4, FILL_ROWS)))
        lane.turn(self.sizes.turn / 2, timed=False)
        return lane

    # -- A2 and B: against hand-rolled joins ------------------------------------------------------------

    def A2(self) -> None:
        symmetric: SymmetricHashJoin | None = None
        if self.available(SymmetricHashJoin):
            workload = workloads.a2(self.sizes.batches[0], seconds=self.sizes.seconds)
            symmetric = SymmetricHashJoin(workload, self.sizes.unbounded_windows * workload.window_rows)
        try:
            self.within(workloads.a2, symmetric)
        finally:
            if symmetric:
                symmetric.close()

    def B(self) -> None:
        self.within(workloads.b, None)

    def within(self, make: Callable[..., Workload], symmetric: SymmetricHashJoin | None) -> None:
        available = [peer for peer in PEERS if self.available(peer)]
        for batch in self.sizes.batches:
            self.against_peers(make(batch, seconds=self.sizes.seconds), available, symmetric)

    def available(self, peer: type[Peer] | type[SymmetricHashJoin]) -> bool:
        why = peer.missing()
        if why:
            self.skipped[peer.name] = why
        return not why

    def against_peers(self, workload: Workload, peers: list[type[Peer]], symmetric: SymmetricHashJoin | None) -> None:
        """Rounds of ours and every form of every peer; after the first, only forms near their peer's best."""
        sizes, kept = self.sizes, 2 * workload.window_rows
        join = Ours(workload)
        ours = Lane(OURS, f"{join.index}, all cores, rows", workload, join)
        ours.fill(kept)
        ours.turn(sizes.turn / 2, timed=False)
        forms = {peer: [peer_lane(peer, workload, kept, form) for form in peer.forms] for peer in peers}
        tried: dict[str, dict[str, list[float]]] = {peer.name: {} for peer in peers}  # all rounds of all forms
        least: list[Lane] = []  # the same with no more rows kept than a batch needs
        passes = []
        for round in range(sizes.rounds):
            ours.turn(sizes.turn)
            for lane in [lane for lanes in forms.values() for lane in lanes]:
                lane.turn(sizes.turn)
                tried[lane.name][lane.form] = lane.speeds
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
        best = [fastest(lanes) for lanes in forms.values()]  # of each peer
        check = {"checked_pairs": checked.pairs, "checksum": str(checked)}
        for lane in [ours] + best + least:
            self.record(lane.result() | check | {"forms_tried": tried.get(lane.name)})
        every = [lane for lanes in forms.values() for lane in lanes]
        self.compare(workload, ours, every, "best hand-rolled", judged=True)
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
        fast = max(by_form, key=lambda form: median(by_form[form]))
        speeds = by_form[fast]
        row = baseline(symmetric.name, fast, workload.window_rows, workload.batch_rows, speeds)
        row |= {"workload": workload.name, "results_per_tuple": mine.pairs / (2 * symmetric.rows)}
        row |= {"forms_tried": by_form}
        self.record(row | {"checked_pairs": mine.pairs, "checksum": str(mine)})
        goal = targets.BY_HAND.get((workload.name, workload.batch_rows))
        self.peer_ratio(workload, symmetric.name, ours, median(speeds), max(map(max, by_form.values())), goal)

    def compare(self, workload: Workload, ours: Lane, lanes: list[Lane], what: str, judged: bool) -> None:
        if lanes:
            peer = fastest(lanes)
            goal = targets.BY_HAND.get((workload.name, workload.batch_rows)) if judged else None
            against = f"{what} ({peer.name.partition(',')[0]} {peer.form})"
            self.peer_ratio(workload, against, ours, peer.median, max(lane.speed for lane in lanes), goal)

    def peer_ratio(
        self, workload: Workload, against: str, ours: Lane, typical: float, best: float, goal: float | None
    ) -> None:
        self.ratio(
            workload.name, against, ours.median / typical, goal, best=ours.speed / best,
            window=workload.window_rows, batch=workload.batch_rows,
        )  # fmt: skip

    # -- subwindows, cores: how many are best -----------------------------------------------------------

    def subwindows(self) -> None:
        sizes = self.sizes
        middle = sizes.windows[len(sizes.windows) // 2]
        races = [workloads.band_last(middle, batch) for batch in sizes.last_batches[:2]]
        races += [make(sizes.batches[0], seconds=sizes.seconds) for make in (workloads.a2, workloads.b)]
        forms = {f"{count or 'default'} subwindows": {"cores": 1, "subwindows": count} for count in sizes.subwindows}
        for workload in races:
            self.among_ourselves("subwindows", workload, forms)

    def cores(self) -> None:
        core_counts.measure(self, self.most)

    def among_ourselves(
        self, part: str, workload: Workload, forms: dict[str, dict[str, Any]], kind: type[Lane] = Lane
    ) -> list[Lane]:
        """A race of joins that differ in their options."""
        sizes = self.sizes
        output = "rows" if workload.spacing_us else "pairs"
        lanes = []
        for form, options in forms.items():
            join = Ours(workload, output=output, **options)
            lane = kind(f"{workload.name}, {join.index}", form, workload, join)
            lane.fill(2 * workload.window_rows)
            lane.turn(sizes.turn / 2, timed=False)
            lanes.append(lane)
        for _ in range(sizes.rounds):
            for lane in lanes:
                lane.turn(sizes.turn, least_rows=workload.window_rows)
        checked = agree(lanes)
        for lane in lanes:
            self.record(lane.result() | {"workload": part, "checked_pairs": checked.pairs})
            lane.leave()
        gc.collect()
        return lanes

    # -- push, count: the cost of a call, and of a tuple when nothing is made of it ---------------------

    def push(self) -> None:
        sizes = self.sizes
        lanes = [self.push_lane(band, rows) for band in (0, workloads.BAND) for rows in sizes.push_rows]
        for _ in range(sizes.rounds):
            for lane in lanes:
                lane.burst(sizes.push_pairs)
        for lane in lanes:
            checked = in_one_push(lane)
            rows = lane.workload.batch_rows
            typical, best = 1e6 * rows / lane.median, 1e6 * rows / lane.speed
            microseconds = {"microseconds": typical, "best_microseconds": best}
            self.record(lane.result() | microseconds | {"checked_pairs": checked.pairs, "checksum": str(checked)})
            self.say(f"  {typical:.0f} us a push, best {best:.0f}")
            self.ratio(
                "push", f"{targets.PUSH:.0f} us a push, {lane.form}", typical / targets.PUSH, 1.0, "<",
                best / targets.PUSH, window=lane.workload.window_rows, batch=rows,
            )  # fmt: skip

    def push_lane(self, band: int, rows: int) -> Lane:
        workload = workloads.pushes(band, rows)
        join = Ours(workload, cores=1)
        lane = Lane(OURS, f"{join.index}, 1 thread, rows", workload, join)
        lane.fill(workload.window_rows, workload.window_rows)
        lane.burst(self.sizes.push_pairs, timed=False)
        return lane

    def count(self) -> None:
        sizes = self.sizes
        workload = workloads.a2(sizes.batches[-1], seconds=sizes.seconds).scaled(name="count")
        lanes = {}
        for output in ("count", "pairs"):
            join = Ours(workload, output=output)
            lanes[output] = Lane(OURS, f"{join.index}, all cores, {output}", workload, join)
            lanes[output].fill(2 * workload.window_rows)
            lanes[output].turn(0, timed=False)
        lane, checked = lanes["count"], lanes["pairs"].checks[-1].pairs
        if lane.checks[-1].pairs != checked:
            raise AnswersDiffer(f"count: {lane.checks[-1].pairs} results were counted, {checked} pairs found")
        lanes["pairs"].leave()
        for _ in range(sizes.rounds):
            lane.turn(sizes.turn)
        self.record(lane.result() | {"checked_pairs": checked})
        self.ratio(
            "count", f"{targets.COUNT / 1e6:g} M tuples/s", lane.median / targets.COUNT,
            1.0 if workload.batch_rows == targets.COUNT_BATCH else None, best=lane.speed / targets.COUNT,
            window=workload.window_rows, batch=workload.batch_rows,
        )  # fmt: skip

    # -- sort, boxes, asof, aggregates, page: files of their own ----------------------------------------

    def sort(self) -> None:
        sort.measure(self, self.sizes.batches, self.sizes.rounds, self.sizes.turn)

    def boxes(self) -> None:
        sizes = self.sizes
        if self.installed("boxes", "duckdb", "scipy"):
            boxes.measure(self, sizes.by_hand_window, sizes.by_hand_batches[-1], sizes.by_hand_rounds)

    def asof(self) -> None:
        sizes = self.sizes
        if self.installed("asof", "duckdb", "polars"):
            asof.measure(self, sizes.by_hand_window, sizes.by_hand_batches, sizes.by_hand_rounds)

    def installed(self, part: str, *packages: str) -> bool:
        missing = [name for name in packages if find_spec(name) is None]
        if missing:
            self.skipped[part] = f"{' and '.join(missing)} not installed: pip install 'watersmeet[bench]'"
        return not missing

    def page(self) -> None:
        page.measure(self, self.sizes.page_turn, self.sizes.page_rounds)

    def aggregates(self) -> None:
        batch = 50_000
        window = 20 * batch if self.judged else 4 * batch
        speeds = aggregates.measure(self.record, window, batch, self.sizes.rounds, self.sizes.turn)
        self.ratio(
            "aggregates", f"{targets.AGGREGATES / 1e6:g} M left rows/s", median(speeds) / targets.AGGREGATES,
            1.0, best=max(speeds) / targets.AGGREGATES, window=window, batch=batch,
        )  # fmt: skip

    # -- collecting -------------------------------------------------------------------------------------

    def record(self, row: dict[str, Any]) -> None:
        self.results.append(row)
        batch = f", batches of {row['batch']:,}" if row["batch"] else ""
        self.say(
            f"{row['workload']}, window {row['window']:,}{batch}: {row['contender']} ({row['form']}) "
            f"{median(row['rounds']) / 1e6:.4g} M tuples/s, best {row['tuples_per_s'] / 1e6:.4g}"
        )
        spent = row.get("milliseconds", {})
        if spent.get("busiest"):
            self.say("    ms a push: " + ", ".join(f"{key} {value:.2f}" for key, value in spent.items()))


def in_one_push(lane: Lane) -> Checksum:
    """The results of a lane, which a join that gets all of its rows at once must have as well."""
    workload = lane.workload
    assert isinstance(workload, Workload)
    join, filled = Ours(workload), workload.window_rows
    for side in workloads.SIDES:
        join.push(side, workload.rows(side, 0, filled))
    found = Checksum()
    for side in workloads.SIDES:
        found += join.check(join.push(side, workload.rows(side, filled, lane.position - filled)))
    if found != lane.checks[-1]:
        raise AnswersDiffer(f"push: many small ones give {lane.checks[-1]}, one gives {found} (pairs:checksum)")
    return found


def fastest(lanes: list[Lane]) -> Lane:
    """By the median of its rounds."""
    return max(lanes, key=lambda lane: lane.median)


def near_best(lanes: list[Lane]) -> list[Lane]:
    """Lanes that may yet turn out the fastest."""
    return [lane for lane in lanes if lane.median >= 0.6 * fastest(lanes).median]


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
            total += ours.check(ours.push(side, batch))
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """The command where nothing but the engine is installed: those parts that need nothing more."""
    size = ("--most", "cores that the part cores uses (default: all)")
    about = "Measure the embedded engine."
    return command_line("embedded", about, PARTS, size, run, lambda most: False, arguments)
