"""`watersmeet demo` on Spark, whole and small; its check finds what is wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet.demo import ships
from watersmeet.demo import spark as demo
from watersmeet.demo.kernels import Beside
from watersmeet.spark.progress import Totals
from watersmeet.spark.runner import Ended

from .conftest import ROOT


@pytest.mark.long
def test_the_demo_joins_what_spark_refuses_and_checks_it(tmp_path):
    command = [sys.executable, "-m", "watersmeet", "demo", "--rows", "600000", "--folder", str(tmp_path / "ships")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())
    assert "Spark's own join says: Stream-stream join without equality predicate is not supported." in shown
    assert "correct: DuckDB finds the same" in shown
    assert (tmp_path / "ships" / "ships.toml").exists()
    assert "Traceback" not in done.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "folder must be empty or new" in again.stderr


def test_the_sample_of_results_has_rows_though_files_may_be_empty(tmp_path):
    """A task that finds nothing leaves an empty file, and it may be the first."""
    table = pa.table({name: [1, 2] for name in [*demo.SHOWN, "lat"]})
    pq.write_table(table.slice(0, 0), tmp_path / "part-00000.parquet")
    assert demo.sample(tmp_path).num_rows == 0
    pq.write_table(table, tmp_path / "part-00001.parquet")
    assert demo.sample(tmp_path).equals(table.select(demo.SHOWN))


COMPILE = """
from watersmeet.demo.kernels import Beside
from watersmeet.demo.spark import NEAR
beside = Beside(NEAR, ("5 seconds", "2 seconds"))
print(beside.wait())
beside.stop()
"""
JOIN = """
import gc, sys, tempfile
from pathlib import Path
import watersmeet as wm
from spark.standin import StandIn, specified
from watersmeet.demo import ships
from watersmeet.demo.spark import NEAR
from watersmeet.warm import kernels
reports, contacts = ships.generate(20_000, 1)
window = wm.within("5 seconds", lateness="2 seconds")
spark = StandIn(specified(NEAR, window, "inner", reports.schema, contacts.schema), Path(tempfile.mkdtemp()))
for start in range(0, 20_000, 5_000):
    spark.batch(reports.slice(start, 5_000), contacts.slice(start, 5_000))
gc.unfreeze()  # workers freeze what they have loaded, and kernels are counted among what the collector knows
print(kernels())
"""


def test_compiling_may_be_stopped_at_any_time():
    beside = Beside(demo.NEAR, ("5 seconds", "2 seconds"))
    beside.stop()
    beside.stop()


@pytest.mark.long
def test_all_that_the_join_needs_is_compiled_while_spark_starts(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    found = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        for program in (COMPILE, JOIN, COMPILE)
    ]
    assert [one.returncode for one in found] == [0, 0, 0], found
    assert re.fullmatch(r"\d+ kernels compiled meanwhile, in \d+ s; once on this machine.\n", found[0].stdout), found
    assert re.fullmatch(r"Kernels\(compiled=0, loaded=\d\d\)\n", found[1].stdout), found
    assert re.fullmatch(r"\d+ kernels are compiled already.\n", found[2].stdout), found


@pytest.fixture
def outcome(tmp_path):
    """What a right run of the demo leaves behind, as DuckDB makes it."""
    tables = ships.generate(20_000, seed=3)
    arrived = [ships.write(table, tmp_path / name, 2) for table, name in zip(tables, ("reports", "contacts"))]
    late = demo.late_rows(arrived)
    with duckdb.connect() as db:
        for name, table, mask in zip(("reports", "contacts"), tables, late):
            db.register(name, table.append_column("late", pa.array(mask)))
        right = db.sql(demo.expected_sql()).to_arrow_table()
    (tmp_path / "sightings").mkdir()

    def verify(results=right, counted=None):
        counted = counted or tuple(int(mask.sum()) for mask in late)
        pq.write_table(results, tmp_path / "sightings" / "all.parquet")
        return demo.verify(arrived, tmp_path, Ended(Totals(late=counted), 1.0, False))[0]

    return right, verify


def test_the_check_takes_the_right_answer_only(outcome):
    right, verify = outcome
    assert right.num_rows > 500
    assert verify() == []
    assert "of DuckDB's are not there" in verify(right.slice(1))[0]
    assert verify(pa.concat_tables([right, right.slice(0, 1)])) != []
    station = pa.array(["radar-99"] * right.num_rows)
    assert verify(right.set_column(right.column_names.index("station"), "station", station)) != []
    assert "counted as late" in verify(counted=(1, 10**6))[0]


def test_a_row_is_late_below_the_watermark_of_the_micro_batches_before():
    def part(*millis):
        return pa.table({"ts": pa.array([1000 * (10_000 + m) for m in millis], pa.timestamp("us", "UTC"))})

    left, right = [part(0, 9000), part(3000, 2999), part(7000)], [part(5000), part(20000), part(7001)]
    # after the first: min(9000, 5000) - 2000 = 3000; after the second: min(9000, 20000) - 2000 = 7000
    late = demo.late_rows([left, right])
    assert late[0].tolist() == [False, False, False, True, False]
    assert late[1].tolist() == [False, False, False]


def test_streams_are_repeatable_out_of_order_and_near_each_other():
    reports, contacts = ships.generate(50_000, seed=1)
    assert reports.equals(ships.generate(50_000, seed=1)[0])
    times = reports["ts"].cast(pa.int64()).to_numpy()
    assert np.any(np.diff(times) < 0)
    assert contacts["lat"].to_numpy().min() > 29 and contacts["lat"].to_numpy().max() < 61


def test_files_are_in_order_of_modification(tmp_path: Path):
    parts = ships.write(ships.generate(1000, 1)[0], tmp_path / "reports", 4)
    files = sorted((tmp_path / "reports").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == ["0000.parquet", "0001.parquet", "0002.parquet", "0003.parquet"]
    assert [pq.read_table(path).num_rows for path in files] == [part.num_rows for part in parts] == [250] * 4
