"""Indexes, measured as the papers measured them: `watersmeet bench index`, or `python -m watersmeet.bench.index`.

The second form needs numpy, numba and pyarrow only. All parts run on one thread, structures and joins take turns, and
answers are compared; structures.py and joins.py say how, data.py has the streams.

    structures     insert and probe, by batch, selectivity and size of a subwindow          (PanJoin, figures 10-13)
    shapes         the same by partitions, leaves, fan-out
    convergence    RaP-Table's partitions, adjustment by adjustment                         (PanJoin, figure 10f)
    windows        joins by window, at large and small batches; a nested loop beside them   (PIM, figure 10a)
    equality       the same, of equalities
    chains         into how many subwindows trees are cut                                   (PIM, figure 8b)
    merging        insertion depth and merge ratio                                          (PIM, figures 8c, 9)
    steps          what inserts, probes, merges and expiry cost                             (PIM, figure 9b)
    matches        by the number of partners                                                (PIM, figure 10b)
    memory         bytes a tuple                                                            (PIM, figure 11a)
    asymmetric     windows, and rates, that differ                                          (PIM, figures 11b, c)
    distributions  Gaussian, Gamma and other keys; keys that increase                       (PIM, figure 12b)
    drift          keys whose distribution moves                                            (PIM, figure 13)
    opencl         BI-Sort on OpenCL, beside that of the CPU and the tables                 (PanJoin, figure 14)

Sizes follow from the largest window, 2^23 unless told otherwise: 2^20 where the papers have that, 2^18 and 2^16 where
many joins are compared. `run` returns plain data, with what the papers claim held against it (claims.py), and
stores it as JSON; report.py turns it into tables. A quick or scaled-down run shows that everything works: claims are
not judged by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from watersmeet.bench import targets
from watersmeet.bench.frame import Bench, check_least, check_names
from watersmeet.bench.index.claims import claims
from watersmeet.bench.index.data import DISTRIBUTIONS, INCREASING, Streams, band_for
from watersmeet.bench.index.joins import EQUALITY, LOOP, ORDERED, TREES, Joins
from watersmeet.bench.index.opencl import ONE_UNIT, opencl_contenders
from watersmeet.bench.index.structures import CONTENDERS, Row, Structures, Subwindow, convergence, shapes
from watersmeet.bench.plain import command_line
from watersmeet.bench.rounds import median
from watersmeet.device import NoDevice
from watersmeet.index import Adaptive, BTree, FrozenBTree, IMTree, PIMTree, RaPTable

LEAST = 10  # log2 of the smallest "largest window" with room for all parts
AS_IN_THE_PAPER = "rap_table, readjust=False"


@dataclass(frozen=True)
class Sizes:
    """How much a run measures. `largest` is the log2 of the largest window, and decides the others."""

    largest: int = 23
    turn: float = 0.25  # seconds that a join is timed in a round, at least
    rounds: int = 3

    def __post_init__(self) -> None:
        check_least("largest", self.largest, LEAST)
        check_least("rounds", self.rounds, 1)

    def rows(self, below: int) -> int:
        """2^23 / 2^below, in a full run."""
        return 1 << (self.largest - below)

    @property
    def windows(self) -> list[int]:
        return [1 << bits for bits in (13, 14, 16, 18, 20) if bits < self.largest] + [self.rows(0)]

    @property
    def batch(self) -> int:
        """32K, in a full run."""
        return 1 << min(15, self.largest - 5)

    @property
    def small_batch(self) -> int:
        """4K."""
        return self.batch >> 3

    @property
    def smallest_batch(self) -> int:
        """512."""
        return max(self.small_batch >> 3, 4)

    @property
    def structure_batches(self) -> list[int]:
        """1K to 256K."""
        return [1 << bits for bits in (10, 13, 15, 16, 18) if bits <= self.largest]


FULL = Sizes()
QUICK = Sizes(largest=15, turn=0.01, rounds=1)


def run(
    quick: bool = False,
    only: Sequence[str] | None = None,
    out: Path | str | None = None,
    rounds: int | None = None,
    largest: int | None = None,
    *,
    sizes: Sizes | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measure, check, store. `only` names parts; `largest` is the log2 of the largest window; `say` gets a line a
    measurement (default: standard error)."""
    check_names("only", only, PARTS)
    check_least("rounds", rounds, 1)
    check_least("largest", largest, LEAST)
    chosen = sizes or (QUICK if quick else FULL)
    chosen = replace(chosen, rounds=rounds or chosen.rounds, largest=largest or chosen.largest)
    bench = Indexes(chosen, judged=chosen.largest >= FULL.largest and chosen.turn >= FULL.turn, say=say)
    found: list[Row] = []

    def measure() -> None:
        for name, part in PARTS.items():
            if not only or name in only:
                part(bench)
        bench.compare()
        found.extend(claims(bench.results, bench.judged))

    about = {"rounds": chosen.rounds, "largest": chosen.largest, "claims": found, "autos": bench.joins.autos}
    return bench.report("index", not bench.judged, about, measure, out)


