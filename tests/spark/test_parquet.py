"""Files of Parquet that workers open themselves: read as Spark reads them, by whomever they were written."""

from __future__ import annotations

import datetime
import decimal
import os
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import watersmeet as wm
from watersmeet.spark import explain_join, parquet_files, stream_join
from watersmeet.spark.parquet import BYTES, read
from watersmeet.spark.progress import counters
from watersmeet.spark.schemas import arrow_schema

from . import cases
from .cases import BEGIN, COLUMNS, SCHEMA, SECOND, cut, run, tuples, write
from .test_on_spark import FEW

TYPES = """b boolean, i1 byte, i2 short, i4 int, i8 long, f4 float, f8 double, s string, y binary, d9 decimal(9,2),
    d18 decimal(18,0), d38 decimal(38,10), day date, ts timestamp, local timestamp_ntz, l array<int>,
    n array<array<string>>, m map<string, double>, st struct<a: int, b: struct<c: string>>"""
DAY = datetime.date(2026, 2, 28)
TIME = datetime.datetime(2026, 2, 28, 23, 59, 59, 999_999)


def rows(count: int, seed: int) -> list[dict]:
    """Of all types, with nulls, and with the greatest and least values of each."""
    pick = random.Random(seed)
    values = {
        "b": (True, False), "i1": (127, -128), "i2": (2**15 - 1, -(2**15)), "i4": (2**31 - 1, -(2**31)),
        "i8": (2**63 - 1, -(2**63)), "f4": (1.5, float("inf"), -0.0), "f8": (1e300, float("-inf"), -0.0, 5e-324),
        "s": ("", "ä", "x" * 70, "\N{GRINNING FACE}"), "y": (b"", b"\0\xff"),
        "d9": (decimal.Decimal("9999999.99"), decimal.Decimal("-0.01")), "d18": (decimal.Decimal(10**18 - 1),),
        "d38": (decimal.Decimal("-1234567890123456789012345678.0123456789"),),
        "day": (DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
        "ts": (TIME.replace(tzinfo=datetime.UTC), datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC)),
        "local": (TIME, datetime.datetime(1, 1, 1)), "l": ([], [1, None]), "n": ([["a", None], [], None],),
        "m": ([("k", 1.0), ("j", None)], []), "st": ({"a": 1, "b": {"c": None}}, {"a": None, "b": None}),
    }  # fmt: skip
    return [{name: pick.choice([*some, None]) for name, some in values.items()} for _ in range(count)]


@pytest.fixture(scope="module")
def types(spark):
    found = spark.createDataFrame([], TYPES).schema
    return found, arrow_schema(found, "left")


def ours(folder, schema: pa.Schema) -> pa.Table:
    paths = sorted(path for path in folder.iterdir() if path.suffix == ".parquet")
    return pa.Table.from_batches([batch for path in paths for batch in read(f"file:{path}", schema)], schema)


def same(a: pa.Table, b: pa.Table) -> bool:
    """Row by row, in any order; NaN and zeros as they are."""
    return sorted(map(repr, a.to_pylist())) == sorted(map(repr, b.to_pylist()))


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_files_of_sparks_are_read_as_by_spark(spark, tmp_path, types, times):
    given, schema = types
    table = pa.Table.from_pylist(rows(300, 1), schema)
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, times)
    try:
        spark.createDataFrame(table, given).repartition(3).write.parquet(str(tmp_path / "in"))
    finally:
        spark.conf.unset(name)
    expected = spark.read.schema(given).parquet(str(tmp_path / "in")).toArrow()
    found = ours(tmp_path / "in", schema)
    assert found.num_rows == 300 and same(found, expected)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_files_of_arrows_are_read_as_by_spark(spark, tmp_path, types, size):
    given, schema = types
    table = pa.Table.from_pylist(rows(100, size), schema)
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=size, use_dictionary=size != 7)
    pq.write_table(table.slice(0, 0), tmp_path / "in" / "b.parquet")
    expected = spark.read.schema(given).parquet(str(tmp_path / "in")).toArrow()
    assert same(ours(tmp_path / "in", schema), expected) and same(expected, table)


