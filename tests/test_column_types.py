"""Every Arrow type goes through the join: the values come out as they went in, in the plain layout of their type."""

import datetime
import decimal
import uuid
from collections import Counter

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import watersmeet as wm

DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1, 500)
DECIMALS = [decimal.Decimal("1.25"), None, decimal.Decimal("-999.99")]
WORDS = ["x", None, "a long string that is not inlined anywhere"]
BYTES = [b"\0\xff", None, b"a long value that is not inlined"]


class Celsius(pa.ExtensionType):
    """Like many a user's: it cannot be hashed."""

    def __init__(self):
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def required(type_, name="element"):
    return pa.field(name, type_, nullable=False)


def of(type_, values, kept=None):
    return pa.array(values, type_), kept or type_


def struct(kept, **parts):
    return pa.StructArray.from_arrays(list(parts.values()), list(parts)), kept


SMALL_DICTIONARY = pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int8()), pa.array(["x", "y"]))
RUNS = pc.run_end_encode(pa.array(["x", "x", None]))
LISTS = pa.array([[1, None], None, []], pa.list_(pa.int64()))
DENSE = pa.UnionArray.from_dense(
    pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([1, None]), pa.array(["a"])]
)
SPARSE = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, None]), pa.array(list("abc"))])

TYPES = {
    "bool": of(pa.bool_(), [True, None, False]),
    **{str(t): of(t, [-5, None, 127]) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): of(t, [0, None, 255]) for t in (pa.uint8(), pa.uint16(), pa.uint32())},
    "uint64": of(pa.uint64(), [0, None, 2**64 - 1]),
    "float16": of(pa.float16(), [0.5, None, -2.0]),
    "float32": of(pa.float32(), [0.5, None, float("-inf")]),
    "float64": of(pa.float64(), [0.1, None, -0.0]),
    "decimal32": of(pa.decimal32(7, 2), DECIMALS),
    "decimal64": of(pa.decimal64(15, 2), DECIMALS),
    "decimal128": of(pa.decimal128(30, 2), DECIMALS),
    "decimal256": of(pa.decimal256(50, 2), [*DECIMALS[:2], decimal.Decimal(10**40)]),
    "date32": of(pa.date32(), [DAY, None, DAY]),
    "date64": of(pa.date64(), [DAY, None, DAY]),
    **{str(t): of(t, [5, None, 0]) for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))},
    **{str(t): of(t, [5000, None, -1000]) for u in ("s", "ms", "us", "ns") for t in (pa.timestamp(u), pa.duration(u))},
    "timestamp with zone": of(pa.timestamp("us", "Asia/Tokyo"), [MOMENT.replace(tzinfo=datetime.UTC), None, None]),
    "interval": of(pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), None, pa.MonthDayNano([0, 0, 0])]),
    "string": of(pa.string(), WORDS),
    "large string": of(pa.large_string(), WORDS),
    "string view": of(pa.string_view(), WORDS, pa.string()),
    "binary": of(pa.binary(), BYTES),
    "large binary": of(pa.large_binary(), BYTES),
    "binary view": of(pa.binary_view(), BYTES, pa.binary()),
    "fixed size binary": of(pa.binary(3), [b"abc", None, b"\0\0\0"]),
    "fixed size binary of none": of(pa.binary(0), [b"", None, b""]),
    "list": (LISTS, LISTS.type),
    "large list": of(pa.large_list(pa.string()), [["a", None], None, []]),
    "list view": of(pa.list_view(pa.int64()), [[1, None], None, []], pa.list_(pa.int64())),
    "list view out of order": (
        pa.ListViewArray.from_arrays(pa.array([2, 0, 1], pa.int32()), pa.array([1, 2, 0], pa.int32()), [7, 8, 9]),
        pa.list_(pa.int64()),
    ),
    "large list view": of(pa.large_list_view(pa.int8()), [[1, None], None, []], pa.large_list(pa.int8())),
    "fixed size list": of(pa.list_(pa.int8(), 2), [[1, 2], None, [3, None]]),
    "list of lists": of(pa.list_(pa.list_(pa.string())), [[["a"], None], None, [[], ["b", "c"]]]),
    "list of views": of(
        pa.list_(pa.list_view(pa.string_view())), [[["a"], None], None, [[], ["b"]]], pa.list_(pa.list_(pa.string()))
    ),
    "list, not null": of(pa.list_(required(pa.int64())), [[1], None, []], pa.list_(pa.int64())),
    "large list, not null": of(pa.large_list(required(pa.int64())), [[1], None, []], pa.large_list(pa.int64())),
    "fixed size list, not null": of(pa.list_(required(pa.int8()), 2), [[1, 2], None, [3, 4]], pa.list_(pa.int8(), 2)),
    "list of dictionaries": (
        pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), SMALL_DICTIONARY), pa.list_(pa.string())
    ),
    "struct": of(
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}), [{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]
    ),
    "struct, not null": of(
        pa.struct([required(pa.int64(), "a"), required(pa.list_(required(pa.string())), "b")]),
        [{"a": 1, "b": ["x"]}, {"a": 2, "b": []}, {"a": 3, "b": ["y"]}],
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())}),
    ),
    "struct of nothing": of(pa.struct([]), [{}, None, {}]),
    "dictionary in a struct": struct(pa.struct({"d": pa.string()}), d=SMALL_DICTIONARY),
    "run-end encoded in a struct": struct(pa.struct({"d": pa.string()}), d=RUNS),
    "union in a struct": struct(pa.struct({"u": SPARSE.type}), u=SPARSE),
    "extension in a struct": struct(
        pa.struct({"e": Celsius()}), e=pa.ExtensionArray.from_storage(Celsius(), pa.array([1.5, None, 2.5]))
    ),
    "map": of(pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
    "map, sorted": of(
        pa.map_(pa.string(), pa.int64(), keys_sorted=True), [[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())
    ),
    "map of views": of(
        pa.map_(pa.string_view(), pa.list_view(pa.int8())), [[("a", [1])], None, []],
        pa.map_(pa.string(), pa.list_(pa.int8())),
    ),
    "dictionary": (SMALL_DICTIONARY, pa.string()),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), pa.array(["x", "y"], pa.string_view())),
        pa.string(),
    ),
    "dictionary of numbers": (
        pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int64()), pa.array([0.5, 1.5]), ordered=True),
        pa.float64(),
    ),
    "run-end encoded": (RUNS, pa.string()),
    "run-end encoded lists": (
        pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int16()), LISTS), pa.list_(pa.int64())
    ),
    "dense union": (DENSE, DENSE.type),
    "sparse union": (SPARSE, SPARSE.type),
    "uuid": of(pa.uuid(), [uuid.UUID(int=1).bytes, None, uuid.UUID(int=2).bytes]),
    "json": of(pa.json_(), ['{"a": 1}', None, "[]"]),
    "bool8": of(pa.bool8(), [1, None, 0]),
    "tensor": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
        ),
        pa.fixed_shape_tensor(pa.int32(), [2]),
    ),
    "extension": (pa.ExtensionArray.from_storage(Celsius(), pa.array([1.5, None, 2.5])), Celsius()),
}  # fmt: skip


