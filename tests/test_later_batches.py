"""Later batches of a stream need not look like the first: what can be taken in without loss is."""

import datetime
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import watersmeet as wm


def rows(*tables):
    return [row for table in tables for row in table.to_pylist()]


def join_after(first, **options):
    """A join that has seen `first` on the left; any row of the right meets all of the left."""
    join = wm.StreamJoin("true", wm.within(1000, lateness=1000), **options)
    join.push(left=first, right=pa.table({"ts": pa.array([], pa.int64())}))
    return join


def column_after(first, later, name="v"):
    """What comes out of a column that was pushed as `first`, then as `later`."""
    join = join_after(pa.table({"ts": range(len(first)), name: first}))
    join.push(left=pa.table({"ts": range(len(later)), name: later}))
    return join.push(right=pa.table({"ts": [0]}))[name].combine_chunks()


# ---------------------------------------------------------------------------------------------- pandas


def test_a_filtered_frame_fits_the_stream_of_a_whole_one():
    frame = pd.DataFrame({"ts": [1, 2, 3], "a": [1, 2, 3]})
    join = join_after(frame)
    join.push(left=frame[frame.a > 1])
    join.push(left=pa.Table.from_pandas(frame[frame.a > 2]))
    result = join.push(right=pa.table({"ts": [0]}))
    assert result.column_names == ["ts", "a", "ts_right"]
    assert result["a"].to_pylist() == [1, 2, 3, 2, 3, 3]


def test_a_whole_frame_fits_the_stream_of_a_filtered_one():
    frame = pd.DataFrame({"ts": [1, 2, 3], "a": [1, 2, 3]})
    join = join_after(frame[frame.a > 1])
    join.push(left=frame)
    assert join.push(right=pa.table({"ts": [0]})).column_names == ["ts", "a", "ts_right"]


@pytest.mark.parametrize("first", ["range", "labels"])
def test_an_index_with_a_name_is_a_column_whatever_its_kind(first):
    frame = pd.DataFrame({"ts": [1, 2, 3], "a": [1, 2, 3]}, index=pd.RangeIndex(10, 16, 2, name="id"))
    pushes = [frame, frame[frame.a > 1]]
    join = join_after(pushes[first == "labels"])
    join.push(left=pushes[first == "range"])
    result = join.push(right=pa.table({"ts": [0]}))
    assert sorted(zip(result["a"].to_pylist(), result["id"].to_pylist(), strict=True)) == [
        (1, 10), (2, 12), (2, 12), (3, 14), (3, 14)
    ]  # fmt: skip


def test_row_labels_are_kept_where_the_schema_names_them():
    schema = pa.schema({"ts": pa.int64(), "__index_level_0__": pa.int64()})
    join = wm.StreamJoin("true", wm.within(5), left_schema=schema)
    frame = pd.DataFrame({"ts": [1, 2, 3]})
    join.push(left=frame[frame.ts > 1])
    result = join.push(right=pa.table({"ts": [3]}))
    assert result["__index_level_0__"].to_pylist() == [1, 2]


def test_integers_may_become_floats_through_nulls_and_back():
    first = pd.DataFrame({"ts": [1, 2], "k": [2**53, -7]})
    second = pd.DataFrame({"ts": [3, 4], "k": [None, 5]})
    assert second.k.dtype == float
    join = join_after(first)
    join.push(left=second)
    result = join.push(right=pa.table({"ts": [0]}))
    assert result.schema.field("k").type == pa.int64()
    assert result["k"].to_pylist() == [2**53, -7, None, 5]
    join = join_after(second)
    join.push(left=first)
    assert join.push(right=pa.table({"ts": [0]}))["k"].to_pylist() == [None, 5.0, float(2**53), -7.0]


def test_times_of_pandas_may_come_in_other_units():
    nanos = pd.DataFrame({"ts": pd.to_datetime([1, 2], unit="s").as_unit("ns"), "k": [1, 2]})
    micros = pd.DataFrame({"ts": pd.to_datetime([3, 4], unit="s").as_unit("us"), "k": [1, 2]})
    for first, second in ((nanos, micros), (micros, nanos)):
        join = wm.StreamJoin("l.k = r.k", wm.within("10 seconds", lateness="10 seconds"), output="pairs")
        join.push(left=first, right=second)
        found = join.push(left=second, right=first).to_pylist()
        assert sorted((row["left"], row["right"]) for row in found) == [(0, 2), (1, 3), (2, 0), (2, 2), (3, 1), (3, 3)]


