"""The parts of `watersmeet bench gpu` that go through the study's experiments."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from watersmeet.bench import targets
from watersmeet.bench.gpu.study.manager import run as run_windows
from watersmeet.bench.gpu.study.sink import Sink
from watersmeet.bench.gpu.study.space import SYSTEMS, Algorithm, Results, Variant
from watersmeet.bench.rounds import Row, median
from watersmeet.device.advise import advise

if TYPE_CHECKING:
    from watersmeet.bench.gpu import Gpu

MB = 1 << 20
EQUI: tuple[Algorithm, ...] = ("hash", "sort_merge")


def keys_only(variant: Variant) -> Variant:
    return dataclasses.replace(variant, travels="keys")


def link(bench: Gpu) -> None:
    """Copies, from pinned memory and to it, and from memory that is not."""
    if bench.gpu is None:
        return
    from watersmeet.bench.gpu.study.lanes import Lane

    for size in bench.sizes.copies:
        for contender, pinned, back in (("to", True, False), ("to, pageable", False, False), ("back", True, True)):
            lane = Lane(bench.gpu)
            block = lane.block("copied", size // 8, np.int64)
            here = bench.gpu.pinned(size // 8, np.int64) if pinned else np.zeros(size // 8, np.int64)
            number = max(min((1 << 30) // size, 256), 1)
            rounds = []
            for turn in range(bench.sizes.rounds + 1):
                begin = perf_counter()
                for _ in range(number):
                    if back:
                        lane.fetch(block, block.size, here)
                    else:
                        lane.send(here, block)
                lane.wait()
                if turn:  # the first is slow
                    rounds.append(number * size / (perf_counter() - begin) / 1e9)
            row = {"part": "link", "setting": "", "window": size, "contender": contender}
            bench.record(row | {"rounds": rounds, "gb_per_s": max(rounds)})


def link_speed(bench: Gpu) -> float | None:
    """GB/s to the device, of the largest copies from pinned memory."""
    rows = [row for row in bench.results if row["part"] == "link" and row["contender"] == "to"]
    return median(max(rows, key=lambda row: row["window"])["rounds"]) if rows else None


def distinct(bench: Gpu) -> None:
    """Figure 7."""
    for keys in bench.sizes.distinct:
        for window in bench.sizes.windows:
            variants = [one for algorithm in EQUI for one in bench.both(algorithm=algorithm)]
            if keys == 1000:
                variants += [keys_only(one) for one in variants if one.device == "gpu"]
            rows = bench.measure("distinct", f"{keys} keys", bench.workload(window, keys), variants, distinct=keys)
            if keys == 1000:
                _against_the_link(bench, rows, window)
    _against_the_benchmark(bench)
    _by_window(bench)


def _against_the_link(bench: Gpu, rows: dict[Variant, Row], window: int) -> None:
    speed = link_speed(bench)
    for variant, row in rows.items():
        if speed is not None and variant.device == "gpu":
            keys = variant.travels == "keys"
            target = targets.KEYS_TO_LINK if keys else targets.TUPLES_TO_LINK
            against = "the link's tuples" if keys else "the link"
            bench.ratio(
                "distinct", f"{variant.name}: {against}", median(row["rounds"]) / speed, target,
                best=row["gb_per_s"] / speed, window=window,
            )  # fmt: skip


def _found(bench: Gpu, part: str, variant: Variant, window: int, **more: Any) -> Row | None:
    for row in bench.results:
        wanted = {"part": part, "window": window, "variant": dataclasses.asdict(variant)} | more
        if all(row.get(name) == value for name, value in wanted.items()):
            return row
    return None


def _against_the_benchmark(bench: Gpu) -> None:
    """The study's own program, which we ran on the same machine."""
    for (device, travels), by_window in targets.STUDY_HASH.items():
        for megabytes, (theirs, target) in by_window.items():
            row = _found(bench, "distinct", Variant(device=device, travels=travels), megabytes * MB, distinct=1000)
            if row is not None:
                value, best = median(row["rounds"]) / theirs, row["gb_per_s"] / theirs
                name = f"the study's {device.upper()} hash"
                bench.ratio("distinct", name, value, target, best=best, window=megabytes * MB)


def _by_window(bench: Gpu) -> None:
    small, large = bench.sizes.windows[0], bench.sizes.windows[-1]
    for travels in ("tuples", "keys"):
        rows = [_found(bench, "distinct", Variant(travels=travels), one, distinct=1000) for one in (small, large)]
        if rows[0] is not None and rows[1] is not None:
            value = median(rows[0]["rounds"]) / median(rows[1]["rounds"])
            best = rows[0]["gb_per_s"] / rows[1]["gb_per_s"]
            name = f"the largest window, {travels}"
            bench.ratio("distinct", name, value, targets.SMALL_TO_LARGE, best=best, window=small)


