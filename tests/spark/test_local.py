"""What sessions of our own on one machine have: workers that are ready, checkpoints without forks."""

from __future__ import annotations

import subprocess
import sys

import watersmeet as wm
from watersmeet.bench.spark.processes import below
from watersmeet.spark import stream_join
from watersmeet.spark.local import local_settings


def test_workers_have_their_kernels_when_they_start(spark):
    def loaded(batches):
        """What a worker has before anything of ours is called in it."""
        import gc
        import sys

        import pyarrow as pa

        modules = set(sys.modules)
        from watersmeet.warm import kernels

        for _ in batches:
            pass
        frozen = gc.get_freeze_count()
        gc.unfreeze()  # kernels are looked for among all objects
        found = kernels()
        gc.freeze()
        yield pa.record_batch(
            {"joiner": ["watersmeet.spark.joiner" in modules], "n": [found.loaded + found.compiled], "frozen": [frozen]}
        )

    rows = spark.range(8, numPartitions=8).mapInArrow(loaded, "joiner boolean, n long, frozen long").collect()
    assert all(row.joiner and row.n > 20 and row.frozen > 100_000 for row in rows), rows


def test_one_daemon_serves_all_stages(spark, tmp_path):
    for side in ("left", "right"):
        spark.sql("select timestamp '2026-01-01 00:00:00' as ts, 1 as x").write.parquet(str(tmp_path / side))
    left, right = (spark.readStream.schema("ts timestamp, x int").parquet(str(tmp_path / s)) for s in ("left", "right"))
    joined = stream_join(left, right, "l.x = r.x", wm.within("1 second"))
    writer = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    daemons = [one for one in below(jvm) if any("spark.daemon pyspark.worker" in line for line in below(one).values())]
    assert query.lastProgress and len(daemons) == 1, below(jvm)


def test_the_daemon_has_no_threads_of_its_own_and_prints_nothing():
    code = "import threading, watersmeet.spark.daemon as d; d._import(); d.ready(); import sys; "
    code += "print(threading.active_count(), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr.split()[-1]) == ("", "1")


def test_checkpoints_are_written_without_a_process_for_every_file(spark):
    (manager,) = (value for name, value in local_settings().items() if name.endswith("checkpointFileManagerClass"))
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass") == manager
    assert spark.sparkContext._jvm.java.lang.Class.forName(manager).getSimpleName() == manager.split(".")[-1]


def test_what_a_micro_batch_writes_again_replaces_what_was_there(spark, tmp_path):
    jvm, conf = spark.sparkContext._jvm, spark._jsc.hadoopConfiguration()
    manager = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
    files = getattr(jvm, manager)(jvm.org.apache.hadoop.fs.Path(tmp_path.as_uri()), conf)
    for attempt in (b"first", b"second"):
        out = files.createAtomic(jvm.org.apache.hadoop.fs.Path((tmp_path / "4.changelog").as_uri()), True)
        out.write(bytearray(attempt))
        out.close()
    assert (tmp_path / "4.changelog").read_bytes() == b"second"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".4.changelog.crc", "4.changelog"]


def test_a_daemon_that_cannot_load_kernels_still_starts(monkeypatch, capsys):
    import watersmeet.warm
    from watersmeet.spark.daemon import ready

    def broken():
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(watersmeet.warm, "as_on_spark", broken)
    ready()
    assert "no such kernel" in capsys.readouterr().err