# ----------------------------------------------------------------------------------------------- order


def test_columns_may_be_in_another_order():
    join = join_after(pa.table({"ts": [1], "a": [1], "b": ["x"]}))
    join.push(left=pa.table({"b": ["y"], "ts": [2], "a": [2]}))
    join.push(left=pl.DataFrame({"a": [3], "b": ["z"], "ts": [3]}))
    result = join.push(right=pa.table({"ts": [0]}))
    assert result.column_names == ["ts", "a", "b", "ts_right"]
    assert result.drop_columns("ts_right").to_pylist() == [
        {"ts": 1, "a": 1, "b": "x"}, {"ts": 2, "a": 2, "b": "y"}, {"ts": 3, "a": 3, "b": "z"}
    ]  # fmt: skip


def test_fields_of_structs_may_be_in_another_order():
    first = pa.array([{"a": 1, "b": "x"}])
    later = pa.array([{"b": "y", "a": 2}, None], pa.struct({"b": pa.string(), "a": pa.int8()}))
    assert column_after(first, later).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None]


# -------------------------------------------------------------------------------------- types that fit

NAN = float("nan")
FITTING = {
    "nulls": (pa.array(["x"]), pa.nulls(2)),
    "nulls in a list": (pa.array([[1]]), pa.array([[], None, [None]], pa.list_(pa.null()))),
    "narrower integers": (pa.array([1]), pa.array([-128, None, 127], pa.int8())),
    "wider integers": (pa.array([1], pa.uint8()), pa.array([0, None, 255])),
    "integers to floats": (pa.array([0.5]), pa.array([2**53, None, -3])),
    "floats to integers": (pa.array([1]), pa.array([2.0, None, -(2.0**40)])),
    "doubles to floats": (pa.array([0.5], pa.float32()), pa.array([0.25, None, float("inf")])),
    "floats to doubles": (pa.array([0.5]), pa.array([0.1, None], pa.float32())),
    "half floats": (pa.array([0.5]), pa.array([0.5, None], pa.float16())),
    "integers to decimals": (pa.array([Decimal("1.50")]), pa.array([5, None, -7])),
    "decimals to integers": (pa.array([1]), pa.array([Decimal("5.00"), None])),
    "decimals of other scale": (pa.array([Decimal("1.50")]), pa.array([Decimal("2.5"), None], pa.decimal256(50, 9))),
    "large text": (pa.array(["x"]), pa.array(["y", None], pa.large_string())),
    "small text": (pa.array(["x"], pa.large_string()), pa.array(["y", None])),
    "views": (pa.array(["x"]), pa.array(["y" * 40, None], pa.string_view())),
    "bytes": (pa.array([b"ab"], pa.binary(2)), pa.array([b"cd", None])),
    "nanoseconds to micros": (pa.array([1], pa.timestamp("us")), pa.array([5000, None], pa.timestamp("ns"))),
    "seconds to nanos": (pa.array([1], pa.timestamp("ns")), pa.array([5, None], pa.timestamp("s"))),
    "dates to timestamps": (pa.array([1], pa.timestamp("us")), pa.array([datetime.date(2024, 2, 29), None])),
    "timestamps to dates": (pa.array([1], pa.date32()), pa.array([86_400_000_000, None], pa.timestamp("us"))),
    "durations": (pa.array([1], pa.duration("ms")), pa.array([5_000_000, None], pa.duration("ns"))),
    "times": (pa.array([1], pa.time32("s")), pa.array([5_000_000, None], pa.time64("us"))),
    "zones": (pa.array([1], pa.timestamp("us", "UTC")), pa.array([5, None], pa.timestamp("us", "Asia/Tokyo"))),
    "lists": (pa.array([[1.5]]), pa.array([[1, None], None, []], pa.large_list(pa.int8()))),
    "fixed lists to lists": (pa.array([[1]]), pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)).slice(1)),
    "fixed lists": (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.array([[3, 4], None], pa.list_(pa.int16(), 2))),
    "maps": (
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("b", 2)], None, [("c", 3), ("d", 4)]], pa.map_(pa.string(), pa.int8())).slice(1),
    ),
    "structs": (pa.array([{"a": 1.5}]), pa.array([{"a": 1}, None, {"a": None}])),
}