def table(array, start, first_key):
    n = len(array)
    return pa.table(
        {
            "ts": pa.array(range(start, start + n), pa.int64()),
            "k": pa.array(range(first_key, first_key + n), pa.int64()),
            "p": array,
        }
    )


def plain(value):
    return repr(value)


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
@pytest.mark.parametrize("name", TYPES)
def test_values_of_every_type_come_out_as_they_went_in(name, how):
    array, kept = TYPES[name]
    # The brute-force answer: keys are unique, so a pair has equal keys, and a value is known by its key.
    pushes = [
        ("left", table(array, 0, 0)),
        ("right", table(array.slice(1), 0, 4)),
        ("left", table(array, 3, 3)),
        ("right", table(pa.concat_arrays([array, array]).slice(2, 3), 3, 8)),
        ("left", table(array.slice(0, 0), 6, 0)),
        ("left", table(array.slice(2), 6, 8)),
    ]
    values: dict[str, dict] = {"left": {}, "right": {}}
    join = wm.StreamJoin("l.k = r.k", wm.within(100), how)
    answers = []
    for side, pushed in pushes:
        values[side] |= zip(pushed["k"].to_pylist(), map(plain, pushed["p"].to_pylist()), strict=True)
        answers.append(join.push(**{side: pushed}))
    answers.append(join.close())
    left, right = values["left"], values["right"]
    expected = [] if how == "anti" else [(k, left[k], k, right[k]) for k in left if k in right]
    if how != "inner":
        expected += [(k, left[k], None, "None") for k in left if k not in right]
    if how == "full":
        expected += [(None, "None", k, right[k]) for k in right if k not in left]
    found = []
    for answer in answers:
        if answer.num_columns:
            answer.validate(full=True)
            assert answer.schema.field("p").type == kept
            columns = [answer[c].to_pylist() for c in answer.column_names]
            if how == "anti":
                columns += [[None] * answer.num_rows] * 3
            found += [(k, plain(p), k2, plain(p2)) for _, k, p, _, k2, p2 in zip(*columns, strict=True)]
    assert Counter(found) == Counter(expected)


