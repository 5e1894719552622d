"""Parts of `watersmeet bench skew`: balance, partitioners, sketch, cores, completeness."""

from __future__ import annotations

from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from watersmeet.bench import targets
from watersmeet.bench.checksum import AnswersDiffer
from watersmeet.bench.rounds import Row, median
from watersmeet.bench.skew.data import JOINS, ZIPF, believed, keys, partitioned, routed
from watersmeet.engine.join import StreamJoin
from watersmeet.queries.zipf import shares
from watersmeet.query.expr import Call, Column, Constant
from watersmeet.query.windows import within
from watersmeet.routing.sta import STA
from watersmeet.sketch import ASketch

if TYPE_CHECKING:
    from watersmeet.bench.skew import Skew

ROUTES = {"equality": ("hash", "hot_cold"), "band": ("cells", "hot_cold"), "inequality": ("split", "hot_cold")}
PARTITIONERS = ("hash", "round robin", "random", "sta")
JUDGED_ELEMENTS = 8
JUDGED_ZIPF = 1.5
TOP = 32
ZIPF_KEYS = 100_000
SECOND_KEYS = 1 << 40  # of the column that a band is on


# -- where tuples go -------------------------------------------------------------------------------------------------


def balance(bench: Skew) -> None:
    """The busiest element to the average one, by our routes."""
    sizes = bench.sizes
    settings = [(zipf, JUDGED_ELEMENTS) for zipf in sizes.exponents] + [(JUDGED_ZIPF, n) for n in sizes.elements]
    for zipf, elements in dict.fromkeys(settings):
        for join, routes in ROUTES.items():
            for route in routes:
                found = routed(route, join, zipf, elements, sizes.pushes, sizes.batch).summary()
                about: Row = {"part": "balance", "setting": f"{join}, Zipf {zipf:g}", "elements": elements}
                bench.record(about | {"contender": route, "join": join, "zipf": zipf} | found)
                if route == "hot_cold" and join == "equality" and (zipf, elements) == (JUDGED_ZIPF, JUDGED_ELEMENTS):
                    for what in ("stored", "probes"):
                        says = f"the average of {elements}: {what}, busiest core, hot_cold, Zipf {zipf:g}"
                        bench.ratio("balance", says, found[what], targets.SKEW_BUSIEST, "<")
                if route == "hash" and (zipf, elements) == (JUDGED_ZIPF, JUDGED_ELEMENTS):
                    says = f"the average of {elements}: stored, busiest core, hash, Zipf {zipf:g}"
                    bench.ratio("balance", says, found["stored"], None)


