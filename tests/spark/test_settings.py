"""Settings that a checkpoint keeps, and a session may have changed since: a restart is exact, or is refused."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException

import watersmeet as wm
from watersmeet.spark import stream_join

from .cases import BEGIN, SCHEMA, SECOND, read, run, write
from .test_on_spark import ids

PARTITIONS = "spark.sql.shuffle.partitions"
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
KEYS = range(8)


@contextmanager
def setting(spark, name, value):
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def rows(second, first, keys=KEYS):
    nothing = dict.fromkeys(SCHEMA.names)
    return [nothing | {"id": first + k, "ts": BEGIN + second * SECOND, "k": k} for k in keys]


def joined(spark, folder, cores=None):
    left, right = read(spark, folder / "left"), read(spark, folder / "right")
    return stream_join(left, right, "l.k = r.k", wm.within("20 seconds"), "left", cores=cores)


@pytest.mark.parametrize("cores, others", [(2, 8), pytest.param(None, 3, marks=pytest.mark.long)])
def test_a_restart_with_other_partitions_is_refused_and_with_the_old_ones_exact(spark, tmp_path, cores, others):
    write(tmp_path / "left", [rows(0, 0)])
    write(tmp_path / "right", [rows(0, 100, [0])])
    run(joined(spark, tmp_path, cores), tmp_path)
    write(tmp_path / "left", [rows(100, 50, [0])])
    write(tmp_path / "right", [rows(5, 200), rows(100, 300, [0])])
    refused = pytest.raises(StreamingQueryException, match=f"set {PARTITIONS} to 2 before stream_join")
    with setting(spark, PARTITIONS, others), refused:
        run(joined(spark, tmp_path, cores), tmp_path)
    run(joined(spark, tmp_path, cores), tmp_path)
    pairs = [(0, 100), *((k, 200 + k) for k in KEYS), (50, 300)]
    assert ids(tmp_path) == sorted(pairs, key=str)


def test_the_policy_that_loses_rows_is_refused(spark, tmp_path):
    write(tmp_path / "left", [rows(0, 0), rows(100, 50, [0])])
    write(tmp_path / "right", [rows(0, 100, [0])])
    remedy = f"{POLICY} is max: .*; set it to min"
    with setting(spark, POLICY, "max"), pytest.raises(ValueError, match=remedy):
        joined(spark, tmp_path)
    frame = joined(spark, tmp_path)
    # Changed behind our back; so it looks when a checkpoint brings its own value, too.
    with setting(spark, POLICY, "max"), pytest.raises(StreamingQueryException, match=remedy):
        run(frame, tmp_path)
    assert not (tmp_path / "out" / "_spark_metadata" / "0").exists(), "nothing has come out"


@pytest.mark.long
def test_a_checkpoint_brings_its_own_policy(spark, tmp_path):
    """As one written by hand: the session says min, the checkpoint max."""
    write(tmp_path / "left", [rows(0, 0)])
    write(tmp_path / "right", [rows(0, 100, [0])])
    run(joined(spark, tmp_path), tmp_path)
    for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"):
        path.write_text(path.read_text().replace(f'"{POLICY}":"min"', f'"{POLICY}":"max"'))
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    write(tmp_path / "left", [rows(1, 50)])
    with pytest.raises(StreamingQueryException, match=f"{POLICY} is max"):
        run(joined(spark, tmp_path), tmp_path)