def test_an_extension_over_a_dictionary_is_refused_with_column_type_and_remedy():
    class Colour(pa.ExtensionType):
        def __init__(self):
            super().__init__(SMALL_DICTIONARY.type, "tests.colour")

        def __arrow_ext_serialize__(self):
            return b""

    column = pa.ExtensionArray.from_storage(Colour(), SMALL_DICTIONARY)
    join = wm.StreamJoin("l.k = r.k", wm.within(100))
    with pytest.raises(TypeError, match=r"'p' of the left stream is extension<tests.colour.*dictionary.*; push its"):
        join.push(left=table(column, 0, 0))
    assert join.metrics.waiting == 0
    join.push(left=table(LISTS, 0, 0))  # nothing has changed: a stream of other columns may begin


def test_a_union_of_dictionaries_is_refused_with_column_type_and_remedy():
    union = pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [SMALL_DICTIONARY])
    join = wm.StreamJoin("l.k = r.k", wm.within(100))
    with pytest.raises(TypeError, match=r"'p' of the right stream is sparse_union<.*dictionary.*; push its"):
        join.push(right=table(union, 0, 0))


def test_empty_answers_exist_for_every_type():
    for array, _ in TYPES.values():
        data = table(array, 0, 0)
        join = wm.StreamJoin("l.k = r.k", wm.within(100), left_schema=data.schema, right_schema=data.schema)
        assert join.flush().num_rows == 0
        assert join.take_late("left").num_rows == 0


# -------------------------------------------------------------------------------------- categories


def frame(start, colours, categories=None):
    n = len(colours)
    return pd.DataFrame({"ts": range(start, start + n), "colour": pd.Categorical(colours, categories)})


def test_categories_of_pandas_may_differ_from_batch_to_batch():
    join = wm.StreamJoin("l.colour = r.colour", wm.within(100), "full")
    tables = [
        join.push(left=frame(0, ["red", "green", None])),
        join.push(right=frame(0, ["blue", "red"])),
        join.push(left=frame(3, ["blue", "red"], ["red", "blue", "white"])),
        join.push(right=frame(2, [None, "green"], ["green"])),
        join.close(),
    ]
    assert join.schema.field("colour").type == pa.string()
    found = [row for t in tables for row in zip(*[c.to_pylist() for c in t.columns], strict=True)]
    assert sorted(found, key=repr) == sorted(
        [
            (0, "red", 1, "red"),
            (4, "red", 1, "red"),
            (3, "blue", 0, "blue"),
            (1, "green", 3, "green"),
            (2, None, None, None),
            (None, None, 2, None),
        ],
        key=repr,
    )


def test_the_index_of_a_dictionary_may_grow_wider():
    many = [f"c{i}" for i in range(300)]
    join = wm.StreamJoin("l.colour = r.colour", wm.within(10_000), output="count")
    join.push(right=frame(0, ["c0", "c299"]))
    assert join.push(left=frame(0, ["c0", "c1"])) == 1  # int8
    assert join.push(left=frame(2, many)) == 2  # int16
    assert join.push(left=frame(400, ["c299"])) == 1  # int8 again
    assert join.push(left=pa.table({"ts": [401], "colour": ["c0"]})) == 1  # plain text


def test_categories_may_be_numbers_and_times():
    times = pd.to_datetime([1, 2], unit="s")
    data = pd.DataFrame({"ts": pd.Categorical(times), "k": pd.Categorical([5, 7])})
    join = wm.StreamJoin("l.k = r.k", wm.within("5 seconds"), output="pairs")
    join.push(left=data)
    again = pd.DataFrame({"ts": pd.Categorical(times[::-1]), "k": pd.Categorical([7, 9])})
    assert join.push(right=again[::-1]).to_pylist() == [{"left": 1, "right": 1}]