def skew(bench: Gpu) -> None:
    """Figure 8; at its window, and at the smallest and largest."""
    sizes = bench.sizes.windows
    chosen = sorted({sizes[0], sizes[min(1, len(sizes) - 1)], sizes[-1]})
    for zipf in bench.sizes.zipf:
        for window in chosen:
            if window != chosen[len(chosen) // 2] and zipf not in (0.0, 1.0):
                continue
            variants = [one for algorithm in EQUI for one in bench.both(algorithm=algorithm)]
            variants += [keys_only(one) for one in variants if one.device == "gpu"]
            bench.measure("skew", f"zipf {zipf:g}", bench.workload(window, 1000, zipf), variants, zipf=zipf)
    for window in chosen:
        for algorithm, target in targets.SKEWED.items():
            for travels in ("tuples", "keys"):
                variant = Variant(algorithm=algorithm, travels=travels)
                even, skewed = (_found(bench, "skew", variant, window, zipf=zipf) for zipf in (0.0, 1.0))
                if even is not None and skewed is not None:
                    name = f"{variant.name} at zipf 0, {travels}"
                    value = median(skewed["rounds"]) / median(even["rounds"])
                    best = skewed["gb_per_s"] / even["gb_per_s"]
                    bench.ratio("skew", name, value, target, best=best, window=window)
    for megabytes, (theirs, target) in targets.STUDY_HASH_SKEWED.items():
        row = _found(bench, "skew", Variant(travels="keys"), megabytes * MB, zipf=1.0)
        if row is not None:
            name = "the study's GPU hash at zipf 1"
            value, best = median(row["rounds"]) / theirs, row["gb_per_s"] / theirs
            bench.ratio("skew", name, value, target, best=best, window=megabytes * MB)


def breakdown(bench: Gpu) -> None:
    """Tables 6 and 7: milliseconds of the phases of one window, on the device."""
    if bench.gpu is None:
        return
    from watersmeet.bench.gpu.study.gpu import GPUJoiner
    from watersmeet.bench.gpu.study.lanes import Lane

    sizes, repeats = bench.sizes, 20
    window = sizes.windows[min(2, len(sizes.windows) - 1)]
    settings = [(keys, 0.0) for keys in sizes.distinct] + [(1000, zipf) for zipf in sizes.zipf if zipf]
    for keys, zipf in settings:
        work = bench.workload(window, keys, zipf, most=1)
        for algorithm in EQUI:
            joiner, lane = GPUJoiner(Variant(algorithm, parallel="intra"), work, [0]), Lane(bench.gpu)
            left, right = (
                joiner.sent(lane, name, words, 0, work.window)
                for name, words in (("left", joiner.left), ("right", joiner.right))
            )
            totals = lane.block("totals", 1, np.int64)
            lane.fill(totals, 1, 0)
            phases = joiner.phases(lane, left, right, 1, totals)
            took: dict[str, float] = {}
            for turn in (1, repeats):  # the first compiles
                for name, phase in phases.items():
                    lane.wait()
                    begin = perf_counter()
                    for _ in range(turn):
                        phase()
                    lane.wait()
                    took[name] = 1e3 * (perf_counter() - begin) / turn
            joiner.close()
            row = {"part": "breakdown", "setting": f"{keys} keys, zipf {zipf:g}", "window": window}
            row |= {"contender": f"GPU {algorithm.replace('_', ' ')}", "distinct": keys, "zipf": zipf, "ms": took}
            bench.record(row | {"value": ", ".join(f"{name} {ms:.3f} ms" for name, ms in took.items())})


def parallel(bench: Gpu) -> None:
    """Figures 9 and 10."""
    for window in bench.sizes.windows:
        variants = [one for how in ("intra", "inter", "hybrid") for one in bench.both(parallel=how)]
        bench.measure("parallel", "", bench.workload(window), variants)


def progress(bench: Gpu) -> None:
    """Figures 11 to 15: one window at a time, in all."""
    window = bench.sizes.windows[0]
    for batch in bench.sizes.batches:
        variants = [one for mode in ("lazy", "eager") for one in bench.both(progress=mode, parallel="intra")]
        work = bench.workload(window, batch=batch, most=32)
        rows = bench.measure("progress", f"batches of {batch // 1024} KB", work, variants, batch=batch)
        if batch == bench.sizes.batch:
            for device in ("cpu", "gpu"):
                lazy, eager = (
                    next((row for one, row in rows.items() if (one.device, one.progress) == (device, mode)), None)
                    for mode in ("lazy", "eager")
                )
                if lazy is not None and eager is not None:
                    value = median(eager["window_ms"]) / median(lazy["window_ms"])
                    best = min(eager["window_ms"]) / min(lazy["window_ms"])
                    target = targets.EAGER_TO_LAZY if device == "gpu" else None
                    name = f"{device.upper()} lazy's window time"
                    bench.ratio("progress", name, value, target, "<", best, window=window)


@contextmanager
def energy_used(used: list[float]):
    """Joules that the GPU takes in the meantime, by its own count, or by its power, looked at many times a second."""
    import pynvml

    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    try:
        begin = pynvml.nvmlDeviceGetTotalEnergyConsumption(card)
    except pynvml.NVMLError:
        begin = None
    if begin is not None:
        yield
        used.append((pynvml.nvmlDeviceGetTotalEnergyConsumption(card) - begin) / 1e3)
        return
    over, joules = threading.Event(), [0.0]

    def look() -> None:
        before = perf_counter()
        while not over.wait(0.01):
            now = perf_counter()
            joules[0] += pynvml.nvmlDeviceGetPowerUsage(card) / 1e3 * (now - before)
            before = now

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
    used.append(joules[0])


def energy(bench: Gpu) -> None:
    """Figure 16: the GPU's own energy; of the processor nothing is known here."""
    if bench.gpu is None:
        return
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:
        bench.skipped["energy"] = f"NVML cannot be used: {error}"
        return
    window = bench.sizes.windows[0]
    work = bench.workload(window)
    pairs = [one.pairs for one in bench.expected(work)]
    for variant in (Variant(), keys_only(Variant())):
        joiner = bench.joiner(variant, work, pairs)
        run_windows(variant, work, joiner, Sink(verifies=False))
        used: list[float] = []
        begin, done = perf_counter(), 0
        with energy_used(used):
            while perf_counter() - begin < 8 * bench.sizes.turn:
                run_windows(variant, work, joiner, Sink(verifies=False))
                done += work.nbytes
        seconds = perf_counter() - begin
        joiner.close()
        joules = used[0]
        row = {"part": "energy", "setting": "", "window": window, "contender": str(variant)}
        row |= {"joules_per_gb": joules / (done / 1e9), "gb_per_wh": done / 1e9 / max(joules / 3600, 1e-9)}
        value = f"{row['gb_per_wh']:.0f} GB/Wh, {joules / seconds:.0f} W, {done / seconds / 1e9:.3g} GB/s"
        bench.record(row | {"watts": joules / seconds, "value": value})


def results(bench: Gpu) -> None:
    """Figure 17."""
    kinds: tuple[Results, ...] = ("none", "count_kernel", "atomic", "estimated")
    for window in bench.sizes.small_windows:
        most = max(4 * MB // window, 1) * 2
        for algorithm in EQUI:
            variants = bench.on_gpu(*(Variant(algorithm, results=kind) for kind in kinds))
            variants.append(Variant(algorithm, results="count_kernel", device="cpu"))
            rows = bench.measure("results", "1000 keys", bench.workload(window, most=most), variants, distinct=1000)
            by_kind = {one.results: row for one, row in rows.items() if one.device == "gpu"}
            if by_kind:
                counted, atomic = by_kind["count_kernel"], by_kind["atomic"]
                value = median(counted["rounds"]) / median(atomic["rounds"])
                best = counted["gb_per_s"] / atomic["gb_per_s"]
                name = f"{algorithm}, atomic"
                bench.ratio("results", name, value, targets.COUNTED_TO_ATOMIC, best=best, window=window)
                if window == MB:
                    theirs = targets.STUDY_COUNT_KERNEL
                    value, best = median(counted["rounds"]) / theirs, counted["gb_per_s"] / theirs
                    name = f"{algorithm}, the study's count kernel"
                    bench.ratio("results", name, value, targets.COUNTED_TO_STUDY, best=best, window=window)
    for keys in bench.sizes.distinct:  # selectivity
        window = bench.sizes.small_windows[0]
        variants = bench.on_gpu(*(Variant(algorithm, results="count_kernel") for algorithm in EQUI))
        if variants and keys != 1000:
            bench.measure("results", f"{keys} keys", bench.workload(window, keys, most=4), variants, distinct=keys)


def systems(bench: Gpu) -> None:
    """Figure 18: without making pairs, and as they make them."""
    for window in bench.sizes.small_windows:
        work = bench.workload(window, most=4)
        for setting in ("counted", "as they are"):
            names: dict[Variant, str] = {}
            for name, system in SYSTEMS.items():
                variant = dataclasses.replace(system, results="none") if setting == "counted" else system
                names[variant] = f"{names[variant]}, {name}" if variant in names else name
            bench.measure("systems", setting, work, bench.on_gpu(*names), names)


def advice(bench: Gpu) -> None:
    """What the guideline says, to the best of what was measured in the same setting."""
    settings: dict[tuple, list[Row]] = {}
    for row in bench.results:
        if row["part"] in ("distinct", "skew", "parallel") and row["variant"]["travels"] == "tuples":
            where = (row["window"], row.get("distinct", 1000), row.get("zipf", 0.0))
            settings.setdefault(where, []).append(row)
    for (window, keys, zipf), rows in settings.items():
        said = advise(distinct_keys=keys, zipf=zipf, window_bytes=window, gpu=bench.gpu is not None)
        chosen = [row for row in rows if all(row["variant"][name] == value for name, value in said._asdict().items())]
        best = max(rows, key=lambda row: median(row["rounds"]))
        if chosen:
            share = max(median(row["rounds"]) for row in chosen) / median(best["rounds"])
            row = {"part": "advice", "setting": f"{keys} keys, zipf {zipf:g}", "window": window}
            bench.record(row | {"contender": str(said), "share": share, "value": f"{100 * share:.0f}% of the best"})