def partitioners(bench: Skew) -> None:
    """Load imbalance and aggregation of the paper's partitioners (figures 19 and 20)."""
    thousand, elements = 1000, bench.sizes.many_elements
    for zipf in bench.sizes.exponents:
        found = keys(ZIPF, 0, bench.sizes.draws // 10, zipf=zipf)
        for name in PARTITIONERS:
            for number in (10, elements):
                home = partitioned(name, found, number)
                loads = np.bincount(home, minlength=number)
                pieces = home[: home.size // thousand * thousand].reshape(-1, thousand)
                used = [np.unique(piece).size for piece in pieces]
                bench.record({
                    "part": "partitioners", "setting": f"Zipf {zipf:g}", "elements": number, "contender": name,
                    "zipf": zipf, "imbalance": float((loads.max() - loads.mean()) / found.size),
                    "stored": float(loads.max() / loads.mean()), "aggregated": float(np.mean(used)),
                })  # fmt: skip


# -- the sketch ------------------------------------------------------------------------------------------------------


def sketch(bench: Skew) -> None:
    """ASketch: the true top 32, no underestimates, keys/s; and datasketches' frequent items where it is installed."""
    draws = bench.sizes.draws
    for zipf in bench.sizes.sketched:
        found = keys(ZIPF, 0, draws, zipf=zipf)
        values, counts = np.unique(found, return_counts=True)
        least = np.sort(counts)[-TOP]
        made = ASketch()
        made.add(found)
        said = [key for key, _ in made.top(TOP)]
        truth = dict(zip(values.tolist(), counts.tolist()))
        right = sum(truth.get(key, 0) >= least for key in said) / TOP
        below = int((made.estimate(values) < counts).sum())
        rounds = []
        for _ in range(bench.sizes.rounds + 1):  # the first to warm up
            made = ASketch()
            begin = thread_time()  # one core's: others may use the machine, too
            made.add(found)
            rounds.append(draws / (thread_time() - begin))
        rounds = rounds[1:]
        about: Row = {"part": "sketch", "setting": f"Zipf {zipf:g}, {draws:,} draws", "elements": 1, "zipf": zipf}
        bench.record(
            about
            | {"contender": "ASketch", "top": right, "below": below, "rounds": rounds, "tuples_per_s": max(rounds)}
        )
        _judge_sketch(bench, zipf, right, below, rounds)
        _datasketches(bench, about, found, truth, least)


def _judge_sketch(bench: Skew, zipf: float, right: float, below: int, rounds: list[float]) -> None:
    if zipf < 1.2:
        return
    bench.ratio("sketch", f"the true top {TOP}, Zipf {zipf:g}", right, targets.SKETCH_TOP)
    bench.ratio("sketch", f"estimates below the truth, Zipf {zipf:g}", below, 1, "<")
    says = f"keys/s on one core, Zipf {zipf:g}"
    bench.ratio("sketch", says, median(rounds), targets.SKETCH_KEYS, best=max(rounds))


def _datasketches(bench: Skew, about: Row, found: np.ndarray, truth: dict[int, int], least: int) -> None:
    """Its frequent items, key by key, as it takes them; the same questions. Keys that it has let go count 0 there: it
    has an upper bound for these, too, which is what is compared with the truth."""
    try:
        from datasketches import frequent_items_error_type, frequent_items_sketch
    except ImportError:
        bench.skipped["datasketches"] = "it is not installed"
        return
    batch = found.tolist()
    begin = thread_time()
    theirs = frequent_items_sketch(10)
    for key in batch:
        theirs.update(key)
    speed = len(batch) / (thread_time() - begin)
    said = theirs.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
    top = sorted(said, key=lambda one: -one[1])[:TOP]
    right = sum(truth.get(one[0], 0) >= least for one in top) / TOP
    below = sum(theirs.get_upper_bound(key) < count for key, count in truth.items())
    row = {"contender": "datasketches", "top": right, "below": below, "rounds": [speed], "tuples_per_s": speed}
    bench.record(about | row)


# -- on real cores ---------------------------------------------------------------------------------------------------


def cores(bench: Skew) -> None:
    """Rows/s by hash and by hot_cold at Zipf 1.5, and of uniform keys with as many results, over the same window.

    Equal keys and a band on a second column, found together in the index: as wide a band as gives `core_partners`
    results a row, of the few rows with a uniform key and of the very many with Zipf's, so that no contender looks at
    more candidates than it has results.
    """
    sizes = bench.sizes
    reached = 2 * sizes.core_window  # rows of the other stream
    squares = float((shares(JUDGED_ZIPF, ZIPF_KEYS) ** 2).sum())
    uniform_keys = max(reached // (8 * sizes.core_partners), 1)
    settings = {
        "uniform, hash": (0.0, uniform_keys, reached / uniform_keys, "hash"),
        "Zipf 1.5, hash": (JUDGED_ZIPF, ZIPF_KEYS, reached * squares, "hash"),
        "Zipf 1.5, hot_cold": (JUDGED_ZIPF, ZIPF_KEYS, reached * squares, "hot_cold"),
    }
    for output in ("rows", "count"):
        lanes = {name: Lane(bench, *setting, output=output) for name, setting in settings.items()}
        try:
            for lane in lanes.values():
                lane.fill()
            speeds: dict[str, list[float]] = {name: [] for name in lanes}
            for _ in range(sizes.rounds):
                for name, lane in lanes.items():
                    speeds[name].append(lane.round())
        finally:
            for lane in lanes.values():
                lane.join.__exit__()
        first, second = (lanes[f"Zipf 1.5, {route}"] for route in ("hash", "hot_cold"))
        if first.results != second.results:
            raise AnswersDiffer(f"cores, {output}: hash gives {first.results} results, hot_cold {second.results}")
        for name, rounds in speeds.items():
            bench.record({
                "part": "cores", "setting": output, "elements": bench.most, "contender": name, "rounds": rounds,
                "tuples_per_s": max(rounds), "results_per_tuple": lanes[name].results / lanes[name].rows,
            })  # fmt: skip
        ours, others = speeds["Zipf 1.5, hot_cold"], {name: speeds[name] for name in list(settings)[:2]}
        for (name, theirs), target in zip(others.items(), (targets.SKEW_TO_UNIFORM, targets.SKEW_TO_HASH)):
            value, best = median(ours) / median(theirs), max(ours) / max(theirs)
            bench.ratio("cores", f"{name}, {output}", value, target if output == "rows" else None, best=best)


class Lane:
    """A join with its streams."""

    def __init__(self, bench: Skew, zipf: float, number: int, equal: float, route: Any, output: Any) -> None:
        """number: of keys; equal: rows in reach that have a row's key."""
        self._sizes, self._zipf, self._keys = bench.sizes, zipf, number
        reach = round(bench.sizes.core_partners / equal * SECOND_KEYS / 2)
        distance = Call("abs", (Call("-", (Column("l", "x"), Column("r", "x"))),))
        on = Call("and", (JOINS["equality"], Call("<=", (distance, Constant(reach)))))
        schema = pa.schema({"ts": pa.int64(), "t": pa.int64(), "x": pa.int64()})
        options: Any = {"left_schema": schema, "right_schema": schema, "output": output}
        window = within(bench.sizes.core_window, time="ts")
        self.join: Any = StreamJoin(on, window, cores=bench.most, route=route, **options)
        self._at = self.rows = self.results = 0

    def _push(self) -> int:
        batch = self._sizes.core_batch
        numbers = np.arange(self._at, self._at + batch)
        sides = []
        for stream in (0, 1):
            rng = np.random.default_rng(self._at * 2 + stream)
            skewed = self._zipf > 0
            found = keys(ZIPF, self._at, batch, stream, self._zipf) if skewed else rng.integers(0, self._keys, batch)
            sides.append(pa.record_batch({"ts": numbers, "t": found, "x": rng.integers(0, SECOND_KEYS, batch)}))
        self._at += batch
        begin = perf_counter()
        answer = self.join.push(*sides)
        self._seconds += perf_counter() - begin
        return answer if isinstance(answer, int) else answer.num_rows

    def fill(self) -> None:
        self._seconds = 0.0
        for _ in range(-(-self._sizes.core_window // self._sizes.core_batch) + 2):
            self._push()

    def round(self) -> float:
        self._seconds = 0.0
        for _ in range(self._sizes.steps):
            self.results += self._push()
        rows = 2 * self._sizes.core_batch * self._sizes.steps
        self.rows += rows
        return rows / self._seconds


# -- completeness ----------------------------------------------------------------------------------------------------


def completeness(bench: Skew) -> None:
    """What is found of all results, where elements share their tuples only every so often (figures 21 and 22).

    A chained index: a tuple is stored where its hash says, and looks for partners in one element, which has its own
    tuples and all that was shared. STA: the same for cold keys, at random, while hot ones are in two elements that all
    tuples visit. An event a tuple, at the rate and with the window of the bench's size, inequality, self.
    """
    sizes = bench.sizes
    for elements, sync in ((10, 1.0), (sizes.many_elements, 5.0)):
        for zipf in sizes.exponents:
            if not zipf:
                continue
            found = keys(ZIPF, 0, 2 * sizes.completeness_rows, zipf=zipf)
            for name in ("chained index", "sta"):
                for window in sizes.completeness_s:
                    share = _completeness(found, name, elements, sync, window, sizes.completeness_rows)
                    bench.record({
                        "part": "completeness", "setting": f"Zipf {zipf:g}, sync {sync:g} s of {window:g} s",
                        "elements": elements, "contender": name, "zipf": zipf, "sync": sync, "window_s": window,
                        "complete": share,
                    })  # fmt: skip
            for each in (0.0, sync / 2, sync, 2 * sync):
                _by_route(bench, found, zipf, elements, each)


def _completeness(found: np.ndarray, name: str, elements: int, sync: float, window_s: float, rows: int) -> float:
    """Of some probes in the second window. Row i comes at i / rate, `rows` in a window."""
    per_sync = max(round(rows * sync / window_s), 1)
    home = partitioned("hash" if name == "chained index" else "sta", found, elements)
    hot = believed(found) if name == "sta" else np.zeros(found.size, bool)
    chance = np.random.default_rng(3)
    there = expected = 0
    cold = elements - 2 if name == "sta" else elements
    for row in np.linspace(rows, 2 * rows - 1, 200).astype(int):
        partners = found[row - rows : row] < found[row]
        shared = np.arange(row - rows, row) < row // per_sync * per_sync
        mine = home[row - rows : row] == (chance.integers(cold) if name == "sta" else home[row])
        there += int((partners & (shared | mine | hot[row - rows : row])).sum())
        expected += int(partners.sum())
    return there / expected if expected else 1.0


def _by_route(bench: Skew, found: np.ndarray, zipf: float, elements: int, sync: float) -> None:
    """By the library's own route."""
    sizes = bench.sizes
    rows, window = sizes.completeness_rows, sizes.completeness_s[-1]
    step = window / rows
    times = (np.arange(found.size) * step * 1e6).astype(np.int64)
    table = pa.table({"ts": pa.array(times).cast(pa.timestamp("us")), "t": found})
    length = f"{round(window * 1000)} ms"
    route = STA(sync=f"{round(sync * 1000)} ms" if sync else 0, verify=True)
    with StreamJoin(
        JOINS["inequality"], within(length, time="ts"), output="count", route=route, cores=elements
    ) as join:
        for start in range(0, table.num_rows, sizes.batch):
            piece = table.slice(start, sizes.batch)
            join.push(left=piece, right=piece)
        join.close()
        complete = join.completeness()
    if not sync and complete != 1:
        raise AnswersDiffer(f"completeness: route sta with sync=0 must be exact, and has found {complete} of all pairs")
    bench.record({
        "part": "completeness", "setting": f"Zipf {zipf:g}, sync {sync:g} s of {window:g} s", "elements": elements,
        "contender": "route sta", "zipf": zipf, "sync": sync, "window_s": window, "complete": complete,
    })  # fmt: skip
