"""What the papers say of their indexes, and what a run of `watersmeet bench index` says of ours.

    claims(results)   one row a claim: where it stands, the paper's figure, ours, whether it holds

As in bench/claims.py; older runs have not kept all rounds, there only the best ones judge.
"""

from __future__ import annotations

from typing import Any

from watersmeet.bench.claims import Claims, Row, claim, mean, percent, plain, power
from watersmeet.bench.rounds import median

CONVERGED = 0.02  # what further adjustments may gain at most, in shares of a partition


def claims(results: list[Row], judged: bool = True) -> list[Row]:
    """All claims that these results say something about; not judged where sizes are not the papers'."""
    typical = {row["claim"]: row for row in _claims(by_median(results))}
    made: list[Row] = []
    for best in _claims(results):
        row = typical.get(best["claim"])
        row = row | {"best": best["ours"]} if row else best | {"ours": None, "best": best["ours"]}
        made.append(row if judged else row | {"holds": None})
    return made


def _claims(results: list[Row]) -> Claims:
    found = Found(results)
    for judge in (_bisort, _rap_table, _wib_tree, _band_probes, _trees, _chains, _merging, _steps, _matches, _memory,
                  _asymmetry, _distributions, _drift, _opencl):  # fmt: skip
        yield from judge(found)


def by_median(results: list[Row]) -> list[Row]:
    """The rows with the medians of their rounds in place of the best; those whose rounds were not kept are left out."""
    made = []
    for row in results:
        now: Row | None
        if "ns" in row:
            rounds = row.get("ns_rounds")
            now = {"ns": {step: median([one[step] for one in rounds]) for step in row["ns"]}} if rounds else None
        elif "phases" in row:
            phases = row.get("phase_rounds")
            now = {"phases": {phase: median(speeds) for phase, speeds in phases.items()}} if phases else None
        elif row.get("rounds"):
            now = {"ns_per_tuple" if "ns_per_tuple" in row else "tuples_per_s": median(row["rounds"])}
        else:
            now = {}  # not timed
        if now is not None:
            made.append(row | now)
    return made


class Found:
    """The results of a run, by what they are of."""

    def __init__(self, results: list[Row]) -> None:
        self.results = results

    def rows(self, part: str, **wanted: Any) -> list[Row]:
        return [
            row for row in self.results
            if row["part"] == part and all(row.get(name) == value for name, value in wanted.items())
        ]  # fmt: skip

    def largest(self, part: str) -> int:
        return max((row["window"] for row in self.rows(part)), default=0)

    def ns(self, contender: str, batch: int, setting: str, matches: float | None = None, form: str = "") -> float:
        """Nanoseconds a tuple in the largest subwindow."""
        (row,) = self.rows(
            "structures", window=self.largest("structures"), contender=contender, batch=batch, setting=setting,
            matches=matches, form=form,
        )  # fmt: skip
        return row["ns_per_tuple"]

    def batches(self, setting: str, matches: float | None = None) -> list[int]:
        rows = self.rows("structures", window=self.largest("structures"), setting=setting, matches=matches)
        return sorted({row["batch"] for row in rows})

    def batch(self) -> int:
        """That of probes by selectivity: 32K in a full run."""
        (batch,) = self.batches("band, count", 1.0)
        return batch

    def selectivities(self) -> list[float]:
        rows = self.rows("structures", window=self.largest("structures"), setting="band, count")
        return sorted({row["matches"] for row in rows})

    def speeds(self, part: str, **wanted: Any) -> dict[str, float]:
        return {row["contender"]: row["tuples_per_s"] for row in self.rows(part, **wanted)}


def _bisort(found: Found) -> Claims:
    if found.rows("windows"):
        window = found.largest("windows")
        speeds = found.speeds("windows", window=window)
        yield claim(
            "P6", "BI-Sort over a nested loop, window 2^23, batches of 32K", "more than 1000x",
            [speeds["bisort"] / speeds["nested_loop"]], low=1000,
        )  # fmt: skip
    if found.rows("structures"):
        for form, says in (("buffer of 1K", "with the paper's buffer of 1K"), ("", "with a buffer that follows")):
            smallest = 0
            for batch in reversed(found.batches("insert")):
                rows = found.rows("structures", contender="bisort", form=form, setting="insert", batch=batch)
                tables = [found.ns(name, batch, "insert") for name in ("rap_table", "wib_tree")]
                if not rows or found.ns("bisort", batch, "insert", form=form) >= min(tables):
                    break
                smallest = batch
            yield claim(
                "P6", f"smallest batch from which on BI-Sort inserts faster than the tables, {says}",
                "2^16", [smallest], low=1 << 15, high=1 << 17, show=power,
            )  # fmt: skip


