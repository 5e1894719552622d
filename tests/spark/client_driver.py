"""A client of Spark Connect as `pip install pyspark-client` gives it: without py4j, without Spark's JVM side.

    python -m spark.client_driver sc://127.0.0.1:15002 FOLDER
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

JOB = """
[left]
format = "parquet"
path = "{left}"
[right]
format = "parquet"
path = "{right}"
[join]
on = "l.k = r.k"
window = "within 2 seconds, 1 second"
lateness = ["3 seconds", "2 seconds"]
[sink]
format = "parquet"
path = "{out}/out"
[run]
checkpoint = "{out}/checkpoint"
trigger = "available now"
[spark]
remote = "{remote}"
"""


class Missing(MetaPathFinder):
    """What `pyspark-client` does not have."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "py4j" or name.startswith("pyspark.core"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def main(remote: str, folder: Path) -> None:
    sys.meta_path.insert(0, Missing())
    import pyarrow.parquet as pq
    from pyspark.sql import functions as F
    from pyspark.util import is_remote_only
    from typer.testing import CliRunner

    import watersmeet as wm
    from spark import cases
    from spark.test_event_time import by_second, counted, dropped, in_two_runs, jumping, outer, seconds
    from watersmeet.cli import app
    from watersmeet.spark import stream_join
    from watersmeet.spark.session import session
    from watersmeet.spark.watermark import declared

    assert is_remote_only()
    spark = session(remote=remote, conf={"spark.sql.shuffle.partitions": "2"})
    cases.check(spark, folder / "cases", cases.CASES[3:5])

    data = {name: jumping(seed) for seed, name in enumerate(("left", "right"))}

    def query():
        left, right = (cases.read(spark, folder / name) for name in data)
        marked = left.withWatermark("ts", "3 seconds")
        assert declared(left, "left") is None
        assert str(declared(marked, "left")) == "a watermark on 'ts' with a delay of 3 seconds"
        assert not declared(marked, "left").let_out
        assert declared(marked.dropDuplicatesWithinWatermark(["id"]), "left").let_out
        try:
            declared(marked.drop("ts"), "left")
        except ValueError as error:
            assert "none of its columns is marked" in str(error)
        else:
            raise AssertionError("a watermark without its column went unseen")
        try:
            stream_join(left, right, F.col("l.k") == F.col("r.k"), wm.within("1 second"))
        except TypeError as error:
            assert "on=lambda l, r" in str(error)
        window = wm.within("2 seconds", "1 second", lateness=(None, "2 seconds"))
        return by_second(stream_join(marked, right, lambda l, r: l.k == r.k, window, "left"), "ts")  # noqa: E741

    done = in_two_runs(folder, data, query)
    assert counted(folder) == seconds(a["ts"] for a, _ in outer(data["left"], data["right"]))
    assert dropped(done) == 0
    job = folder / "job.toml"
    job.write_text(JOB.format(left=folder / "left", right=folder / "right", out=folder / "job", remote=remote))
    ran = CliRunner().invoke(app, ["run", str(job)])
    assert ran.exit_code == 0, ran.output
    found = sorted(pq.read_table(folder / "job" / "out").select(["id", "id_right"]).to_pylist(), key=str)
    wanted = [{"id": a["id"], "id_right": b["id"]} for a, b in outer(data["left"], data["right"], how="inner")]
    assert found == sorted(wanted, key=str)
    assert not any(name.split(".")[0] == "py4j" for name in sys.modules)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
