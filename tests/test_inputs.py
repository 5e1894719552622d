"""What may be pushed. Types of columns are in test_column_types.py."""

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import watersmeet as wm

LEFT = pa.table({"ts": [1, 2, 3], "k": [1, 2, 1], "name": ["a", None, "c"]})
RIGHT = pa.table({"ts": [1, 2, 3], "k": [1, 1, 3], "x": [1.5, None, 2.5]})
EXPECTED = [
    {"ts": 1, "k": 1, "name": "a", "ts_right": 1, "k_right": 1, "x": 1.5},
    {"ts": 1, "k": 1, "name": "a", "ts_right": 2, "k_right": 1, "x": None},
    {"ts": 3, "k": 1, "name": "c", "ts_right": 1, "k_right": 1, "x": 1.5},
    {"ts": 3, "k": 1, "name": "c", "ts_right": 2, "k_right": 1, "x": None},
]


def in_order(rows):
    return sorted(rows, key=repr)


def duck(table):
    return duckdb.connect().from_arrow(table)


class Capsule:
    """Anything that speaks the Arrow C stream interface and is nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


SOURCES = {
    "table": lambda table: table,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=2),
    "chunked table": lambda table: pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)]),
    "sliced table": lambda table: pa.concat_tables([table, table, table]).combine_chunks().slice(3, 3),
    "sliced batch": lambda table: pa.concat_tables([table] * 3).combine_chunks().to_batches()[0].slice(3, 3),
    "polars": lambda table: pl.from_arrow(table),
    "duckdb relation": duck,
    "capsule": Capsule,
}


@pytest.mark.parametrize("right_source", ["table", "capsule"])
@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_source(source, right_source):
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    result = join.push(left=SOURCES[source](LEFT), right=SOURCES[right_source](RIGHT))
    assert in_order(result.to_pylist()) == in_order(EXPECTED)


def test_pandas_frames():
    join = wm.StreamJoin("l.k = r.k", wm.within("5 seconds"))
    ts = pd.to_datetime([1, 2, 3], unit="s")
    left = pd.DataFrame({"ts": ts, "k": [1, 2, 1], "name": ["a", None, "c"]})
    right = pd.DataFrame({"ts": ts, "k": [1, 1, 3], "x": [1.5, 2.5, 3.5]})
    result = join.push(left=left, right=right)
    assert result.column_names == ["ts", "k", "name", "ts_right", "k_right", "x"]
    assert in_order(zip(result["name"].to_pylist(), result["x"].to_pylist(), strict=True)) == [
        ("a", 1.5),
        ("a", 2.5),
        ("c", 1.5),
        ("c", 2.5),
    ]


def test_pandas_frames_whose_index_is_not_a_range():
    left = pd.DataFrame({"ts": [1, 2, 3], "k": [1, 2, 1]})
    join = wm.StreamJoin("l.k = r.k", wm.within(5, lateness=5))
    result = join.push(left=left[left.k == 1], right=left.iloc[::-1])
    assert in_order(zip(result["ts"].to_pylist(), result["ts_right"].to_pylist(), strict=True)) == [
        (1, 1),
        (1, 3),
        (3, 1),
        (3, 3),
    ]


def test_polars_frames_with_nested_columns():
    columns = {
        "ts": [1, 2],
        "words": [["a", None], None],
        "pair": [{"a": "x", "b": 1}, None],
        "colour": pl.Series(["red", None], dtype=pl.Categorical),
        "size": pl.Series(["s", "m"], dtype=pl.Enum(["s", "m", "l"])),
    }
    frame = pl.DataFrame(columns)
    join = wm.StreamJoin("l.ts = r.ts and l.colour = r.colour", wm.within(5))
    result = join.push(left=frame, right=frame)
    assert pl.from_arrow(result.select(range(5))).to_dicts() == frame[:1].to_dicts()


def test_keys_may_be_string_views():
    table = pa.table({"ts": [1, 2], "s": pa.array(["a", None], pa.string_view())})
    for on in ("l.s = r.s", "l.s <= r.s"):
        join = wm.StreamJoin(on, wm.within(5), output="pairs")
        assert join.push(left=table, right=table).to_pylist() == [{"left": 0, "right": 0}]


def test_the_sources_of_one_stream_may_change():
    join = wm.StreamJoin("l.k = r.k", wm.within(5, lateness=10))
    found = join.push(right=RIGHT).to_pylist()
    for number, make in enumerate((SOURCES["table"], SOURCES["record batch"], SOURCES["reader"])):
        found += join.push(left=make(LEFT.slice(number, 1))).to_pylist()
    assert in_order(found) == in_order(EXPECTED)


def test_sources_of_no_rows():
    join = wm.StreamJoin("l.k = r.k", wm.within(5))
    assert join.push(left=LEFT.slice(0, 0)).num_rows == 0
    assert join.push(right=pa.RecordBatchReader.from_batches(RIGHT.schema, [])).num_rows == 0
    no_chunks = pa.table({name: pa.chunked_array([], LEFT[name].type) for name in LEFT.column_names})
    assert join.push(left=no_chunks).num_rows == 0
    result = join.push(left=LEFT, right=RIGHT)
    assert in_order(result.to_pylist()) == in_order(EXPECTED)


def test_a_reader_is_read_once_and_to_its_end():
    join = wm.StreamJoin("l.k = r.k", wm.within(5), right_schema=RIGHT.schema)
    reader = LEFT.to_reader(max_chunksize=1)
    join.push(left=reader)
    assert join.metrics.rows_in_left == 3
    assert reader.read_all().num_rows == 0


# ---------------------------------------------------------------------------------------- dictionaries


def dictionary_table(values, dictionary, start):
    indices = pa.array([None if value is None else dictionary.index(value) for value in values], pa.int32())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(dictionary))
    return pa.table({"ts": pa.array(range(start, start + len(values)), pa.int64()), "d": column})


@pytest.mark.parametrize("index", ["auto", "nested_loop", "hash", "bisort"])
def test_dictionaries_may_change_from_batch_to_batch(index):
    join = wm.StreamJoin("l.d = r.d", wm.within(100), "full", index=index)
    tables = [
        join.push(left=dictionary_table(["a", "b", None], ["a", "b"], 0)),
        join.push(right=dictionary_table(["b", "c"], ["c", "b"], 0)),
        join.push(left=dictionary_table(["c", "a"], ["z", "c", "a"], 3)),
        join.push(right=dictionary_table(["a", None], ["b", "a"], 3)),
        join.close(),
    ]
    rows = [(row["ts"], row["d"], row["ts_right"], row["d_right"]) for t in tables for row in t.to_pylist()]
    assert in_order(rows) == in_order(
        [
            (0, "a", 3, "a"),
            (1, "b", 0, "b"),
            (3, "c", 1, "c"),
            (4, "a", 3, "a"),
            (2, None, None, None),
            (None, None, 4, None),
        ]
    )


def test_one_result_may_draw_on_many_batches_and_dictionaries():
    join = wm.StreamJoin("true", wm.within(1000), "inner", subwindow_rows=3)
    words = ["a", "b", "c", "d", "e"]
    join.push(right=dictionary_table([], words, 0))
    for number in range(20):
        values = [words[number % 5], words[(number + 1) % 5]]
        join.push(left=dictionary_table(values, values[::-1], 2 * number))
    result = join.push(right=dictionary_table(["a"], words, 40))
    expected = {ts: words[(ts // 2 + ts % 2) % 5] for ts in range(40)}
    assert dict(zip(result["ts"].to_pylist(), result["d"].to_pylist(), strict=True)) == expected
    assert set(result["d_right"].to_pylist()) == {"a"}


def test_a_side_may_have_no_columns_but_its_time():
    join = wm.StreamJoin("l.k > 1", wm.within(5))
    left = pa.table({"ts": [1, 2, 3], "k": [1, 2, 3]})
    result = join.push(left=left, right=pa.table({"ts": [2]}))
    assert in_order(result.to_pylist()) == [
        {"ts": 2, "k": 2, "ts_right": 2},
        {"ts": 3, "k": 3, "ts_right": 2},
    ]


def test_count_windows_need_no_time_column():
    join = wm.StreamJoin("l.a = r.b", wm.last(10))
    result = join.push(left=pa.table({"a": [1, 2]}), right=pa.table({"b": [2, 2, 3]}))
    assert result.to_pydict() == {"a": [2, 2], "b": [2, 2]}


def test_pushed_data_is_not_changed_by_the_join_nor_the_join_by_the_caller():
    values = pa.array([3, 1, 2], pa.int64())
    left = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "k": values})
    join = wm.StreamJoin("l.k <= r.k", wm.within(100), output="count")
    join.push(left=left)
    del left
    assert join.push(right=pa.table({"ts": pa.array([3], pa.int64()), "k": pa.array([2], pa.int64())})) == 2
    assert values.to_pylist() == [3, 1, 2]


def test_names_that_want_quotes():
    left = pa.table({"ts": [1], "the key": [1], "select": ["x"]})
    right = pa.table({"ts": [1], "Key": [1], "ключ": ["y"]})
    join = wm.StreamJoin("l.`the key` = r.Key", wm.within(5))
    result = join.push(left=left, right=right)
    assert result.column_names == ["ts", "the key", "select", "ts_right", "Key", "ключ"]
    assert result.num_rows == 1


def test_schema_metadata_and_nullability_do_not_make_a_schema_wrong():
    plain = pa.schema([pa.field("ts", pa.int64()), pa.field("k", pa.int64())])
    strict = pa.schema([pa.field("ts", pa.int64(), nullable=False), pa.field("k", pa.int64())], metadata={"a": "b"})
    join = wm.StreamJoin("l.k = r.k", wm.within(5), output="count")
    data = {"ts": [1], "k": [1]}
    join.push(left=pa.table(data, schema=plain), right=pa.table(data, schema=strict))
    assert join.push(left=pa.table(data, schema=strict), right=pa.table(data, schema=plain)) == 3
