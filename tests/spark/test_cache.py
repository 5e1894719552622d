"""Files: shared by all who work for a query, gone when nobody needs them, and never missed."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.spark import cache, unpacker

from .standin import StandIn, specified
from .test_runs import SCHEMA, pairs, stream

CHUNK = pa.record_batch({"x": [1, 2, 3]})


@pytest.fixture(autouse=True)
def batch(monkeypatch):
    """The number of the micro-batch; a test may change it."""
    number = [0]
    monkeypatch.setattr(cache, "batch_id", lambda: number[0])
    return number


def silent_at_once(monkeypatch):
    monkeypatch.setattr(cache, "SILENT_SECONDS", -10.0)
    cache._swept.clear()


def test_folders_of_silent_queries_are_cleared_away(tmp_path, monkeypatch):
    old, new = tmp_path / "old", tmp_path / "new"
    cache.CoreFiles(old, "0").put_chunk("a", CHUNK)
    cache.CoreFiles(new, "0").put_chunk("a", CHUNK)
    cache.sweep(new)
    assert old.exists()
    silent_at_once(monkeypatch)
    cache.sweep(new)
    assert not old.exists()
    assert cache.CoreFiles(new, "0").chunk("a", CHUNK.schema) == CHUNK


def test_a_folder_in_use_is_not_cleared_away(tmp_path, monkeypatch):
    silent_at_once(monkeypatch)
    old, new = tmp_path / "old", tmp_path / "new"
    cache.CoreFiles(old, "0").put_chunk("a", CHUNK)
    new.mkdir()
    with cache.in_use(old), cache.in_use(old):  # by two tasks
        cache.sweep(new)
        assert cache.CoreFiles(old, "0").chunk("a", CHUNK.schema) == CHUNK
    cache._swept.clear()
    cache.sweep(new)
    assert not old.exists()


def test_results_are_there_for_whoever_waits_for_them(tmp_path, monkeypatch):
    """However long it takes: the sweep of another query leaves them alone."""
    silent_at_once(monkeypatch)
    query, other = tmp_path / "query", tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(unpacker, "query_folder", lambda: query)

    def packs():
        for n in range(2):
            results = cache.FiledResults(query, CHUNK.schema, True)
            results.add(3, [CHUNK])
            path = results.close()
            cache._swept.clear()
            cache.sweep(other)
            yield pa.record_batch({"path": [path if n else None, path]}).slice(1)

    assert [each.num_rows for each in unpacker.unpacked(packs())] == [3, 3]


def test_a_step_holds_its_folder(tmp_path, monkeypatch):
    """The step of a query begins when its folder is silent, and others sweep while it works."""
    spark = StandIn(specified("l.x = r.x", wm.within(5), "inner", SCHEMA, SCHEMA), tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    silent_at_once(monkeypatch)
    keep = cache.CoreFiles.keep

    def sweep_and_keep(files, ids):
        before = sorted(tmp_path.rglob("query/*"))
        cache._swept.clear()
        cache.sweep(other)
        assert sorted(tmp_path.rglob("query/*")) == before
        keep(files, ids)

    monkeypatch.setattr(cache.CoreFiles, "keep", sweep_and_keep)
    for one in stream(1, 3, 20):
        assert spark.batch(one, one).num_rows
    assert spark.counts["rebuilt_runs"] == 0


@pytest.mark.parametrize("when", ["_write", "_mapped", "_in_folder", "_touch", "_made", "rename"])
def test_folders_of_cores_may_vanish_at_any_time(tmp_path, monkeypatch, when):
    spec = specified("abs(l.x - r.x) <= 2", wm.within(60), "inner", SCHEMA, SCHEMA)
    spark = StandIn(spec, tmp_path)
    place = cache.os if when == "rename" else cache
    real = getattr(place, when)

    def vanish_first(*given):
        for folder in (tmp_path / "query").glob("[0-9]*"):
            shutil.rmtree(folder)
        return real(*given)

    monkeypatch.setattr(place, when, vanish_first)
    left, right, results = [], [], []
    for a, b in zip(stream(1, 12, 20), stream(2, 12, 20), strict=True):
        left.append(a)
        right.append(b)
        results.append(spark.batch(a, b))
    table = pa.concat_tables(results)
    columns = [table.column(name).to_pylist() for name in ("ts", "x", "ts_right", "x_right")]
    assert sorted(zip(*columns, strict=True)) == pairs(pa.concat_tables(left), pa.concat_tables(right), 60, 2)
    assert spark.counts["rebuilt_runs"] > 0


def test_files_of_other_attempts_go_with_a_later_batch(tmp_path, batch):
    files = cache.CoreFiles(tmp_path, "0")
    mine, other = cache.new_id(), cache.new_id()
    files.put_chunk(mine, CHUNK)
    files.put_chunk(other, CHUNK)
    unfinished = tmp_path / "0" / f"{other}.index.1234"
    unfinished.write_bytes(b"x")
    lost = cache.FiledResults(tmp_path, CHUNK.schema, True)
    lost.add(3, [CHUNK])
    path = lost.close()
    files.keep({mine})
    assert unfinished.exists()
    assert files.chunk(other, CHUNK.schema) == CHUNK, "it may be the attempt that counts"
    batch[0] = 1
    files.keep({mine})
    assert files.chunk(mine, CHUNK.schema) == CHUNK
    assert files.chunk(other, CHUNK.schema) is None and not unfinished.exists()
    with pytest.raises(FileNotFoundError):
        cache.take_results(path)


def test_without_a_batch_files_go_by_their_age(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "batch_id", lambda: None)
    files = cache.CoreFiles(tmp_path, "0")
    id = cache.new_id()
    files.put_chunk(id, CHUNK)
    files.keep(set())
    assert files.chunk(id, CHUNK.schema) == CHUNK
    silent_at_once(monkeypatch)
    files.keep(set())
    assert files.chunk(id, CHUNK.schema) is None


def test_the_same_join_twice_in_a_query_has_files_for_each(tmp_path):
    spec = specified("l.x = r.x", wm.within(60), "inner", SCHEMA, SCHEMA)
    both = [StandIn(spec, tmp_path) for _ in range(2)]  # one folder
    for one in stream(1, 12, 20):
        assert len({spark.batch(one, one).num_rows for spark in both}) == 1
    assert [spark.counts["rebuilt_runs"] for spark in both] == [0, 0]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_results_that_are_too_large_for_a_batch_come_in_several(tmp_path, monkeypatch, how):
    """As with more than 2 GiB of text: here, with more than five rows."""
    from watersmeet.window.capacity import TooMuch
    from watersmeet.window.payload import Payload

    (one,) = stream(1, 1, 60)
    end = pa.table({"ts": [9_999], "x": [-1], "text": [""]}, schema=SCHEMA)
    found = []
    for number, most in enumerate((1 << 40, 5)):
        take = Payload.take

        def small(self, positions, *rest, take=take, most=most, **more):
            if positions.size > most:
                raise TooMuch
            return take(self, positions, *rest, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Payload, "take", small)
            spark = StandIn(specified("l.x + 1 = r.x", wm.within(99), how, SCHEMA, SCHEMA), tmp_path / f"{number}")
            table = pa.concat_tables([spark.batch(one, one), spark.batch(end, end)])
        assert table.num_rows == spark.counts["rows_out"] > 10
        found.append(sorted(map(str, table.to_pylist())))
    assert found[0] == found[1]
