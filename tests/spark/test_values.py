"""Spark itself as the oracle of values: what it makes of casts, functions and operators, our expressions make too.

One batch query computes every expression over every row of nasty values. `cast` is Spark's `try_cast`.
"""

from __future__ import annotations

import math
import random
import struct
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.query import parse
from watersmeet.query.evaluate import bind
from watersmeet.query.node import Rows

TOP, BOTTOM = 2**63 - 1, -(2**63)
RANDOM = random.Random(11)

TEXTS = """
|0|1|-1|+1|12.5|.5|5.|.|+|-|1_000|1e3|1E-3|1e|0x10|0x1p3|-0X1.8P1|1d|1.5f|1L| 7 |7 8|--1|007|99999999999999999999
2147483647|2147483648|-2147483648|-2147483649|9223372036854775807|9223372036854775808|127|128|1e400|-1e400|1e-400|1e38
0.005|0.015|-0.005|1.005|999.995|123456789012345678901234567890.12|NaN|nan|-NaN|inf|+Inf|-infinity|Infinity|infinit
true|TRUE|t|Yes|y|false|F|no|n|on|off|2024-01-01|2024-1-1|2024-01|2024|20240101|2024-02-30|2024-13-01|+2024-01-01
-0044-03-15|10000-01-01|5881580-07-11|9999999-01-01|2024-01-01T10:00|2024-01-01 x|2024-01-01x|2024 |24-01-01|١٢|１２
""".strip().replace("\n", "|").split("|")
TEXTS += ["\t3\n", "\x003", "\x7f3", "3\u00a0", "\u20033", "ß", "ΑΣ", "İ", "Straße é", "abcdefghi", "xxaxx", "𝒳y",
    "%", "a_b", "\\"]
WHOLES = [0, 1, -1, 2, 3, -7, 10, 127, 128, -129, 2**31 - 1, 2**31, -(2**31) - 1, TOP, TOP - 1, BOTTOM, 2**53 + 1,
    15, -25]
DOUBLES = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e15, 1e15 + 0.3, 9.1e15, 1e16, 1e22, 1e300, 5e-324, 0.005]
DOUBLES += [math.nan, math.inf, -math.inf, 1.7976931348623157e308, 9.223372036854775807e18, -9.223372036854775808e18,
    1.005]
DOUBLES += [2147483647.9, -2147483648.9, 2147483648.0, 127.9, 128.0, 2.0**24 + 1, 123456.789, 1e-7, -123.455,
    99999.995, 3e38]
DECIMALS = [Decimal(v) for v in ("0", "0.005", "-0.005", "1.005", "2.5", "-2.5", "99999.995", "123.456",
    "-99999.999", "0.001")]
DAYS = [0, 1, -1, 19723, 19782, -719162, 2932896, 10957]  # 0001-01-01 .. 9999-12-31
MICROS = [0, -1, 1, 1709212455123456, -62135596800000000, 253402300799999999, 951782400000000, 3600 * 10**6]

CASTS = [
    *(f"cast(s as {to})" for to in ("tinyint", "smallint", "int", "bigint", "double", "boolean", "date", "binary")),
    *(f"cast(s as decimal({to}))" for to in ("5,2", "38,0", "38,38", "20,10", "10")),
    *(f"cast({x} as {to})" for x in ("a", "x", "f") for to in ("tinyint", "smallint", "int", "bigint", "double",
    "boolean")),
    *(f"cast({x} as decimal({to}))" for x in ("a", "d", "x", "f", "p") for to in ("5,2", "38,10", "10,0", "38,38")),
    *(f"cast(d as {to})" for to in ("tinyint", "int", "bigint", "double", "boolean", "string")),
    *(f"cast(p as {to})" for to in ("int", "double", "float", "string")),
    "cast(a as float)", "cast(x as float)", "cast(a as string)", "cast(day as timestamp_ntz)", "cast(ts as date)",
    "cast(cast(d as decimal(20,6)) as string)",
]  # fmt: skip
FUNCTIONS = [
    *(f"{name}({x})" for name in ("abs", "sign", "floor", "ceil", "round", "sqrt", "isnan") for x in ("x", "f", "d")),
    *(f"round({x}, {n})" for x in ("x", "d", "f") for n in (1, 2, 5, 13, -1, -2, -16)),
    *(f"round(k, {n})" for n in (0, 2, -1, -2)),
    "x / y", "f / f", "k / y", "k / 3", "a / k", "x % y", "k % 3", "a % 7", "a div 7", "k div 3", "d % 2.5", "-x",
    "-d", "-k",
    "x + y", "x - y", "x * y", "x = y", "x < y", "x <=> y", "least(x, y)", "greatest(x, y)", "nullif(x, y)", "a / 0",
    "x / 0",
    "k % 0", "d + 1.25", "d * 2.5", "k * k", "exp(x)", "ln(x)", "pow(x, y)", "pow(x, 2)", "pow(y, 0.5)",
    *(f"{name}(s)" for name in ("upper", "lower", "length", "trim", "ltrim", "rtrim")),
    "trim('x' from s)", "trim(both 'x1' from s)", "ltrim('x', s)", "rtrim('x', s)", "trim('' from s)",
    *(f"substring(s, {n})" for n in (0, 1, 3, -2, -50, 50, 2147483647, -1000000)),
    *(f"substring(s, {n}, {m})" for n in (0, 2, -3, -50) for m in (0, 2, -1, 48, 2147483647)),
    "concat(s, 'é', s)", "s || null", "s like '%a_b'", "s like '1%'", "s like '_'", "s ilike 'STR%'",
    "contains(s, '0')",
    "startswith(s, '1')", "endswith(s, '1')", "s = '1'", "s < '2'", "coalesce(s, 'x')",
    *(f"{name}({x})" for name in ("year", "month", "day", "hour", "minute", "second") for x in ("day", "ts")
      if x == "ts" or name in ("year", "month", "day")),
    *(f"date_trunc('{unit}', ts)" for unit in ("year", "quarter", "month", "week", "day", "hour", "minute",
    "second")),
    "datediff(day, ts)", "date_add(day, 3)", "to_date(ts)", "to_date(s)", "day + 1", "ts + interval '5' seconds",
    "ts - interval '36' hours", "ts < day", "ts > '2024-01-01 00:00:00'", "day = '1970-01-01'",
    "day = date '1970-01-01'",
    "ts = timestamp_ntz '1970-01-01 00:00:00'", "k between 1 and 10", "k in (1, 2, null)", "p and k > 1",
    "p or k > 1",
    "not p", "case when p then k else 0 end", "if(p, s, 'no')", "k is null", "p is true", "(k > 1) is false",
]  # fmt: skip
NEARLY = ("exp", "ln", "pow")  # no two mathematical libraries agree on the last place