class Indexes(Bench):
    """Part by part."""

    def __init__(self, sizes: Sizes, judged: bool, say: Callable[[str], None] | None) -> None:
        super().__init__(judged, say)
        self.sizes = sizes
        self.structures = Structures(sizes.rounds, self.record)
        self.joins = Joins(sizes.turn, sizes.rounds, self.record)

    # -- structures -------------------------------------------------------------------------------------

    def by_structure(self) -> None:
        sizes, batches = self.sizes, self.sizes.structure_batches
        few = 1 << min(15, sizes.largest - 3)  # probes
        subwindow = Subwindow(sizes.rows(0))
        filled = self.structures.inserts("structures", subwindow, batches, CONTENDERS)
        asked = {which: structure for which, structure in filled.items() if not which[1]}
        for matches in (2.0**-4, 1.0, 2.0**4, 2.0**7, 2.0**9, 2.0**10):
            band = band_for("uniform", subwindow.rows, matches)
            self.structures.lookups("structures", subwindow, sizes.batch, band, matches, "band", asked, few)
        for batch in batches:
            if batch != sizes.batch:
                band = band_for("uniform", subwindow.rows, 1.0)
                self.structures.lookups("structures", subwindow, batch, band, 1.0, "band", asked, few, ("find",))
        del filled, asked
        plain = {which: index for which, index in CONTENDERS.items() if not which[1]}
        for matches in (1.0, 2.0**4, 2.0**10):
            keyed = Subwindow(subwindow.rows, max(round(subwindow.rows / matches), 1))
            setting = f"insert, {matches:g} equal keys"
            asked = self.structures.inserts("structures", keyed, batches[-1:], plain, setting)
            for batch in batches if matches == 1 else [sizes.batch]:
                self.structures.lookups("structures", keyed, batch, 0, matches, "equality", asked, few, ("find",))
            del asked
        for rows in (sizes.rows(7), sizes.rows(3)):
            smaller = Subwindow(rows)
            batch = min(sizes.batch, rows)
            asked = self.structures.inserts("structures", smaller, [batch], plain)
            band = band_for("uniform", rows, 1.0)
            self.structures.lookups("structures", smaller, batch, band, 1.0, "band", asked, few, ("find",))

    def by_shape(self) -> None:
        subwindow = Subwindow(self.sizes.rows(3))
        batch, band = min(self.sizes.batch, subwindow.rows), band_for("uniform", subwindow.rows, 1.0)
        for _, contenders in shapes(subwindow.rows):
            filled = self.structures.inserts("shapes", subwindow, [batch], contenders)
            self.structures.lookups("shapes", subwindow, batch, band, 1.0, "band", filled, batch, ("find",))

    def converging(self) -> None:
        rows = self.sizes.rows(3)
        for share in (1024, 64):
            for row in convergence(rows, max(rows // share, 4), min(self.sizes.batch, rows)):
                self.record(row)

    # -- joins ------------------------------------------------------------------------------------------

    def by_window(self) -> None:
        sizes = self.sizes
        for window in sizes.windows:
            streams = Streams("windows", window, sizes.batch)
            self.joins.loop("windows", streams)
            self.joins.race("windows", streams, ORDERED, auto=True)
        for window in (sizes.rows(7), sizes.rows(3)):
            for batch in (sizes.smallest_batch, sizes.small_batch):
                if window < sizes.rows(3) or batch == sizes.small_batch:
                    self.joins.race("windows", Streams("windows", window, batch), ORDERED, auto=True)

    def by_equality(self) -> None:
        sizes = self.sizes
        for window, batch in (
            (sizes.rows(7), sizes.smallest_batch), (sizes.rows(7), sizes.batch), (sizes.rows(3), sizes.batch),
        ):  # fmt: skip
            self.joins.race("equality", Streams("equality", window, batch, equality=True), EQUALITY, auto=True)

    def by_chain(self) -> None:
        window = self.sizes.rows(3)
        indexes: dict[str, Any] = {"btree, whole window": BTree()}
        options: dict[str, dict[str, Any]] = {}
        for pieces in (1, 2, 4, 8):
            for index in (BTree(), FrozenBTree()):
                name = f"{index.name}, {pieces} subwindows"
                indexes[name], options[name] = index, {"subwindows": pieces}
        streams = Streams("chains", window, max(min(self.sizes.batch, window >> 4), 4))
        self.joins.race("chains", streams, indexes, fill_step=max(streams.batch_rows, window // 8), options=options)

    def by_merging(self) -> None:
        window = self.sizes.rows(5)
        streams = Streams("merging", window, max(window >> 8, 4))  # the smallest share is four batches
        ratios = {f"1/{1 << k}" if k else "1": 2.0**-k for k in range(7)}
        indexes: dict[str, Any] = {f"im_tree, ratio {text}": IMTree(merge_ratio=m) for text, m in ratios.items()}
        indexes |= {f"pim_tree, ratio {text}": PIMTree(merge_ratio=m) for text, m in ratios.items()}
        indexes |= {f"pim_tree, depth {depth}": PIMTree(insertion_depth=depth) for depth in range(5)}
        self.joins.race("merging", streams, indexes, fill_step=max(window // 16, streams.batch_rows))

    def by_step(self) -> None:
        for window in (self.sizes.rows(6), self.sizes.rows(0)):
            self.joins.steps(Streams("steps", window, max(min(self.sizes.small_batch, window >> 5), 4)), TREES)

    def by_matches(self) -> None:
        window = self.sizes.rows(5)
        for bits in (-4, 0, 4, 7, 10):
            streams = Streams("matches", window, self.sizes.small_batch, matches=2.0**bits)
            self.joins.race("matches", streams, ORDERED, f"2^{bits}", auto=True, matches=2.0**bits)

    def by_memory(self) -> None:
        window = self.sizes.rows(5)
        indexes = {**ORDERED, "pim_tree, ratio 1": PIMTree(merge_ratio=1.0)}
        self.joins.memory("memory", Streams("memory", window, max(window >> 6, 4)), indexes)

    def by_asymmetry(self) -> None:
        window, batch = self.sizes.rows(5), self.sizes.small_batch
        some = {name: ORDERED[name] for name in ("bisort", "wib_tree", *TREES)}
        for left, right in ((window, window), (window, window >> 4), (window >> 4, window)):
            streams = Streams("asymmetric", left, batch, right_rows=right)
            self.joins.race("asymmetric", streams, some, f"windows {left}, {right}", auto=True)
        for rate in (4, 16):
            streams = Streams("asymmetric", window, 2 * batch // (1 + rate) or 1, rate=rate)  # as many rows a push
            self.joins.race("asymmetric", streams, some, f"rates 1 : {rate}", auto=True)

    def by_distribution(self) -> None:
        window, batch = self.sizes.rows(5), self.sizes.small_batch
        indexes = {**ORDERED, AS_IN_THE_PAPER: RaPTable(readjust=False), "adaptive": Adaptive()}
        names = (*DISTRIBUTIONS, INCREASING)
        streams = {name: Streams("distributions", window, batch, name) for name in names}
        self.joins.races("distributions", streams, indexes)

    def by_drift(self) -> None:
        window = self.sizes.rows(7)
        names = ("bisort", "rap_table", "wib_tree", "btree", "pim_tree")
        indexes = {name: ORDERED[name] for name in names} | {AS_IN_THE_PAPER: RaPTable(readjust=False)}
        for drift in (0.0, 0.2, 0.6, 1.0):
            streams = Streams(
                "drift", window, max(window >> 4, 4), "gaussian", drift=drift, drift_from=4 * window,
                drift_rows=10 * window,
            )  # fmt: skip
            self.joins.drift("drift", streams, indexes, f"r = {drift:g}")

    # -- devices ----------------------------------------------------------------------------------------

    def on_opencl(self) -> None:
        try:
            contenders = opencl_contenders()
        except NoDevice as error:
            self.say(f"opencl is left out: {error}")
            return
        subwindow, batches = Subwindow(self.sizes.rows(0)), self.sizes.structure_batches[-2:]
        keyed = Subwindow(subwindow.rows, subwindow.rows)
        filled = self.structures.inserts("opencl", keyed, batches, contenders)
        for batch in batches:
            self.structures.lookups("opencl", keyed, batch, 0, 1.0, "equality", filled, batch)
        for what in ("insert", "equality, find", "equality, count"):
            for form, against in (("", "BI-Sort of the CPU, one thread"), (ONE_UNIT, "the same, with one unit")):
                self._to_bisort(batches[-1], what, form, against)

    def _to_bisort(self, batch: int, what: str, form: str, against: str) -> None:
        rows = {
            (row["contender"], row["form"]): row for row in self.results
            if (row["part"], row["batch"], row["setting"]) == ("opencl", batch, what)
        }  # fmt: skip
        ours, theirs = rows["opencl_bisort", form], rows["bisort", ""]
        value, best = (of(theirs["rounds"]) / of(ours["rounds"]) for of in (median, min))
        self.ratio("opencl", f"{against}: {what}", value, best=best, window=ours["window"], batch=batch)

    # -- collecting -------------------------------------------------------------------------------------

    def compare(self) -> None:
        """What the project promises of its own choice, over all joins of the run."""
        autos = self.joins.autos
        if autos:
            worst = min(autos, key=lambda race: race["to_best"])
            against = f"the best index, in the worst of {len(autos)} joins ({where(worst)})"
            self.ratio("auto", against, worst["to_best"], targets.AUTO_TO_BEST, best=worst["best_to_best"])
            worst = min(autos, key=lambda race: race["to_bisort"])
            against = f"BI-Sort, in the worst of {len(autos)} joins ({where(worst)})"
            self.ratio("auto", against, worst["to_bisort"], targets.AUTO_TO_BISORT, best=worst["best_to_bisort"])
        loops = [row for row in self.results if row["part"] == "windows" and row["contender"] == LOOP]
        for loop in loops:
            rows = [
                row for row in self.results
                if row["part"] == "windows" and row["window"] == loop["window"] and row["contender"] != LOOP
            ]  # fmt: skip
            slowest = min(rows, key=lambda row: median(row["rounds"]))
            value = median(slowest["rounds"]) / median(loop["rounds"])
            best = min(row["tuples_per_s"] for row in rows) / loop["tuples_per_s"]
            goal = targets.SLOWEST_TO_LOOP if loop["window"] > targets.LOOP_ABOVE else None
            against = f"nested loop: the slowest of all indexes ({slowest['contender']})"
            sizes = {"window": loop["window"], "batch": slowest["batch"]}
            self.ratio("windows", against, value, goal, best=best, **sizes)

    def record(self, row: Row) -> None:
        self.results.append(row)
        self.say(said(row))


def where(race: Row) -> str:
    setting = f", {race['setting']}" if race["setting"] else ""
    return f"{race['part']}{setting}, window {race['window']:,}, batches of {race['batch']:,}, it picks {race['picks']}"


def said(row: Row) -> str:
    """A measurement as a line."""
    names = ", ".join(text for text in (row["contender"], row["form"]) if text)
    setting = f", {row['setting']}" if row["setting"] else ""
    if "errors" in row:
        value = "errors " + " ".join(f"{error:.3f}" for error in row["errors"])
    elif "ns" in row:
        value = ", ".join(f"{step} {ns:.0f}" for step, ns in row["ns"].items()) + " ns a tuple"
    elif "phases" in row:
        value = ", ".join(f"{phase} {speed / 1e6:.4g}" for phase, speed in row["phases"].items()) + " M tuples/s"
    elif "ns_per_tuple" in row:
        value = f"{median(row['rounds']):.1f} ns a tuple, best {row['ns_per_tuple']:.1f}"
    elif "tuples_per_s" in row:
        value = f"{median(row['rounds']) / 1e6:.4g} M tuples/s, best {row['tuples_per_s'] / 1e6:.4g}"
    else:
        value = f"{row['bytes_per_tuple']:.1f} bytes a tuple"
    return f"{row['part']}{setting}, window {row['window']:,}, batches of {row['batch']:,}: {names} {value}"


PARTS: dict[str, Callable[[Indexes], None]] = {
    "structures": Indexes.by_structure,
    "shapes": Indexes.by_shape,
    "convergence": Indexes.converging,
    "windows": Indexes.by_window,
    "equality": Indexes.by_equality,
    "chains": Indexes.by_chain,
    "merging": Indexes.by_merging,
    "steps": Indexes.by_step,
    "matches": Indexes.by_matches,
    "memory": Indexes.by_memory,
    "asymmetric": Indexes.by_asymmetry,
    "distributions": Indexes.by_distribution,
    "drift": Indexes.by_drift,
    "opencl": Indexes.on_opencl,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command where nothing but the engine is installed."""
    size = ("--largest", "log2 of the largest window (default 23)")
    about = "Measure the window indexes as the papers did."

    def is_small(largest: int | None) -> bool:
        return (largest or FULL.largest) < FULL.largest

    return command_line("index", about, PARTS, size, run, is_small, arguments)
