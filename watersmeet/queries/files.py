"""Readers of the real data sets' files, in the layout in which these are published.

    taxi     DEBS 2015 grand challenge: CSV without a header, 17 columns in the order of TAXI, fare in the twelfth
    blond    BLOND: HDF5, a file a stretch of time; datasets current1, voltage1, ... of whole numbers, each with the
             attribute calibration_factor (volts or amperes a step). Needs h5py
    traces   Mendeley 5pnmkshffm: CSV with a header, one of its columns data_len; the kind of traffic in a column
             kind, or else in the file's name (bulk.csv, video_2.csv, ...)
    stocks   Kaggle jacksoncrow/stock-market-dataset: folders stocks and etfs of CSV files, one a ticker and named by
             it, header Date,Open,High,Low,Close,Adj Close,Volume

A path is a file, or a folder of such files, which are read in the order of their names. Rows without the value that is
joined on are left out. A stream is 0 or 1, left or right: of BLOND circuit 1 or 2, of the traces even or odd packets;
the others are joined with themselves and have one. We had none of these files: the layout of BLOND and of the traces
is as their descriptions have it, and only what is named above is relied on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

Columns = dict[str, Any]

TAXI = (
    "medallion", "hack_license", "pickup_datetime", "dropoff_datetime", "trip_time_in_secs", "trip_distance",
    "pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude", "payment_type", "fare_amount",
    "surcharge", "mta_tax", "tip_amount", "tolls_amount", "total_amount",
)  # fmt: skip
KINDS = ("bulk", "idle", "interactive", "video", "web")
CHUNK = 1 << 16  # rows of HDF5 at a time


def taxi(path: Path, stream: int) -> Iterator[Columns]:
    types = {"medallion": pa.string(), "fare_amount": pa.float64()}
    for file in found(path, ".csv"):
        for batch in opened(file, types, TAXI):
            kept = batch.filter(pc.is_valid(batch["fare_amount"]))
            yield {"medallion": kept["medallion"], "fare": kept["fare_amount"]}


def traces(path: Path, stream: int) -> Iterator[Columns]:
    seen = 0
    for file in found(path, ".csv"):
        for batch in opened(file, {"data_len": pa.int64()}, optional=("kind",)):
            batch = batch.filter(pc.is_valid(batch["data_len"]))
            mine = pa.array((np.arange(batch.num_rows) + seen) % 2 == stream)
            seen += batch.num_rows
            batch = batch.filter(mine)
            if "kind" in batch.schema.names:
                kinds = batch["kind"].cast(pa.string())
            else:
                named = [kind for kind in KINDS if kind in file.stem.lower()]
                kinds = pa.array([named[0] if named else None] * batch.num_rows, pa.string())
            yield {"kind": kinds, "data_len": batch["data_len"]}


def stocks(path: Path, stream: int) -> Iterator[Columns]:
    for file in found(path, ".csv", without=("symbols_valid_meta.csv",)):
        for batch in opened(file, {"High": pa.float64()}):
            highs = batch["High"].drop_null()
            yield {"symbol": pa.array([file.stem] * len(highs), pa.string()), "high": highs}


def blond(path: Path, stream: int) -> Iterator[Columns]:
    try:
        import h5py
    except ImportError:
        raise ValueError("files of BLOND need h5py: pip install h5py, or watersmeet[bench]") from None
    names = [f"{what}{stream + 1}" for what in ("voltage", "current")]
    for file in found(path, ".hdf5", ".h5"):
        try:
            opening = h5py.File(file, "r")
        except OSError as error:
            raise ValueError(f"{file} is not a file of HDF5: {error}") from None
        with opening as held:
            missing(file, names, list(held))
            sets = [held[name] for name in names]
            factors = [float(one.attrs.get("calibration_factor", 1.0)) for one in sets]
            for start in range(0, min(map(len, sets)), CHUNK):
                voltage, current = (
                    np.asarray(one[start : start + CHUNK], float) * factor
                    for one, factor in zip(sets, factors, strict=True)
                )
                rows = min(voltage.size, current.size)
                voltage, current = voltage[:rows], current[:rows]
                yield {"voltage": pa.array(voltage), "current": pa.array(current), "power": pa.array(voltage * current)}


def found(path: Path, *endings: str, without: tuple[str, ...] = ()) -> list[Path]:
    """The files of a data set; the error says what is looked for."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ValueError(f"there is no file or folder {path}")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in endings and file.name not in without)
    if not files:
        raise ValueError(f"there is no file *{' or *'.join(endings)} in {path} or a folder in it")
    return files


def opened(
    file: Path, types: dict[str, pa.DataType], header: tuple[str, ...] | None = None, optional: tuple[str, ...] = ()
) -> Iterator[pa.RecordBatch]:
    """A CSV file's batches, these columns only. `header`: its columns, where the file does not say."""
    with open(file, encoding="utf-8", errors="replace") as opening:
        first = opening.readline().strip().split(",")
    if header is None:
        names = [name.strip().strip('"') for name in first]
        missing(file, types, names)
    elif len(first) != len(header):
        raise ValueError(f"{file} has {len(first)} columns, and must have {len(header)}: {', '.join(header)}")
    else:
        names = list(header)
    wanted = [name for name in (*types, *optional) if name in names]
    try:
        reader = csv.open_csv(
            file,
            read_options=csv.ReadOptions(column_names=names, skip_rows=1 if header is None else 0),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=wanted),
        )
        yield from reader
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} cannot be read: {error}") from None


def missing(file: Path, wanted: Any, there: list[str]) -> None:
    lacking = [name for name in wanted if name not in there]
    if lacking:
        raise ValueError(f"{file} has no {' and no '.join(lacking)}; it has {', '.join(there) or 'nothing'}")
