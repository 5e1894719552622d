"""The seven queries: what they ask, that their streams are as published, and readers of the real files' layout."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.queries import QUERIES, files, query
from watersmeet.queries.zipf import shares
from watersmeet.query.parse import parse
from watersmeet.query.window_text import window_of

EVERY = pytest.mark.parametrize("one", QUERIES.values(), ids=list(QUERIES))


@EVERY
def test_text_and_object_are_the_same_join(one):
    sides = [one.rows(0, 3000, stream, 1000) for stream in range(len(one.streams))]
    found = []
    for on in (one.sql, one.on):
        with wm.StreamJoin(on, one.window("2 seconds", "1 second"), output="count", self_join=one.is_self) as join:
            found.append(join.push(*sides) + join.close())
    keys = [np.asarray(side[one.data.key]) for side in sides]
    left, right = keys[0][:, None], keys[-1][None, :]
    said = left > right if one.threshold is None else abs(left - right) < one.threshold
    ticks = np.arange(3000)  # milliseconds
    second = ticks // 1000
    near = abs(second[:, None] - second[None, :]) <= 1 if one.slide else abs(ticks[:, None] - ticks[None, :]) <= 2000
    assert found == [(said & near).sum()] * 2 and found[0] > 1000


@EVERY
def test_windows_are_the_same_in_text(one):
    assert window_of(one.window_text, "ts", "0", "window") == one.window()
    assert one.window().size if one.slide else one.window().before
    assert one.seconds == {"q1": 3600}.get(one.name, 60)


def test_lengths_slides_and_bands_are_the_papers():
    assert str(QUERIES["q1"].window()) == str(wm.hopping("60 minutes", "10 minutes", time="ts"))
    assert QUERIES["q5"].sql == "abs(l.data_len - r.data_len) < 1000"
    assert {one.name for one in QUERIES.values() if one.is_self} == {"q3", "q6", "q7"}
    assert {one.name: one.data.zipf for one in QUERIES.values() if one.name in ("q3", "q4", "q5", "q6")} == {
        "q3": 2.24, "q4": 1.8, "q5": 1.4, "q6": 1.22,
    }  # fmt: skip
    assert parse(QUERIES["q3"].sql) == QUERIES["q3"].on


@EVERY
def test_streams_are_seeded_whatever_the_batches_and_their_sides_differ(one):
    whole = one.rows(0, 500)
    assert pa.Table.from_batches([one.rows(0, 123), one.rows(123, 377)]).combine_chunks().to_batches()[0] == whole
    assert whole.schema == one.schema and whole.to_pylist()[-1]["ts"].microsecond == 49_900
    assert one.rows(0, 500, 1)[one.data.key] != whole[one.data.key]
    assert one.rows(0, 500, seed=2)[one.data.key] != whole[one.data.key]


@pytest.mark.parametrize("one", [QUERIES[name] for name in ("q3", "q4", "q5", "q6", "q7")], ids=lambda one: one.name)
def test_keys_come_as_often_as_the_paper_says(one):
    """The most frequent keys, of 200,000 rows, against the exponent of table 3."""
    keys, counts = np.unique(np.asarray(one.rows(0, 200_000)[one.data.key]), return_counts=True)
    most = np.sort(counts)[::-1][:5] / 200_000
    number = {"q3": 1001, "q4": 4096, "q7": 100_000}.get(one.name, 65_536)
    assert most == pytest.approx(shares(one.data.zipf, number)[:5], rel=0.1)
    assert keys.size <= number
    first = keys[counts.argmax()]
    assert first == {"q3": 6.5, "q4": 0, "q5": 1460, "q6": 25.01, "q7": 0}[one.name]
    if one.name == "q3":
        assert keys.min() == 2.5 and np.all(keys * 2 == np.round(keys * 2))
    flat = np.unique(np.asarray(QUERIES["q7"].rows(0, 50_000, zipf=0.0)["t"]), return_counts=True)[1]
    assert flat.max() <= 8


def test_a_query_that_is_not_there_is_named():
    assert query("Q3") is QUERIES["q3"]
    with pytest.raises(ValueError, match="query must be one of q1, q2, q3, q4, q5, q6, q7, got 'q8'"):
        query("q8")


# --- files ---------------------------------------------------------------------------------------------------


def taxi(folder: Path, fares=("6.5", "", "12.0")) -> Path:
    file = folder / "sorted_data.csv"
    rest = "01/01/13 00:00,01/01/13 00:02,120,0.44,-73.956,40.716,-73.963,40.715,CSH"
    file.write_text("".join(f"07290D3599E7A0D6,E7750A37CAB07D0D,{rest},{fare},0.5,0.5,0,0,4.5\n" for fare in fares))
    return file


def values(one, path, stream=0, **options):
    return [row for batch in one.read(path, stream, **options) for row in batch.to_pylist()]


def test_taxi_files_have_17_columns_and_no_header(tmp_path):
    rows = values(QUERIES["q3"], taxi(tmp_path), rate=2)
    assert [(row["id"], row["fare"], row["medallion"]) for row in rows] == [
        (0, 6.5, "07290D3599E7A0D6"), (1, 12.0, "07290D3599E7A0D6"),
    ]  # fmt: skip
    assert (rows[1]["ts"] - rows[0]["ts"]).total_seconds() == 0.5
    (tmp_path / "short.csv").write_text("a,b,c\n")
    with pytest.raises(ValueError, match="short.csv has 3 columns, and must have 17: medallion, hack_license"):
        values(QUERIES["q3"], tmp_path / "short.csv")
    with pytest.raises(ValueError, match="sorted_data.csv cannot be read: .*dear"):
        values(QUERIES["q3"], taxi(tmp_path, ["dear"]))


def test_stock_files_are_one_a_ticker(tmp_path):
    header = "Date,Open,High,Low,Close,Adj Close,Volume\n"
    for folder, name, high in (("stocks", "AAPL", "0.51"), ("etfs", "SPY", "43.9")):
        (tmp_path / folder).mkdir()
        days = f"1993-01-29,1,{high},1,1,1,100\n1993-02-01,1,,1,1,1,1\n"
        (tmp_path / folder / f"{name}.csv").write_text(header + days)
    (tmp_path / "symbols_valid_meta.csv").write_text("Nasdaq Traded,Symbol\nY,AAPL\n")
    rows = values(QUERIES["q6"], tmp_path)
    assert [(row["symbol"], row["high"]) for row in rows] == [("SPY", 43.9), ("AAPL", 0.51)]
    assert len(values(QUERIES["q6"], tmp_path, rows=1)) == 1
    (tmp_path / "stocks" / "AAPL.csv").write_text("Date,Open,Low\n1993-01-29,1,1\n")
    with pytest.raises(ValueError, match="AAPL.csv has no High; it has Date, Open, Low"):
        values(QUERIES["q6"], tmp_path / "stocks")


def test_traces_are_dealt_to_two_streams(tmp_path):
    (tmp_path / "a_bulk.csv").write_text("time,data_len,ip\n0.1,1460,x\n0.2,0,y\n0.3,1460,z\n")
    (tmp_path / "b.csv").write_text('"kind","data_len"\n"web",77\n')
    rows = [[(row["kind"], row["data_len"]) for row in values(QUERIES["q5"], tmp_path, side)] for side in (0, 1)]
    assert rows == [[("bulk", 1460), ("bulk", 1460)], [("bulk", 0), ("web", 77)]]
    (tmp_path / "c.csv").write_text("time,length\n0.1,1460\n")
    with pytest.raises(ValueError, match="c.csv has no data_len; it has time, length"):
        values(QUERIES["q5"], tmp_path / "c.csv")


def test_blond_files_have_calibrated_circuits(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "clear-2016.hdf5", "w") as file:
        for circuit in (1, 2, 3):
            for what, factor in (("voltage", 0.5), ("current", 0.25)):
                made = file.create_dataset(f"{what}{circuit}", data=np.array([circuit, -2, 4], np.int16))
                made.attrs["calibration_factor"] = factor
    assert [row["power"] for row in values(QUERIES["q4"], tmp_path)] == [0.125, 0.5, 2.0]
    assert [row["power"] for row in values(QUERIES["q4"], tmp_path, 1)] == [0.5, 0.5, 2.0]
    with h5py.File(tmp_path / "medal.h5", "w") as file:
        file["current1"] = [1]
    with pytest.raises(ValueError, match="medal.h5 has no voltage1; it has current1"):
        values(QUERIES["q4"], tmp_path / "medal.h5")
    (tmp_path / "no.h5").write_text("text")
    with pytest.raises(ValueError, match="no.h5 is not a file of HDF5"):
        values(QUERIES["q4"], tmp_path / "no.h5")


def test_missing_files_and_packages_are_named(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no file or folder nowhere"):
        values(QUERIES["q3"], "nowhere")
    with pytest.raises(ValueError, match=r"there is no file \*.hdf5 or \*.h5 in "):
        values(QUERIES["q4"], tmp_path)
    with pytest.raises(ValueError, match="q7 has generated data only"):
        values(QUERIES["q7"], tmp_path)
    empty = tmp_path / "empty.csv"
    empty.write_text("data_len\n")
    with pytest.raises(ValueError, match="empty.csv has no rows with data_len"):
        values(QUERIES["q5"], empty)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(ValueError, match="need h5py: pip install h5py"):
        list(files.blond(tmp_path, 0))