def table() -> pa.Table:
    """Every pool repeated to one length, and random doubles after them."""
    rows = max(map(len, (TEXTS, WHOLES, DOUBLES))) * 2 + 101

    def cycle(values: list, step: int = 1) -> list:
        return [values[(i * step) % len(values)] if i % 23 else None for i in range(1, rows + 1)]

    drawn = [struct.unpack("d", RANDOM.randbytes(8))[0] for _ in range(20)] + [RANDOM.gauss(0, 1e3) for _ in range(20)]
    doubles = cycle([*DOUBLES, *drawn])
    columns = {
        "i": pa.array(range(rows), pa.int32()),
        "s": pa.array(cycle(TEXTS)),
        "a": pa.array(cycle(WHOLES), pa.int64()),
        "k": pa.array(cycle([v for v in WHOLES if abs(v) < 2**15]), pa.int32()),
        "x": pa.array(doubles, pa.float64()),
        "y": pa.array(cycle(DOUBLES, 7), pa.float64()),
        "f": pa.array(doubles, pa.float64()).cast(pa.float32(), safe=False),
        "d": pa.array(cycle(DECIMALS), pa.decimal128(10, 3)),
        "p": pa.array(cycle([True, False])),
        "day": pa.array(cycle(DAYS), pa.int32()).cast(pa.date32()),
        "ts": pa.array(cycle(MICROS), pa.int64()).cast(pa.timestamp("us")),
    }
    return pa.table(columns)


def ours(text: str, rows: pa.Table) -> list:
    batch = rows.combine_chunks().to_batches()[0]
    node = bind(parse(text), batch.schema, pa.schema([]))
    with np.errstate(all="ignore"):
        data, valid = node.run(Rows(batch, None, len(batch)))
    values = [data.as_py()] if isinstance(data, pa.Scalar) else data.tolist()
    values = values * len(batch) if len(values) == 1 else values
    known = [True] * len(batch) if valid is None else np.broadcast_to(valid, len(batch)).tolist()
    kind, scale = node.type.kind, node.type.scale

    def shown(value: object) -> object:
        if kind == "exact":
            return Decimal(value).scaleb(-scale, Context(prec=200))
        return value * 10**6 // 10**scale if kind == "timestamp" else value

    return [shown(value) if ok and value is not None else None for value, ok in zip(values, known, strict=True)]


def spark_values(spark, texts: list[str], rows: pa.Table) -> dict[str, list]:
    """Spark's answers, in the representation of ours."""
    frame = spark.createDataFrame(rows).repartition(1)
    columns = [f"{text.replace('cast(', 'try_cast(')} as c{n}" for n, text in enumerate(texts)]
    found = frame.selectExpr("i", *columns).toArrow().sort_by("i")
    answers = {}
    for n, text in enumerate(texts):
        column = found[f"c{n}"]
        if pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        values = column.to_pylist()
        if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type):
            values = [None if v is None else Decimal(v) for v in values]
        answers[text] = values
    return answers


def same(text: str, a: object, b: object) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, (float, Decimal)) and isinstance(b, (float, Decimal)):
        a, b = (float(v) if {type(a), type(b)} == {float, Decimal} else v for v in (a, b))
        if a != a or b != b:
            return a != a and b != b
        return a == b or text.startswith(NEARLY) and math.isclose(a, b, rel_tol=1e-14)
    return a == b


SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}


@pytest.mark.long
def test_values_are_sparks(spark):
    rows = table()
    before = {name: spark.conf.get(name) for name in SETTINGS}
    try:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        theirs = spark_values(spark, CASTS + FUNCTIONS, rows)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    wrong: dict[str, str] = {}
    for text in CASTS + FUNCTIONS:
        for row, mine, spark_says in zip(rows.to_pylist(), ours(text, rows), theirs[text], strict=True):
            if not same(text, mine, spark_says):
                wrong.setdefault(text, f"{text}: ours {mine!r}, Spark {spark_says!r} for {row}")
    assert not wrong, "\n".join(wrong.values())