def _rap_table(found: Found) -> Claims:
    rows = found.rows("convergence")
    if rows:
        yield claim(
            "P3", "adjustments until RaP-Table's partitions are as even as they get, all distributions", "1 to 3",
            [float(adjustments(row["errors"])) for row in rows], high=3, show=plain,
        )  # fmt: skip


def adjustments(errors: list[float]) -> int:
    """After how many adjustments further ones gain nothing. errors[k]: mean error, in shares, after k of them."""
    return next(k for k, error in enumerate(errors) if error <= min(errors[k:]) + CONVERGED)


def _wib_tree(found: Found) -> Claims:
    if not found.rows("structures"):
        return
    yield claim(
        "P5", "WiB+-Tree's inserts over B+-Tree's, subwindow 2^23, batches of 1K to 256K", "3.5x to 4.5x",
        [found.ns("btree", b, "insert") / found.ns("wib_tree", b, "insert") for b in found.batches("insert")], low=3.5,
    )  # fmt: skip
    for what, most in (("equality", 2.8), ("band", 1.3)):
        ratios = [
            found.ns("btree", batch, f"{what}, find", 1.0) / found.ns("wib_tree", batch, f"{what}, find", 1.0)
            for batch in found.batches(f"{what}, find", 1.0)
        ]
        says = f"WiB+-Tree's probes over B+-Tree's, {what}, the best of batches of 1K to 256K"
        yield claim("P5", says, f"up to {most}x", [max(ratios)], low=most)


def _band_probes(found: Found) -> Claims:
    if not found.rows("structures"):
        return

    def probe(name: str, matches: float, way: str = "find") -> float:
        return found.ns(name, found.batch(), f"band, {way}", matches)

    below = [matches for matches in found.selectivities() if matches < 1 << 10]
    yield claim(
        "P3", "RaP-Table's band probes over WiB+-Tree's, fewer than 1K partners, batches of 32K", "1.7x to 2.4x",
        [probe("wib_tree", matches) / probe("rap_table", matches) for matches in below], low=1.7,
    )  # fmt: skip
    yield claim(
        "P6", "BI-Sort's band probes over RaP-Table's, fewer than 1K partners, both making pairs", "1.6x to 7x",
        [probe("rap_table", matches) / probe("bisort", matches) for matches in below], low=1.6,
    )  # fmt: skip
    yield claim(
        "P6", "the same, BI-Sort giving ranges (counting)", "1.6x to 7x",
        [probe("rap_table", matches) / probe("bisort", matches, "count") for matches in below], low=1.6,
    )  # fmt: skip
    most = found.selectivities()[-1]
    tables = ("rap_table", "wib_tree")
    yield claim(
        "P6", "BI-Sort's ranges over the tables' pairs, 1K partners", "about 100x",
        [probe(name, most) / probe("bisort", most, "count") for name in tables], low=100,
    )  # fmt: skip
    yield claim(
        "P6", "the same, the tables counting too", "-",
        [probe(name, most, "count") / probe("bisort", most, "count") for name in tables],
    )  # fmt: skip


def _trees(found: Found) -> Claims:
    loops = found.rows("windows", contender="nested_loop")
    if not loops:
        return
    at = {(row["window"], row["batch"]) for row in loops}
    least = min(1 << 16, found.largest("windows"))
    races = [found.speeds("windows", window=window, batch=batch) for window, batch in sorted(at) if window >= least]
    for row, name, title, paper in (("M4", "im_tree", "IM-Tree", 1.5), ("M5", "pim_tree", "PIM-Tree", 1.63)):
        ratios = [speeds[name] / speeds["btree"] for speeds in races]
        says = f"{title}'s join over B+-Tree's, mean of windows 2^16 to 2^23"
        yield claim(row, says, f"{paper}x", [mean(ratios)], low=paper)