WIDER = [
    (pa.int8(), "int"), (pa.int16(), "bigint"), (pa.int32(), "bigint"), (pa.uint8(), "smallint"), (pa.uint16(), "int"),
    (pa.uint32(), "bigint"), (pa.float32(), "double"), (pa.decimal128(5, 2), "decimal(9,2)"),
    (pa.dictionary(pa.int32(), pa.string()), "string"), (pa.large_string(), "string"), (pa.large_binary(), "binary"),
    (pa.timestamp("ms", "UTC"), "timestamp"), (pa.timestamp("us", "Asia/Tokyo"), "timestamp"),
    (pa.timestamp("ms"), "timestamp_ntz"), (pa.large_list(pa.int32()), "array<int>"), (pa.uint64(), "decimal(20,0)"),
    (pa.binary(1), "binary"), (pa.json_(), "string"),
]  # fmt: skip


@pytest.mark.parametrize("kind, wanted", WIDER, ids=lambda value: str(value))
def test_narrower_types_are_read_as_by_spark(spark, tmp_path, kind, wanted):
    values = {"string": ["a", None, "b"], "binary": [b"a", None, b"b"], "array<int>": [[1], None, []]}
    column = pa.array(values.get(wanted, [1, None, 100]), kind)
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"c": column}), tmp_path / "in" / "a.parquet")
    frame = spark.read.schema(f"c {wanted}").parquet(str(tmp_path / "in"))
    found = ours(tmp_path / "in", arrow_schema(frame.schema, "left"))
    assert found.schema == arrow_schema(frame.schema, "left") and same(found, frame.toArrow())


def test_columns_are_found_by_name_in_any_case_and_are_null_where_there_are_none(spark, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"B": [1, 2], "more": [5, 6], "a": ["x", "y"]}), tmp_path / "in" / "a.parquet")
    pq.write_table(pa.table({"more": [5, 6, 7]}), tmp_path / "in" / "b.parquet")
    pq.write_table(pa.table({"a.b": [1.5], "b": pa.array([3], pa.int64())}), tmp_path / "in" / "c.parquet")
    frame = spark.read.schema("a string, b bigint, `a.b` double").parquet(str(tmp_path / "in"))
    found = ours(tmp_path / "in", arrow_schema(frame.schema, "left"))
    assert found.num_rows == 6 and same(found, frame.toArrow())


def test_a_column_with_a_point_in_its_name_is_not_that_of_a_struct(tmp_path):
    table = pa.table({"a": [{"b": 1}], "a.b": [2]})
    pq.write_table(table, tmp_path / "a.parquet")
    for names in (["a.b"], ["a"], ["a.b", "a"]):
        assert ours(tmp_path, table.select(names).schema).equals(table.select(names))


def test_files_are_read_in_pieces(tmp_path):
    long = pa.table({"s": ["x" * 1000] * 200_000, "n": range(200_000)})
    pq.write_table(long, tmp_path / "a.parquet", use_dictionary=False, compression="none")
    pieces = list(read(f"file:{tmp_path}/a.parquet", long.schema))
    assert 2 <= len(pieces) <= 6 and pa.Table.from_batches(pieces).equals(long)
    assert len(list(read(f"file:{tmp_path}/a.parquet", long.select(["n"]).schema))) == 1  # the texts do not count