@pytest.mark.parametrize("name", FITTING)
def test_a_type_that_loses_nothing_is_taken_in(name):
    first, later = FITTING[name]
    found = column_after(first, later)
    assert found.type == first.type
    found.validate(full=True)
    expected = first.to_pylist() + later.to_pylist()
    if name in ("dates to timestamps", "timestamps to dates"):
        expected, found = [str(e)[:10] for e in expected], pa.array([str(v)[:10] for v in found.to_pylist()])
    assert found.to_pylist() == expected


@pytest.mark.parametrize("make", [pa.ListArray, pa.LargeListArray])
def test_what_lies_behind_a_null_does_not_matter(make):
    offsets = pa.array([0, 1, 2, 3], pa.int32() if make is pa.ListArray else pa.int64())
    hidden = make.from_arrays(offsets, pa.array([1.0, 2.5, 3.0]), mask=pa.array([False, True, False]))
    assert column_after(pa.array([[0]]), hidden).to_pylist() == [[0], [1], None, [3]]
    fields = pa.StructArray.from_arrays([pa.array([1.0, 2.5])], ["a"], mask=pa.array([False, True]))
    assert column_after(pa.array([{"a": 0}]), fields).to_pylist() == [{"a": 0}, {"a": 1}, None]


def test_nan_stays_nan():
    found = column_after(pa.array([0.5], pa.float32()), pa.array([NAN, None])).to_pylist()
    assert np.isnan(found[1]) and found[2] is None


# ------------------------------------------------------------------------------------- types that do not

LOSING = {
    "fraction": (pa.array([1]), pa.array([1.0, 2.5]), [r"\bint64", r"double", r"2\.5", r"row 1"]),
    "nan": (pa.array([1]), pa.array([None, NAN]), [r"nan", r"row 1"]),
    "large integer": (pa.array([0.5]), pa.array([0, 1, 2**53 + 1]), [r"9007199254740993", r"row 2"]),
    "infinity": (pa.array([1]), pa.array([float("inf")]), [r"inf"]),
    "2^63": (pa.array([1]), pa.array([2.0**63]), [r"9\.22"]),
    "out of range": (pa.array([1], pa.int8()), pa.array([127, 128]), [r"128", r"row 1"]),
    "negative": (pa.array([1], pa.uint64()), pa.array([-1]), [r"-1"]),
    "0.1 as float": (pa.array([0.5], pa.float32()), pa.array([0.5, 0.1]), [r"0\.1", r"row 1"]),
    "decimal too wide": (pa.array([Decimal("1.50")]), pa.array([Decimal("123.45")]), [r"123\.45"]),
    "decimal too fine": (pa.array([Decimal("1.50")]), pa.array([Decimal("1.255")]), [r"1\.255"]),
    "float and decimal": (pa.array([Decimal("1.50")]), pa.array([1.5]), [r"double", r"decimal"]),
    "nanosecond": (
        pa.array([1], pa.timestamp("us")), pa.array([1000, 1001], pa.timestamp("ns")), [r"000001001", r"row 1"]
    ),
    "far time": (pa.array([1], pa.timestamp("ns")), pa.array([2**62], pa.timestamp("s")), [r"row 0"]),
    "noon as date": (pa.array([1], pa.date32()), pa.array([43_200], pa.timestamp("s")), [r"12:00:00", r"date32"]),
    "zone": (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "UTC")), [r"tz=UTC"]),
    "text": (pa.array([1]), pa.array(["1"]), [r"string", r"int64"]),
    "bool": (pa.array([1]), pa.array([True]), [r"bool", r"int64"]),
    "in a list": (pa.array([[1]]), pa.array([[1, 2.5]]), [r"v\[\]", r"2\.5"]),
    "in a struct": (pa.array([{"a": {"b": 1}}]), pa.array([{"a": {"b": 0.5}}]), [r"v\.a\.b", r"0\.5"]),
    "other fields": (pa.array([{"a": 1}]), pa.array([{"a": 1, "b": 2}]), [r"struct<a: int64, b: int64>"]),
    "fixed list": (pa.array([[1]], pa.list_(pa.int64(), 1)), pa.array([[1]]), [r"fixed_size_list"]),
    "extension": (pa.array([b"0" * 16], pa.uuid()), pa.array([b"0" * 16]), [r"uuid", r"binary"]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSING)