def _chains(found: Found) -> Claims:
    speeds = found.speeds("chains")
    if not speeds:
        return
    pieces = sorted({int(name.split(", ")[1].split()[0]) for name in speeds if name.endswith("subwindows")})
    chains = {
        kind: [speeds[f"{kind}, {count} subwindows"] for count in pieces] for kind in ("btree", "frozen_btree")
    }
    ratios = [frozen / mutable for frozen, mutable in zip(chains["frozen_btree"], chains["btree"], strict=True)]
    yield claim(
        "M2", "chain of frozen trees over chain of B+-Trees, mean of 1 to 8 subwindows", "1.5x", [mean(ratios)], low=1.5
    )
    best = [1.0 + pieces[chain.index(max(chain))] for chain in chains.values()]  # the oldest is still there, in part
    yield claim("M2", "length at which chains are fastest, of 2, 3, 5 and 9", "2", best, high=2, show=plain)


def _merging(found: Found) -> Claims:
    speeds = found.speeds("merging")
    if not speeds:
        return
    best = []
    for kind in ("im_tree", "pim_tree"):
        ratios = {name: speed for name, speed in speeds.items() if name.startswith(f"{kind}, ratio ")}
        fastest = max(ratios, key=lambda name: ratios[name]).rpartition(" ")[2]
        best.append(1 / float(fastest.partition("/")[2] or 1))
    yield claim(
        "M4", "merge ratio at which IM-Tree and PIM-Tree are fastest, window 2^18", "2^-3 to 2^-4", best,
        low=1 / 16, high=1 / 8, show=power,
    )  # fmt: skip
    depths = {name: speed for name, speed in speeds.items() if name.startswith("pim_tree, depth ")}
    deepest = depths.pop("pim_tree, depth 4") / max(depths.values())
    yield claim("M5", "PIM-Tree at the greatest insertion depth, to the best of others", "slower", [deepest], high=1.0)


def _steps(found: Found) -> Claims:
    windows = sorted({row["window"] for row in found.rows("steps")})
    for window, paper, share in zip(windows, (1.5, 2.6), (0.07, 0.11), strict=False):
        ns = {row["contender"]: row["ns"] for row in found.rows("steps", window=window)}
        name = "2^17" if window == windows[0] else "2^23"
        yield claim(
            "M4", f"IM-Tree's and PIM-Tree's inserts over B+-Tree's, without merging, window {name}", f"{paper}x",
            [ns["btree"]["insert"] / ns[tree]["insert"] for tree in ("im_tree", "pim_tree")], low=paper,
        )  # fmt: skip
        merging = [ns[tree]["merge"] / sum(ns[tree].values()) for tree in ("im_tree", "pim_tree")]
        says = f"share of merging in the join's time, window {name}"
        yield claim("M4", says, percent(share), merging, high=share, show=percent)


def _matches(found: Found) -> Claims:
    if found.rows("matches"):
        few, some, many = (found.speeds("matches", setting=f"2^{bits}")["pim_tree"] for bits in (-4, 4, 10))
        says = "PIM-Tree's join with 2^4 partners a tuple, to that with 2^-4"
        yield claim("M5", says, "hardly slower", [some / few], low=0.9, show=percent)
        says = "the same with 2^10 partners"
        yield claim("M5", says, "noticeably slower", [many / few], high=0.5, show=percent)


def _memory(found: Found) -> Claims:
    size = {row["contender"]: row["bytes_per_tuple"] for row in found.rows("memory")}
    if size:
        ratio = size["pim_tree, ratio 1"] / size["btree"]
        says = "PIM-Tree's memory to B+-Tree's, merge ratio 1"
        yield claim("M5", says, "about 2x, with a buffer for merges", [ratio], high=2)