def test_texts_that_a_file_has_once_for_many_rows_are_read_in_pieces(tmp_path):
    table = pa.table({"s": pa.array(["x" * 2000] * 200_000)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    pieces = list(read(f"file:{tmp_path}/a.parquet", table.schema))
    assert max(piece.nbytes for piece in pieces) <= BYTES + 4096 and pa.Table.from_batches(pieces).equals(table)


def test_a_file_is_not_held_as_a_whole(tmp_path):
    table = pa.table({"n": np.random.default_rng(1).integers(0, 2**62, 4_000_000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=200_000, use_dictionary=False, compression="none")
    schema, size = table.schema, table.nbytes
    del table
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in read(f"file:{tmp_path}/a.parquet", schema))
    assert most < size // 2


def test_damage_to_a_file_is_noticed(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    pq.write_table(
        pa.table({"n": range(1000)}), tmp_path / "a.parquet", use_dictionary=False, compression="none",
        write_page_checksum=True,
    )  # fmt: skip
    file = bytearray((tmp_path / "a.parquet").read_bytes())
    file[file.index((500).to_bytes(8, "little"))] ^= 1
    (tmp_path / "a.parquet").write_bytes(file)
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as Parquet: .*CRC"):
        list(read(f"file:{tmp_path}/a.parquet", schema))


def refused(path, table: pa.Table, schema: pa.Schema, error, match: str) -> None:
    pq.write_table(table, path)
    with pytest.raises(error, match=match):
        list(read(f"file:{path}", schema))


LOSES = [
    (pa.int64(), pa.int32()), (pa.int32(), pa.uint32()), (pa.uint64(), pa.int64()), (pa.float64(), pa.float32()),
    (pa.int64(), pa.float64()), (pa.int64(), pa.string()), (pa.string(), pa.int64()), (pa.string(), pa.binary()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")), (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    (pa.decimal128(9, 3), pa.decimal128(9, 2)), (pa.date32(), pa.timestamp("us")), (pa.int64(), pa.bool_()),
    (pa.list_(pa.int64()), pa.list_(pa.int32())), (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
]  # fmt: skip


@pytest.mark.parametrize("found, wanted", LOSES, ids=str)
def test_other_types_are_refused_by_name(tmp_path, found, wanted):
    table = pa.table({"price": pa.nulls(2, found)})
    match = "column 'price' of file:.*a.parquet has type .*, and the schema says"
    refused(tmp_path / "a.parquet", table, pa.schema([("price", wanted)]), TypeError, match)


def test_a_time_that_would_change_is_refused(tmp_path):
    wanted = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    table = pa.table({"ts": pa.array([1000, 1001], pa.timestamp("ns", "UTC"))})
    refused(tmp_path / "a.parquet", table, wanted, ValueError, "column 'ts' of .*would lose data")
    pq.write_table(table.slice(0, 1), tmp_path / "a.parquet")
    assert ours(tmp_path, wanted)["ts"].cast(pa.int64()).to_pylist() == [1]


@pytest.mark.parametrize("kind", ["datetime", "int96"])
def test_times_of_an_older_calendar_are_refused(spark, tmp_path, kind):
    own = {
        f"spark.sql.parquet.{kind}RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": "INT96" if kind == "int96" else "TIMESTAMP_MICROS",
    }
    for name, value in own.items():
        spark.conf.set(name, value)
    try:
        for year in (1850, 1950):
            spark.sql(f"select timestamp '{year}-01-01' ts").write.parquet(str(tmp_path / str(year)))
    finally:
        for name in own:
            spark.conf.unset(name)
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    assert same(ours(tmp_path / "1950", schema), spark.read.parquet(str(tmp_path / "1950")).toArrow())
    with pytest.raises(ValueError, match="column 'ts' of .* has times before 1900"):
        ours(tmp_path / "1850", schema)


EARLY = {
    "day": pa.array([datetime.date(1500, 1, 1), None]), "ts": pa.array([-(10**16)] * 2, pa.timestamp("us", "UTC")),
    "ns": pa.array([-3 * 10**18] * 2, pa.timestamp("ns")), "in": pa.array([[TIME], []], pa.list_(pa.timestamp("us"))),
    "update": pa.array([{"date": 1}, {"date": None}]),
}  # fmt: skip
#: versions of Spark that count as we do: of times as such, and as INT96
SINCE = {"2.4.8": (False, False), "3.0.3": (True, False), "3.1.0": (True, True), "10.0.0": (True, True),
         "unknown": (True, True)}  # fmt: skip


@pytest.mark.parametrize("version", SINCE)
@pytest.mark.parametrize("name, int96", [*((name, False) for name in EARLY), ("ts", True)])
def test_times_by_the_version_of_their_writer(tmp_path, version, name, int96):
    wanted = pa.schema([(name, pa.timestamp("us") if name == "ns" else EARLY[name].type)])
    table = pa.table({name: EARLY[name]}, metadata={"org.apache.spark.version": version})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=int96)
    if SINCE[version][int96] or name == "update":
        assert ours(tmp_path, wanted).column(0).cast(EARLY[name].type).equals(table.column(0))
    else:
        with pytest.raises(ValueError, match=f"column '{name}' of .* has times before 1900"):
            ours(tmp_path, wanted)


def test_what_is_no_parquet_is_named(tmp_path):
    path, schema = tmp_path / "a.parquet", pa.schema([("a", pa.int64())])
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read as Parquet"):
        list(read(f"file:{path}", schema))
    with pytest.raises(FileNotFoundError, match=r"/nowhere/b\.parquet, which Spark has found, is not there"):
        list(read("file:///nowhere/b.parquet", schema))
    with pytest.raises(ValueError, match=r"s3a://bucket/a\.parquet is not one: read it with spark\.readStream"):
        list(read("s3a://bucket/a.parquet", schema))
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "day=1" / "a.parquet")
    with pytest.raises(ValueError, match="column 'Day' is in the names of folders"):
        list(read(f"file:{tmp_path}/day=1/a.parquet", pa.schema([("a", pa.int64()), ("Day", pa.int64())])))
    pq.write_table(pa.table([[1], [2]], names=["price", "Price"]), path)
    with pytest.raises(ValueError, match="has several columns 'PRICE': 'price', 'Price'"):
        list(read(f"file:{path}", pa.schema([("PRICE", pa.int64())])))
    assert list(read(f"file:{path}", pa.schema([("Price", pa.int64())])))[0].to_pylist() == [{"Price": 2}]


@pytest.mark.parametrize("some", [FEW, pytest.param(cases.CASES, marks=pytest.mark.long)], ids=["few", "all"])
@pytest.mark.parametrize("sides", [["left"], ["left", "right"]], ids="-".join)
def test_joins_of_files_are_exact(spark, tmp_path, some, sides):
    cases.check(spark, tmp_path, some, files=sides)


def test_odd_names(spark, tmp_path):
    """Of folders and files, as Spark and Hadoop take them."""
    folder = tmp_path / "a b%20c+d&é,#(x)"
    data = tuples(1, 60)
    write(folder, [data[:30], data[30:]])
    for number, path in enumerate(sorted(folder.iterdir())):
        os.rename(path, folder / f"{number} %2F;=+é#.parquet")
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("x")
    left, right = (parquet_files(spark, str(folder), COLUMNS) for _ in range(2))
    window = wm.within("1 second", lateness="2 seconds")
    query = run(stream_join(left, right, "l.id = r.id", window).select("id", "id_right"), tmp_path)
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert sorted(row["id"] for row in found) == sorted(row["id"] for row in data)
    assert sum(counters(each).get("rows_left") or 0 for each in query.recentProgress) == 60


def test_it_goes_on_with_new_files_and_after_dataframes(spark, tmp_path):
    """A checkpoint that began with DataFrames: Spark's log of files is the same."""
    data = {side: tuples(seed, 300) for side, seed in (("left", 1), ("right", 2))}
    pieces = {side: cut(rows, 3, len(side)) for side, rows in data.items()}
    for turn, files in enumerate(([], ["left"], ["left", "right"])):
        for side, parts in pieces.items():
            write(tmp_path / side, [parts[turn], *parts[3:]] if turn == 2 else [parts[turn]])
        run(cases.joined(spark, tmp_path, FEW, files=files), tmp_path)
    found = cases.counted(pq.read_table(tmp_path / "out"), FEW)
    for case, pairs in zip(FEW, found, strict=True):
        assert pairs and pairs == cases.from_duckdb(data, case), case


def test_a_side_without_rows_is_not_waited_for(spark, tmp_path):
    """The time of the other is read from its files a second time."""
    rows = [{"id": n, "ts": BEGIN + n * SECOND, "k": n, "`": n} for n in range(20)]
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("ts")]).append(pa.field("t.s", SCHEMA.field("ts").type))
    for side, given in (("left", rows), ("right", rows[:1])):
        (tmp_path / side).mkdir()
        table = pa.Table.from_pylist([row | {"t.s": row["ts"]} for row in given], schema)
        pq.write_table(table, tmp_path / side / "a.parquet")
    left, right = (parquet_files(spark, str(tmp_path / side)) for side in ("left", "right"))
    assert left.columns == ["id", "ts", "t.s"] and "t.s: timestamp" in repr(left)
    window = wm.within("1 second", time="t.s", idle_after="3 seconds")
    run(stream_join(left, right, "l.id = r.id", window, "left").select("id", "id_right"), tmp_path)
    found = {(row["id"], row["id_right"]) for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert (0, 0) in found and (10, None) in found and len(found) == len({one for one, _ in found}) >= 14


def test_plans_errors_and_options(spark, tmp_path):
    write(tmp_path / "left", [tuples(1, 50)])
    left = parquet_files(spark, str(tmp_path / "left"), maxFilesPerTrigger=1, pathGlobFilter="*.parquet")
    assert {field.name: field.dataType.simpleString() for field in left.schema} == {
        "id": "bigint", "ts": "timestamp", "k": "int", "x": "bigint", "f": "double", "d": "decimal(9,2)", "s": "string",
    }  # fmt: skip
    window = wm.within("1 second")
    assert "route: hash" in explain_join(left, left, "l.k = r.k", window)
    with pytest.raises(ValueError, match="nothing"):
        stream_join(left, left, "l.nothing = r.k", window)
    with pytest.raises(TypeError, match="right must be a Spark DataFrame, or parquet_files, got str"):
        stream_join(left, "files", "l.k = r.k", window)
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        parquet_files(spark, str(tmp_path / "nowhere"), COLUMNS)
    for path in (None, 7, left):
        with pytest.raises(TypeError, match="path must be a folder of Parquet files, got"):
            parquet_files(spark, path)
    assert parquet_files(spark, tmp_path / "left").columns == left.columns
    wrong = parquet_files(spark, str(tmp_path / "left"), "ts timestamp, k string")
    with pytest.raises(StreamingQueryException, match="column 'k' of file:.* has type int32, and .* says string"):
        run(stream_join(wrong, wrong, "l.k = r.k", window), tmp_path)


@pytest.mark.parametrize(
    "name, value",
    [
        ("spark.sql.caseSensitive", "true"), ("spark.sql.parquet.int96RebaseModeInRead", "LEGACY"),
        ("spark.sql.parquet.int96TimestampConversion", "true"), ("spark.sql.parquet.fieldId.read.enabled", "true"),
    ],
)  # fmt: skip
def test_settings_by_which_spark_reads_otherwise_are_refused(spark, tmp_path, name, value):
    write(tmp_path / "left", [tuples(1, 5)])
    spark.conf.set(name, value)
    try:
        with pytest.raises(ValueError, match=f"{name} is '{value}', by which Spark reads Parquet in a way"):
            parquet_files(spark, str(tmp_path / "left"))
    finally:
        spark.conf.unset(name)
    for option, said in (("datetimeRebaseMode", "legacy"), ("IgnoreCorruptFiles", True)):
        with pytest.raises(ValueError, match=f"option '{option}' is '{str(said).lower()}', by which Spark reads"):
            parquet_files(spark, str(tmp_path / "left"), COLUMNS, **{option: said})


def test_folders_and_columns_by_which_spark_reads_otherwise_are_refused(spark, tmp_path):
    write(tmp_path / "day=2", [tuples(1, 5)])  # with or without a column of that name in its files
    for schema in (None, COLUMNS, f"{COLUMNS}, day int"):
        with pytest.raises(ValueError, match="is partitioned by column 'day', which is in the names of its folders"):
            parquet_files(spark, str(tmp_path), schema)
    from pyspark.sql.types import IntegerType, StructField, StructType

    new = StructType([StructField("k", IntegerType(), metadata={"EXISTS_DEFAULT": "7"})])
    with pytest.raises(ValueError, match="column 'k' has a default value for files that do not have it"):
        parquet_files(spark, str(tmp_path / "day=2"), new)