def test_what_would_be_lost_is_refused_with_column_value_and_remedy(name):
    first, later, fragments = LOSING[name]
    join = join_after(pa.table({"ts": range(len(first)), "v": first}))
    before = join.metrics.to_dict()
    with pytest.raises(ValueError) as error:
        join.push(left=pa.table({"ts": range(len(later)), "v": later}), right=pa.table({"ts": [0]}))
    for fragment in [r"column 'v", "left batch", "cast", "left_schema=", *fragments]:
        assert re.search(fragment, str(error.value)), f"{fragment!r} is not in: {error.value}"
    assert join.metrics.to_dict() == before
    assert join.push(right=pa.table({"ts": [0]}))["v"].to_pylist() == first.to_pylist()


def test_the_time_column_and_keys_are_no_exception():
    join = wm.StreamJoin("l.k = r.k", wm.within("1 second"), output="count")
    good = pa.table({"ts": pa.array([1], pa.timestamp("us")), "k": [1]})
    join.push(left=good, right=good)
    with pytest.raises(ValueError, match=r"column 'ts' of this left batch is timestamp\[ns\]"):
        join.push(left=pa.table({"ts": pa.array([2001], pa.timestamp("ns")), "k": [1]}))
    with pytest.raises(ValueError, match=r"column 'k' of this right batch .* 1.5 in row 0"):
        join.push(right=pa.table({"ts": pa.array([2], pa.timestamp("us")), "k": [1.5]}))
    late = pa.table({"ts": pa.array([2000], pa.timestamp("ns")), "k": pa.array([1.0])})
    assert join.push(left=late) == 1


# ---------------------------------------------------------------------------------- a first batch of nulls


@pytest.mark.parametrize(
    "nulls",
    [pa.nulls(2), pa.array([[], None], pa.list_(pa.null())), pa.array([{"a": None}] * 2, pa.struct({"a": pa.null()}))],
    ids=["null", "list", "struct"],
)
def test_a_first_batch_must_tell_the_type_of_its_columns(nulls):
    join = wm.StreamJoin("true", wm.within(5))
    with pytest.raises(ValueError, match=r"column 'v' of this first left batch is .*null.*; give left_schema="):
        join.push(left=pa.table({"ts": [1, 2], "v": nulls}))
    assert join.metrics.waiting == 0
    join.push(left=pa.table({"ts": [1, 2], "v": ["x", None]}), right=pa.table({"ts": [1]}))
    assert join.push(left=pa.table({"ts": [3, 4], "v": pa.nulls(2)}))["v"].to_pylist() == [None, None]


def test_with_a_schema_the_first_batch_may_hold_nulls_only():
    schema = pa.schema({"ts": pa.int64(), "v": pa.float64()})
    join = wm.StreamJoin("true", wm.within(5), left_schema=schema)
    join.push(left=pd.DataFrame({"ts": [1], "v": [None]}))
    join.push(left=pd.DataFrame({"ts": [2], "v": [1]}))
    assert join.push(right=pa.table({"ts": [2]}))["v"].to_pylist() == [None, 1.0]


def test_a_schema_may_say_that_a_column_is_always_null():
    schema = pa.schema({"ts": pa.int64(), "v": pa.null()})
    join = wm.StreamJoin("true", wm.within(5), left_schema=schema)
    join.push(left=pa.table({"ts": [1], "v": pa.nulls(1)}))
    with pytest.raises(ValueError, match="column 'v' of this left batch is int64, in the stream it is null"):
        join.push(left=pa.table({"ts": [1], "v": [1]}))
    assert join.push(right=pa.table({"ts": [2]}))["v"].to_pylist() == [None]


def test_columns_that_are_missing_or_unknown_or_twice_there_are_refused():
    join = join_after(pa.table({"ts": [1], "v": [1]}))
    for bad, message in (
        (pa.table({"ts": [1]}), r"missing: v"),
        (pa.table({"ts": [1], "v": [1], "w": [1]}), r"not expected: w"),
        (pa.table([pa.array([1])] * 3, ["ts", "v", "v"]), r"two columns named 'v'"),
    ):
        with pytest.raises(ValueError, match=message):
            join.push(left=bad)




def test_a_self_join_takes_them_in_as_well():
    frame = pd.DataFrame({"ts": [1, 2, 3], "a": [1, 2, 3]})
    join = wm.StreamJoin("l.a = r.a", wm.within(5, lateness=5), self_join=True, output="count")
    assert join.push(frame) == 3
    assert join.push(frame[frame.a > 1][["a", "ts"]]) == 6