def _asymmetry(found: Found) -> Claims:
    rows = found.rows("asymmetric", contender="pim_tree")
    if not rows:
        return
    speeds = {row["setting"]: row["tuples_per_s"] for row in rows}
    both, *others = [speed for setting, speed in speeds.items() if setting.startswith("windows")]
    says = "PIM-Tree's join with one window a sixteenth of the other, to both large"
    yield claim("M9", says, "faster, as a smaller window is", [speed / both for speed in others], low=1.0)
    rates = [speed / both for setting, speed in speeds.items() if setting.startswith("rates")]
    says = "PIM-Tree's join with rates of 1 : 4 and 1 : 16, to even ones"
    yield claim("M9", says, "marginally faster", rates, low=1.0)


def _distributions(found: Found) -> Claims:
    if not found.rows("distributions"):
        return

    def speed(distribution: str, name: str) -> float:
        return found.speeds("distributions", setting=distribution)[name]

    skewed = ("gaussian", "gamma 3, 3", "gamma 1, 5")
    ratios = [speed("uniform", "pim_tree") / speed(one, "pim_tree") for one in skewed]
    yield claim("M9", "PIM-Tree on uniform keys over skewed ones", "1.02x to 1.04x", ratios, high=1.04)
    for name, says, low, high in (
        ("wib_tree", "WiB+-Tree", 1.0, None),
        ("rap_table, readjust=False", "RaP-Table as in the paper", None, 0.5),
        ("rap_table", "RaP-Table with readjustment", None, None),
    ):
        paper = "keeps its speed" if name == "wib_tree" else "not suited" if high else "-"
        ratio = speed("increasing", name) / speed("uniform", name)
        yield claim("P5", f"{says} on increasing keys, to uniform ones", paper, [ratio], low, high)


def _drift(found: Found) -> Claims:
    phases = {row["drift"]: row["phases"] for row in found.rows("drift", contender="pim_tree")}
    if not phases:
        return
    during = {drift: speeds["during"] / speeds["before"] for drift, speeds in phases.items()}
    for drift, paper, low, high in (
        (0.2, "almost no decrease", 1.0, None),
        (0.6, "35% of the speed, 16 threads", None, 0.35),
        (1.0, "16% of the speed, 16 threads", None, 0.16),
    ):
        says = f"PIM-Tree while keys drift, r = {drift:g}, to before"
        yield claim("M9", says, paper, [during[drift]], low, high, percent)
    after = [speeds["after"] / speeds["before"] for speeds in phases.values()]
    yield claim("M9", "PIM-Tree after the drift, to before, all r", "recovers", after, 1.0, None, percent)


def _opencl(found: Found) -> Claims:
    batches = sorted({row["batch"] for row in found.rows("opencl")})
    if not batches:
        return

    def over(name: str, theirs: str, ours: str) -> list[float]:
        """How much faster BI-Sort on OpenCL is, batch by batch."""
        ratios = []
        for batch in batches:
            (other,) = found.rows("opencl", batch=batch, setting=theirs, contender=name, form="")
            (own,) = found.rows("opencl", batch=batch, setting=ours, contender="opencl_bisort", form="")
            ratios.append(other["ns_per_tuple"] / own["ns_per_tuple"])
        return ratios

    def over_tables(theirs: str, ours: str) -> list[float]:
        return over("rap_table", theirs, ours) + over("wib_tree", theirs, ours)

    find, count = "equality, find", "equality, count"
    yield claim(
        "P11", "BI-Sort's inserts on OpenCL over the CPU's, subwindow 2^23, batches of 64K and 256K", "0.4x to 0.6x",
        over("bisort", "insert", "insert"), low=0.4,
    )  # fmt: skip
    yield claim(
        "P11", "its inserts over the CPU's RaP-Table and WiB+-Tree", "faster, batches above 64K",
        over_tables("insert", "insert"), low=1.0,
    )  # fmt: skip
    yield claim(
        "P11", "its equality probes with one partner over theirs, giving ranges (counting)",
        "faster, batches above 64K", over_tables(find, count), low=1.0,
    )  # fmt: skip
    yield claim("P11", "the same, making pairs", "-", over_tables(find, find))
    yield claim(
        "P11", "its equality probes with one partner over BI-Sort's on the CPU, both giving ranges",
        "above 0.13x: less energy a tuple, at 7.9 W to 60", over("bisort", count, count), low=0.13,
    )  # fmt: skip
