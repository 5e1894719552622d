"""The notebook examples/tour.ipynb runs, shows joins, windows, metrics and plans, and Spark agrees with it."""

import tempfile
from pathlib import Path

import pytest

import watersmeet as wm

TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"


def test_plans_have_their_lines_in_a_notebook():
    plan = wm.StreamJoin("l.x < r.x", wm.last(3)).explain()
    assert isinstance(plan, str) and plan.startswith("predicate: l.x < r.x\n")
    assert plan._repr_html_().startswith("<pre") and "l.x &lt; r.x\n" in plan._repr_html_()


def shown(notebook, source, kind):
    """What the cell with this source shows."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and source in cell.source]
    found = [one["data"][kind] for one in cell.outputs if kind in one.get("data", {})]
    return "".join(found) or "".join(one.get("text", "") for one in cell.outputs if one.get("name") == "stdout")


@pytest.mark.long
def test_the_tour_runs_and_shows_what_it_tells_of():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    manager = pytest.importorskip("jupyter_client.manager")
    notebook = nbformat.read(TOUR, 4)
    stored = shown(notebook, "query.awaitTermination", "text/plain")
    # By sockets in a folder: of ports one may be taken by another test before the kernel is there.
    with tempfile.TemporaryDirectory() as place:
        kernel = manager.AsyncKernelManager(transport="ipc", connection_file=f"{place}/kernel.json")
        resources = {"metadata": {"path": str(TOUR.parent)}}
        nbclient.NotebookClient(notebook, km=kernel, timeout=900, resources=resources).execute(cleanup_kc=True)
    assert "within" in shown(notebook, 'window = wm.within(200, time="ts")\nwindow', "text/html")
    assert "StreamJoin" in shown(notebook, "join = wm.StreamJoin", "text/html")
    assert "index: bisort (composite)" in shown(notebook, "join.explain()", "text/html")
    assert "rows out" in shown(notebook, "join.metrics", "text/html")
    assert "route: hash over 2 cores" in shown(notebook, "explain_join(left", "text/html")
    plot = shown(notebook, "alt.Chart", "image/svg+xml")
    assert plot.startswith("<svg") and plot.count("<path") > 3
    told = shown(notebook, "query.awaitTermination", "text/plain")
    count = told.split()[0]
    assert told == stored == f"{count} matches on Spark, {count} embedded\n" and count != "0"
