"""Plots of what benchmarks stored: on one page (`watersmeet report`), and as SVG for README and docs.

runs.py                 files of results, checked
plot.py                 a plot: axes, points with spread, words; no library
embedded.py, spark.py, index.py, cores.py, gpu.py, skew.py
                        which plots the runs of a benchmark have
verdicts.py             claims and targets of all runs, met and missed
vega.py                 draws: Vega-Lite, rendered by vl-convert (the extra `report`)
page.py                 the page
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from watersmeet.bench.plots import cores, embedded, gpu, index, runs, skew, spark
from watersmeet.bench.plots.plot import Plot
from watersmeet.bench.plots.runs import Run

#: benchmark -> its plots
OF: dict[str, Callable[[Run], Iterator[Plot]]] = {
    "embedded": embedded.plots, "cores": cores.plots, "index": index.plots, "spark": spark.plots, "gpu": gpu.plots,
    "skew": skew.plots,
}  # fmt: skip
__all__ = ["OF", "SECTIONS", "Plot", "Run", "plots", "runs", "write"]
SECTIONS = ("Throughput", "Cost growth", "Latency", "Cores", "Skew", "Spark", "GPU", "Indexes")


def plots(run: Run) -> list[Plot]:
    """All plots of a run that have something to show; of other benchmarks, those of skewed keys if it has any."""
    try:
        return [plot for plot in OF.get(run.benchmark, skew.plots)(run) if plot.points]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{run.path} cannot be plotted, its rows are not those of a whole run ({reason})") from error


def write(some: Iterable[Run], folder: Path) -> list[Path]:
    """All plots as SVG; gives their files."""
    from watersmeet.bench.plots.vega import svg

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for run in some:
        for plot in plots(run):
            written.append(folder / f"{plot.name}.svg")
            written[-1].write_text(svg(plot))
    return written
