"""An archive for workers that have nothing: what is in it, and a cluster that joins with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from watersmeet.cli import app
from watersmeet.spark import workers

from .processes import kill_group
from .standalone import standalone
from .test_crash import PATIENCE, Stream, environment


def bare() -> Path:
    """Where a Python of this version is that has none of it."""
    found = Path(sys.base_prefix, "bin")
    if subprocess.run([found / "python3", "-c", "import numba"], capture_output=True).returncode == 0:
        pytest.skip("the Python that ours is made from has Numba itself")
    return found


@pytest.mark.long
def test_workers_without_any_of_it_join_from_the_archive(tmp_path):
    packed = tmp_path / "workers.tar.gz"
    done = CliRunner().invoke(app, ["pack", str(packed)])
    assert done.exit_code == 0 and f"spark.archives = {packed}#{workers.NAME}" in done.output.replace("\n", "")
    stream = Stream(tmp_path, 8)
    stream.hows = ("left",)
    own = environment(tmp_path) | {"PYSPARK_PYTHON": "python3"}
    poor = {name: value for name, value in own.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    paths = {name: {"PATH": f"{folder}:{os.environ['PATH']}"} for name, folder in
             (("workers", bare()), ("driver", Path(sys.executable).parent))}  # fmt: skip
    with standalone(tmp_path, poor | paths["workers"], PATIENCE) as (address, _):
        with open(tmp_path / "driver.log", "ab") as log:
            command = [sys.executable, "-m", "spark.crash_driver", str(tmp_path), address, "left"]
            driver = subprocess.Popen(
                [*command, json.dumps(workers.settings(packed))], env=own | paths["driver"], stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            assert driver.wait(PATIENCE) == 0, stream.log[-5000:]
        finally:
            kill_group(driver.pid)
        kernels = sorted(path.name for path in tmp_path.glob("work*/*/*/watersmeet_workers/watersmeet/**/*.nbc"))
    stream.check()
    with tarfile.open(packed) as tar:
        sent = sorted(Path(name).name for name in tar.getnames() if name.endswith(".nbc"))
    assert sent and set(kernels) == set(sent), "all that were needed had been compiled"


def test_what_workers_need_is_in_it_and_nothing_of_spark():
    needed = workers._needed()
    assert {"numpy", "numba", "llvmlite", "pyarrow", "pandas", "sqlglot", "protobuf"} <= set(needed)
    assert not {"pyspark", "py4j", "pytest", "duckdb", "watersmeet"} & set(needed)
    inside = [name for _, name in workers._files(needed["numpy"])]
    assert "numpy/__init__.py" in inside and not any("__pycache__" in name or ".." in name for name in inside)


def test_an_archive_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    done = CliRunner().invoke(app, ["pack", str(tmp_path / "no" / "such.tar.gz")])
    assert done.exit_code == 2 and "no/such.tar.gz" in done.output.replace("\n", "")

    def broken():
        yield "numpy 2", iter([(tmp_path / "gone", "numpy/gone")])

    monkeypatch.setattr(workers, "_installed", broken)
    done = CliRunner().invoke(app, ["pack", str(tmp_path / "workers.tar.gz"), "--no-kernels"])
    assert done.exit_code == 2 and not list(tmp_path.iterdir())
