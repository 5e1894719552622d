"""Kafka's messages as rows and back, on real Spark, without a broker: from tables with the columns that Kafka has."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.spark import messages
from watersmeet.spark.runner import failure

SCHEMA = "id bigint, price double, ts timestamp, tags array<string>, `odd name` decimal(9,2)"
COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def table(spark, values):
    rows = [(f"k{n}".encode(), value, "trades", n % 2, n, NOON) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)


def read(spark, values, value="json", schema=SCHEMA, where=None, select=(), drop=True, **options):
    found = messages.rows(table(spark, values), "left", value, schema, options)
    found = messages.where(found, where) if where else found
    return messages.settled(messages.select(found, select), drop)


def plain(frame):
    """Rows in order, times as texts in UTC."""
    rows = frame.toArrow().to_pylist()
    return [
        tuple(v.astimezone(UTC).isoformat() if isinstance(v, datetime) else v for v in row.values()) for row in rows
    ]


def stream(**columns):
    sink = pa.BufferOutputStream()
    content = pa.table(columns)
    with pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content, 1)
    return sink.getvalue().to_pybytes()


NOTHING = (None,) * 5
JSON = [
    (b'{"id": 1, "price": 10.5, "ts": "2026-01-05T12:00:00.123456Z", "tags": ["a"], "odd name": 1.25}',
     (1, 10.5, "2026-01-05T12:00:00.123456+00:00", ["a"], Decimal("1.25"))),
    (b'{"id": 2, "more": {"x": [1]}}', (2, None, None, None, None)),
    (b'{"ts": "2026-01-05T13:00:00+01:00", "price": "NaN", "id": -9223372036854775808}',
     (-9223372036854775808, "nan", "2026-01-05T12:00:00+00:00", None, None)),
    (b'{"ts": 1767614400}', (None, None, "2026-01-05T12:00:00+00:00", None, None)),
    (b"{}", NOTHING),
]  # fmt: skip
BAD_JSON = [
    None, b"", b"   ", b"nonsense", b'{"id": 1', b"[1, 2]", b"17", b"null", b'"text"', b'{"id": "one"}', b'{"id": 1.5}',
    b'{"id": 9223372036854775808}', b'{"price": true}', b'{"ts": "yesterday"}', b'{"tags": "a"}', b"\xff\xfe{",
]  # fmt: skip


def nan_as_text(rows):
    return [tuple("nan" if value != value else value for value in row) for row in rows]


def test_json_becomes_rows_and_what_does_not_fit_is_bad(spark):
    values = [value for value, _ in JSON] + BAD_JSON
    found = nan_as_text(plain(read(spark, values)))
    assert found == [row for _, row in JSON] + [NOTHING] * len(BAD_JSON)
    raw = messages.rows(table(spark, values), "left", "json", SCHEMA, {}).select(messages.BAD).toArrow()
    said = raw.column(0).to_pylist()
    assert said[: len(JSON)] == [None] * len(JSON)
    for number, value in enumerate(BAD_JSON, len(JSON)):
        place = f"message {number} of partition {number % 2} of topic trades"
        assert said[number].startswith(f"left: {place} cannot be read: it "), value


def test_a_bad_message_ends_the_query_with_its_place_and_text(spark):
    with pytest.raises(Exception, match="USER_RAISED") as error:
        read(spark, [b'{"id": 1}', b'{"id": "one"}'], drop=False).toArrow()
    assert failure(error.value) == (
        'left: message 1 of partition 1 of topic trades cannot be read: it is not JSON of this schema: {"id": "one"}; '
        'bad_rows = "drop" leaves such messages out and counts them'
    )
    assert plain(read(spark, [b'{"id": 1}'], drop=False)) == [(1, None, None, None, None)]


def test_where_comes_after_parsing_and_keeps_bad_messages_for_the_count(spark):
    values = [b'{"id": 1, "price": 1.0}', b'{"id": 2, "price": 3.0}', b"nonsense", b'{"id": 3}', None]
    assert [row[0] for row in plain(read(spark, values, where="price > 2"))] == [2, None, None]
    with pytest.raises(Exception, match="message 2 of partition 0"):
        read(spark, values, where="price > 2", drop=False).toArrow()


def test_select_has_what_kafka_knows_of_a_message_too(spark):
    values = [b'{"id": 1}', b"nonsense"]
    select = ("kafka.timestamp as ts", "cast(kafka.key as string) as who", "id + 1 as next", "kafka.offset")
    found = plain(read(spark, values, select=select))
    assert found == [("2026-01-05T12:00:00+00:00", "k0", 2, 0), (None, None, None, None)]
    assert read(spark, values, select=select).columns == ["ts", "who", "next", "offset"]


def test_a_column_of_the_schema_may_be_called_kafka(spark):
    assert plain(read(spark, [b'{"id": 1, "kafka": "x"}'], schema="id int, kafka string")) == [(1, "x")]
    assert plain(read(spark, [b'{"kafka": "x"}'], schema="kafka string", where="kafka = 'x'")) == [("x",)]


def test_options_reach_spark_s_json_reader(spark):
    values = [b'{"ts": "05.01.2026 13:00"}']
    options = {"timestampFormat": "dd.MM.yyyy HH:mm", "timeZone": "Europe/Paris"}
    found = plain(read(spark, values, schema="ts timestamp", **options))
    assert found == [("2026-01-05T12:00:00+00:00",)]


def test_json_is_parsed_once(spark):
    """However many columns it has, and whatever conditions mention them."""
    for where in (None, "price > 2 and id < 7 and kafka.partition = 0"):
        for select, drop in (((), True), ((), False), (("id", "ts"), True), (("id",), False)):
            frame = read(spark, [b"{}"], where=where, select=select, drop=drop)
            plan = frame._jdf.queryExecution().optimizedPlan().toString()
            assert plan.count("from_json") == 1, plan


def test_an_arrow_value_is_any_number_of_rows(spark):
    values = [
        stream(ts=pa.array([1, 2, 3], pa.timestamp("ms", "UTC")), id=pa.array([1, 2, None], pa.int8()), more=[1, 2, 3]),
        stream(id=pa.array([], pa.int64())),
        stream(tags=pa.array([["a", None]], pa.large_list(pa.large_string())), price=pa.array([1], pa.int32())),
        stream(**{"odd name": pa.array([Decimal("2.50")]).cast(pa.decimal128(5, 2))}),
    ]
    moments = [f"1970-01-01T00:00:00.00{n}000+00:00" for n in (1, 2, 3)]
    assert plain(read(spark, values, "arrow")) == [
        (1, None, moments[0], None, None),
        (2, None, moments[1], None, None),
        (None, None, moments[2], None, None),
        (None, 1.0, None, ["a", None], None),
        (None, None, None, None, Decimal("2.50")),
    ]


def test_arrow_values_that_do_not_fit_are_bad(spark):
    good = stream(id=pa.array([1, 2]))
    unsound = bytearray(stream(tags=pa.array([["a", "b"]])))
    place = unsound.find(b"ab")
    unsound[place - 64 : place] = b"\x7f" * 64  # offsets beyond what is there
    values = [
        None, b"", b"nonsense", good[:-100], good[20:], stream(id=["one"]), stream(id=[1.5]), bytes(unsound),
        stream(id=pa.array([2**63], pa.uint64())), stream(price=[[1.0]]),
    ]  # fmt: skip
    found = plain(read(spark, [good, *values, good], "arrow"))
    assert found == [(1, None, None, None, None), (2, None, None, None, None), *[NOTHING] * len(values),
                     (1, None, None, None, None), (2, None, None, None, None)]  # fmt: skip
    with pytest.raises(Exception, match="left: message 1 of .* of topic trades cannot be read: it has no value"):
        read(spark, [good, None], "arrow", drop=False).toArrow()
    assert [row[0] for row in plain(read(spark, [good, None], "arrow", where="id = 2"))] == [2, None]


def test_many_rows_of_arrow_are_handed_on_in_portions(monkeypatch):
    monkeypatch.setattr(messages, "PORTION_ROWS", 7)
    kafka = pa.array([{"topic": "t", "partition": 0, "offset": n} for n in range(9)])
    values = pa.array([stream(id=list(range(n))) if n != 4 else b"" for n in range(9)], pa.binary())
    batch = pa.RecordBatch.from_arrays([kafka, values], names=["kafka", "value"])
    found = list(messages.Decoder("right", pa.schema([("id", pa.int64())]))(iter([batch])))
    assert len(found) > 3
    rows = [row for each in found for row in each.to_pylist()]
    assert [(row["kafka"]["offset"], row["row"] and row["row"]["id"]) for row in rows] == [
        (n, i) for n in range(9) for i in ([None] if n == 4 else range(n))
    ]
    assert [row["kafka"]["offset"] for row in rows if row[messages.BAD]] == [4]


def test_rows_become_json_that_reads_back_as_it_was(spark):
    values = [value for value, _ in JSON]
    rows = read(spark, values)
    sent = messages.as_json(rows, "id", (), {}).toArrow()
    assert sent.column_names == ["key", "value"]
    assert sent["key"].to_pylist() == ["1", "2", "-9223372036854775808", None, None]
    first = json.loads(sent["value"][0].as_py())
    assert first["ts"] == "2026-01-05T12:00:00.123456Z" and first["odd name"] == 1.25
    back = read(spark, [value.encode() for value in sent["value"].to_pylist()])
    assert nan_as_text(plain(back)) == [row for _, row in JSON]


def test_key_and_columns_of_a_message_may_be_computed(spark):
    rows = read(spark, [b'{"id": 7, "price": 2.5}'])
    sent = messages.as_json(rows, "concat('n', id)", ("price * 2 as twice", "id"), {"ignoreNullFields": "false"})
    assert sent.collect() == [("n7", '{"twice":5.0,"id":7}')]
    assert messages.as_json(rows, "cast('x' as binary)", ("id",), {}).schema["key"].dataType.simpleString() == "binary"
    assert messages.as_json(rows, None, ("ts",), {"ignoreNullFields": "false"}).collect() == [('{"ts":null}',)]
